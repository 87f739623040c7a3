"""Random numbers: the same from every back end, and those of a reference generator."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals

# Known answers of Random123's test suite (kat_vectors, philox4x32-10): counter, key, result.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def philox(counter, key):
    """Four words, in plain Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def words(seed, sequence, first, count):
    """Numbers `first`, `first` + 1, ... of a sequence."""
    key = (seed & 0xFFFFFFFF, seed >> 32)
    made = []
    for place in range(first, first + count):
        block = place >> 2
        counter = (block & 0xFFFFFFFF, block >> 32, sequence & 0xFFFFFFFF, sequence >> 32)
        made.append(philox(counter, key)[place & 3])
    return np.array(made, np.uint32)


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter, key, result):
    assert philox(counter, key) == result
    seed, sequence = key[0] | key[1] << 32, counter[2] | counter[3] << 32
    start = (counter[0] | counter[1] << 32) << 2
    if start >> 64:  # more numbers than a sequence has
        start &= (1 << 64) - 1
        result = words(seed, sequence, start, 4).tolist()

    @T.prim_func
    def kernel(A: T.Tensor((4,), "uint32")):
        with T.Kernel(1, threads=1):
            T.rng_init(T.uint64(seed), T.uint64(sequence), T.uint64(start))
            for i in T.serial(4):
                A[i] = T.rng_rand()

    check_everywhere(kernel, {"A": np.zeros(4, np.uint32)}, equals(A=np.array(result, np.uint32)))


def test_iterations_get_numbers_of_their_own():
    @T.prim_func
    def kernel(A: T.Tensor((3, 40), "uint32"), B: T.Tensor((3, 40), "uint32"), seed: T.uint64):
        C = T.empty((3, 2), "uint32")
        with T.Kernel(3, threads=32) as bx:
            T.rng_init(seed, bx, 5)
            C[bx, 0] = T.rng_rand()
            for i, j in T.Parallel(4, 10):
                A[bx, i * 10 + j] = T.rng_rand()
                if j < 7:
                    B[bx, i * 10 + j] = T.rng_rand()
            C[bx, 1] = T.rng_rand()
        return C

    seed = 0x123456789ABCDEF0
    numbers = np.array([words(seed, b, 5, 82) for b in range(3)])
    a, b = numbers[:, 1:81:2], numbers[:, 2:81:2].copy()
    b[:, np.arange(40) % 10 >= 7] = 7
    arguments = {
        "A": np.zeros((3, 40), np.uint32), "B": np.full((3, 40), 7, np.uint32), "seed": seed
    }  # fmt: skip
    check_everywhere(kernel, arguments, equals(A=a, B=b, C=numbers[:, [0, 81]]))


def test_floats():
    @T.prim_func
    def kernel(A: T.Tensor((2, 256), "float32"), B: T.Tensor((2, 256), "float64")):
        N = T.empty((2, 256), "float32")
        D = T.empty((2, 256), "float64")
        with T.Kernel(2, threads=64) as bx:
            T.rng_init(7)
            for i in T.Parallel(256):
                A[bx, i] = T.rng_rand_float()
            for i in T.Parallel(256):
                B[bx, i] = T.rng_rand_float(64)
            for i in T.Parallel(256):
                N[bx, i] = T.rng_rand_float(32, "normal")
            for i in T.Parallel(256):
                D[bx, i] = T.rng_rand_float(bit=64, dist="normal")
        return N, D

    rows = [words(7, 64 * b, 0, 256 * 9).astype(np.uint64) for b in range(2)]
    single = np.array([row[:256] for row in rows]).astype(np.float32)
    a = (single.astype(np.float64) * 2.0**-32 + 2.0**-33).astype(np.float32)
    pairs = np.array([row[256:768].reshape(256, 2) for row in rows])
    bits = pairs[..., 0] ^ (pairs[..., 1] << np.uint64(21))
    b = bits.astype(np.float64) * 2.0**-53 + 2.0**-54
    u = np.array([row[768:1280].reshape(256, 2) for row in rows]).astype(np.float64) + 0.5
    n = np.sqrt(-2 * np.log(u[..., 0] * 2.0**-32)) * np.sin(u[..., 1] * 2.0**-32 * 2 * np.pi)

    def check(arrays):
        equals(A=a, B=b)(arrays)
        np.testing.assert_allclose(arrays["N"], n, rtol=1e-5, atol=1e-5)
        normal = np.asarray(arrays["D"])
        assert abs(normal.mean()) < 0.2 and abs(normal.std() - 1) < 0.15

    arguments = {"A": np.zeros((2, 256), np.float32), "B": np.zeros((2, 256))}
    check_everywhere(kernel, arguments, check)


@pytest.mark.parametrize("threads", [1, 4])
def test_each_thread_has_a_sequence(threads):
    each = 16 // threads

    @T.prim_func
    def kernel(A: T.Tensor((64,), "uint32")):
        with T.Kernel(4, threads=threads) as bx:
            tx = T.get_thread_binding()
            T.rng_init(42, bx * threads + tx)
            for j in T.serial(each):
                A[bx * 16 + tx * each + j] = T.rng_rand()

    rows = [words(42, sequence, 0, each) for sequence in range(4 * threads)]
    arguments = {"A": np.zeros(64, np.uint32)}
    check_everywhere(kernel, arguments, equals(A=np.concatenate(rows)))


def test_a_block_of_one_thread_draws_in_its_parallel_loops():
    @T.prim_func
    def kernel(A: T.Tensor((61,), "uint32")):
        with T.Kernel(4, threads=1) as bx:
            tx = T.get_thread_binding()
            T.rng_init(42, 0, bx + tx)
            for i, j in T.Parallel(1, 16):
                if bx * 16 + j < 61:
                    A[bx * 16 + i * 16 + j] = T.rng_rand()

    rows = np.concatenate([words(42, 0, block, 16) for block in range(4)])
    check_everywhere(kernel, {"A": np.zeros(61, np.uint32)}, equals(A=rows[:61]))
