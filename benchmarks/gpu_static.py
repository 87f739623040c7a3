"""What GPU kernels cost by their cubins: registers, spills, shared memory, the warps that one
multiprocessor holds, and the instructions of the main loop by what executes them. No GPU is needed,
and no time is measured.

The same tiles and threads with TileLang and Triton, where an interpreter has them
(``TILEWORKBENCH_TILELANG_PYTHON``, ``TILEWORKBENCH_TRITON_PYTHON``): their scripts write code,
which is disassembled and counted here like ours.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common import FOLDER, environment, markdown_table, run_child, write_results

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.analysis.occupancy import occupancy
from tileworkbench.compiler.device.nvidia.nvdisasm import disassemble
from tileworkbench.compiler.device.nvidia.nvrtc import compile_cuda
from tileworkbench.compiler.device.nvidia.sass import Loop, main_loop, whole
from tileworkbench.kernels import (
    chunk_scan,
    dequant_matmul,
    flash_attention,
    matmul,
    mla_decode,
    rmsnorm,
    softmax,
)

ARCHS = ("sm_80", "sm_90a")
PEERS = {
    "TileLang": ("TILEWORKBENCH_TILELANG_PYTHON", "tilelang_static.py"),
    "Triton": ("TILEWORKBENCH_TRITON_PYTHON", "triton_static.py"),
}
KINDS = ("shared", "global", "barrier", "shuffle", "special", "float", "convert", "integer")
SIZE = 4096


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel: what makes it, and whether all of them are compiled with fast math. Of a `masked`
    one the peers' loop is that of the steps without a mask, so ours has a row for such a step, and
    one for a step with it. `archs` are the architectures that have what it takes.
    """

    make: Callable[[], Any]
    fast_math: bool = False
    masked: bool = False
    archs: tuple[str, ...] = ARCHS


def attention(dim: int, block: tuple[int, int], threads: int, causal: bool = False) -> Any:
    return flash_attention(
        *(1, 16, SIZE, SIZE, dim, T.float16),
        causal=causal,
        block_M=block[0],
        block_N=block[1],
        threads=threads,
        num_stages=2,
    )


def product(dtype: str, tile: tuple[int, int, int], threads: int, **more: Any) -> Any:
    m, n, k = tile
    return matmul(
        *(SIZE, SIZE, SIZE, dtype),
        block_M=m,
        block_N=n,
        block_K=k,
        num_stages=3,
        threads=threads,
        **more,
    )


def dequantised() -> Any:
    """A @ W.T with weights of four bits that are decoded into shared memory first."""
    m, n, k = 128, 128, 64

    @T.prim_func
    def dequantised(A: T.Tensor((SIZE, SIZE), T.float16), B: T.Tensor((SIZE, SIZE // 2), T.uint8)):
        C = T.empty((SIZE, SIZE), T.float16)
        with T.Kernel(SIZE // n, SIZE // m, threads=128) as (bx, by):
            A_shared = T.alloc_shared((m, k), T.float16)
            B_shared = T.alloc_shared((n, k // 2), T.uint8)
            W_shared = T.alloc_shared((n, k), T.float16)
            C_local = T.alloc_fragment((m, n), T.float32)
            T.clear(C_local)
            for ko in T.Pipelined(SIZE // k, num_stages=2):
                T.copy(A[by * m, ko * k], A_shared)
                T.copy(B[bx * n, ko * k // 2], B_shared)
                for i, j in T.Parallel(n, k):
                    code = T.cast(B_shared[i, j // 2], T.int32) >> j % 2 * 4 & 15
                    W_shared[i, j] = T.cast(code - 8, T.float16)
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * m, bx * n])
        return C

    return dequantised


# Names are those that the scripts of the peers know.
ROWS = {
    "matmul fp16 128x128x32, 128 threads": Row(lambda: product("float16", (128, 128, 32), 128)),
    "matmul fp16 128x128x64, 128 threads": Row(lambda: product("float16", (128, 128, 64), 128)),
    "matmul fp16 128x256x64, 256 threads": Row(lambda: product("float16", (128, 256, 64), 256)),
    "matmul int8 128x128x64, 128 threads": Row(lambda: product("int8", (128, 128, 64), 128)),
    "matmul int8, B transposed": Row(lambda: product("int8", (128, 128, 64), 128, trans_B=True)),
    "matmul fp8, B transposed": Row(
        lambda: product("float8_e4m3fn", (128, 128, 64), 128, trans_B=True), archs=("sm_90a",)
    ),
    "attention D=64 128x128, 256 threads": Row(lambda: attention(64, (128, 128), 256), True),
    "attention D=64 128x128, causal": Row(
        lambda: attention(64, (128, 128), 256, True), True, True
    ),
    "attention D=128 128x128, 256 threads": Row(lambda: attention(128, (128, 128), 256), True),
    "the same, exact": Row(lambda: attention(128, (128, 128), 256)),
    "the same, causal": Row(lambda: attention(128, (128, 128), 256, True), True, True),
    "attention D=128 128x64, 128 threads": Row(lambda: attention(128, (128, 64), 128), True),
    "dequant int4 128x128x64, 128 threads": Row(
        lambda: dequant_matmul(*(SIZE, SIZE, SIZE, "int4"), block_M=128, block_N=128, block_K=64)
    ),
    "the same, through shared memory, no scales": Row(dequantised),
    "MLA decode": Row(
        lambda: mla_decode(16, 128, SIZE, block_N=32, block_H=64, threads=256), True
    ),
    "chunk scan": Row(lambda: chunk_scan(2, 16, 256, 64, 64, 128), True),
    "rmsnorm, rows of 4096": Row(lambda: rmsnorm(SIZE, SIZE, T.float16)),
    "softmax, rows of 4096": Row(lambda: softmax(SIZE, SIZE, T.float16), True),
}


NOTES = """An iteration is the shortest loop with most tensor instructions; kernels without one are
counted whole. TileLang's int8 loop has no copies: they stand around it. ptxas unrolls its matmuls
on sm_90a by two where their tiles are 128 x 128.

Where others per tensor instruction are more than the better peer's:

- sm_80, matmul 128x128x64: 2 instructions of 244: six more integer ones, fewer barriers.
- sm_80, attention of D = 64 (6 of 597) and causal (6 of 857): sums begin with 0 and maxima with
  -inf (4 instructions; beginning with the first element is another result for NaN), and what is
  rescaled is (a - b) * scale, which is exact where a = b, not a * scale - b * scale (2).
- sm_80, attention of D = 64, causal (23 of 601): these 6, and 17 integer ones: each of 8 vectors
  that a thread copies has an address of its own (IADD3 and IMAD.WIDE).
- sm_80, attention of 128x64 spills 4 registers a step (TileLang 12, Triton 17): 128 of the 255 are
  sums, 64 scores. Other texts of it spill 1 (12 instructions more) or 2 (as many), none spills 0.
- sm_90a, int8 with B along N: ours and Triton's turn B and take wgmma, where TileLang's 32 are
  mma.sync, half a tile: for a tile ours has 122 others, Triton 175, TileLang 268.
- sm_90a, matmul 128x256x64: our instructions are twice as wide (n256): 46 others for a tile,
  TileLang 85.
- sm_80, MLA decode: Triton's warps compute the scores several times, 208 tensor instructions where
  ours has 136; the others are 615 and 595."""
MASK = ", a step with its mask"


@dataclass(frozen=True, slots=True)
class Count:
    """The main loop of one kernel, and what ptxas gave it. `shared` is in bytes of a block, `warps`
    are those of a multiprocessor.
    """

    loop: Loop
    registers: int
    spilled: int
    shared: int
    warps: int

    def cells(self) -> list[str]:
        kinds = self.loop.kinds
        tensor = kinds.get("tensor", 0)
        rest = len(self.loop.instructions) - tensor
        ratio = f"{rest / tensor:.2f}" if tensor else ""
        parts = [str(kinds.get(kind, 0) or "") for kind in KINDS]
        total = [str(len(self.loop.instructions)), str(tensor or ""), ratio]
        numbers = [str(self.registers), str(self.spilled or ""), str(self.shared), str(self.warps)]
        return [*total, *parts, *numbers]


def held(arch: str, threads: int, shared: int, registers: int) -> int:
    """The warps of such blocks that one multiprocessor holds at once."""
    found = occupancy(arch, threads, shared, registers)
    assert found is not None
    return found.warps


def loop_of(sass: str) -> Loop:
    """The main loop of a disassembly; of a kernel without one all of its instructions."""
    return main_loop(sass) or whole(sass)


def ours(name: str, row: Row, arch: str) -> dict[str, Count]:
    """Our kernel, by the name of the row."""
    kernel = tw.compile(row.make(), target=f"cuda:{arch}", fast_math=row.fast_math)
    taken = max(kernel.resources, key=lambda each: each.registers)
    spilled = taken.spill_store_bytes + taken.spill_load_bytes
    shared = kernel.stats.shared_bytes
    warps = held(arch, kernel.threads, shared, taken.registers)
    loop = loop_of(kernel.sass)
    counted = Count(loop, taken.registers, spilled, shared, warps)
    if not row.masked:
        return {name: counted}
    rest = Counter(loop.instructions) - Counter(loop.skipped)
    without = replace(loop, instructions=tuple(rest.elements()))
    return {name: replace(counted, loop=without), name + MASK: counted}


def theirs(peer: str, folder: Path) -> tuple[dict[tuple[str, str], Count], str]:
    """What the script of a peer compiled, by row and architecture, and the peer's version."""
    variable, script = PEERS[peer]
    interpreter = os.environ.get(variable)
    if interpreter is None:
        return {}, f"not installed ({variable} names no interpreter that has it)"
    made = run_child(FOLDER / script, [str(folder), *ARCHS], interpreter=interpreter)
    found = {}
    for entry in made["kernels"]:
        key, data = (entry["row"], entry["arch"]), (folder / entry["file"]).read_bytes()
        if entry["file"].endswith(".cu"):
            options = [*(f"-I{path}" for path in made["includes"]), *made["options"]]
            options += ["--use_fast_math"] if ROWS[entry["row"]].fast_math else []
            build = compile_cuda(data.decode(), entry["arch"], options=options)
            sass = disassemble(build.cubin, data.decode())
            kernel = max(build.kernels, key=lambda each: each.registers)
            spilled = kernel.spill_store_bytes + kernel.spill_load_bytes
            numbers = kernel.registers, spilled, entry["shared"] + kernel.shared_bytes
        else:
            sass = disassemble(data, "")
            numbers = entry["registers"], entry["spilled"], entry["shared"]
        warps = held(entry["arch"], entry["threads"], numbers[2], numbers[0])
        found[key] = Count(loop_of(sass), *numbers, warps)
    return found, made["version"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name has this text")
    parser.add_argument("--archs", default=",".join(ARCHS), help="architectures, by comma")
    options = parser.parse_args()
    rows = {name: row for name, row in ROWS.items() if options.rows in name}
    archs = options.archs.split(",")
    results: dict[tuple[str, str, str], Count] = {}
    versions: dict[str, str] = {}
    for name, row in rows.items():
        for arch in (each for each in archs if each in row.archs):
            for shown, counted in ours(name, row, arch).items():
                results[shown, arch, "ours"] = counted
    with tempfile.TemporaryDirectory() as place:
        for peer in PEERS:
            folder = Path(place) / peer
            folder.mkdir()
            entries, versions[peer] = theirs(peer, folder)
            for (name, arch), found in entries.items():
                if name in rows and arch in archs and arch in rows[name].archs:
                    results[name, arch, peer] = found
    tables = []
    for arch in archs:
        cells = [
            [name, who, *results[name, arch, who].cells()]
            for row in rows
            for name in (row, row + MASK)
            for who in ("ours", *PEERS)
            if (name, arch, who) in results
        ]
        columns = ["kernel", "who", "instructions", "tensor", "others per tensor", *KINDS]
        columns += ["registers", "spilled bytes", "shared bytes", "warps"]
        table = markdown_table(columns, cells)
        tables.append(f"## {arch}\n\n{table}")
    text = "\n\n".join([*tables, NOTES])
    print(text)
    if not options.rows and archs == list(ARCHS):
        data = {
            " | ".join(key): {
                "kinds": found.loop.kinds,
                "registers": found.registers,
                "spilled": found.spilled,
                "shared": found.shared,
                "warps": found.warps,
            }
            for key, found in results.items()
        }
        facts = environment(("tileworkbench", "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm"))
        facts["versions"] |= versions
        print(f"\nwritten to {write_results('gpu_static', facts, data, text)}")


if __name__ == "__main__":
    main()
