"""A matmul as lowering for sm_80 would leave it, as text: a ring of cp.async copies, ldmatrix from
swizzled shared memory, mma, one barrier per iteration.

C[M, N] = A[M, K] @ B[K, N] in float16 with float32 accumulators; warps are 2 x 2. The parts that
tests replace by wrong ones have names.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.verify import verify


@dataclass(frozen=True)
class Matmul:
    """Sizes, and the texts that mutants change."""

    m: int = 64
    n: int = 64
    k: int = 128
    block_m: int = 64
    block_n: int = 64
    stages: int = 3
    stage: str = "simt"
    pending: int = 1
    barrier: str = "T.sync_threads()"
    transpose_b: bool = True
    swizzle_store_b: str = "({c} ^ {r} % 8)"
    swizzle_load_b: str = "({c} ^ {r} % 8)"
    version_load: str = "k % {s}"
    guard: str = "k + {ahead} < {trips}"
    row_a: str = "tx % 16"
    chunk_a: str = "tx % 32 // 16"
    column_c: str = "tx % 4 * 2"
    predicate: str = ""

    @property
    def warp_m(self) -> int:
        return self.block_m // 2

    @property
    def warp_n(self) -> int:
        return self.block_n // 2

    @property
    def trips(self) -> int:
        return -(-self.k // 32)

    def program(self) -> Program:
        """The verified program."""
        made = parse(self.text())
        verify(made)
        return made

    def text(self) -> str:
        size_a, size_b = self.block_m * 32, self.block_n * 32
        body = f"""
A_shared = T.alloc_shared(({self.stages * size_a},), "float16", offset=0)
B_shared = T.alloc_shared(({self.stages * size_b},), "float16", offset={self.stages * size_a * 2})
a = T.alloc_local(({self.warp_m // 16 * 8},), "float16")
b = T.alloc_local(({self.warp_n // 16 * 8},), "float16")
c = T.alloc_local(({self.warp_m * self.warp_n // 32},), "float32")
wm = tx // 32 % 2
wn = tx // 64
for z in T.unroll({self.warp_m * self.warp_n // 32}):
    c[z] = 0.0
for p in T.unroll({self.stages - 1}):
{indent(self.copies("p", "p", "p"), "    ")}
    T.commit_group()
for k in T.serial({self.trips}):
    T.wait_group(pending={self.pending})
    {self.barrier}
    if {self.guard.format(ahead=self.stages - 1, trips=self.trips)}:
{
            indent(
                self.copies(
                    f"(k + {self.stages - 1})", f"(k + {self.stages - 1}) % {self.stages}", "q"
                ),
                "        ",
            )
        }
    T.commit_group()
    for kk in T.unroll(2):
{indent(self.step(), "        ")}
{self.epilogue()}
"""
        lines = [
            f'@T.program(stage="{self.stage}", target="cuda:sm_80", outputs=["C"], returns=["C"])',
            "def matmul(",
            f'    A: T.Tensor(({self.m}, {self.k}), "float16"),',
            f'    B: T.Tensor(({self.k}, {self.n}), "float16"),',
            f'    C: T.Tensor(({self.m}, {self.n}), "float16"),',
            "):",
            f"    with T.Kernel({-(-self.n // self.block_n)}, {-(-self.m // self.block_m)}, "
            'threads=128, thread_vars=["tx"]) as (bx, by):',
        ]
        return "\n".join(lines) + "\n" + indent(body.strip("\n"), " " * 8) + "\n"

    def copies(self, k: str, version: str, name: str) -> str:
        """The asynchronous copies of one k step: 16 bytes each."""
        rows_b = 128 // (self.block_n // 8)
        row_a, chunk_a = f"(i_{name} * 32 + tx // 4)", "tx % 4"
        row_b = f"(j_{name} * {rows_b} + tx // {self.block_n // 8})"
        chunk_b = f"tx % {self.block_n // 8}"
        to_a = (
            f"{version} * {self.block_m * 32} + {row_a} * 32 + ({chunk_a} ^ {row_a} // 2 % 4) * 8"
        )
        swizzled = self.swizzle_store_b.format(c=chunk_b, r=row_b)
        to_b = f"{version} * {self.block_n * 32} + {row_b} * {self.block_n} + {swizzled} * 8"
        return f"""\
for i_{name} in T.unroll({self.block_m // 32}):
    T.async_copy(T.address_of(A_shared[{to_a}]), \
T.address_of(A[by * {self.block_m} + {row_a}, {k} * 32 + {chunk_a} * 8]), \
elements=8{self.predicate})
for j_{name} in T.unroll({32 // rows_b}):
    T.async_copy(T.address_of(B_shared[{to_b}]), \
T.address_of(B[{k} * 32 + {row_b}, bx * {self.block_n} + {chunk_b} * 8]), elements=8)"""

    def step(self) -> str:
        """The products of 16 values of k."""
        version = self.version_load.format(s=self.stages)
        row_a = f"(wm * {self.warp_m} + i * 16 + {self.row_a})"
        chunk_a = f"(kk * 2 + {self.chunk_a})"
        at_a = (
            f"{version} * {self.block_m * 32} + {row_a} * 32 + ({chunk_a} ^ {row_a} // 2 % 4) * 8"
        )
        row_b = "(kk * 16 + tx % 16)"
        chunk_b = f"(wn * {self.warp_n // 8} + j * 2 + tx % 32 // 16)"
        swizzled = self.swizzle_load_b.format(c=chunk_b, r=row_b)
        at_b = f"{version} * {self.block_n * 32} + {row_b} * {self.block_n} + {swizzled} * 8"
        return f"""\
for i in T.unroll({self.warp_m // 16}):
    T.load_matrix(T.address_of(a[i * 8]), T.address_of(A_shared[{at_a}]), count=4, transpose=False)
for j in T.unroll({self.warp_n // 16}):
    T.load_matrix(T.address_of(b[j * 8]), T.address_of(B_shared[{at_b}]), count=4, \
transpose={self.transpose_b})
for i_1 in T.unroll({self.warp_m // 16}):
    for j_1 in T.unroll({self.warp_n // 8}):
        T.mma(T.address_of(a[i_1 * 8]), T.address_of(b[j_1 * 4]), \
T.address_of(c[(i_1 * {self.warp_n // 8} + j_1) * 4]), m=16, n=8, k=16)"""

    def epilogue(self) -> str:
        """The accumulators go to C in pairs."""
        row = f"by * {self.block_m} + wm * {self.warp_m} + i_2 * 16 + h * 8 + tx % 32 // 4"
        column = f"bx * {self.block_n} + wn * {self.warp_n} + j_2 * 8 + {self.column_c}"
        place = f"(i_2 * {self.warp_n // 8} + j_2) * 4 + h * 2"
        return f"""\
for i_2 in T.unroll({self.warp_m // 16}):
    for j_2 in T.unroll({self.warp_n // 8}):
        for h in T.unroll(2):
            C[{row}, T.Ramp({column}, 1, 2)] = T.float16x2(c[T.Ramp({place}, 1, 2)])"""
