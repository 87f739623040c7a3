"""What orders the accesses of a block's threads, and for whom.

Each thread keeps its own program order. An access is *open* for the others until something orders
them behind it:

| statement | orders | for whom |
|---|---|---|
| barrier of the block, the cluster, the grid | what all threads did before it | all threads |
| barrier of a warp | what its lanes did before it | the lanes of that warp |
| arrival at a memory barrier | nothing yet | |
| wait for a phase | what was done before each arrival, if the phase needs all | who waits |
| arrival at a cluster's barrier, wait there | nothing between threads of one block | |
| wait for groups | what this thread has started: a copy counts as done here | this thread |
| commit, fence | nothing between threads | |

`analysis/pending.py` knows which operations a wait leaves under way, and which memory barrier
counts them. It finds mistakes of a kernel, and copies that may stay asynchronous.

Roles side by side, and the arms of a branch that some threads take, run at once: no barrier of all
threads is between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from itertools import groupby

from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import all_lanes, sub
from tileworkbench.compiler.ir.effects import Order, order_of
from tileworkbench.compiler.ir.expr import Address
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import (
    LANGUAGE_WARP,
    BarrierArrive,
    BarrierWait,
    Role,
    WarpBarrier,
)
from tileworkbench.compiler.ir.stmt import For, If, Kernel, Stmt, While
from tileworkbench.compiler.schedule.arrivals import Arrivals
from tileworkbench.compiler.schedule.thread_accesses import ThreadAccess


def rows(stmts: Iterable[Stmt]) -> Iterator[tuple[bool, list[Stmt]]]:
    """`stmts` in program order, with roles side by side, which run at once, as one row (True)."""
    for at_once, row in groupby(stmts, lambda stmt: isinstance(stmt, Role)):
        yield at_once, list(row)


@dataclass(frozen=True, slots=True)
class Open:
    """The accesses that are open: `done` by their threads, and `started`, which are done at a wait
    for their group.
    """

    done: list[ThreadAccess] = field(default_factory=list)
    started: list[ThreadAccess] = field(default_factory=list)

    def add(self, accesses: Iterable[ThreadAccess]) -> Open:
        """Add accesses. What completes at a memory barrier is not open: its readers wait."""
        own = [access for access in accesses if not access.at_barrier]
        done = [access for access in own if not access.asynchronous]
        started = [access for access in own if access.asynchronous]
        return self.join(Open(done, started))

    def join(self, other: Open) -> Open:
        """What is open where two ways through the code come together."""
        return Open(_union(self.done, other.done), _union(self.started, other.started))

    def ordered(self) -> Open:
        """What is still open behind a barrier of all threads."""
        return Open([], self.started)

    def apart(self) -> Open:
        """What is open behind code whose threads wait for others by memory barriers."""
        return Open([replace(access, apart=True) for access in self.done], self.started)

    def waited(self) -> Open:
        """What is open behind a wait for groups: what was started is done, for this thread."""
        return Open(_union(self.done, self.started), self.started)

    def warps_met(self) -> Open:
        """What is open behind a barrier of each warp."""
        return Open([replace(access, warps_met=True) for access in self.done], self.started)

    def arrived(self, barrier: Address) -> Open:
        """What is open after all threads of these accesses have arrived at `barrier`."""
        known = [replace(one, arrived=one.arrived | {barrier}) for one in self.done]
        return Open(known, self.started)

    def awaited(self, barrier: Address) -> Open:
        """What is open behind a wait for the phase of the latest arrival. The parity is not looked
        at: if the kernel waits for another phase, a barrier of the block would not mend that.
        """
        return Open([one for one in self.done if barrier not in one.arrived], self.started)

    def carried(self, loop: For | While) -> Open:
        """What is open at the end of an iteration, in terms of the next iteration's variables."""
        back = {loop.var: sub(loop.var, loop.step)} if isinstance(loop, For) else {}
        return Open(
            [access.carried(back) for access in self.done],
            [access.carried(back) for access in self.started],
        )


class ThreadOrder:
    """What the statements of one kernel order; `lanes` are the threads of a warp.

    With `strict` barriers are a GPU's. Else threads are loops: tile operators are places where all
    of them meet, and lanes do not run side by side.
    """

    def __init__(self, kernel: Kernel, uniformity: Uniformity, lanes: int, strict: bool) -> None:
        self.uniformity, self.strict = uniformity, strict
        # A barrier of a whole warp of the language is one of the machine's: of a wave of 64, too.
        self._whole = (all_lanes(lanes), all_lanes(LANGUAGE_WARP))
        self._arrivals = Arrivals(kernel, uniformity)
        # On a CPU the threads of a block take turns only where some wait for others.
        waits = any(isinstance(stmt, BarrierWait) for stmt in statements(kernel.body))
        self.roles_at_once = strict or waits

    def behind(self, stmt: Stmt, before: Open, threads: int | None) -> Open | None:
        """What is open behind `stmt`, None where it orders nothing, as a barrier at which not all
        `threads` meet (None: all that are here).
        """
        match order_of(stmt):
            case Order.BLOCK | Order.CLUSTER | Order.GRID:
                common = threads is None or getattr(stmt, "count", 0) in (0, threads)
                return before.ordered() if common else None
            case Order.WARP if self.strict and isinstance(stmt, WarpBarrier):
                return before.warps_met() if stmt.mask in self._whole else None
            case Order.ARRIVE if isinstance(stmt, BarrierArrive):
                orders = self._arrivals.order(stmt.barrier)
                return before.arrived(stmt.barrier) if orders else None
            case Order.PHASE if isinstance(stmt, BarrierWait):
                return before.awaited(stmt.barrier)
            case Order.GROUP:
                return before.waited()
        return None

    def takes_turns(self, stmt: Stmt) -> bool:
        """Whether some threads execute `stmt` and order it themselves, by memory barriers. On a GPU
        that is a role.
        """
        some = isinstance(stmt, Role) or (
            isinstance(stmt, If) and not self.strict and self.uniformity.varies(stmt.cond)
        )
        return some and any(
            isinstance(inner, BarrierWait | BarrierArrive) for inner in statements(stmt)
        )

    def left_apart(self, loop: For | While) -> bool:
        """Whether threads may leave the loop at different times."""
        decided = (loop.cond,) if isinstance(loop, While) else (loop.start, loop.stop, loop.step)
        varies = any(map(self.uniformity.varies, decided))
        return varies or self.uniformity.leaves_divergently(loop.body)


def _union(a: list[ThreadAccess], b: list[ThreadAccess]) -> list[ThreadAccess]:
    """Equal accesses once: a long kernel does the same again and again."""
    return list(dict.fromkeys((*a, *b)))
