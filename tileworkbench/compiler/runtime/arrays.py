"""What the run time needs to know of a user's array: torch tensors, numpy arrays, DLPack producers,
arrays with the CUDA array interface."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.runtime import dlpack
from tileworkbench.compiler.runtime.torch_calls import is_fake

# Element types whose storage has another name in the array libraries; outputs get the first.
_STORAGE: dict[str, tuple[str, ...]] = {
    "tfloat32": ("float32",),
    "handle": ("int64",),
    "int4": ("int8", "uint8"),
    "uint4": ("uint8", "int8"),
    "float4_e2m1fn": ("float4_e2m1fn_x2", "uint8", "int8"),
    "float6_e2m3fn": ("float6_e2m3fn", "uint8"),
    "float6_e3m2fn": ("float6_e3m2fn", "uint8"),
}
_MASKED = "is masked, and a kernel would read what the mask hides"
PACKED = ("int4", "uint4", "float4_e2m1fn")
"""Element types of which an array's element holds two, along the last dimension."""


@dataclass(frozen=True, slots=True)
class ArrayView:
    """Where an array's elements are. Strides count elements; `owner` keeps the memory alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    device: str
    readonly: bool
    kind: str  # torch, numpy, dlpack or cuda
    owner: Any
    is_fake: bool = False  # it has no contents

    @property
    def byte_range(self) -> tuple[int, int]:
        """First byte of the array and the one after its last, relative to `pointer`; (0, 0) if it
        is empty."""
        return byte_range(self.shape, self.strides, self.itemsize)


def byte_range(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The bytes from the first element's address that a strided array spans: begin (<= 0) and
    end."""
    if 0 in shape:
        return 0, 0
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = sum(step for step in steps if step < 0)
    high = sum(step for step in steps if step > 0)
    return low * itemsize, (high + 1) * itemsize


def storage_dtypes(dtype: str) -> tuple[str, ...]:
    """The dtypes that an array may have to be passed for elements of type `dtype`."""
    return _STORAGE.get(dtype, (str(dtype),))


def element_view(view: ArrayView, dtype: str) -> ArrayView:
    """`view` with extents and strides that count elements of `dtype`, where two share a byte."""
    if dtype not in PACKED or not view.shape:
        return view
    shape = (*view.shape[:-1], 2 * view.shape[-1])
    strides = (*(2 * stride for stride in view.strides[:-1]), view.strides[-1])
    return replace(view, shape=shape, strides=strides)


def view_array(value: Any, kind: str = "cpu") -> ArrayView | None:
    """The view of a torch tensor, numpy array or DLPack producer, where `kind` is "cuda" also of an
    array with the CUDA array interface; None for anything else.

    The data may be on any device, but DLPack is asked for it on those of `kind` alone. Raises
    `ArgumentError`, with a message that lacks its subject, for an array whose memory does not hold
    its elements as they are: sparse, lazily negated, of foreign byte order.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _view_torch(torch, value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _view_numpy(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _view_dlpack(value, kind)
    if kind == "cuda" and hasattr(value, "__cuda_array_interface__"):
        return _view_cuda(value)
    return None


def _view_torch(torch: Any, value: Any) -> ArrayView:
    if value.is_nested:
        raise ArgumentError("is a nested tensor", hint="pass its parts, from .unbind()")
    if value.layout != torch.strided:
        raise ArgumentError(f"has layout '{value.layout}', expected 'torch.strided'")
    if value.is_neg() or value.is_conj():
        raise ArgumentError(
            "is a lazily negated or conjugated view", hint="call .resolve_neg() or .resolve_conj()"
        )
    device = value.device
    on_cpu = device.type == "cpu"
    fake = is_fake(value)
    return ArrayView(
        pointer=0 if fake else _torch_pointer(torch, value),
        shape=tuple(value.shape),
        strides=tuple(value.stride()),
        dtype=str(value.dtype).removeprefix("torch."),
        itemsize=value.element_size(),
        device="cpu" if on_cpu else str(device),
        readonly=False,
        kind="torch",
        owner=value,
        is_fake=fake,
    )


def _torch_pointer(torch: Any, value: Any) -> int:
    try:
        pointer = 0 if torch._is_functional_tensor(value) else int(value.data_ptr())
    except RuntimeError:
        pointer = 0
    if pointer or value.device.type == "meta" or not value.numel():
        return pointer
    if torch._is_functional_tensor(value) or torch._C._functorch.is_functorch_wrapped_tensor(value):
        raise ArgumentError(
            "is a value inside a transformation of torch, such as vmap or grad, and has no memory "
            "of its own",
            hint="call the kernel outside of it, or make it an operator with tw.torch_op",
        )
    raise ArgumentError(
        "has elements and no memory: its storage was freed, or it stands for other tensors"
    )


def _view_numpy(value: Any) -> ArrayView:
    dtype = value.dtype
    masked = sys.modules.get("numpy.ma")
    if masked is not None and masked.is_masked(value):
        raise ArgumentError(_MASKED, hint="call .filled(), or pass .data")
    if not dtype.isnative:
        raise ArgumentError(f"has byte order '{dtype.byteorder}', not that of this machine")
    itemsize = dtype.itemsize
    if itemsize == 0 or any(stride % itemsize for stride in value.strides):
        raise ArgumentError("has elements that are not a whole number of elements apart")
    return ArrayView(
        pointer=value.__array_interface__["data"][0],
        shape=value.shape,
        strides=tuple(stride // itemsize for stride in value.strides),
        dtype=dtype.name,
        itemsize=itemsize,
        device="cpu",
        readonly=not value.flags.writeable,
        kind="numpy",
        owner=value,
    )


def _view_dlpack(value: Any, kind: str) -> ArrayView:
    device = dlpack.device_name(value)
    if device.partition(":")[0] != kind:
        return ArrayView(0, (), (), "", 0, device, False, "dlpack", value)
    pointer, shape, strides, dtype, readonly, capsule = dlpack.read_tensor(value)
    itemsize = dtype_bytes(dtype)
    return ArrayView(
        pointer, shape, strides, dtype, itemsize, device, readonly, "dlpack", (value, capsule)
    )


def _view_cuda(value: Any) -> ArrayView:
    """What version 3 of the interface says; the stream that it names is waited for."""
    import numpy

    from tileworkbench.compiler.device.nvidia.driver import pointer_ordinal, wait_for_stream

    interface = value.__cuda_array_interface__
    pointer, readonly = interface["data"]
    shape, dtype = tuple(interface["shape"]), numpy.dtype(interface["typestr"])
    if interface.get("mask") is not None:
        raise ArgumentError(_MASKED)
    ordinal = pointer_ordinal(pointer) if pointer else 0
    if interface.get("stream"):
        wait_for_stream(interface["stream"], ordinal)
    strides = interface.get("strides")
    return ArrayView(
        pointer=pointer or 0,
        shape=shape,
        strides=dlpack.contiguous_strides(shape)
        if strides is None
        else tuple(stride // dtype.itemsize for stride in strides),
        dtype=dtype.name,
        itemsize=dtype.itemsize,
        device=f"cuda:{ordinal}",
        readonly=readonly,
        kind="cuda",
        owner=value,
    )


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of a dtype named as in this package, or as DLPack names it."""
    digits = "".join(filter(str.isdigit, dtype.partition("_")[0]))
    return max(1, int(digits) // 8) if digits else 1


def array_maker(
    kind: str, shape: tuple[int, ...], dtype: str, device: str = "cpu"
) -> Callable[[], Any]:
    """What makes uninitialised arrays of a form: on `device` torch tensors for kind ``torch``, else
    numpy arrays.

    numpy has no bfloat16 and no floats of a byte or less: those come from ml_dtypes. Two elements
    of 4 bits share one of the array's, along the last dimension.
    """
    names = storage_dtypes(dtype)
    if dtype in PACKED:
        shape = (*shape[:-1], shape[-1] // 2)
    if kind == "torch":
        import torch

        name = next(name for name in names if hasattr(torch, name))
        form = {"dtype": getattr(torch, name), "device": torch.device(device)}
        return partial(torch.empty_strided, shape, dlpack.contiguous_strides(shape), **form)
    import numpy

    name = next(name for name in names if not name.endswith("_x2"))
    return partial(numpy.empty, shape, dtype=numpy_dtype(name))


def poison(array: Any, dtype: str) -> None:
    """Fill a new array of elements of `dtype` with NaN, or bytes 0xCD, as the simulator does: what
    a kernel does not write is then not right by chance.
    """
    is_nan = dtype.startswith(("float8", "float16", "float32", "float64", "bfloat"))
    byte = 1 if dtype == "bool" else 0xFF if is_nan and not dtype.endswith("fnuz") else 0xCD
    if hasattr(array, "untyped_storage"):
        array.untyped_storage().fill_(byte)
    elif hasattr(array, "__array_interface__"):
        ctypes.memset(array.__array_interface__["data"][0], byte, array.nbytes)


def numpy_dtype(dtype: str) -> Any:
    """numpy's dtype object for one of our dtype names, from ml_dtypes where numpy has none."""
    import numpy

    if dtype == "bfloat16" or dtype.startswith(("float8_", "float6_")):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, dtype))
    return numpy.dtype(dtype)
