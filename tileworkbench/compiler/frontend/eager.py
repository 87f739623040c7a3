"""Functions whose body is the kernel: traced once for each set of compile-time values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    TileSyntaxError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
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
    ordered_inputs,
    placed_parameter,
    run_trace,
    wrap,
)
from tileworkbench.compiler.frontend.values import Value, describe
from tileworkbench.compiler.ir.expr import Expr, Var
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
        """The type of a torch tensor, a numpy array, a T.Tensor(...) or another `TensorType`."""
        if isinstance(tensor, TensorType):
            return tensor
        if isinstance(tensor, TensorSpec):
            return cls._declared(tensor)
        shape = tuple(int(extent) for extent in tensor.shape)
        stride = getattr(tensor, "stride", None)
        if callable(stride):
            strides = tuple(stride())
        else:
            size = tensor.dtype.itemsize
            strides = tuple(step // size for step in tensor.strides)
        return cls(shape, dtype_name(tensor.dtype), strides)

    @classmethod
    def _declared(cls, spec: TensorSpec) -> TensorType:
        shape = [int(extent) for extent in spec.shape]
        strides = spec.strides
        if strides is None:
            strides = tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))
        if spec.dtype.is_packed and shape:  # as a tensor holds them, two in a byte
            shape[-1] //= 2
            strides = tuple(int(step) // 2 or 1 for step in strides)
        return cls(tuple(shape), str(spec.dtype), tuple(map(int, strides)))


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

    def specialise(self, *args: Any, **values: Any) -> Specialisation:
        """A specialisation from what a compilation is given: arguments as those of a call, or by
        name; a tensor may be a `TensorType` or a T.Tensor(...), and is left out where no T.const is
        read from it. Values of T.const may be given by name too.

        Raises `ArgumentError` for a missing or unknown name.
        """
        given = self._given(args, values)
        arguments: list[tuple[str, Any]] = []
        for name, parameter in self.signature.parameters.items():
            if self.kinds[name] != "constant":
                continue
            value = given.get(name, parameter.default)
            if value is inspect.Parameter.empty:
                raise ArgumentError(
                    f"'{self.name}' needs a value for its compile-time argument '{name}'"
                )
            arguments.append((name, value))
        base = _specialisation(arguments, ())
        readers = self._readers_of(base)
        names = dict.fromkeys(reader.name for reader in readers)
        named = {name: int(values[name]) for name in names if name in values}
        unknown = [n for n in values if n not in names and n not in given]
        if unknown:
            raise ArgumentError(
                f"'{self.name}' has no compile-time argument or constant '{unknown[0]}'"
            )
        places = tuple(given.get(name) for name in self._names)
        rest = (r for r in readers if r.name not in named and given.get(r.parameter) is not None)
        bound = named | dict(self._read_constants(tuple(rest), places))
        missing = [name for name in names if name not in bound]
        if missing:
            raise ArgumentError(f"'{self.name}' needs a value for its constant '{missing[0]}'")
        constants = tuple((name, bound[name]) for name in names)
        return Specialisation(base.arguments, constants, base.types)

    def is_call(self, args: tuple[Any, ...], values: Mapping[str, Any]) -> bool:
        """Whether these are all arguments of a call, with tensors and numbers for what is passed at
        run time.
        """
        given = self._given(args, values)
        required = {
            name
            for name, default in zip(self._names, self._defaults, strict=True)
            if default is inspect.Parameter.empty
        }
        complete = given.keys() >= required and given.keys() >= values.keys()
        return complete and not any(isinstance(v, TensorSpec | Value) for v in given.values())

    def _given(self, args: tuple[Any, ...], values: Mapping[str, Any]) -> dict[str, Any]:
        """What parameters are given, by name."""
        named = {name: value for name, value in values.items() if name in self._names}
        try:
            return dict(self.signature.bind_partial(*args, **named).arguments)
        except TypeError as error:
            raise ArgumentError(f"'{self.name}': {error}") from None

    def constant_names(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of its T.const constants, given every compile-time argument."""
        readers = self._readers_of(_specialisation(list(arguments.items()), ()))
        return tuple(dict.fromkeys(reader.name for reader in readers))

    def _readers_of(self, base: Specialisation) -> tuple[_Reader, ...]:
        """Where each T.const is read, for these compile-time arguments."""
        try:
            known = self._readers.get(base)
        except TypeError as error:
            raise TypeError(
                f"a compile-time argument of '{self.name}' cannot be part of a key: {error}"
            ) from None
        if known is None:
            known = self._collect(base.arguments) if self._in_body else ()
            self._readers[base] = known
        return known

    def _read_constants(
        self, readers: tuple[_Reader, ...], arguments: tuple[Any, ...]
    ) -> tuple[tuple[str, int], ...]:
        values: dict[str, int] = {}
        for reader in readers:
            tensor = arguments[reader.position]
            if tensor is None:
                continue
            try:
                known = tensor
                if reader.stride or isinstance(tensor, TensorSpec):
                    known = TensorType.of(tensor)
                extents = known.strides if reader.stride else known.shape
                value = int(extents[reader.dim]) * reader.packed
            except (AttributeError, IndexError, RuntimeError, TypeError):
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
        try:
            shape = tuple(tensor.shape)
        except AttributeError:
            return ArgumentError(f"{parameter} takes a tensor, not {describe(tensor)}")
        except RuntimeError:  # torch has no numbers for it
            return ArgumentError(
                f"{parameter} has no shape that the constant '{reader.name}' could be read from",
                hint="pass the parts of a nested tensor one by one",
            )
        return ArgumentError(
            f"{parameter} has shape {shape}, and {reader.place} it is the constant '{reader.name}'"
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

        def declare(name: str, annotation: Any) -> TensorValue:
            buffer = make_buffer(builder, name, self._checked(name, annotation))
            builder.inputs[name] = buffer
            return TensorValue(buffer)

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
            builder.inputs = ordered_inputs(self.fn, builder, run_time)
            return finish(builder, result, self.where)

        builder.declare = declare
        program: Program = run_trace(builder, run)
        return program


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
