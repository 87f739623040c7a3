"""A tile that only gemms read as operand A, row by row, is not copied: they read the tensor itself.

That holds when one whole-tile copy fills the tile right before, converts nothing and stays inside
the tensor, and when the kernel does not write the tensor. (Arguments that overlap are refused
before a kernel runs.)

Before::

    T.copy(A[by * 64:by * 64 + 64, k * 32:k * 32 + 32], A_shared)
    T.gemm(A_shared, B_shared, C_local)

After::

    T.gemm(A[by * 64:by * 64 + 64, k * 32:k * 32 + 32], B_shared, C_local)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.effects import Uses, uses_of, written
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import binary, const_int, int_const
from tileworkbench.compiler.ir.expr import Buffer, Region
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Alloc, Seq, Stmt
from tileworkbench.compiler.ir.tile import Copy, Gemm
from tileworkbench.compiler.ops.panels import panel_form, row_major_strides


def forward_copies(program: Program) -> Program:
    """Let gemms read operand A from global memory where its copy changes nothing."""
    uses = uses_of(program)
    ranges = Ranges(program)
    sources: dict[Buffer, Region] = {}
    for sequence in statements(program.body):
        if not isinstance(sequence, Seq):
            continue
        for at, stmt in enumerate(sequence.stmts):
            if isinstance(stmt, Copy) and _changes_nothing(stmt, ranges):
                later = sequence.stmts[at + 1 :]
                if _is_read_as_a(stmt, later, uses) and not _is_written(stmt.src.buffer, uses):
                    sources[stmt.dst.buffer] = stmt.src
    if not sources:
        return program

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Gemm) and stmt.a.buffer in sources:
            return replace(stmt, a=sources[stmt.a.buffer])
        if isinstance(stmt, Seq):
            kept = tuple(child for child in stmt.stmts if not _is_gone(child, sources))
            return stmt if len(kept) == len(stmt.stmts) else replace(stmt, stmts=kept)
        return stmt

    notes = tuple(
        f"{buffer.name}: not stored, the gemm reads '{region.buffer.name}' where it lies"
        for buffer, region in sources.items()
    )
    changed = with_body(program, Rewriter(rewrite_stmt=change)(program.body))
    return replace(changed, notes=(*program.notes, *notes))


def _is_gone(stmt: Stmt, sources: dict[Buffer, Region]) -> bool:
    if isinstance(stmt, Alloc):
        return stmt.buffer in sources
    return isinstance(stmt, Copy) and stmt.dst.buffer in sources


def _is_read_as_a(copy: Copy, later: tuple[Stmt, ...], uses: Uses) -> bool:
    """Whether the tile is used by nothing but the copy and gemms in the statements after it."""
    tile = copy.dst.buffer
    after = {id(inner) for stmt in later for inner in statements(stmt)}
    for user in uses[tile]:
        if user is copy or isinstance(user, Alloc):
            continue
        if not isinstance(user, Gemm) or id(user) not in after:
            return False
        if not _is_whole(user.a) or tile in (user.b.buffer, user.c.buffer):
            return False
    return True


def _is_written(tensor: Buffer, uses: Uses) -> bool:
    return any(tensor in written(user) for user in uses[tensor])


def _is_whole(region: Region) -> bool:
    return region.extents == region.buffer.shape and all(low is int_const(0) for low in region.mins)


def _changes_nothing(copy: Copy, ranges: Ranges) -> bool:
    """Whether the tile is the same matrix as the part of the tensor it is filled from."""
    src, dst = copy.src, copy.dst
    if (src.buffer.scope, dst.buffer.scope) != ("global", "shared"):
        return False
    if src.buffer.dtype != dst.buffer.dtype:
        return False
    if not _is_whole(dst) or panel_form(dst.buffer) is not None or len(src.extents) < 2:
        return False
    leading = len(src.extents) - 2
    if any(const_int(extent) != 1 for extent in src.extents[:leading]):
        return False
    if dst.extents != src.extents[leading:] or any(map(has_loads, src.mins)):
        return False
    if const_int(row_major_strides(src.buffer)[-1]) != 1:
        return False
    return all(
        ranges.in_range(low, bound)[0]
        and ranges.proves(binary("le", binary("add", low, extent), bound))
        for low, extent, bound in zip(src.mins, src.extents, src.buffer.shape, strict=True)
    )
