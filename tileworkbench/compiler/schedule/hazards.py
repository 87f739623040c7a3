"""Hazards: accesses of different threads to one element, one of them writing, that nothing orders.

A walk in program order keeps the accesses that are open (`schedule/order.py`). One of a later
statement that conflicts with them is a hazard. Loops are walked again with the accesses of the
iterations before. The caller may put a barrier in front of that statement; the walk continues
behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from tileworkbench.compiler.analysis.dataflow import leaves_early
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import unary
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Barrier, Role, WaitGroup, WarpBarrier
from tileworkbench.compiler.ir.stmt import Continue, For, If, Kernel, Seq, Stmt, While
from tileworkbench.compiler.schedule.order import Open, ThreadOrder, rows
from tileworkbench.compiler.schedule.thread_accesses import ThreadAccess
from tileworkbench.compiler.schedule.thread_conflicts import ThreadConflicts

Accesses = tuple[ThreadAccess, ...]


@dataclass(frozen=True, slots=True)
class Hazard:
    """`access`, in or below `stmt`, may come before `before`, of another thread. `branch` is the
    innermost branch or loop around that threads do not take together: no barrier of all threads can
    be in it.
    """

    stmt: Stmt
    before: ThreadAccess
    access: ThreadAccess
    branch: Stmt | None


class Hazards:
    """Finds the hazards of one kernel. For each of them `place` decides whether its statement gets
    a barrier in front. `barriers` holds the `id` of each statement that has one.
    """

    def __init__(
        self,
        kernel: Kernel,
        ranges: Ranges,
        lanes: int,
        strict: bool,
        place: Callable[[Hazard], bool],
    ) -> None:
        self.kernel, self.strict, self.place = kernel, strict, place
        self.between = ThreadConflicts(kernel, ranges, lanes)
        self.accesses = self.between.accesses
        self.order = ThreadOrder(kernel, self.accesses.uniformity, lanes, strict)
        self.barriers: set[int] = set()
        self.exchanging: dict[int, bool] = {}
        # Of each loop around: what is open where iterations end early, and whether others follow.
        self.exits: list[list[tuple[Open, bool]]] = []
        self.branch: Stmt | None = None

    def find(self) -> None:
        """Walk the kernel once."""
        if self.between.places:
            self.walk(self.kernel.body, Open())

    def walk(self, stmt: Stmt, before: Open) -> Open:
        """Find the hazards below `stmt`; what is open behind it."""
        behind = self.walk_one(stmt, before)
        if isinstance(stmt, If) and self.exits and leaves_early(stmt):
            self.exits[-1].append((behind, leaves_early(stmt, Continue)))
        return behind

    def walk_one(self, stmt: Stmt, before: Open) -> Open:
        match stmt:
            case Seq(stmts):
                for at_once, row in rows(stmts):
                    if at_once:
                        before = self.enter_roles(row, before)
                    before = reduce(lambda state, child: self.walk(child, state), row, before)
                return before
            case Role():
                return self.walk_role(stmt, before)
        threads = self.accesses.threads[1] if self.branch is None else None
        behind = self.order.behind(stmt, before, threads)
        if behind is not None:
            return behind
        accesses = self.between.of(stmt)
        if not accesses:
            return self.walk_below(stmt, before)
        before = self.enter(stmt, accesses, before)
        match stmt:
            case If(cond) if self.exchanges(stmt, accesses):
                if self.order.uniformity.varies(cond):
                    return self.walk_arms_apart(stmt, accesses, before)
                return self.walk_below(stmt, self.decided(stmt, before))
            case For() | While() if self.exchanges(stmt, accesses):
                if self.strict and self.order.left_apart(stmt):
                    return self.walk_loop_apart(stmt, accesses, before)
                return self.walk_loop(stmt, self.decided(stmt, before))
        if self.order.takes_turns(stmt):
            return before.join(Open(list(accesses)).apart())
        return before.add(accesses)

    def enter(self, stmt: Stmt, accesses: Accesses, before: Open) -> Open:
        """What is open just before `stmt` runs. A barrier in front of it leaves nothing open."""
        if id(stmt) not in self.barriers:
            hazard = self.hazard(stmt, accesses, before)
            if hazard is None or not self.place(hazard):
                return before
            self.barriers.add(id(stmt))
        return before.ordered()

    def hazard(self, stmt: Stmt, accesses: Accesses, before: Open) -> Hazard | None:
        """The first conflict of `stmt`. Threads that take turns with others do not wait for these
        to finish; where no barrier can be, only elements that are known count.
        """
        done = before.done
        if self.order.takes_turns(stmt):
            done = [access for access in done if not access.apart]
        if self.branch is not None:
            done = [access for access in done if access.owners is not None]
            accesses = tuple(access for access in accesses if access.owners is not None)
        pair = self.between.conflict(done, accesses)
        return None if pair is None else Hazard(stmt, *pair, self.branch)

    def enter_roles(self, row: list[Stmt], before: Open) -> Open:
        """What is open in front of roles that run at once: one barrier serves all."""
        accesses = tuple(access for role in row for access in self.between.of(role))
        return self.enter(row[0], accesses, before) if self.order.roles_at_once else before

    def decided(self, stmt: Stmt, before: Open) -> Open:
        """Add the reads of the condition or the bounds of `stmt`."""
        return before.add(self.between.own(stmt))

    def walk_below(self, stmt: Stmt, before: Open) -> Open:
        """Walk the statements in `stmt`, of which one is executed or none. A wait or a barrier
        counts only where it is certainly reached.
        """
        below = [child for child in stmt.children() if isinstance(child, Stmt)]
        ways = [self.walk(child, before) for child in below]
        if not (isinstance(stmt, If) and len(below) == 2):
            ways.append(before)
        return reduce(Open.join, ways)

    def walk_arms_apart(self, stmt: If, accesses: Accesses, before: Open) -> Open:
        """Walk a branch that only some threads take and in which data are exchanged. No barrier of
        the block can be placed in it, so its own barriers must be enough.
        """
        outer, self.branch = self.branch, stmt
        for cond, body in ((stmt.cond, stmt.then), (unary("not", stmt.cond), stmt.orelse)):
            if body is not None:
                self.accesses.conditions.append(cond)
                self.walk(body, before.ordered())
                self.accesses.conditions.pop()
        self.branch = outer
        inside = Open(list(accesses))
        return before.join(inside.apart() if self.order.takes_turns(stmt) else inside)

    def walk_loop_apart(self, loop: For | While, accesses: Accesses, before: Open) -> Open:
        """Walk a loop that threads leave at different times; as `walk_arms_apart`."""
        outer, self.branch = self.branch, loop
        meets = any(isinstance(pair, Barrier | WarpBarrier) for pair in statements(loop))
        pair = None if meets else self.between.conflict(list(accesses), accesses)
        if pair is not None:
            self.place(Hazard(loop, *pair, loop))
        inside = self.walk(loop.body, before.ordered())
        for _ in range(self.between.reach(loop)):
            inside = self.walk(loop.body, inside.carried(loop))
        self.branch = outer
        return before.join(Open(list(accesses)))

    def walk_loop(self, loop: For | While, before: Open) -> Open:
        """Walk the body again and again, each time with what the iteration before left open, until
        nothing is added. The first walk only finds out what an iteration leaves open and places no
        barrier, so that one barrier can serve both: data have come, and room is free.
        """
        barriers = set(self.barriers)
        again, _ = self.walk_iteration(loop, before)
        self.barriers = barriers
        reach, walks = self.between.reach(loop), 0
        while True:
            known = len(self.barriers)
            again, behind = self.walk_iteration(loop, again.carried(loop).join(before))
            walks = walks + 1 if len(self.barriers) == known else 0
            lasting = [*again.done, *again.started] if 0 < walks < reach else []
            if walks and not any(access.age >= walks for access in lasting):
                return behind.join(before)

    def walk_iteration(self, loop: For | While, before: Open) -> tuple[Open, Open]:
        """Walk one iteration. Return what is open before the next one, and behind the loop."""
        self.exits.append([])
        again = behind = self.walk(loop.body, before)
        for left, continues in self.exits.pop():
            behind = behind.join(left)
            again = again.join(left) if continues else again
        if isinstance(loop, While):  # which asks again in between
            return self.decided(loop, again), self.decided(loop, behind)
        return again, behind

    def walk_role(self, role: Role, before: Open) -> Open:
        """Roles run at once: what orders them are the kernel's own memory barriers."""
        threads, self.accesses.threads = self.accesses.threads, (role.start, role.extent)
        inside = self.walk(role.body, before.ordered())
        self.accesses.threads = threads
        return before.join(inside.apart() if self.order.takes_turns(role) else inside)

    def exchanges(self, stmt: Stmt, accesses: Accesses) -> bool:
        """Whether threads may pass data on to one another within `stmt`."""
        if id(stmt) not in self.exchanging:
            below = list(statements(stmt))
            self.exchanging[id(stmt)] = (
                any(isinstance(inner, WaitGroup | Barrier) for inner in below)
                or self.between.conflict(list(accesses), accesses) is not None
                or any(isinstance(inner, For) and self.exchanges_later(inner) for inner in below)
            )
        return self.exchanging[id(stmt)]

    def exchanges_later(self, loop: For) -> bool:
        """Whether an iteration of the loop may conflict with one before it; with constant
        bounds its accesses are those of all iterations anyway.
        """
        if iterations(loop) is not None:
            return False
        accesses = self.between.of(loop.body)
        state = Open(list(accesses))
        for _ in range(self.between.reach(loop)):
            state = state.carried(loop)
            if self.between.conflict(state.done, accesses) is not None:
                return True
        return False
