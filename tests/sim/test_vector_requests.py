"""The addresses behind the accesses of a lowered CPU program: lanes and cache lines."""

from __future__ import annotations

import tileworkbench as tw
import tileworkbench.language as T
from tests.sim.test_cpu_stage import cpu
from tileworkbench.compiler.sim.vector_requests import MOST_VECTORS, VectorAccess, list_vectors


def listed(kernel: tw.Kernel) -> dict[tuple[str, str], VectorAccess]:
    return {(found.buffer, found.kind): found for found in kernel.requests}


def test_lanes_of_rows_and_columns() -> None:
    @tw.jit(target="cpu:generic")
    def turned(A):
        A: T.Tensor((64, 64), "float32")
        B = T.empty((64, 64), "float32")
        with T.Kernel(1, threads=64) as _:
            S = T.alloc_shared((64, 64), "float32")
            for i, j in T.Parallel(64, 64):
                S[i, j] = A[i, j] + 1.0  # no copy, which would turn it
            for i, j in T.Parallel(64, 64):
                B[i, j] = S[j, i]
        return B

    found = listed(turned.compile())
    store, load = found["S", "store"], found["S", "load"]
    lanes = store.lanes
    assert store.pattern == "contiguous" and store.vectors[0] == tuple(range(0, 4 * lanes, 4))
    assert (store.factor, len(store.vectors)) == (1.0, MOST_VECTORS)
    assert load.pattern == "scattered" and load.vectors[0][:2] == (0, 256)
    assert load.lines_of(load.vectors[0]) == tuple(range(0, 4 * lanes, 4))
    assert load.factor == float(lanes)
    assert str(load).startswith(f"S: load scattered {lanes}.00x lines (")
    assert (load.places, load.base, load.scope) == (4096, 0, "shared")
    made = load.to_dict()
    assert made["vectors"][1][:2] == [4 * lanes * 64, 4 * lanes * 64 + 256]
    assert (made["lines"], made["ideal"]) == (lanes * MOST_VECTORS, MOST_VECTORS)


def test_masked_lanes_unknown_addresses_and_the_first_iterations() -> None:
    body = """
S = T.alloc_shared((64,), "float32", offset=128)
V = T.view(S, (128,), "float16")
for k in T.serial(3, 100):
    for i in T.vectorized(8):
        T.store(A[i * 2 + k], 1.0, i < 3)
    x = B[k]
    A[x] = 2.0
for j in T.vectorized(4):
    S[j] = A[0]
    V[j + 32] = T.float16(1.0)
"""
    made = list_vectors(cpu("A: (512,) float32; B: (512,) int32", body, scratch=512))
    found = {(a.site, a.buffer, a.kind): a for a in made}
    by = {key[1:]: a for key, a in found.items()}
    assert by["A", "store"].vectors[:2] == ((12, 20, 28), (16, 24, 32))
    assert len(by["A", "store"].vectors) == MOST_VECTORS
    assert by["B", "load"].pattern == "scalar" and by["B", "load"].vectors[0] == (12,)
    assert by["A", "load"].pattern == "uniform" and by["A", "load"].factor == 1.0
    assert by["S", "store"].vectors[0] == (128, 132, 136, 140)
    assert by["V", "store"].vectors[0] == (192, 194, 196, 198) and by["V", "store"].places == 128
