"""Names of TileLang's language that belong to TVM's notation, and older spellings."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench import compat

T: Any = None


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    global T
    compat.install()
    T = importlib.import_module("tilelang.language")
    yield
    compat.uninstall()


def trace(body: Callable[..., None]) -> Any:
    """A prim_func of 32 threads that hands two tensors of 64 floats to a macro."""
    inner = T.macro(body)

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            inner(A, B)

    return main


def run(body: Callable[..., None]) -> Any:
    """B of such a kernel, where A counts from 0."""
    tilelang = importlib.import_module("tilelang")
    return tilelang.compile(trace(body), out_idx=[1])(torch.arange(64.0))


def refused(kind: type[tw.CompileError], body: Callable[..., None]) -> str:
    with pytest.raises(kind) as caught:
        trace(body)
    hint = f"\nhint: {caught.value.hint}" if caught.value.hint else ""
    return caught.value.message + hint


def test_if_then_else() -> None:
    def body(A, B):
        for i in T.Parallel(64):
            with T.If(A[i] < 32):
                with T.Then():
                    B[i] = A[i] * 2
                with T.Else():
                    with T.If(A[i] < 48), T.Then():
                        B[i] = -1.0
                    with T.If(A[i] >= 48), T.Then():
                        B[i] = -2.0

    out = run(body)
    assert torch.equal(out[:32], torch.arange(32.0) * 2)
    assert torch.equal(out[32:], torch.tensor([-1.0] * 16 + [-2.0] * 16))


def test_if_of_a_condition_that_is_known() -> None:
    def body(A, B):
        for i in T.Parallel(64):
            with T.If(2 > 1):
                with T.Then():
                    B[i] = A[i]
                with T.Else():
                    B[i] = 0.0
            with T.If(False), T.Then():
                B[i] = 5.0

    assert torch.equal(run(body), torch.arange(64.0))


def test_branches_in_the_wrong_place() -> None:
    def no_then(A, B):
        with T.If(A[0] > 0), T.Else():
            B[0] = 1.0

    def outside(A, B):
        with T.Then():
            B[0] = 1.0

    assert refused(tw.TileValueError, no_then) == (
        "T.If needs one T.Then, and at most one T.Else after it\n"
        "hint: write 'with T.If(condition):' and in it 'with T.Then():', or just 'if'"
    )
    assert refused(tw.TileValueError, outside) == "T.Then stands outside 'with T.If(condition):'"


def test_blocks_group_statements() -> None:
    def body(A, B):
        with T.sblock("copy"):
            T.reads(A[0:64])
            T.writes(B[0:64])
            T.sblock_attr({"lexical_alloc_scope": 1})
            tile = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            T.copy(A, tile)
            T.copy(tile, B)

    def annotated(A, B):
        with T.sblock(""):
            T.sblock_attr({"layout_map": {}})

    assert torch.equal(run(body), torch.arange(64.0))
    assert refused(tw.UnsupportedError, annotated) == (
        "the annotation 'layout_map' of T.sblock_attr is not supported\n"
        "hint: T.annotate_layout and T.annotate_safe_value are what kernels annotate"
    )


def test_addresses_in_row_major_order() -> None:
    assert T.index_to_coordinates(29, (2, 4, 5)) == [1, 1, 4]

    def body(A, B):
        tile = T.alloc_shared((8, 8), "float32")
        T.copy(T.view(A, (8, 8)), tile)
        place = T.tvm_access_ptr(T.type_annotation("float32"), tile.data, 19, 1, 1)
        values = T.make_tensor(place, (4,), "float32")
        T.clear(B)
        for i in T.Parallel(4):
            B[i] = values[i]

    def wrong(A, B):
        T.evaluate(T.tvm_access_ptr(T.type_annotation("float32"), 3, 0, 1, 1))

    assert run(body)[:5].tolist() == [19, 20, 21, 22, 0]
    assert refused(tw.TileTypeError, wrong) == (
        "T.tvm_access_ptr takes the memory of a tensor, not the number 3"
    )


def test_shuffles_as_tvm_spells_them() -> None:
    def body(A, B):
        tx = T.get_thread_binding()
        mask = T.tvm_warp_activemask()
        B[tx] = T.tvm_warp_shuffle_up(mask, A[tx], 3, 32, 32)
        B[tx + 32] = T.tvm_warp_shuffle_down(mask, A[tx], 3, 32, 32)
        B[tx] = B[tx] * 100 + T.tvm_warp_shuffle(mask, A[tx], 5, 32, 32)

    out = run(body)
    lanes = torch.arange(32.0)
    assert torch.equal(out[:32], torch.where(lanes < 3, lanes, lanes - 3) * 100 + 5)
    assert torch.equal(out[32:], torch.where(lanes > 28, lanes, lanes + 3))


def test_expressions_of_tvm() -> None:
    tirx = importlib.import_module("tvm.tirx")

    def both(a):
        inner = tirx.Var("inner", "float32")
        outer = tirx.Var("outer", a.dtype)
        return tirx.Let(outer, a + 1, tirx.Let(inner, outer * 2, inner + outer))

    def body(A, B):
        for i in T.Parallel(64):
            larger = tirx.op.Op.get("tl.max_nan")
            nan = tirx.call_intrin("float32", larger, A[i], T.cast(2, "float32"))
            plain = tirx.Select(tirx.any(A[i] < 2, A[i] > 60), nan, both(A[i]))
            B[i] = tirx.Select(tirx.all(A[i] > 3, A[i] < 6), tirx.const(-1, "float32"), plain)

    def wrong(A, B):
        B[0] = tirx.Let(A[0], 1.0, A[1])

    assert refused(tw.TileTypeError, wrong) == "tirx.Let takes a variable of tirx.Var first"
    a = torch.arange(64.0)
    expected = torch.where((a < 2) | (a > 60), a.clamp(min=2), (a + 1) * 3)
    expected[4:6] = -1
    assert torch.equal(run(body), expected)


def test_stores_as_statements() -> None:
    def body(A, B):
        for i in T.Parallel(64):
            T.buffer_store(B, A[i] + 1, [i])

    def wrong(A, B):
        T.buffer_store(A[0], 1.0, [0])

    assert torch.equal(run(body), torch.arange(64.0) + 1)
    assert refused(tw.TileTypeError, wrong) == (
        "T.buffer_store takes a tensor, not a run-time value"
    )


def test_older_names_of_operators() -> None:
    def body(A, B):
        left, right = T.alloc_shared((16, 16), "float32"), T.alloc_shared((16, 16), "float32")
        total = T.alloc_buffer((16, 16), "float32", scope="local.fragment")
        T.fill(left, 1.0)
        T.fill(right, 2.0)
        T.clear(total)
        T.gemm_v1(left, right, total)
        for i in T.parallel(4):
            for j in T.parallel(2, 18):
                B[i * 16 + j - 2] = total[i, j - 2]

    assert torch.equal(run(body), torch.full((64,), 32.0))


@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_reciprocal_roots_of_float64_are_refused(mode: str) -> None:
    def double(A: Any, B: Any) -> None:
        B[0] = T.ieee_frsqrt(T.cast(A[1], "float64"), mode)

    assert refused(tw.TileTypeError, double) == (
        "T.ieee_frsqrt: frsqrt is not supported for float64 in TileLang's scripts\n"
        "hint: take that of tileworkbench.language, or cast it to float32"
    )

    def single(A: Any, B: Any) -> None:
        B[0] = T.ieee_frsqrt(A[4], mode)

    assert run(single)[0] == 0.5
