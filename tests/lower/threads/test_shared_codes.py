"""Codes of a few bits that are decoded into shared memory: neighbours share a byte or a word."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T

ROWS, COLUMNS = 16, 64


def decoding(bits: int, word: int):
    """Unsigned codes of `bits` bits, the lowest first, in words of `word` bits, to float16."""
    per = word // bits

    @T.prim_func
    def decoded(B: T.Tensor((ROWS, COLUMNS // per), f"uint{word}")):
        C = T.empty((ROWS, COLUMNS), T.float16)
        with T.Kernel(1, threads=32):
            B_shared = T.alloc_shared((ROWS, COLUMNS // per), f"uint{word}")
            C_shared = T.alloc_shared((ROWS, COLUMNS), T.float16)
            T.copy(B, B_shared)
            for i, j in T.Parallel(ROWS, COLUMNS):
                code = T.cast(B_shared[i, j // per], T.uint32) >> T.cast(j % per * bits, T.uint32)
                C_shared[i, j] = T.cast(T.cast(code, T.int32) & ((1 << bits) - 1), T.float16)
            T.copy(C_shared, C)
        return C

    return decoded


def expected(words: np.ndarray, bits: int, word: int) -> np.ndarray:
    shifts = np.arange(0, word, bits, dtype=np.uint64)
    codes = words.astype(np.uint64)[:, :, None] >> shifts & np.uint64((1 << bits) - 1)
    return codes.reshape(ROWS, COLUMNS).astype(np.float16)


TARGETS = ["sim:sm_80", pytest.param("ptx:sm_80", marks=pytest.mark.nvrtc)]
CASES = [(4, 8), (2, 8), (1, 8), (4, 32), (8, 32), (2, 32), (8, 16), (8, 8), (16, 16)]


@pytest.mark.parametrize(("bits", "word"), CASES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_code_is_decoded(bits, word, target):
    shape = (ROWS, COLUMNS * bits // word)
    words = np.random.default_rng(bits).integers(0, 1 << word, shape, dtype=np.uint64)
    words = words.astype(f"uint{word}")
    result = tw.compile(decoding(bits, word), target=target)(torch.from_numpy(words))
    assert np.array_equal(result.numpy(), expected(words, bits, word))


@pytest.mark.parametrize(
    ("bits", "word", "bytes_read"),
    # Eight codes are 16 bytes of float16: what is read for them at once, in bytes.
    [(4, 8, 4), (2, 8, 2), (1, 8, 1), (4, 32, 4), (8, 32, 8), (2, 32, 4), (8, 8, 8), (16, 16, 16)],
)
def test_a_thread_decodes_a_vector_at_once(bits, word, bytes_read):
    kernel = tw.compile(decoding(bits, word), target="sim:sm_80")
    widths = {(row.buffer, row.kind): row.width for row in kernel.accesses}
    assert widths["B_shared", "load"] == bytes_read
    assert widths["C_shared", "store"] == 16
