"""Checking a call's arguments and turning them into launch slots.

`ArgumentBinder.bind` has two ways. The first call with arguments of some form (dtypes, shapes,
strides, kinds) checks everything and leaves a `_Plan`; later calls of the same form read the
pointers, check what depends on addresses, and encode the scalars. Every error is an `ArgumentError`
that names kernel and parameter, raised before anything runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from tileworkbench.compiler.analysis.evaluate import WIDER, WrappedSizeError
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.sizes import MOST_BYTES
from tileworkbench.compiler.ir.types import INT32, DType
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
from tileworkbench.compiler.runtime.torch_calls import (
    Torch,
    is_fake,
    loaded_torch,
    warn_of_detached,
)

# Forms remembered per kernel. A program with more has other costs than checking again.
_MAX_PLANS = 256


class BoundArguments(NamedTuple):
    """A call ready to launch.

    `slots` are the argument slots followed by the symbols' values, `symbols` those values alone,
    `outputs` the arrays that were allocated, on `device` as all tensors are. `owners` keep exported
    memory alive until the launch is over. A call with tensors that have no contents does not run:
    its outputs have none either.
    """

    slots: list[int]
    symbols: tuple[int, ...]
    outputs: tuple[Any, ...]
    owners: tuple[Any, ...]
    device: str
    runs: bool = True


class _Plan(NamedTuple):
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


class _Argument(NamedTuple):
    """A parameter that the caller passes: its position in the signature, and how to encode it if a
    scalar."""

    slot: int
    spec: ParameterSpec
    encode: Encoder | None
    is_in_key: bool


class ArgumentBinder:
    """Binds calls of one compiled kernel.

    `device` is where tensors must be: "cpu", or "cuda" for all on one device of the machine.
    `symbols` are the kernel's run-time symbols in slot order, with their dtypes. `allow_alias`
    drops the check that written tensors overlap no other; `elementwise_alias_ok` lets one whole
    tensor be passed for several parameters: set it where the kernel provably reads and writes each
    element in one
    statement. Raises `UnsupportedError` for a symbol that no argument determines.
    """

    def __init__(
        self,
        kernel_name: str,
        parameters: Sequence[ParameterSpec],
        symbols: Sequence[str] | Mapping[str, DType] = (),
        *,
        allow_alias: bool = False,
        elementwise_alias_ok: bool = False,
        device: str = "cpu",
    ) -> None:
        self.kernel_name = kernel_name
        self.parameters = tuple(parameters)
        self.symbols = tuple(symbols)
        self._dtypes = symbols if isinstance(symbols, Mapping) else dict.fromkeys(symbols, INT32)
        self.allows_alias = allow_alias
        self.allows_same_tensor = elementwise_alias_ok
        self._device = device
        self._sources = find_sources(kernel_name, self.parameters, self.symbols)
        self._read_scalars = self._scalars_of_extents()
        self._arguments = tuple(
            self._argument(slot, spec)
            for slot, spec in enumerate(self.parameters)
            if not spec.is_output
        )
        self._pointers = tuple(  # to memory that the kernel writes to
            (at, argument.spec.name)
            for at, argument in enumerate(self._arguments)
            if argument.encode is not None and argument.spec.is_written
        )
        self._has_warned = False
        self._plans: dict[Any, _Plan] = {}
        self._slot_template = [0] * (len(self.parameters) + len(self.symbols))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where the value of each symbol is found in a call's arguments."""
        return self._sources

    @property
    def slot_count(self) -> int:
        """Slots of a launch: one per parameter and one per symbol."""
        return len(self._slot_template)

    def bind(self, args: Sequence[Any]) -> BoundArguments:
        """Check `args`, one per parameter that is no output, and make the slots of a launch.

        Raises `ArgumentError`.
        """
        if len(args) != len(self._arguments):
            raise self._wrong_count(len(args))
        torch, ndarray = loaded_torch(), getattr(sys.modules.get("numpy"), "ndarray", None)
        tensor = None if torch is None else torch.tensor
        is_watched = torch is not None and torch.is_watched()
        if is_watched and torch is not None and torch.is_tracing():
            raise self._traced()
        on_cpu = self._device == "cpu"
        slots = self._slot_template.copy()
        owners: list[Any] = []
        key: list[Any] = []
        fake: Any = None
        for (slot, spec, encode, is_in_key), value in zip(self._arguments, args, strict=True):
            if encode is not None:
                slots[slot] = encoded = encode(value)
                if is_in_key:
                    key.append(encoded)
            # The common cases without a view; each attribute costs about 50 ns.
            elif (
                type(value) is tensor
                and (value.is_cpu if on_cpu else value.is_cuda)
                and not value.is_neg()
            ):
                try:
                    slots[slot] = pointer = value.data_ptr()
                    key += (value.dtype, value.shape, value.stride(), value.requires_grad)
                    if not on_cpu:
                        key.append(value.device)
                    if not pointer:
                        self._view(spec, value)
                except RuntimeError:  # a sparse tensor has neither
                    self._view(spec, value)
                    raise
            elif type(value) is ndarray:
                slots[slot] = value.__array_interface__["data"][0]
                key.append((value.dtype, value.shape, value.strides, value.flags.writeable))
            elif value is None and not spec.is_used:
                key.append(None)
            else:
                view = self._view(spec, value)
                slots[slot] = view.pointer
                owners.append(view.owner)
                form = (view.kind, view.dtype, view.shape, view.strides, view.readonly)
                key.append((*form, view.device, getattr(value, "requires_grad", False)))
                if view.is_fake:
                    fake = value
        plan = self._plans.get(signature := tuple(key))
        if plan is None:
            plan = self._check(args, slots, signature)
        if torch is not None and (plan.written or plan.gradients or self._pointers):
            self._tell_autograd(plan, args, torch)
        if fake is not None:
            with fake.fake_mode:
                made = tuple(make() for _, make, _ in plan.outputs)
            return BoundArguments(slots, plan.symbols, made, (), plan.device, runs=False)
        bound = self._finish(plan, slots, tuple(owners))
        if is_watched and any(map(is_fake, bound.outputs)):
            return bound._replace(runs=False)
        return bound

    def _tell_autograd(self, plan: _Plan, args: Sequence[Any], torch: Torch) -> None:
        written = [(name, args[at]) for at, name in plan.written]
        for at, name in self._pointers:
            if isinstance(args[at], torch.tensor):
                written.append((name, args[at]))
        if written:
            torch.note_writes(self.kernel_name, written)
        if plan.gradients and not self._has_warned and torch.tracks_gradients():
            self._has_warned = True
            warn_of_detached(self.kernel_name, plan.gradients[0])

    def _finish(self, plan: _Plan, slots: list[int], owners: tuple[Any, ...]) -> BoundArguments:
        for slot, mask in plan.masks:
            if slots[slot] & mask:
                raise self._misaligned(slot, mask + 1)
        for a, low_a, high_a, b, low_b, high_b, same_ok in plan.pairs:
            at_a, at_b = slots[a], slots[b]
            apart = at_a + high_a <= at_b + low_b or at_b + high_b <= at_a + low_a
            if not apart and not (same_ok and at_a == at_b):
                raise self._overlapping(a, b)
        outputs: list[Any] = []
        for slot, make, bytes_ in plan.outputs:
            try:
                array = make()
            except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
                raise self._no_memory(slot, bytes_) from error
            slots[slot] = 0 if is_fake(array) else _address(array)
            outputs.append(array)
        count = len(self.symbols)
        if count:
            slots[-count:] = plan.symbols
        return BoundArguments(slots, plan.symbols, tuple(outputs), owners, plan.device)

    def _argument(self, slot: int, spec: ParameterSpec) -> _Argument:
        if spec.kind == "tensor":
            return _Argument(slot, spec, None, is_in_key=True)
        encode = scalar_encoder(self._where(spec), spec.dtype)
        is_in_key = spec.name in self.symbols or slot in self._read_scalars
        return _Argument(slot, spec, encode, is_in_key)

    def _scalars_of_extents(self) -> dict[int, str]:
        """The scalar parameters that extents and strides are written in, by slot."""
        dims = [dim for spec in self.parameters for dim in (*spec.dims, *(spec.stride_dims or ()))]
        read = {name for dim in dims for name in dim.names()} - set(self.symbols)
        return {
            slot: spec.name
            for slot, spec in enumerate(self.parameters)
            if spec.kind == "scalar" and spec.name in read
        }

    # The first call of a form: everything is checked.

    def _check(self, args: Sequence[Any], slots: list[int], form: tuple[Any, ...]) -> _Plan:
        views: dict[int, ArrayView] = {}
        for argument, value in zip(self._arguments, args, strict=True):
            if argument.encode is None and not (value is None and not argument.spec.is_used):
                views[argument.slot] = view = self._view(argument.spec, value)
                self._check_fixed(argument.spec, view)
        device = self._common_device(views)
        torches = {slot: view.owner for slot, view in views.items() if view.kind == "torch"}
        elements = {s: element_view(v, self.parameters[s].dtype) for s, v in views.items()}
        passed = frozenset(argument.slot for argument in self._arguments if argument.encode is None)
        absent = passed - views.keys()
        sources = self._sources
        if absent:
            sources = find_sources(self.kernel_name, self.parameters, self.symbols, absent)
        symbols = self._solve(sources, elements, slots)
        known = {**symbols, **{name: slots[slot] for slot, name in self._read_scalars.items()}}
        for slot, view in elements.items():
            self._check_extents(slot, view, known, sources)
            self._check_strides(self.parameters[slot], view, known)
        plan = _Plan(
            symbols=tuple(symbols.values()),
            masks=tuple(self._masks(views)),
            pairs=self._pairs(views),
            outputs=self._output_makers(known, views, device),
            device=device,
            written=tuple(
                (at, argument.spec.name)
                for at, argument in enumerate(self._arguments)
                if argument.spec.is_written and argument.slot in torches
            ),
            gradients=tuple(
                self.parameters[slot].name for slot, value in torches.items() if value.requires_grad
            ),
        )
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[form] = plan
        return plan

    def _masks(self, views: dict[int, ArrayView]) -> Iterator[tuple[int, int]]:
        """The bits of addresses that must be zero."""
        for slot, view in views.items():
            alignment = max(view.itemsize, self.parameters[slot].alignment)
            if alignment > 1:
                yield slot, alignment - 1

    def _view(self, spec: ParameterSpec, value: Any) -> ArrayView:
        try:
            view = view_array(value, self._device)
        except ArgumentError as error:
            raise ArgumentError(f"{self._where(spec)} {error.message}", error.hint) from None
        if view is None:
            raise ArgumentError(
                f"{self._where(spec)} must be a tensor, not '{type(value).__name__}'",
                hint="a torch tensor, a numpy array, or anything with DLPack",
            )
        if view.device.partition(":")[0] != self._device:
            raise ArgumentError(
                f"{self._where(spec)} is on device '{view.device}', expected '{self._device}'"
            )
        return view

    def _check_fixed(self, spec: ParameterSpec, view: ArrayView) -> None:
        """What the declaration alone decides: dtype, rank, writability."""
        where, accepted = self._where(spec), storage_dtypes(spec.dtype)
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
                    f"{self._where(self.parameters[slot])} is on device '{view.device}', and "
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
                    f"{self._where(spec)} has strides {view.strides}, expected {expected}", hint
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
        if self.allows_alias:
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
                pairs.append((*ranges, self.allows_same_tensor and same_form))
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
                    f"{self._where(spec)} would have {shape[-1]} elements of "
                    f"'{spec.dtype}' in a row, and two of them share a byte"
                )
            bytes_ = -(-prod(shape) * DType(spec.dtype).bits // 8)
            if bytes_ > MOST_BYTES:
                raise self._no_memory(slot, bytes_)
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

    # Errors

    def _where(self, spec: ParameterSpec) -> str:
        return f"'{self.kernel_name}': '{spec.name}'"

    def _wrong_count(self, count: int) -> ArgumentError:
        names = ", ".join(argument.spec.name for argument in self._arguments)
        expected = len(self._arguments)
        return ArgumentError(
            f"'{self.kernel_name}' takes {expected} argument{'' if expected == 1 else 's'}"
            f"{f' ({names})' if names else ''}, got {count}"
        )

    def _traced(self) -> ArgumentError:
        return ArgumentError(
            f"'{self.kernel_name}' is called while torch traces (make_fx, torch.export), and a "
            "kernel is no operator that a graph can hold",
            hint="make it one with tw.torch_op",
        )

    def _no_memory(self, slot: int, bytes_: int) -> ArgumentError:
        where = self._where(self.parameters[slot])
        return ArgumentError(f"{where} would have {bytes_} bytes, and there is no memory for it")

    def _misaligned(self, slot: int, alignment: int) -> ArgumentError:
        where = self._where(self.parameters[slot])
        return ArgumentError(f"{where} begins at an address that is no multiple of {alignment}")

    def _overlapping(self, a: int, b: int) -> ArgumentError:
        other = self.parameters[b].name
        return ArgumentError(
            f"{self._where(self.parameters[a])} is written and overlaps '{other}' in memory",
            hint="pass tensors of their own, or compile with allow_alias=True",
        )


def _expected(accepted: tuple[str, ...], kind: str) -> str:
    """The one of the accepted dtypes that arrays of this kind can have."""
    if kind == "torch":
        return next(name for name in accepted if not name.startswith("float6_"))
    return next(name for name in accepted if not name.endswith("_x2"))


def _address(array: Any) -> int:
    """Where a new array of ours begins."""
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    return int(array.__array_interface__["data"][0])


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
