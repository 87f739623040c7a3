"""asynchrony.txt: which mistakes are found, at TILE, after each pass, and as hardware runs it.

Each row is a mistake of `test_asynchrony`, each column what the simulator says of the program as it
is then. Run this file as a script to write the table anew, then read the difference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from tileworkbench.compiler.ir.build import add, const, sub
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.simt import (
    AsyncCopy,
    BarrierInit,
    BarrierWait,
    Engine,
    Start,
    WaitGroup,
)
from tileworkbench.compiler.ir.stmt import If, Seq, Stmt
from tileworkbench.compiler.ir.types import INT32
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


@dataclass(frozen=True)
class Waits:
    """Those of one engine in lowered code, and the mistakes that a pass might make of them."""

    pipelined: str
    in_turn: str
    target: str
    engine: Engine

    def among(self, stmt: Stmt) -> bool:
        if self.engine is Engine.TMA:
            return isinstance(stmt, BarrierWait)
        return isinstance(stmt, WaitGroup) and stmt.engine is self.engine

    def none(self, stmt: Stmt) -> Stmt:
        return Seq(()) if self.among(stmt) else stmt

    def moved(self, stmt: Stmt, to_end: bool) -> Stmt:
        if not isinstance(stmt, Seq):
            return stmt
        waits = [each for each in map(self.wait_of, stmt.stmts) if each is not None]
        rest = [Rewriter(rewrite_stmt=self.none)(each) for each in stmt.stmts]
        rest = [each for each in rest if each != Seq(())]
        starts = [at for at, each in enumerate(rest) if self.begins(each)]
        at = len(rest) if to_end or not starts else starts[0]
        stmts = (*rest[:at], *waits, *rest[at:])
        return stmt if not waits or stmts == stmt.stmts else Seq(stmts)

    def wait_of(self, stmt: Stmt) -> Stmt | None:
        """The wait that `stmt` is, or has at its end for some of the threads."""
        if self.among(stmt):
            return stmt
        last = stmt.then.stmts[-1] if isinstance(stmt, If) and isinstance(stmt.then, Seq) else None
        return replace(stmt, then=last) if last is not None and self.among(last) else None

    def begins(self, stmt: Stmt) -> bool:
        kinds = (Start, AsyncCopy)
        return any(isinstance(each, kinds) for each in statements(stmt))

    def one_more(self, stmt: Stmt) -> Stmt:
        if self.engine is Engine.TMA:  # what a phase counts, in place of the groups that are left
            return (
                replace(stmt, count=add(stmt.count, const(1, INT32)))
                if isinstance(stmt, BarrierInit)
                else stmt
            )
        return replace(stmt, pending=stmt.pending + 1) if self.among(stmt) else stmt

    def other_phase(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, BarrierWait):
            return stmt
        return replace(stmt, parity=sub(const(1, INT32), stmt.parity))

    def mistakes(self) -> dict[str, Callable[[Stmt], Stmt]]:
        made = {
            "no wait": self.none,
            "early": partial(self.moved, to_end=False),
            "late": partial(self.moved, to_end=True),
            "count one off": self.one_more,
        }
        return made | ({"wrong phase": self.other_phase} if self.engine is Engine.TMA else {})


HOPPER = """\
@T.prim_func
def kernel(
    A: T.Tensor((64, 96), "float16"),
    B: T.Tensor((96, 64), "float16"),
    C: T.Tensor((64, 64), "float16"),
):
    with T.Kernel(1, threads=128) as bx:
        A_shared = T.alloc_shared((64, 32), "float16")
        B_shared = T.alloc_shared((32, 64), "float16")
        C_shared = T.alloc_shared((64, 64), "float16")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.clear(C_local)
"""
STEP = ("T.copy(A[0, k * 32], A_shared)", "T.copy(B[k * 32, 0], B_shared)")
STEP += ("T.gemm(A_shared, B_shared, C_local)",)
STORE = """\
        T.copy(C_local, C_shared)
        T.copy(C_shared, C)
"""
# Loads in a ring of memory barriers, products of warpgroups, and a store: all by engines.
RING = "".join(
    [HOPPER, "        for k in T.Pipelined(3, num_stages=2):\n"]
    + [f"            {line}\n" for line in STEP]
    + [STORE]
)
# The same behind each other, so that each wait has its operation in front and its reader behind.
IN_TURN = "".join(
    [HOPPER]
    + [f"        {line.replace('k * 32', '0')}\n" for line in STEP]
    + [STORE, "        T.clear(C_shared)\n"]
)
# Mistakes that are put into what each pass leaves of a right kernel, as a pass might.
MADE = {
    "cp.async made": Waits(WIDE, WIDE, "sim:sm_80", Engine.CP_ASYNC),
    "TMA made": Waits(RING, IN_TURN, "sim:sm_90a", Engine.TMA),
    "TMA store made": Waits(RING, IN_TURN, "sim:sm_90a", Engine.TMA_STORE),
    "wgmma made": Waits(RING, IN_TURN, "sim:sm_90a", Engine.WGMMA),
}
PASSES = {
    (name, mistake): (waits, change)
    for name, waits in MADE.items()
    for mistake, change in waits.mistakes().items()
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
    change = None
    if row in PASSES:
        waits, change = PASSES[row]
        source = waits.in_turn if row[1] in ("early", "late") else waits.pipelined
        target = waits.target
    else:
        source, changes = ROWS[row]
        source = changed(WIDE if source is COPIES else source, changes)
        target = {"cluster": "sim:sm_90", "wgmma": "sim:sm_90a"}.get(row[0], "sim:sm_80")

    def judged(program: Program) -> str:
        body = Rewriter(rewrite_stmt=change)(program.body)
        if row in PASSES and body is program.body:
            return "none"
        return verdict(with_body(program, body), origin)

    origin = program_of(source)
    seen: dict[str, list[str]] = {"written": [judged(origin)]}
    stages = {Stage.TILE: "tile", Stage.PLANNED: "planned", Stage.SIMT: "hardware"}
    before = origin
    for snapshot in lower_program(origin, resolve_target(target)):
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


@pytest.mark.parametrize("source", [RING, IN_TURN], ids=["ring", "in turn"])
def test_without_a_mistake_nothing_is_found(source):
    origin = program_of(source)
    for snapshot in lower_program(origin, resolve_target("sim:sm_90a")):
        assert verdict(snapshot.program, origin) != "found", snapshot.name


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
Rows of operations that lowering made put the mistake into what each pass leaves of a right kernel:
copies of threads on sm_80, engines on sm_90a. Clusters are those of sm_90, products of warpgroups
run on sm_90a, the others on sm_80.

found: reported, with its line. done: every operation is done where it starts, so nothing is wrong.
-: nothing is wrong (a wait that leaves less than it may), or lock step hides it until threads run
on their own. none: no pass leaves such a program, or it has no such wait yet. Several verdicts:
passes of one column differ.
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
