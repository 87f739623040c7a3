"""A test file in TileLang's manner, for `tilelang.testing.main`."""

import tilelang
import tilelang.language as T
import tilelang.testing
import torch

tilelang.testing.set_random_seed(0)
tilelang.disable_cache()


def double(N):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(N):
                B[i] = A[i] * 2.0

    return main


def test_double():
    first, second = tilelang.par_compile([double(8), double(16)], out_idx=[1])
    a = torch.randn(16)
    tilelang.testing.torch_assert_close(first(a[:8]), a[:8] * 2, rtol=1e-6, atol=0.0)
    tilelang.testing.torch_assert_close(second(a), a * 2)


@tilelang.testing.requires_cuda
def test_needs_a_gpu():
    raise RuntimeError("runs only where there is one")


@tilelang.testing.requires_cuda_compute_version_ge(9, 0)
def test_needs_hopper():
    raise RuntimeError("runs only where there is one")


@tilelang.testing.requires_llvm
@tilelang.testing.requires_package("torch")
def test_runs_here():
    assert tilelang.math.next_power_of_2(33) == 64 and tilelang.cdiv(7, 2) == 4


@tilelang.testing.requires_package("a_package_that_nobody_has")
def test_needs_a_package():
    raise RuntimeError("runs only where it is installed")


if __name__ == "__main__":
    tilelang.testing.main()
