"""Ready kernels, one page each: read them, use them, or start from a copy.

A page defines a function from shapes and options to a `T.prim_func`, and the torch function it is
compared with::

    import torch
    import tileworkbench as tw
    from tileworkbench.kernels import matmul

    a, b = torch.randn(300, 200), torch.randn(200, 100)
    kernel = tw.compile(matmul(300, 100, 200))
    c = kernel(a, b)
    kernel.check(matmul.reference, a, b)

`tw.jit(matmul)` is the same function with its compiled kernels remembered. Every option has a
default. Those of tile sizes stand in a table (`tiles.py`): for the processor, as signatures show,
they are what the time model ranks first; what is compiled for a GPU is made with those for GPUs.
`matmul.tiles` and `matmul.for_target("sm_90a").tiles` say which and why. An extent annotated
`Extent` may be a symbol made by `T.dynamic`, and then one kernel serves every size.
"""

from __future__ import annotations

from tileworkbench.kernels.block_sparse_attention import block_sparse_attention
from tileworkbench.kernels.convolution import convolution
from tileworkbench.kernels.cross_entropy import cross_entropy
from tileworkbench.kernels.dequant_gemv import dequant_gemv
from tileworkbench.kernels.dequant_matmul import dequant_matmul, integer_dequant_matmul
from tileworkbench.kernels.elementwise import add, gelu
from tileworkbench.kernels.flash_attention import flash_attention
from tileworkbench.kernels.flash_attention_backward import flash_attention_backward
from tileworkbench.kernels.flash_attention_varlen import flash_attention_varlen
from tileworkbench.kernels.flash_decoding import flash_decoding
from tileworkbench.kernels.gemv import gemv
from tileworkbench.kernels.histogram import histogram
from tileworkbench.kernels.layernorm import add_layernorm, layernorm
from tileworkbench.kernels.linear_attention import chunk_scan, chunk_state
from tileworkbench.kernels.matmul import linear, matmul
from tileworkbench.kernels.mla_decode import mla_decode
from tileworkbench.kernels.norms_backward import layernorm_backward, rmsnorm_backward
from tileworkbench.kernels.rmsnorm import add_rmsnorm, rmsnorm
from tileworkbench.kernels.rope import rope
from tileworkbench.kernels.softmax import online_softmax, softmax
from tileworkbench.kernels.split_k_matmul import split_k_matmul
from tileworkbench.kernels.topk import topk

__all__ = [
    "add",
    "add_layernorm",
    "add_rmsnorm",
    "block_sparse_attention",
    "chunk_scan",
    "chunk_state",
    "convolution",
    "cross_entropy",
    "dequant_gemv",
    "dequant_matmul",
    "flash_attention",
    "flash_attention_backward",
    "flash_attention_varlen",
    "flash_decoding",
    "gelu",
    "gemv",
    "histogram",
    "integer_dequant_matmul",
    "layernorm",
    "layernorm_backward",
    "linear",
    "matmul",
    "mla_decode",
    "online_softmax",
    "rmsnorm",
    "rmsnorm_backward",
    "rope",
    "softmax",
    "split_k_matmul",
    "topk",
]
