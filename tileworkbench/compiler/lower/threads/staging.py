"""Elements that one thread holds and another one needs, by way of shared memory.

Each thread writes the elements of its fragment to a tile in shared memory, and reads from there
those of another fragment. `insert_barriers` finds the two accesses and puts a barrier between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import cast
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.stmt import Stmt, Store
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.holding import each_element, flat_index

Assign = Callable[[Buffer, tuple[Expr, ...], Expr, Expr | None], Stmt]
"""Makes the statement that gives an element of a buffer a value, where a predicate holds."""


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A tile in shared memory, which may be part of a buffer: its element `index` is the element
    `at(index)` of `buffer`.
    """

    buffer: Buffer
    at: Callable[[Sequence[Expr]], tuple[Expr, ...]]


def workspace(name: str, dtype: DType, shape: Sequence[int], context: ThreadContext) -> SharedTile:
    """A new tile of `shape` for the values of `name`, in row-major order."""
    buffer = context.temporary(f"{name}_workspace", dtype, prod(shape), "shared")
    return SharedTile(buffer, lambda index: (flat_index(shape, index),))


def write_tile(
    registers: Buffer,
    fragment: Fragment,
    into: SharedTile,
    context: ThreadContext,
    site: int,
    assign: Assign | None = None,
) -> Stmt:
    """Write the elements of `fragment`, which are in `registers`, to the tile `into`.

    Of several threads that hold an element, one writes it.
    """
    assign = assign or _converted(site)

    def write(slot: Expr, index: tuple[Expr, ...], predicate: Expr | None) -> Stmt:
        value = Load(registers, (slot,))
        return assign(into.buffer, into.at(index), value, predicate)

    return each_element(context, fragment, write, site, once=True)


def read_tile(
    source: SharedTile,
    registers: Buffer,
    fragment: Fragment,
    context: ThreadContext,
    site: int,
    assign: Assign | None = None,
) -> Stmt:
    """Read the elements of `fragment` from the tile `source` into `registers`."""
    assign = assign or _converted(site)

    def read(slot: Expr, index: tuple[Expr, ...], predicate: Expr | None) -> Stmt:
        value = Load(source.buffer, source.at(index), predicate)
        return assign(registers, (slot,), value, predicate)

    return each_element(context, fragment, read, site)


def _converted(site: int) -> Assign:
    def assign(
        buffer: Buffer, indices: tuple[Expr, ...], value: Expr, predicate: Expr | None
    ) -> Stmt:
        return Store(buffer, indices, cast(value, buffer.dtype), predicate, site=site)

    return assign
