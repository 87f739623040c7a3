"""Every tile gets a layout: packed panels where a gemm profits from them, row-major order
elsewhere.

A gemm operand that is only filled by whole-tile copies and only read by gemms in one role is kept
as the micro-kernel reads it: B in panels as wide as a register block, 16-bit floats already
widened. All else is row-major.

Before::

    B_shared = T.alloc_shared((32, 128), "float16")

After::

    B_shared = T.alloc_shared((32, 128), "float32", layout=Layout(
        (32, 128), lambda i, j: (2048*(j//64) + 64*i + j%64,)))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import replace_buffers, statements
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alias, Alloc
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.ops.context import Context, Vote
from tileworkbench.compiler.ops.table import infer_layout
from tileworkbench.compiler.target import Target

_TILES = ("shared", "local.fragment")


@dataclass(frozen=True, slots=True)
class InferLayouts:
    """Choose the layout of every tile; the reasons go to the program's notes."""

    target: Target

    def __call__(self, program: Program) -> Program:
        context = Context.of(program, self.target)
        votes: dict[Buffer, list[Vote]] = {}
        tiles: list[Buffer] = []
        for stmt in statements(program.body):
            if isinstance(stmt, Alias | Alloc) and stmt.buffer.scope in _TILES:
                tiles.append(stmt.buffer)
            for vote in infer_layout(stmt, context):
                votes.setdefault(vote.buffer, []).append(vote)
        changes: dict[Buffer, Buffer] = {}
        notes: list[str] = []
        for buffer in tiles:
            changed, reason = _choose(buffer, votes.get(buffer, []))
            if changed is not None:
                changes[buffer] = changed
            notes.append(f"{buffer.name}: {reason}")
        planned = replace_buffers(program, changes)
        return replace(
            planned,
            stage=Stage.PLANNED,
            target=str(self.target),  # from here on the program is for one target
            notes=(*program.notes, *notes),
        )


def _choose(buffer: Buffer, votes: list[Vote]) -> tuple[Buffer | None, str]:
    """The buffer with its layout, and why; None for a buffer of symbolic shape."""
    shape = const_shape(buffer)
    if shape is None or not shape:
        return None, "row-major, its shape is not known here"
    wishes = [vote for vote in votes if vote.layout is not None]
    objections = [vote for vote in votes if vote.layout is None and vote.binding]
    if wishes and not objections and all(vote.layout == wishes[0].layout for vote in wishes):
        wish = wishes[0]
        return replace(buffer, layout=wish.layout, dtype=wish.dtype or buffer.dtype), wish.reason
    if wishes and objections:
        reason = f"row-major: it {objections[0].reason}"
    elif wishes:
        reason = "row-major: gemms use it in different roles"
    else:
        reason = f"row-major: it {votes[0].reason}" if votes else "row-major: nothing uses it"
    return replace(buffer, layout=Layout.row_major(shape)), reason
