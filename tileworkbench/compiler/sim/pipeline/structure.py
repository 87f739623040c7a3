"""The parts of a program that a pipeline is made of: its pipelined loops, and the groups of threads
of a block.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import pairwise
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, variables
from tileworkbench.compiler.sim.pipeline.leaves import takes_turns, waits_for_others


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch with pipelined loops: launch `number` of `count`, from 1 on, with its `loops` in
    order (site -> number).
    """

    number: int
    count: int
    kernel: st.Kernel
    loops: Mapping[int, int]


def find_launches(program: Program, planned: Container[int]) -> tuple[Launch, ...]:
    """The launches with loops to look at: those at the sites `planned`, else the innermost around
    waits.
    """
    kernels = [stmt for stmt in statements(program.body) if isinstance(stmt, st.Kernel)]
    candidates = (
        Launch(number, len(kernels), kernel, _loops(kernel, planned))
        for number, kernel in enumerate(kernels, 1)
    )
    return tuple(launch for launch in candidates if launch.loops)


def _loops(kernel: st.Kernel, planned: Container[int]) -> dict[int, int]:
    loops = [stmt for stmt in statements(kernel.body) if isinstance(stmt, st.For)]
    sites = [loop.site for loop in loops if loop.site in planned]
    if not sites:
        around = [loop for loop in loops if any(map(waits_for_others, statements(loop)))]
        # The innermost of them; those of roles work together, as one.
        outer = {id(s) for s in around for t in statements(s.body) if any(t is a for a in around)}
        sites = [loop.site for loop in around if id(loop) not in outer]
        if _roles(kernel):
            return dict.fromkeys(sites, 0)
    return {site: number for number, site in enumerate(dict.fromkeys(sites))}


def _roles(kernel: st.Kernel) -> list[simt.Role]:
    return [stmt for stmt in statements(kernel.body) if isinstance(stmt, simt.Role)]


def thread_groups(kernel: st.Kernel) -> tuple[tuple[int, int], ...]:
    """The threads of a block, (first, count), cut where a role begins or ends, and into warpgroups
    where these wait at different memory barriers.
    """
    edges = {0, prod(kernel.threads)}
    for role in _roles(kernel):
        edges |= {role.start, role.start + role.extent, *_turns(kernel, role)}
    places = sorted(edges)
    return tuple((a, b - a) for a, b in pairwise(places))


def role_starts(kernel: st.Kernel) -> frozenset[int]:
    """The first threads of roles, and of warpgroups that take turns in them."""
    roles = _roles(kernel)
    return frozenset(at for role in roles for at in (role.start, *_turns(kernel, role)))


def _turns(kernel: st.Kernel, role: simt.Role) -> range:
    """The first threads of the warpgroups of a role that wait at barriers of their own."""
    waits = (stmt for stmt in statements(role.body) if isinstance(stmt, simt.BarrierWait))
    threads = set(kernel.thread_vars)
    if not any(threads.intersection(variables(each.barrier)) for each in waits):
        return range(0)
    return range(role.start, role.start + role.extent, simt.LANGUAGE_WARPGROUP)


def group_label(first: int, count: int, starts: frozenset[int]) -> str:
    """``threads 0-127``, and whether these are a role."""
    threads = f"threads {first}-{first + count - 1}"
    return f"role of {threads}" if first in starts else threads


def product_sites(program: Program) -> frozenset[int]:
    """The sites of the matrix products of a program with tile operators."""
    sites = (s.site for s in statements(program.body) if isinstance(s, tile.Gemm))
    return frozenset(sites)


def is_counted(stmt: st.Stmt, loops: Container[int]) -> bool:
    """Whether `stmt` is a loop whose iterations are counted and not looked at one by one."""
    looping = isinstance(stmt, st.For | st.While) and stmt.site not in loops
    return looping and not any(takes_turns(below) for below in statements(stmt))


def counted_parts(launch: Launch) -> dict[int, int]:
    """The statements of a launch by their id: the number of the outermost counted loop that each is
    in, 0 for none.
    """
    parts: dict[int, int] = {}

    def visit(stmt: st.Stmt) -> None:
        if is_counted(stmt, launch.loops):
            parts.update(dict.fromkeys(map(id, statements(stmt)), id(stmt)))
            return
        parts[id(stmt)] = 0
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                visit(child)

    visit(launch.kernel.body)
    return parts


def grid_of(kernel: st.Kernel) -> tuple[int, ...]:
    """The extents of the grid, 1 for one that only a call knows."""
    return tuple(const_int(extent) or 1 for extent in kernel.grid)


def blocks_to_look_at(kernel: st.Kernel) -> list[tuple[int, ...]]:
    """The block in the middle of the grid, the first and the last."""
    extents = grid_of(kernel)
    middle = tuple(extent // 2 for extent in extents)
    last = tuple(extent - 1 for extent in extents)
    return list(dict.fromkeys((middle, tuple(0 for _ in extents), last)))
