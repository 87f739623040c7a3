"""Shared buffers get their place in the block's shared memory; those that are never alive together
share it.

Lifetimes come from `schedule/lifetimes.py`. Offsets are multiples of 128 bytes, one row of all
banks, where every swizzle has the banks it was made for. This comes before barriers: two buffers in
one place are one hazard.

Before::

    A_shared = T.alloc_shared((3, 128, 32), "float16")
    C_shared = T.alloc_shared((128, 64), "float16")

After::

    A_shared = T.alloc_shared((3, 128, 32), "float16", offset=0)
    C_shared = T.alloc_shared((128, 64), "float16", offset=0)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.diagnostics import ResourceError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Alloc, Kernel, Stmt
from tileworkbench.compiler.schedule.lifetimes import place, shared_bytes, timeline
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class PlanSharedMemory:
    """Choose the offset of every shared buffer and the size of the block's shared memory."""

    target: Target

    def __call__(self, program: Program) -> Program:
        offsets: dict[Buffer, int] = {}
        size = 0
        for kernel in statements(program.body):
            if isinstance(kernel, Kernel):
                placed, used = place(timeline(kernel, program).lives)
                self._check(placed, used, program, kernel)
                offsets.update(placed)
                size = max(size, used)

        def change(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Alloc) and stmt.buffer in offsets:
                return replace(stmt, offset=offsets[stmt.buffer])
            return stmt

        planned = with_body(program, Rewriter(rewrite_stmt=change)(program.body))
        return planned if planned.scratch_bytes == size else replace(planned, scratch_bytes=size)

    def _check(
        self, placed: dict[Buffer, int], used: int, program: Program, kernel: Kernel
    ) -> None:
        limit = self.target.machine.shared.most
        if used <= limit:
            return
        sizes = sorted(placed, key=lambda buffer: (-shared_bytes(buffer), buffer.name))
        listed = ", ".join(f"'{buffer.name}' {shared_bytes(buffer)}" for buffer in sizes)
        raise ResourceError(
            f"the block needs {used} bytes of shared memory, '{self.target.arch}' has {limit}: "
            f"{listed}",
            program.span(kernel.site),
            hint="use fewer stages in T.Pipelined, smaller tiles or a narrower dtype",
        )
