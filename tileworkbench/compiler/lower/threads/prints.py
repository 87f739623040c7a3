"""`T.print` on threads: one thread writes what all threads of a block would write."""

from __future__ import annotations

from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.ir.build import binary, int_const
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.rewrite import statements, variables
from tileworkbench.compiler.ir.simt import Role
from tileworkbench.compiler.ir.stmt import For, If, Kernel, LoopKind, Print, Seq, Stmt, While
from tileworkbench.compiler.ir.tile import Pipelined


def written_once(kernel: Kernel) -> Kernel:
    """The kernel, whose threads have one index, with the first thread of the block, or of the role
    around it, at each `Print` that names no thread. In branches that threads take apart and
    parallel loops they stay as they are.
    """
    if not any(isinstance(stmt, Print) for stmt in statements(kernel.body)):
        return kernel
    (thread,) = kernel.thread_vars
    uniformity = Uniformity(kernel)

    def once(stmt: Stmt, first: int) -> Stmt:
        match stmt:
            case Print(_, values):
                if any(_names(value, thread) for value in values):
                    return stmt
                return If(binary("eq", thread, int_const(first)), stmt, site=stmt.site)
            case Role(start):
                first = start
            case If(cond) if uniformity.varies(cond):
                return stmt
            case For(kind=LoopKind.SERIAL | LoopKind.UNROLLED) | Seq() | If() | While():
                pass
            case Pipelined():
                pass
            case _:
                return stmt
        return stmt.map_children(
            lambda child: once(child, first) if isinstance(child, Stmt) else child
        )

    return kernel.map_children(
        lambda child: once(child, 0) if isinstance(child, Stmt) else child
    )


def _names(value: Expr, thread: Var) -> bool:
    return any(var is thread for var in variables(value))
