"""Tile operators become element-wise nests, packings and micro-kernels.

What is element-wise stays `T.Parallel`, which says that the iterations are independent.

Before::

    T.fill(C_local, 0.0)
    T.gemm(A_shared, B_shared, C_local)

After::

    for i, j in T.Parallel(128, 128):
        C_local[i, j] = 0.0
    T.micro_gemm(T.address_of(A_shared[0, 0]), T.address_of(B_shared[0, 0]), T.address_of(C_local[0,
    0]), lda=32, ldc=128, ...)
"""

from __future__ import annotations

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.lower.vectors.context import Context
from tileworkbench.compiler.lower.vectors.table import lower
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class LowerTileOperators:
    """Lower every copy, fill, gemm, reduction and scan for the layouts that were chosen."""

    target: Target

    def __call__(self, program: Program) -> Program:
        context = Context.of(program, self.target)
        lowering = Rewriter(rewrite_stmt=lambda stmt: lower(stmt, context))
        return with_body(program, lowering(program.body))
