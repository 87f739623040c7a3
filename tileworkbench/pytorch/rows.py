"""The table of torch's operations over whole rows, with their formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.dtypes import named
from tileworkbench.pytorch.formulas import absolute, exp, log, rsqrt, sqrt
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError, Term, call, number, select


class Rows(Protocol):
    """What a row operation asks of the kernel that it becomes part of."""

    columns: int  # elements of a row

    def sum(self, x: Term) -> Term:
        """The sum over each row."""

    def max(self, x: Term) -> Term:
        """The largest element of each row, NaN where one is."""

    def min(self, x: Term) -> Term:
        """The smallest element of each row, NaN where one is."""

    def prod(self, x: Term) -> Term:
        """The product of each row."""

    def running_sum(self, x: Term) -> Term:
        """The sum of each row up to each of its elements."""

    def pick(self, x: Term, column: Term) -> Term:
        """The element of each row in its own `column`; one that it does not have is an error."""

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


def _product(rows: Rows, x: Term) -> Term:
    return rows.prod(_float_only(x))


def _any(rows: Rows, x: Term) -> Term:
    return rows.max(_truth(x)) > 0


def _all(rows: Rows, x: Term) -> Term:
    return rows.min(_truth(x)) > 0


def _truth(x: Term) -> Term:
    """1 for each element that is true, 0 for others."""
    one, zero = (number(value, named("float32")) for value in (1, 0))
    return select(x if x.is_bool else x.differs(0), one, zero)


def _variance(rows: Rows, x: Term, correction: float) -> Term:
    return _variance_and_mean(rows, x, correction)[0]


def _variance_and_mean(rows: Rows, x: Term, correction: float) -> tuple[Term, Term]:
    count = rows.columns - correction
    if count <= 0:
        raise NoRuleError("a variance of too few elements")
    mean = rows.keep("mean", _mean(rows, x))
    centred = rows.keep("centred", x - mean)
    return rows.sum(centred * centred) / float(count), mean


def _deviation(rows: Rows, x: Term, correction: float) -> Term:
    return sqrt(_variance(rows, x, correction))


def _deviation_and_mean(rows: Rows, x: Term, correction: float) -> tuple[Term, Term]:
    variance, mean = _variance_and_mean(rows, x, correction)
    return sqrt(variance), mean


def _norm(rows: Rows, x: Term, order: float) -> Term:
    if order == 2:
        return sqrt(rows.sum(_float_only(x) * x))
    if order == 1:
        return rows.sum(absolute(_float_only(x)))
    if order == float("inf"):
        return rows.max(absolute(_float_only(x)))
    raise NoRuleError(f"a norm of order {order}")


def _cumsum(rows: Rows, x: Term) -> Term:
    return rows.running_sum(_float_only(x))


def _log_sum_exp(rows: Rows, x: Term) -> Term:
    largest = rows.max(_float_only(x))
    is_endless = call("isinf", largest, dtype=(largest > 0).dtype)  # x - largest would be NaN
    shift = rows.keep("shift", select(is_endless, 0, largest))
    return log(rows.sum(exp(x - shift))) + shift


def _softmax(rows: Rows, x: Term) -> Term:
    weights = rows.keep("weights", exp(x - rows.max(x)))
    return weights / rows.sum(weights)


def _log_softmax(rows: Rows, x: Term) -> Term:
    shifted = rows.keep("shifted", x - rows.max(x))
    return shifted - rows.keep("log_sum", log(rows.sum(exp(shifted))))


def _softmax_backward(rows: Rows, grad: Term, y: Term) -> Term:
    product = rows.keep("product", grad * y)
    return product - y * rows.sum(product)


def _log_softmax_backward(rows: Rows, grad: Term, y: Term) -> Term:
    return grad - exp(y) * rows.sum(grad)


def _layer_norm(
    rows: Rows, x: Term, weight: Term | None, bias: Term | None, eps: float
) -> tuple[Term, Term, Term]:
    mean = rows.keep("mean", rows.sum(x) / float(rows.columns))
    centred = rows.keep("centred", x - mean)
    rstd = rows.keep("rstd", rsqrt(rows.sum(centred * centred) / float(rows.columns) + eps))
    y = (x - mean) * rstd  # not `centred`: kept for here, it would be one store and load more
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, rstd


def _rms_norm(rows: Rows, x: Term, weight: Term | None, eps: float | None) -> tuple[Term, Term]:
    if eps is None:
        raise NoRuleError("an epsilon that follows from the dtype")
    rstd = rows.keep("rstd", rsqrt(rows.sum(x * x) / float(rows.columns) + eps))
    return (x * rstd if weight is None else x * rstd * weight), rstd


def _as_it_is(shape: Extents, *_: Any) -> Extents:
    return shape


@dataclass(frozen=True, slots=True)
class RowOperation:
    """An operation over the last dimensions. `dims` takes the arguments of a call and says which
    dimensions those are (all of them where it says none), `terms` what `make` gets of them behind
    `Rows`. `results` are the parts of its value that `make` returns; -1 is the value itself.
    `weight` says how much work it is, in element-wise operations. `seen` has the extents in which
    an operand of a shape is seen; `takes_sizes` says that the numbers of a call are sizes of it.
    """

    make: Callable[..., Any]
    dims: Callable[..., Sequence[int]]
    terms: Callable[..., tuple[Any, ...]]
    weight: int = 1
    seen: Callable[..., Extents] = _as_it_is
    takes_sizes: bool = False


def _scanned(x: Any, dim: int, dtype: Any = None) -> Sequence[int]:
    if dtype is not None:
        raise NoRuleError("a running sum in another dtype")
    return [dim]


def _reduction(make: Callable[[Rows, Term], Term]) -> RowOperation:
    def dims(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        if dtype is not None:
            raise NoRuleError("a reduction in another dtype")
        return [dim] if isinstance(dim, int) else dim or ()

    return RowOperation(make, dims, lambda x, *_, **__: (x,))


def _question(make: Callable[[Rows, Term], Term]) -> RowOperation:
    def dims(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim == []:
            raise NoRuleError("a reduction of no dimensions")
        return [dim] if isinstance(dim, int) else dim or ()

    return RowOperation(make, dims, lambda x, *_, **__: (x,))


def _spread(make: Callable[[Rows, Term, float], Any]) -> RowOperation:
    def terms(x: Any, *_: Any, correction: float | None = None, **__: Any) -> tuple[Any, ...]:
        return x, 1 if correction is None else correction

    return RowOperation(make, lambda x, dim=None, **_: dim or (), terms, weight=3)


def _norm_dims(
    x: Any, order: Any = 2, dim: Any = None, keep: Any = False, dtype: Any = None
) -> Any:
    if dtype is not None:
        raise NoRuleError("a norm in another dtype")
    return dim or ()


def _by_groups(shape: Extents, *args: Any) -> Extents:
    """Images, or a number for each channel, in groups of channels."""
    groups = args[6]
    if is_open(shape[len(shape) > 1]):
        raise NoRuleError("an open number of channels")
    if len(shape) == 1:
        return (groups, shape[0] // groups, 1)
    return (shape[0], groups, shape[1] // groups, prod(shape[2:]))


def _by_channels(shape: Extents, *_: Any) -> Extents:
    """One image, or a number for each channel, by channels: those of several images are one."""
    if len(shape) == 1:
        return (*shape, 1)
    if shape[0] != 1:
        raise NoRuleError("a normalisation over the first dimensions is torch's own")
    return (shape[1], prod(shape[2:]))


def _trailing(shape: Sequence[int]) -> list[int]:
    return list(range(-len(shape), 0))


ROWS: dict[str, RowOperation] = {
    "aten.sum.dim_IntList": _reduction(_sum),
    "aten.mean.dim": _reduction(_mean),
    "aten.amax.default": _reduction(_max),
    "aten.amin.default": _reduction(_min),
    "aten.sum.default": _reduction(_sum),
    "aten.mean.default": _reduction(_mean),
    "aten.max.default": _reduction(_max),
    "aten.min.default": _reduction(_min),
    **dict.fromkeys(("aten.prod.dim_int", "aten.prod.default"), _reduction(_product)),
    **{f"aten.any.{name}": _question(_any) for name in ("default", "dim", "dims")},
    **{f"aten.all.{name}": _question(_all) for name in ("default", "dim", "dims")},
    "aten.var.correction": _spread(_variance),
    "aten.std.correction": _spread(_deviation),
    "aten.var_mean.correction": _spread(_variance_and_mean),
    "aten.std_mean.correction": _spread(_deviation_and_mean),
    "aten.linalg_vector_norm.default": RowOperation(
        _norm, _norm_dims, lambda x, order=2, *_, **__: (x, order), weight=2
    ),
    "aten.mv.default": RowOperation(
        lambda rows, a, x: rows.sum(_float_only(a * x)),
        lambda a, x: [-1],
        lambda a, x: (a, x),
        weight=3,
    ),
    "aten.logsumexp.default": RowOperation(
        _log_sum_exp, lambda x, dim, keep=False: dim or (), lambda x, *_, **__: (x,), weight=3
    ),
    "aten.gather.default": RowOperation(
        lambda rows, x, column: rows.pick(x, column),
        lambda x, dim, column, **_: [dim],
        lambda x, dim, column, **_: (x, column),
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
    "aten.native_group_norm.default": RowOperation(
        _layer_norm,
        lambda *_: [-2, -1],
        lambda x, weight, bias, n, c, size, groups, eps: (x, weight, bias, eps),
        seen=_by_groups,
        takes_sizes=True,
    ),
    "aten._native_batch_norm_legit.no_stats": RowOperation(
        _layer_norm,
        lambda *_: [-1],
        lambda x, weight, bias, training, momentum, eps: (x, weight, bias, eps),
        weight=2,
        seen=_by_channels,
    ),
    "aten._fused_rms_norm.default": RowOperation(
        _rms_norm,
        lambda x, shape, weight, eps: _trailing(shape),
        lambda x, shape, weight, eps: (x, weight, eps),
        weight=2,
    ),
}
