"""Users' numbers and arrays as a launch takes them, value by value."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy
import pytest
import torch

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.runtime import dlpack
from tileworkbench.compiler.runtime.arguments import ArgumentBinder
from tileworkbench.compiler.runtime.arrays import (
    ArrayView,
    array_maker,
    byte_range,
    dtype_bytes,
    element_view,
    storage_dtypes,
    view_array,
)
from tileworkbench.compiler.runtime.parameters import ParameterSpec
from tileworkbench.compiler.runtime.scalars import scalar_encoder

TOP = 1 << 63


@pytest.mark.parametrize(
    ("dtype", "value", "slot"),
    [
        *(("bool", True, 1), ("bool", numpy.bool_(False), 0), ("bool", 1, 1)),
        *(("int8", -128, -128), ("int8", 127, 127), ("uint8", 255, 255), ("int32", True, 1)),
        *(("int64", TOP - 1, TOP - 1), ("int64", -TOP, -TOP), ("int32", numpy.int64(-5), -5)),
        *(("uint64", TOP - 1, TOP - 1), ("uint64", TOP, -TOP), ("uint64", 2 * TOP - 1, -1)),
        *(("handle", 0, 0), ("handle", TOP - 1, TOP - 1), ("handle", TOP, -TOP)),
        *(("handle", 2 * TOP - 1, -1), ("handle", numpy.int64(64), 64)),
        *(("float16", 1, 0x3C00), ("float32", 1.5, 0x3FC00000), ("tfloat32", 1.5, 0x3FC00000)),
        *(("float64", -2, -(1 << 62)), ("float32", numpy.array(1.5), 0x3FC00000)),
        *(("bfloat16", 1.0, 0x3F80), ("float8_e4m3fn", 448, 0x7E), ("float32", True, 0x3F800000)),
        *(("bfloat16", float("inf"), 0x7F80), ("float32", float("-inf"), 0xFF800000)),
    ],
)
def test_a_number_in_its_slot(dtype: str, value: Any, slot: int) -> None:
    assert scalar_encoder("'k': 'x'", dtype)(value) == slot


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *(("bool", 2), ("bool", -1), ("int8", 128), ("int8", -129), ("uint8", 256), ("uint8", -1)),
        *(("int64", TOP), ("int64", -TOP - 1), ("uint64", 2 * TOP), ("uint64", -1)),
        *(("float16", 65520.0), ("float32", 1e39), ("float8_e4m3fn", 449.0), ("float64", 10**400)),
    ],
)
def test_a_number_that_no_slot_holds(dtype: str, value: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        scalar_encoder("'k': 'x'", dtype)(value)
    assert str(caught.value) == f"'k': 'x' is {value}, which '{dtype}' cannot hold"


@pytest.mark.parametrize(
    ("dtype", "value", "expected", "kind"),
    [
        *(("int32", 1.0, "an integer", "float"), ("int32", "1", "an integer", "str")),
        *(("int32", None, "an integer", "NoneType"), ("float32", "1.5", "a number", "str")),
        *(("float32", [1.0], "a number", "list"), ("float32", 1j, "a number", "complex")),
        *(("float32", b"1", "a number", "bytes"), ("float32", numpy.str_("1"), "a number", "str_")),
        *(("float32", numpy.array([1.5]), "a number", "ndarray"),),
        *(("float32", torch.zeros(2), "a number", "Tensor"),),
    ],
)
def test_what_is_no_such_number(dtype: str, value: Any, expected: str, kind: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        scalar_encoder("'k': 'x'", dtype)(value)
    assert str(caught.value) == f"'k': 'x' must be {expected} ('{dtype}'), not '{kind}'"


def test_an_address_is_where_a_tensor_begins() -> None:
    encode = scalar_encoder("'k': 'p'", "handle")
    tensor, array = torch.zeros(4), numpy.zeros(4)
    assert encode(tensor[1:]) == tensor.data_ptr() + 4
    assert encode(array[1:]) == array.ctypes.data + 8


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, "must be a tensor on the CPU or an address, not -1"),
        (2 * TOP, f"must be a tensor on the CPU or an address, not {2 * TOP}"),
        ("a", "must be a tensor on the CPU or an address, not 'a'"),
        (torch.zeros(1, device="meta"), "is on device 'meta', expected 'cpu'"),
    ],
)
def test_what_is_no_address(value: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        scalar_encoder("'k': 'p'", "handle")(value)
    assert str(caught.value) == f"'k': 'p' {message}"


def test_what_an_element_is_stored_as() -> None:
    assert {name: storage_dtypes(name) for name in ("float32", "tfloat32", "handle")} == {
        "float32": ("float32",),
        "tfloat32": ("float32",),
        "handle": ("int64",),
    }
    assert storage_dtypes("int4") == ("int8", "uint8")
    assert storage_dtypes("uint4") == ("uint8", "int8")
    assert storage_dtypes("float4_e2m1fn") == ("float4_e2m1fn_x2", "uint8", "int8")
    for name in ("float6_e2m3fn", "float6_e3m2fn"):
        assert storage_dtypes(name) == (name, "uint8")


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
@pytest.mark.parametrize("storage", [torch.int8, torch.uint8, numpy.int8, numpy.uint8])
def test_two_elements_share_a_byte(dtype: str, storage: Any) -> None:
    library = torch if isinstance(storage, torch.dtype) else numpy
    array = library.zeros((3, 4), dtype=storage)
    binder = ArgumentBinder("k", (ParameterSpec("A", "tensor", dtype, ("m", "n")),), ("m", "n"))
    assert binder.bind((array,)).symbols == (3, 8)


def test_strides_count_elements() -> None:
    view = ArrayView(0, (3, 4), (16, 1), "int8", 1, "cpu", False, "numpy", None)
    found = element_view(view, "int4")
    assert (found.shape, found.strides) == ((3, 8), (32, 1))
    assert element_view(view, "int8") is view
    deep = element_view(replace(view, shape=(2, 3, 4), strides=(48, 16, 1)), "uint4")
    assert (deep.shape, deep.strides) == ((2, 3, 8), (96, 32, 1))


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize(
    ("dtype", "shape", "names"),
    [
        ("int4", (3, 4), ("int8", "int8")),
        ("uint4", (3, 4), ("uint8", "uint8")),
        ("float4_e2m1fn", (3, 4), ("float4_e2m1fn_x2", "uint8")),
        ("float6_e2m3fn", (3, 8), ("uint8", "float6_e2m3fn")),
        ("float6_e3m2fn", (3, 8), ("uint8", "float6_e3m2fn")),
        ("float8_e5m2", (3, 8), ("float8_e5m2", "float8_e5m2")),
        ("bfloat16", (3, 8), ("bfloat16", "bfloat16")),
        ("tfloat32", (3, 8), ("float32", "float32")),
        ("handle", (3, 8), ("int64", "int64")),
    ],
)
def test_outputs(kind: str, dtype: str, shape: tuple[int, ...], names: tuple[str, str]) -> None:
    made = array_maker(kind, (3, 8), dtype)()
    expected = names[0] if kind == "torch" else names[1]
    assert tuple(made.shape) == shape
    assert str(made.dtype).removeprefix("torch.") == expected
    assert type(made).__module__ == kind


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *(("float64", 8), ("int32", 4), ("bfloat16", 2), ("float8_e4m3fn", 1), ("uint4", 1)),
        *(("bool", 1), ("float4_e2m1fn_x2", 1)),
    ],
)
def test_bytes_of_an_element(dtype: str, size: int) -> None:
    assert dtype_bytes(dtype) == size


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        *(((4,), (1,), (0, 8)), ((3, 4), (4, 1), (0, 24)), ((3, 2), (10, 1), (0, 44))),
        *(((4,), (-1,), (-6, 2)), ((2, 3), (8, -2), (-8, 18)), ((0, 4), (4, 1), (0, 0))),
        *(((), (), (0, 2)), ((5,), (0,), (0, 2)), ((1, 1), (9, 9), (0, 2))),
    ],
)
def test_bytes_of_an_array(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: tuple[int, int]
) -> None:
    assert byte_range(shape, strides, 2) == expected


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int32", "float64"])
def test_an_array_of_numpys(name: str) -> None:
    base = numpy.zeros((4, 6), getattr(ml_dtypes, name, name))
    array = base[::2, ::-1]
    view = view_array(array)
    assert view is not None
    assert (view.pointer, view.shape, view.strides) == (array.ctypes.data, (2, 6), (12, -1))
    assert (view.dtype, view.itemsize, view.device, view.kind) == (
        *(name, base.itemsize, "cpu", "numpy"),
    )
    assert not view.readonly
    array.flags.writeable = False
    again = view_array(array)
    assert again is not None and again.readonly


def test_half_a_protocol_is_no_array() -> None:
    class Half:
        def __dlpack__(self) -> None: ...

    class OtherHalf:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    class Cuda:
        __cuda_array_interface__ = {"version": 3}

    assert [view_array(value) for value in (Half(), OtherHalf(), Cuda(), 3, None)] == [None] * 5


class Exported:
    """A tensor of another library, on a device by DLPack's number."""

    def __init__(self, array: Any, device: int = 1, index: int = 0) -> None:
        self.array, self.device, self.index = array, device, index

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, self.index

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("number", [1, 3, 11])
def test_memory_of_the_host_is_read(number: int) -> None:
    array = torch.zeros(3, 4)[:, 1:3]
    view = view_array(Exported(array, number))
    assert view is not None
    assert (view.pointer, view.shape, view.strides) == (array.data_ptr(), (3, 2), (4, 1))
    assert (view.dtype, view.itemsize, view.device, view.kind) == ("float32", 4, "cpu", "dlpack")


@pytest.mark.parametrize(
    ("number", "device"),
    [
        *((2, "cuda:1"), (13, "cuda:1"), (8, "metal:1"), (10, "cuda:1"), (14, "oneapi:1")),
        (99, "device type 99:1"),
    ],
)
def test_memory_of_a_device_is_named_and_not_asked_for(number: int, device: str) -> None:
    view = view_array(Exported(None, number, 1))
    assert view is not None
    assert (view.device, view.readonly, view.shape) == (device, False, ())


def test_an_export_may_begin_behind_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """`byte_offset` counts from the address, which may be null where there are no elements."""
    extents = (ctypes.c_int64 * 2)(3, 4)
    tensor = dlpack._Tensor(data=4096, ndim=2, code=2, bits=32, lanes=1, byte_offset=64)
    tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    monkeypatch.setattr(dlpack, "_export", lambda value: None)
    monkeypatch.setattr(dlpack, "_capsule_name", lambda capsule: b"dltensor")
    monkeypatch.setattr(dlpack, "_capsule_pointer", lambda *_: ctypes.addressof(tensor))
    assert dlpack.read_tensor(None)[:5] == (4160, (3, 4), (4, 1), "float32", False)
    tensor.data, tensor.byte_offset = None, 0
    assert dlpack.read_tensor(None)[0] == 0


def test_a_read_only_export_is_read_only() -> None:
    array = numpy.zeros(3)
    views = [view_array(Exported(array))]
    array.flags.writeable = False
    views.append(view_array(Exported(array)))
    assert [view is not None and view.readonly for view in views] == [False, True]


@pytest.mark.parametrize(
    ("code", "bits", "lanes", "name"),
    [
        *((0, 8, 1, "int8"), (1, 64, 1, "uint64"), (2, 16, 1, "float16"), (5, 64, 1, "complex64")),
        *((4, 16, 1, "bfloat16"), (6, 8, 1, "bool"), (10, 8, 1, "float8_e4m3fn")),
        *((11, 8, 1, "float8_e4m3fnuz"), (12, 8, 1, "float8_e5m2"), (13, 8, 1, "float8_e5m2fnuz")),
        *((14, 8, 1, "float8_e8m0fnu"), (2, 32, 4, "float32x4"), (77, 8, 1, "DLPack type 77")),
    ],
)
def test_dtypes_of_dlpack(code: int, bits: int, lanes: int, name: str) -> None:
    """The codes of version 1.1 of the protocol."""
    assert dlpack._dtype_name(dlpack._Tensor(code=code, bits=bits, lanes=lanes)) == name
