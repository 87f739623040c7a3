"""Where a barrier was put, no hazard is left, and without it there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.passes.test_golden import CASES
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements
from tileworkbench.compiler.ir.simt import Barrier, BarrierInit
from tileworkbench.compiler.ir.stmt import For, If, Kernel, Seq, Stmt, While
from tileworkbench.compiler.passes.insert_barriers import InsertBarriers
from tileworkbench.compiler.schedule.hazards import Hazard, Hazards
from tileworkbench.compiler.target import parse_target

TARGET = parse_target("cuda:sm_80")
PLACED = [
    path
    for path in CASES
    if path.parent.name == "insert_barriers" and "\n---\nerror" not in path.read_text()
]


def hazards_of(program: Program) -> list[Hazard]:
    """Every hazard of the program as it stands. Of a branch or a loop in which data are exchanged
    those of its condition and its parts count.
    """
    found: list[Hazard] = []

    def listed(hazard: Hazard) -> bool:
        found.append(hazard)
        return False

    for kernel in statements(program.body):
        if isinstance(kernel, Kernel):
            ranges = Ranges(replace(program, body=kernel))
            walk = Hazards(kernel, ranges, TARGET.machine.lanes, True, listed)
            walk.find()
            found = [
                each
                for each in found
                if not isinstance(each.stmt, For | If | While)
                or any(each.access is own for own in walk.between.own(each.stmt))
                or not walk.exchanges(each.stmt, walk.between.of(each.stmt))
            ]
    return found


@pytest.mark.parametrize("path", PLACED, ids=lambda path: path.stem)
def test_barriers_leave_no_hazard_and_each_is_needed(path: Path) -> None:
    before = parse(path.read_text().partition("\n---\n")[0])
    after = InsertBarriers(TARGET)(before)
    assert not hazards_of(after)
    if any(isinstance(stmt, Barrier | BarrierInit) for stmt in statements(before.body)):
        return  # the kernel's own, and the one behind an initialisation, may be for nothing
    for barrier in [stmt for stmt in statements(after.body) if isinstance(stmt, Barrier)]:

        def without(stmt: Stmt, barrier: Barrier = barrier) -> Stmt:
            return Seq(()) if stmt is barrier else stmt

        assert hazards_of(replace(after, body=Rewriter(rewrite_stmt=without)(after.body)))


def test_a_hazard_names_both_accesses() -> None:
    path = next(path for path in PLACED if path.stem == "between_a_write_and_anothers_read")
    first, *_ = hazards_of(parse(path.read_text().partition("\n---\n")[0]))
    assert first.before.write and not first.access.write
    assert first.before.buffer is first.access.buffer
    assert first.branch is None
