"""Calls a shipped kernel: checks the arguments by what `manifest.json` says of them, makes the
outputs and launches. Tensors are numpy arrays or PyTorch's; on a GPU they are PyTorch's.
"""

from __future__ import annotations

import json
import math
import operator
import struct
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from .errors import ArgumentError
from .formulas import WrappedSizeError, evaluate, limits

_WIDER = "the sizes have 32 bits: declare them as T.dynamic('n', 'int64') and ship the kernel again"
_MOST_BLOCKS = 2**31 - 1
_MOST_FORMS = 256


class Call(NamedTuple):
    """A checked call: the 64-bit slots of tensors, scalars and symbols, the values of scalars and
    symbols by name, and the device of the tensors ("cpu", "cuda:0").
    """

    slots: list[int]
    numbers: dict[str, int]
    device: str


class Launcher(Protocol):
    """What runs checked calls. `memory` is where tensors must be: "cpu" or "cuda"."""

    memory: str

    def launch(self, call: Call) -> None: ...


class Kernel:
    """A shipped kernel. A call takes its inputs in order and returns its outputs: None, one array,
    or a list. Raises `ArgumentError` before anything runs, `RunError` for what goes wrong then.
    """

    def __init__(self, manifest: Mapping[str, Any], launcher: Launcher) -> None:
        self.name: str = manifest["name"]
        self.manifest = manifest
        self.launcher = launcher
        self._parameters: list[dict[str, Any]] = manifest["parameters"]
        self._inputs = [at for at, each in enumerate(self._parameters) if not each["output"]]
        self._forms: dict[Any, tuple[dict[str, int], list[tuple[int, tuple[int, ...]]]]] = {}

    def __repr__(self) -> str:
        names = ", ".join(self._parameters[at]["name"] for at in self._inputs)
        return f"<kernel {self.name}({names}) for {self.manifest['target']}>"

    def __call__(self, *args: Any) -> Any:
        if len(args) != len(self._inputs):
            raise self._wrong_count(len(args))
        slots = [0] * len(self._parameters)
        arrays: dict[int, _Array] = {}
        numbers: dict[str, int] = {}
        for at, value in zip(self._inputs, args, strict=True):
            spec = self._parameters[at]
            if spec["kind"] == "scalar":
                slots[at] = _encode(self._where(spec), spec["dtype"], value)
                numbers[spec["name"]] = slots[at]
            elif value is not None or spec["used"]:
                arrays[at] = view = self._view(spec, value)
                slots[at] = view.pointer
        form = (*((at, *view.form) for at, view in arrays.items()), *numbers.values())
        known = self._forms.get(form)
        if known is None:
            known = self._check(arrays, numbers)
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            self._forms[form] = known
        symbols, shapes = known
        self._check_addresses(arrays)
        outputs = self._make_outputs(arrays, shapes)
        for at, array in outputs.items():
            slots[at] = array.pointer
        device = next((each.device for each in (arrays | outputs).values()), self.launcher.memory)
        self.launcher.launch(Call([*slots, *symbols.values()], {**numbers, **symbols}, device))
        made = [array.owner for array in outputs.values()]
        results = [made[place] for place in self.manifest["returns"]]
        return results if len(results) > 1 else results[0] if results else None

    def _view(self, spec: Mapping[str, Any], value: Any) -> _Array:
        """The array behind a value, whose dtype, rank and place are right."""
        where, memory = self._where(spec), self.launcher.memory
        view = _array(where, value)
        if view.device.partition(":")[0] != memory:
            raise ArgumentError(f"{where} is on device '{view.device}', expected '{memory}'")
        if view.dtype not in spec["storage"]:
            expected = spec["storage"][0]
            convert = f".to(torch.{expected})" if view.is_torch else f".astype('{expected}')"
            raise ArgumentError(
                f"{where} has dtype '{view.dtype}', expected '{expected}'",
                f"convert it with {convert}",
            )
        if len(view.shape) != len(spec["shape"]):
            count = len(view.shape)
            raise ArgumentError(
                f"{where} has {count} dimension{'' if count == 1 else 's'}, expected "
                f"{len(spec['shape'])}: ({', '.join(spec['shape_text'])})"
            )
        if spec["written"] and view.readonly:
            raise ArgumentError(f"{where} is read-only, but the kernel writes to it")
        if view.is_torch and view.owner.requires_grad:
            _tell_of_gradients(where, spec["written"])
        return view

    def _check(
        self, arrays: Mapping[int, _Array], scalars: Mapping[str, int]
    ) -> tuple[dict[str, int], list[tuple[int, tuple[int, ...]]]]:
        """What is the same for all calls of one form: the symbols, the shapes of the outputs."""
        devices = {view.device for view in arrays.values()}
        if len(devices) > 1:
            raise ArgumentError(
                f"'{self.name}': the tensors are on {' and '.join(sorted(devices))}",
                "move all tensors of a call to one device",
            )
        symbols = {each["name"]: self._solve(each, arrays, scalars) for each in self._symbols()}
        numbers = {**scalars, **symbols}
        for at, view in arrays.items():
            self._check_shape(self._parameters[at], view, numbers)
        for each in self.manifest["assumptions"]:
            if not self._number("an assumption", each["text"], each["formula"], numbers):
                given = ", ".join(f"{name} = {numbers[name]}" for name in each["names"])
                raise ArgumentError(
                    f"'{self.name}': the kernel assumes '{each['text']}', and {given}"
                )
        shapes = []
        for at, spec in enumerate(self._parameters):
            if spec["output"]:
                shapes.append((at, tuple(self._extents(spec, numbers))))
        return symbols, shapes

    def _symbols(self) -> list[dict[str, Any]]:
        symbols: list[dict[str, Any]] = self.manifest["symbols"]
        return symbols

    def _solve(
        self, symbol: Mapping[str, Any], arrays: Mapping[int, _Array], scalars: Mapping[str, int]
    ) -> int:
        """A symbol's value, from the extent, stride or scalar that it follows from."""
        name, source = symbol["name"], symbol["source"]
        spec = self._parameters[source["parameter"]]
        if spec["kind"] == "scalar":
            return scalars[spec["name"]]
        view = arrays.get(source["parameter"])
        if view is None:
            raise ArgumentError(
                f"'{self.name}': '{spec['name']}' is None, and the kernel reads '{name}' from its "
                "shape"
            )
        axis = source["axis"]
        kind = "stride" if source["stride"] else "dimension"
        value = (view.strides if source["stride"] else view.shape)[axis]
        what = f"'{self.name}': {kind} {axis} of '{spec['name']}' is {value}"
        number, rest = divmod(value - source["constant"], source["coefficient"])
        if rest or number < 0:
            raise ArgumentError(f"{what}, which is not {source['text']} for any {name}")
        if number > symbol["most"]:
            raise ArgumentError(
                f"{what}, and an '{symbol['dtype']}' symbol is at most {symbol['most']}", _WIDER
            )
        return int(number)

    def _check_shape(
        self, spec: Mapping[str, Any], view: _Array, numbers: Mapping[str, int]
    ) -> None:
        name = spec["name"]
        expected = self._extents(spec, numbers)
        for axis, (extent, wanted) in enumerate(zip(view.shape, expected, strict=True)):
            if extent != wanted:
                text = spec["shape_text"][axis]
                said = str(wanted) if text == str(wanted) else f"{text} = {wanted}"
                raise ArgumentError(
                    f"'{self.name}': dimension {axis} of '{name}' is {extent}, expected {said}"
                )
        if 0 in view.shape:
            return
        hint = None
        if spec["strides"] is None:
            strides = _contiguous(view.shape)
            hint = "pass a contiguous copy"
        else:
            strides = tuple(
                self._number("a stride", name, each, numbers) for each in spec["strides"]
            )
        for extent, stride, wanted in zip(view.shape, view.strides, strides, strict=True):
            if extent != 1 and stride != wanted:  # the stride of one element is never used
                raise ArgumentError(
                    f"{self._where(spec)} has strides {view.strides}, expected {strides}", hint
                )

    def _extents(self, spec: Mapping[str, Any], numbers: Mapping[str, int]) -> list[int]:
        what = "a dimension"
        return [self._number(what, spec["name"], each, numbers) for each in spec["shape"]]

    def _number(self, what: str, of: str, formula: Any, numbers: Mapping[str, int]) -> int:
        try:
            return evaluate(formula, numbers)
        except WrappedSizeError as error:
            raise ArgumentError(
                f"'{self.name}': {what} of '{of}' is {error.number}, which '{error.dtype}' does "
                "not hold",
                _WIDER,
            ) from None
        except ZeroDivisionError:
            raise ArgumentError(f"'{self.name}': {what} of '{of}' is divided by zero") from None

    def _check_addresses(self, arrays: Mapping[int, _Array]) -> None:
        """Alignment, and that what is written overlaps nothing else."""
        for at, view in arrays.items():
            alignment = max(view.itemsize, self._parameters[at]["alignment"])
            if view.pointer % alignment:
                where = self._where(self._parameters[at])
                raise ArgumentError(
                    f"{where} begins at an address that is no multiple of {alignment}"
                )
        aliasing = self.manifest["aliasing"]
        if aliasing == "any":
            return
        for a, view in arrays.items():
            for b, other in arrays.items() if self._parameters[a]["written"] else ():
                if a == b or not view.overlaps(other):
                    continue
                same = view.pointer == other.pointer and view.form == other.form
                if aliasing == "same" and same:
                    continue
                raise ArgumentError(
                    f"{self._where(self._parameters[a])} is written and overlaps "
                    f"'{self._parameters[b]['name']}' in memory",
                    "pass tensors of their own",
                )

    def _make_outputs(
        self, arrays: Mapping[int, _Array], shapes: Sequence[tuple[int, tuple[int, ...]]]
    ) -> dict[int, _Array]:
        """New arrays: torch's where an input is torch's and on a GPU, else numpy's."""
        on_gpu = self.launcher.memory != "cpu"
        is_torch = any(view.is_torch for view in arrays.values())
        if not arrays:
            is_torch = "torch" in sys.modules
        device = next((view.device for view in arrays.values()), self.launcher.memory)
        outputs = {}
        for at, shape in shapes:
            spec = self._parameters[at]
            try:
                made = _empty(shape, spec["storage"][0], device, is_torch or on_gpu)
            except (MemoryError, RuntimeError, ValueError, OverflowError) as error:
                where = self._where(spec)
                raise ArgumentError(
                    f"{where} of shape {shape}: there is no memory for it"
                ) from error
            outputs[at] = _array(self._where(spec), made)
        return outputs

    def _where(self, spec: Mapping[str, Any]) -> str:
        return f"'{self.name}': '{spec['name']}'"

    def _wrong_count(self, count: int) -> ArgumentError:
        names = ", ".join(self._parameters[at]["name"] for at in self._inputs)
        expected = len(self._inputs)
        return ArgumentError(
            f"'{self.name}' takes {expected} argument{'' if expected == 1 else 's'}"
            f"{f' ({names})' if names else ''}, got {count}"
        )


def grid_of(name: str, formulas: Sequence[Any], numbers: Mapping[str, int]) -> tuple[int, int, int]:
    """The blocks of a launch along x, y and z. Raises `ArgumentError` for none and for too many."""
    try:
        extents = [evaluate(each, numbers) for each in formulas]
    except WrappedSizeError as error:
        raise ArgumentError(
            f"'{name}': an extent of the grid is {error.number}, which '{error.dtype}' does not "
            "hold",
            _WIDER,
        ) from None
    if min(extents, default=1) < 1:
        raise ArgumentError(f"'{name}': the grid is empty, there is no block to run")
    if math.prod(extents) > _MOST_BLOCKS:
        raise ArgumentError(
            f"'{name}': the grid has {math.prod(extents)} blocks; a launch has at most "
            f"{_MOST_BLOCKS}"
        )
    x, y, z = (*extents, 1, 1, 1)[:3]
    return x, y, z


class _Array(NamedTuple):
    """Where an array's elements are; strides count elements."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    device: str
    readonly: bool
    is_torch: bool
    owner: Any

    @property
    def form(self) -> tuple[Any, ...]:
        return self.shape, self.strides, self.dtype, self.device

    def overlaps(self, other: _Array) -> bool:
        if 0 in self.shape or 0 in other.shape:
            return False
        (a, b), (c, d) = self._bytes(), other._bytes()
        return a < d and c < b

    def _bytes(self) -> tuple[int, int]:
        pairs = zip(self.shape, self.strides, strict=True)
        steps = [(extent - 1) * stride for extent, stride in pairs]
        low = sum(step for step in steps if step < 0) * self.itemsize
        high = (sum(step for step in steps if step > 0) + 1) * self.itemsize
        return self.pointer + low, self.pointer + high


def _array(where: str, value: Any) -> _Array:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    form: tuple[Any, ...]
    if torch is not None and isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_neg() or value.is_conj():
            raise ArgumentError(f"{where} is no plain tensor: sparse, or a lazily negated view")
        device = "cpu" if value.device.type == "cpu" else str(value.device)
        dtype, size = str(value.dtype).removeprefix("torch."), value.element_size()
        form = (tuple(value.shape), tuple(value.stride()), dtype, size, device)
        return _Array(value.data_ptr(), *form, readonly=False, is_torch=True, owner=value)
    if numpy is not None and isinstance(value, numpy.ndarray):
        size = value.dtype.itemsize
        if not value.dtype.isnative or any(stride % size for stride in value.strides):
            raise ArgumentError(f"{where} has foreign byte order, or elements that lie unevenly")
        strides = tuple(stride // size for stride in value.strides)
        form = (value.shape, strides, value.dtype.name, size, "cpu")
        readonly, pointer = not value.flags.writeable, value.__array_interface__["data"][0]
        return _Array(pointer, *form, readonly=readonly, is_torch=False, owner=value)
    raise ArgumentError(
        f"{where} must be a tensor, not '{type(value).__name__}'", "a torch tensor or a numpy array"
    )


def _tell_of_gradients(where: str, is_written: bool) -> None:
    """Warn that no gradient flows through a call; refuse to write what takes one."""
    if not sys.modules["torch"].is_grad_enabled():
        return
    if is_written:
        raise ArgumentError(
            f"{where} requires grad, and the kernel writes to it",
            "call it under torch.no_grad(), or pass a detached tensor",
        )
    warnings.warn(
        f"{where} requires grad, and autograd does not see into a kernel: its results are detached "
        "(call it under torch.no_grad())",
        UserWarning,
        stacklevel=4,
    )


def _empty(shape: tuple[int, ...], dtype: str, device: str, is_torch: bool) -> Any:
    if is_torch:
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=device)
    import numpy

    if not hasattr(numpy, dtype):  # bfloat16 and the 8-bit floats
        import ml_dtypes

        return numpy.empty(shape, getattr(ml_dtypes, dtype))
    return numpy.empty(shape, dtype)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    size = 1
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))


def _encode(where: str, dtype: str, value: Any) -> int:
    """A scalar as its 64-bit slot: integers sign-extended, floats the bits of their own dtype."""
    formats = {"float16": ("<e", "<H"), "float32": ("<f", "<I"), "float64": ("<d", "<q")}
    if dtype in formats or dtype == "bfloat16":
        if not hasattr(value, "__float__") or getattr(value, "ndim", 0) != 0:
            raise _wrong_kind(where, "a number", dtype, value)
        try:
            if dtype == "bfloat16":
                return _bfloat16(float(value))
            pack, unpack = formats[dtype]
            return int(struct.unpack(unpack, struct.pack(pack, float(value)))[0])
        except OverflowError:
            raise ArgumentError(f"{where} is {value}, which '{dtype}' cannot hold") from None
    try:
        number = int(operator.index(value))
    except TypeError:
        if type(value).__name__ not in ("bool", "bool_"):  # numpy's have no __index__
            raise _wrong_kind(where, "an integer", dtype, value) from None
        number = int(value)
    low, high = limits(dtype)
    if not low <= number <= high:
        raise ArgumentError(f"{where} is {value}, which '{dtype}' cannot hold")
    return number if number < 1 << 63 else number - (1 << 64)


def _bfloat16(value: float) -> int:
    """The bits of the nearest bfloat16, ties to even; a double is rounded once, not by way of
    float32.
    """
    if math.isnan(value):
        return 0x7FC0
    if math.isinf(value):
        return 0x7F80 if value > 0 else 0xFF80
    mantissa, exponent = math.frexp(abs(value))
    digits = 8 if exponent > -126 else max(8 - (-125 - exponent), 0)  # fewer in denormals
    rounded = math.ldexp(round(math.ldexp(mantissa, digits)), exponent - digits) if value else 0.0
    bits: int = struct.unpack("<I", struct.pack("<f", math.copysign(rounded, value)))[0]
    return bits >> 16


def _wrong_kind(where: str, expected: str, dtype: str, value: Any) -> ArgumentError:
    return ArgumentError(f"{where} must be {expected} ('{dtype}'), not '{type(value).__name__}'")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest beside the kernel."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return manifest
