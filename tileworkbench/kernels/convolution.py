"""Convolution as a product with a matrix that is never stored (implicit GEMM)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.matmul import accumulator
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def convolution_reference(
    data: Tensor, weight: Tensor, *, stride: int = 1, dilation: int = 1, pad: int = 0
) -> Tensor:
    """The output in float64; see `convolution`."""
    import torch.nn.functional as F

    images, filters = data.double().permute(0, 3, 1, 2), weight.double().permute(3, 2, 0, 1)
    out = F.conv2d(images, filters, stride=stride, dilation=dilation, padding=pad)
    return out.permute(0, 2, 3, 1)


@compared_with(convolution_reference)
def convolution(
    batch: Extent,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel_h: int = 3,
    kernel_w: int = 3,
    stride: int = 1,
    dilation: int = 1,
    pad: int = 0,
    dtype: Any = T.float32,
    block_M: int = TABLE,
    block_N: int = TABLE,
    block_K: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """Two-dimensional convolution with zero padding, channels last.

    data is (batch, height, width, channels), weight is (kernel_h, kernel_w, channels, filters) and
    out is (batch, out_h, out_w, filters), all of one dtype, summed in `accumulator(dtype)`. A row
    of the product is one pixel of the output, its inner dimension runs over the window and the
    channels; a window's pixel outside the image reads as zero, as all that is outside a tensor.
    """
    out_h = (height + 2 * pad - dilation * (kernel_h - 1) - 1) // stride + 1
    out_w = (width + 2 * pad - dilation * (kernel_w - 1) - 1) // stride + 1
    pixels = batch * out_h * out_w
    pieces = -(-channels // block_K)

    @T.prim_func
    def convolution(
        data: T.Tensor((batch, height, width, channels), dtype),
        weight: T.Tensor((kernel_h, kernel_w, channels, filters), dtype),
    ):
        out = T.empty((batch, out_h, out_w, filters), dtype)
        with T.Kernel(T.ceildiv(filters, block_N), T.ceildiv(pixels, block_M), threads=threads) as (
            bx,
            by,
        ):
            data_shared = T.alloc_shared((block_M, block_K), dtype)
            weight_shared = T.alloc_shared((block_K, block_N), dtype)
            out_local = T.alloc_fragment((block_M, block_N), accumulator(dtype))
            T.clear(out_local)
            for k in T.Pipelined(kernel_h * kernel_w * pieces, num_stages=num_stages):
                row = k // (kernel_w * pieces)
                column = k // pieces % kernel_w
                channel = k % pieces * block_K
                for i, j in T.Parallel(block_M, block_K):
                    pixel = by * block_M + i
                    data_shared[i, j] = data[
                        pixel // (out_h * out_w),
                        pixel // out_w % out_h * stride + row * dilation - pad,
                        pixel % out_w * stride + column * dilation - pad,
                        channel + j,
                    ]
                T.copy(weight[row, column, channel, bx * block_N], weight_shared)
                T.gemm(data_shared, weight_shared, out_local)
            for i, j in T.Parallel(block_M, block_N):
                pixel = by * block_M + i
                out[
                    pixel // (out_h * out_w),
                    pixel // out_w % out_h,
                    pixel % out_w,
                    bx * block_N + j,
                ] = out_local[i, j]
        return out

    return convolution
