"""What of a program is looked at: its pipelined loops, and the groups of threads of a block."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.sim.pipeline.leaves import waits_for_others


def ring_loops(program: Program, planned: frozenset[int]) -> dict[int, int]:
    """The loops to look at, in order: site -> number. Those at the sites `planned`, else the
    innermost around waits.
    """
    loops = [stmt for stmt in statements(program.body) if isinstance(stmt, st.For)]
    found = [loop.site for loop in loops if loop.site in planned]
    if not found:
        around = [loop for loop in loops if any(map(waits_for_others, statements(loop)))]
        # The innermost of them; those of roles work together, as one.
        outer = {id(s) for s in around for t in statements(s.body) if any(t is a for a in around)}
        found = [loop.site for loop in around if id(loop) not in outer]
        if any(isinstance(stmt, simt.Role) for stmt in statements(program.body)):
            return dict.fromkeys(found, 0)
    return {site: number for number, site in enumerate(dict.fromkeys(found))}


def _roles(program: Program) -> list[simt.Role]:
    return [stmt for stmt in statements(program.body) if isinstance(stmt, simt.Role)]


def thread_groups(program: Program) -> tuple[tuple[int, int], ...]:
    """The threads of a block, (first, count), cut where a role begins or ends."""
    kernel = next(s for s in statements(program.body) if isinstance(s, st.Kernel))
    edges = {0, prod(kernel.threads)}
    for role in _roles(program):
        edges |= {role.start, role.start + role.extent}
    places = sorted(edges)
    return tuple((a, b - a) for a, b in pairwise(places))


def role_starts(program: Program) -> frozenset[int]:
    """The first threads of roles."""
    return frozenset(role.start for role in _roles(program))


def group_label(first: int, count: int, starts: frozenset[int]) -> str:
    """``threads 0-127``, and whether these are a role."""
    threads = f"threads {first}-{first + count - 1}"
    return f"role of {threads}" if first in starts else threads


def product_sites(program: Program) -> frozenset[int]:
    """The sites of the matrix products of a program with tile operators."""
    found = (s.site for s in statements(program.body) if isinstance(s, tile.Gemm))
    return frozenset(found)
