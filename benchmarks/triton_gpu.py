"""Triton's matrix product and attention for the benchmarks of a CUDA device, tuned by its tuner.

They stand for what one would write in Triton in an afternoon; Triton's tutorials go a little
further (grouped tiles, a loop without masks).
"""

import triton
import triton.language as tl


def _tiles(*rows):
    return [
        triton.Config({"M": m, "N": n, "K": k}, num_warps=warps, num_stages=stages)
        for m, n, k, warps, stages in rows
    ]


@triton.autotune(
    _tiles(
        (128, 128, 32, 4, 4),
        (128, 128, 64, 4, 3),
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (64, 128, 64, 4, 4),
        (16, 128, 64, 4, 4),
    ),
    key=["rows", "columns", "depth"],
)
@triton.jit
def _matmul(
    A,
    B,
    C,
    rows,
    columns,
    depth,
    stride_k,
    stride_n,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
):
    number = tl.program_id(0)
    across, down = tl.cdiv(columns, N), tl.cdiv(rows, M)
    group = number // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    y = group * GROUP + number % (GROUP * across) % height
    x = number % (GROUP * across) // height
    i = (y * M + tl.arange(0, M)) % rows
    j = (x * N + tl.arange(0, N)) % columns
    step = tl.arange(0, K)
    a = A + i[:, None] * depth + step[None, :]
    b = B + step[:, None] * stride_k + j[None, :] * stride_n
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, depth, K):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += K
        b += K * stride_k
    i, j = y * M + tl.arange(0, M), x * N + tl.arange(0, N)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    tl.store(C + i[:, None] * columns + j[None, :], total.to(tl.float16), inside)


def matmul(a, b):
    """a @ b in float16; the depth is a multiple of 64."""
    (rows, depth), columns = a.shape, b.shape[1]
    c = a.new_empty(rows, columns)

    def grid(meta):
        return (triton.cdiv(rows, meta["M"]) * triton.cdiv(columns, meta["N"]),)

    _matmul[grid](a, b, c, rows, columns, depth, b.stride(0), b.stride(1), GROUP=8)
    return c


@triton.autotune(
    [
        triton.Config({"M": m, "N": n}, num_warps=warps, num_stages=stages)
        for m, n, warps, stages in (
            (64, 64, 4, 2),
            (128, 64, 4, 3),
            (128, 64, 8, 2),
            (128, 128, 8, 2),
        )
    ],
    key=["length", "DIM", "CAUSAL"],
)
@triton.jit
def _attention(
    Q,
    K,
    V,
    O,  # noqa: E741
    scale,
    length,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    start = tl.program_id(0) * M
    row: tl.constexpr = HEADS * DIM
    base = tl.program_id(1) // HEADS * length * row + tl.program_id(1) % HEADS * DIM
    within = tl.arange(0, DIM)
    place = start + tl.arange(0, M)
    q = tl.load(Q + base + place[:, None] * row + within[None, :])
    top = tl.full((M,), -float("inf"), tl.float32)
    weight = tl.zeros((M,), tl.float32)
    total = tl.zeros((M, DIM), tl.float32)
    end = start + M if CAUSAL else length
    for first in range(0, end, N):
        seen = first + tl.arange(0, N)
        k = tl.load(K + base + seen[None, :] * row + within[:, None])
        scores = tl.dot(q, k)
        if CAUSAL:  # noqa: SIM102 - known when it is compiled, and the next is not
            if first + N > start:
                scores = tl.where(place[:, None] >= seen[None, :], scores, -float("inf"))
        after = tl.maximum(top, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - after[:, None])
        rescale = tl.exp2(top - after)
        weight = weight * rescale + tl.sum(p, 1)
        v = tl.load(V + base + seen[:, None] * row + within[None, :])
        total = tl.dot(p.to(tl.float16), v, total * rescale[:, None])
        top = after
    total = total / weight[:, None]
    tl.store(O + base + place[:, None] * row + within[None, :], total.to(tl.float16))


def attention(q, k, v, causal):
    """Attention of float16 tensors (batch, length, heads, width); length is a multiple of 128."""
    batch, length, heads, width = q.shape
    out = q.new_empty(q.shape)

    def grid(meta):
        return (triton.cdiv(length, meta["M"]), batch * heads)

    scale = 1.4426950408889634 * width**-0.5
    _attention[grid](q, k, v, out, scale, length, HEADS=heads, DIM=width, CAUSAL=causal)
    return out
