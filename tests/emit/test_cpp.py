"""The second dialect: kernels as plain C++, built and run, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.emit import cpp
from tests.kernels.checks import compare, random
from tests.kernels.test_gpu import CASES, HALF
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.kernels import matmul

built = pytest.mark.skipif(not cpp.compiler(), reason="no C++ compiler: pip install ziglang")
LIBRARY = [
    *("add", "gelu", "softmax", "online_softmax", "rmsnorm", "layernorm", "add_layernorm"),
    *("cross_entropy", "topk", "histogram", "rope", "gemv", "dequant_gemv", "flash_decoding"),
]


@pytest.mark.slow
@built
@pytest.mark.parametrize("name", LIBRARY)
def test_kernels_of_the_library(name, tmp_path):
    page, arguments, expected, scale = CASES[name]()
    compare(cpp.run(page, tmp_path, *arguments), expected, scale, 4.0, HALF)


@pytest.mark.slow
@built
def test_a_matmul_without_matrix_instructions(tmp_path):
    page = matmul(70, 90, 40, "float32", block_M=32, block_N=32, block_K=16, num_stages=2)
    a, b = (random(*shape, dtype="int8").float() for shape in ((70, 40), (40, 90)))
    (found,) = cpp.run(page, tmp_path, a, b)
    assert "barrier(0, 0, true)" in cpp.text_of(page).text
    np.testing.assert_array_equal(found.numpy(), a.numpy() @ b.numpy())


@T.prim_func
def turned(A: T.Tensor((3, 64, 64), "float16"), B: T.Tensor((3, 64, 64), "float16")):
    with T.Kernel(3, threads=128) as bx:
        tile = T.alloc_shared((64, 64), "float16")
        T.copy(A[bx, 0, 0], tile)
        for i, j in T.Parallel(64, 64):
            B[bx, i, j] = tile[63 - j, i]


@pytest.mark.slow
@built
def test_a_copy_through_shared_memory(tmp_path):
    a = random(3, 64, 64, dtype="float16")
    b = torch.zeros_like(a)
    cpp.run(turned, tmp_path, a, b)
    np.testing.assert_array_equal(b.numpy(), a.numpy()[:, ::-1].transpose(0, 2, 1))


@T.prim_func
def exchanged(A: T.Tensor((96,), "int32"), B: T.Tensor((12, 96), "int32")):
    with T.Kernel(1, threads=96) as bx:
        tx = T.get_thread_binding()
        B[0, tx] = T.shfl_sync(A[tx], (tx * 7) % 32)
        B[1, tx] = T.shfl_xor(A[tx], 5)
        B[2, tx] = T.shfl_up(A[tx], 3)
        B[3, tx] = T.shfl_down(A[tx], 9)
        B[4, tx] = T.shfl_xor(A[tx], 4, 8)
        B[5, tx] = T.warp_reduce_sum(A[tx])
        B[6, tx] = T.warp_reduce_max(A[tx])
        B[7, tx] = T.any_sync(A[tx] > 90)
        B[8, tx] = T.all_sync(A[tx] > -100)
        B[9, tx] = T.cast(T.ballot(A[tx] > 0), "int32")
        B[10, tx] = T.syncthreads_count(A[tx] > 0)
        B[11, tx] = T.warp_reduce_bitor(A[tx])


@pytest.mark.slow
@built
def test_exchanges_are_those_of_the_simulator(tmp_path):
    a = random(96, dtype="int8").int()
    found, expected = (torch.zeros(12, 96, dtype=torch.int32) for _ in range(2))
    cpp.run(exchanged, tmp_path, a, found)
    tw.compile(exchanged, target=cpp.TARGET)(a, expected)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@T.prim_func
def packed(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int4")):
    with T.Kernel(1, threads=64) as bx:
        tx = T.get_thread_binding()
        B[tx] = T.cast(A[tx], "int4")


@pytest.mark.slow
@built
def test_two_elements_of_four_bits_share_a_byte(tmp_path):
    a, found = torch.arange(64, dtype=torch.int32), torch.zeros(32, dtype=torch.uint8)
    cpp.run(packed, tmp_path, a, found)
    assert "store4(B, " in cpp.text_of(packed).text
    low, high = a.numpy()[::2] & 15, a.numpy()[1::2] & 15
    np.testing.assert_array_equal(found.numpy(), low | high << 4)


@T.prim_func
def lonely(A: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        tx = T.get_thread_binding()
        if tx < 32:
            T.sync_threads(1, 64)
        A[tx] = 1


@T.prim_func
def checked(A: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64) as bx:
        for i in T.Parallel(64):
            T.device_assert(A[i] < 40, "too large")
            A[i] = 1


@pytest.mark.slow
@built
@pytest.mark.parametrize(("page", "reason"), [(lonely, "deadlock"), (checked, "assertion")])
def test_launches_that_end_badly(page, reason, tmp_path):
    with pytest.raises(RuntimeError, match=reason):
        cpp.run(page, tmp_path, torch.arange(64, dtype=torch.int32))


def test_the_text_has_no_word_of_another_dialect():
    texts = [cpp.text_of(CASES[name]()[0]).text for name in LIBRARY]
    for text in [*texts, cpp.text_of(exchanged).text]:
        assert "block::" in text
        words = r"__(shared|global|device|sync\w*|shfl\w*|[a-z0-9]+_as_\w+)\b|threadIdx|asm|make_"
        assert re.search(words, text) is None


def test_instructions_that_it_has_not_are_refused_at_their_line():
    with pytest.raises(UnsupportedError) as caught:
        cpp.text_of(matmul(64, 64, 64, "float16"))
    assert "T.gemm(A_shared, B_shared" in caught.value.render()
    assert caught.value.message == "plain C++ has nothing for 'load_matrix'"
