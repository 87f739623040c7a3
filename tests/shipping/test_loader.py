"""What the loader of a shipped kernel refuses: it knows the manifest, and nothing of a kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tileworkbench.shipping.shipped.cuda import CudaLauncher
from tileworkbench.shipping.shipped.errors import ArgumentError
from tileworkbench.shipping.shipped.loader import Call, Kernel, grid_of


class Launcher:
    """Notes its calls."""

    memory = "cpu"

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def launch(self, call: Call) -> None:
        self.calls.append(call)


def parameter(name: str, shape: list[Any], **facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "tensor",
        "dtype": "float32",
        "storage": ["float32"],
        "shape": shape,
        "shape_text": [str(each) for each in shape],
        "strides": None,
        "output": False,
        "written": False,
        "used": True,
        "alignment": 4,
        **facts,
    }


def symbol(name: str, position: int, axis: int, **source: Any) -> dict[str, Any]:
    facts = {"coefficient": 1, "constant": 0, "stride": False, "text": name, **source}
    return {
        "name": name,
        "dtype": "int32",
        "most": 1000,
        "source": {"parameter": position, "axis": axis, **facts},
    }


def kernel(*parameters: dict[str, Any], **facts: Any) -> Kernel:
    outputs = [spec for spec in parameters if spec["output"]]
    manifest = {
        "name": "k",
        "target": "cpu",
        "parameters": list(parameters),
        "symbols": [],
        "returns": list(range(len(outputs))),
        "assumptions": [],
        "aliasing": "none",
        **facts,
    }
    return Kernel(manifest, Launcher())


def said(made: Kernel, *args: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        made(*args)
    return str(caught.value)


def test_symbols_follow_from_shapes_and_strides() -> None:
    made = kernel(
        parameter("A", [["add", "int32", ["mul", "int32", 2, "n"], 1]], shape_text=["2*n + 1"]),
        parameter("B", ["n", 3], strides=["s", 1]),
        parameter("C", [["mul", "int32", "n", 4]], output=True, written=True),
        symbols=[
            symbol("n", 0, 0, coefficient=2, constant=1, text="2*n + 1"),
            symbol("s", 1, 0, stride=True),
        ],
    )
    b = np.zeros((5, 8), np.float32)[:, :3]
    result = made(np.zeros(11, np.float32), b)
    assert result.shape == (20,)
    (call,) = made.launcher.calls  # type: ignore[attr-defined]
    assert call.numbers == {"n": 5, "s": 8}
    assert call.slots[3:] == [5, 8]
    assert call.device == "cpu"
    assert said(made, np.zeros(10, np.float32), b) == (
        "'k': dimension 0 of 'A' is 10, which is not 2*n + 1 for any n"
    )
    assert said(made, np.zeros(3, np.float32), b) == "'k': dimension 0 of 'B' is 5, expected n = 1"
    long = np.zeros(2003, np.float32)
    assert said(made, long, b) == (
        "'k': dimension 0 of 'A' is 2003, and an 'int32' symbol is at most 1000"
        "\nhint: the sizes have 32 bits: declare them as T.dynamic('n', 'int64') and ship the "
        "kernel again"
    )
    assert made(torch.zeros(11), torch.zeros(5, 8)[:, :3]).shape == (20,)


def test_strides() -> None:
    made = kernel(parameter("A", [2, 3]))
    assert said(made, np.zeros((3, 2), np.float32).T) == (
        "'k': 'A' has strides (1, 2), expected (3, 1)\nhint: pass a contiguous copy"
    )
    assert made(np.zeros((2, 3), np.float32)) is None


def test_sizes_that_go_wrong() -> None:
    n = symbol("n", 0, 0)
    product = ["mul", "int8", "n", "n"]
    made = kernel(parameter("A", ["n"]), parameter("B", [product], output=True), symbols=[n])
    assert said(made, np.zeros(12, np.float32)) == (
        "'k': a dimension of 'B' is 144, which 'int8' does not hold"
        "\nhint: the sizes have 32 bits: declare them as T.dynamic('n', 'int64') and ship the "
        "kernel again"
    )
    quotient = ["floordiv", "int32", 12, "n"]
    made = kernel(parameter("A", ["n"]), parameter("B", [quotient], output=True), symbols=[n])
    assert said(made, np.zeros(0, np.float32)) == "'k': a dimension of 'B' is divided by zero"
    huge = parameter("B", [1 << 45, 1 << 15], output=True)
    assert said(kernel(parameter("A", [1]), huge), np.zeros(1, np.float32)) == (
        f"'k': 'B' of shape ({1 << 45}, {1 << 15}): there is no memory for it"
    )


def test_tensors_that_are_left_out() -> None:
    made = kernel(parameter("A", ["n"], used=False), symbols=[symbol("n", 0, 0)])
    assert said(made, None) == "'k': 'A' is None, and the kernel reads 'n' from its shape"
    assert kernel(parameter("A", [4], used=False))(None) is None
    assert said(kernel(parameter("A", [4])), None) == (
        "'k': 'A' must be a tensor, not 'NoneType'\nhint: a torch tensor or a numpy array"
    )


def test_overlaps() -> None:
    parameters = [parameter("A", [4]), parameter("B", [4], written=True)]
    memory = np.zeros(8, np.float32)
    told = "'k': 'B' is written and overlaps 'A' in memory\nhint: pass tensors of their own"
    assert said(kernel(*parameters), memory[:4], memory[2:6]) == told
    assert said(kernel(*parameters), memory[:4], memory[:4]) == told
    assert said(kernel(*parameters, aliasing="same"), memory[:4], memory[2:6]) == told
    kernel(*parameters, aliasing="same")(memory[:4], memory[:4])
    kernel(*parameters, aliasing="any")(memory[:4], memory[2:6])
    kernel(*parameters)(memory[:4], memory[4:])


def test_arrays_that_are_not_plain() -> None:
    made = kernel(parameter("A", [4]))
    assert said(made, torch.zeros(4).to_sparse()) == (
        "'k': 'A' is no plain tensor: sparse, or a lazily negated view"
    )
    foreign = np.zeros(4, np.dtype("float32").newbyteorder())
    assert said(made, foreign) == ("'k': 'A' has foreign byte order, or elements that lie unevenly")


def test_devices_that_differ() -> None:
    made = kernel(parameter("A", [4]), parameter("B", [4]))
    made._view = lambda spec, value: SimpleNamespace(  # type: ignore[method-assign,assignment,return-value]
        pointer=0, device=value, form=value
    )
    assert said(made, "cuda:1", "cuda:0") == (
        "'k': the tensors are on cuda:0 and cuda:1\nhint: move all tensors of a call to one device"
    )


def test_grids() -> None:
    assert grid_of("k", [["add", "int32", "n", 1], 2], {"n": 4}) == (5, 2, 1)
    wrong = {
        "'k': the grid is empty, there is no block to run": [0],
        f"'k': the grid has {1 << 32} blocks; a launch has at most 2147483647": [1 << 16, 1 << 16],
        "'k': an extent of the grid is 4294967296, which 'int32' does not hold"
        "\nhint: the sizes have 32 bits: declare them as T.dynamic('n', 'int64') and ship the "
        "kernel again": [["mul", "int32", 65536, 65536]],
    }
    for text, formulas in wrong.items():
        with pytest.raises(ArgumentError) as caught:
            grid_of("k", formulas, {})
        assert str(caught.value) == text


def test_what_the_copy_engine_does_not_take(tmp_path: Any) -> None:
    manifest = {"name": "k", "arch": "sm_90a", "parameters": [{"name": "A"}], "variants": []}
    launcher = CudaLauncher(tmp_path, manifest)
    facts = {"parameter": 0, "element": "float16", "itemsize": 2, "box": [8, 8], "swizzle": 0}
    wrong = {
        "rows of 'A' are 6 bytes apart, and the copy engine takes multiples of 16 below "
        "1099511627776": ([4, 3], [6, 2]),
        "'A' has 4294967297 elements along a dimension, and the copy engine takes at most "
        "4294967296": ([4294967297, 8], [16, 2]),
    }
    for text, (shape, strides) in wrong.items():
        with pytest.raises(ArgumentError) as caught:
            launcher._map({**facts, "shape": shape, "strides": strides}, Call([64], {}, "cuda"))
        assert str(caught.value) == text
