"""What parameters are declared with: tensors, symbolic extents and constants read from the tensors'
shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.diagnostics import (
    JITNoBuilderError,
    TileRuntimeError,
    TileSyntaxError,
    TileTypeError,
    TileValueError,
    UnsupportedError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.buffers import new_buffer
from tileworkbench.compiler.frontend.builder import Builder, current
from tileworkbench.compiler.frontend.dtypes import is_dtype, to_dtype
from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.compiler.frontend.refusals import NotScalar
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import Operators, Value, describe, extent_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import variables
from tileworkbench.compiler.ir.types import DType


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """`T.Tensor(shape, dtype)`: extents (integers or values) and element type; strides in elements,
    None for row-major.
    """

    shape: tuple[Any, ...]
    dtype: DType
    strides: tuple[Any, ...] | None = None


class TensorFactory:
    """`T.Tensor`:

    `T.Tensor(shape, dtype)`, `T.Tensor[(M, N), dtype]` or `T.Tensor[M, N]` (float32).
    `view(data, shape, dtype)` makes the tensor of `T.Tensor(shape, dtype, data)`.

    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64, 64), T.float16)):
    ...     with T.Kernel(1):
    ...         T.clear(A)
    """

    def __init__(self, view: Callable[[Any, Any, Any], TensorValue]) -> None:
        self._view = view

    @placed_outside
    def __call__(
        self, shape: Any, dtype: Any = "float32", data: Any = None
    ) -> TensorSpec | TensorValue:
        """A contiguous row-major tensor; with `data`, another tensor or its `.data`, inside a
        kernel: a view of that memory.

        `shape` is a sequence, or one extent. Raises `TileTypeError` for a wrong dtype.
        """
        if isinstance(dtype, int | Operators):
            raise TileTypeError(
                f"'T.Tensor' takes a shape and a dtype, and {describe(dtype)} is no dtype",
                hint="give the extents as a tuple, as in T.Tensor((M, N), 'float32')",
            )
        if data is not None:
            return self._view(data, shape, dtype)
        return TensorSpec(as_shape(shape), to_dtype(dtype))

    __iter__ = None  # subscripts that make tensors are no sequence

    @placed_outside
    def __getitem__(self, item: Any) -> TensorSpec | TensorValue:
        items = item if isinstance(item, tuple) else (item,)
        if isinstance(items[0], tuple | list):
            return self(items[0], *items[1:])
        if len(items) > 1 and not isinstance(items[-1], int | Operators) and is_dtype(items[-1]):
            return self(items[:-1], items[-1])
        return self(items)


class StridedTensorFactory:
    """`T.StridedTensor(shape, strides, dtype)`, called or subscripted.

    `view(data, shape, strides, dtype)` makes the tensor of `T.StridedTensor(..., data)`.

    >>> @T.prim_func
    ... def kernel(A: T.StridedTensor((64,), (2,), T.float32)):
    ...     with T.Kernel(1):
    ...         T.clear(A)
    """

    def __init__(self, view: Callable[[Any, Any, Any, Any], TensorValue]) -> None:
        self._view = view

    @placed_outside
    def __call__(
        self, shape: Any, strides: Any, dtype: Any = "float32", data: Any = None
    ) -> TensorSpec | TensorValue:
        """A tensor with strides in elements, which become part of its contract.

        Raises `TileValueError` for a wrong number.
        """
        if data is not None:
            return self._view(data, shape, strides, dtype)
        extents, steps = as_shape(shape), as_shape(strides)
        if len(extents) != len(steps):
            raise TileValueError(
                f"a tensor with {len(extents)} extents needs as many strides, not {len(steps)}"
            )
        return TensorSpec(extents, to_dtype(dtype), steps)

    __iter__ = None  # subscripts that make tensors are no sequence

    @placed_outside
    def __getitem__(self, item: Any) -> TensorSpec | TensorValue:
        if not isinstance(item, tuple) or len(item) not in (2, 3):
            raise TileTypeError("'T.StridedTensor[...]' takes a shape, strides and a dtype")
        return self(*item)


@dataclass(frozen=True, slots=True, eq=False)
class TileSpec:
    """What a macro's parameter is annotated with when it takes a tile of one scope."""

    scope: str
    shape: tuple[Any, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class TileFactory:
    """`T.FragmentBuffer`, `T.SharedBuffer`, `T.LocalBuffer`: annotations that document a macro's
    parameter.

    >>> @T.macro
    ... def double(x: T.FragmentBuffer((64,), T.float32)):
    ...     for i in T.Parallel(64):
    ...         x[i] = x[i] * 2
    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     with T.Kernel(1):
    ...         x = T.alloc_fragment((64,), T.float32)
    ...         T.copy(A, x)
    ...         double(x)
    ...         T.copy(x, A)
    """

    scope: str

    @placed_outside
    def __call__(self, shape: Any, dtype: Any = "float32") -> TileSpec:
        """A tile of `shape`. Raises `TileTypeError` for a wrong shape."""
        return TileSpec(self.scope, as_shape(shape), to_dtype(dtype))

    __iter__ = None

    def __getitem__(self, item: Any) -> TileSpec:
        return self(*item) if isinstance(item, tuple) else self(item)


def as_shape(shape: Any) -> tuple[Any, ...]:
    """A shape given as a sequence or a single extent. Raises `TileTypeError` for anything else."""
    if isinstance(shape, int | Operators):
        return (shape,)
    if isinstance(shape, str | bytes | NotScalar) or not hasattr(shape, "__iter__"):
        raise TileTypeError(
            f"a shape must be an integer or a sequence of integers, not {describe(shape)}"
        )
    return tuple(shape)


def _names(text: Any, construct: str) -> list[str]:
    if not isinstance(text, str):
        raise TileTypeError(f"{construct} takes names in a text, not {describe(text)}")
    names = [name for name in re.split(r"[\s,]+", text.strip()) if name]
    for name in names:
        if not name.isidentifier():
            raise TileValueError(f"'{name}' is not a name that {construct} can take")
    if not names:
        raise TileValueError(f"{construct} needs at least one name")
    return names


def dynamic(names: str, dtype: Any = "int32") -> Any:
    """Symbols for extents that are known when the kernel is called. See `T.dynamic`."""
    kind = to_dtype(dtype)
    if kind not in ("int32", "int64"):
        raise TileTypeError(f"a symbolic extent must be 'int32' or 'int64', not '{kind}'")
    made = tuple(Value(Var(name, kind)) for name in _names(names, "T.dynamic"))
    return made[0] if len(made) == 1 else made


def const(names: str) -> Any:
    """Extents of the tensors of a call, as Python integers. See `T.const`."""
    builder = current("T.const")
    made = tuple(_constant(builder, name) for name in _names(names, "T.const"))
    return made[0] if len(made) == 1 else made


def _constant(builder: Builder, name: str) -> Any:
    if builder.placeholders is not None:
        var = builder.placeholders.setdefault(name, Var(f"const {name}", DType("int32")))
        return Value(var)
    if builder.constants is None:
        raise JITNoBuilderError(
            "'T.const' has a meaning in the body of a @tw.jit kernel only",
            hint="here pass the number as an argument of the enclosing function, or use T.dynamic",
        )
    if name not in builder.constants:
        raise TileValueError(
            f"the constant '{name}' is not an extent or stride of any tensor declared in the body",
            hint=f"declare a parameter with it, as in A: T.Tensor[[{name}], T.float32]",
        )
    return builder.constants[name]


def make_buffer(builder: Builder, name: str, spec: TensorSpec) -> Buffer:
    """The global buffer of a parameter or output `name`.

    Raises `TileValueError` for an illegal extent and `ResourceError` for too large a tensor.
    """
    if spec.dtype.lanes > 1:
        raise UnsupportedError(
            f"the tensor '{name}' of '{spec.dtype}' is not supported yet",
            hint=f"declare it with '{spec.dtype.scalar}' and see it as vectors with T.view",
        )
    shape = tuple(
        _extent(builder, e, f"extent {d} of '{name}'", may_be_zero=True)
        for d, e in enumerate(spec.shape)
    )
    last = build.const_int(shape[-1]) if shape else None
    if spec.dtype.is_packed and (last or 0) % 2:
        raise TileValueError(
            f"the last extent of '{name}' is {last}, and two elements of '{spec.dtype}' share "
            "a byte",
            hint="make it even",
        )
    strides: tuple[Expr, ...] = ()
    if spec.strides is not None:
        strides = tuple(
            _extent(builder, s, f"stride {d} of '{name}'") for d, s in enumerate(spec.strides)
        )
    return new_buffer(name, spec.dtype, shape, "global", strides)


def _extent(builder: Builder, value: Any, what: str, may_be_zero: bool = False) -> Expr:
    expr = extent_expr(value, what, may_be_zero)
    for var in variables(expr):
        known = builder.symbols.get(var.name) or builder.inputs.get(var.name)
        if known is None:
            builder.reserve(var.name)
            builder.symbols[var.name] = var
        elif known is not var:
            raise TileValueError(
                f"'{var.name}' names two different things: a symbolic extent and a parameter or "
                f"other symbol"
            )
    return expr


def empty(shape: tuple[Any, ...], dtype: Any) -> TensorValue:
    """A new output of the kernel. See `T.empty`."""
    builder = current("T.empty")
    if builder.frame.kind != ("kernel" if builder.alone else "function"):
        raise TileValueError(
            "'T.empty' declares an output and must stand before 'with T.Kernel(...)'"
        )
    name = builder.fresh(builder.hint(0, "output"))
    buffer = make_buffer(builder, name, TensorSpec(shape, to_dtype(dtype)))
    builder.outputs.append(buffer)
    return TensorValue(buffer, builder.bind(name, allocated=True))


def workspace(shape: tuple[Any, ...], dtype: DType) -> TensorValue:
    """Global memory that lives as long as one call of the kernel. See `T.alloc_global`."""
    builder = current("T.alloc_global")
    for extent in shape:
        for var in variables(extent_expr(extent, "an extent of T.alloc_global", may_be_zero=True)):
            if var in builder.ranges or var in builder.parallel:
                raise TileValueError(
                    "the extents of T.alloc_global must be known before the launch, and "
                    f"'{var.name}' is not",
                    hint="use the largest extent that a block can need",
                )
    name = builder.fresh(builder.hint(0, "workspace"))
    buffer = make_buffer(builder, name, TensorSpec(shape, dtype))
    builder.workspaces.append(buffer)
    return TensorValue(buffer, builder.bind(name, allocated=True))


def undeclarable(name: str) -> TileSyntaxError:
    """The error of `name: annotation` in a function without such a parameter."""
    return TileSyntaxError(f"'{name}' is declared here, and this function has no such parameter")


@dataclass(frozen=True, slots=True)
class Undeclared(NotScalar):
    """A tensor parameter before the statement of the body that declares it."""

    name: str

    def refuse(self, *_: Any) -> Any:
        """Raise `TileRuntimeError`: the parameter has no type yet."""
        raise TileRuntimeError(
            f"the parameter '{self.name}' is used before the statement that declares it",
            hint=f"move '{self.name}: T.Tensor[...]' to the start of the body",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse()

    __getitem__ = __setitem__ = refuse
