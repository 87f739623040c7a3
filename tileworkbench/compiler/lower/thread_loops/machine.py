"""Groups of threads that wait for each other, as state machines that take turns.

The code of a group is cut where it may have to wait; what lies between two cuts is a step. A loop
lets every group take the steps it can. A group that waits is tried again in the next round. When no
group can continue and some have not finished, they wait for ever: a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import islice, product

from tileworkbench.compiler.analysis.dataflow import leaves_early
from tileworkbench.compiler.diagnostics import DEADLOCK
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import (
    FALSE,
    TRUE,
    add,
    binary,
    conjunction,
    const,
    int_const,
    logical,
    select,
    unary,
)
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.loops import as_serial
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.types import BOOL, INT32
from tileworkbench.compiler.lower.thread_loops.block import Block, Scope
from tileworkbench.compiler.lower.thread_loops.split import Splitter
from tileworkbench.compiler.lower.thread_loops.units import BARRIERS, HIDDEN, OF_CLUSTER, waits

_ZERO, _ONE = int_const(0), int_const(1)
_MOST_TEXTS = 64  # descriptions of a deadlock; with more, each group is described alone


@dataclass(slots=True)
class _Step:
    """Code without waits, and the step after it: `then` when `cond` holds (None: always), else
    `other`. A step that waits is tried again instead of going to `other`.
    """

    stmts: list[st.Stmt] = field(default_factory=list)
    cond: Expr | None = None
    then: int = 0
    other: int | None = None
    waiting: str = ""
    site: int = 0
    closed: bool = False  # how it ends is known


class Meetings:
    """The named barriers of a block: how many threads have arrived, and how often all have."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.cells: dict[int, tuple[Buffer, Buffer]] = {}

    def arrive(self, stmt: simt.Barrier, threads: int) -> tuple[list[st.Stmt], Expr]:
        """`threads` arrivals, and the condition under which the waiting threads may continue."""
        if stmt.id not in self.cells:
            name = f"barrier_{stmt.id}" if stmt.id < HIDDEN else "meeting"
            self.cells[stmt.id] = (
                self.block.cell(f"{name}_arrived", INT32),
                self.block.cell(f"{name}_round", INT32),
            )
        arrived, round_ = self.cells[stmt.id]
        mine = self.block.cell("my_round", INT32)
        site = stmt.site
        complete: list[st.Stmt] = [
            st.Store(arrived, (), _ZERO, site=site),
            st.Store(round_, (), add(Load(round_, ()), _ONE), site=site),
        ]
        made: list[st.Stmt] = [
            st.Store(mine, (), Load(round_, ()), site=site),
            st.Store(arrived, (), add(Load(arrived, ()), int_const(threads)), site=site),
            st.If(
                binary("ge", Load(arrived, ()), int_const(stmt.count)),
                st.seq(complete),
                site=site,
            ),
        ]
        return made, binary("ne", Load(round_, ()), Load(mine, ()))


class Machine:
    """The steps of one group."""

    def __init__(
        self,
        body: st.Stmt,
        scope: Scope,
        splitter: Splitter,
        meetings: Meetings,
        program: Program,
    ) -> None:
        self.scope = scope
        self.splitter = splitter
        self.block = splitter.threads
        self.meetings = meetings
        self.program = program
        self.values: dict[Var, Expr] = {}
        self.loops: list[_Loop] = []
        self.steps = [_Step()]
        self.place = self.block.cell("step", INT32)
        self.visit(body)
        self.finish = self.begin()

    # Steps

    def begin(self) -> int:
        """Begin a new step and return its number. The current step continues there, unless it ends
        with a jump already.
        """
        number, last = len(self.steps), self.steps[-1]
        if not last.closed:
            last.then, last.closed = number, True
        self.steps.append(_Step())
        return number

    def jump(self, target: int) -> _Step:
        """End the current step with a jump to step `target`."""
        step = self.steps[-1]
        if not step.closed:
            step.then, step.closed = target, True
        self.steps.append(_Step())
        return step

    def fork(self, cond: Expr) -> _Step:
        """End the current step by a branch on `cond`, and begin the step for when it holds. Returns
        the ended step, whose `other` is not set yet.
        """
        step = self.steps[-1]
        step.cond = cond
        self.begin()
        return step

    def visit(self, stmt: st.Stmt) -> None:
        """Append `stmt`, cut where it may wait."""
        if isinstance(stmt, st.Seq):
            for child in stmt.stmts:
                self.visit(child)
            return
        text = print_expr(stmt.barrier.indices[0]) if isinstance(stmt, simt.BarrierWait) else ""
        stmt = substitute(stmt, self.values)
        match stmt:
            case simt.BarrierWait(place, parity):
                if any(map(self.splitter.uniformity.varies, (place, parity))):
                    self.splitter.refuse("a wait that only some threads reach together", stmt)
                passed = self.splitter.counters[place.buffer].has_completed(place, parity)
                self.wait(passed, f"for '{self.block.called(place.buffer)}[{text}]'", stmt)
            case simt.Barrier():
                self.barrier(stmt)
            case simt.Exchange(var) if waits(stmt):
                if self.scope.extent < self.block.per_block:
                    self.splitter.refuse("a barrier that combines values, between roles", stmt)
                self.append(stmt)
                self.keep(var, var, stmt.site)
            case st.Break() | st.Continue():
                self.leave(stmt)
            case _ if waits(stmt) or leaves_early(stmt):
                self.control(stmt)
            case st.Let(var, value) if not self.splitter.uniformity.varies(var):
                self.keep(var, value, stmt.site)
            case st.Alloc(buffer, init) if buffer not in self.splitter.uniformity.varying:
                start = None if init is None else const(0, buffer.dtype)
                self.block.allocs.append(st.Alloc(buffer, start, site=stmt.site))
                if init is not None:
                    self.append(st.Store(buffer, (), init, site=stmt.site))
            case _:
                self.append(stmt)

    def append(self, stmt: st.Stmt) -> None:
        self.steps[-1].stmts.append(stmt)

    def keep(self, var: Var, value: Expr, site: int) -> None:
        """Let later steps have `value` for `var`."""
        cell = self.block.cell(var.name, var.dtype)
        self.append(st.Store(cell, (), value, site=site))
        self.values[var] = Load(cell, ())

    def wait(self, cond: Expr, what: str, stmt: st.Stmt) -> None:
        """Wait until `cond` holds."""
        self.begin()
        line = self.program.span(stmt.site)
        where = f" in line {line.line}" if line is not None else ""
        step = self.fork(cond)
        step.waiting, step.site = f"wait{where} {what}", stmt.site

    def barrier(self, stmt: simt.Barrier) -> None:
        """Arrive, and wait for the other groups. A barrier of this group alone waits for nobody:
        its threads take each step together.
        """
        if stmt.count == self.scope.extent:
            self.append(stmt)
            return
        made, passed = self.meetings.arrive(stmt, self.scope.extent)
        self.steps[-1].stmts += made
        if stmt.wait:
            ours = stmt.id >= HIDDEN
            name = f"at barrier {stmt.id % BARRIERS}"
            if stmt.id >= OF_CLUSTER:
                name = "at a tile operator for all its threads" if ours else "at T.cluster_sync"
            self.wait(passed, name, stmt)

    # Control flow

    def control(self, stmt: st.Stmt) -> None:
        """A loop or branch with waits inside, which all threads of the group take together."""
        operands = [child for child in stmt.children() if not isinstance(child, st.Stmt)]
        if any(map(self.splitter.uniformity.varies, operands)):
            self.splitter.refuse("a wait that only some threads of a role reach", stmt)
        match stmt:
            case st.If(cond, then, orelse):
                step = self.fork(cond)
                self.visit(then)
                end = self.jump(0)
                step.other = self.begin()
                if orelse is not None:
                    self.visit(orelse)
                end.then = self.begin()
            case st.While(cond, body):
                self.begin()
                self.loop(cond, body, None)
            case st.For():
                self.counted(stmt)
            case tile.Pipelined():
                self.counted(as_serial(stmt))
            case _:
                self.splitter.refuse("a wait at this place", stmt)

    def counted(self, stmt: st.For) -> None:
        loop = self.block.counted(stmt, self.block.cell, ())
        self.steps[-1].stmts += loop.begins
        self.values[stmt.var] = loop.current
        self.begin()
        self.loop(loop.goes_on, stmt.body, loop.next)

    def loop(self, cond: Expr, body: st.Stmt, step: st.Stmt | None) -> None:
        """Repeat `body`, then `step`, from the current step on, which is empty."""
        head, made = len(self.steps) - 1, _Loop()
        ask = self.fork(cond)
        self.loops.append(made)
        self.visit(body)
        self.loops.pop()
        again = self.begin()
        if step is not None:
            self.append(step)
        self.jump(head)
        after = self.begin()
        ask.other = after
        for left in made.breaks:
            left.then = after
        for left in made.continues:
            left.then = again

    def leave(self, stmt: st.Stmt) -> None:
        loop = self.loops[-1]
        (loop.breaks if isinstance(stmt, st.Break) else loop.continues).append(self.jump(0))

    # Writing

    def round(self, progress: Buffer) -> list[st.Stmt]:
        """One round: each step that the group is at, in order."""
        made: list[st.Stmt] = []
        for number, step in enumerate(self.steps[: self.finish]):
            body = self.splitter.block(st.seq(step.stmts), self.scope)
            going: list[st.Stmt] = [st.Store(progress, (), TRUE, site=step.site)]
            if step.waiting and step.cond is not None:
                going.insert(0, self.go_to(int_const(step.then)))
                going = [st.If(step.cond, st.seq(going), site=step.site)]
            elif step.cond is not None:
                chosen = select(step.cond, int_const(step.then), int_const(step.other or 0))
                going.insert(0, self.go_to(chosen))
            else:
                going.insert(0, self.go_to(int_const(step.then)))
            made.append(st.If(self.is_at(number), st.seq([body, *going]), site=step.site))
        return made

    def go_to(self, number: Expr) -> st.Stmt:
        return st.Store(self.place, (), number)

    def is_at(self, number: int) -> Expr:
        """Whether the group is at step `number`."""
        return binary("eq", Load(self.place, ()), int_const(number))

    def stops(self) -> Iterator[tuple[int, str, int]]:
        """The steps at which the group may wait, what for, and the site."""
        threads = self.block.describe(self.scope)
        for number, step in enumerate(self.steps):
            if step.waiting:
                yield number, f"{threads} {step.waiting}", step.site
        yield self.finish, f"{threads} have finished", 0


@dataclass(slots=True)
class _Loop:
    """The steps that leave a loop, or an iteration of it, for places that are not known yet."""

    breaks: list[_Step] = field(default_factory=list)
    continues: list[_Step] = field(default_factory=list)


def take_turns(machines: list[Machine], block: Block) -> list[st.Stmt]:
    """Run all groups until they have finished."""
    running, progress = block.cell("running", BOOL), block.cell("progress", BOOL)
    rounds = [stmt for machine in machines for stmt in machine.round(progress)]
    unfinished = [unary("not", machine.is_at(machine.finish)) for machine in machines]
    some = unfinished[0]
    for cond in unfinished[1:]:
        some = logical("logical_or", some, cond)
    stuck = logical("logical_and", Load(running, ()), unary("not", Load(progress, ())))
    checks: list[st.Stmt] = [
        st.DeviceAssert(unary("not", cond), DEADLOCK + text, site=site)
        for cond, text, site in _deadlocks(machines)
    ]
    body: list[st.Stmt] = [
        st.Store(progress, (), FALSE),
        *rounds,
        st.Store(running, (), some),
        st.If(stuck, st.seq(checks)),
    ]
    return [st.Store(running, (), TRUE), st.While(Load(running, ()), st.seq(body))]


def _deadlocks(machines: list[Machine]) -> Iterator[tuple[Expr, str, int]]:
    """The ways in which groups can wait for ever: where they are, how it is described, a site."""
    stops = [[(machine, *stop) for stop in machine.stops()] for machine in machines]
    every = list(islice(product(*stops), _MOST_TEXTS + 1))
    if len(every) > _MOST_TEXTS:
        every = [(stop,) for of_group in stops for stop in of_group]
    for chosen in every:
        cond = conjunction([machine.is_at(number) for machine, number, _, _ in chosen])
        site = next((site for *_, site in chosen if site), 0)
        waits_somewhere = any(number != machine.finish for machine, number, _, _ in chosen)
        if cond is not None and waits_somewhere:
            yield cond, "; ".join(text for _, _, text, _ in chosen), site
