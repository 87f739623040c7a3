"""What each group of threads of one block does, in order, without running it.

Threads that have a role of their own are a group. Loops in which threads wait or copy ahead are
walked turn by turn, others counted. Of a loop with many turns some in the middle are left out: a
multiple of the turns after which its stages and parities repeat. Symbols are large and divisible; a
condition that depends on memory is taken to hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from math import lcm, prod
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.sim.abstract import Evaluator, Register
from tileworkbench.compiler.sim.expressions import Evaluate
from tileworkbench.compiler.sim.frame import SimOptions
from tileworkbench.compiler.sim.pipeline.leaves import (
    JOINED,
    Kind,
    Leaf,
    Tile,
    Work,
    joined,
    leaf_of,
)
from tileworkbench.compiler.sim.pipeline.structure import (
    Launch,
    group_label,
    is_counted,
    role_starts,
    thread_groups,
)
from tileworkbench.compiler.sim.recorder import Recorder
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.values import mask_and, storage_dtype

MOST_TURNS, FEWEST_TURNS = 48, 8  # of a loop, by how long its code is
MOST_VISITS = 40_000  # of statements, about
_MOST_STAGES = 16  # a first extent up to this may count stages

Slot = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Step(Work):
    """One operation of a group of threads, once; its work is that of the whole group.

    `threads` take part. It `fetches` from global memory to registers, and waits for those that it
    `uses`. `stmt` is a wait or a signal, `place` the memory barrier that it names,
    `amount` the parity that it waits for or how often it arrives, and `expected` the bytes that the
    phase waits for from then on. A copy tells the barrier at `place` of its bytes.
    """

    site: int
    loop: int
    iteration: int
    threads: int = 0
    writes: set[Slot] = field(default_factory=set)
    reads: set[Slot] = field(default_factory=set)
    fetches: set[Buffer] = field(default_factory=set)
    uses: set[Buffer] = field(default_factory=set)
    stmt: st.Stmt | None = None
    place: Slot | None = None
    amount: int = 0
    expected: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """The threads `first .. first + count - 1` of a block, and what they do."""

    first: int
    count: int
    label: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Walked:
    """One block: its groups, `barriers` with the arrivals of a phase, the turns of each loop and
    how many of them were left out.
    """

    groups: tuple[Group, ...]
    barriers: Mapping[Slot, int]
    turns: Mapping[int, int]
    skipped: Mapping[int, int]
    block: tuple[int, ...]
    guessed: bool


def walk_block(
    program: Program, launch: Launch, products: frozenset[int], block: tuple[int, ...]
) -> Walked:
    """What the threads of a block do; `products` are sites of T.gemm."""
    with np.errstate(all="ignore"):
        return _Walk(program, launch, products).run(block)


def _box_sizes(program: Program) -> dict[Buffer, int]:
    """The bytes of a box, by the tensor map that says how large it is."""
    maps = (stmt for stmt in statements(program.body) if isinstance(stmt, simt.TensorMap))
    return {each.buffer: prod(each.box) * each.buffer.dtype.bits // 8 for each in maps}


class _Walk(Evaluator[ThreadFrame]):
    def __init__(self, program: Program, launch: Launch, products: frozenset[int]) -> None:
        frame = ThreadFrame([], [], Recorder(program), SimOptions(), False, np.zeros(0, np.uint8))
        super().__init__(frame)
        self._program, self._kernel = program, launch.kernel
        self._loops, self._products = launch.loops, products
        self._leaves: dict[int, Leaf | None] = {}
        self._counted: dict[int, bool] = {}
        self._part: dict[int, Step] | None = None  # operations of the counted loop around
        self._translated: dict[Expr, Evaluate] = {}
        self._barriers: dict[Slot, int] = {}
        self._barrier: Slot | None = None  # of what is being started
        self._boxes = _box_sizes(program)
        self._registers: dict[Buffer, Register] = {}
        self._turns: dict[int, int] = {}
        self._skipped: dict[int, int] = {}
        self._members = self._sites()
        length = sum(1 for _ in statements(self._kernel.body))
        self._most_turns = min(max(MOST_VISITS // length, FEWEST_TURNS), MOST_TURNS)
        self._guessed = bool(program.symbols)
        self._steps: list[Step] = []
        self._counts: dict[int, int] = {}  # how often the operation of each site began (~: loads)
        self._again: list[set[int]] = []  # sites seen in each open loop inside a pipelined one
        self._turn = self._lead = 0

    def _sites(self) -> dict[int, int]:
        """The loop that each site belongs to."""
        sites: dict[int, int] = {}
        for stmt in statements(self._kernel.body):
            if isinstance(stmt, st.For) and stmt.site in self._loops:
                number = self._loops[stmt.site]
                for below in statements(stmt):
                    sites.setdefault(getattr(below, "site", 0), number)
        sites.pop(0, None)
        return sites

    def run(self, block: tuple[int, ...]) -> Walked:
        self.assign_parameters(self._program)
        self._visit_lets(self._program.body)
        kernel = self._kernel
        threads = prod(kernel.threads)
        self.frame.threads, self.frame.lanes = threads, (threads,)
        starts = role_starts(kernel)
        groups = []
        for first, count in thread_groups(kernel):
            self._begin(kernel, block, first, first + count)
            self._visit(kernel.body, 1)
            label = group_label(first, count, starts)
            groups.append(Group(first, count, label, tuple(self._steps)))
        return Walked(
            tuple(groups), self._barriers, self._turns, self._skipped, block, self._guessed
        )

    def _visit_lets(self, body: st.Stmt) -> None:
        """Assign the variables that are defined in front of a launch."""
        for stmt in st.items(body):
            if isinstance(stmt, st.Let):
                self.assign(stmt.var, self._value(stmt.value))

    def _begin(self, kernel: st.Kernel, block: tuple[int, ...], first: int, end: int) -> None:
        """The threads `first .. end - 1` begin the kernel."""
        self._steps, self._counts, self._again = [], {}, []
        self._size = end - first
        self._turn = self._lead = 0
        for var, position in zip(kernel.vars, block, strict=True):
            self.assign(var, position)
        linear = np.arange(self.frame.threads)
        self.frame.mask = (linear >= first) & (linear < end)
        for var, extent in zip(kernel.thread_vars, kernel.threads, strict=False):
            self.assign(var, (linear % extent).astype(storage_dtype(var.dtype)))
            linear = linear // extent

    # Values

    def _value(self, value: Expr) -> Any:
        evaluate = self._translated.get(value)
        if evaluate is None:
            evaluate = self._translated[value] = self.expressions(value)
        values = self.all_values([evaluate])
        return None if values is None else values[0]

    def _number(self, value: Expr, unknown: int) -> int:
        """An integer that the active threads agree about; where they do not, that of the first
        thread.
        """
        number = self._value(value)
        if number is None:
            self._guessed = True
            return unknown
        if isinstance(number, np.ndarray) and number.ndim:
            active = np.flatnonzero(np.broadcast_to(self.frame.mask, self.frame.lanes))
            number = np.broadcast_to(number, self.frame.lanes)[active[0] if len(active) else 0]
        return int(number)

    def _active(self) -> int:
        return int(np.count_nonzero(np.broadcast_to(self.frame.mask, self.frame.lanes)))

    def _assign(self, buffer: Buffer, value: Expr | None) -> None:
        """A register of each active thread is `value`."""
        self._registers[buffer].value = None if value is None else self._value(value)

    # Statements

    def _visit(self, stmt: st.Stmt, weight: int) -> None:
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self._visit(child, weight)
            case st.Let(var, value):
                self.assign(var, self._value(value))
            case st.If(cond, then, orelse):
                chosen = self._value(cond)
                if chosen is None:
                    self._guessed, chosen = True, True
                self._under(chosen, then, weight)
                if orelse is not None:
                    self._under(np.logical_not(chosen), orelse, weight)
            case simt.Role(start, extent, body):
                threads = np.arange(self.frame.threads)
                self._under((threads >= start) & (threads < start + extent), body, weight)
            case st.For():
                self._loop(stmt, weight)
            case st.While(_, body):
                self._guessed = True
                visit = self._count if self._is_counted(stmt) else self._visit
                visit(body, weight)
            case simt.Start(body, barrier=barrier):
                outer = self._barrier
                self._barrier = None if barrier is None else self._place(barrier)
                self._visit(body, weight)
                self._barrier = outer
            case st.Alloc(buffer, init) if buffer.scope == "local.var" and not buffer.shape:
                self._registers[buffer] = self.register(buffer)
                self._assign(buffer, init)
            case st.Store(buffer, (), value) if buffer in self._registers:
                self._assign(buffer, value)
                self._leaf(stmt, weight)
            case simt.BarrierInit(barrier, count):
                self._barriers[self._place(barrier)] = self._number(count, 1)
            case _:
                self._leaf(stmt, weight)

    def _under(self, chosen: Any, body: st.Stmt, weight: int) -> None:
        outer = self.frame.mask
        active = mask_and(outer, np.broadcast_to(np.asarray(chosen, np.bool_), self.frame.lanes))
        if active is not False and np.any(active):
            self.frame.mask = active
            self._visit(body, weight)
            if self._active() != self._size:
                self._forget(body)
        self.frame.mask = outer

    def _forget(self, body: st.Stmt) -> None:
        """Registers that `body` sets are unknown behind it."""
        for below in statements(body):
            if isinstance(below, st.Store) and below.buffer in self._registers:
                self._registers[below.buffer].value = None

    def _loop(self, loop: st.For, weight: int) -> None:
        start, stop = self._number(loop.start, 0), self._number(loop.stop, 1)
        step = self._number(loop.step, 1) or 1
        trips = max(-((start - stop) // step), 0)
        number = self._loops.get(loop.site)
        if self._is_counted(loop):
            self.assign(loop.var, start)
            if trips:
                self._count(loop.body, weight * trips)
            return
        outer_turn, outer_lead = self._turn, self._lead
        inside = number is None and bool(self._members.get(loop.site) is not None or self._again)
        if inside:
            self._again.append(set())
        for at in self._taken(loop, trips, number):
            if number is not None:
                self._turn, self._lead = at, 0
            self.assign(loop.var, start + at * step)
            self._visit(loop.body, weight)
        if inside:
            self._again.pop()
        if number is not None:
            for site, member in self._members.items():
                if member == number:
                    self._counts.pop(site, None)
                    self._counts.pop(~site, None)
            self._turn, self._lead = outer_turn, outer_lead

    def _taken(self, loop: st.For, trips: int, number: int | None) -> Iterator[int]:
        """The turns to walk; operations of those left out count as begun."""
        left_out = 0
        period, most = self._period(loop), self._most_turns
        if trips > most + period:
            left_out = (trips - most) // period * period
        if number is not None:
            self._turns[number], self._skipped[number] = trips, left_out
        yield from range(most // 2 if left_out else trips)
        if left_out:
            for site in [s for s, member in self._members.items() if member == number]:
                for key in (site, ~site):
                    if key in self._counts:
                        self._counts[key] += left_out
            yield from range(most // 2 + left_out, trips)

    def _period(self, loop: st.For) -> int:
        """After how many turns stages and the parities of their barriers repeat."""
        counts = {1}
        for stmt in statements(self._kernel.body):
            if isinstance(stmt, st.Alloc) and stmt.buffer.scope in ("shared", "shared.barrier"):
                first = self._number(stmt.buffer.shape[0], 1) if stmt.buffer.shape else 1
                if first <= _MOST_STAGES:
                    counts.add(first)
        return 2 * lcm(*counts)

    def _is_counted(self, stmt: st.Stmt) -> bool:
        known = self._counted.get(id(stmt))
        if known is None:
            known = self._counted[id(stmt)] = is_counted(stmt, self._loops)
        return known

    def _count(self, body: st.Stmt, weight: int) -> None:
        """The body of a counted loop: statements of one site are one operation in all of it."""
        outermost = self._part is None
        if self._part is None:
            last = self._steps[-1:]
            self._part = {step.site: step for step in last if step.kind in JOINED}
        self._visit(body, weight)
        self._forget(body)
        if outermost:
            self._part = None

    # Operations

    def _leaf(self, stmt: st.Stmt, weight: int) -> None:
        leaf = self._leaves.get(id(stmt))
        if leaf is None:
            if id(stmt) in self._leaves:
                return
            leaf = self._leaves[id(stmt)] = leaf_of(stmt)
            if leaf is None:
                return
        step = self._step(stmt, leaf)
        active = self._active()
        warps = -(-active // self.frame.warp)
        step.threads = max(step.threads, active)
        step.add(leaf, weight * active, weight * warps)
        if isinstance(stmt, simt.TensorLoad | simt.TensorStore):
            tensor_map = (stmt.src if isinstance(stmt, simt.TensorLoad) else stmt.dst).buffer
            step.bytes_ += weight * active * self._boxes[tensor_map]
            step.place = self._barrier
        step.writes.update(map(self._slot, leaf.writes))
        step.reads.update(map(self._slot, leaf.reads))
        step.uses.update(buffer for buffer in leaf.uses if buffer not in step.fetches)
        step.fetches.update(leaf.fetches)
        self._note_wait(step, stmt)

    def _step(self, stmt: st.Stmt, leaf: Leaf) -> Step:
        """The step that a statement belongs to: the last one, where it is of the same operation."""
        kind = leaf.kind
        if kind in JOINED and stmt.site in self._products:
            kind = Kind.PRODUCT
        last = self._steps[-1] if self._steps else None
        if self._part is not None:
            last = self._part.get(stmt.site)
        if last is not None and last.site == stmt.site and {kind, last.kind} <= {*JOINED}:
            if joined(last.kind, kind) is not last.kind:
                last.kind, last.how = kind, leaf.how
            return last
        loop = self._members.get(stmt.site, -1)
        own = ~stmt.site if leaf.fetches else stmt.site  # what is loaded ahead is stored later
        iteration = self._turn if kind not in JOINED else self._begun(own)
        made = Step(
            kind, leaf.how, site=stmt.site, loop=loop, iteration=iteration if loop >= 0 else 0
        )
        self._steps.append(made)
        if self._part is not None:
            self._part[stmt.site] = made
        return made

    def _begun(self, site: int) -> int:
        """The iteration that an operation works on: the number of times that it has begun before.
        """
        count = self._counts.get(site, 0)
        if self._again and site in self._again[-1]:
            return count - 1
        for seen in self._again:
            seen.add(site)
        self._counts[site] = count + 1
        return count

    def _slot(self, tile: Tile) -> Slot:
        extents = tile.buffer.shape
        staged = len(extents) > 2 and self._number(extents[0], 0) <= _MOST_STAGES
        return tile.buffer.name, self._number(tile.index, 0) if staged else 0

    def _place(self, address: Address) -> Slot:
        return address.buffer.name, self._number(address.indices[0], 0) if address.indices else 0

    def _note_wait(self, step: Step, stmt: st.Stmt) -> None:
        """What a wait or a signal says."""
        match stmt:
            case simt.BarrierWait(barrier, parity):
                step.place, step.amount = self._place(barrier), self._number(parity, 0) & 1
            case simt.BarrierArrive(barrier):
                step.place, step.amount = self._place(barrier), self._active()
            case simt.BarrierSignal(barrier, arrivals):
                step.place, step.amount = self._place(barrier), arrivals
                step.expected = stmt.bytes_
            case simt.BarrierExpect(barrier, bytes_):
                step.place = self._place(barrier)
                step.expected = self._active() * self._number(bytes_, 0)
            case simt.WaitGroup(pending):
                step.amount = pending
        if step.kind in (Kind.WAIT, Kind.SIGNAL, Kind.COMMIT):
            step.stmt = stmt
