"""How the warps of a block share a matrix product: the instruction, the grid of warps, and the
fragments of the operands that follow.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import lcm

from tileworkbench.compiler.diagnostics import Span, TileValueError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.tile import WarpPolicy
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.atoms import (
    WarpGrid,
    block_a,
    block_b,
    block_c,
    transposed,
)
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.machine.instructions import MatrixInstruction, Scope
from tileworkbench.compiler.target import Target

# Dtypes without an instruction of their own on some targets, and the next one that has all their
# values.
_WIDER = {
    "float8_e4m3fn": "float16",
    "float8_e5m2": "float16",
    "float8_e4m3fnuz": "float16",
    "float8_e5m2fnuz": "float16",
    "float6_e2m3fn": "float16",
    "float6_e3m2fn": "float16",
    "float4_e2m1fn": "float16",
    "int4": "int8",
    "uint4": "uint8",
}


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """`instruction` by the warps of `grid` over a product of depth `depth`.

    Atoms are the parts of the operands that one instruction takes. The registers of a lane hold the
    atoms of a warp one after the other: those of A along M, those of B along N, then along K; those
    of C row after row. Where the plan is `turned`, all of it is about C's transpose: B is the first
    operand.
    """

    instruction: MatrixInstruction
    grid: WarpGrid
    depth: int
    turned: bool = False

    @property
    def threads(self) -> int:
        """How many execute the instruction together: a warp or a warpgroup, of which `grid` is."""
        return self.instruction.c.fragment.threads

    @property
    def atoms_m(self) -> int:
        """Atoms of a warp along M."""
        return self.grid.warp_rows // self.instruction.m

    @property
    def atoms_n(self) -> int:
        """Atoms of a warp along N."""
        return self.grid.warp_columns // self.instruction.n

    @property
    def steps(self) -> int:
        """Atoms along K."""
        return self.depth // self.instruction.k

    @property
    def c_elements(self) -> int:
        """Elements of a lane in an atom of C."""
        return self.instruction.c.fragment.slots

    def fragment_c(self) -> Fragment:
        """The accumulator, M x N."""
        block = block_c(self.grid, self.instruction.c.fragment)
        return transposed(block) if self.turned else block

    def fragment_a(self, transpose: bool) -> Fragment:
        """A in registers, M x K, or K x M when `transpose`."""
        block = block_a(self.grid, self.depth, self.instruction.a.fragment)
        return transposed(block) if transpose else block

    def fragment_b(self, transpose: bool) -> Fragment:
        """B in registers, K x N, or N x K when `transpose`."""
        block = block_b(self.grid, self.depth, self.instruction.b.fragment)
        return block if transpose else transposed(block)


@dataclass(frozen=True, slots=True)
class Product:
    """The extents and dtypes of a matrix product. `chained`: an operand of 16 bits is in registers,
    where results of other products lie.
    """

    m: int
    n: int
    k: int
    a: DType
    b: DType
    c: DType
    chained: bool = False

    @property
    def turned(self) -> Product:
        """That of the transposes."""
        return Product(self.n, self.m, self.k, self.b, self.a, self.c, self.chained)


def select_instruction(target: Target, product: Product) -> MatrixInstruction | None:
    """The target's best instruction whose shape divides the product, None where there is none."""
    return next(fitting_instructions(target, product), None)


def fitting_instructions(
    target: Target, product: Product, named: str = ""
) -> Iterator[MatrixInstruction]:
    """The target's instructions of warps whose shape divides the product, the best first; only
    those of the shape `named`, if any.

    Operands may be widened to a dtype that has all their values, and sums of 16 bits formed in
    float32.
    """
    narrow = product.c.is_float and product.c.bits == 16
    results = [str(product.c), *(["float32"] if narrow else [])]
    for a, b in (
        (str(product.a), str(product.b)),
        (_WIDER.get(product.a, product.a), _WIDER.get(product.b, product.b)),
    ):
        for c in results:
            for instruction in target.machine.matrices:
                if instruction.dtypes != (a, b, c) or instruction.scope is not Scope.WARP:
                    continue
                if not _is_meant(instruction, product, named):
                    continue
                shape = instruction.m, instruction.n, instruction.k
                fits = not any(map(operator.mod, (product.m, product.n, product.k), shape))
                # Last: it makes the maps of the operands, which takes its time.
                if fits and (named or not product.chained or chains(instruction)):
                    yield instruction


def _is_meant(instruction: MatrixInstruction, product: Product, named: str) -> bool:
    """Whether `named`, a shape with the depth or without, is the instruction's; without a name it
    is one result (see `with_neighbours`).
    """
    if not named:
        return instruction.across == 1
    shape = shape_name(instruction)
    return named == f"{shape}x{instruction.k}" or (
        named == shape and (not product.chained or chains(instruction))
    )


def with_neighbours(plan: MatrixPlan, target: Target) -> MatrixPlan:
    """The plan by as many of its instructions across as read neighbours of B's rows at once and
    divide the columns of a warp; the same plan where the target has none.
    """
    one, grid = plan.instruction, plan.grid
    for row in target.machine.matrices:
        alike = (row.m, row.k, row.dtypes) == (one.m, one.k, one.dtypes) and row.across > 1
        if alike and grid.warp_columns % row.n == 0:
            return replace(plan, instruction=row, grid=replace(grid, atom=(row.m, row.n)))
    return plan


def shape_name(instruction: MatrixInstruction) -> str:
    """The name of the instructions of one shape, whatever the dtypes."""
    return f"{instruction.name}_{instruction.m}x{instruction.n}"


@lru_cache(maxsize=256)
def chains(instruction: MatrixInstruction, before: MatrixInstruction | None = None) -> bool:
    """Whether a result (of the instruction `before`, or of the same one) lies in registers as
    operand A of the next product does.
    """
    before = before or instruction
    a, c = instruction.a.fragment, before.c.fragment
    width = lcm(before.n, instruction.k)
    results = c.repeat((1, width // before.n))
    return a.repeat((1, width // instruction.k)) == results


def deeper(plan: MatrixPlan, target: Target) -> Iterator[tuple[MatrixInstruction, str]]:
    """Single instructions of the same dtypes and edge that are deeper than that of `plan`, each
    with the name of the results across whose columns are dealt out as its operand A wants them.
    """
    one = plan.instruction
    rows = [row for row in target.machine.matrices if row.m == one.m and row.dtypes == one.dtypes]
    for row in rows:
        if row.k > one.k and (row.issues, row.across) == (1, 1):
            for before in rows:
                if before.across > 1 and chains(row, before):
                    yield row, shape_name(before)
                    break


def can_share(m: int, n: int, warps: int, instruction: MatrixInstruction) -> bool:
    """Whether some grid of all `warps` covers an `m` x `n` result exactly."""
    return any(_grids(m, n, warps, instruction))


def _grids(m: int, n: int, warps: int, instruction: MatrixInstruction) -> Iterator[WarpGrid]:
    rows, columns = instruction.m, instruction.n
    for count in range(1, warps + 1):
        whole = warps % count == 0 and m % (rows * count) == 0
        if whole and n % (columns * (warps // count)) == 0:
            yield WarpGrid(m, n, count, warps // count, (rows, columns))


@lru_cache(maxsize=256)
def partition_warps(
    policy: WarpPolicy,
    m: int,
    n: int,
    warps: int,
    instruction: MatrixInstruction,
    span: Span | None = None,
) -> WarpGrid:
    """The grid of warps over an `m` x `n` result that `policy` asks for.

    FULL_ROW takes the most warps along M, FULL_COL the most along N. SQUARE wants the warps of both
    directions to have equally many atoms, and the fewer along M on a tie.

    Raises `TileValueError` when no grid of all warps covers the result exactly.
    """
    rows, columns = instruction.m, instruction.n
    grids = list(_grids(m, n, warps, instruction))
    if not grids:
        raise TileValueError(
            f"No valid warp partition: {warps} warp{'s' if warps > 1 else ''} cannot share a "
            f"result of {m} x {n} in whole tiles of {rows} x {columns}",
            span,
            hint=_partition_hint(m, n, warps, instruction),
        )
    if policy is WarpPolicy.FULL_ROW:
        return grids[-1]
    if policy is WarpPolicy.FULL_COL:
        return grids[0]
    return min(grids, key=lambda grid: _imbalance(grid, instruction))


def _imbalance(grid: WarpGrid, instruction: MatrixInstruction) -> Fraction:
    """How far the grid is from as many atoms per warp along M as along N."""
    ratio = Fraction(instruction.n * grid.warps_n, instruction.m * grid.warps_m)
    return abs(ratio - 1)


def _partition_hint(m: int, n: int, warps: int, instruction: MatrixInstruction) -> str:
    """The largest number of threads that works, below the one that does not."""
    tiles_m, tiles_n = m // instruction.m, n // instruction.n
    for count in range(warps - 1, 0, -1):
        if any(
            count % along_m == 0 and tiles_m % along_m == 0 and tiles_n % (count // along_m) == 0
            for along_m in range(1, count + 1)
        ):
            return f"use threads={count * instruction.c.fragment.threads}, or a larger tile"
    return "use a larger tile"
