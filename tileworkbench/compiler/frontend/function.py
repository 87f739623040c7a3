"""Kernel functions: `T.prim_func`, and telling the two styles of `@tw.jit` apart."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from typing import Any

from tileworkbench.compiler.diagnostics import (
    CompileError,
    TileTypeError,
    TileValueError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.annotations import TensorSpec, Undeclared, undeclarable
from tileworkbench.compiler.frontend.builder import Builder
from tileworkbench.compiler.frontend.eager import EagerFunction, Specialisation, TensorType
from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.compiler.frontend.kernel import KernelBlock
from tileworkbench.compiler.frontend.rewritten import names_in_annotations, rewritten, users_names
from tileworkbench.compiler.frontend.source import FunctionSource, locate, source_of
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.trace import (
    annotation_of,
    declared_in_body,
    finish,
    function_span,
    is_scalar_annotation,
    ordered_inputs,
    parameter_span,
    parameter_value,
    placed_parameter,
    run_trace,
    wrap,
)
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Param, Program


@dataclass(frozen=True, eq=False)
class PrimFunc:
    """A traced kernel function whose parameters are all annotated: what `tw.compile` takes."""

    program: Program
    source: FunctionSource  # its text
    defaults: str = ""  # the library's tile sizes in it, and where they come from
    # What made it, for another target: a kernel of the library has tile sizes for each.
    remake: Callable[[str | None], PrimFunc] | None = field(default=None, repr=False)

    def for_target(self, target: str | None) -> PrimFunc:
        """What is compiled for a target: itself, unless what made it has other defaults there."""
        return self if self.remake is None else self.remake(target)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.program.name

    @property
    def params(self) -> tuple[Param, ...]:
        """Its parameters, outputs made by T.empty last."""
        return self.program.params

    @property
    def attrs(self) -> dict[str, Any]:
        """What is known of it beside its body: its name, that it launches something, and the
        parameters that a call returns, if any, counted from the end.
        """
        known: dict[str, Any] = {"global_symbol": self.name, "tir.is_global_func": True}
        if self.program.returns:
            known["tilelang_out_idx"] = [i - len(self.params) for i in self.program.returns]
        return known

    @property
    def buffer_map(self) -> dict[Param, TensorValue]:
        """The tensors among its parameters: shape, dtype, strides and name by parameter."""
        return {
            param: TensorValue(param.value)
            for param in self.params
            if isinstance(param.value, Buffer)
        }

    def script(self) -> str:
        """The traced program as text."""
        return print_program(self.program)

    @placed_outside
    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TileTypeError(
            f"'{self.name}' is a T.prim_func and has to be compiled before it is called",
            hint=f"tw.compile({self.name}), or return it from a function decorated with @tw.jit",
        )

    __str__ = script

    def __repr__(self) -> str:
        return f"<prim_func {self.name}({', '.join(param.name for param in self.params)})>"


def prim_func(fn: Callable[..., Any], launches: bool = True) -> PrimFunc:
    """Trace `fn` now. Every parameter needs a tensor or dtype annotation, in the signature or in
    the body; see `T.prim_func`. Unless `launches` is True, a function without a launch is one block
    of one thread.
    """
    tracing = _PrimFuncTrace(fn)
    try:
        return PrimFunc(tracing.program(), source_of(fn))
    except CompileError as error:
        if launches or tracing.builder.launched:
            raise
        first = error
    tracing = _PrimFuncTrace(fn, alone=True)
    try:
        return PrimFunc(tracing.program(), source_of(fn))
    except CompileError:
        if tracing.builder.launched:  # it has launches, and does not come to the first of them
            raise first from None
        raise


class _PrimFuncTrace:
    """One trace of a prim_func; where it is `alone` all of it is the body of one launch."""

    def __init__(self, fn: Callable[..., Any], alone: bool = False) -> None:
        self.fn, self.namespace = fn, users_names(fn)
        self.where = function_span(fn)
        self.builder = Builder(fn.__name__)
        self.builder.alone = alone
        self.builder.at(self.where)
        self.names = tuple(inspect.signature(fn).parameters)
        self.in_body = declared_in_body(locate(fn).node) & set(self.names)

    def program(self) -> Program:
        """The traced program."""
        made: Program = run_trace(self.builder, self._run)
        return made

    def _run(self) -> Program:
        builder = self.builder
        for name in self.names:
            builder.reserve(name)
        annotations = {n: self._annotation(n) for n in self.names if n not in self.in_body}
        arguments: dict[str, Any] = {name: Undeclared(name) for name in self.in_body}
        # Scalars first: the extent of a tensor in front of one may have its name.
        for name in sorted(annotations, key=lambda n: isinstance(annotations[n], TensorSpec)):
            builder.inputs[name] = placed_parameter(builder, self.fn, name, annotations[name])
            arguments[name] = wrap(builder.inputs[name])
        builder.declare = self._declare
        function = rewritten(self.fn, self.namespace)
        with KernelBlock((), 1, None) if builder.alone else nullcontext():
            builder.launched = False
            result = function(**{name: arguments[name] for name in self.names})
        builder.inputs = ordered_inputs(self.fn, builder, self.names)
        return finish(builder, result, self.where)

    def _annotation(self, name: str) -> Any:
        annotation = annotation_of(self.fn, name, self.namespace)
        if not isinstance(annotation, TensorSpec) and not is_scalar_annotation(annotation):
            raise TileTypeError(
                f"the parameter '{name}' of the prim_func '{self.fn.__name__}' needs a tensor or "
                f"dtype annotation",
                parameter_span(self.fn, name),
                hint=f"write {name}: T.Tensor((M, N), T.float32) for a tensor, {name}: "
                f"T.int32 for a scalar",
            )
        return annotation

    def _declare(self, name: str, annotation: Any) -> Any:
        """`name: annotation` in the body."""
        if name not in self.in_body:
            raise undeclarable(name)
        if not isinstance(annotation, TensorSpec) and not is_scalar_annotation(annotation):
            raise TileTypeError(
                f"'{name}' is declared with something that is neither a tensor nor a dtype",
                hint=f"write {name}: T.Tensor((M, N), T.float32) for a tensor, {name}: "
                f"T.int32 for a scalar",
            )
        self.builder.inputs[name] = parameter_value(self.builder, name, annotation)
        return wrap(self.builder.inputs[name])


_TENSORS = frozenset({"Tensor", "StridedTensor"})


def is_lazy(fn: Callable[..., Any]) -> bool:
    """Whether a @tw.jit function returns a `PrimFunc`, instead of being a kernel itself."""
    node = locate(fn).node
    for child in ast.walk(node):
        if child is not node and isinstance(child, ast.FunctionDef):
            for decorator in child.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                if (
                    isinstance(target, ast.Name | ast.Attribute)
                    and _last_name(target) == "prim_func"
                ):
                    return True
    calls = {
        _last_name(c.func)
        for c in ast.walk(node)
        if isinstance(c, ast.Call) and isinstance(c.func, ast.Name | ast.Attribute)
    }
    if calls & {"Kernel", "empty", "const"} or declared_in_body(node):
        return False
    return not names_in_annotations(node) & _TENSORS


def _last_name(node: ast.Name | ast.Attribute) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def with_outputs(program: Program, out_idx: int | Sequence[int] | None) -> Program:
    """`program` with the tensor parameters at `out_idx` allocated and returned, in that order;
    negative ones count from the end.

    Raises `TileValueError` for an index out of range, a scalar, a repetition, or a program that
    returns tensors already.
    """
    if out_idx is None:
        return program
    indices = [out_idx] if isinstance(out_idx, int) else out_idx
    if not isinstance(indices, Sequence) or not all(isinstance(index, int) for index in indices):
        raise TileTypeError(f"out_idx must be an integer or a list of them, not {out_idx!r}")
    if program.returns:
        raise TileValueError(
            f"Out index conflict: '{program.name}' returns tensors made by T.empty and out_idx "
            f"is given too",
            hint="use one of the two",
        )
    count = sum(not param.output for param in program.params)  # workspaces come last
    chosen: list[int] = []
    for index in indices:
        place = index + count if index < 0 else index
        if not 0 <= place < count:
            raise TileValueError(
                f"out_idx {index} is out of range: '{program.name}' has {count} parameters"
            )
        if not isinstance(program.params[place].value, Buffer):
            raise TileValueError(
                f"out_idx {index} is the scalar parameter '{program.params[place].name}', not a "
                f"tensor"
            )
        if place in chosen:
            raise TileValueError(
                f"out_idx names the parameter '{program.params[place].name}' twice"
            )
        chosen.append(place)
    params = tuple(
        replace(p, output=True) if i in chosen else p for i, p in enumerate(program.params)
    )
    return replace(program, params=params, returns=tuple(chosen))


__all__ = [
    "EagerFunction",
    "PrimFunc",
    "Specialisation",
    "TensorType",
    "is_lazy",
    "prim_func",
    "source_of",
    "with_outputs",
]
