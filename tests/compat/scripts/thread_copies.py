"""Kernels that copy by address, name threads by T.thread_binding and branch with T.If."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[2])
def gather_rows(rows: int, count: int, width: int, dtype: str = "float16"):
    """`out[i] = table[index[i]]`, zeros for negative indices."""
    vec, threads = 8, 64
    lanes = width // vec

    @T.macro
    def fetch(table, tile, row, lane):
        T.ptx_cp_async(
            T.tvm_access_ptr(T.type_annotation(dtype), tile.data, lane * vec, vec, 2),
            T.tvm_access_ptr(
                T.type_annotation(dtype), table.data, T.max(row, 0) * width + lane * vec, vec, 1
            ),
            vec,
            predicate=row >= 0,
        )

    @T.prim_func
    def main(
        table: T.Tensor((rows, width), dtype),
        index: T.Tensor((count,), "int32"),
        out: T.Tensor((count, width), dtype),
    ):
        with T.Kernel(count, threads=threads) as i:
            tile = T.alloc_shared((width,), dtype)
            tx = T.thread_binding(0, threads, thread="threadIdx.x")
            with T.attr("default", "async_scope", 1), T.If(tx < lanes), T.Then():
                fetch(table, tile, index[i], tx)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.sync_threads()
            T.copy(tile, out[i, 0])

    return main


@tilelang.jit
def lane_sums(A, threads=64):
    """The running sum of each warp's lanes, by shuffles, and the product of each row."""
    M = T.const("M")
    A: T.Tensor((M, threads), "float32")
    S = T.empty((M, threads), "float32")
    P = T.empty((M,), "float32")
    with T.Kernel(M, threads=threads) as row:
        tx = T.get_thread_binding()
        total = T.alloc_var("float32", init=A[row, tx])
        for step in T.unroll(5):
            below = T.tvm_warp_shuffle_up(0xFFFFFFFF, total, 1 << step, 32, 32)
            if tx % 32 >= (1 << step):
                total = total + below
        S[row, tx] = total
        tile = T.alloc_fragment((threads,), "float32")
        product = T.alloc_fragment((1,), "float32")
        T.copy(A[row, 0:threads], tile)
        T.reduce_prod(tile, product, dim=0)
        P[row] = product[0]
    return S, P


@tilelang.jit
def first_votes(A):
    """The first two lanes of each warp whose element is positive, or -1."""
    M = T.const("M")
    A: T.Tensor((M, 32), "float32")
    B = T.empty((M, 2), "int32")
    with T.Kernel(M, threads=32) as row:
        tx = T.thread_binding(0, 32, thread="threadIdx.x")
        votes = T.ballot(A[row, tx] > 0)
        mask = T.cast(votes, "uint32")
        if tx == 0:
            B[row, 0] = T.__ffs(votes) - 1
            B[row, 1] = T.cast(T.__fns(mask, 0, 2), "int32")
    return B


def main() -> None:
    table = torch.randn(40, 64).half()
    index = torch.tensor([3, -1, 39, 0, 7], dtype=torch.int32)
    out = gather_rows(40, 5, 64)(table, index)
    assert torch.equal(out, torch.where(index[:, None] >= 0, table[index.clamp(min=0).long()], 0))

    a = torch.randint(1, 3, (3, 64)).float()
    a[:, 16:] = 1
    sums, products = lane_sums(a)
    torch.testing.assert_close(sums, a.view(3, 2, 32).cumsum(-1).view(3, 64))
    torch.testing.assert_close(products, a.prod(-1))

    signs = torch.randn(6, 32)
    signs[0], signs[1], signs[1, 31] = -1, -1, 1
    found = first_votes(signs)
    for row, want in zip(found.tolist(), signs.tolist(), strict=True):
        lanes = [lane for lane, value in enumerate(want) if value > 0]
        assert row == [*lanes, -1, -1][:2], (row, lanes)


if __name__ == "__main__":
    main()
