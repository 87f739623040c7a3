"""Formulas of torch's element-wise operations as terms: those of its documentation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tileworkbench.pytorch.dtypes import name_of, weak_dtype
from tileworkbench.pytorch.terms import (
    NoRuleError,
    Term,
    bitwise,
    bounds_of,
    call,
    number,
    of_float,
    of_floats,
    select,
)

exp, erf, tanh, sigmoid = (of_float(name) for name in ("exp", "erf", "tanh", "sigmoid"))
log, sqrt, rsqrt = of_float("log"), of_float("sqrt"), of_float("rsqrt")
log1p, atan, sin, cos = (of_float(name) for name in ("log1p", "atan", "sin", "cos"))
exp2 = of_float("exp2")

_SQRT_HALF = math.sqrt(0.5)
_BETA = math.sqrt(2 / math.pi)
_KAPPA = 0.044715
_LOG_2 = math.log(2)
_FAR = 1e9  # its square plus one is its square, and no infinity


def scaled(y: Any, alpha: Any) -> Any:
    return y if alpha == 1 else y * alpha


def gelu(x: Term, approximate: str = "none") -> Term:
    if approximate == "none":
        return 0.5 * x * (1.0 + erf(x * _SQRT_HALF))
    return 0.5 * x * (1.0 + tanh(_BETA * (x + _KAPPA * x * x * x)))


def gelu_backward(grad: Term, x: Term, approximate: str = "none") -> Term:
    if approximate == "none":
        cdf = 0.5 * (1.0 + erf(x * _SQRT_HALF))
        return grad * (cdf + x * exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi)))
    inner = tanh(_BETA * (x + _KAPPA * x * x * x))
    slope = _BETA * (1.0 + 3 * _KAPPA * x * x)
    return grad * (0.5 * (1.0 + inner) + 0.5 * x * (1.0 - inner * inner) * slope)


def silu_backward(grad: Term, x: Term) -> Term:
    s = sigmoid(x)
    return grad * s * (1.0 + x * (1.0 - s))


def softplus(x: Term, beta: Any = 1, threshold: Any = 20) -> Term:
    """log(1 + exp(beta x)) / beta, which is x where beta x is above the threshold."""
    raised = scaled(x, beta)
    bent = log1p(exp(raised))
    return select(raised > threshold, x, bent if beta == 1 else bent / beta)


def sign(x: Term) -> Term:
    """-1, 0 or 1; of NaN 0."""
    return select(x > 0, 1, select(x < 0, number(-1, x.dtype), 0))


def _below_exp(x: Term) -> Term:
    """exp(x) - 1 for x <= 1, without the cancellation around 0: 2 t / (1 - t), t = tanh(x / 2)."""
    t = tanh(x * 0.5)
    return 2.0 * t / (1.0 - t)


def expm1(x: Term) -> Term:
    return select(x > 1.0, exp(x) - 1.0, _below_exp(x))


def elu(x: Term, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Term:
    bent = scaled(scaled(_below_exp(scaled(x, input_scale)), alpha), scale)
    return select(x > 0, scaled(x, scale), bent)


def elu_backward(
    grad: Term, alpha: Any, scale: Any, input_scale: Any, is_result: bool, y: Term
) -> Term:
    low = alpha * scale
    bent = (y + low) if is_result else low * exp(scaled(y, input_scale))
    return select(y <= 0, scaled(grad, input_scale) * bent, scaled(grad, scale))


def hard_swish_backward(grad: Term, x: Term) -> Term:
    return select(x <= -3, 0.0, select(x < 3, grad * (x / 3.0 + 0.5), grad))


def hard_sigmoid_backward(grad: Term, x: Term) -> Term:
    return select(x > -3, select(x < 3, grad / 6.0, 0.0), 0.0)


def mish_backward(grad: Term, x: Term) -> Term:
    t = tanh(softplus(x))
    return grad * (t + x * sigmoid(x) * (1.0 - t * t))


def leaky_relu_backward(grad: Term, x: Term, slope: Any, is_result: bool) -> Term:
    return select(x > 0, grad, grad * slope)


def hardtanh_backward(grad: Term, x: Term, low: Any, high: Any) -> Term:
    return select(x <= low, 0.0, select(x >= high, 0.0, grad))


def softplus_backward(grad: Term, x: Term, beta: Any, threshold: Any) -> Term:
    raised = scaled(x, beta)
    return select(raised > threshold, grad, grad * sigmoid(raised))


def add_product(x: Term, a: Term, b: Term, value: Any = 1) -> Term:
    scale: Term = scaled(a, value)
    return x + scale * b


def add_quotient(x: Term, a: Term, b: Term, value: Any = 1) -> Term:
    scale: Term = scaled(a, value)
    return x + scale / b


def lerp(x: Term, end: Term, weight: Any) -> Term:
    """Between two values, from the nearer one, so that both ends are exact."""
    from_start: Term = x + weight * (end - x)
    from_end: Term = end - (end - x) * (1.0 - weight)
    if isinstance(weight, Term):
        return select(absolute(weight) < 0.5, from_start, from_end)
    return from_start if abs(weight) < 0.5 else from_end


def log_add_exp(a: Term, b: Term) -> Term:
    """log(exp(a) + exp(b)), of two equal infinities that one."""
    is_endless = call("isinf", a, dtype=(a > 0).dtype)
    made = larger(a, b) + log1p(exp(-absolute(a - b)))
    return select(call("And", is_endless, a.equals(b), dtype=is_endless.dtype), a, made)


def x_log_y(x: Term, y: Term) -> Term:
    """x log(y), 0 where x is; NaN where y is."""
    nothing = call("isnan", y, dtype=(y > 0).dtype)
    return select(nothing, y, select(x.equals(0), 0.0, x * log(y)))


def logit(x: Term, eps: float | None = None) -> Term:
    if eps is not None:
        x = clamp(x, eps, 1.0 - eps)
    return log(x / (1.0 - x))


# What T has only by calls of the C library, one for each element


def tan(x: Term) -> Term:
    return sin(x) / cos(x)


def sinh(x: Term) -> Term:
    size = absolute(_as_float(x))
    root, less = exp(size * 0.5), _below_exp(size)
    large = 0.5 * root * root - 0.5 / root / root  # e^x itself is infinite earlier
    return _with_sign(select(size > 1.0, large, 0.5 * (less + less / (less + 1.0))), x)


def cosh(x: Term) -> Term:
    root = exp(absolute(_as_float(x)) * 0.5)
    return 0.5 * root * root + 0.5 / root / root


# Inverse functions, by those that T has, without cancellation where they are small


def asin(x: Term) -> Term:
    x = _as_float(x)
    return atan(x * rsqrt((1.0 - x) * (1.0 + x)))


def acos(x: Term) -> Term:
    x = _as_float(x)
    return 2.0 * atan(sqrt((1.0 - x) / (1.0 + x)))


def atan2(y: Term, x: Term) -> Term:
    """The angle of a point. The quotient of equal sizes, which may be 0 or infinite, is 0 or 1."""
    y, x = _as_float(y), _as_float(x)
    rise, run = absolute(y), absolute(x)
    angle = atan(select(rise.equals(run), select(rise > 0, 1.0, rise), rise / run))
    is_behind = call("copysign", 1.0, x) < 0
    return call("copysign", select(is_behind, math.pi - angle, angle), y)


def atanh(x: Term) -> Term:
    size = absolute(_as_float(x))
    return _with_sign(0.5 * log1p(2.0 * size / (1.0 - size)), x)


def asinh(x: Term) -> Term:
    size = absolute(_as_float(x))
    near = log1p(size + size * size / (1.0 + sqrt(size * size + 1.0)))
    return _with_sign(select(size > _FAR, log(size) + _LOG_2, near), x)


def acosh(x: Term) -> Term:
    x = _as_float(x)
    more = x - 1.0
    return select(x > _FAR, log(x) + _LOG_2, log1p(more + sqrt(more * (more + 2.0))))


def _as_float(x: Term) -> Term:
    return x if x.dtype.is_floating_point else x.to(weak_dtype(1.0, x.dtype))


def _with_sign(size: Term, x: Term) -> Term:
    return select(x < 0, -size, size)


def larger(a: Term, b: Any) -> Term:
    """The larger, or NaN where one is: `T.max` would drop it."""
    if not a.dtype.is_floating_point:
        return select(a > b, a, b)
    return select(call("Or", a > b, call("isnan", a, dtype=(a > b).dtype)), a, b)


def smaller(a: Term, b: Any) -> Term:
    if not a.dtype.is_floating_point:
        return select(a < b, a, b)
    return select(call("Or", a < b, call("isnan", a, dtype=(a < b).dtype)), a, b)


def clamp(x: Term, low: Any = None, high: Any = None) -> Term:
    if low is not None:
        x = select(x < low, low, x)  # NaN stays
    return x if high is None else select(x > high, high, x)


def clamp_between(x: Term, low: Term | None = None, high: Term | None = None) -> Term:
    """The same by tensors; NaN where a bound is."""
    x = x if low is None else larger(x, low)
    return x if high is None else smaller(x, high)


def scale_of(weight: Term | None, variance: Term, eps: float) -> Term:
    """What a batch normalisation by known statistics multiplies a channel by."""
    scale = rsqrt(variance + eps)
    return scale if weight is None else scale * weight


def shift_of(bias: Term | None, mean: Term, scale: Term) -> Term:
    """What it adds after that."""
    return -mean * scale if bias is None else bias - mean * scale


def normalised(x: Term, weight: Any, bias: Any, mean: Term, variance: Term, *how: Any) -> Term:
    """A batch normalisation by known statistics; `how` ends with epsilon and a flag."""
    scale = scale_of(weight, variance, how[-2])
    return x * scale + shift_of(bias, mean, scale)


def hard_sigmoid(x: Term) -> Term:
    return clamp(x + 3.0, 0.0, 6.0) / 6.0


def power(x: Term, exponent: Any) -> Term:
    if isinstance(exponent, Term) or not x.dtype.is_floating_point:
        return of_floats("pow", x, exponent)
    if exponent in (2, 3):
        return x * x if exponent == 2 else x * x * x
    known: dict[Any, Callable[[Term], Term]] = {
        0.5: sqrt,
        -0.5: rsqrt,
        1: lambda x: x,
        4: lambda x: x * x * (x * x),
        1.5: lambda x: x * sqrt(x),
        -1: lambda x: 1.0 / x,
        -2: lambda x: 1.0 / (x * x),
    }
    return known[exponent](x) if exponent in known else of_floats("pow", x, exponent)


def logical(name: str) -> Callable[..., Term]:
    def apply(*operands: Term) -> Term:
        if not all(each.is_bool for each in operands):
            raise NoRuleError("a logical operation on numbers")
        return call(name, *operands)

    return apply


def exclusive(a: Term, b: Term) -> Term:
    """Whether one of two bools is true."""
    if not (a.is_bool and b.is_bool):
        raise NoRuleError("a logical operation on numbers")
    return a.differs(b)


def bits(name: str, op: str) -> Callable[[Any, Any], Term]:
    def apply(a: Any, b: Any) -> Term:
        if isinstance(a, Term) and a.is_bool:
            return both(a, b)
        return bitwise(op, a, b)

    both = logical(name)
    return apply


def inverted(x: Term) -> Term:
    return call("Not", x) if x.is_bool else bitwise("^", x, -1)


def shift(op: str) -> Callable[[Term, Any], Term]:
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


def rounding(name: str) -> Callable[[Term], Term]:
    def apply(x: Term) -> Term:
        if not x.dtype.is_floating_point:
            raise NoRuleError(f"'{name}' of integers")
        return call(name, x)

    return apply


def test(name: str) -> Callable[[Term], Term]:
    def apply(x: Term) -> Term:
        if not x.dtype.is_floating_point:
            raise NoRuleError(f"'{name}' of integers")
        return call(name, x, dtype=(x > 0).dtype)

    return apply


def fraction(x: Term) -> Term:
    return x - rounding("trunc")(x)


def absolute(x: Term) -> Term:
    return call("abs", x)
