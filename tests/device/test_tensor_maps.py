"""Tensor maps of a call: what a driver is told, and which tensors are refused."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tileworkbench.compiler.device.nvidia.tensor_maps import MapEncoder
from tileworkbench.compiler.device.tensor_maps import MapValues, map_values
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.simt import TensorMap as TensorMapStmt
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.ptx import TensorMap

VALUES = MapValues(0x1000, "bfloat16", 2, (3, 100, 64), (12800, 128, 2), (1, 32, 64), 128)


class Driver:
    """Records what it is asked to encode."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def call(self, name: str, *arguments: Any) -> None:
        assert name == "cuTensorMapEncodeTiled"
        into, *rest = arguments
        assert into.value % 64 == 0
        ctypes.memset(into.value, len(self.calls) + 1, 128)
        listed = [list(each) if hasattr(each, "__len__") else each.value for each in rest]
        self.calls.append(tuple(listed))


def test_the_driver_is_given_everything_innermost_first() -> None:
    driver = Driver()
    encoder = MapEncoder(SimpleNamespace(driver=driver))  # type: ignore[arg-type]
    assert encoder.encode(VALUES) == b"\x01" * 128
    assert driver.calls == [
        (9, 3, 0x1000, [64, 100, 3], [128, 12800], [64, 32, 1], [1, 1, 1], 0, 3, 3, 0)
    ]


def test_a_map_is_encoded_once_for_an_address_and_a_shape() -> None:
    driver = Driver()
    encoder = MapEncoder(SimpleNamespace(driver=driver))  # type: ignore[arg-type]
    other = MapValues(0x2000, "int8", 1, (100,), (1,), (64,), 0)
    found = [encoder.encode(each) for each in (VALUES, other, VALUES)]
    assert [each[0] for each in found] == [1, 2, 1]
    assert driver.calls[1] == (0, 1, 0x2000, [100], [0], [64], [1], 0, 0, 3, 0)


def test_an_empty_tensor_is_refused_by_a_gpu() -> None:
    encoder = MapEncoder(SimpleNamespace(driver=Driver()))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError) as caught:
        encoder.encode(MapValues(0, "float16", 2, (0, 64), (128, 2), (32, 64), 128))
    assert caught.value.message == (
        "a tensor of shape (0, 64) has no elements, and the copy engine takes none that is empty"
    )


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (
            1001,
            "rows of 'A' are 2002 bytes apart, and the copy engine takes multiples of 16 below "
            "1099511627776",
        ),
        (
            (1 << 32) + 8,
            "'A' has 4294967304 elements along a dimension, and the copy engine takes at most "
            "4294967296",
        ),
    ],
)
def test_tensors_that_the_engine_cannot_take(n: int, message: str) -> None:
    dtype, extent = DType("float16"), Var("n", DType("int64"))
    source = Buffer("A", dtype, (int_const(4), extent), "global")
    buffer = Buffer("A_map", dtype, source.shape, "tensor_map", (extent, int_const(1)))
    stmt = TensorMapStmt(buffer, source, (4, 64), 128)
    with pytest.raises(ArgumentError) as caught:
        map_values(stmt, {"n": n}, 0)
    assert caught.value.message == message


def test_the_interpreter_refuses_strides_as_the_driver_does() -> None:
    with pytest.raises(ArgumentError) as caught:
        TensorMap(np.zeros((4, 9), np.float16), (8, 4))
    assert caught.value.message == (
        "the strides of a tensor map are multiples of 16 bytes, and those of neighbours in a row "
        "the size of an element, not (18, 2)"
    )
