"""Matrix products by the threads' own multiply-adds, where no matrix instruction fits: every thread
has some rows and columns of the result, and walks along K.

Four signed bytes at a time are multiplied by dp4a where K is the last dimension of both operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tileworkbench.compiler.ir.build import add, binary, cast, const, int_const, mul
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
from tileworkbench.compiler.ir.types import FLOAT32, INT32, DType
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.ops.simt.context import ThreadContext
from tileworkbench.compiler.ops.simt.mma import Product
from tileworkbench.compiler.ops.simt.operand import is_contiguous, shift, unrolled

_VECTORS = (4, 2, 1)


@dataclass(frozen=True, slots=True)
class ThreadGrid:
    """`rows` x `columns` threads share an `m` x `n` result: thread ``(i, j)`` has rows ``i``,
    ``i + rows``, ... and the vectors of `vector` columns ``j``, ``j + columns``, ...
    """

    m: int
    n: int
    rows: int
    columns: int
    vector: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns

    @property
    def own_rows(self) -> int:
        """Rows of a thread."""
        return self.m // self.rows

    @property
    def own_columns(self) -> int:
        """Columns of a thread."""
        return self.n // self.columns

    def column_slot(self, j: Any) -> Any:
        """The position of column `j` among those of its thread."""
        return j // (self.vector * self.columns) * self.vector + j % self.vector

    def fragment_c(self) -> Fragment:
        def place(i: Any, j: Any) -> tuple[Any, Any]:
            thread = i % self.rows * self.columns + j // self.vector % self.columns
            return thread, i // self.rows * self.own_columns + self.column_slot(j)

        return Fragment((self.m, self.n), place)

    def fragment_a(self, depth: int, transpose: bool) -> Fragment:
        """Every thread has its rows of A."""

        def place(i: Any, k: Any, rep: Any) -> tuple[Any, Any]:
            return i % self.rows * self.columns + rep, i // self.rows * depth + k

        if transpose:
            return _fragment((depth, self.m), lambda k, i, rep: place(i, k, rep), self.columns)
        return _fragment((self.m, depth), place, self.columns)

    def fragment_b(self, depth: int, transpose: bool) -> Fragment:
        """Every thread has its columns of B."""

        def place(k: Any, j: Any, rep: Any) -> tuple[Any, Any]:
            thread = rep * self.columns + j // self.vector % self.columns
            return thread, self.column_slot(j) * depth + k

        if transpose:
            return _fragment((self.n, depth), lambda j, k, rep: place(k, j, rep), self.rows)
        return _fragment((depth, self.n), place, self.rows)


def _fragment(shape: tuple[int, int], place: Callable[..., Any], replicate: int) -> Fragment:
    function = place if replicate > 1 else lambda x, y: place(x, y, 0)
    return Fragment(shape, function, replicate)


@lru_cache(maxsize=256)
def choose_grid(m: int, n: int, threads: int) -> ThreadGrid:
    """The grid of most threads; of equals the one with the widest vectors, then the squarest."""
    found = [
        ThreadGrid(m, n, rows, columns, vector)
        for vector in _VECTORS
        if n % vector == 0
        for columns in range(1, threads + 1)
        if (n // vector) % columns == 0
        for rows in range(1, threads // columns + 1)
        if m % rows == 0
    ]
    return min(found, key=lambda g: (-g.threads, -g.vector, g.own_rows + g.own_columns))


def fragments(op: Gemm, product: Product, threads: int) -> dict[str, Fragment]:
    """The fragments of the operands that lie in registers."""
    grid = choose_grid(product.m, product.n, threads)
    return {
        "a": grid.fragment_a(product.k, op.transpose_a),
        "b": grid.fragment_b(product.k, op.transpose_b),
        "c": grid.fragment_c(),
    }


def lower(op: Gemm, product: Product, context: ThreadContext) -> Stmt:
    """The multiply-adds of one thread, if it has any."""
    grid = choose_grid(product.m, product.n, context.threads)
    body = seq(_Lowering(op, product, grid, context).run())
    if grid.threads == context.threads:
        return body
    return If(binary("lt", context.thread, int_const(grid.threads)), body, site=op.site)


class _Lowering:
    def __init__(
        self, op: Gemm, product: Product, grid: ThreadGrid, context: ThreadContext
    ) -> None:
        self.op, self.product, self.grid, self.context = op, product, grid, context
        self.packed = 4 if self._takes_dot_products() else 1
        self.dtype = _sum_dtype(product.c)
        columns = int_const(grid.columns)
        thread = context.thread
        self.first_row = context.named("thread_row", binary("floordiv", thread, columns))
        column = binary("floormod", thread, columns)
        self.first_column = context.named("thread_column", mul(column, int_const(grid.vector)))
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

    def _takes_dot_products(self) -> bool:
        """Whether dp4a multiplies these operands: bytes along K in one piece of shared memory."""
        op, product = self.op, self.product
        return (
            self.context.target.has_dot_product
            and (product.a, product.b, product.c) == ("int8", "int8", "int32")
            and not op.transpose_a
            and op.transpose_b
            and product.k % 4 == 0
            and all(
                region.buffer.scope == "shared" and is_contiguous(region, 4, self.context)
                for region in (op.a, op.b)
            )
        )

    def run(self) -> list[Stmt]:
        op = self.op
        stmts: list[Stmt] = []
        if not self.in_place or not isinstance(op.clear, Const) or op.clear.value:
            stmts.append(self._begin())
        stmts.append(self._walk())
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
        return cast(Load(*self._c_place(r, c)), self.dtype)

    def _store_c(self, r: Expr, c: Expr) -> Stmt:
        buffer, indices = self._c_place(r, c)
        value = cast(Load(self.sums, (self._slot(r, c),)), buffer.dtype)
        return Store(buffer, indices, value, site=self.op.site)

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
        in_registers = "local.fragment" in (self.op.a.buffer.scope, self.op.b.buffer.scope)
        kind = LoopKind.UNROLLED if in_registers else LoopKind.SERIAL
        var = self.context.loop_var("k")
        body = seq(
            [
                self._load_a(var),
                self._load_b(var),
                self._each(self._multiply),
            ]
        )
        stop, step = int_const(self.product.k), int_const(self.packed)
        return For(var, int_const(0), stop, step, kind, body, site=self.op.site)

    def _multiply(self, r: Expr, c: Expr) -> Stmt:
        a, b = Load(self.a, (r,)), Load(self.b, (c,))
        total = Load(self.sums, (self._slot(r, c),))
        if self.packed == 4:
            return self._set(r, c, Call("dp4a", (a, b, total), INT32))
        return self._set(r, c, add(total, mul(a, b)))

    def _load_a(self, k: Expr) -> Stmt:
        op, product = self.op, self.product

        def row(r: Expr) -> Stmt:
            slot = add(mul(r, int_const(product.k)), k)
            value = self._element(op.a, self._row(r), k, not op.transpose_a, slot)
            return Store(self.a, (r,), value, site=op.site)

        return unrolled(self.context, "r", self.grid.own_rows, row, op.site)

    def _load_b(self, k: Expr) -> Stmt:
        op, product, grid = self.op, self.product, self.grid
        vector = grid.vector
        if (
            vector > 1
            and op.b.buffer.scope == "shared"
            and not op.transpose_b
            and is_contiguous(op.b, vector, self.context)
        ):
            return self._load_b_vectors(k)

        def column(c: Expr) -> Stmt:
            slot = add(mul(c, int_const(product.k)), k)
            value = self._element(op.b, self._column(c), k, op.transpose_b, slot)
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

    def _element(self, region: Region, outer: Expr, k: Expr, k_last: bool, slot: Expr) -> Expr:
        """An element (or four along K, as int32) of an operand."""
        if region.buffer.scope == "local.fragment":
            return cast(Load(self.context.registers(region.buffer), (slot,)), self.dtype)
        if self.packed == 4:
            k = Ramp(k, int_const(1), 4)
        mins = region.mins
        pair = (outer, k) if k_last else (k, outer)
        index = (*mins[:-2], shift(mins[-2], pair[0]), shift(mins[-1], pair[1]))
        found = Load(region.buffer, index)
        return Reinterpret(found, INT32) if self.packed == 4 else cast(found, self.dtype)


def _sum_dtype(c: DType) -> DType:
    """What sums for a result of dtype `c` are formed in."""
    return FLOAT32 if c.is_float and c.bits < 32 else c
