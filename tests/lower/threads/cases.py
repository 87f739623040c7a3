"""Element-wise kernels as text, each with what is special about it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.lower.threads.planned import program
from tileworkbench.compiler.ir.program import Program

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """A kernel over tensors `name: (shape, dtype)`; symbolic extents get the value in `symbols`."""

    tensors: dict[str, tuple[tuple[int | str, ...], str]]
    body: str
    threads: int = 128
    grid: str = "1"
    symbols: dict[str, int] = field(default_factory=dict)

    def program(self) -> Program:
        """The front end's program."""
        params = []
        for name, (shape, dtype) in self.tensors.items():
            extents = ", ".join(str(extent) for extent in shape)
            params.append(f'{name}: T.Tensor(({extents},), "{dtype}")')
        return program(params, self.body, self.threads, self.grid, self.symbols)

    def arguments(self) -> dict[str, Array]:
        """Small integers, the same each time."""
        rng = np.random.default_rng(0)
        found = {}
        for name, (shape, dtype) in self.tensors.items():
            sizes = [self.symbols.get(str(extent), extent) for extent in shape]
            found[name] = rng.integers(0, 50, [int(size) for size in sizes]).astype(dtype)
        return found


F32, F16, I32, U8 = "float32", "float16", "int32", "uint8"
CASES = {
    "a tile is transposed through shared memory": Case(
        {"A": ((64, 128), F32), "B": ((128, 64), F32)},
        """
        S = T.alloc_shared((64, 128), "float32")
        T.copy(A, S)
        for i, j in T.Parallel(128, 64):
            B[i, j] = S[j, i]
        """,
    ),
    "memory is transposed directly": Case(
        {"A": ((64, 128), F32), "B": ((128, 64), F32)},
        """
        for i, j in T.Parallel(128, 64):
            B[i, j] = A[j, i]
        """,
    ),
    "registers are transposed": Case(
        {"A": ((64, 32), F32), "B": ((32, 64), F32)},
        """
        F = T.alloc_fragment((64, 32), "float32")
        G = T.alloc_fragment((32, 64), "float32")
        T.copy(A, F)
        for i, j in T.Parallel(32, 64):
            G[i, j] = F[j, i]
        T.copy(G, B)
        """,
    ),
    "a copy converts in memory": Case(
        {"A": ((64, 128), F32), "B": ((64, 128), F16)},
        """
        S = T.alloc_shared((64, 128), "float16")
        T.copy(A, S)
        T.copy(S, B)
        """,
    ),
    "a copy converts in registers": Case(
        {"A": ((64, 128), F16), "B": ((64, 128), F16)},
        """
        F = T.alloc_fragment((64, 128), "float32")
        T.copy(A, F)
        for i, j in T.Parallel(64, 128):
            F[i, j] = F[i, j] + 1.0
        T.copy(F, B)
        """,
    ),
    "a scale per group of columns": Case(
        {"A": ((64, 128), F32), "D": ((64, 4), F32), "B": ((64, 128), F32)},
        """
        F = T.alloc_fragment((64, 128), "float32")
        s = T.alloc_fragment((64, 4), "float32")
        T.copy(A, F)
        T.copy(D, s)
        for i, j in T.Parallel(64, 128):
            F[i, j] = F[i, j] * s[i, j // 32]
        T.copy(F, B)
        """,
    ),
    "a replicated row is added atomically once": Case(
        {"A": ((64,), F32), "B": ((64,), F32), "C": ((64, 64), F32)},
        """
        s = T.alloc_fragment((64,), "float32")
        F = T.alloc_fragment((64, 64), "float32", layout=Fragment((64, 64), \
lambda i, j: (32*(i//16) + 4*(i%8) + j//2%4, 4*(j//8) + 2*(i//8%2) + j%2)))
        T.fill(F, 1.0)
        T.copy(A, s)
        for i, j in T.Parallel(64, 64):
            F[i, j] = F[i, j] + s[i]
        for i_1 in T.Parallel(64):
            T.atomic_add(B[i_1], s[i_1])
        T.copy(F, C)
        """,
    ),
    "a replicated row is stored inside a serial loop": Case(
        {"A": ((64,), F32), "B": ((4, 64), F32), "C": ((64, 64), F32)},
        """
        s = T.alloc_fragment((64,), "float32")
        F = T.alloc_fragment((64, 64), "float32", layout=Fragment((64, 64), \
lambda i, j: (2*i + j//32, j%32)))
        T.fill(F, 1.0)
        T.copy(A, s)
        for i, j in T.Parallel(64, 64):
            F[i, j] = F[i, j] + s[i]
        for k in T.serial(4):
            for i_1 in T.Parallel(64):
                B[k, i_1] = B[k, i_1] + s[i_1]
        T.copy(F, C)
        """,
    ),
    "a scalar in every thread": Case(
        {"A": ((64,), F32), "B": ((64,), F32)},
        """
        s = T.alloc_fragment((1,), "float32")
        for i in T.Parallel(1):
            s[0] = A[5]
        for i_1 in T.Parallel(64):
            B[i_1] = s[0] + A[i_1]
        """,
    ),
    "a fragment is read by a condition": Case(
        {"A": ((64,), F32), "B": ((64,), F32)},
        """
        s = T.alloc_fragment((2, 4), "float32")
        T.copy(A[0:4], s[1:2, 0:4])
        if s[1, 2] > 3.0:
            for i in T.Parallel(64):
                B[i] = s[1, 1] + A[i]
        """,
    ),
    "more iterations than the grid has": Case(
        {"A": ((1000,), F32), "B": ((1000,), F32)},
        """
        for i in T.Parallel(384):
            B[bx * 384 + i] = A[bx * 384 + i] + 1.0
        """,
        grid="3",
    ),
    "fewer iterations than threads": Case(
        {"A": ((100,), F32), "B": ((100,), F32)},
        """
        F = T.alloc_fragment((100,), "float32")
        T.copy(A, F)
        T.copy(F, B)
        """,
    ),
    "rows that do not divide the threads": Case(
        {"A": ((3, 100), F32), "B": ((3, 100), F32)},
        """
        F = T.alloc_fragment((3, 100), "float32")
        T.copy(A, F)
        T.copy(F, B)
        """,
    ),
    "threads that are no power of two": Case(
        {"A": ((48, 80), F16), "B": ((48, 80), F16)},
        """
        S = T.alloc_shared((48, 80), "float16")
        F = T.alloc_fragment((48, 80), "float16")
        T.copy(A, S)
        T.copy(S, F)
        T.copy(F, B)
        """,
        threads=96,
    ),
    "a symbolic number of rows": Case(
        {"A": (("n", 64), F32), "B": (("n", 64), F32)},
        """
        for i, j in T.Parallel(n, 64):
            B[i, j] = A[i, j] + 1.0
        """,
        symbols={"n": 37},
    ),
    "a symbolic width": Case(
        {"A": ((5, "n"), F32), "B": ((5, "n"), F32)},
        """
        for i, j in T.Parallel(5, n):
            B[i, j] = A[i, j] + 1.0
        """,
        symbols={"n": 37},
    ),
    "rows are gathered": Case(
        {"A": ((64, 128), F32), "I": ((64,), I32), "B": ((64, 128), F32)},
        """
        for i, j in T.Parallel(64, 128):
            B[i, j] = A[I[i], j]
        """,
    ),
    "an index from a fragment": Case(
        {"A": ((64,), F32), "I": ((64,), I32), "B": ((64,), F32)},
        """
        s = T.alloc_fragment((64,), "int32")
        T.copy(I, s)
        for i in T.Parallel(64):
            B[i] = A[s[i]]
        """,
    ),
    "a fragment at an index from memory": Case(
        {"A": ((64,), F32), "I": ((64,), I32), "B": ((64,), F32)},
        """
        s = T.alloc_fragment((64,), "float32")
        T.copy(A, s)
        for i in T.Parallel(64):
            B[i] = s[I[i]]
        """,
    ),
    "a histogram in shared memory": Case(
        {"I": ((256,), I32), "B": ((64,), I32)},
        """
        S = T.alloc_shared((64,), "int32")
        T.fill(S, 0)
        for i in T.Parallel(256):
            T.atomic_add(S[I[i]], 1)
        T.copy(S, B)
        """,
    ),
    "a serial loop inside": Case(
        {"A": ((64, 8), F32), "B": ((64, 8), F32)},
        """
        F = T.alloc_fragment((64, 8), "float32")
        T.copy(A, F)
        for i in T.Parallel(64):
            for k in T.serial(8):
                F[i, k] = F[i, k] + 1.0
        T.copy(F, B)
        """,
    ),
    "a serial loop outside": Case(
        {"A": ((8, 64), F32), "B": ((8, 64), F32)},
        """
        F = T.alloc_fragment((8, 64), "float32")
        for k in T.serial(8):
            for i in T.Parallel(64):
                F[k, i] = A[k, i] + 1.0
        T.copy(F, B)
        """,
    ),
    "halves of a fragment": Case(
        {"A": ((128,), F32), "B": ((128,), F32)},
        """
        F = T.alloc_fragment((128,), "float32")
        for i in T.Parallel(64):
            F[i] = A[i]
        for i_1 in T.Parallel(64):
            F[i_1 + 64] = A[i_1] * 2.0
        T.copy(F, B)
        """,
    ),
    "a fragment backwards": Case(
        {"A": ((128,), F32), "B": ((128,), F32)},
        """
        F = T.alloc_fragment((128,), "float32")
        T.copy(A, F)
        for i in T.Parallel(128):
            B[i] = F[127 - i]
        """,
    ),
    "a shifted fragment": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        F = T.alloc_fragment((64, 32), "float32")
        G = T.alloc_fragment((64, 32), "float32")
        T.copy(A, F)
        T.fill(G, 0.0)
        for i, j in T.Parallel(64, 31):
            G[i, j] = F[i, j + 1]
        T.copy(G, B)
        """,
    ),
    "pairs are added": Case(
        {"A": ((64, 32), F32), "B": ((64, 16), F32)},
        """
        F = T.alloc_fragment((64, 32), "float32")
        G = T.alloc_fragment((64, 16), "float32")
        T.copy(A, F)
        for i, j in T.Parallel(64, 16):
            G[i, j] = F[i, 2 * j] + F[i, 2 * j + 1]
        T.copy(G, B)
        """,
    ),
    "halves of rows are combined": Case(
        {"A": ((64, 64), F16), "B": ((64, 64), F16)},
        """
        F = T.alloc_fragment((64, 64), "float16")
        T.copy(A, F)
        for i, j in T.Parallel(64, 32):
            B[i, j] = F[i, j] - F[i, j + 32]
            B[i, j + 32] = F[i, j] + F[i, j + 32]
        """,
    ),
    "codes of four bits in registers": Case(
        {"A": ((64, 32), U8), "B": ((64, 64), F16)},
        """
        S = T.alloc_shared((64, 32), "uint8")
        F = T.alloc_fragment((64, 32), "uint8")
        G = T.alloc_fragment((64, 64), "float16")
        T.copy(A, S)
        T.copy(S, F)
        for i, j in T.Parallel(64, 64):
            G[i, j] = T.float16(F[i, j // 2] >> T.uint8(j % 2 * 4) & T.uint8(15))
        T.copy(G, B)
        """,
    ),
    "codes of four bits in shared memory": Case(
        {"A": ((64, 32), U8), "B": ((64, 64), F16)},
        """
        S = T.alloc_shared((64, 32), "uint8")
        G = T.alloc_fragment((64, 64), "float16")
        T.copy(A, S)
        for i, j in T.Parallel(64, 64):
            G[i, j] = T.float16(S[i, j // 2] >> T.uint8(j % 2 * 4) & T.uint8(15))
        T.copy(G, B)
        """,
    ),
    "a fragment of three dimensions": Case(
        {"A": ((4, 16, 32), F32), "B": ((4, 16, 32), F32)},
        """
        F = T.alloc_fragment((4, 16, 32), "float32")
        G = T.alloc_fragment((16, 32), "float32")
        T.copy(A, F)
        T.fill(G, 0.0)
        for k in T.serial(4):
            for i, j in T.Parallel(16, 32):
                G[i, j] = G[i, j] + F[k, i, j]
        T.copy(G, B[0:1, 0:16, 0:32])
        """,
    ),
    "one variable for rows and columns": Case(
        {"A": ((512,), F32), "B": ((16, 32), F32)},
        """
        for f in T.Parallel(512):
            B[f // 32, f % 32] = A[f] + 1.0
        """,
    ),
    "a tensor is updated in place": Case(
        {"A": ((64, 32), F32)},
        """
        for i, j in T.Parallel(64, 32):
            A[i, j] = A[i, j] * 2.0
        """,
    ),
    "a store is read again by its iteration": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        for i, j in T.Parallel(64, 32):
            A[i, j] = A[i, j] * 2.0
            B[i, j] = A[i, j] + 1.0
        """,
    ),
    "iterations choose what to store": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        for i, j in T.Parallel(64, 32):
            if i > j:
                B[i, j] = A[i, j] * 2.0
            else:
                B[i, j] = 0.0
        """,
    ),
    "names inside the body": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        for i, j in T.Parallel(64, 32):
            row = i * 1
            x = A[row, j]
            B[row, j] = x * x + 1.0
        """,
    ),
    "a view of a fragment": Case(
        {"A": ((64, 32), F32), "B": ((2048,), F32)},
        """
        F = T.alloc_fragment((64, 32), "float32")
        G = T.view(F, (2048,), "float32")
        T.copy(A, F)
        for i in T.Parallel(2048):
            G[i] = G[i] + 1.0
        T.copy(G, B)
        """,
    ),
    "registers of each thread": Case(
        {"A": ((64,), F32), "B": ((64,), F32)},
        """
        own = T.alloc_local((4,), "float32")
        for i in T.Parallel(4):
            own[i] = A[i]
        for i_1 in T.Parallel(64):
            B[i_1] = own[1] + own[3]
        """,
    ),
    "threads with different roles": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        S = T.alloc_shared((64, 32), "float32")
        with T.threads(0, 64):
            T.copy(A, S)
        T.sync_threads()
        with T.threads(64, 64):
            F = T.alloc_fragment((64, 32), "float32")
            T.copy(S, F)
            T.copy(F, B)
        """,
    ),
    "a ragged corner": Case(
        {"A": ((100, 53), F32), "B": ((100, 53), F16)},
        """
        S = T.alloc_shared((64, 32), "float32")
        F = T.alloc_fragment((64, 32), "float32")
        T.copy(A[36:100, bx * 32 : bx * 32 + 32], S)
        T.copy(S, F)
        T.copy(F, B[36:100, bx * 32 : bx * 32 + 32])
        """,
        grid="2",
    ),
    "many iterations": Case(
        {"A": ((1024, 600), F16), "B": ((1024, 600), F16)},
        """
        for i, j in T.Parallel(1024, 600):
            B[i, j] = A[i, j] + T.float16(1.0)
        """,
    ),
    "a scalar variable of each thread": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        shift = T.alloc_var("int32", init=2)
        shift[()] = 1
        for i, j in T.Parallel(64, 32):
            B[i, j] = A[i, (j + shift[()]) % 32] + T.float32(shift[()])
        """,
    ),
    "bytes are filled": Case(
        {"B": ((64, 32), "int8"), "C": ((64, 32), F16)},
        """
        S = T.alloc_shared((64, 32), "int8")
        R = T.alloc_shared((64, 32), "float16")
        T.fill(S, T.int8(3))
        T.fill(R, T.float16(-1.5))
        T.copy(S, B)
        T.copy(R, C)
        """,
    ),
    "the element before": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        for i, j in T.Parallel(64, 32):
            B[i, j] = A[i, j - 1] + A[i - 1, j]
        """,
    ),
    "indices of 64 bits": Case(
        {"A": ((64, 128), F32), "I": ((64,), "int64"), "B": ((64, 128), F32)},
        """
        for i, j in T.Parallel(64, 128):
            B[i, j] = A[I[i], j]
        """,
    ),
    "a value is read before it is replaced": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        F = T.alloc_fragment((64, 32), "float32")
        T.copy(A, F)
        for i, j in T.Parallel(64, 32):
            x = F[i, j]
            F[i, j] = 0.0
            y = A[i, j]
            A[i, j] = 1.0
            B[i, j] = x + y + F[i, j]
        """,
    ),
    "updates outside a tensor are dropped": Case(
        {"A": ((50,), F32), "B": ((50,), F32)},
        """
        for i in T.Parallel(64):
            T.atomic_add(B[i], A[i] + 1.0)
        """,
    ),
    "a region of symbolic extent": Case(
        {"A": (("n", 32), F32), "B": ((64, 32), F32)},
        """
        S = T.alloc_shared((64, 32), "float32")
        T.fill(S, 0.0)
        T.copy(A[0:n, 0:32], S[0:n, 0:32])
        T.fill(S[0:n, 0:8], 1.0)
        T.copy(S, B)
        """,
        symbols={"n": 21},
    ),
    "a shared tile of three dimensions": Case(
        {"A": ((2, 32, 32), F16), "B": ((32, 32), F16)},
        """
        S = T.alloc_shared((2, 32, 32), "float16", layout=Layout((2, 32, 32), lambda s, i, j: \
(s, 32*i + 8*(i//2%4 ^ j//8) + j%8)))
        for k in T.serial(2):
            T.copy(A[k : k + 1, 0:32, 0:32], S[k : k + 1, 0:32, 0:32])
        for i, j in T.Parallel(32, 32):
            B[i, j] = S[0, i, j] + S[1, i, j]
        """,
    ),
    "a fragment inside a name": Case(
        {"A": ((64,), F32), "B": ((64,), F32)},
        """
        s = T.alloc_fragment((2,), "float32")
        T.copy(A[0:2], s)
        factor = s[1] * 2.0
        for i in T.Parallel(64):
            B[i] = A[i] * factor
        """,
    ),
    "a constant element of a fragment": Case(
        {"A": ((64,), F32), "B": ((64,), F32)},
        """
        s = T.alloc_fragment((4,), "float32")
        T.copy(A[0:4], s)
        for i in T.Parallel(64):
            B[i] = A[i] * s[3]
        """,
    ),
    "loops and conditions around": Case(
        {"A": ((64, 64), F32), "B": ((64, 64), F32)},
        """
        F = T.alloc_fragment((64,), "float32")
        T.fill(F, 0.0)
        for k in T.serial(bx, 64, 3):
            if k % 2 == 0:
                for i in T.Parallel(64):
                    F[i] = F[i] + A[i, k]
        T.copy(F, B[0:64, bx:bx + 1])
        """,
        grid="2",
    ),
    "a user's vector loop": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        for i in T.Parallel(64):
            for j in T.vectorized(32):
                B[i, j] = A[i, j] + 1.0
        """,
    ),
    "code of single threads": Case(
        {"A": ((100,), F32), "B": ((100,), F32)},
        """
        x = A[bx * 64 + tx]
        if tx < 64:
            B[bx * 64 + tx] = x + A[bx * 64 + tx + 1]
        """,
        grid="2",
    ),
    "a vector loop of single threads": Case(
        {"A": ((100,), F32), "B": ((100,), F32)},
        """
        for v in T.vectorized(4):
            B[tx * 4 + v] = A[tx * 4 + v] * 2.0
        """,
    ),
    "what was there before an atomic update": Case(
        {"A": ((64,), I32), "B": ((64,), I32), "C": ((64,), I32)},
        """
        s = T.alloc_fragment((64,), "int32")
        F = T.alloc_fragment((64,), "int32")
        T.copy(A, s)
        for i in T.Parallel(64):
            before = T.atomic_add(B[i], s[i])
            F[i] = before
        T.copy(F, C)
        """,
    ),
    "two versions of a fragment": Case(
        {"A": (("n", 64), F32), "B": ((64,), F32)},
        """
        F = T.alloc_fragment((2, 64), "float32")
        T.fill(F, 0.0)
        for k in T.serial(n):
            for i in T.Parallel(64):
                F[k % 2, i] = F[(k + 1) % 2, i] + A[k, i]
        for i_1 in T.Parallel(64):
            B[i_1] = F[0, i_1]
        """,
        symbols={"n": 6},
    ),
    "a neighbour that stays inside": Case(
        {"A": ((64, 32), F32), "B": ((64, 32), F32)},
        """
        F = T.alloc_fragment((64, 32), "float32")
        G = T.alloc_fragment((64, 32), "float32")
        T.copy(A, F)
        for i, j in T.Parallel(64, 32):
            G[i, j] = F[i, T.max(j - 1, 0)]
        T.copy(G, B)
        """,
    ),
    "a length that vectors do not divide": Case(
        {"A": ((1001,), F32), "B": ((1001,), F32)},
        """
        for i in T.Parallel(1024):
            B[i] = A[i] + 1.0
        """,
    ),
    "replicas keep a value and add it once": Case(
        {"A": ((64,), I32), "B": ((64,), I32), "C": ((64,), I32)},
        """
        s = T.alloc_fragment((64,), "int32", layout=Fragment((64,), \
lambda i, rep: (2*i + rep, 0), replicate=2))
        T.copy(A, s)
        for i in T.Parallel(64):
            s[i] = s[i] + 1
            T.atomic_add(B[i], s[i])
        T.copy(s, C)
        """,
    ),
}
