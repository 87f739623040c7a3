"""Triton's cubins, and listings for AMD's GPUs, for rows of gpu_static.py and gpu_static_amd.py,
which run this with the interpreter that has Triton: ``triton_static.py FOLDER ARCH...``. No GPU is
needed.
"""

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SIZE, HEADS = 4096, 16


@triton.jit
def matmul(
    A,
    B,
    C,
    SIZE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    ROW_B: tl.constexpr,
    STEP_B: tl.constexpr,
    SUM: tl.constexpr,
):
    """C = A @ B of SIZE x SIZE, a tile of M x N for each program; B's strides are given."""
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    total = tl.zeros((M, N), SUM)
    for k in range(0, SIZE, K):
        a = tl.load(A + rows[:, None] * SIZE + (k + depth)[None, :])
        b = tl.load(B + (k + depth)[:, None] * ROW_B + columns[None, :] * STEP_B)
        total = tl.dot(a, b, total, out_dtype=SUM)
    tl.store(C + rows[:, None] * SIZE + columns[None, :], total.to(C.dtype.element_ty))


@triton.jit
def attention(
    Q,
    K,
    V,
    O,  # noqa: E741
    scale,
    SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Attention of HEADS heads over SIZE keys, M queries for each program; tensors are
    [SIZE, HEADS, DIM]. `scale` is that of the scores, times log2(e). With CAUSAL the keys that all
    queries see come first, without a mask.
    """
    start = tl.program_id(0) * M
    within = tl.program_id(1) * DIM + tl.arange(0, DIM)
    ROW: tl.constexpr = HEADS * DIM
    place = start + tl.arange(0, M)
    q = tl.load(Q + place[:, None] * ROW + within[None, :])
    top = tl.full((M,), -float("inf"), tl.float32)
    weight = tl.zeros((M,), tl.float32)
    total = tl.zeros((M, DIM), tl.float32)
    end = start if CAUSAL else SIZE
    for first in range(0, end, N):
        keys = (first + tl.arange(0, N)) * ROW
        k = tl.load(K + keys[None, :] + within[:, None])
        scores = tl.dot(q, k)
        after = tl.maximum(top, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - after[:, None])
        rescale = tl.exp2(top - after)
        weight = weight * rescale + tl.sum(p, 1)
        v = tl.load(V + keys[:, None] + within[None, :])
        total = tl.dot(p.to(tl.float16), v, total * rescale[:, None])
        top = after
    if CAUSAL:
        for first in range(start, start + M, N):
            seen = first + tl.arange(0, N)
            keys = seen * ROW
            k = tl.load(K + keys[None, :] + within[:, None])
            scores = tl.dot(q, k)
            scores = tl.where(place[:, None] >= seen[None, :], scores, -float("inf"))
            after = tl.maximum(top, tl.max(scores, 1) * scale)
            p = tl.exp2(scores * scale - after[:, None])
            rescale = tl.exp2(top - after)
            weight = weight * rescale + tl.sum(p, 1)
            v = tl.load(V + keys[:, None] + within[None, :])
            total = tl.dot(p.to(tl.float16), v, total * rescale[:, None])
            top = after
    total = total / weight[:, None]
    tl.store(O + place[:, None] * ROW + within[None, :], total.to(tl.float16))


@triton.jit
def dequantised(
    A,
    B,
    S,
    C,
    SIZE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """C = A @ W.T, where W[n, k] is a signed code of four bits times S[n, k // GROUP]; a byte of B
    has two of them, the lower one first."""
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * N + tl.arange(0, N)
    depth, packed = tl.arange(0, K), tl.arange(0, K // 2)
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, SIZE, K):
        a = tl.load(A + rows[:, None] * SIZE + (k + depth)[None, :])
        codes = tl.load(B + columns[:, None] * (SIZE // 2) + (k // 2 + packed)[None, :])
        scale = tl.load(S + columns * (SIZE // GROUP) + k // GROUP)
        low = ((codes << 4).to(tl.int8, bitcast=True) >> 4).to(tl.float16)
        high = (codes.to(tl.int8, bitcast=True) >> 4).to(tl.float16)
        w = tl.interleave(low, high) * scale[:, None]
        total = tl.dot(a, tl.trans(w), total)
    tl.store(C + rows[:, None] * SIZE + columns[None, :], total.to(tl.float16))


@triton.jit
def decoded(
    Q,
    Q_pe,
    KV,
    K_pe,
    O,  # noqa: E741
    scale,
    SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    """MLA: M of HEADS query heads that share one key head, N keys for a step; a query of a batch.
    `scale` is that of the scores, times log2(e)."""
    batch = tl.program_id(0)
    heads = batch * HEADS + tl.program_id(1) * M + tl.arange(0, M)
    dims, pe = tl.arange(0, DIM), tl.arange(0, PE)
    q = tl.load(Q + heads[:, None] * DIM + dims[None, :])
    q_pe = tl.load(Q_pe + heads[:, None] * PE + pe[None, :])
    top = tl.full((M,), -float("inf"), tl.float32)
    weight = tl.zeros((M,), tl.float32)
    total = tl.zeros((M, DIM), tl.float32)
    for first in range(0, SIZE, N):
        keys = batch * SIZE + first + tl.arange(0, N)
        kv = tl.load(KV + keys[:, None] * DIM + dims[None, :])
        k_pe = tl.load(K_pe + keys[:, None] * PE + pe[None, :])
        scores = tl.dot(q_pe, tl.trans(k_pe), tl.dot(q, tl.trans(kv)))
        after = tl.maximum(top, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - after[:, None])
        rescale = tl.exp2(top - after)
        weight = weight * rescale + tl.sum(p, 1)
        total = tl.dot(p.to(tl.float16), kv, total * rescale[:, None])
        top = after
    total = total / weight[:, None]
    tl.store(O + heads[:, None] * DIM + dims[None, :], total.to(tl.float16))


@triton.jit
def scanned(
    CB,
    X,
    dt,
    decay,
    C,
    states,
    D,
    Y,
    CHUNKS: tl.constexpr,
    STEPS: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    STATES: tl.constexpr,
    TILE: tl.constexpr,
):
    """Mamba-2's chunk scan: TILE of a chunk's STEPS for each program; one group."""
    m, bc, h = tl.program_id(0) * TILE, tl.program_id(1), tl.program_id(2)
    LOG2_E: tl.constexpr = 1.44269504
    within, dims, state = tl.arange(0, TILE), tl.arange(0, DIM), tl.arange(0, STATES)
    of_head = ((bc // CHUNKS * HEADS + h) * CHUNKS + bc % CHUNKS) * STEPS
    decay_m = tl.load(decay + of_head + m + within)
    rows = bc * STEPS + m + within
    c = tl.load(C + rows[:, None] * STATES + state[None, :])
    s = tl.load(states + ((bc * HEADS + h) * DIM + dims)[:, None] * STATES + state[None, :])
    total = tl.dot(c, tl.trans(s)) * tl.exp2(decay_m * LOG2_E)[:, None]
    for first in range(0, m + TILE, TILE):
        steps = first + within
        cb = tl.load(CB + (bc * STEPS + m + within)[:, None] * STEPS + steps[None, :])
        grown = tl.exp2((decay_m[:, None] - tl.load(decay + of_head + steps)[None, :]) * LOG2_E)
        value = cb.to(tl.float32) * grown * tl.load(dt + of_head + steps)[None, :]
        value = tl.where(steps[None, :] <= m + within[:, None], value, 0.0)
        x = tl.load(X + ((bc * STEPS + steps)[:, None] * HEADS + h) * DIM + dims[None, :])
        total = tl.dot(value.to(tl.float16), x, total)
    place = (rows[:, None] * HEADS + h) * DIM + dims[None, :]
    total += tl.load(D + h).to(tl.float32) * tl.load(X + place).to(tl.float32)
    tl.store(Y + place, total.to(tl.float16))


@triton.jit
def rmsnorm(X, W, Y, SIZE: tl.constexpr):
    """A row for each program."""
    place = tl.arange(0, SIZE)
    x = tl.load(X + tl.program_id(0) * SIZE + place).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / SIZE + 1e-6)
    y = x * scale * tl.load(W + place).to(tl.float32)
    tl.store(Y + tl.program_id(0) * SIZE + place, y.to(tl.float16))


@triton.jit
def softmax(X, Y, SIZE: tl.constexpr):
    """A row for each program."""
    place = tl.arange(0, SIZE)
    x = tl.load(X + tl.program_id(0) * SIZE + place).to(tl.float32)
    p = tl.exp(x - tl.max(x))
    tl.store(Y + tl.program_id(0) * SIZE + place, (p / tl.sum(p)).to(tl.float16))


def product(tile, kind="fp16", step=1):
    m, n, k = tile
    integer = kind == "i8"
    constants = {"SIZE": SIZE, "M": m, "N": n, "K": k}
    constants |= {"ROW_B": SIZE if step == 1 else 1, "STEP_B": step}
    constants["SUM"] = tl.int32 if integer else tl.float32
    out = {"i8": "*i32", "fp8e4nv": "*fp32", "fp8e4b8": "*fp32"}.get(kind, "*fp16")
    signature = {"A": f"*{kind}", "B": f"*{kind}", "C": out}
    return matmul, signature, constants


def attended(dim, m, n, causal=False):
    signature = dict.fromkeys(("Q", "K", "V", "O"), "*fp16") | {"scale": "fp32"}
    constants = {"SIZE": SIZE, "HEADS": HEADS, "DIM": dim, "M": m, "N": n, "CAUSAL": causal}
    return attention, signature, constants


def weighted():
    signature = {"A": "*fp16", "B": "*u8", "S": "*fp16", "C": "*fp16"}
    return dequantised, signature, {"SIZE": SIZE, "M": 128, "N": 128, "K": 64, "GROUP": 128}


def latent(heads=64, keys=32):
    signature = dict.fromkeys(("Q", "Q_pe", "KV", "K_pe", "O"), "*fp16") | {"scale": "fp32"}
    sizes = {"SIZE": SIZE, "HEADS": 128, "DIM": 512, "PE": 64, "M": heads, "N": keys}
    return decoded, signature, sizes


def chunks():
    signature = dict.fromkeys(("CB", "X", "C", "states", "D", "Y"), "*fp16")
    signature |= dict.fromkeys(("dt", "decay"), "*fp32")
    sizes = {"CHUNKS": 16, "STEPS": 256, "HEADS": 64, "DIM": 64, "STATES": 128, "TILE": 64}
    return scanned, signature, sizes


def rows(function, names):
    return function, dict.fromkeys(names, "*fp16"), {"SIZE": SIZE}


# Row -> function, types, constants; warps; stages.
ROWS = {
    "matmul fp16 128x128x32, 128 threads": (product((128, 128, 32)), 4, 3),
    "matmul fp16 128x128x64, 128 threads": (product((128, 128, 64)), 4, 3),
    "matmul fp16 128x256x64, 256 threads": (product((128, 256, 64)), 8, 3),
    "matmul int8 128x128x64, 128 threads": (product((128, 128, 64), "i8"), 4, 3),
    "matmul int8, B transposed": (product((128, 128, 64), "i8", SIZE), 4, 3),
    "matmul fp8, B transposed": (product((128, 128, 64), "fp8e4nv", SIZE), 4, 3),
    "matmul fp8 fnuz, B transposed": (product((128, 128, 64), "fp8e4b8", SIZE), 4, 3),
    "attention D=64 128x128, 256 threads": (attended(64, 128, 128), 8, 2),
    "attention D=64 128x128, causal": (attended(64, 128, 128, True), 8, 2),
    "attention D=128 128x128, 256 threads": (attended(128, 128, 128), 8, 2),
    "the same, causal": (attended(128, 128, 128, True), 8, 2),
    "attention D=128 128x64, 128 threads": (attended(128, 128, 64), 4, 2),
    "matmul fp16 128x256x32, 256 threads": (product((128, 256, 32)), 8, 3),
    "attention D=128 128x64, 256 threads": (attended(128, 128, 64), 8, 2),
    "attention D=128 128x64, 256 threads, causal": (attended(128, 128, 64, True), 8, 2),
    "dequant int4 128x128x64, 128 threads": (weighted(), 4, 2),
    "MLA decode": (latent(), 8, 2),
    "MLA decode, 32 heads by 16 keys": (latent(32, 16), 4, 2),
    "chunk scan": (chunks(), 4, 2),
    "rmsnorm, rows of 4096": (rows(rmsnorm, "XWY"), 4, 1),
    "softmax, rows of 4096": (rows(softmax, "XY"), 4, 1),
}


def compiled(arch, function, signature, constants, warps, stages):
    """Triton's kernel for an architecture; pointers are aligned to 16 bytes."""
    names = function.arg_names
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, kind in signature.items()
        if kind.startswith("*")
    }
    kinds = signature | dict.fromkeys(constants, "constexpr")
    amd = arch.startswith("gfx")
    target = GPUTarget("hip", arch, 64) if amd else GPUTarget("cuda", _capability(arch), 32)
    return triton.compile(
        ASTSource(function, kinds, constants, aligned),
        target=target,
        options={"num_warps": warps // 2 if amd else warps, "num_stages": stages},
    )


def _capability(arch):
    return int(re.sub(r"\D", "", arch))


def resources(cubin, folder):
    """Registers and bytes spilled, as the ELF's own tool of Triton's wheel reads them."""
    import subprocess

    path = Path(folder) / "read.cubin"
    path.write_bytes(cubin)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    text = subprocess.run(
        [str(tool), "-res-usage", str(path)], capture_output=True, text=True, check=True
    ).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return found["REG"], found["STACK"] + found["LOCAL"]


def main():
    folder, archs = Path(sys.argv[1]), sys.argv[2:]
    kernels = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        for row, (what, warps, stages) in ROWS.items():
            for arch in archs:
                try:
                    kernel = compiled(arch, *what, warps, stages)
                except Exception as error:  # a row less; the table shows that it is missing
                    print(f"Triton, {row}, {arch}: {error!r}"[:300], file=sys.stderr)
                    continue
                if "amdgcn" in kernel.asm:  # a listing, which says what the kernel takes
                    name = f"{len(kernels)}.s"
                    (folder / name).write_text(kernel.asm["amdgcn"])
                    shared = kernel.metadata.shared
                    kernels.append({"row": row, "arch": arch, "file": name, "shared": shared})
                    continue
                name = f"{len(kernels)}.cubin"
                (folder / name).write_bytes(kernel.asm["cubin"])
                registers, spilled = resources(kernel.asm["cubin"], cache)
                kernels.append(
                    {
                        **{"row": row, "arch": arch, "file": name},
                        **{"registers": registers, "spilled": spilled},
                        **{"shared": kernel.metadata.shared, "threads": 32 * warps},
                    }
                )
    print(json.dumps({"kernels": kernels, "version": triton.__version__}))


if __name__ == "__main__":
    main()
