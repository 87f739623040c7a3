"""A helper that makes random inputs from the parameters of any kernel, and kernels that use it."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch
from tilelang.engine.param import KernelParam
from tilelang.jit import JITImpl, JITKernel
from tilelang.utils.device import get_current_device
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply
from tvm import DataType
from tvm.tirx import PrimExpr

tilelang.disable_cache()

DTYPES = {"float16": torch.float16, "float32": torch.float32, "uint8": torch.uint8}


def random_tensor(param: KernelParam) -> torch.Tensor:
    dtype = DTYPES[param.dtype]
    assert dtype == param.torch_dtype() and DataType(param.dtype).bits == param.dtype.bits
    if dtype == torch.uint8:
        return torch.randint(0, 255, param.shape, dtype=dtype)
    return torch.randn(param.shape, dtype=dtype, device=get_current_device())


def check(kernel_of: JITImpl, reference, **constants) -> JITKernel:
    kernel = kernel_of.compile(**constants)
    outputs = {index % len(kernel.params) for index in kernel.out_idx}
    inputs = [random_tensor(p) for i, p in enumerate(kernel.params) if i not in outputs]
    torch.testing.assert_close(kernel(*inputs), reference(*inputs), rtol=1e-2, atol=1e-2)
    return kernel


@tilelang.jit
def outer_sum(A, B, dtype=T.float16):
    M, N = T.const("M, N")
    A: T.Tensor((M,), dtype)
    B: T.Tensor((N,), dtype)
    C = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, 16), T.ceildiv(N, 32), threads=64) as (bx, by):
        for i, j in T.Parallel(16, 32):
            C[bx * 16 + i, by * 32 + j] = A[bx * 16 + i] + B[by * 32 + j]
    return C


@tilelang.jit(out_idx=[-1])
def widen(M: int, N: int):
    def decode(code: PrimExpr) -> PrimExpr:
        assert isinstance(code, PrimExpr)
        return T.cast(code & T.uint8(15), "float32")

    @T.prim_func
    def main(Q: T.Tensor((M, N), "uint8"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as row:
            for j in T.Parallel(N):
                Y[row, j] = decode(Q[row, j])

    return main


def main() -> None:
    check(outer_sum, lambda a, b: a[:, None] + b[None, :], M=64, N=96)
    kernel = check(widen, lambda q: (q & 15).float(), M=4, N=32)

    function = widen.get_tir(M=4, N=32)
    shapes = [function.buffer_map[param].shape for param in function.params]
    assert shapes == [(4, 32), (4, 32)] and function.attrs["global_symbol"] == "main"
    assert [str(param.name) for param in kernel.prim_func.params] == ["Q", "Y"]
    assert widen.out_idx == [-1] and list(widen.signature.parameters) == ["M", "N"]
    again = tilelang.compile(function, out_idx=[1])
    codes = get_tensor_supply(TensorSupplyType.Integer)(again.params[0])
    assert codes.dtype == torch.uint8 and torch.equal(again(codes), codes.float())


if __name__ == "__main__":
    main()
