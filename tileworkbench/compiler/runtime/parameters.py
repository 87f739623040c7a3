"""What a kernel expects of its arguments, and how dynamic extents are found in those it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tileworkbench.compiler.analysis.evaluate import WrappedSizeError, exact_size
from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.rewrite import variables
from tileworkbench.compiler.ir.types import DType


@dataclass(frozen=True, slots=True)
class DimSpec:
    """An extent or stride: `constant`, or `coefficient` * `symbol` + `constant`."""

    constant: int = 0
    symbol: str | None = None
    coefficient: int = 1
    dtype: DType | None = None  # of the expression in the kernel, which has to hold the value

    @classmethod
    def of(cls, value: int | str | DimSpec) -> DimSpec:
        """A dimension from an integer, a symbol's name, or itself."""
        if isinstance(value, DimSpec):
            return value
        return cls(symbol=value) if isinstance(value, str) else cls(constant=value)

    def evaluate(self, symbols: Mapping[str, int]) -> int:
        """The value with the symbols known.

        Raises `KeyError` for one that is not, `WrappedSizeError` where the kernel's own arithmetic
        would wrap around.
        """
        if self.symbol is None:
            return self.constant
        size = self.coefficient * symbols[self.symbol] + self.constant
        if self.dtype is not None and size > self.dtype.max_value:
            raise WrappedSizeError(size, self.dtype)
        return size

    def names(self) -> set[str]:
        """The symbols and scalars that the value follows from."""
        return set() if self.symbol is None else {self.symbol}

    def solve(self, value: int) -> int | None:
        """The symbol's value that makes this dimension `value`; None if no natural number does."""
        quotient, remainder = divmod(value - self.constant, self.coefficient)
        return quotient if remainder == 0 and quotient >= 0 else None

    def __str__(self) -> str:
        if self.symbol is None:
            return str(self.constant)
        term = self.symbol if self.coefficient == 1 else f"{self.coefficient}*{self.symbol}"
        if self.constant == 0:
            return term
        return f"{term} {'+' if self.constant > 0 else '-'} {abs(self.constant)}"


_ZERO = int_const(0)


@dataclass(frozen=True, slots=True)
class DerivedDim(DimSpec):
    """Any formula in symbols and scalars, computed and never solved for one of them."""

    formula: Expr = _ZERO

    def evaluate(self, symbols: Mapping[str, int]) -> int:
        return exact_size(self.formula, symbols)

    def names(self) -> set[str]:
        return {var.name for var in variables(self.formula)}

    def __str__(self) -> str:
        return print_expr(self.formula)


Dim = int | str | DimSpec


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter of a kernel, in its signature's order.

    `shape` is for tensors; `strides` (in elements) None means row-major contiguous. The call
    allocates and returns a parameter that `is_output`; its caller passes nothing for it.
    `is_written` says that the kernel stores to it; for one that it never uses
    (not `is_used`) the caller may pass None. A tensor's address must be a multiple of `alignment`
    bytes, and of its elements' size. A scalar whose name is one of the kernel's
    symbols gives that symbol its value.
    """

    name: str
    kind: Literal["tensor", "scalar"]
    dtype: str
    shape: tuple[Dim, ...] = ()
    strides: tuple[Dim, ...] | None = None
    is_output: bool = False
    is_written: bool = False
    is_used: bool = True
    alignment: int = 1

    @property
    def dims(self) -> tuple[DimSpec, ...]:
        """The extents."""
        return tuple(map(DimSpec.of, self.shape))

    @property
    def stride_dims(self) -> tuple[DimSpec, ...] | None:
        """The declared strides."""
        return None if self.strides is None else tuple(map(DimSpec.of, self.strides))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a symbol's value comes from: dimension `axis` of the shape or strides of parameter
    `position`.

    A scalar argument has axis -1.
    """

    symbol: str
    position: int
    axis: int
    is_stride: bool
    dim: DimSpec

    def describe(self, name: str) -> str:
        """In words, for the parameter called `name`."""
        if self.axis < 0:
            return f"'{name}'"
        return f"{'stride' if self.is_stride else 'dimension'} {self.axis} of '{name}'"


def find_sources(
    kernel_name: str,
    parameters: Sequence[ParameterSpec],
    symbols: Sequence[str],
    absent: frozenset[int] = frozenset(),
) -> tuple[Source, ...]:
    """For each symbol the occurrence that determines it: a scalar, else the plainest extent, else a
    stride.

    Only arguments count that the caller passes, and not the parameters `absent`. Raises
    `UnsupportedError` for a symbol that none of the arguments determines, and `ArgumentError` for
    one that only an absent one does.
    """
    sources: dict[str, tuple[tuple[int, ...], Source]] = {}
    for source in _occurrences(parameters):
        if source.position in absent:
            continue
        dim = source.dim
        rank = (source.axis >= 0, source.is_stride, dim.coefficient != 1, dim.constant != 0)
        cost = (*map(int, rank), source.position, source.axis)
        if source.symbol not in sources or cost < sources[source.symbol][0]:
            sources[source.symbol] = (cost, source)
    for symbol in symbols:
        if symbol not in sources and absent:
            (source,) = find_sources(kernel_name, parameters, (symbol,))
            missing = parameters[source.position].name
            raise ArgumentError(
                f"'{kernel_name}': '{missing}' is None, and the kernel reads '{symbol}' from its "
                "shape"
            )
        if symbol not in sources:
            raise UnsupportedError(
                f"'{kernel_name}': no argument determines '{symbol}'",
                hint=f"an extent or a stride of an input must be linear in '{symbol}' alone",
            )
    return tuple(sources[symbol][1] for symbol in symbols)


def _occurrences(parameters: Sequence[ParameterSpec]) -> list[Source]:
    sources: list[Source] = []
    for position, parameter in enumerate(parameters):
        if parameter.is_output:
            continue
        if parameter.kind == "scalar":
            name = parameter.name
            sources.append(Source(name, position, -1, False, DimSpec(symbol=name)))
            continue
        for is_stride, dims in ((False, parameter.dims), (True, parameter.stride_dims or ())):
            for axis, dim in enumerate(dims):
                if dim.symbol is not None and dim.coefficient != 0:
                    sources.append(Source(dim.symbol, position, axis, is_stride, dim))
    return sources
