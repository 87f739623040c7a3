"""The threads of one block while its code is split into loops over them.

Code of threads is written with the thread variable of its kernel; which loop it stands for is
decided when the loops are finished (`privatise.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names, stem
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import (
    FALSE,
    TRUE,
    add,
    binary,
    conjunction,
    const,
    const_int,
    int_const,
    logical,
)
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.stmt import Alloc, For, If, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.ir.types import BOOL, INT32, DType

_ZERO, _ONE = int_const(0), int_const(1)


@dataclass(frozen=True, slots=True)
class Turns:
    """Of a loop that threads leave at different times: `live` holds for those still in it, `turn`
    for those still in this iteration.
    """

    live: Buffer
    turn: Buffer


@dataclass(frozen=True, slots=True)
class Counted:
    """A counted loop as one with a condition in front of each iteration: what `begins` it, the
    `current` value of its variable, the condition under which it `goes_on`, and what goes to the
    `next` value.
    """

    begins: list[Stmt]
    current: Expr
    goes_on: Expr
    next: Stmt


@dataclass(frozen=True, slots=True)
class Scope:
    """The threads that execute a piece of code together: `start .. start + extent - 1`, those of
    them for which all `masks` hold. `turns` are the masks of the loop around, if it has them.
    """

    start: int
    extent: int
    masks: tuple[Buffer, ...] = ()
    turns: Turns | None = None

    def narrowed(self, start: int, extent: int) -> Scope:
        """The threads of this scope that are also in `start .. start + extent - 1`."""
        first = max(self.start, start)
        stop = min(self.start + self.extent, start + extent)
        return replace(self, start=first, extent=max(stop - first, 0))

    def masked(self, mask: Buffer) -> Scope:
        """The threads of this scope for which `mask` holds too."""
        return replace(self, masks=(*self.masks, mask))

    def in_loop(self, turns: Turns | None) -> Scope:
        """The same threads inside a loop, which has `turns` when they leave it apart."""
        more = () if turns is None else (turns.live, turns.turn)
        return replace(self, masks=(*self.masks, *more), turns=turns)

    def holds(self, thread: Expr) -> Expr | None:
        """Whether the masks hold for `thread`, a thread of the range; None where there are none."""
        return conjunction([Load(mask, (thread,)) for mask in self.masks])


class Block:
    """Thread loops, memory that outlives them, and unused names, for one kernel."""

    def __init__(self, thread: Var, count: int, names: Names, blocks: int = 1) -> None:
        self.thread = thread
        self.count = count
        self.blocks = blocks
        self.names = names
        self.loops: dict[Var, int] = {}  # the variable of each thread loop, and its first thread
        self.allocs: list[Stmt] = []  # what stands at the start of the kernel

    @property
    def per_block(self) -> int:
        """How many threads a block of the kernel has, of which this may be several."""
        return self.count // self.blocks

    def describe(self, scope: Scope) -> str:
        """The threads of `scope` in words, as a part of a sentence."""
        rank, first = divmod(scope.start, self.per_block)
        of_block = f" of block {rank} of the cluster" if self.blocks > 1 else ""
        return f"threads {first} to {first + scope.extent - 1}{of_block}"

    def called(self, buffer: Buffer) -> str:
        """The name of the memory of one block: in a cluster each has its own."""
        return stem(buffer.name) if self.blocks > 1 else buffer.name

    # Memory

    def array(self, name: str, dtype: DType, shape: tuple[Expr, ...] = ()) -> Buffer:
        """Memory with a place of `shape` for every thread, neighbours side by side."""
        return self.memory(name, dtype, (*shape, int_const(self.count)))

    def memory(self, name: str, dtype: DType, shape: tuple[Expr, ...]) -> Buffer:
        """Memory of the block, for as long as the kernel runs."""
        buffer = Buffer(self.names.fresh(name), dtype, shape, "shared")
        self.allocs.append(Alloc(buffer))
        return buffer

    def cell(self, name: str, dtype: DType) -> Buffer:
        """A scalar of the block."""
        buffer = Buffer(self.names.fresh(name), dtype, (), "local.var")
        self.allocs.append(Alloc(buffer, const(0, dtype)))
        return buffer

    # Loops

    def each(self, stmts: list[Stmt], scope: Scope, serial: bool = False) -> Stmt:
        """`stmts`, written with the thread variable, for every thread of `scope`; one after another
        when `serial`, else in any order.
        """
        body, guard = seq(stmts), scope.holds(self.thread)
        if guard is not None:
            body = If(guard, body, site=body.site)
        var = self.names.var(self.thread.name)
        self.loops[var] = scope.start
        extent, site = int_const(scope.extent), stmts[0].site
        if serial:
            return counting(var, extent, body, site)
        return Parallel((var,), (extent,), body, site=site)

    def counted(
        self, loop: For, memory: Callable[[str, DType], Buffer], place: tuple[Expr, ...]
    ) -> Counted:
        """`loop` with its variable and its end in `memory` at `place`."""
        index = memory(loop.var.name, loop.var.dtype)
        stop = memory(f"{loop.var.name}_stop", loop.var.dtype)
        site, current = loop.site, Load(index, place)
        backwards = (const_int(loop.step) or 1) < 0
        return Counted(
            [Store(index, place, loop.start, site=site), Store(stop, place, loop.stop, site=site)],
            current,
            binary("gt" if backwards else "lt", current, Load(stop, place)),
            Store(index, place, add(current, loop.step), site=site),
        )

    def loop_masks(self) -> Turns:
        """Masks for another loop."""
        return Turns(self.array("live", BOOL), self.array("turn", BOOL))

    def new_turn(self, turns: Turns, live: Scope, site: int) -> Stmt:
        """The threads that are `live`, still in the loop, begin an iteration."""
        return self.each([Store(turns.turn, (self.thread,), TRUE, site=site)], live)

    def count_active(self, scope: Scope, site: int) -> tuple[list[Stmt], Expr]:
        """How many threads of `scope` are active, and what computes it."""
        if not scope.masks:
            return [], int_const(scope.extent)
        total = self.cell("active", INT32)
        more = add(Load(total, ()), _ONE)
        loop = self.each([Store(total, (), more, site=site)], scope, serial=True)
        return [Store(total, (), _ZERO, site=site), loop], Load(total, ())

    def any_active(self, scope: Scope, site: int) -> tuple[list[Stmt], Expr]:
        """Whether some thread of `scope` is active, and what computes it."""
        if not scope.masks:
            return [], const(scope.extent > 0, BOOL)
        some = self.cell("some_active", BOOL)
        loop = self.each([Store(some, (), TRUE, site=site)], scope, serial=True)
        return [Store(some, (), FALSE, site=site), loop], Load(some, ())


def lane_is_active(scope: Scope, thread: Expr, aligned: bool) -> Expr | None:
    """Whether `thread`, any of a warp, belongs to `scope`; None where all do (`aligned`: the range
    consists of whole warps).
    """
    conditions: list[Expr] = []
    if not aligned:
        stop = int_const(scope.start + scope.extent)
        conditions.append(
            logical(
                "logical_and",
                binary("ge", thread, int_const(scope.start)),
                binary("lt", thread, stop),
            )
        )
    conditions += [Load(mask, (thread,)) for mask in scope.masks]
    return conjunction(conditions)
