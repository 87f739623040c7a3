"""The accumulator of a matrix product on tensor cores: the registers of C, or temporary ones."""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.ir.build import add, binary, cast, const, int_const, unary
from tileworkbench.compiler.ir.expr import Address, Buffer, Const, Expr, Load, Ramp
from tileworkbench.compiler.ir.stmt import If, Stmt, Store
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.loops import scale, shift, unrolled
from tileworkbench.compiler.lower.threads.mma import MatrixPlan
from tileworkbench.compiler.lower.threads.operand import is_contiguous
from tileworkbench.compiler.lower.threads.registers import register_map


def warp_origin(plan: MatrixPlan, context: ThreadContext) -> tuple[Expr, Expr]:
    """The first row and the first column of C that the instruction's threads have: the part of the
    warp or of the warpgroup.
    """
    grid, zero, threads = plan.grid, int_const(0), plan.threads
    along_m: Expr = zero if grid.warps_m == 1 else context.group(threads)
    along_n: Expr = zero if grid.warps_n == 1 else context.group(threads)
    if grid.warps_m > 1 < grid.warps_n:
        along_m = binary("floormod", along_m, int_const(grid.warps_m))
        along_n = binary("floordiv", along_n, int_const(grid.warps_m))
    return scale(along_m, grid.warp_rows), scale(along_n, grid.warp_columns)


class Accumulator:
    """The registers that the products are added to: those of C itself, or some of their own when C
    lies in shared memory or has another dtype.
    """

    def __init__(self, op: Gemm, plan: MatrixPlan, context: ThreadContext) -> None:
        self.op, self.plan, self.context = op, plan, context
        self.dtype = DType(plan.instruction.c.dtype)
        self.count = plan.atoms_m * plan.atoms_n * plan.c_elements
        buffer = op.c.buffer
        self.in_place = buffer.scope == "local.fragment" and buffer.dtype == self.dtype
        if self.in_place:
            self.registers = context.registers(buffer)
        else:
            name = f"{buffer.name}_sum"
            self.registers = context.temporary(name, self.dtype, self.count)

    def atom(self, i: Expr, j: Expr) -> Address:
        """The first register of an atom."""
        number = add(scale(i, self.plan.atoms_n), j)
        return Address(self.registers, (scale(number, self.plan.c_elements),))

    def added_to(self) -> list[Stmt]:
        """The elements of C, where they are not in place. For instructions that can replace C
        instead of adding to it.
        """
        clear = self.op.clear
        if self.in_place or (isinstance(clear, Const) and clear.value):
            return []
        load = self._transfer(load=True)
        return [load] if isinstance(clear, Const) else [If(unary("not", clear), load)]

    def begin(self) -> list[Stmt]:
        """Zeros where the product replaces C, else its elements."""
        clear, site = self.op.clear, self.op.site
        zero = self._each(lambda e: Store(self.registers, (e,), const(0, self.dtype), site=site))
        load = None if self.in_place else self._transfer(load=True)
        if isinstance(clear, Const):
            chosen = zero if clear.value else load
            return [] if chosen is None else [chosen]
        return [If(clear, zero, load, site=site)]

    def end(self) -> list[Stmt]:
        """The elements of C, where they are not in place."""
        return [] if self.in_place else [self._transfer(load=False)]

    def _each(self, body: Callable[[Expr], Stmt]) -> Stmt:
        return unrolled(self.context, "e", self.count, body, self.op.site)

    def _transfer(self, load: bool) -> Stmt:
        """C to the registers, or back."""
        if self.op.c.buffer.scope == "local.fragment":
            other = self.context.registers(self.op.c.buffer)
            return self._each(lambda e: self._move((e,), other, (e,), load))
        return self._transfer_shared(load)

    def _transfer_shared(self, load: bool) -> Stmt:
        """Vectors of what lies side by side in a lane's registers."""
        op, plan, context, site = self.op, self.plan, self.context, self.op.site
        registers = register_map(plan.instruction.c.fragment)
        run = registers.run
        first_row, first_column = warp_origin(plan, context)
        row, column = registers.first(context)
        row = context.named("C_row", add(first_row, row))
        column = context.named("C_column", add(first_column, column))
        vector = is_contiguous(op.c, run, context)

        def atom(i: Expr, j: Expr) -> Stmt:
            first = self.atom(i, j).indices[0]
            y0 = add(row, scale(i, plan.instruction.m))
            x0 = add(column, scale(j, plan.instruction.n))

            def each(slot: Expr, down: Expr, across: Expr) -> Stmt:
                start, y, x = add(first, slot), add(y0, down), add(x0, across)
                if vector:
                    into, place = (Ramp(at, int_const(1), run) for at in (start, x))
                    return self._move((into,), op.c.buffer, self._at(y, place), load)

                def one(e: Expr) -> Stmt:
                    return self._move((add(start, e),), op.c.buffer, self._at(y, add(x, e)), load)

                return unrolled(context, "e", run, one, site)

            return registers.each_run(context, each, site)

        def row_of(i: Expr) -> Stmt:
            return unrolled(context, "j", plan.atoms_n, lambda j: atom(i, j), site)

        return unrolled(context, "i", plan.atoms_m, row_of, site)

    def _at(self, row: Expr, column: Expr) -> tuple[Expr, ...]:
        mins = self.op.c.mins
        return (*mins[:-2], shift(mins[-2], row), shift(mins[-1], column))

    def _move(
        self, at: tuple[Expr, ...], buffer: Buffer, indices: tuple[Expr, ...], load: bool
    ) -> Stmt:
        """One element, or a vector of them, between the registers and C."""
        if load:
            value = cast(Load(buffer, indices), self.dtype)
            return Store(self.registers, at, value, site=self.op.site)
        value = cast(Load(self.registers, at), buffer.dtype)
        return Store(buffer, indices, value, site=self.op.site)
