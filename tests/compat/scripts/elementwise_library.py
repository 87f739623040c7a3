"""Pieces that models are made of, each in the manner of a small example: rotary positions, a gated
unit, cross entropy, a scan, and a transposition.
"""

import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[-1], target={"kind": "cuda"})
def rotary(batch, seq, heads, dim, dtype=T.bfloat16):
    half = dim // 2

    @T.prim_func
    def main(
        X: T.Tensor((batch, seq, heads, dim), dtype),
        Cos: T.Tensor((seq, half), T.float32),
        Sin: T.Tensor((seq, half), T.float32),
        Y: T.Tensor((batch, seq, heads, dim), dtype),
    ):
        with T.Kernel(seq, batch, threads=64) as (bx, by):
            for h, j in T.Parallel(heads, half):
                low = X[by, bx, h, j].astype(T.float32)
                high = X[by, bx, h, j + half].astype(T.float32)
                Y[by, bx, h, j] = low * Cos[bx, j] - high * Sin[bx, j]
                Y[by, bx, h, j + half] = high * Cos[bx, j] + low * Sin[bx, j]

    return main


@tilelang.jit(out_idx=-1)
def swiglu(M, N, block_M=8, block_N=64):
    @T.prim_func
    def main(X: T.Tensor((M, 2 * N), "float"), Y: T.Tensor((M, N), "float")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                m, n = by * block_M + i, bx * block_N + j
                if n < N:
                    Y[m, n] = X[m, n] * T.sigmoid(X[m, n]) * X[m, n + N]

    return main


@tilelang.jit(out_idx=[-1])
def cumulative(M, N, reverse):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 8), threads=128) as bx:
            tile = T.alloc_shared((8, N), "float32")
            T.copy(A[bx * 8, 0], tile)
            T.cumsum(src=tile, dim=1, reverse=reverse)
            T.copy(tile, B[bx * 8, 0])

    return main


@tilelang.jit(out_idx=[-1])
def transposed(M, N, block=32):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((N, M), "float32")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            tile = T.alloc_shared((block, block), "float32")
            T.copy(A[by * block, bx * block], tile)
            for i, j in T.Parallel(block, block):
                B[bx * block + i, by * block + j] = tile[j, i]

    return main


@tilelang.jit(out_idx=[2])
def cross_entropy(M, N, block=8):
    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"), Y: T.Tensor((M,), "int64"), Loss: T.Tensor((M,), "float32")
    ):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            x = T.alloc_fragment((block, N), "float32")
            top = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.copy(X[bx * block, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(block, N):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(block):
                if bx * block + i < M:
                    row = bx * block + i
                    Loss[row] = T.log(total[i]) + top[i] - X[row, Y[row]]

    return main


def main():
    x = torch.randn(2, 5, 4, 16).bfloat16()
    angle = torch.rand(5, 8)
    out = rotary(2, 5, 4, 16)(x, angle.cos(), angle.sin())
    low, high = x.float().chunk(2, dim=-1)
    c, s = angle.cos()[:, None], angle.sin()[:, None]
    want = torch.cat([low * c - high * s, high * c + low * s], dim=-1)
    torch.testing.assert_close(out.float(), want, rtol=1e-2, atol=1e-2)

    x = torch.randn(20, 200)
    gate, up = x.chunk(2, dim=1)
    torch.testing.assert_close(swiglu(20, 100)(x), torch.nn.functional.silu(gate) * up)

    x = torch.randn(19, 50)
    torch.testing.assert_close(cumulative(19, 50, False)(x), x.cumsum(1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        cumulative(19, 50, True)(x), x.flip(1).cumsum(1).flip(1), rtol=1e-4, atol=1e-4
    )
    assert torch.equal(transposed(19, 50)(x), x.T)

    y = torch.randint(0, 50, (19,))
    torch.testing.assert_close(
        cross_entropy(19, 50)(x, y), torch.nn.functional.cross_entropy(x, y, reduction="none")
    )


if __name__ == "__main__":
    main()
