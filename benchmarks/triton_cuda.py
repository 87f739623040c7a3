"""Triton's way to a cubin for the same kernels; run by compile_latency.py with the interpreter that
has Triton. No GPU is needed.
"""

import json
import os
import tempfile
import time

start = time.perf_counter()
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

imported = 1e3 * (time.perf_counter() - start)
SIZE, DIM, HEADS = 1024, 64, 8


@triton.jit
def matmul(A, B, C, SIZE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """C = A @ B of SIZE x SIZE, a tile of BLOCK x BLOCK for each program."""
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, SIZE, BLOCK_K):
        a = tl.load(A + rows[:, None] * SIZE + (k + depth)[None, :])
        b = tl.load(B + (k + depth)[:, None] * SIZE + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(C + rows[:, None] * SIZE + columns[None, :], total)


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
    BLOCK: tl.constexpr,
):
    """Attention of HEADS heads over SIZE keys, a block of BLOCK queries for each program; tensors
    are [SIZE, HEADS, DIM]. `scale` is that of the scores, times log2(e)."""
    start = tl.program_id(0) * BLOCK
    within = tl.program_id(1) * DIM + tl.arange(0, DIM)
    ROW: tl.constexpr = HEADS * DIM
    rows = (start + tl.arange(0, BLOCK)) * ROW
    q = tl.load(Q + rows[:, None] + within[None, :])
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK, DIM), tl.float32)
    for first in range(0, SIZE, BLOCK):
        keys = (first + tl.arange(0, BLOCK)) * ROW
        k = tl.load(K + keys[None, :] + within[:, None])
        scores = tl.dot(q, k)
        after = tl.maximum(top, tl.max(scores, 1))
        rescale = tl.exp2((top - after) * scale)
        p = tl.exp2((scores - after[:, None]) * scale)
        weight = weight * rescale + tl.sum(p, 1)
        v = tl.load(V + keys[:, None] + within[None, :])
        total = tl.dot(p.to(tl.float16), v, total * rescale[:, None])
        top = after
    total = total / weight[:, None]
    tl.store(O + rows[:, None] + within[None, :], total.to(tl.float16))


# The instruction of PTX that a cubin with matrix instructions comes from.
PRODUCTS = {80: "mma.sync", 90: "wgmma"}


def compiled_ms(function, signature, constants, stages, capability):
    """Milliseconds from the Python function to a cubin for sm_80 (80) or sm_90a (90)."""
    names = function.arg_names
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, kind in signature.items()
        if kind.startswith("*")
    }
    kinds = signature | dict.fromkeys(constants, "constexpr")
    begin = time.perf_counter()
    source = ASTSource(function, kinds, constants, aligned)
    options = {"num_warps": 4, "num_stages": stages}
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    taken = 1e3 * (time.perf_counter() - begin)
    ptx, cubin = kernel.asm["ptx"], kernel.asm["cubin"]
    if not cubin.startswith(b"\x7fELF") or PRODUCTS[capability] not in ptx:
        raise RuntimeError("no cubin with matrix instructions came out")
    return taken


def matmul_ms(capability=80):
    signature = {"A": "*fp16", "B": "*fp16", "C": "*fp32"}
    constants = {"SIZE": SIZE, "BLOCK": 128, "BLOCK_K": 32}
    return compiled_ms(matmul, signature, constants, 3, capability)


def attention_ms(capability=80):
    signature = dict.fromkeys(("Q", "K", "V", "O"), "*fp16") | {"scale": "fp32"}
    constants = {"SIZE": SIZE, "HEADS": HEADS, "DIM": DIM, "BLOCK": 64}
    return compiled_ms(attention, signature, constants, 2, capability)


if __name__ == "__main__":
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        found = {
            "Triton: import": imported,
            "Triton, sm_80: matmul to cubin, first in the process": matmul_ms(),
            "Triton, sm_80: matmul to cubin, again": matmul_ms(),
            "Triton, sm_80: attention to cubin": attention_ms(),
            "Triton, sm_90a: matmul to cubin": matmul_ms(90),
            "Triton, sm_90a: attention to cubin": attention_ms(90),
            "version": triton.__version__,
        }
    print(json.dumps(found))
