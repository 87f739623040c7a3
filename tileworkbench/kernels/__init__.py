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
default, tile sizes included; an extent annotated `Extent` may be a symbol made by `T.dynamic`, and
then one kernel serves every size.
"""

from __future__ import annotations

from tileworkbench.kernels.cross_entropy import cross_entropy
from tileworkbench.kernels.gemv import gemv
from tileworkbench.kernels.layernorm import add_layernorm, layernorm
from tileworkbench.kernels.matmul import linear, matmul
from tileworkbench.kernels.rmsnorm import add_rmsnorm, rmsnorm
from tileworkbench.kernels.rope import rope
from tileworkbench.kernels.softmax import online_softmax, softmax

__all__ = [
    "add_layernorm",
    "add_rmsnorm",
    "cross_entropy",
    "gemv",
    "layernorm",
    "linear",
    "matmul",
    "online_softmax",
    "rmsnorm",
    "rope",
    "softmax",
]
