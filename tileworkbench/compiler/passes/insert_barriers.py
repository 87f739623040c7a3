"""Put a barrier wherever one thread must not go on before others have written or read.

A walk in program order keeps the accesses that no barrier separates from here. A statement that
conflicts with one of them (the same element, different threads, at least one write) needs a barrier
in front; loops are walked again with the accesses of the iterations before. A condition that reads
what its branches write is evaluated into a scalar first. What an asynchronous copy writes becomes
visible to its own thread at a wait, so that it counts from there. A wait at a memory barrier orders
what came before the arrivals it waits for, and nothing else. From here on threads run on their own:
the program enters the SIMT stage.

Before::

    T.wait_group(pending=0)
    T.load_matrix(T.address_of(a[0]), T.address_of(A_shared[...]), count=4, transpose=False)

After::

    T.wait_group(pending=0)
    T.sync_threads()
    T.load_matrix(T.address_of(a[0]), T.address_of(A_shared[...]), count=4, transpose=False)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import takewhile

from tileworkbench.compiler.analysis.arrivals import Arrivals
from tileworkbench.compiler.analysis.dataflow import effects_of, leaves_early
from tileworkbench.compiler.analysis.effects import owners, written
from tileworkbench.compiler.analysis.lifetimes import shared_bytes
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.thread_accesses import (
    ThreadAccess,
    ThreadAccesses,
    iterations_apart,
    same_version,
)
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import binary, const, const_int, int_const, sub, unary
from tileworkbench.compiler.ir.effects import Order, order_of
from tileworkbench.compiler.ir.expr import Address, Buffer
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import Rewriter, statements
from tileworkbench.compiler.ir.simt import (
    WARP,
    Barrier,
    BarrierArrive,
    BarrierInit,
    BarrierWait,
    Role,
    WaitGroup,
    WarpBarrier,
)
from tileworkbench.compiler.ir.stmt import (
    Alias,
    Alloc,
    Continue,
    For,
    If,
    Kernel,
    Seq,
    Stmt,
    While,
    seq,
)
from tileworkbench.compiler.ir.types import UINT32, UINT64
from tileworkbench.compiler.ops.threads.decisions import with_decisions_apart
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class InsertBarriers:
    """Place the barriers of every launch; the program is in the SIMT stage from here on."""

    target: Target

    def __call__(self, program: Program) -> Program:
        ranges, names = Ranges(program), Names(program)
        lanes = self.target.machine.lanes

        def change(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel):
                return stmt
            return _placed(stmt, program, ranges, names, lanes, strict=True)

        body = Rewriter(rewrite_stmt=change)(program.body)
        return replace(program, body=body, stage=Stage.SIMT)


def with_barriers(kernel: Kernel, program: Program, names: Names) -> Kernel:
    """`kernel`, of a program in any stage, with the barriers that its single threads need.

    Tile operators are places where all threads meet. Where only some threads are, it is a barrier
    of their warps, which says all that loops over threads need to know.
    """
    ranges = Ranges(replace(program, body=kernel))
    return _placed(kernel, program, ranges, names, WARP, strict=False)


def _placed(
    kernel: Kernel, program: Program, ranges: Ranges, names: Names, lanes: int, strict: bool
) -> Kernel:
    placement = _Placement(kernel, program, ranges, lanes, strict)
    body = with_decisions_apart(kernel.body, placement.decides_late, names)
    if body is not kernel.body:
        kernel = replace(kernel, body=body)
        ranges = Ranges(replace(program, body=kernel))
        placement = _Placement(kernel, program, ranges, lanes, strict)
    return replace(kernel, body=placement.run())


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


class _Placement:
    def __init__(
        self, kernel: Kernel, program: Program, ranges: Ranges, lanes: int, strict: bool
    ) -> None:
        self.lanes = lanes
        self.all_lanes = const((1 << lanes) - 1, UINT32 if lanes <= 32 else UINT64)
        self.strict = strict
        self.kernel = kernel
        self.program = program
        self.ranges = ranges
        self.places = self.arena()
        self.accesses = ThreadAccesses(kernel, ranges, frozenset(self.places))
        self.arrivals = Arrivals(kernel, self.accesses.uniformity)
        # On a CPU the threads of a block take turns only where some wait for others.
        waits = any(isinstance(stmt, BarrierWait) for stmt in statements(kernel.body))
        self.roles_at_once = strict or waits
        self.found: dict[int, tuple[ThreadAccess, ...]] = {}
        self.exchanging: dict[int, bool] = {}
        self.needed: set[int] = set()
        # Of each loop around: the states in which iterations end early, and whether others follow.
        self.exits: list[list[tuple[_State, bool]]] = []
        self.divergent: set[int] = set()  # those that not all threads reach
        self.entered_freely: set[int] = set()  # loops that get no barrier in front
        self.role: Role | None = None
        self.numbers: dict[tuple[int, int], int] = {}  # barriers of roles, by start and extent
        self.branch: Stmt | None = None  # the innermost branch or loop that threads take apart

    def arena(self) -> dict[Buffer, tuple[str, int, int]]:
        """Where each buffer is that threads exchange data through: memory, first byte and end."""
        found: dict[Buffer, tuple[str, int, int]] = {}
        body = self.kernel.body
        for stmt in statements(body):
            if isinstance(stmt, Alloc) and stmt.buffer.scope == "shared":
                start, memory = stmt.offset or 0, "shared"
                if stmt.offset is None:  # without a place yet: apart from all others
                    memory = stmt.buffer.name
                found[stmt.buffer] = (memory, start, start + shared_bytes(stmt.buffer))
        sources = owners(body)
        effects = effects_of(body)
        times = Counter(buffer for stmt in statements(body) for buffer in written(stmt))
        again = {buffer for buffer, count in times.items() if count > 1}
        for buffer in sorted(effects.writes & (effects.reads | again), key=lambda b: b.name):
            if buffer.scope == "global":
                found[buffer] = (buffer.name, 0, 1)
        for stmt in statements(body):
            if isinstance(stmt, Alias) and sources[stmt.buffer] in found:
                found[stmt.buffer] = found[sources[stmt.buffer]]
        return found

    def run(self) -> Stmt:
        if self.places:
            self.walk(self.kernel.body, _State())
            self.drop_entries()
            if self.strict:
                self.check_turns()
        return self.rebuild(self.kernel.body, None)

    def decides_late(self, stmt: Stmt) -> bool:
        """Whether a condition or bound of `stmt` reads what other threads write in its body."""
        if not self.places:
            return False
        own = self.accesses.own(stmt)
        return bool(own) and self.conflict(list(own), self.of(stmt)[len(own) :])

    def drop_entries(self) -> None:
        """A barrier in front of a loop is not needed where the loop's own barriers serve."""
        for loop in [s for s in statements(self.kernel.body) if isinstance(s, For | While)]:
            if id(loop) not in self.needed or not self.exchanges(loop, self.of(loop)):
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
        accesses = self.of(stmt)
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
        own = self.of(stmt)[: len(self.accesses.own(stmt))]
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
        if not meets and self.conflict(list(accesses), accesses):
            self.refuse(loop)
        outer, self.branch = self.branch, loop
        inside = self.walk(loop.body, _State([], list(state.copying)))
        for _ in range(self.reach(loop)):
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
        accesses = tuple(access for role in roles for access in self.of(role))
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
            if not self.conflict(common.pending, accesses):
                return state
        if self.branch is not None:
            known = tuple(access for access in accesses if access.owners is not None)
            before = [access for access in state.pending if access.owners is not None]
            if id(stmt) not in self.divergent and not self.conflict(before, known):
                return state
            if self.strict:
                self.refuse(self.branch)
            self.divergent.add(id(stmt))
            self.needed.add(id(stmt))
            return _State([], state.copying)
        if id(stmt) in self.entered_freely:
            return state
        if id(stmt) not in self.needed and not self.conflict(state.pending, accesses):
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
        reach, walks = self.reach(loop), 0
        while True:
            known = len(self.needed)
            after, behind = self.walk_iteration(loop, self.carried(loop, after).join(state))
            walks = walks + 1 if len(self.needed) == known else 0
            lasting = [*after.pending, *after.copying] if 0 < walks < reach else []
            if walks and not any(access.age >= walks for access in lasting):
                return behind.join(state)

    def reach(self, loop: For | While) -> int:
        """How many iterations back an access may meet one of now, as far as versions tell."""
        if isinstance(loop, While):
            return 1
        return iterations_apart(self.of(loop.body), loop.var, self.ranges)

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
        outer, threads = self.role, self.accesses.threads
        self.role, self.accesses.threads = role, (role.start, role.extent)
        inside = self.walk(body, _State([], list(state.copying)))
        self.role, self.accesses.threads = outer, threads
        return state.join(inside.left() if self.takes_turns(role) else inside)

    def exchanges(self, stmt: Stmt, accesses: tuple[ThreadAccess, ...]) -> bool:
        """Whether threads may pass data on to one another within `stmt`."""
        if id(stmt) not in self.exchanging:
            below = list(statements(stmt))
            self.exchanging[id(stmt)] = (
                any(isinstance(found, WaitGroup | Barrier) for found in below)
                or self.conflict(list(accesses), accesses)
                or any(isinstance(found, For) and self.exchanges_later(found) for found in below)
            )
        return self.exchanging[id(stmt)]

    def exchanges_later(self, loop: For) -> bool:
        """Whether an iteration of the loop may meet the accesses of one before it; with constant
        bounds its accesses are those of all iterations anyway.
        """
        if None not in map(const_int, (loop.start, loop.stop, loop.step)):
            return False
        accesses = self.of(loop.body)
        state = _State(list(accesses))
        for _ in range(self.reach(loop)):
            state = self.carried(loop, state)
            if self.conflict(state.pending, accesses):
                return True
        return False

    def of(self, stmt: Stmt) -> tuple[ThreadAccess, ...]:
        found = self.found.get(id(stmt))
        if found is None:
            found = self.found[id(stmt)] = self.accesses.of(stmt)
        return found

    def conflict(self, pending: list[ThreadAccess], accesses: tuple[ThreadAccess, ...]) -> bool:
        return any(self.conflicts(before, access) for access in accesses for before in pending)

    def conflicts(self, a: ThreadAccess, b: ThreadAccess) -> bool:
        """Whether different threads may touch one byte, one of them writing."""
        if not (a.write or b.write) or (a.atomic and b.atomic):
            return False
        if a.asynchronous and b.asynchronous:
            return False
        memory, start, end = self.places[a.buffer]
        other, other_start, other_end = self.places[b.buffer]
        if memory != other or start >= other_end or other_start >= end:
            return False
        if a.buffer is not b.buffer:
            return True
        versions = (a.version, b.version)
        if None not in versions and same_version(*versions, self.ranges) is False:  # type: ignore[arg-type]
            return False
        same = [
            x is y or same_version(x, y, self.ranges) for x, y in zip(a.base, b.base, strict=True)
        ]
        group = self.lanes if a.warps_met or b.warps_met else 1
        known = [(a.rows, b.rows)] if same[0] else []
        known += [(a.owners, b.owners)] if all(same) else []
        return all(
            first is None or second is None or first.meet(second, group) for first, second in known
        )

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

    # Writing them down

    def rebuild(self, stmt: Stmt, role: Role | None) -> Stmt:
        own = stmt if isinstance(stmt, Role) else role
        if isinstance(stmt, Seq):
            made = seq(self.initialised([self.rebuild(child, own) for child in stmt.stmts]))
        else:
            made = stmt.map_children(
                lambda child: self.rebuild(child, own) if isinstance(child, Stmt) else child
            )
        if id(stmt) not in self.needed:
            return made
        return seq([self.barrier(stmt, role), made])

    def initialised(self, stmts: list[Stmt]) -> list[Stmt]:
        """One thread initialises mbarriers, and no other goes on before."""
        if not self.strict or not any(isinstance(stmt, BarrierInit) for stmt in stmts):
            return stmts
        first = next(at for at, stmt in enumerate(stmts) if isinstance(stmt, BarrierInit))
        inits: list[Stmt] = [stmt for stmt in stmts if isinstance(stmt, BarrierInit)]
        others = [stmt for stmt in stmts[first:] if not isinstance(stmt, BarrierInit)]
        alone = binary("eq", self.kernel.thread_vars[0], int_const(0))
        site = inits[0].site
        barrier = Barrier(site=site)
        allocs = [stmt for stmt in others if isinstance(stmt, Alloc)]
        rest = [stmt for stmt in others if not isinstance(stmt, Alloc)]
        return [*stmts[:first], *allocs, If(alone, seq(inits), site=site), barrier, *rest]

    def barrier(self, stmt: Stmt, role: Role | None) -> Stmt:
        """All threads of the block, or of the role under a number of its own."""
        if not self.strict and (role is not None or id(stmt) in self.divergent):
            return WarpBarrier(self.all_lanes, site=stmt.site)
        if role is None:
            return Barrier(site=stmt.site)
        if role.start % self.lanes or role.extent % self.lanes:
            raise UnsupportedError(
                f"threads {role.start} to {role.start + role.extent - 1} exchange data, for which "
                "they would have to wait for each other, and only whole warps can do that",
                self.program.span(stmt.site),
                hint=f"let the groups of threads begin at multiples of {self.lanes}",
            )
        return Barrier(self.number(role, stmt), role.extent, site=stmt.site)

    def number(self, role: Role, stmt: Stmt) -> int:
        """The barrier of the role's threads: one that nobody else uses."""
        threads = (role.start, role.extent)
        if threads not in self.numbers:
            barriers = [s for s in statements(self.kernel.body) if isinstance(s, Barrier)]
            used = {*(barrier.id for barrier in barriers), *self.numbers.values()}
            free = [number for number in range(_BARRIERS - 1, 0, -1) if number not in used]
            if not free:
                raise UnsupportedError(
                    f"a block has {_BARRIERS} barriers, which its groups of threads need more of",
                    self.program.span(stmt.site),
                    hint="use fewer groups that exchange data at once",
                )
            self.numbers[threads] = free[0]
        return self.numbers[threads]


def _arrivals(stmts: tuple[Stmt, ...]) -> set[Buffer]:
    """The memory barriers at which somebody arrives below `stmts`."""
    found = (each for stmt in stmts for each in statements(stmt))
    return {each.barrier.buffer for each in found if isinstance(each, BarrierArrive)}


def _waits(role: Role) -> set[Buffer]:
    """The memory barriers that a role waits at."""
    found = statements(role)
    return {each.barrier.buffer for each in found if isinstance(each, BarrierWait)}


_BARRIERS = 16  # PTX ISA, "bar"; barrier 0 is the block's
