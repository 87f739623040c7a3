"""What operations of a GPU's threads take, and which of them compilers make one of.

A slot is that of a thread on a multiprocessor which issues 128 a clock; a special-function unit
takes 16 threads a clock, conversions 64 (CUDA C++ Programming Guide, throughput of arithmetic
instructions). How many instructions a function has is counted in what ptxas makes of it, with and
without fast math, for sm_80 and sm_90a; the rare path of a root or a quotient is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tileworkbench.bench.cpu_block import Env
from tileworkbench.bench.cpu_terms import is_power_of_two, is_product, is_sum, value_of
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
)
from tileworkbench.compiler.ir.rewrite import statements, walk

_SPECIAL_SLOTS = 8.0
# Instructions of special-function units, and others.
_EXACT: Mapping[str, tuple[float, float]] = {
    **{"exp2": (1, 3), "exp": (1, 6), "log2": (0, 28), "log": (0, 26), "log10": (0, 28)},
    **{"tanh": (2, 13), "sqrt": (1, 9), "rsqrt": (1, 3), "sigmoid": (2, 17), "erf": (1, 20)},
    **{"pow": (2, 30), "division": (1, 10)},
}
_FAST: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("exp2", "log2", "tanh", "sqrt", "rsqrt"), (1, 0)),
    **dict.fromkeys(("exp", "log", "log10", "sin", "cos", "division"), (1, 1)),
    **{"sigmoid": (2, 2), "pow": (2, 1)},
}
_FUNCTION = 0.0, 30.0  # sin, cos and others: polynomials, and the reduction of their argument
_CHEAP = ("fma", "max_nan", "min_nan", "abs", "floor", "ceil", "trunc", "nearbyint", "lane_at")
_CONVERSION = 2.0
_MOST = 4096  # iterations that are looked at one by one


@dataclass(frozen=True, slots=True)
class Cost:
    """An operation on one element: slots of a thread, instructions of special-function units, and
    other instructions.
    """

    kind: str
    slots: float
    special: float = 0.0
    others: float = 1.0


def cost_of(node: Expr, fast_math: bool) -> Cost | None:
    """What an operation takes; None for what takes nothing."""
    match node:
        case Binary("div", _, divisor) if not is_power_of_two(divisor):
            return _function("division", fast_math)
        case Call(name) if name not in _CHEAP:
            return _function(name, fast_math)
        case Binary() | Unary() | Select() | Call():
            return Cost("arithmetic", 1.0)
        case Cast(value, dtype) if value.dtype.is_float and value.dtype.bits > dtype.bits:
            each = 0.5 if dtype.bits == 16 else 1.0  # one instruction makes two of 16 bits
            return Cost("conversion", _CONVERSION * each, others=each)
        case Cast(value) if value.dtype.is_float:
            return Cost("arithmetic", 1.0)  # a sum with zero
        case Cast():
            return Cost("conversion", _CONVERSION)
    return None


RECIPROCAL = Cost("division", _SPECIAL_SLOTS, special=1.0, others=0.0)
"""With fast math, of a divisor: quotients are products with it."""


def _function(name: str, fast_math: bool) -> Cost:
    known = _FAST.get(name) if fast_math else None
    special, others = known or _EXACT.get(name, _FUNCTION)
    return Cost(name, _SPECIAL_SLOTS * special + others, special, others)


def fused(value: Expr, parts: Mapping[Expr, float]) -> set[Expr]:
    """The products that become part of a sum; of two in one sum that which `parts` says is
    computed more often.
    """
    merged: set[Expr] = set()
    for node in walk(value):
        if isinstance(node, Expr) and is_sum(node) and node.dtype.is_float:
            products = [each for each in (node.a, node.b) if is_product(each)]
            if products:
                merged.add(max(products, key=lambda each: parts.get(each, 1.0)))
    return merged


def distinct(node: Expr, unrolled: Sequence[tuple[st.For, range]], env: Env) -> float:
    """The part of the iterations of unrolled loops in which `node` has another value than before.

    Compilers compute it once for all that have the same. What comes from memory that the loops
    write may be another value each time.
    """
    leaves = list(_leaves(node))
    total = prod(len(span) for _, span in unrolled)
    if total == 1 or total > _MOST or not leaves:
        return 1.0
    read = {each.buffer if isinstance(each, Load) else each for each in leaves}
    if read & stored(unrolled[0][0]):
        return 1.0
    keys: list[Expr] = []
    for each in leaves:
        indices = each.indices if isinstance(each, Load) else (each,)
        keys += (index.base if isinstance(index, Ramp) else index for index in indices)
    free = {var.name: 0 for key in keys for var in walk(key) if isinstance(var, Var)}
    values = set()
    for places in itertools.product(*(span for _, span in unrolled)):
        own = {loop.var.name: at for (loop, _), at in zip(unrolled, places, strict=True)}
        place_values = tuple(value_of(key, {**free, **env, **own}) for key in keys)
        if None in place_values:
            return 1.0
        values.add(place_values)
    return len(values) / total


def _leaves(value: Expr) -> Iterator[Load | Var]:
    """What an expression is computed from."""
    if isinstance(value, Load | Var):
        yield value
        return
    for each in value.children():
        if isinstance(each, Expr):
            yield from _leaves(each)


def stored(loop: st.For) -> set[Buffer | Var]:
    """What a loop writes."""
    return {
        each.buffer if isinstance(each, st.Store | st.Atomic) else each.var
        for each in statements(loop.body)
        if isinstance(each, st.Store | st.Atomic | st.Let)
    }
