"""Element-wise nests become serial loops around a vector loop.

The vector dimension is the one along which most accesses are contiguous, stores before loads; what
its extent leaves over is done with narrower vectors. Conditions inside become predicates.

Before::

    for i, j in T.Parallel(4, 32):
        B_local[i, j] = A_local[i, j] * 2.0

After::

    for i in T.serial(4):
        for j_outer in T.serial(2):
            for j_lane in T.vectorized(16):
                B_local[i, j_outer * 16 + j_lane] = A_local[i, j_outer * 16 + j_lane] * 2.0
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import with_body
from tileworkbench.compiler.ir.stmt import For, LoopKind, Seq, Stmt, seq
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.vectors import parallel
from tileworkbench.compiler.lower.vectors.context import Context
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.target import Target


@optional("vector instructions: loops go element by element", lambda found: found.scalar())
@dataclass(frozen=True, slots=True)
class VectorizeLoops:
    """Give every element-wise nest an order and a vector dimension as wide as the target's
    registers.
    """

    target: Target

    def scalar(self) -> VectorizeLoops:
        """The same loops for a target without vector registers."""
        return VectorizeLoops(replace(self.target, vector_bits=0))

    def __call__(self, program: Program) -> Program:
        context = Context.of(program, self.target)

        def visit(node: object) -> object:
            if isinstance(node, Parallel):
                return parallel.lower(node, context)
            if not isinstance(node, Stmt):
                return node
            if isinstance(node, For) and node.kind is LoopKind.VECTORIZED:
                node = replace(
                    node, kind=LoopKind.SERIAL
                )  # the user's: nothing says that its iterations are independent
            made = node.map_children(visit)
            return seq(made.stmts) if isinstance(made, Seq) and made is not node else made

        return with_body(program, visit(program.body))  # type: ignore[arg-type]
