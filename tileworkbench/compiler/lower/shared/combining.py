"""How reductions and scans combine two values."""

from __future__ import annotations

from tileworkbench.compiler.ir.build import add, binary, call, const, mul
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.tile import ReduceKind
from tileworkbench.compiler.ir.types import FLOAT32, DType

COMBINERS: dict[str, str] = {
    "sum": "sum",
    "abssum": "sum",
    "max": "max",
    "absmax": "max",
    "min": "min",
    "bitand": "and",
    "bitor": "or",
    "bitxor": "xor",
    "prod": "prod",
}
"""The operation that combines, by the kind of a reduction."""


def identity(kind: ReduceKind, dtype: DType) -> Expr:
    """The value that leaves every other unchanged when combined with it."""
    if kind is ReduceKind.MAX:
        return const(float("-inf") if dtype.is_float else int(dtype.min_value), dtype)
    if kind is ReduceKind.MIN:
        return const(float("inf") if dtype.is_float else int(dtype.max_value), dtype)
    if kind is ReduceKind.BITAND:
        return const(-1, dtype) if not dtype.is_bool else const(True, dtype)
    if kind is ReduceKind.PROD:
        return const(1, dtype)
    return const(0, dtype)


def accumulation_dtype(dtype: DType) -> DType:
    """What values for a result of `dtype` are combined in: float32 for narrower floats."""
    return FLOAT32 if dtype.is_float and dtype.bits < 32 else dtype


def combine(kind: ReduceKind, a: Expr, b: Expr, nan_propagate: bool) -> Expr:
    """The two values as one, in their common dtype."""
    name = COMBINERS[kind]
    if name in ("max", "min"):
        return (
            call(f"{name}_nan", a, b) if nan_propagate and a.dtype.is_float else binary(name, a, b)
        )
    arithmetic = {"sum": add, "prod": mul}.get(name)
    return binary(name, a, b) if arithmetic is None else arithmetic(a, b)
