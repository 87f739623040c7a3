"""Checking the arguments of a call: all that does not depend on where they lie in memory.

Every error is an `ArgumentError` that names kernel and parameter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from tileworkbench.compiler.analysis.evaluate import WIDER, WrappedSizeError
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.sizes import MOST_BYTES
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.runtime.arrays import (
    PACKED,
    ArrayView,
    array_maker,
    element_view,
    storage_dtypes,
    view_array,
)
from tileworkbench.compiler.runtime.dlpack import contiguous_strides
from tileworkbench.compiler.runtime.parameters import (
    DimSpec,
    ParameterSpec,
    Source,
    find_sources,
)
from tileworkbench.compiler.runtime.scalars import Encoder, scalar_encoder


class Plan(NamedTuple):
    """What is the same for all calls with arguments of one form.

    `pairs` are the tensors that must not overlap: positions among the passed arguments with their
    byte ranges, and whether they may be the very same tensor. `outputs` are slots with what makes
    their arrays, and the bytes of each. `written` are the positions and names of torch's tensors
    that the kernel writes to, `gradients` the names of those that require grad.
    """

    symbols: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]
    pairs: tuple[tuple[int, int, int, int, int, int, bool], ...]
    outputs: tuple[tuple[int, Callable[[], Any], int], ...]
    device: str
    written: tuple[tuple[int, str], ...]
    gradients: tuple[str, ...]


class Argument(NamedTuple):
    """A parameter that the caller passes: its position in the signature, and how to encode it if a
    scalar."""

    slot: int
    spec: ParameterSpec
    encode: Encoder | None
    is_in_key: bool


class ArgumentChecker:
    """Checks calls of one compiled kernel; the parameters are those of `ArgumentBinder`.

    Raises `UnsupportedError` for a symbol that no argument determines.
    """

    def __init__(
        self,
        kernel_name: str,
        parameters: tuple[ParameterSpec, ...],
        symbols: Mapping[str, DType],
        *,
        allow_alias: bool,
        elementwise_alias_ok: bool,
        device: str,
    ) -> None:
        self.kernel_name = kernel_name
        self.parameters, self.symbols = parameters, tuple(symbols)
        self._dtypes = symbols
        self._allows_alias = allow_alias
        self._allows_same_tensor = elementwise_alias_ok
        self._device = device
        self.sources = find_sources(kernel_name, parameters, self.symbols)
        self.read_scalars = self._scalars_of_extents()
        self.arguments = tuple(
            self._argument(slot, spec)
            for slot, spec in enumerate(parameters)
            if not spec.is_output
        )

    def _argument(self, slot: int, spec: ParameterSpec) -> Argument:
        if spec.kind == "tensor":
            return Argument(slot, spec, None, is_in_key=True)
        encode = scalar_encoder(self.where(spec), spec.dtype)
        is_in_key = spec.name in self.symbols or slot in self.read_scalars
        return Argument(slot, spec, encode, is_in_key)

    def _scalars_of_extents(self) -> dict[int, str]:
        """The scalar parameters that extents and strides are written in, by slot."""
        dims = [dim for spec in self.parameters for dim in (*spec.dims, *(spec.stride_dims or ()))]
        read = {name for dim in dims for name in dim.names()} - set(self.symbols)
        return {
            slot: spec.name
            for slot, spec in enumerate(self.parameters)
            if spec.kind == "scalar" and spec.name in read
        }

    def plan(self, args: Sequence[Any], slots: list[int]) -> Plan:
        """Check `args`, whose scalars are in `slots`. Raises `ArgumentError`."""
        views: dict[int, ArrayView] = {}
        for argument, value in zip(self.arguments, args, strict=True):
            if argument.encode is None and not (value is None and not argument.spec.is_used):
                views[argument.slot] = view = self.view(argument.spec, value)
                self._check_fixed(argument.spec, view)
        device = self._common_device(views)
        torches = {slot: view.owner for slot, view in views.items() if view.kind == "torch"}
        elements = {s: element_view(v, self.parameters[s].dtype) for s, v in views.items()}
        passed = frozenset(argument.slot for argument in self.arguments if argument.encode is None)
        absent = passed - views.keys()
        sources = self.sources
        if absent:
            sources = find_sources(self.kernel_name, self.parameters, self.symbols, absent)
        symbols = self._solve(sources, elements, slots)
        known = {**symbols, **{name: slots[slot] for slot, name in self.read_scalars.items()}}
        for slot, view in elements.items():
            self._check_extents(slot, view, known, sources)
            self._check_strides(self.parameters[slot], view, known)
        return Plan(
            symbols=tuple(symbols.values()),
            masks=tuple(self._masks(views)),
            pairs=self._pairs(views),
            outputs=self._output_makers(known, views, device),
            device=device,
            written=tuple(
                (at, argument.spec.name)
                for at, argument in enumerate(self.arguments)
                if argument.spec.is_written and argument.slot in torches
            ),
            gradients=tuple(
                self.parameters[slot].name for slot, value in torches.items() if value.requires_grad
            ),
        )

    def _masks(self, views: dict[int, ArrayView]) -> Iterator[tuple[int, int]]:
        """The bits of addresses that must be zero."""
        for slot, view in views.items():
            alignment = max(view.itemsize, self.parameters[slot].alignment)
            if alignment > 1:
                yield slot, alignment - 1

    def view(self, spec: ParameterSpec, value: Any) -> ArrayView:
        """An argument as a tensor on the kernel's device. Raises `ArgumentError`."""
        try:
            view = view_array(value, self._device)
        except ArgumentError as error:
            raise ArgumentError(f"{self.where(spec)} {error.message}", error.hint) from None
        if view is None:
            raise ArgumentError(
                f"{self.where(spec)} must be a tensor, not '{type(value).__name__}'",
                hint="a torch tensor, a numpy array, or anything with DLPack",
            )
        if view.device.partition(":")[0] != self._device:
            raise ArgumentError(
                f"{self.where(spec)} is on device '{view.device}', expected '{self._device}'"
            )
        return view

    def _check_fixed(self, spec: ParameterSpec, view: ArrayView) -> None:
        """What the declaration alone decides: dtype, rank, writability."""
        where, accepted = self.where(spec), storage_dtypes(spec.dtype)
        if view.dtype not in accepted:
            expected = _expected(accepted, view.kind)
            convert = f".to(torch.{expected})" if view.kind == "torch" else f".astype('{expected}')"
            raise ArgumentError(
                f"{where} has dtype '{view.dtype}', expected '{expected}'",
                hint=f"convert it with {convert}",
            )
        if len(view.shape) != len(spec.shape):
            count = len(view.shape)
            raise ArgumentError(
                f"{where} has {count} dimension{'' if count == 1 else 's'}, "
                f"expected {len(spec.shape)}: {_tuple_text(spec.dims)}"
            )
        if spec.is_written and view.readonly:
            raise ArgumentError(f"{where} is read-only, but the kernel writes to it")

    def _common_device(self, views: dict[int, ArrayView]) -> str:
        """The device of all tensors; the kind that is expected where there are none."""
        first = next(iter(views), None)
        for slot, view in views.items():
            if first is not None and view.device != views[first].device:
                raise ArgumentError(
                    f"{self.where(self.parameters[slot])} is on device '{view.device}', and "
                    f"'{self.parameters[first].name}' on '{views[first].device}'",
                    hint="move all tensors of a call to one device",
                )
        return self._device if first is None else views[first].device

    def _solve(
        self, sources: Sequence[Source], views: dict[int, ArrayView], slots: list[int]
    ) -> dict[str, int]:
        symbols: dict[str, int] = {}
        for source in sources:
            value = _value_at(source, views, slots)
            solution = source.dim.solve(value)
            if solution is None:
                name = self.parameters[source.position].name
                raise ArgumentError(
                    f"'{self.kernel_name}': {source.describe(name)} is {value}, "
                    f"which is not {source.dim} for any {source.symbol}"
                )
            dtype = self._dtypes[source.symbol]
            if solution > dtype.largest_extent:
                name = self.parameters[source.position].name
                raise ArgumentError(
                    f"'{self.kernel_name}': {source.describe(name)} is {value}, and an '{dtype}' "
                    f"symbol is at most {dtype.largest_extent}",
                    hint=f"declare it with 64 bits, as in T.dynamic('{source.symbol}', 'int64')",
                )
            symbols[source.symbol] = solution
        return symbols

    def _check_extents(
        self,
        slot: int,
        view: ArrayView,
        symbols: dict[str, int],
        sources: Sequence[Source],
    ) -> None:
        spec = self.parameters[slot]
        for axis, (dim, extent) in enumerate(zip(spec.dims, view.shape, strict=True)):
            expected = self._size(spec, f"dimension {axis}", dim, symbols)
            if extent != expected:
                raise ArgumentError(
                    f"'{self.kernel_name}': dimension {axis} of '{spec.name}' is {extent}, "
                    f"expected {self._explain(dim, expected, sources)}"
                )

    def _check_strides(self, spec: ParameterSpec, view: ArrayView, symbols: dict[str, int]) -> None:
        declared = spec.stride_dims
        if declared is None:
            expected = contiguous_strides(view.shape)
            hint = "pass a contiguous copy, or declare the parameter as T.StridedTensor"
        else:
            expected = tuple(
                self._size(spec, f"stride {axis}", dim, symbols)
                for axis, dim in enumerate(declared)
            )
            hint = None
        if 0 in view.shape:
            return
        for extent, stride, wanted in zip(view.shape, view.strides, expected, strict=True):
            # The stride of an extent of 1 is never used, and libraries fill in what they like.
            if extent != 1 and stride != wanted:
                raise ArgumentError(
                    f"{self.where(spec)} has strides {view.strides}, expected {expected}", hint
                )

    def _explain(self, dim: DimSpec, expected: int, sources: Sequence[Source]) -> str:
        """`expected`, with the equation and the origin of its symbol."""
        if dim.symbol not in self.symbols:
            return f"{dim} = {expected}" if dim.names() else str(expected)
        source = sources[self.symbols.index(dim.symbol)]
        origin = source.describe(self.parameters[source.position].name)
        return f"{dim} = {expected} as {origin} says"

    def _pairs(
        self, views: dict[int, ArrayView]
    ) -> tuple[tuple[int, int, int, int, int, int, bool], ...]:
        """Written tensors with each other tensor that they could overlap, their ranges and the
        exception."""
        if self._allows_alias:
            return ()
        pairs = []
        for a, view_a in views.items():
            for b, view_b in views.items():
                first, second = self.parameters[a].is_written, self.parameters[b].is_written
                # Each pair once, the written one first.
                if a == b or not first or (second and b < a):
                    continue
                same_form = (view_a.shape, view_a.strides, view_a.dtype) == (
                    view_b.shape,
                    view_b.strides,
                    view_b.dtype,
                )
                ranges = (a, *view_a.byte_range, b, *view_b.byte_range)
                pairs.append((*ranges, self._allows_same_tensor and same_form))
        return tuple(pair for pair in pairs if pair[1] != pair[2] and pair[4] != pair[5])

    def _output_makers(
        self, symbols: dict[str, int], views: dict[int, ArrayView], device: str
    ) -> tuple[tuple[int, Callable[[], Any], int], ...]:
        kind, place = _output_place(views, device)
        makers = []
        for slot, spec in enumerate(self.parameters):
            if not spec.is_output:
                continue
            shape = tuple(
                self._size(spec, f"dimension {axis}", dim, symbols)
                for axis, dim in enumerate(spec.dims)
            )
            if spec.dtype in PACKED and shape[-1] % 2:
                raise ArgumentError(
                    f"{self.where(spec)} would have {shape[-1]} elements of "
                    f"'{spec.dtype}' in a row, and two of them share a byte"
                )
            bytes_ = -(-prod(shape) * DType(spec.dtype).bits // 8)
            if bytes_ > MOST_BYTES:
                raise self.no_memory(slot, bytes_)
            makers.append((slot, array_maker(kind, shape, spec.dtype, place), bytes_))
        return tuple(makers)

    def _size(
        self, spec: ParameterSpec, what: str, dim: DimSpec, symbols: Mapping[str, int]
    ) -> int:
        """An extent or stride, which the kernel computes without wrapping around."""
        try:
            return dim.evaluate(symbols)
        except WrappedSizeError as error:
            raise ArgumentError(
                f"'{self.kernel_name}': {what} of '{spec.name}', {dim}, is {error.number}, which "
                f"'{error.dtype}' does not hold",
                WIDER,
            ) from None

    def where(self, spec: ParameterSpec) -> str:
        """The beginning of an error about a parameter."""
        return f"'{self.kernel_name}': '{spec.name}'"

    def no_memory(self, slot: int, bytes_: int) -> ArgumentError:
        """The error of an output that there is no room for."""
        where = self.where(self.parameters[slot])
        return ArgumentError(f"{where} would have {bytes_} bytes, and there is no memory for it")


def _expected(accepted: tuple[str, ...], kind: str) -> str:
    """The one of the accepted dtypes that arrays of this kind can have."""
    if kind == "torch":
        return next(name for name in accepted if not name.startswith("float6_"))
    return next(name for name in accepted if not name.endswith("_x2"))


def _value_at(source: Source, views: dict[int, ArrayView], slots: list[int]) -> int:
    if source.axis < 0:
        return slots[source.position]
    view = views[source.position]
    return (view.strides if source.is_stride else view.shape)[source.axis]


def _output_place(views: dict[int, ArrayView], device: str) -> tuple[str, str]:
    """Kind and device of outputs: torch if any input is a torch tensor; without tensor inputs, if
    the process uses torch; else numpy. On a GPU always torch, on the device of the inputs."""
    if device != "cpu":
        return "torch", device
    kinds = {view.kind for view in views.values()}
    uses_torch = "torch" in kinds if kinds else "torch" in sys.modules
    return "torch" if uses_torch else "numpy", "cpu"


def _tuple_text(dims: tuple[DimSpec, ...]) -> str:
    return f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"
