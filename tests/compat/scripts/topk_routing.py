"""The experts with the largest logits, one after the other; and counts of them in shared memory."""

import argparse

import tilelang
import tilelang.language as T
import torch


def get_configs():
    import itertools

    space = dict(blk_m=[16, 32], threads=[64, 128])
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


@tilelang.autotune(configs=get_configs())
@tilelang.jit(out_idx=[1, 2])
def tl_topk(M, N, topk, blk_m=64, threads=128):
    dtype = "float32"

    @T.prim_func
    def topk_kernel(
        logits: T.Tensor([M, N], dtype),
        topk_gates: T.Tensor([M, topk], dtype),
        topk_indices: T.Tensor([M, topk], "int32"),
    ):
        with T.Kernel(T.ceildiv(M, blk_m), threads=threads) as bx:
            logits_frag = T.alloc_fragment([blk_m, N], dtype=dtype)
            max_val = T.alloc_fragment([blk_m], dtype=dtype)
            expand_max_idx = T.alloc_fragment([blk_m, N], "int32")
            max_idx = T.alloc_fragment([blk_m], "int32")
            T.copy(logits[bx * blk_m, 0], logits_frag)
            for k in T.serial(topk):
                T.fill(expand_max_idx, -1)
                T.reduce_max(logits_frag, max_val, dim=1, clear=True)
                for i, j in T.Parallel(blk_m, N):
                    expand_max_idx[i, j] = T.if_then_else(
                        max_val[i] == logits_frag[i, j], j, expand_max_idx[i, j]
                    )
                T.reduce_max(expand_max_idx, max_idx, dim=1, clear=True)
                for i, j in T.Parallel(blk_m, N):
                    logits_frag[i, j] = T.if_then_else(
                        max_val[i] == logits_frag[i, j], -10000.0, logits_frag[i, j]
                    )
                for i in T.Parallel(blk_m):
                    topk_gates[bx * blk_m + i, k] = max_val[i]
                    topk_indices[bx * blk_m + i, k] = max_idx[i]

    return topk_kernel


@tilelang.jit(out_idx=[-1])
def expert_counts(M, topk, experts, blk_m=32):
    @T.prim_func
    def count(indices: T.Tensor([M, topk], "int32"), totals: T.Tensor([experts], "int32")):
        with T.Kernel(1, threads=128):
            counts = T.alloc_shared([experts], "int32")
            T.clear(counts)
            for step in T.serial(T.ceildiv(M, blk_m)):
                for i, k in T.Parallel(blk_m, topk):
                    if step * blk_m + i < M:
                        T.atomic_add(counts[indices[step * blk_m + i, k]], 1)
            T.copy(counts, totals)

    return count


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--M", type=int, default=70, help="num_tokens")
    parser.add_argument("--N", type=int, default=64, help="num_experts")
    parser.add_argument("--topk", type=int, default=6, help="topk")
    parser.add_argument("--blk_m", type=int, default=16, help="blk_m")
    args = parser.parse_args(argv)
    logits = torch.rand((args.M, args.N), dtype=torch.float32)
    kernel = tl_topk(M=args.M, N=args.N, topk=args.topk, blk_m=args.blk_m, threads=64)
    gates, indices = kernel(logits)
    want_gates, want_indices = logits.topk(args.topk, dim=1)
    torch.testing.assert_close(gates, want_gates)
    torch.testing.assert_close(indices, want_indices.to(torch.int32))
    totals = expert_counts(args.M, args.topk, args.N)(indices)
    assert torch.equal(totals, torch.bincount(indices.flatten(), minlength=args.N).int())


if __name__ == "__main__":
    main([])
