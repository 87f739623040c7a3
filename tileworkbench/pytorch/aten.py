"""The table of torch's operations: what each is in a generated kernel. What has no row runs in
torch.

`MAPS` are element by element, `ROWS` go over whole rows (the last dimensions), `VIEWS` keep the
order of elements. Formulas are those of torch's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Any, Protocol

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.dtypes import name_of
from tileworkbench.pytorch.terms import (
    NoRuleError,
    Term,
    bitwise,
    bounds_of,
    call,
    of_float,
    select,
)

_exp, _erf, _tanh, _sigmoid = (of_float(name) for name in ("exp", "erf", "tanh", "sigmoid"))
_log, _sqrt, _rsqrt = of_float("log"), of_float("sqrt"), of_float("rsqrt")

_SQRT_HALF = math.sqrt(0.5)
_BETA = math.sqrt(2 / math.pi)
_KAPPA = 0.044715


def _scaled(y: Any, alpha: Any) -> Any:
    return y if alpha == 1 else y * alpha


def _gelu(x: Term, approximate: str = "none") -> Term:
    if approximate == "none":
        return 0.5 * x * (1.0 + _erf(x * _SQRT_HALF))
    return 0.5 * x * (1.0 + _tanh(_BETA * (x + _KAPPA * x * x * x)))


def _gelu_backward(grad: Term, x: Term, approximate: str = "none") -> Term:
    if approximate == "none":
        cdf = 0.5 * (1.0 + _erf(x * _SQRT_HALF))
        return grad * (cdf + x * _exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi)))
    inner = _tanh(_BETA * (x + _KAPPA * x * x * x))
    slope = _BETA * (1.0 + 3 * _KAPPA * x * x)
    return grad * (0.5 * (1.0 + inner) + 0.5 * x * (1.0 - inner * inner) * slope)


def _silu_backward(grad: Term, x: Term) -> Term:
    s = _sigmoid(x)
    return grad * s * (1.0 + x * (1.0 - s))


def _larger(a: Term, b: Any) -> Term:
    """The larger, or NaN where one is: `T.max` would drop it."""
    if not a.dtype.is_floating_point:
        return select(a > b, a, b)
    return select(call("Or", a > b, call("isnan", a, dtype=(a > b).dtype)), a, b)


def _smaller(a: Term, b: Any) -> Term:
    if not a.dtype.is_floating_point:
        return select(a < b, a, b)
    return select(call("Or", a < b, call("isnan", a, dtype=(a < b).dtype)), a, b)


def _clamp(x: Term, low: Any = None, high: Any = None) -> Term:
    if low is not None:
        x = select(x < low, low, x)  # NaN stays
    return x if high is None else select(x > high, high, x)


def _power(x: Term, exponent: Any) -> Term:
    if not x.dtype.is_floating_point:
        raise NoRuleError("a power of integers")
    if exponent in (2, 3):
        return x * x if exponent == 2 else x * x * x
    known: dict[Any, Callable[[Term], Term]] = {
        0.5: _sqrt,
        -0.5: _rsqrt,
        1: lambda x: x,
        -1: lambda x: 1.0 / x,
    }
    if exponent not in known:
        raise NoRuleError(f"the power {exponent}")
    return known[exponent](x)


def _logical(name: str) -> Callable[..., Term]:
    def apply(*operands: Term) -> Term:
        if not all(each.is_bool for each in operands):
            raise NoRuleError("a logical operation on numbers")
        return call(name, *operands)

    return apply


def _bits(name: str, op: str) -> Callable[[Any, Any], Term]:
    def apply(a: Any, b: Any) -> Term:
        if isinstance(a, Term) and a.is_bool:
            return logical(a, b)
        return bitwise(op, a, b)

    logical = _logical(name)
    return apply


def _inverted(x: Term) -> Term:
    return call("Not", x) if x.is_bool else bitwise("^", x, -1)


def _shift(op: str) -> Callable[[Term, Any], Term]:
    def apply(x: Term, count: Any) -> Term:
        most = 63 if name_of(x.dtype) == "int64" else 31
        if isinstance(count, Term):
            if op != ">>":
                raise NoRuleError("a shift to the left by a tensor")
            known = bounds_of(count)
            if known is not None and known[0] >= 0 and known[1] <= most:
                return bitwise(op, x, count)
            inside = call("And", count >= 0, count < most, dtype=(count >= 0).dtype)
            count = select(inside, count, most)
        elif not 0 <= count <= most:
            raise NoRuleError(f"a shift by {count}")
        return bitwise(op, x, count)

    return apply


def _rounding(name: str) -> Callable[[Term], Term]:
    def apply(x: Term) -> Term:
        if not x.dtype.is_floating_point:
            raise NoRuleError(f"'{name}' of integers")
        return call(name, x)

    return apply


def _test(name: str) -> Callable[[Term], Term]:
    def apply(x: Term) -> Term:
        if not x.dtype.is_floating_point:
            raise NoRuleError(f"'{name}' of integers")
        return call(name, x, dtype=(x > 0).dtype)

    return apply


def _absolute(x: Term) -> Term:
    return call("abs", x)


RIGHT_SHIFTS = (
    *("aten.__rshift__.Scalar", "aten.bitwise_right_shift.Tensor_Scalar"),
    *("aten.__rshift__.Tensor", "aten.bitwise_right_shift.Tensor"),
)
LEFT_SHIFTS = ("aten.__lshift__.Scalar", "aten.bitwise_left_shift.Tensor_Scalar")

MAPS: dict[str, Callable[..., Term]] = {
    "aten.add.Tensor": lambda x, y, alpha=1: x + _scaled(y, alpha),
    "aten.add.Scalar": lambda x, y, alpha=1: x + _scaled(y, alpha),
    "aten.sub.Tensor": lambda x, y, alpha=1: x - _scaled(y, alpha),
    "aten.sub.Scalar": lambda x, y, alpha=1: x - _scaled(y, alpha),
    "aten.rsub.Scalar": lambda x, y, alpha=1: y - _scaled(x, alpha),
    "aten.mul.Tensor": lambda x, y: x * y,
    "aten.mul.Scalar": lambda x, y: x * y,
    "aten.div.Tensor": lambda x, y: x / y,
    "aten.div.Scalar": lambda x, y: x / y,
    "aten.reciprocal.default": lambda x: 1.0 / x,
    "aten.neg.default": lambda x: -x,
    "aten.abs.default": _absolute,
    "aten.square.default": lambda x: x * x,
    "aten.pow.Tensor_Scalar": _power,
    "aten.exp.default": _exp,
    "aten.log.default": _log,
    "aten.log2.default": of_float("log2"),
    "aten.log10.default": of_float("log10"),
    "aten.log1p.default": of_float("log1p"),
    "aten.tan.default": of_float("tan"),
    "aten.sinh.default": of_float("sinh"),
    "aten.cosh.default": of_float("cosh"),
    "aten.atan.default": of_float("atan"),
    "aten.floor.default": _rounding("floor"),
    "aten.ceil.default": _rounding("ceil"),
    "aten.trunc.default": _rounding("trunc"),
    "aten.round.default": _rounding("round"),
    "aten.isnan.default": _test("isnan"),
    "aten.isinf.default": _test("isinf"),
    "aten.sqrt.default": _sqrt,
    "aten.rsqrt.default": _rsqrt,
    "aten.erf.default": _erf,
    "aten.sin.default": of_float("sin"),
    "aten.cos.default": of_float("cos"),
    "aten.tanh.default": _tanh,
    "aten.sigmoid.default": _sigmoid,
    "aten.relu.default": lambda x: select(x < 0, 0, x),
    "aten.gelu.default": _gelu,
    "aten.silu.default": lambda x: x * _sigmoid(x),
    "aten.leaky_relu.default": lambda x, slope=0.01: select(x < 0, x * slope, x),
    "aten.hardtanh.default": lambda x, low=-1.0, high=1.0: _clamp(x, low, high),
    "aten.clamp.default": _clamp,
    "aten.clamp_min.default": lambda x, low: _clamp(x, low),
    "aten.clamp_max.default": lambda x, high: _clamp(x, None, high),
    "aten.maximum.default": _larger,
    "aten.minimum.default": _smaller,
    "aten.where.self": select,
    "aten.where.ScalarOther": select,
    "aten.where.ScalarSelf": select,
    "aten.masked_fill.Scalar": lambda x, mask, value: select(mask, value, x),
    "aten.lt.Tensor": lambda x, y: x < y,
    "aten.lt.Scalar": lambda x, y: x < y,
    "aten.le.Tensor": lambda x, y: x <= y,
    "aten.le.Scalar": lambda x, y: x <= y,
    "aten.gt.Tensor": lambda x, y: x > y,
    "aten.gt.Scalar": lambda x, y: x > y,
    "aten.ge.Tensor": lambda x, y: x >= y,
    "aten.ge.Scalar": lambda x, y: x >= y,
    "aten.eq.Tensor": lambda x, y: x.equals(y),
    "aten.eq.Scalar": lambda x, y: x.equals(y),
    "aten.ne.Tensor": lambda x, y: x.differs(y),
    "aten.ne.Scalar": lambda x, y: x.differs(y),
    "aten.logical_not.default": _logical("Not"),
    "aten.bitwise_not.default": _inverted,
    "aten.logical_and.default": _logical("And"),
    "aten.bitwise_and.Tensor": _bits("And", "&"),
    "aten.bitwise_and.Scalar": _bits("And", "&"),
    "aten.logical_or.default": _logical("Or"),
    "aten.bitwise_or.Tensor": _bits("Or", "|"),
    "aten.bitwise_or.Scalar": _bits("Or", "|"),
    "aten.bitwise_xor.Tensor": lambda x, y: bitwise("^", x, y),
    "aten.bitwise_xor.Scalar": lambda x, y: bitwise("^", x, y),
    **dict.fromkeys(RIGHT_SHIFTS, _shift(">>")),
    **dict.fromkeys(LEFT_SHIFTS, _shift("<<")),
    "aten.threshold_backward.default": lambda grad, x, limit: select(x <= limit, 0.0, grad),
    "aten.gelu_backward.default": _gelu_backward,
    "aten.silu_backward.default": _silu_backward,
    "aten.tanh_backward.default": lambda grad, y: grad * (1.0 - y * y),
    "aten.sigmoid_backward.default": lambda grad, y: grad * y * (1.0 - y),
}


class Rows(Protocol):
    """What a row operation asks of the kernel that it becomes part of."""

    columns: int  # elements of a row

    def sum(self, x: Term) -> Term:
        """The sum over each row."""

    def max(self, x: Term) -> Term:
        """The largest element of each row, NaN where one is."""

    def min(self, x: Term) -> Term:
        """The smallest element of each row, NaN where one is."""

    def running_sum(self, x: Term) -> Term:
        """The sum of each row up to each of its elements."""

    def keep(self, name: str, x: Term) -> Term:
        """The same value, computed once and called `name`."""


def _float_only(x: Term) -> Term:
    if not x.dtype.is_floating_point:
        raise NoRuleError("a row operation on integers")
    return x


def _sum(rows: Rows, x: Term) -> Term:
    return rows.sum(_float_only(x))


def _mean(rows: Rows, x: Term) -> Term:
    return rows.sum(_float_only(x)) / float(rows.columns)


def _max(rows: Rows, x: Term) -> Term:
    return rows.max(_float_only(x))


def _min(rows: Rows, x: Term) -> Term:
    return rows.min(_float_only(x))


def _cumsum(rows: Rows, x: Term) -> Term:
    return rows.running_sum(_float_only(x))


def _softmax(rows: Rows, x: Term) -> Term:
    weights = rows.keep("weights", _exp(x - rows.max(x)))
    return weights / rows.sum(weights)


def _log_softmax(rows: Rows, x: Term) -> Term:
    shifted = rows.keep("shifted", x - rows.max(x))
    return shifted - _log(rows.sum(_exp(shifted)))


def _softmax_backward(rows: Rows, grad: Term, y: Term) -> Term:
    product = rows.keep("product", grad * y)
    return product - y * rows.sum(product)


def _log_softmax_backward(rows: Rows, grad: Term, y: Term) -> Term:
    return grad - _exp(y) * rows.sum(grad)


def _layer_norm(
    rows: Rows, x: Term, weight: Term | None, bias: Term | None, eps: float
) -> tuple[Term, Term, Term]:
    mean = rows.keep("mean", rows.sum(x) / float(rows.columns))
    centred = rows.keep("centred", x - mean)
    rstd = rows.keep("rstd", _rsqrt(rows.sum(centred * centred) / float(rows.columns) + eps))
    y = centred * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, rstd


def _rms_norm(rows: Rows, x: Term, weight: Term | None, eps: float | None) -> tuple[Term, Term]:
    if eps is None:
        raise NoRuleError("an epsilon that follows from the dtype")
    rstd = rows.keep("rstd", _rsqrt(rows.sum(x * x) / float(rows.columns) + eps))
    return (x * rstd if weight is None else x * rstd * weight), rstd


@dataclass(frozen=True, slots=True)
class RowOperation:
    """An operation over the last dimensions. `dims` takes the arguments of a call and says which
    dimensions those are, `terms` what `make` gets of them behind `Rows`. `results` are the parts of
    its value that `make` returns; -1 is the value itself. `weight` says how much work it is, in
    element-wise operations.
    """

    make: Callable[..., Any]
    dims: Callable[..., Sequence[int]]
    terms: Callable[..., tuple[Any, ...]]
    weight: int = 1


def _scanned(x: Any, dim: int, dtype: Any = None) -> Sequence[int]:
    if dtype is not None:
        raise NoRuleError("a running sum in another dtype")
    return [dim]


def _reduction(make: Callable[[Rows, Term], Term]) -> RowOperation:
    def dims(x: Any, dim: Sequence[int] = (), keepdim: bool = False, dtype: Any = None) -> Any:
        if dtype is not None:
            raise NoRuleError("a reduction in another dtype")
        return dim

    return RowOperation(make, dims, lambda x, *_, **__: (x,))


def _trailing(shape: Sequence[int]) -> list[int]:
    return list(range(-len(shape), 0))


ROWS: dict[str, RowOperation] = {
    "aten.sum.dim_IntList": _reduction(_sum),
    "aten.mean.dim": _reduction(_mean),
    "aten.amax.default": _reduction(_max),
    "aten.amin.default": _reduction(_min),
    "aten.mv.default": RowOperation(
        lambda rows, a, x: rows.sum(_float_only(a * x)),
        lambda a, x: [-1],
        lambda a, x: (a, x),
        weight=3,
    ),
    "aten.cumsum.default": RowOperation(_cumsum, _scanned, lambda x, *_, **__: (x,)),
    "aten._softmax.default": RowOperation(
        _softmax, lambda x, dim, half: [dim], lambda x, dim, half: (x,), weight=3
    ),
    "aten._log_softmax.default": RowOperation(
        _log_softmax, lambda x, dim, half: [dim], lambda x, dim, half: (x,), weight=3
    ),
    "aten._softmax_backward_data.default": RowOperation(
        _softmax_backward, lambda g, y, dim, dtype: [dim], lambda g, y, dim, dtype: (g, y), weight=2
    ),
    "aten._log_softmax_backward_data.default": RowOperation(
        _log_softmax_backward,
        lambda g, y, dim, dtype: [dim],
        lambda g, y, dim, dtype: (g, y),
        weight=2,
    ),
    "aten.native_layer_norm.default": RowOperation(
        _layer_norm,
        lambda x, shape, weight, bias, eps: _trailing(shape),
        lambda x, shape, weight, bias, eps: (x, weight, bias, eps),
        weight=3,
    ),
    "aten._fused_rms_norm.default": RowOperation(
        _rms_norm,
        lambda x, shape, weight, eps: _trailing(shape),
        lambda x, shape, weight, eps: (x, weight, eps),
        weight=2,
    ),
}

# The same elements in the same order.
VIEWS = (
    *("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"),
    *("aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.alias.default"),
    *("aten.detach.default",),
)
# Products, or batches of them, each with the places of its two operands and of what is added.
PRODUCTS: dict[str, tuple[int, int, int | None]] = {
    "aten.mm.default": (0, 1, None),
    "aten.addmm.default": (1, 2, 0),
    "aten.bmm.default": (0, 1, None),
    "aten.baddbmm.default": (1, 2, 0),
}
CONVOLUTION = "aten.convolution.default"  # a product of its weight with windows of its data
PRODUCTS[CONVOLUTION] = (1, 0, 2)
# Rows of a table by an index for each: the places of the table and of the indices.
GATHERS: dict[str, tuple[int, int]] = {
    "aten.embedding.default": (0, 1),
    "aten.index_select.default": (0, 2),
    "aten.index.Tensor": (0, 1),
}
TRANSPOSITIONS = ("aten.t.default", "aten.permute.default", "aten.transpose.int")
# Parts of tensors, which torch makes without a copy.
SLICES = ("aten.select.int", "aten.slice.Tensor", "aten.split.Tensor", "aten.unbind.int")
CONVERSION = "aten._to_copy.default"
EXPANSION = "aten.expand.default"
ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"
# Tensors of one number, which are written as that number.
CONSTANTS = ("aten.full.default", "aten.full_like.default", "aten.scalar_tensor.default")


def group_of(name: str) -> str:
    """The group that an operation is part of in a kernel, "view" and "constant" for what a kernel
    reads through, "torch" for what torch runs itself.
    """
    groups: dict[str, Container[str]] = {
        "element-wise": (*MAPS, CONVERSION),
        "row": ROWS,
        "product": PRODUCTS,
        "gather": GATHERS,
        "attention": (ATTENTION,),
        "view": (*VIEWS, *TRANSPOSITIONS, *SLICES, EXPANSION),
        "constant": CONSTANTS,
    }
    return next((group for group, names in groups.items() if name in names), "torch")
