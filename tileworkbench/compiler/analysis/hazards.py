"""What is certainly wrong with a kernel, although it compiles: the warnings of its card.

Each is proven from the program alone. What depends on the values or sizes of a call is found by the
simulator.
"""

from __future__ import annotations

import re

from tileworkbench.compiler.analysis.boxes import refused_boxes
from tileworkbench.compiler.analysis.conflicts import conflicts
from tileworkbench.compiler.analysis.overruns import overruns
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.unfinished import unfinished
from tileworkbench.compiler.analysis.uninitialised import uninitialised_reads
from tileworkbench.compiler.diagnostics import Note
from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import bound_by, statements, walk
from tileworkbench.compiler.ir.stmt import Breakpoint, Kernel

_PASSED_OVER = "calls pass over T.breakpoint(); kernel.show('replay') opens there"
_NAME = re.compile(r"\w+")
_NUMBER = re.compile(r"_\d+$")


def find_hazards(program: Program) -> tuple[Note, ...]:
    """Uninitialised reads, accesses out of range, conflicting writes, missing waits and copies that
    the copy engine does not take, of a program at stage TILE, in program order, each sentence once.
    """
    ranges = Ranges(program)
    hazards: dict[tuple[int, str], None] = {}
    for kernel in statements(program.body):
        if isinstance(kernel, Kernel):
            hazards |= _fresh_reads(kernel)
            hazards |= dict.fromkeys(overruns(kernel, ranges))
            hazards |= dict.fromkeys(conflicts(kernel, ranges))
            hazards |= dict.fromkeys(unfinished(kernel))
            hazards |= dict.fromkeys(refused_boxes(kernel))
            hazards |= dict.fromkeys(breakpoints(kernel))
    return _notes(program, hazards)


def find_fresh_reads(program: Program) -> tuple[Note, ...]:
    """The uninitialised reads alone: what they give is different in every process."""
    hazards: dict[tuple[int, str], None] = {}
    for kernel in statements(program.body):
        if isinstance(kernel, Kernel):
            hazards |= _fresh_reads(kernel)
    return _notes(program, hazards)


def breakpoints(kernel: Kernel) -> list[tuple[int, str]]:
    """The breakpoints of a kernel: a user might expect a call to stop there."""
    stops = [stmt.site for stmt in statements(kernel.body) if isinstance(stmt, Breakpoint)]
    return [(site, _PASSED_OVER) for site in stops]


def _fresh_reads(kernel: Kernel) -> dict[tuple[int, str], None]:
    return dict.fromkeys((read.site, read.sentence) for read in uninitialised_reads(kernel))


def _notes(program: Program, hazards: dict[tuple[int, str], None]) -> tuple[Note, ...]:
    plain = _plain_names(program) if hazards else {}
    return tuple(
        Note(_NAME.sub(lambda name: plain.get(name[0], name[0]), sentence), program.span(site))
        for site, sentence in sorted(hazards)
    )


def _plain_names(program: Program) -> dict[str, str]:
    """The user's name for each name that has a number because another one is called the same."""
    names = {node.name for node in walk(program.body) if isinstance(node, Var | Buffer)}
    names |= {var.name for stmt in statements(program.body) for var in bound_by(stmt)}
    numbered = {name: _NUMBER.sub("", name) for name in names}
    return {name: plain for name, plain in numbered.items() if plain != name and plain in names}
