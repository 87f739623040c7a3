"""Kernel functions: `T.prim_func`, the eager body of `@tw.jit`, and `T.macro`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    Span,
    TileSyntaxError,
    TileTypeError,
    TileValueError,
)
from tileworkbench.compiler.frontend.annotations import (
    TensorSpec,
    Undeclared,
    make_buffer,
)
from tileworkbench.compiler.frontend.builder import Builder, current, tracing
from tileworkbench.compiler.frontend.control import let
from tileworkbench.compiler.frontend.dtypes import dtype_name, is_dtype, to_dtype
from tileworkbench.compiler.frontend.errors import placed
from tileworkbench.compiler.frontend.kernel import Declared
from tileworkbench.compiler.frontend.rewritten import resolve_annotation, rewritten, users_names
from tileworkbench.compiler.frontend.source import FunctionSource, locate, source_of
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import Value, VarCell
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.rewrite import variables, walk
from tileworkbench.compiler.ir.stmt import For, Kernel, Let, Stmt
from tileworkbench.compiler.ir.tile import Parallel, Pipelined

# Classification of parameters ----------------------------------------------------------------------------------------


def annotation_of(fn: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> Any:
    """The annotation of a parameter, None without one."""
    annotation = inspect.get_annotations(fn).get(name)
    return None if annotation is None else resolve_annotation(fn, annotation, namespace)


def is_scalar_annotation(annotation: Any) -> bool:
    """Whether an annotation makes a parameter a run-time scalar: a dtype, but none of Python's own types."""
    if isinstance(annotation, type) or annotation is None or isinstance(annotation, TensorSpec):
        return False
    return is_dtype(annotation)


def _parameter_value(builder: Builder, name: str, annotation: Any) -> Buffer | Var:
    """What parameter `name` is in the program; its name is reserved already."""
    if isinstance(annotation, TensorSpec):
        return make_buffer(builder, name, annotation)
    dtype = to_dtype(annotation)
    if dtype.kind == "handle" or dtype.lanes > 1:
        from tileworkbench.compiler.diagnostics import UnsupportedError

        raise UnsupportedError(f"the parameter '{name}' of type '{dtype}' is not supported yet")
    return Var(name, dtype)


def _wrap(value: Buffer | Var) -> TensorValue | Value:
    return TensorValue(value) if isinstance(value, Buffer) else Value(value)


# Tracing -------------------------------------------------------------------------------------------------------------


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
    body = builder.pop(frame)
    if not any(isinstance(node, Kernel) for node in walk(body)):
        raise TileValueError(
            f"'{builder.name}' contains no 'with T.Kernel(...)' block", where, hint="a kernel function launches at least one grid"
        )
    params = [Param(value) for value in builder.inputs.values()]
    params += [Param(buffer, output=True) for buffer in builder.outputs]
    returns = tuple(len(builder.inputs) + builder.outputs.index(buffer) for buffer in builder.returned or ())
    scalars = {param.value for param in params if isinstance(param.value, Var)}
    symbols = tuple(var for var in _symbols(params) if var not in scalars)
    _check_bound(body, {*symbols, *scalars}, where)
    safe_values = tuple(builder.safe_values.items())
    return Program(
        builder.name, tuple(params), symbols, body, returns=returns, safe_values=safe_values, sites=tuple(builder.sites)
    )


def _check_returned(builder: Builder, result: Any, where: Span) -> None:
    """Record the outputs in the order they are returned. Raises when a T.empty tensor is lost or something else returned."""
    items = [] if result is None else list(result) if isinstance(result, tuple | list) else [result]
    returned: list[Buffer] = []
    for item in items:
        if not isinstance(item, TensorValue) or item.buffer not in builder.outputs:
            raise TileTypeError(
                f"'{builder.name}' returns something that is not an output made by T.empty",
                where,
                hint="a kernel returns the tensors it made with T.empty; what it writes into a parameter needs no return",
            )
        if item.buffer in returned:
            raise TileValueError(f"the output '{item.buffer.name}' is returned twice", where)
        returned.append(item.buffer)
    for buffer in builder.outputs:
        if buffer not in returned:
            raise TileValueError(f"the output '{buffer.name}' made by T.empty is not returned", where)
    builder.returned = tuple(returned)


def _symbols(params: Sequence[Param]) -> list[Var]:
    found: dict[Var, None] = {}
    for param in params:
        if isinstance(param.value, Buffer) and not param.output:
            for expr in (*param.value.shape, *param.value.strides):
                found |= dict.fromkeys(variables(expr))
    return list(found)


def _check_bound(body: Stmt, known: set[Var], where: Span) -> None:
    """Raise `TileValueError` for a symbol that nothing gives a value."""
    bound = set(known)
    for node in walk(body):
        if isinstance(node, Let | For | Pipelined):
            bound.add(node.var)
        elif isinstance(node, Kernel | Parallel):
            bound.update(node.vars)
    for var in variables(body):
        if var not in bound:
            raise TileValueError(
                f"the symbol '{var.name}' has no value: it is no extent or stride of a tensor parameter",
                where,
                hint="use it in the shape of a parameter, or pass it as a scalar parameter",
            )


def function_span(fn: Callable[..., Any]) -> Span:
    """The place of `def name(...)`, its first line."""
    located = locate(fn)
    line = located.node.lineno
    text = located.lines[line - 1].rstrip()
    return Span(located.file, line, located.node.col_offset, line, len(text))


# T.prim_func ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PrimFunc:
    """A traced kernel function whose parameters are all annotated: what `tw.compile` takes."""

    fn: Callable[..., Any]
    program: Program

    @property
    def name(self) -> str:
        """The function's name."""
        return self.program.name

    @property
    def params(self) -> tuple[Param, ...]:
        """Its parameters, outputs made by T.empty last."""
        return self.program.params

    @property
    def source(self) -> FunctionSource:
        """Its text."""
        return source_of(self.fn)

    def script(self) -> str:
        """The traced program as text."""
        return print_program(self.program)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TileTypeError(
            f"'{self.name}' is a T.prim_func and has to be compiled before it is called",
            hint=f"tw.compile({self.name}), or return it from a function decorated with @tw.jit",
        )

    def __repr__(self) -> str:
        return f"<prim_func {self.name}({', '.join(param.name for param in self.params)})>"


def prim_func(fn: Callable[..., Any]) -> PrimFunc:
    """Trace `fn` now. Every parameter needs a tensor or dtype annotation; see `T.prim_func`."""
    namespace = users_names()
    where = function_span(fn)
    builder = Builder(fn.__name__)
    builder.at(where)
    signature = inspect.signature(fn)

    def run() -> Program:
        for name in signature.parameters:
            builder.reserve(name)
        for name in signature.parameters:
            annotation = annotation_of(fn, name, namespace)
            if not isinstance(annotation, TensorSpec) and not is_scalar_annotation(annotation):
                raise TileTypeError(
                    f"the parameter '{name}' of the prim_func '{fn.__name__}' needs a tensor or dtype annotation",
                    parameter_span(fn, name),
                    hint=f"write {name}: T.Tensor((M, N), T.float32) for a tensor, {name}: T.int32 for a scalar",
                )
            builder.inputs[name] = _parameter_value(builder, name, annotation)
        arguments = {name: _wrap(value) for name, value in builder.inputs.items()}
        result = rewritten(fn, namespace)(**arguments)
        return finish(builder, result, where)

    return PrimFunc(fn, run_trace(builder, run))


def parameter_span(fn: Callable[..., Any], name: str) -> Span:
    """The place of a parameter in the `def` line."""
    located = locate(fn)
    arguments = located.node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return next((located.span(a) for a in every if a.arg == name), function_span(fn))


# Eager kernels -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorType:
    """What the front end asks of a tensor argument: extents and strides in elements, and the dtype's name."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Any) -> TensorType:
        """The type of a torch tensor, a numpy array or another `TensorType`."""
        if isinstance(tensor, TensorType):
            return tensor
        shape = tuple(int(extent) for extent in tensor.shape)
        stride = getattr(tensor, "stride", None)
        if callable(stride):
            strides = tuple(stride())
        else:
            size = tensor.dtype.itemsize
            strides = tuple(step // size for step in tensor.strides)
        return cls(shape, dtype_name(tensor.dtype), strides)


@dataclass(frozen=True, slots=True)
class Specialisation:
    """What one program is traced for: the compile-time arguments, and the values of T.const read from the tensors."""

    arguments: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Where the value of a T.const is found: dimension `dim` of the shape or strides of a parameter."""

    name: str
    parameter: str
    dim: int
    stride: bool


class EagerFunction:
    """A function whose body is the kernel: traced once for each set of compile-time arguments and constants.

    Parameters declared as tensors or dtypes (in the signature, or tensors in the body) are passed at run time; all others
    are compile-time arguments.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.where = function_span(fn)
        self.signature = inspect.signature(fn)
        self._namespace = users_names()
        self._kinds: dict[str, str] | None = None
        self._readers: dict[tuple[tuple[str, Any], ...], tuple[_Reader, ...]] = {}
        self._in_body = _declared_in_body(locate(fn).node) & self.signature.parameters.keys()

    @property
    def source(self) -> FunctionSource:
        """Its text."""
        return source_of(self.fn)

    @property
    def kinds(self) -> dict[str, str]:
        """Each parameter's kind: "tensor", "scalar" (both passed at run time) or "constant"."""
        if self._kinds is None:
            self._kinds = {name: self._kind(name) for name in self.signature.parameters}
        return self._kinds

    def _kind(self, name: str) -> str:
        if name in self._in_body:
            return "tensor"
        annotation = annotation_of(self.fn, name, self._namespace)
        if isinstance(annotation, TensorSpec):
            return "tensor"
        return "scalar" if is_scalar_annotation(annotation) else "constant"

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Specialisation, tuple[Any, ...]]:
        """The specialisation of a call, and its run-time arguments in the order of the program's input parameters.

        Raises `ArgumentError` for arguments that do not fit the signature or give a constant two values, and `TypeError`
        for a compile-time argument that cannot be hashed.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"'{self.name}': {error}") from None
        bound.apply_defaults()
        kinds = self.kinds
        arguments = tuple((n, v) for n, v in bound.arguments.items() if kinds[n] == "constant")
        run_time = tuple(v for n, v in bound.arguments.items() if kinds[n] != "constant")
        constants = self._read_constants(self.readers(arguments), bound.arguments)
        return Specialisation(arguments, constants), run_time

    def bind_shapes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Specialisation:
        """The specialisation of a call; see `bind`."""
        return self.bind(args, kwargs)[0]

    def specialise(self, **values: Any) -> Specialisation:
        """A specialisation from names: compile-time arguments and the values of T.const, no tensors.

        Raises `ArgumentError` for a missing or unknown name.
        """
        arguments: list[tuple[str, Any]] = []
        for name, parameter in self.signature.parameters.items():
            if self.kinds[name] != "constant":
                continue
            value = values.pop(name, parameter.default)
            if value is inspect.Parameter.empty:
                raise ArgumentError(f"'{self.name}' needs a value for its compile-time argument '{name}'")
            arguments.append((name, value))
        readers = self.readers(tuple(arguments))
        names = dict.fromkeys(reader.name for reader in readers)
        missing = [name for name in names if name not in values]
        if missing:
            raise ArgumentError(f"'{self.name}' needs a value for its constant '{missing[0]}'")
        constants = tuple((name, int(values.pop(name))) for name in names)
        if values:
            raise ArgumentError(f"'{self.name}' has no compile-time argument or constant '{next(iter(values))}'")
        return Specialisation(tuple(arguments), constants)

    def readers(self, arguments: tuple[tuple[str, Any], ...]) -> tuple[_Reader, ...]:
        """Where each T.const is read, for these compile-time arguments."""
        if not self._in_body:
            return ()
        try:
            found = self._readers.get(arguments)
        except TypeError as error:
            raise TypeError(f"a compile-time argument of '{self.name}' cannot be part of a key: {error}") from None
        if found is None:
            found = self._readers[arguments] = self._collect(arguments)
        return found

    def _read_constants(
        self, readers: tuple[_Reader, ...], arguments: Mapping[str, Any]
    ) -> tuple[tuple[str, int], ...]:
        types: dict[str, TensorType] = {}
        values: dict[str, int] = {}
        sources: dict[str, str] = {}
        for reader in readers:
            if reader.parameter not in types:
                types[reader.parameter] = _tensor_type(self.name, reader.parameter, arguments[reader.parameter])
            extents = types[reader.parameter].strides if reader.stride else types[reader.parameter].shape
            what = f"{'stride' if reader.stride else 'extent'} {reader.dim} of '{reader.parameter}'"
            if reader.dim >= len(extents):
                raise ArgumentError(
                    f"'{self.name}': '{reader.parameter}' has {len(extents)} dimensions, and {what} is the constant '{reader.name}'"
                )
            value = extents[reader.dim]
            if values.setdefault(reader.name, value) != value:
                raise ArgumentError(
                    f"'{self.name}': the constant '{reader.name}' is {values[reader.name]} in {sources[reader.name]} "
                    f"and {value} in {what}"
                )
            sources.setdefault(reader.name, what)
        return tuple(values.items())

    # Traces

    def _collect(self, arguments: tuple[tuple[str, Any], ...]) -> tuple[_Reader, ...]:
        """Run the body up to its last declaration, with T.const as placeholders."""
        builder = Builder(self.name)
        builder.at(self.where)
        builder.placeholders = {}
        specs: dict[str, TensorSpec] = {}

        def declare(name: str, annotation: Any) -> Any:
            specs[name] = self._checked(name, annotation)
            if specs.keys() >= self._in_body:
                raise Declared
            return Undeclared(name)

        def run() -> None:
            values = {name: Undeclared(name) for name, kind in self.kinds.items() if kind != "constant"}
            try:
                rewritten(self.fn, self._namespace)(**self._ordered({**values, **dict(arguments)}))
            except Declared:
                return

        builder.declare = declare
        run_trace(builder, run)
        return _readers_of(specs, builder.placeholders)

    def _checked(self, name: str, annotation: Any) -> TensorSpec:
        if name not in self._in_body or not isinstance(annotation, TensorSpec):
            raise TileSyntaxError(
                f"'{name}' is declared with something that is not a tensor"
                if name in self._in_body
                else f"'{name}' is declared here, and '{self.name}' has no such parameter",
                hint=f"a declaration gives a parameter its type, as in {name}: T.Tensor[[M, N], T.float32]",
            )
        return annotation

    def _ordered(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values[name] for name in self.signature.parameters}

    def trace(self, specialisation: Specialisation) -> Program:
        """The program for one specialisation; the tensors it returns are output parameters."""
        builder = Builder(self.name)
        builder.at(self.where)
        builder.constants = dict(specialisation.constants)
        run_time = [name for name, kind in self.kinds.items() if kind != "constant"]
        declared: dict[str, Buffer] = {}

        def declare(name: str, annotation: Any) -> TensorValue:
            spec = self._checked(name, annotation)
            declared[name] = make_buffer(builder, name, spec)
            return TensorValue(declared[name])

        def run() -> Program:
            for name in run_time:
                builder.reserve(name)
            values: dict[str, Any] = dict(specialisation.arguments)
            for name in run_time:
                if name in self._in_body:
                    values[name] = Undeclared(name)
                    continue
                annotation = annotation_of(self.fn, name, self._namespace)
                builder.inputs[name] = _parameter_value(builder, name, annotation)
                values[name] = _wrap(builder.inputs[name])
            result = rewritten(self.fn, self._namespace)(**self._ordered(values))
            self._order_inputs(builder, run_time, declared)
            return finish(builder, result, self.where)

        builder.declare = declare
        program: Program = run_trace(builder, run)
        return program

    def _order_inputs(self, builder: Builder, names: list[str], declared: Mapping[str, Buffer]) -> None:
        inputs = {**builder.inputs, **declared}
        for name in names:
            if name not in inputs:
                raise TileValueError(f"the declaration of the parameter '{name}' was not reached", parameter_span(self.fn, name))
        builder.inputs = {name: inputs[name] for name in names}


def _tensor_type(function: str, parameter: str, value: Any) -> TensorType:
    try:
        return TensorType.of(value)
    except (AttributeError, TypeError):
        raise ArgumentError(f"'{function}': the parameter '{parameter}' takes a tensor, not a '{type(value).__name__}'") from None


def _readers_of(specs: Mapping[str, TensorSpec], placeholders: Mapping[str, Var]) -> tuple[_Reader, ...]:
    """Every place where a T.const stands alone as an extent or stride. Raises `TileValueError` for one that never does."""
    names: dict[Expr, str] = {var: name for name, var in placeholders.items()}
    readers: list[_Reader] = []
    for parameter, spec in specs.items():
        for stride, values in ((False, spec.shape), (True, spec.strides or ())):
            for dim, value in enumerate(values):
                if isinstance(value, Value) and value.expr in names:
                    readers.append(_Reader(names[value.expr], parameter, dim, stride))
    return tuple(readers)


def _declared_in_body(node: ast.FunctionDef) -> set[str]:
    """The names that statements like `A: T.Tensor[...]` declare."""
    return {
        child.target.id
        for child in ast.walk(node)
        if isinstance(child, ast.AnnAssign) and child.value is None and isinstance(child.target, ast.Name)
    }


def is_lazy(fn: Callable[..., Any]) -> bool:
    """Whether a @tw.jit function builds and returns a `PrimFunc`, instead of being a kernel itself."""
    node = locate(fn).node
    for child in ast.walk(node):
        if child is not node and isinstance(child, ast.FunctionDef):
            for decorator in child.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(target, ast.Name | ast.Attribute) and _last_name(target) == "prim_func":
                    return True
    calls = {_last_name(c.func) for c in ast.walk(node) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name | ast.Attribute)}
    return not (calls & {"Kernel", "empty", "const"} or _declared_in_body(node))


def _last_name(node: ast.Name | ast.Attribute) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def with_outputs(program: Program, out_idx: int | Sequence[int] | None) -> Program:
    """`program` with the tensor parameters at `out_idx` allocated and returned, in that order; negative ones count from the end.

    Raises `TileValueError` for an index out of range, a scalar, a repetition, or a program that returns tensors already.
    """
    if out_idx is None:
        return program
    indices = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    if program.returns:
        raise TileValueError(
            f"Out index conflict: '{program.name}' returns tensors made by T.empty and out_idx is given too",
            hint="use one of the two",
        )
    count = len(program.params)
    chosen: list[int] = []
    for index in indices:
        place = index + count if index < 0 else index
        if not 0 <= place < count:
            raise TileValueError(f"out_idx {index} is out of range: '{program.name}' has {count} parameters")
        if not isinstance(program.params[place].value, Buffer):
            raise TileValueError(f"out_idx {index} is the scalar parameter '{program.params[place].name}', not a tensor")
        if place in chosen:
            raise TileValueError(f"out_idx names the parameter '{program.params[place].name}' twice")
        chosen.append(place)
    params = tuple(replace(p, output=True) if i in chosen else p for i, p in enumerate(program.params))
    return replace(program, params=params, returns=tuple(chosen))


# T.macro -------------------------------------------------------------------------------------------------------------


class Reference:
    """Base of the annotations that pass a variable of T.alloc_var into a macro by reference: `T.Ref`, `T.Var`."""

    def __class_getitem__(cls, item: Any) -> type[Reference]:
        return cls


class Macro:
    """A function inlined where it is called; its names are its own."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__
        self._namespace = users_names()
        self._signature = inspect.signature(fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = current(f"the macro '{self.fn.__name__}'")
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if isinstance(value, VarCell) and not self._by_reference(name):
                bound.arguments[name] = let(builder, name, value.load())
        saved = builder.checkpoint()
        result = rewritten(self.fn, self._namespace)(*bound.args, **bound.kwargs)
        builder.restore(saved)
        return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A macro that is a method receives its object first."""
        return self if instance is None else lambda *args, **kwargs: self(instance, *args, **kwargs)

    def _by_reference(self, name: str) -> bool:
        annotation = annotation_of(self.fn, name, self._namespace)
        return isinstance(annotation, type) and issubclass(annotation, Reference)
