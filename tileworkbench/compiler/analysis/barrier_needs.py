"""In front of which statements threads have to wait for each other.

A walk in program order keeps the accesses that no barrier separates from here. A statement that
conflicts with one of them (the same element, different threads, at least one write) needs a barrier
in front; loops are walked again with the accesses of the iterations before. What an asynchronous
copy writes counts from the wait that makes it visible to its own thread. A wait at a memory barrier
orders what came before the arrivals it waits for, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import takewhile

from tileworkbench.compiler.analysis.arrivals import Arrivals
from tileworkbench.compiler.analysis.dataflow import leaves_early
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.thread_accesses import ThreadAccess
from tileworkbench.compiler.analysis.thread_conflicts import ThreadConflicts
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import const, const_int, sub, unary
from tileworkbench.compiler.ir.effects import Order, order_of
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import (
    Barrier,
    BarrierArrive,
    BarrierWait,
    Role,
    WaitGroup,
    WarpBarrier,
)
from tileworkbench.compiler.ir.stmt import Continue, For, If, Kernel, Seq, Stmt, While
from tileworkbench.compiler.ir.types import UINT32, UINT64


def all_lanes(lanes: int) -> Expr:
    """The mask of a warp's threads."""
    return const((1 << lanes) - 1, UINT32 if lanes <= 32 else UINT64)


@dataclass(slots=True)
class _State:
    """Accesses not yet behind a barrier, and asynchronous writes, which count from a wait on."""

    pending: list[ThreadAccess] = field(default_factory=list)
    copying: list[ThreadAccess] = field(default_factory=list)

    def copy(self) -> _State:
        return _State(list(self.pending), list(self.copying))

    def arrived(self, barrier: Address) -> _State:
        """Behind the arrival of all threads whose accesses these are."""
        known = [replace(one, arrived=one.arrived | {barrier}) for one in self.pending]
        return _State(known, self.copying)

    def awaited(self, barrier: Address) -> _State:
        """Behind a wait for the phase of the latest arrival. Parities are not looked at: to wait
        for another phase is a mistake of the kernel that no barrier mends.
        """
        return _State([one for one in self.pending if barrier not in one.arrived], self.copying)

    def left(self) -> _State:
        """Behind the code of threads that take turns with others."""
        return _State([replace(one, apart=True) for one in self.pending], self.copying)

    def join(self, other: _State) -> _State:
        return _State(_union(self.pending, other.pending), _union(self.copying, other.copying))


def _union(a: list[ThreadAccess], b: list[ThreadAccess]) -> list[ThreadAccess]:
    known = set(map(id, a))
    return [*a, *(access for access in b if id(access) not in known)]


class BarrierNeeds:
    """The statements of a kernel that need a barrier in front, by `id`: `needed`, and those of them
    that not all threads reach: `divergent`.

    With `strict` it is a GPU's barrier: it stands nowhere where not all threads come. Else tile
    operators are places where all threads meet.
    """

    def __init__(
        self, kernel: Kernel, program: Program, ranges: Ranges, lanes: int, strict: bool
    ) -> None:
        self.all_lanes = all_lanes(lanes)
        self.strict, self.kernel, self.program = strict, kernel, program
        self.between = ThreadConflicts(kernel, ranges, lanes)
        self.accesses = self.between.accesses
        self.arrivals = Arrivals(kernel, self.accesses.uniformity)
        # On a CPU the threads of a block take turns only where some wait for others.
        waits = any(isinstance(stmt, BarrierWait) for stmt in statements(kernel.body))
        self.roles_at_once = strict or waits
        self.exchanging: dict[int, bool] = {}
        self.needed: set[int] = set()
        # Of each loop around: the states in which iterations end early, and whether others follow.
        self.exits: list[list[tuple[_State, bool]]] = []
        self.divergent: set[int] = set()
        self.entered_freely: set[int] = set()  # loops that get no barrier in front
        self.branch: Stmt | None = None  # the innermost branch or loop that threads take apart

    def find(self) -> None:
        """Fill `needed` and `divergent`."""
        if self.between.places:
            self.walk(self.kernel.body, _State())
            self.drop_entries()
            if self.strict:
                self.check_turns()

    def decides_late(self, stmt: Stmt) -> bool:
        """Whether a condition or bound of `stmt` reads what other threads write in its body."""
        if not self.between.places:
            return False
        own = self.accesses.own(stmt)
        return bool(own) and self.between.conflict(list(own), self.between.of(stmt)[len(own) :])

    def drop_entries(self) -> None:
        """A barrier in front of a loop is not needed where the loop's own barriers serve."""
        for loop in [s for s in statements(self.kernel.body) if isinstance(s, For | While)]:
            if id(loop) not in self.needed or not self.exchanges(loop, self.between.of(loop)):
                continue  # what is in a loop without barriers is only checked in front of it
            others = self.needed - {id(loop)}
            before, self.needed = self.needed, set(others)
            self.entered_freely.add(id(loop))
            self.walk(self.kernel.body, _State())
            if self.needed != others:
                self.needed = before
                self.entered_freely.remove(id(loop))

    # Finding where barriers are needed

    def walk(self, stmt: Stmt, state: _State) -> _State:
        """Mark the statements below `stmt` that need a barrier; the state after it."""
        after = self.walk_one(stmt, state)
        if isinstance(stmt, If) and self.exits and leaves_early(stmt):
            self.exits[-1].append((after, leaves_early(stmt, Continue)))
        return after

    def walk_one(self, stmt: Stmt, state: _State) -> _State:
        match stmt:
            case Seq(stmts):
                for at, child in enumerate(stmts):
                    if isinstance(child, Role) and not (at and isinstance(stmts[at - 1], Role)):
                        state = self.enter_roles(stmts[at:], state)
                    state = self.walk(child, state)
                return state
            case Barrier() if not self.is_common(stmt):
                return state
            case BarrierArrive(barrier) if self.arrivals.order(barrier):
                return state.arrived(barrier)
            case BarrierWait(barrier):
                return state.awaited(barrier)
            case WarpBarrier(mask=mask) if mask is self.all_lanes and self.strict:
                met = [replace(access, warps_met=True) for access in state.pending]
                return _State(met, state.copying)
            case WaitGroup():
                return _State(_union(state.pending, state.copying), state.copying)
            case Role(body=body):
                return self.walk_role(stmt, body, state)
        if order_of(stmt) in (Order.BLOCK, Order.CLUSTER, Order.GRID):
            return _State([], state.copying)
        accesses = self.between.of(stmt)
        if not accesses:
            return self.walk_below(stmt, state)
        state = self.enter(stmt, accesses, state)
        match stmt:
            case If(cond, then, orelse) if self.exchanges(stmt, accesses):
                if self.accesses.uniformity.varies(cond):
                    return self.apart(stmt, accesses, state)
                state = self.decided(stmt, state)
                first = self.walk(then, state.copy())
                second = state if orelse is None else self.walk(orelse, state.copy())
                return first.join(second)
            case For() | While() if self.exchanges(stmt, accesses):
                if self.strict and self.left_apart(stmt):
                    return self.loop_apart(stmt, accesses, state)
                return self.walk_loop(stmt, self.decided(stmt, state))
        if self.takes_turns(stmt):
            return state.join(_State(list(accesses)).left())
        added = [access for access in accesses if not access.asynchronous]
        copied = [access for access in accesses if access.asynchronous]
        return _State(_union(state.pending, added), _union(state.copying, copied))

    def decided(self, stmt: Stmt, state: _State) -> _State:
        """The state once the condition or the bounds of `stmt` were read."""
        own = self.between.own(stmt)
        return _State(_union(state.pending, list(own)), state.copying)

    def apart(self, stmt: If, accesses: tuple[ThreadAccess, ...], state: _State) -> _State:
        """A branch that some threads take, in which data are exchanged: its own barriers must do,
        as far as is known which elements are touched.
        """
        outer, self.branch = self.branch, stmt
        for cond, body in ((stmt.cond, stmt.then), (unary("not", stmt.cond), stmt.orelse)):
            if body is not None:
                self.accesses.conditions.append(cond)
                self.walk(body, _State([], list(state.copying)))
                self.accesses.conditions.pop()
        self.branch = outer
        inside = _State(list(accesses))
        return state.join(inside.left() if self.takes_turns(stmt) else inside)

    def left_apart(self, loop: For | While) -> bool:
        """Whether threads may leave the loop at different times."""
        uniformity = self.accesses.uniformity
        decided = (loop.cond,) if isinstance(loop, While) else (loop.start, loop.stop, loop.step)
        return any(map(uniformity.varies, decided)) or uniformity.leaves_divergently(loop.body)

    def loop_apart(
        self, loop: For | While, accesses: tuple[ThreadAccess, ...], state: _State
    ) -> _State:
        """A loop that threads leave at different times, in which data are exchanged: as `apart`."""
        meets = any(isinstance(found, Barrier | WarpBarrier) for found in statements(loop))
        if not meets and self.between.conflict(list(accesses), accesses):
            self.refuse(loop)
        outer, self.branch = self.branch, loop
        inside = self.walk(loop.body, _State([], list(state.copying)))
        for _ in range(self.between.reach(loop)):
            inside = self.walk(loop.body, self.carried(loop, inside))
        self.branch = outer
        return _State(_union(state.pending, list(accesses)), state.copying)

    def takes_turns(self, stmt: Stmt) -> bool:
        """Whether some threads execute `stmt` and order it themselves, by memory barriers. On a GPU
        that is a role.
        """
        some = isinstance(stmt, Role) or (
            isinstance(stmt, If)
            and not self.strict
            and self.accesses.uniformity.varies(stmt.cond)
        )
        return some and any(
            isinstance(found, BarrierWait | BarrierArrive) for found in statements(stmt)
        )

    def enter_roles(self, stmts: tuple[Stmt, ...], state: _State) -> _State:
        """The state in front of roles that run at once, which a barrier of all threads separates
        from what came before.
        """
        roles = list(takewhile(lambda stmt: isinstance(stmt, Role), stmts))
        accesses = tuple(access for role in roles for access in self.between.of(role))
        return self.enter(roles[0], accesses, state) if self.roles_at_once else state

    def is_common(self, barrier: Barrier) -> bool:
        """Whether all threads that may touch the same memory wait at it."""
        every = barrier.count in (0, self.accesses.threads[1])
        return barrier.wait and (every or self.branch is not None)

    def enter(self, stmt: Stmt, accesses: tuple[ThreadAccess, ...], state: _State) -> _State:
        """The state in front of `stmt`, behind a barrier where one is needed. Threads that take
        turns with others do not wait for these to finish.
        """
        if self.takes_turns(stmt):
            common = _State([one for one in state.pending if not one.apart], state.copying)
            if not self.between.conflict(common.pending, accesses):
                return state
        if self.branch is not None:
            known = tuple(access for access in accesses if access.owners is not None)
            before = [access for access in state.pending if access.owners is not None]
            if id(stmt) not in self.divergent and not self.between.conflict(before, known):
                return state
            if self.strict:
                self.refuse(self.branch)
            self.divergent.add(id(stmt))
            self.needed.add(id(stmt))
            return _State([], state.copying)
        if id(stmt) in self.entered_freely:
            return state
        if id(stmt) not in self.needed and not self.between.conflict(state.pending, accesses):
            return state
        self.needed.add(id(stmt))
        return _State([], state.copying)

    def walk_below(self, stmt: Stmt, state: _State) -> _State:
        """A branch or loop without accesses may still contain waits and barriers, which count where
        it is surely executed.
        """
        below = [child for child in stmt.children() if isinstance(child, Stmt)]
        if not below:
            return state
        ways = [self.walk(child, state.copy()) for child in below]
        if not (isinstance(stmt, If) and len(below) == 2):
            ways.append(state)
        return reduce(_State.join, ways)

    def walk_loop(self, loop: For | While, state: _State) -> _State:
        """Until nothing is added, with what the iteration before leaves; the first walk only finds
        that out, so that one barrier can serve both the data that came and the room that is free.
        """
        needed = set(self.needed)
        after, _ = self.walk_iteration(loop, state.copy())
        self.needed = needed
        reach, walks = self.between.reach(loop), 0
        while True:
            known = len(self.needed)
            after, behind = self.walk_iteration(loop, self.carried(loop, after).join(state))
            walks = walks + 1 if len(self.needed) == known else 0
            lasting = [*after.pending, *after.copying] if 0 < walks < reach else []
            if walks and not any(access.age >= walks for access in lasting):
                return behind.join(state)

    def walk_iteration(self, loop: For | While, state: _State) -> tuple[_State, _State]:
        """The states in front of the next iteration and behind the loop."""
        self.exits.append([])
        after = behind = self.walk(loop.body, state)
        for left, continues in self.exits.pop():
            behind = behind.join(left)
            after = after.join(left) if continues else after
        if isinstance(loop, While):  # which asks again in between
            return self.decided(loop, after), self.decided(loop, behind)
        return after, behind

    @staticmethod
    def carried(loop: For | While, state: _State) -> _State:
        """The state at the end of an iteration as the next one sees it."""
        back = {loop.var: sub(loop.var, loop.step)} if isinstance(loop, For) else {}
        return _State(
            [access.carried(back) for access in state.pending],
            [access.carried(back) for access in state.copying],
        )

    def walk_role(self, role: Role, body: Stmt, state: _State) -> _State:
        """Roles run at once: what orders them are the kernel's own mbarriers."""
        threads, self.accesses.threads = self.accesses.threads, (role.start, role.extent)
        inside = self.walk(body, _State([], list(state.copying)))
        self.accesses.threads = threads
        return state.join(inside.left() if self.takes_turns(role) else inside)

    def exchanges(self, stmt: Stmt, accesses: tuple[ThreadAccess, ...]) -> bool:
        """Whether threads may pass data on to one another within `stmt`."""
        if id(stmt) not in self.exchanging:
            below = list(statements(stmt))
            self.exchanging[id(stmt)] = (
                any(isinstance(found, WaitGroup | Barrier) for found in below)
                or self.between.conflict(list(accesses), accesses)
                or any(isinstance(found, For) and self.exchanges_later(found) for found in below)
            )
        return self.exchanging[id(stmt)]

    def exchanges_later(self, loop: For) -> bool:
        """Whether an iteration of the loop may meet the accesses of one before it; with constant
        bounds its accesses are those of all iterations anyway.
        """
        if None not in map(const_int, (loop.start, loop.stop, loop.step)):
            return False
        accesses = self.between.of(loop.body)
        state = _State(list(accesses))
        for _ in range(self.between.reach(loop)):
            state = self.carried(loop, state)
            if self.between.conflict(state.pending, accesses):
                return True
        return False

    def refuse(self, stmt: Stmt) -> None:
        raise UnsupportedError(
            "threads exchange data through memory under a condition that is not the same for all "
            "of them, where no barrier can be",
            self.program.span(stmt.site),
            hint="end the `if` before the data are read, or let its condition name whole warps in "
            "a row"
            if isinstance(stmt, If)
            else "end the loop before the data are read, or let all threads leave it at once",
        )

    def check_turns(self) -> None:
        """Refuse a barrier of all threads behind a role that waits for arrivals in front of which
        the barrier stands: nobody would ever pass it.
        """
        for body in statements(self.kernel.body):
            stmts = body.stmts if isinstance(body, Seq) else ()
            for at, stmt in enumerate(stmts):
                if id(stmt) in self.needed:
                    before, after = _arrivals(stmts[:at]), _arrivals(stmts[at:])
                    roles = [role for role in stmts[:at] if isinstance(role, Role)]
                    if any(_waits(role) & (after - before) for role in roles):
                        self.refuse_turns(stmt)

    def refuse_turns(self, stmt: Stmt) -> None:
        raise UnsupportedError(
            "this uses memory that a role in front of it uses too, and cannot wait for that role, "
            "which waits for one behind this",
            self.program.span(stmt.site),
            hint="let both roles end before it, or order it behind the role with a memory barrier",
        )


def _arrivals(stmts: tuple[Stmt, ...]) -> set[Buffer]:
    """The memory barriers at which somebody arrives below `stmts`."""
    found = (each for stmt in stmts for each in statements(stmt))
    return {each.barrier.buffer for each in found if isinstance(each, BarrierArrive)}


def _waits(role: Role) -> set[Buffer]:
    """The memory barriers that a role waits at."""
    found = statements(role)
    return {each.barrier.buffer for each in found if isinstance(each, BarrierWait)}
