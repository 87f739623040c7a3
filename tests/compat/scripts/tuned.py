"""Tuning in both spellings: the decorator, and the chain of calls."""

import itertools

import tilelang
import tilelang.language as T
import torch
from tilelang.autotuner import AutoTuner, autotune, set_autotune_inputs


def configurations():
    pairs = itertools.product((16, 32), (64, 128))
    return [{"block": block, "threads": threads} for block, threads in pairs]


def reference(a, b):
    return a + b


def add(N, block=None, threads=None):
    @T.prim_func
    def main(
        A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32), C: T.Tensor((N,), T.float32)
    ):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return main


@autotune(configs=configurations(), warmup=1, rep=1, ref_prog=reference, timeout=60)
@tilelang.jit(out_idx=[-1])
def tuned_add(N, block=None, threads=None):
    return add(N, block, threads)


def main():
    kernel = tuned_add(100)
    assert kernel.config in configurations() and kernel.latency > 0 and kernel.ref_latency > 0
    a, b = torch.randn(100), torch.randn(100)
    torch.testing.assert_close(kernel(a, b), a + b)
    assert tuned_add(100, block=16, threads=32).config is None

    with set_autotune_inputs(torch.randn(64), torch.randn(64)):
        result = (
            AutoTuner.from_kernel(kernel=bound_add, configs=configurations())
            .set_compile_args(out_idx=[-1], target="auto")
            .set_profile_args(ref_prog=reference, supply_type=tilelang.TensorSupplyType.Integer)
            .run(warmup=1, rep=1)
        )
    assert result.config in configurations()
    torch.testing.assert_close(result.kernel(a[:64], b[:64]), a[:64] + b[:64])


def bound_add(block=None, threads=None):
    return add(64, block, threads)


if __name__ == "__main__":
    main()
