"""A program as it would be without rounding: every floating type becomes float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import cast
from tileworkbench.compiler.ir.expr import (
    AddressOf,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Reinterpret,
    Select,
    Unary,
    Var,
)
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.rewrite import Rewriter, buffers_of, statements, walk
from tileworkbench.compiler.ir.types import FLOAT64, DType
from tileworkbench.compiler.sim.arguments import argument_array, known_shape, scalar_value

Array = np.ndarray[Any, Any]

NOTHING_FLOATING = "it has no floating-point tile or tensor, so nothing is rounded"


def widened(program: Program) -> Program:
    """`program` (stage TILE) in which every floating type is float64: casts between them are gone,
    integers and conditions are as they were. Constants keep the value that they were rounded to.

    Raises `UnsupportedError`, which says why, for a program that has no floating types, and for one
    that reads numbers as bits or runs code that is not its own.
    """
    used = [*buffers_of(program.body), *(param.value for param in program.params)]
    if not any(each.dtype.is_float for each in used if isinstance(each, Buffer)):
        raise UnsupportedError(f"'{program.name}' cannot be replayed: {NOTHING_FLOATING}")
    for stmt, why in _obstacles(program):
        raise UnsupportedError(
            f"'{program.name}' cannot be replayed in float64: {why}", program.span(stmt.site)
        )
    rewrite = Rewriter(_wide, _binding)
    return replace(
        program,
        params=tuple(Param(rewrite(param.value), param.output) for param in program.params),
        body=rewrite(program.body),
        safe_values=tuple((name, rewrite(value)) for name, value in program.safe_values),
    )


def _wide(node: Any) -> Any:
    """One node whose children are wide already."""
    if not isinstance(node, Expr | Buffer) or not node.dtype.is_float:
        return node
    dtype = FLOAT64.with_lanes(node.dtype.lanes)
    match node:
        case Cast(value):
            return cast(value, dtype)  # none at all between floating types
        case Buffer(scope="global"):  # the arguments are copied, without the holes of strides
            return replace(node, dtype=dtype, strides=())
        case Buffer() | Const() | Var() | Binary() | Unary() | Select() | Call():
            return replace(node, dtype=dtype)
    return node  # a load, a ramp: of the dtype of what it holds


def _binding(stmt: st.Stmt) -> st.Stmt:
    """The statement with wide names: the names that it binds are no children of it."""
    match stmt:
        case st.Let(var=var) | simt.Exchange(var=var):
            return replace(stmt, var=_wide(var))
        case st.Atomic(previous=Var() as previous):
            return replace(stmt, previous=_wide(previous))
    return stmt


def _obstacles(program: Program) -> Iterator[tuple[st.Stmt, str]]:
    """The statements that would mean something else with other types, each with the reason."""
    for stmt in statements(program.body):
        match stmt:
            case st.ExternCall(name=name):
                yield stmt, f"it calls '{name}', code that is not its own"
            case st.SourceKernel():
                yield stmt, "it is CUDA source"
            case st.Pointer(buffer=buffer):
                yield stmt, f"'{buffer.name}' is memory at an address"
            case st.Alias(buffer=buffer, source=source) if _differ(buffer.dtype, source.dtype):
                yield (
                    stmt,
                    f"'{buffer.name}' is the memory of '{source.name}', "
                    f"'{source.dtype}' read as '{buffer.dtype}'",
                )
        for node in _own(stmt):
            if isinstance(node, Reinterpret) and _differ(node.dtype, node.value.dtype):
                yield stmt, f"it reads the bits of '{node.value.dtype}' as '{node.dtype}'"
            elif isinstance(node, AddressOf) and node.buffer.dtype.is_float:
                yield stmt, f"it computes with the address of '{node.buffer.name}'"


def _own(stmt: st.Stmt) -> Iterator[Node]:
    """The nodes of a statement that belong to no statement inside it."""
    for child in stmt.children():
        if not isinstance(child, st.Stmt):
            yield from walk(child)


def _differ(one: DType, other: DType) -> bool:
    return one != other and (one.is_float or other.is_float)


def wide_arguments(
    program: Program, arguments: Mapping[str, Any], symbols: Mapping[str, int]
) -> dict[str, Any]:
    """The arguments of a call of `program` as those of `widened(program)`: the same values."""
    made: dict[str, Any] = {}
    for param in program.params:
        value = param.value
        if param.output:
            continue
        if isinstance(value, Var):
            given = scalar_value(value, arguments)
            made[param.name] = float(given) if value.dtype.is_float else given
        elif arguments.get(param.name) is None:
            made[param.name] = None
        else:
            array = argument_array(param.name, value, known_shape(value, symbols), arguments)
            made[param.name] = array.astype(np.float64) if value.dtype.is_float else array
    return made
