"""Matrix products by the threads' own multiply-adds, where no matrix instruction fits: every thread
has some rows and columns of the result, and walks along K.

Four signed bytes at a time are multiplied by dp4a where K is the last dimension of both operands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import (
    add,
    binary,
    cast,
    conjunction,
    const,
    int_const,
    mul,
)
from tileworkbench.compiler.ir.expr import (
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Ramp,
    Region,
    Reinterpret,
)
from tileworkbench.compiler.ir.stmt import For, If, LoopKind, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.shared.combining import accumulation_dtype
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.holding import guarded
from tileworkbench.compiler.lower.threads.loops import shift, unrolled
from tileworkbench.compiler.lower.threads.mma import Product
from tileworkbench.compiler.lower.threads.operand import is_contiguous

_VECTORS = (4, 2, 1)


@dataclass(frozen=True, slots=True)
class ThreadGrid:
    """`rows` x `columns` threads, `pitch` from row to row, share an `m` x `n` result: thread
    ``(i, j)`` has rows ``i``, ``i + rows``, ... and the vectors of `vector` columns ``j``,
    ``j + columns``, ...
    """

    m: int
    n: int
    rows: int
    columns: int
    vector: int
    pitch: int

    @property
    def own_rows(self) -> int:
        """Rows of a thread."""
        return self.m // self.rows

    @property
    def own_columns(self) -> int:
        """Columns of a thread."""
        return self.n // self.columns

    def fragment(self) -> Fragment:
        """Where the elements of the result are."""

        def place(i: Any, j: Any) -> tuple[Any, Any]:
            thread = i % self.rows * self.pitch + j // self.vector % self.columns
            block = j // (self.vector * self.columns) * self.vector + j % self.vector
            return thread, i // self.rows * self.own_columns + block

        return Fragment((self.m, self.n), place)


@lru_cache(maxsize=256)
def choose_grid(m: int, n: int, threads: int) -> ThreadGrid:
    """A grid of at least half the threads, if there is one; then the one whose rows depend on `m`
    and the threads alone, so that products of as many rows share theirs alike; of most threads, and
    with the widest vectors.
    """
    usual = max(rows for rows in range(1, isqrt(threads) + 1) if m % rows == 0)
    grids = [
        ThreadGrid(m, n, rows, columns, vector, threads // rows)
        for rows in range(1, threads + 1)
        if m % rows == 0
        for vector in _VECTORS
        if n % vector == 0
        for columns in range(1, threads // rows + 1)
        if (n // vector) % columns == 0
    ]

    def score(grid: ThreadGrid) -> tuple[int, ...]:
        used = grid.rows * grid.columns
        size = grid.own_rows + grid.own_columns
        return (2 * used < threads, grid.rows != usual, -used, -grid.vector, size)

    return min(grids, key=score)


def fragment_c(product: Product, threads: int) -> Fragment:
    """The fragment of the result."""
    return choose_grid(product.m, product.n, threads).fragment()


def lower(op: Gemm, product: Product, context: ThreadContext) -> Stmt:
    """The multiply-adds of one thread, if it has any; A and B lie in shared memory."""
    grid = choose_grid(product.m, product.n, context.threads)
    return seq(_Lowering(op, product, grid, context).run())


class _Lowering:
    def __init__(
        self, op: Gemm, product: Product, grid: ThreadGrid, context: ThreadContext
    ) -> None:
        self.op, self.product, self.grid, self.context = op, product, grid, context
        self.packed = 4 if self._takes_dot_products() else 1
        self.dtype = accumulation_dtype(product.c)
        pitch = int_const(grid.pitch)
        thread = context.thread
        self.first_row = context.named("thread_row", binary("floordiv", thread, pitch))
        column = binary("floormod", thread, pitch)
        self.first_column = context.named("thread_column", mul(column, int_const(grid.vector)))
        self.conditions = self._takes_part()
        self.predicate = conjunction(self.conditions)
        c = op.c.buffer
        self.in_place = c.scope == "local.fragment" and c.dtype == self.dtype
        elements = grid.own_rows * grid.own_columns
        self.sums = (
            context.registers(c)
            if self.in_place
            else context.temporary(f"{c.name}_sum", self.dtype, elements)
        )
        operand = INT32 if self.packed == 4 else self.dtype
        self.a = context.temporary("A_column", operand, grid.own_rows)
        self.b = context.temporary("B_row", operand, grid.own_columns)

    def _takes_part(self) -> list[Expr]:
        """The conditions for a thread to have a part of the result."""
        grid, conditions = self.grid, []
        if grid.rows * grid.pitch < self.context.threads:
            conditions.append(binary("lt", self.first_row, int_const(grid.rows)))
        if grid.columns < grid.pitch:
            stop = int_const(grid.columns * grid.vector)
            conditions.append(binary("lt", self.first_column, stop))
        return conditions

    def _takes_dot_products(self) -> bool:
        """Whether dp4a multiplies these operands: bytes along K in one piece of shared memory."""
        op, product = self.op, self.product
        return (
            self.context.target.machine.dot_product
            and (product.a, product.b, product.c) == ("int8", "int8", "int32")
            and not op.transpose_a
            and op.transpose_b
            and product.k % 4 == 0
            and all(is_contiguous(region, 4, self.context) for region in (op.a, op.b))
        )

    def run(self) -> list[Stmt]:
        op = self.op
        stmts: list[Stmt] = []
        if not self.in_place or not isinstance(op.clear, Const) or op.clear.value:
            stmts.append(self._begin())
        stmts.append(guarded(self.conditions, self._walk(), op.site))
        if not self.in_place:
            stmts.append(self._each(lambda r, c: self._store_c(r, c)))
        return stmts

    # C

    def _begin(self) -> Stmt:
        """The sums start from zero or from C."""
        op = self.op
        zero = const(0, self.dtype)
        clear = self._each(lambda r, c: self._set(r, c, zero))
        load = None if self.in_place else self._each(lambda r, c: self._set(r, c, self._c(r, c)))
        if isinstance(op.clear, Const):
            return clear if op.clear.value or load is None else load
        return If(op.clear, clear, load, site=op.site)

    def _each(self, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """`body` for the thread's rows and columns."""

        def row(r: Expr) -> Stmt:
            return unrolled(
                self.context, "c", self.grid.own_columns, lambda c: body(r, c), self.op.site
            )

        return unrolled(self.context, "r", self.grid.own_rows, row, self.op.site)

    def _slot(self, r: Expr, c: Expr) -> Expr:
        return add(mul(r, int_const(self.grid.own_columns)), c)

    def _set(self, r: Expr, c: Expr, value: Expr) -> Stmt:
        return Store(self.sums, (self._slot(r, c),), value, site=self.op.site)

    def _c_place(self, r: Expr, c: Expr) -> tuple[Buffer, tuple[Expr, ...]]:
        buffer, mins = self.op.c.buffer, self.op.c.mins
        if buffer.scope == "local.fragment":
            return self.context.registers(buffer), (self._slot(r, c),)
        return buffer, (
            *mins[:-2],
            shift(mins[-2], self._row(r)),
            shift(mins[-1], self._column(c)),
        )

    def _c(self, r: Expr, c: Expr) -> Expr:
        return cast(Load(*self._c_place(r, c), self.predicate), self.dtype)

    def _store_c(self, r: Expr, c: Expr) -> Stmt:
        buffer, indices = self._c_place(r, c)
        value = cast(Load(self.sums, (self._slot(r, c),)), buffer.dtype)
        return Store(buffer, indices, value, self.predicate, site=self.op.site)

    # Operands

    def _row(self, r: Expr) -> Expr:
        return add(self.first_row, mul(r, int_const(self.grid.rows)))

    def _column(self, c: Expr) -> Expr:
        """The column at position `c` among those of the thread."""
        grid = self.grid
        vector = int_const(grid.vector)
        block = mul(binary("floordiv", c, vector), int_const(grid.vector * grid.columns))
        return add(add(self.first_column, block), binary("floormod", c, vector))

    def _walk(self) -> Stmt:
        """Along K: a column of A and a row of B into registers, then all their products."""
        var = self.context.loop_var("k")
        body = seq(
            [
                self._load_a(var),
                self._load_b(var),
                self._each(self._multiply),
            ]
        )
        bounds = (int_const(0), int_const(self.product.k), int_const(self.packed))
        return For(var, *bounds, LoopKind.SERIAL, body, site=self.op.site)

    def _multiply(self, r: Expr, c: Expr) -> Stmt:
        a, b = Load(self.a, (r,)), Load(self.b, (c,))
        total = Load(self.sums, (self._slot(r, c),))
        if self.packed == 4:
            return self._set(r, c, Call("dp4a", (a, b, total), INT32))
        return self._set(r, c, add(total, mul(a, b)))

    def _load_a(self, k: Expr) -> Stmt:
        op = self.op

        def row(r: Expr) -> Stmt:
            value = self._element(op.a, self._row(r), k, not op.transpose_a)
            return Store(self.a, (r,), value, site=op.site)

        return unrolled(self.context, "r", self.grid.own_rows, row, op.site)

    def _load_b(self, k: Expr) -> Stmt:
        op, grid = self.op, self.grid
        whole = is_contiguous(op.b, grid.vector, self.context)
        if grid.vector > 1 and not op.transpose_b and whole:
            return self._load_b_vectors(k)

        def column(c: Expr) -> Stmt:
            value = self._element(op.b, self._column(c), k, op.transpose_b)
            return Store(self.b, (c,), value, site=op.site)

        return unrolled(self.context, "c", grid.own_columns, column, op.site)

    def _load_b_vectors(self, k: Expr) -> Stmt:
        op, grid = self.op, self.grid
        one, vector = int_const(1), grid.vector

        def block(v: Expr) -> Stmt:
            first = mul(v, int_const(vector))
            column = Ramp(self._column(first), one, vector)
            mins = op.b.mins
            index = (*mins[:-2], shift(mins[-2], k), shift(mins[-1], column))
            value = cast(Load(op.b.buffer, index), self.dtype)
            return Store(self.b, (Ramp(first, one, vector),), value, site=op.site)

        return unrolled(self.context, "v", grid.own_columns // vector, block, op.site)

    def _element(self, region: Region, outer: Expr, k: Expr, k_last: bool) -> Expr:
        """An element (or four along K, as int32) of an operand."""
        if self.packed == 4:
            k = Ramp(k, int_const(1), 4)
        mins = region.mins
        pair = (outer, k) if k_last else (k, outer)
        index = (*mins[:-2], shift(mins[-2], pair[0]), shift(mins[-1], pair[1]))
        element = Load(region.buffer, index)
        return Reinterpret(element, INT32) if self.packed == 4 else cast(element, self.dtype)
