"""asynchrony.txt: which mistakes are found, at TILE, after each pass, and as hardware runs it.

Each row is a mistake of `test_asynchrony`, each column what the simulator says of the program as it
is then. Run this file as a script to write the table anew, then read the difference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from tests.frontend.golden import program_of
from tests.sim.test_asynchrony import (
    BULK,
    CLUSTER,
    COPIES,
    PRODUCTS,
    STORES,
    TABLE,
    arguments_of,
    changed,
)
from tileworkbench.compiler.diagnostics import DeadlockError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.simt import AsyncCopy, Start, WaitGroup
from tileworkbench.compiler.ir.stmt import Seq, Stmt
from tileworkbench.compiler.sim import simulate

FILE = Path(__file__).with_name("asynchrony.txt")
COLUMNS = ("written", "tile", "planned", "hardware")
# Threads copy rows of 16 bytes and more with cp.async, so that the lowered kernel has some.
WIDE = COPIES.replace("(2, 64)", "(2, 512)")
ENGINES = {"cp.async": COPIES, "TMA": BULK, "TMA store": STORES, "wgmma": PRODUCTS}
ENGINES["cluster"] = CLUSTER
MISTAKES = ("no wait", "early", "late", "count one off", "wrong phase")
# Why a kind of mistake does not exist.
ABSENT = dict.fromkeys(
    [("cp.async", "wrong phase"), ("TMA store", "wrong phase"), ("wgmma", "wrong phase")],
    "groups complete in order and have no phases",
)
ROWS = {(engine, mistake): (source, changes) for engine, mistake, source, changes, _ in TABLE}


def _no_wait(stmt: Stmt) -> Stmt:
    return Seq(()) if isinstance(stmt, WaitGroup) else stmt


def _one_off(stmt: Stmt) -> Stmt:
    return replace(stmt, pending=stmt.pending + 1) if isinstance(stmt, WaitGroup) else stmt


def _moved(stmt: Stmt, to_end: bool) -> Stmt:
    if not isinstance(stmt, Seq):
        return stmt
    return Seq(tuple(sorted(stmt.stmts, key=lambda each: isinstance(each, WaitGroup) is to_end)))


# Mistakes that are put into what each pass leaves of the kernel of cp.async, as a pass might.
PASSES: dict[tuple[str, str], Callable[[Stmt], Stmt]] = {
    ("pass", "no wait"): _no_wait,
    ("pass", "early"): partial(_moved, to_end=False),
    ("pass", "late"): partial(_moved, to_end=True),
    ("pass", "one too many left"): _one_off,
}


def verdict(program: Program, origin: Program) -> str:
    """What the simulator says of one program.

    found: it reports the mistake; done: there is none any more, since every operation is done where
    it starts; -: it reports nothing although operations are under way.
    """
    try:
        report = simulate(program, arguments_of(origin), signature=origin).report
    except DeadlockError:
        return "found"
    if not report.ok:
        return "found"
    kinds = (Start, AsyncCopy)
    return "-" if any(isinstance(stmt, kinds) for stmt in statements(program.body)) else "done"


def cells(row: tuple[str, str]) -> list[str]:
    """A verdict for each column; several where passes of a column differ."""
    source, changes = ROWS.get(row, (COPIES, {}))
    change = PASSES.get(row)

    def judged(program: Program) -> str:
        if change is not None:
            program = with_body(program, Rewriter(rewrite_stmt=change)(program.body))
        return verdict(program, origin)

    origin = program_of(changed(WIDE if source is COPIES else source, changes))
    seen: dict[str, list[str]] = {"written": [judged(origin)]}
    target = resolve_target("sim:sm_90" if row[0] == "cluster" else "sim:sm_80")
    stages = {Stage.TILE: "tile", Stage.PLANNED: "planned", Stage.SIMT: "hardware"}
    before = origin
    for snapshot in lower_program(origin, target):
        column = stages.get(snapshot.program.stage)
        if snapshot.program is not before and column is not None:
            before = snapshot.program
            said = judged(before)
            if said not in seen.setdefault(column, []):
                seen[column].append(said)
    return ["/".join(seen.get(column, ["none"])) for column in COLUMNS]


@cache
def table() -> dict[tuple[str, str], list[str]]:
    """The cells of the committed table."""
    rows = [line.split(" | ") for line in FILE.read_text().splitlines() if " | " in line]
    return {(row[0].strip(), row[1].strip()): [cell.strip() for cell in row[2:]] for row in rows}


@pytest.mark.parametrize("row", [*ROWS, *PASSES], ids="-".join)
def test_what_is_found_of_each_mistake(row):
    assert cells(row) == table()[row]


def test_a_mistake_of_a_pass_is_found_as_hardware_runs_it():
    assert {table()[row][-1] for row in PASSES} == {"found"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_kind_of_mistake_is_in_the_table(engine, mistake):
    """With what is found of it before anything is lowered, or why there is no such mistake."""
    off = ("one too many left", "one arrival too few", "one arrival too many")
    found = [
        table()[row][0]
        for row in table()
        if row[0] == engine and (row[1] in off if mistake == "count one off" else row[1] == mistake)
    ]
    assert bool(found) != ((engine, mistake) in ABSENT)
    assert set(found) <= {"found"}


HEADER = """\
What the simulator says of each mistake (tests/sim/test_asynchrony.py), of the program
  written    as the front end made it,
  tile       after each pass that leaves tile operators: the first lets operations be done where
             they start, but for cp.async where each copy is plainly waited for,
  planned    after each pass that leaves threads in lock step,
  hardware   after each later pass, as hardware runs threads.
Rows of "pass" put the mistake into what each pass leaves of a right kernel. Clusters are those of
sm_90, the others run on sm_80.

found: reported, with its line. done: every operation is done where it starts, so nothing is wrong.
-: nothing is wrong (a wait that leaves less than it may), or lock step hides it until threads run
on their own. none: no pass leaves such a program. Two verdicts: passes of one column differ.
Groups complete in order, so cp.async, stores by TMA and wgmma have no wrong phase.
"""


def update() -> None:
    lines = [["engine", "mistake", *COLUMNS]]
    lines += [[*row, *cells(row)] for row in [*ROWS, *PASSES]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    rows = [
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    FILE.write_text(HEADER + "\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    sys.exit(update())
