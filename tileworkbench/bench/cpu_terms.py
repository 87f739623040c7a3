"""What single expressions and statements of a lowered CPU program are, for `cpu_work`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from tileworkbench.compiler.analysis.access import depends_on
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import statements, variables, walk

_CHEAP = ("fma", "max_nan", "min_nan", "floor", "ceil", "trunc", "nearbyint", "lookup", "lane_at")


def is_innermost(loop: st.For) -> bool:
    """Whether a loop has nothing in it but straight code, or one vector."""
    body = loop.body.stmts if isinstance(loop.body, st.Seq) else (loop.body,)
    return not any(
        isinstance(node, st.For) and node.kind is not st.LoopKind.VECTORIZED
        for stmt in body
        for node in statements(stmt)
    )


def bytes_of(value: Buffer | Var) -> int:
    """The size of a tensor, 0 of a scalar."""
    if not isinstance(value, Buffer):
        return 0
    return math.prod(const_int(extent) or 1 for extent in value.shape) * value.dtype.bytes


def value_of(value: Expr, env: Mapping[str, int | float | bool]) -> int | float | bool | None:
    """The value of an expression, None where it depends on memory or on unknown variables."""
    try:
        return evaluate(value, env)
    except (KeyError, ValueError, ZeroDivisionError, OverflowError):
        return None


def shift(
    index: Expr,
    var: Var,
    env: Mapping[str, int | float | bool],
    steps: int = 1,
    names: Mapping[Var, Expr] | None = None,
) -> int | None:
    """How many elements an address moves with so many steps of a variable, None where that is not
    known; `names` has what stands for names that depend on it, in their order.
    """
    further = {**env, var.name: env.get(var.name, 0) + steps}
    here, there = value_of(index, env), value_with(index, further, names or {})
    return None if here is None or there is None else int(there) - int(here)


def value_with(
    value: Expr, env: Mapping[str, int | float | bool], names: Mapping[Var, Expr]
) -> int | float | bool | None:
    """The value of an expression where `names` stand for others, in their order, of what `env`
    has; None where it is not known.
    """
    known = dict(env)
    for name, meant in names.items():
        there = value_of(meant, known)
        if there is not None:
            known[name.name] = there
    return value_of(value, known)


def in_registers(buffer: Buffer, lanes: float) -> bool:
    """Whether accesses of `lanes` lanes are of a whole tile, which then needs no memory."""
    return buffer.scope != "global" and bytes_of(buffer) == lanes * buffer.dtype.bytes


def moving_tiles(body: st.Stmt) -> frozenset[Buffer]:
    """The tiles that are accessed at places which change with more than the lanes of a vector; the
    compiler has these in memory.
    """
    lanes = {
        each.var
        for each in statements(body)
        if isinstance(each, st.For) and each.kind is st.LoopKind.VECTORIZED
    }
    return frozenset(
        node.buffer
        for node in walk(body)
        if isinstance(node, ir.Load | st.Store | st.Atomic)
        for index in node.indices
        if any(isinstance(each, Var) and each not in lanes for each in walk(index))
    )


def carrier(stmt: st.Store | st.Atomic, loops: Sequence[Var]) -> int | None:
    """Which of the `loops` around a statement, the innermost if several, has iterations that load
    what the one before has stored here: the same place, or its neighbour. None if there is none.
    """
    loaded = [
        node.indices
        for node in walk(stmt.value)
        if isinstance(node, ir.Load) and node.buffer is stmt.buffer
    ]
    for depth in reversed(range(len(loops)) if loaded else ()):
        var = loops[depth]
        moves = any(depends_on(index, frozenset({var})) for index in stmt.indices)
        if any(
            _meets(indices, stmt.indices, var) if moves else indices == stmt.indices
            for indices in loaded
        ):
            return depth
    return None


def _meets(loaded: tuple[Expr, ...], stored: tuple[Expr, ...], var: Var) -> bool:
    """Whether the next iteration of `var` loads what this one stores, at some points."""
    names = sorted({node.name for index in (*loaded, *stored) for node in variables(index)})
    for seed in (3, 5):
        here = {name: seed * (at + 1) ** 2 for at, name in enumerate(names)}
        following = {**here, var.name: here[var.name] + 1}
        places = [
            (value_of(load, following), value_of(store, here))
            for load, store in zip(loaded, stored, strict=True)
        ]
        if any(load is None or load != store for load, store in places):
            return False
    return True


def covers(stmt: st.Store | st.Atomic) -> bool:
    return any(isinstance(index, ir.Ramp) for index in stmt.indices)


def is_power_of_two(value: Expr) -> bool:
    return isinstance(value, ir.Const) and math.frexp(abs(float(value.value)))[0] == 0.5


def function(node: object) -> str:
    """The name of a function that takes many operations; empty for anything else."""
    return node.name if isinstance(node, ir.Call) and node.name not in _CHEAP else ""


def is_pattern(node: Expr, lane: Var) -> bool:
    """Whether an expression is the same vector in every iteration, or part of an address."""
    if node.dtype == "int32" and isinstance(node, ir.Binary) and node.op in ("add", "mul"):
        return True
    return not any(
        isinstance(x, ir.Load) or (isinstance(x, Var) and x is not lane) for x in walk(node)
    )


def is_product(value: Expr) -> bool:
    return value.dtype.is_float and isinstance(value, ir.Binary) and value.op == "mul"


def touched(stmt: st.Stmt, varying: frozenset[Var] | None = None) -> Iterator[Buffer]:
    """The buffers of the accesses of a statement, only those that move with `varying` if given."""
    for load in {node: None for node in walk(stmt) if isinstance(node, ir.Load)}:
        if varying is None or depends_on(load, varying):
            yield load.buffer
    if isinstance(stmt, st.Store | st.Atomic):
        yield stmt.buffer


Element = tuple[Buffer, tuple[Expr, ...]]
"""A tensor or tile, and the indices of one of its elements."""


def loaded_elements(stmt: st.Stmt) -> set[Element]:
    """What a statement loads; what it stores there need not be fetched for that."""
    return {(node.buffer, node.indices) for node in walk(stmt) if isinstance(node, ir.Load)}


def operations(value: Expr) -> int:
    """Instructions of an expression of single elements; addresses are stepped with the loops."""
    if isinstance(value, ir.Load):
        return 1
    if value.dtype.is_int and isinstance(value, ir.Binary) and value.op in ("add", "sub", "mul"):
        return 0
    if is_sum(value) and any(is_product(each) for each in (value.a, value.b)):
        return operations(value.a) + operations(value.b)
    below = sum(operations(child) for child in value.children() if isinstance(child, Expr))
    return below + isinstance(value, ir.Binary | ir.Unary | ir.Call | ir.Select | ir.Cast)


def of_tile(node: Expr) -> bool:
    """Whether this is a function or quotient of elements of tiles, which no compiler keeps while a
    loop stores.
    """
    divides = isinstance(node, ir.Binary) and node.op == "div"
    return (divides or bool(function(node))) and any(
        isinstance(each, ir.Load) and each.buffer.scope != "global" for each in walk(node)
    )


def is_sum(value: Expr) -> TypeGuard[ir.Binary]:
    return isinstance(value, ir.Binary) and value.op in ("add", "sub")
