"""What a thread holds of a fragment: its slots, and the elements in them, as loops and formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, conjunction, int_const, sub
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.stmt import If, Stmt
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.maps import DigitMap, evaluate_sum
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.formulas import sum_expr
from tileworkbench.compiler.lower.threads.loops import scale, unrolled
from tileworkbench.compiler.lower.threads.partition import Partition, partition


@dataclass(frozen=True, slots=True)
class Holding:
    """A thread's part of `fragment`: one loop per step of `partition`, `strides` slots apart,
    from slot `first` on.
    """

    fragment: Fragment
    partition: Partition
    first: int
    strides: tuple[int, ...]

    @property
    def is_partial(self) -> bool:
        """Whether some slots of some threads are empty."""
        partition = self.partition
        return bool(partition.base or partition.guards or partition.bounded)

    def slot(self, steps: Sequence[Expr]) -> Expr:
        """The slot at the given values of the steps."""
        total: Expr = int_const(self.first)
        for value, stride in zip(steps, self.strides, strict=True):
            total = add(total, scale(value, stride))
        return total

    def indices(self, steps: Sequence[Expr], context: ThreadContext) -> tuple[Expr, ...]:
        """The index of the element at the given values of the steps, and the replica."""
        partition = self.partition
        thread = (
            sub(context.thread, int_const(partition.base)) if partition.base else context.thread
        )
        return tuple(sum_expr(partition.box, total, (*steps, thread)) for total in partition.sums)

    def point(self, steps: Sequence[int]) -> tuple[int, ...]:
        """The indices as numbers, for the first thread."""
        box = self.partition.box
        return tuple(evaluate_sum(box, total, (*steps, 0)) for total in self.partition.sums)

    def thread_guards(self, context: ThreadContext) -> list[Expr]:
        """Conditions for a thread to hold anything."""
        conditions = []
        base = self.partition.base
        thread = sub(context.thread, int_const(base)) if base else context.thread
        if base:
            conditions.append(binary("ge", thread, int_const(0)))
        for guard in self.partition.guards:
            place = binary("floordiv", thread, int_const(guard.divisor))
            if guard.capacity:
                place = binary("floormod", place, int_const(guard.capacity))
            conditions.append(binary("lt", place, int_const(guard.extent)))
        return conditions

    def bounds(self, indices: Sequence[Expr]) -> list[Expr]:
        """Conditions for an index to be one of the fragment's."""
        extents = self.fragment.mapping.shape
        return [
            binary("lt", indices[dim], int_const(extents[dim])) for dim in self.partition.bounded
        ]


@lru_cache(maxsize=1024)
def hold(fragment: Fragment, threads: int) -> Holding:
    """What each of `threads` threads holds of `fragment`.

    Raises `LayoutError` for a fragment without a formula.
    """
    partitioned = partition(fragment, threads)
    mapping = fragment.mapping
    assert isinstance(mapping, DigitMap)  # `partition` refuses tables
    zero = [0] * (len(partitioned.steps) + 1)

    def slot(point: list[int]) -> int:
        index = [evaluate_sum(partitioned.box, total, point) for total in partitioned.sums]
        return int(evaluate_sum(mapping.shape, mapping.sums[1], index))

    first = slot(zero)
    strides = []
    for number in range(len(partitioned.steps)):
        point = list(zero)
        point[number] = 1
        strides.append(slot(point) - first)
    return Holding(fragment, partitioned, first, tuple(strides))


Body = Callable[[Expr, tuple[Expr, ...], Expr | None], Stmt]
"""Makes the statement for one element from its slot, its index and the condition to have it."""


def each_element(
    context: ThreadContext, fragment: Fragment, body: Body, site: int, once: bool = False
) -> Stmt:
    """`body` for every element that the thread holds; with `once` only for the first replica of
    each.

    Conditions are predicates and no branches: what threads exchange here may need a barrier.
    """
    held = hold(fragment, context.threads)
    guards = held.thread_guards(context)

    def inner(steps: tuple[Expr, ...]) -> Stmt:
        if len(steps) < len(held.strides):
            extent = held.partition.steps[len(steps)].extent
            return unrolled(context, "s", extent, lambda s: inner((*steps, s)), site)
        indices = held.indices(steps, context)
        conditions = [*guards, *held.bounds(indices)]
        if once and fragment.replicate > 1:
            conditions.append(binary("eq", indices[-1], int_const(0)))
        needed = [cond for cond in conditions if not context.ranges.proves(cond)]
        return body(held.slot(steps), indices[:-1], conjunction(needed))

    return inner(())


def guarded(conditions: list[Expr], body: Stmt, site: int) -> Stmt:
    """`body` where all conditions hold."""
    condition = conjunction(conditions)
    return body if condition is None else If(condition, body, site=site)


def flat_index(shape: Sequence[int], indices: Sequence[Expr]) -> Expr:
    """The row-major position of an element."""
    total: Expr = int_const(0)
    for extent, index in zip(shape, indices, strict=True):
        total = add(scale(total, extent), index)
    return total
