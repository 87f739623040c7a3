"""Functions whose body is the kernel: traced once for each set of compile-time values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    TileSyntaxError,
    TileValueError,
)
from tileworkbench.compiler.frontend.annotations import (
    TensorSpec,
    Undeclared,
    make_buffer,
)
from tileworkbench.compiler.frontend.builder import Builder
from tileworkbench.compiler.frontend.dtypes import dtype_name
from tileworkbench.compiler.frontend.kernel import Declared
from tileworkbench.compiler.frontend.rewritten import rewritten, users_names
from tileworkbench.compiler.frontend.source import FunctionSource, locate, source_of
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.trace import (
    annotation_of,
    declared_in_body,
    finish,
    function_span,
    is_scalar_annotation,
    parameter_span,
    placed_parameter,
    run_trace,
    wrap,
)
from tileworkbench.compiler.frontend.values import Value, describe
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program


@dataclass(frozen=True, slots=True)
class TensorType:
    """What the front end asks of a tensor argument: extents and strides in elements, and the
    dtype's name.
    """

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
    """What one program is traced for: the compile-time arguments, and the values of T.const read
    from the tensors.
    """

    arguments: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[str, int], ...]
    types: tuple[
        type, ...
    ] = ()  # of the arguments: 1, 1.0 and True are equal and trace differently


@dataclass(frozen=True, slots=True)
class _Reader:
    """Where the value of a T.const is found: dimension `dim` of the shape or strides of a tensor.

    `position` is that of the parameter; `packed` the number of elements in one of the tensor's.
    """

    name: str
    parameter: str
    position: int
    dim: int
    stride: bool
    packed: int

    @property
    def place(self) -> str:
        """What a message calls it."""
        return f"{'stride' if self.stride else 'extent'} {self.dim} of"


class EagerFunction:
    """A function whose body is the kernel: traced once for each set of compile-time arguments and
    constants.

    Parameters declared as tensors or dtypes (in the signature, or tensors in the body) are passed
    at run time; all others are compile-time arguments.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.where = function_span(fn)
        self.signature = inspect.signature(fn)
        self._names = tuple(self.signature.parameters)
        self._defaults = tuple(p.default for p in self.signature.parameters.values())
        self._required = sum(default is inspect.Parameter.empty for default in self._defaults)
        self._namespace = users_names(fn)
        self._kinds: dict[str, str] | None = None
        self._readers: dict[Specialisation, tuple[_Reader, ...]] = {}
        self._in_body = declared_in_body(locate(fn).node) & self.signature.parameters.keys()

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

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Specialisation, tuple[Any, ...]]:
        """The specialisation of a call, and its run-time arguments in the order of the program's
        input parameters.

        Raises `ArgumentError` for arguments that do not fit the signature or give a constant two
        values, and `TypeError` for a compile-time argument that cannot be hashed.
        """
        values = self._values(args, kwargs)
        kinds = self.kinds
        arguments: list[tuple[str, Any]] = []
        run_time: list[Any] = []
        for name, value in zip(self._names, values, strict=True):
            if kinds[name] == "constant":
                arguments.append((name, value))
            else:
                run_time.append(value)
        base = _specialisation(arguments, ())
        readers = self._readers_of(base)
        if not readers:
            return base, tuple(run_time)
        constants = self._read_constants(readers, values)
        return Specialisation(base.arguments, constants, base.types), tuple(run_time)

    def _values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The value of every parameter, in order."""
        if not kwargs and self._required <= len(args) <= len(self._names):
            return args + self._defaults[len(args) :]
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"'{self.name}': {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def bind_shapes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Specialisation:
        """The specialisation of a call; see `bind`."""
        return self.bind(args, kwargs)[0]

    def specialise(self, **values: Any) -> Specialisation:
        """A specialisation from names: compile-time arguments and the values of T.const, no
        tensors.

        Raises `ArgumentError` for a missing or unknown name.
        """
        arguments: list[tuple[str, Any]] = []
        for name, parameter in self.signature.parameters.items():
            if self.kinds[name] != "constant":
                continue
            value = values.pop(name, parameter.default)
            if value is inspect.Parameter.empty:
                raise ArgumentError(
                    f"'{self.name}' needs a value for its compile-time argument '{name}'"
                )
            arguments.append((name, value))
        base = _specialisation(arguments, ())
        readers = self._readers_of(base)
        names = dict.fromkeys(reader.name for reader in readers)
        missing = [name for name in names if name not in values]
        if missing:
            raise ArgumentError(f"'{self.name}' needs a value for its constant '{missing[0]}'")
        constants = tuple((name, int(values.pop(name))) for name in names)
        if values:
            raise ArgumentError(
                f"'{self.name}' has no compile-time argument or constant '{next(iter(values))}'"
            )
        return Specialisation(base.arguments, constants, base.types)

    def constant_names(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of its T.const constants, given every compile-time argument."""
        readers = self._readers_of(_specialisation(list(arguments.items()), ()))
        return tuple(dict.fromkeys(reader.name for reader in readers))

    def _readers_of(self, base: Specialisation) -> tuple[_Reader, ...]:
        """Where each T.const is read, for these compile-time arguments."""
        try:
            found = self._readers.get(base)
        except TypeError as error:
            raise TypeError(
                f"a compile-time argument of '{self.name}' cannot be part of a key: {error}"
            ) from None
        if found is None:
            found = self._collect(base.arguments) if self._in_body else ()
            self._readers[base] = found
        return found

    def _read_constants(
        self, readers: tuple[_Reader, ...], arguments: tuple[Any, ...]
    ) -> tuple[tuple[str, int], ...]:
        values: dict[str, int] = {}
        for reader in readers:
            tensor = arguments[reader.position]
            if tensor is None:
                continue
            try:
                extents = TensorType.of(tensor).strides if reader.stride else tensor.shape
                value = int(extents[reader.dim]) * reader.packed
            except (AttributeError, IndexError, TypeError):
                raise self._misfit(reader, tensor) from None
            if values.setdefault(reader.name, value) != value:
                raise self._conflict(reader, readers, values[reader.name], value)
        for reader in readers:
            if reader.name not in values:
                raise self._misfit(reader, None)
        return tuple(values.items())

    def _misfit(self, reader: _Reader, tensor: Any) -> ArgumentError:
        """The error of an argument without the extent that `reader` reads."""
        parameter = f"'{self.name}': the parameter '{reader.parameter}'"
        if not hasattr(tensor, "shape"):
            return ArgumentError(f"{parameter} takes a tensor, not {describe(tensor)}")
        return ArgumentError(
            f"{parameter} has shape {tuple(tensor.shape)}, and {reader.place} it is the constant "
            f"'{reader.name}'"
        )

    def _conflict(
        self, reader: _Reader, readers: tuple[_Reader, ...], old: int, new: int
    ) -> ArgumentError:
        first = next(other for other in readers if other.name == reader.name)
        return ArgumentError(
            f"'{self.name}': the constant '{reader.name}' is {old} in {first.place} "
            f"'{first.parameter}' and {new} in {reader.place} '{reader.parameter}'"
        )

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
            values = {
                name: Undeclared(name) for name, kind in self.kinds.items() if kind != "constant"
            }
            try:
                rewritten(self.fn, self._namespace)(**self._ordered({**values, **dict(arguments)}))
            except Declared:
                return

        builder.declare = declare
        run_trace(builder, run)
        return _find_readers(self._names, specs, builder.placeholders)

    def _checked(self, name: str, annotation: Any) -> TensorSpec:
        if name not in self._in_body or not isinstance(annotation, TensorSpec):
            raise TileSyntaxError(
                f"'{name}' is declared with something that is not a tensor"
                if name in self._in_body
                else f"'{name}' is declared here, and '{self.name}' has no such parameter",
                hint=f"a declaration gives a parameter its type, as in {name}: T.Tensor[[M, N], "
                f"T.float32]",
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
                builder.inputs[name] = placed_parameter(builder, self.fn, name, annotation)
                values[name] = wrap(builder.inputs[name])
            result = rewritten(self.fn, self._namespace)(**self._ordered(values))
            self._order_inputs(builder, run_time, declared)
            return finish(builder, result, self.where)

        builder.declare = declare
        program: Program = run_trace(builder, run)
        return program

    def _order_inputs(
        self, builder: Builder, names: list[str], declared: Mapping[str, Buffer]
    ) -> None:
        inputs = {**builder.inputs, **declared}
        for name in names:
            if name not in inputs:
                raise TileValueError(
                    f"the declaration of the parameter '{name}' was not reached",
                    parameter_span(self.fn, name),
                )
        builder.inputs = {name: inputs[name] for name in names}


def _specialisation(
    arguments: list[tuple[str, Any]], constants: tuple[tuple[str, int], ...]
) -> Specialisation:
    return Specialisation(tuple(arguments), constants, tuple(type(v) for _, v in arguments))


def _find_readers(
    names: tuple[str, ...], specs: Mapping[str, TensorSpec], placeholders: Mapping[str, Var]
) -> tuple[_Reader, ...]:
    """Every place where a T.const stands alone as an extent or stride."""
    constants: dict[Expr, str] = {var: name for name, var in placeholders.items()}
    readers: list[_Reader] = []
    for parameter, spec in specs.items():
        position = names.index(parameter)
        for stride, values in ((False, spec.shape), (True, spec.strides or ())):
            for dim, value in enumerate(values):
                if isinstance(value, Value) and value.expr in constants:
                    # Two 4-bit elements share a byte along the last dimension.
                    last = dim == len(values) - 1 and not stride
                    packed = 2 if spec.dtype.bits == 4 and last else 1
                    name = constants[value.expr]
                    readers.append(_Reader(name, parameter, position, dim, stride, packed))
    return tuple(readers)
