"""Tile operators and the schedule loops that take them: block-collective, synchronous, observable
in program order.

Stages TILE and PLANNED. `PLANNED` adds `Buffer.layout`, `Parallel.loop_layout` and
`Pipelined.plan`.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from tileworkbench.compiler.ir.effects import NOTHING, Effects, Order, Place
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Region, Var
from tileworkbench.compiler.ir.node import node
from tileworkbench.compiler.ir.stmt import Stmt

if TYPE_CHECKING:
    from tileworkbench.compiler.layout.fragment import Fragment


class WarpPolicy(StrEnum):
    """How the warps of a block share the result of a gemm; it does not change values."""

    SQUARE = "square"
    FULL_ROW = "full_row"
    FULL_COL = "full_col"


class ReduceKind(StrEnum):
    """What a reduction or scan combines with."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    ABSMAX = "absmax"
    ABSSUM = "abssum"
    BITAND = "bitand"
    BITOR = "bitor"
    BITXOR = "bitxor"
    PROD = "prod"


@node
class Parallel(Stmt):
    """A block-wide element-wise loop nest over the box `extents`; iterations are independent and
    unordered. `loop_layout` says which thread of a GPU executes which: the user's choice, or that
    of the inference.
    """

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    body: Stmt
    coalesced_width: int | None = None
    loop_layout: Fragment | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.BLOCK)


@node
class Pipelined(Stmt):
    """A serial loop `start .. stop` whose iterations may overlap; every option is scheduling only.

    `order` and `stage` are the user's schedule, one entry per statement of the body, or empty.
    """

    var: Var
    start: Expr
    stop: Expr
    num_stages: int
    body: Stmt
    order: tuple[int, ...] = ()
    stage: tuple[int, ...] = ()
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Copy(Stmt):
    """Element-wise copy with a cast to the destination's dtype.

    The iteration space is that of the region whose buffer is nearer the threads (global < shared <
    fragment or local; the source on a tie); its non-unit dimensions are matched in order with those
    of the other side. Elements outside the source read as its safe value (zero), those outside the
    destination are dropped. `loop_layout` is as in `Parallel`, over the extents that are not 1.
    """

    src: Region
    dst: Region
    coalesced_width: int | None = None
    loop_layout: Fragment | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects((Place("src"),), (Place("dst"),), orders=Order.BLOCK)


@node
class Gemm(Stmt):
    """`c += op(a) @ op(b)`, or `c = op(a) @ op(b)` where `clear` holds. Accumulates in c's dtype.

    `c` is (M, N); `a` is (M, K), or (K, M) when `transpose_a`; `b` is (K, N), or (N, K) when
    `transpose_b`; leading unit dimensions are dropped. `instruction` is the matrix instruction that
    inference chose, where it is not the target's usual one.
    """

    a: Region
    b: Region
    c: Region
    transpose_a: bool
    transpose_b: bool
    clear: Expr
    policy: WarpPolicy = WarpPolicy.SQUARE
    instruction: str = ""
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(
        (Place("a"), Place("b"), Place("c", unless="clear")), (Place("c"),), orders=Order.BLOCK
    )


@node
class Fill(Stmt):
    """Every element of `dst` becomes `value` (of dst's dtype)."""

    dst: Region
    value: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(writes=(Place("dst"),), orders=Order.BLOCK)


@node
class Reduce(Stmt):
    """`dst = reduce(src)` along `dim`, or `dst = combine(dst, reduce(src))` when not `clear`.

    `src` is converted to dst's dtype first. dst has src's shape without `dim`, or with extent 1
    there.
    """

    kind: ReduceKind
    src: Buffer
    dst: Buffer
    dim: int
    clear: bool
    nan_propagate: bool = False
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(
        (Place("src"), Place("dst", unless="clear")), (Place("dst"),), orders=Order.BLOCK
    )


@node
class Scan(Stmt):
    """Inclusive scan of `src` along `dim` into `dst` (which may be `src`), from the end when
    `reverse`.
    """

    kind: ReduceKind
    src: Region
    dst: Region
    dim: int
    reverse: bool
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects((Place("src"),), (Place("dst"),), orders=Order.BLOCK)


@node
class Pack(Stmt):
    """CPU stage: copy a `rows` x `cols` matrix into gemm panels, zero outside `valid_rows` x
    `valid_cols`.

    `rows` runs along m for operand "a" and along n for operand "b"; `cols` runs along k. The matrix
    element (r, c) is at `src + r * row_stride + c * col_stride` elements; one of the strides is the
    literal 1. Elements outside the valid part (any int, negative means none) are never read.
    Element (r, c) goes, cast to the dtype of dst's buffer, to ::

        dst + r // width * panel_stride + c // group * width * group + r % width * group + c % group

    with `panel_stride = width * round_up(cols, group)`; the last panel is padded with zeros. Width
    1 is a compact row-major copy, width `rows` the transposed one. Panels of int8 for operand "b"
    are each followed by `4 * width` bytes that belong to the micro-kernel (its column sums).
    """

    operand: str
    src: Address
    row_stride: Expr
    col_stride: Expr
    dst: Address
    rows: int
    cols: int
    valid_rows: Expr
    valid_cols: Expr
    width: int
    group: int
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects((Place("src"),), (Place("dst"),))


@node
class MicroGemm(Stmt):
    """CPU stage: `c[m, n] (+)= a[m, k] @ b[k, n]` by register blocks of `mr` x `nr`.

    `a` and `b` point to panels in the same dtype, as `Pack` makes them with the same `group`: `b`
    has width `nr`; `a` has width 1 (`columns` false, `lda` elements from row to row, so a row-major
    matrix can be used where it lies) or width `lda` (`columns` true). `c` is row-major with row
    stride `ldc`; it is overwritten where `clear` holds, else added to. Sums are formed in c's dtype
    (float32 for 16-bit floats, rounded once at the end). `isa` is the instruction-set level.
    """

    a: Address
    lda: Expr
    columns: bool
    b: Address
    c: Address
    ldc: Expr
    m: int
    n: int
    k: int
    mr: int
    nr: int
    group: int
    clear: Expr
    isa: str
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(
        (Place("a"), Place("b"), Place("c", unless="clear")), (Place("c"),)
    )


OPERATORS = (Parallel, Copy, Gemm, Fill, Reduce, Scan)
"""The tile operators: what `lower_to_threads` lowers for the layouts that were chosen."""

COLLECTIVE = (Pipelined, *OPERATORS)
"""What the threads that reach it execute together."""
