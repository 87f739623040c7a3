"""One run of a kernel function: its parameters, the trace itself, and the finished program."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.diagnostics import (
    CompileError,
    Span,
    TileRuntimeError,
    TileTypeError,
    TileValueError,
)
from tileworkbench.compiler.frontend.annotations import (
    TensorSpec,
    make_buffer,
)
from tileworkbench.compiler.frontend.builder import Builder, tracing
from tileworkbench.compiler.frontend.dtypes import is_dtype, to_dtype
from tileworkbench.compiler.frontend.errors import placed
from tileworkbench.compiler.frontend.narrow import widen
from tileworkbench.compiler.frontend.rewritten import resolve_annotation
from tileworkbench.compiler.frontend.source import locate
from tileworkbench.compiler.frontend.syntax import statements_of
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.threads import check_barrier_uses
from tileworkbench.compiler.frontend.values import Value
from tileworkbench.compiler.frontend.wide_indices import widen_indices
from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.rewrite import bound_by, replace_buffers, statements, variables
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Kernel, SourceKernel, Stmt
from tileworkbench.compiler.ir.types import INT64


def annotation_of(fn: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> Any:
    """The annotation of a parameter, None without one."""
    annotation = inspect.get_annotations(fn).get(name)
    return None if annotation is None else resolve_annotation(fn, name, annotation, namespace)


def is_scalar_annotation(annotation: Any) -> bool:
    """Whether an annotation makes a parameter a run-time scalar: a dtype, but none of Python's own
    types.
    """
    if isinstance(annotation, type) or annotation is None or isinstance(annotation, TensorSpec):
        return False
    return is_dtype(annotation)


def parameter_value(builder: Builder, name: str, annotation: Any) -> Buffer | Var:
    """What parameter `name` is in the program; its name is reserved already."""
    if isinstance(annotation, TensorSpec):
        return make_buffer(builder, name, annotation)
    dtype = to_dtype(annotation)
    if dtype.lanes > 1:
        from tileworkbench.compiler.diagnostics import UnsupportedError

        raise UnsupportedError(f"the parameter '{name}' of type '{dtype}' is not supported yet")
    return Var(name, dtype)


def placed_parameter(
    builder: Builder, fn: Callable[..., Any], name: str, annotation: Any
) -> Buffer | Var:
    """`parameter_value`, with errors placed at the parameter."""
    try:
        return parameter_value(builder, name, annotation)
    except CompileError as error:
        error.span = error.span or parameter_span(fn, name)
        raise


def wrap(value: Buffer | Var) -> TensorValue | Value:
    """A parameter as its name holds it."""
    return TensorValue(value) if isinstance(value, Buffer) else Value(value)


def ordered_inputs(
    fn: Callable[..., Any], builder: Builder, names: Sequence[str]
) -> dict[str, Buffer | Var]:
    """The builder's inputs in the order of `names`. Raises `TileValueError` for one that was not
    declared.
    """
    for name in names:
        if name not in builder.inputs:
            raise TileValueError(
                f"the declaration of the parameter '{name}' was not reached",
                parameter_span(fn, name),
            )
    return {name: builder.inputs[name] for name in names}


def declared_in_body(node: ast.FunctionDef) -> set[str]:
    """The names that statements like `A: T.Tensor[...]` declare."""
    return {
        child.target.id
        for child in statements_of(node)
        if isinstance(child, ast.AnnAssign)
        and child.value is None
        and isinstance(child.target, ast.Name)
    }


def parameter_span(fn: Callable[..., Any], name: str) -> Span:
    """The place of a parameter in the `def` line."""
    located = locate(fn)
    arguments = located.node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return next((located.span(a) for a in every if a.arg == name), function_span(fn))


def run_trace(builder: Builder, fn: Callable[[], Any]) -> Any:
    """Run `fn` under `builder`; its errors come out with a place in the user's text."""
    with tracing(builder):
        try:
            return fn()
        except Exception as error:
            raise placed(error, builder.span) from None


def finish(builder: Builder, result: Any, where: Span) -> Program:
    """The program that a finished trace has written. `where` is the function's own place."""
    _check_returned(builder, result, where)
    frame = builder.frames[0]
    body = widen(builder.pop(frame))
    if builder.has_wide_buffers:
        known = builder.symbols.values()
        body = widen_indices(body, known, lambda name: builder.fresh_var(name, INT64))
    if builder.checks:
        raise TileRuntimeError(
            "'assert' stands behind the last 'with T.Kernel(...)'",
            builder.sites[builder.checks[0].site],
            hint="move it in front of a launch, which makes the check",
        )
    if not any(isinstance(stmt, Kernel | SourceKernel) for stmt in statements(body)):
        raise TileValueError(
            f"'{builder.name}' contains no 'with T.Kernel(...)' block",
            where,
            hint="a kernel function launches at least one grid",
        )
    params = [Param(value) for value in builder.inputs.values()]
    params += [Param(buffer, output=True) for buffer in (*builder.outputs, *builder.workspaces)]
    returns = tuple(
        len(builder.inputs) + builder.outputs.index(buffer) for buffer in builder.returned or ()
    )
    scalars = {param.value for param in params if isinstance(param.value, Var)}
    symbols = tuple(var for var in _symbols(params) if var not in scalars)
    _check_bound(body, {*symbols, *scalars}, where)
    _finish_memory(body, builder)
    safe_values = tuple(builder.safe_values.items())
    annotated = {
        buffer: replace(buffer, layout=layout) for buffer, layout in builder.layouts.items()
    }
    program = Program(
        builder.name,
        tuple(params),
        symbols,
        body,
        returns=returns,
        safe_values=safe_values,
        sources=tuple(builder.sources),
        sites=tuple(builder.sites),
        uses=tuple(builder.uses),
    )
    return replace_buffers(program, annotated)


def _finish_memory(body: Stmt, builder: Builder) -> None:
    """Check the uses of memory barriers; views of a tensor have its safe value."""
    has_barriers = False
    for stmt in statements(body):
        if isinstance(stmt, Alloc):
            has_barriers |= stmt.buffer.scope == "shared.barrier"
        elif isinstance(stmt, Alias) and stmt.buffer.dtype == stmt.source.dtype:
            value = builder.safe_values.get(stmt.source.name)
            if value is not None:
                builder.safe_values.setdefault(stmt.buffer.name, value)
    if has_barriers:
        check_barrier_uses(body, builder.sites)


def _check_returned(builder: Builder, result: Any, where: Span) -> None:
    """Record the outputs in the order they are returned.

    Raises when a T.empty tensor is lost or something else returned.
    """
    items = [] if result is None else list(result) if isinstance(result, tuple | list) else [result]
    returned: list[Buffer] = []
    for item in items:
        if not isinstance(item, TensorValue) or item.buffer not in builder.outputs:
            raise TileTypeError(
                f"'{builder.name}' returns something that is not an output made by T.empty",
                where,
                hint="a kernel returns the tensors it made with T.empty; what it writes into a "
                "parameter needs no return",
            )
        if item.buffer in returned:
            raise TileValueError(f"the output '{item.buffer.name}' is returned twice", where)
        returned.append(item.buffer)
    for buffer in builder.outputs:
        if buffer not in returned:
            raise TileValueError(
                f"the output '{buffer.name}' made by T.empty is not returned", where
            )
    builder.returned = tuple(returned)


def _symbols(params: Sequence[Param]) -> list[Var]:
    symbols: dict[Var, None] = {}
    for param in params:
        if isinstance(param.value, Buffer) and not param.output:
            for expr in (*param.value.shape, *param.value.strides):
                symbols |= dict.fromkeys(variables(expr))
    return list(symbols)


def _check_bound(body: Stmt, known: set[Var], where: Span) -> None:
    """Raise `TileValueError` for a symbol that nothing gives a value."""
    bound = set(known)
    for stmt in statements(body):
        bound.update(bound_by(stmt))
    for var in variables(body):
        if var not in bound:
            raise TileValueError(
                f"the symbol '{var.name}' has no value: it is no extent or stride of a tensor "
                f"parameter",
                where,
                hint="use it in the shape of a parameter, or pass it as a scalar parameter",
            )


def function_span(fn: Callable[..., Any]) -> Span:
    """The place of `def name(...)`, its first line."""
    located = locate(fn)
    line = located.node.lineno
    text = located.lines[line - 1].rstrip()
    return Span(located.file, line, located.node.col_offset, line, len(text))
