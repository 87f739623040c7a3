"""Expressions: interned, typed, free of side effects.

`Load` reads a buffer, so its value depends on when its statement runs; everything else is a pure
function of variables. Build expressions with the functions of `build.py`, which fold constants and
apply the promotion rule; the classes check nothing (`verify.py` does).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.ir.node import InternedNode, interned
from tileworkbench.compiler.ir.types import BOOL, HANDLE, DType

if TYPE_CHECKING:
    from tileworkbench.compiler.layout.fragment import Fragment
    from tileworkbench.compiler.layout.layout import Layout

ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "div",
    "floordiv",
    "floormod",
    "truncdiv",
    "truncmod",
    "min",
    "max",
    "pow",
    "fmod",
)
BITWISE = ("and", "or", "xor", "shl", "shr")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("logical_and", "logical_or")
UNARY = ("neg", "not", "bitnot", "abs")

# Calls that are pure functions of their arguments, with the number of arguments. The result has
# the dtype of the node. `round` takes ties away from zero, `nearbyint` to even.
INTRINSICS: dict[str, int] = {
    **dict.fromkeys(
        (
            "exp",
            "exp2",
            "exp10",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "atan",
            "erf",
            "sigmoid",
            "floor",
            "ceil",
            "trunc",
            "round",
            "nearbyint",
            "isnan",
            "isinf",
            "popcount",
        ),
        1,
    ),
    "fma": 3,
    "philox": 7,  # counter (four words), key (two), which of the four results: all uint32
    "dp4a": 3,  # of int32: the four products of the bytes of a and b, added to c
    "max_nan": 2,  # maximum and minimum that return NaN when either side is NaN
    "min_nan": 2,
    "lane_at": 2,  # of a vector of 16 lanes, the one that the low four bits of an index name
    "lookup": 17,  # of the constants after the first argument, the one that its low four bits name
    # From a vector to its scalar, lanes combined in an unspecified order.
    **dict.fromkeys(
        (
            "lanes_sum",
            "lanes_prod",
            "lanes_max",
            "lanes_min",
            "lanes_max_nan",
            "lanes_min_nan",
            "lanes_and",
            "lanes_or",
            "lanes_xor",
        ),
        1,
    ),
}

SCOPES = ("global", "shared", "shared.barrier", "local.fragment", "local", "local.var")
TENSOR_MAP = "tensor_map"  # the scope of what `TensorMap` makes: a tensor for the copy engine


class Expr(InternedNode):
    """Base of all expressions. `dtype` is the type of the value."""

    __slots__ = ()
    dtype: DType


@interned
class Const(Expr):
    """A literal. `value` is `bool` for bool, `int` for integers, `float` (already rounded to
    `dtype`) for floats."""

    value: int | float | bool
    dtype: DType

    def intern_key(self) -> tuple[Any, ...]:
        # By bits: 1, True and 1.0 are three constants, 0.0 and -0.0 are two, and NaN is one.
        value = self.value
        bits = struct.pack("d", value) if isinstance(value, float) else value
        return (self.dtype, type(value), bits)


@interned
class Var(Expr):
    """A scalar name: loop variable, block index, let, scalar parameter or symbolic dimension. One
    name, one variable."""

    name: str
    dtype: DType


@interned
class Binary(Expr):
    """`op` applied to two operands of one dtype. See ARITHMETIC, BITWISE, COMPARISONS and LOGICAL
    for the names.

    `floordiv` and `floormod` are Python's, `truncdiv` and `truncmod` are C's, `div` is for floats.
    The logical ones are lazy: `b` is evaluated only when `a` does not decide. Comparisons and
    logical operators have dtype bool.
    """

    op: str
    a: Expr
    b: Expr
    dtype: DType


@interned
class Unary(Expr):
    """`neg`, `not` (bool), `bitnot` or `abs`."""

    op: str
    a: Expr
    dtype: DType


@interned
class Select(Expr):
    """`then` where `cond` holds, else `other`. When `lazy` only the chosen branch is evaluated."""

    cond: Expr
    then: Expr
    other: Expr
    lazy: bool
    dtype: DType


@interned
class Cast(Expr):
    """Value conversion. Float to integer truncates toward zero; to a narrower float rounds to
    nearest even."""

    value: Expr
    dtype: DType


@interned
class Reinterpret(Expr):
    """The same bits as another dtype of equal width."""

    value: Expr
    dtype: DType


@interned
class Call(Expr):
    """A pure intrinsic of the table INTRINSICS."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType


@interned
class Ramp(Expr):
    """The vector `base, base + stride, ...` of `lanes` elements."""

    base: Expr
    stride: Expr
    lanes: int

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.base.dtype.with_lanes(self.lanes)


@interned
class Broadcast(Expr):
    """A scalar repeated in `lanes` lanes."""

    value: Expr
    lanes: int

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.value.dtype.with_lanes(self.lanes)


@interned
class Buffer(InternedNode):
    """A typed array with a place. Shapes are in elements.

    `scope` is one of SCOPES or TENSOR_MAP. `strides` are in elements and exist for global buffers
    and tensor maps only; `()` means row-major contiguous. `layout` is set by `infer_layouts` on
    shared buffers (a `Layout`) and fragments (a `Fragment`, or a `Layout` on the CPU); None means
    row-major. A `local.var` has shape `()`.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: str
    strides: tuple[Expr, ...] = ()
    layout: Layout | Fragment | None = None


@interned
class Load(Expr):
    """One element of `buffer` (a vector of elements when an index is a vector).

    Where `predicate` is false nothing is read and the value is `safe` (zero when None).
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    predicate: Expr | None = None
    safe: Expr | None = None

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        lanes = max((index.dtype.lanes for index in self.indices), default=1)
        return self.buffer.dtype if lanes == 1 else self.buffer.dtype.with_lanes(lanes)


@interned
class AddressOf(Expr):
    """Where an element of `buffer` is in memory: what code of another language is given."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return HANDLE


@interned
class Region(InternedNode):
    """The box of `buffer` that starts at `mins` and has `extents` elements along each dimension."""

    buffer: Buffer
    mins: tuple[Expr, ...]
    extents: tuple[Expr, ...]


@interned
class Address(InternedNode):
    """The place of one element: what a micro-kernel or a packing routine is given."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return HANDLE


def is_bool(value: Expr) -> bool:
    """Whether `value` is a (scalar or vector) condition."""
    return value.dtype.scalar == BOOL
