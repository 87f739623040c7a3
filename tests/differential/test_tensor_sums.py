"""Tiles that the copy engine adds to tensors (T.atomic_add with use_tma): dtypes, edges, swizzles,
blocks that meet; numpy, the simulator after every pass, the processor and the executed PTX agree.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere, check_on_threads, equals, run_native
from tileworkbench.compiler.device.nvidia import nvrtc
from tileworkbench.compiler.layout import Layout


def sums(dtype, rows=64, columns=64, shape=(50, 128)):
    """Each block adds a tile of its own to the same place, at the lower edge of the tensor."""

    @T.prim_func
    def kernel(A: T.Tensor((4, rows, columns), dtype), C: T.Tensor(shape, dtype)):
        with T.Kernel(4, threads=128) as bx:
            S = T.alloc_shared((rows, columns), dtype)
            T.copy(A[bx, :, :], S)
            T.atomic_add(C[0:rows, 64 : 64 + columns], S, use_tma=True)

    return kernel


def arguments(dtype, rows=64, columns=64, shape=(50, 128)):
    rng = np.random.default_rng(3)
    a = rng.integers(0, 8, (4, rows, columns))
    c = rng.integers(0, 8, shape)
    expected = c.copy()
    expected[:, 64 : 64 + columns] += a.sum(0)[: shape[0]]
    return {"A": as_array(a, dtype), "C": as_array(c, dtype)}, as_array(expected, dtype)


def as_array(values, dtype):
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "int32", pytest.param("uint32", marks=pytest.mark.slow)]
)
def test_blocks_that_meet(dtype):
    kernel = sums(dtype)
    given, expected = arguments(dtype)
    check_everywhere(kernel, given, equals(C=expected))
    check_on_threads(kernel, given, equals(C=expected), "sim:sm_80")
    check_on_threads(kernel, given, equals(C=expected), "sim:sm_90")
    text = tw.compile(kernel, target="sim:sm_90").source
    assert "tensor_add_2" in text and "atomicAdd" not in text


@pytest.mark.nvrtc
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint32", "uint64"])
def test_from_ptx(dtype):
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    given, expected = arguments(dtype)
    kernel = sums(dtype)
    equals(C=expected)(run_native(kernel.program, given, "ptx:sm_90"))
    assert "cp.reduce.async.bulk.tensor.2d" in tw.compile(kernel, target="ptx:sm_90").asm


def noted(kernel):
    notes = tw.compile(kernel, target="sim:sm_90").compiled.record.snapshots[-1].program.notes
    return [note for note in notes if "(add" in note]


def test_the_note_says_who_adds():
    assert [each.split(" (add")[0] for each in noted(sums("float32"))] == ["C: TMA"]


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (sums("int64"), "it does not add 'int64'"),
        (sums("float32", shape=(50, 129)), "rows of 516 bytes are not multiples of 16"),
    ],
)
def test_threads_add_where_the_engine_cannot(kernel, why):
    assert [each.split(" (add")[0] for each in noted(kernel)] == [f"C: threads, because {why}"]


def test_a_tensor_that_is_read_too():
    @T.prim_func
    def kernel(C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float32")
            T.copy(C, S)
            T.atomic_add(C, S, use_tma=True)

    why = "'C' is also read or written otherwise in the same launch"
    assert [each.split(" (add")[0] for each in noted(kernel)] == [f"C: threads, because {why}"]


def test_halves_are_rounded_to_nearest():
    """Sums that need more bits than the dtype has, by every route."""
    import torch

    @T.prim_func
    def kernel(A: T.Tensor((8, 64), "bfloat16"), C: T.Tensor((8, 64), "bfloat16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8, 64), "bfloat16")
            T.copy(A, S)
            T.atomic_add(C, S, use_tma=True)

    torch.manual_seed(0)
    a, c = torch.randn(8, 64).bfloat16(), torch.randn(8, 64).bfloat16()
    targets = ["cpu", "sim:sm_80", "sim:sm_90"]
    for target in [*targets, *([] if nvrtc.missing_nvrtc() else ["ptx:sm_90"])]:
        found = c.clone()
        tw.compile(kernel, target=target)(a, found)
        assert torch.equal(found, a + c), target


def swizzled():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({S: Layout.swizzled((64, 64), 16, 128)})
            T.copy(A, S)
            T.atomic_add(C, S, use_tma=True)

    return kernel


def test_a_swizzled_tile():
    given = {
        "A": as_array(np.arange(4096).reshape(64, 64) % 61, "float16"),
        "C": as_array(np.arange(4096).reshape(64, 64) % 7, "float16"),
    }
    check = equals(C=given["A"] + given["C"])
    check_on_threads(swizzled(), given, check, "sim:sm_90")
    assert [each.split(" (add")[0] for each in noted(swizzled())] == ["C: TMA, 128-byte swizzle"]
    if nvrtc.missing_nvrtc() is None:
        check(run_native(swizzled().program, given, "ptx:sm_90"))
