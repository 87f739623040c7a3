"""A barrier of the grid ends a launch: what follows it is another one over the same blocks.

Only tensors in global memory live from one launch to the next. Names that are computed from block
and thread indices are computed again; memory of the block is made again where the later part writes
it before it reads it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Load, Region, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import bound_by, buffers_of, variables, walk


def split_at_grid_barriers(kernel: st.Kernel, names: Names, program: Program) -> list[st.Kernel]:
    """`kernel` as launches one after another, cut at the barriers of the grid in its outermost
    sequence. Raises `UnsupportedError` where a block keeps something over a barrier.
    """
    parts: list[list[st.Stmt]] = [[]]
    for stmt in st.items(kernel.body):
        if isinstance(stmt, simt.GridBarrier):
            parts.append([])
        else:
            parts[-1].append(stmt)
    if len(parts) == 1:
        return [kernel]
    made = [replace(kernel, body=st.seq(parts[0]))]
    before: list[st.Stmt] = []
    for done, part in pairwise(parts):
        before += done
        whole = replace(kernel, body=st.seq([*_again(before, part, program), *part]))
        made.append(with_new_names(whole, names.fresh))
    return made


def _again(before: list[st.Stmt], part: list[st.Stmt], program: Program) -> list[st.Stmt]:
    """What `part` needs of what stands before it, in order."""
    body = st.seq(part)
    needed: set[Var | Buffer] = {*variables(body), *buffers_of(body)}
    kept: list[st.Stmt] = []
    for stmt in reversed(before):
        if isinstance(stmt, st.Let) and stmt.var in needed:
            if has_loads(stmt.value):
                raise _kept_over(stmt.var.name, stmt, program)
            needed |= set(variables(stmt.value))
        elif isinstance(stmt, st.Alias) and stmt.buffer in needed:
            needed.add(stmt.source)
        elif isinstance(stmt, st.Alloc) and stmt.buffer in needed:
            if not _overwrites(part, stmt.buffer):
                raise _kept_over(stmt.buffer.name, stmt, program)
        else:
            continue
        kept.append(stmt)
    made = {name for stmt in before for name in _names(stmt)}
    missing = needed & (made - {name for stmt in kept for name in _names(stmt)})
    if missing:
        name = min(found.name for found in missing)
        raise _kept_over(name, before[-1], program)
    return kept[::-1]


def _names(stmt: st.Stmt) -> tuple[Var | Buffer, ...]:
    """What `stmt` itself makes for the statements after it."""
    if isinstance(stmt, st.Alloc | st.Alias):
        return (stmt.buffer,)
    return bound_by(stmt) if isinstance(stmt, st.Let | st.Atomic | simt.Exchange) else ()


def _kept_over(name: str, stmt: st.Stmt, program: Program) -> UnsupportedError:
    return UnsupportedError(
        f"target 'cpu' cannot keep '{name}' over a barrier of several blocks",
        program.span(stmt.site),
        hint="keep it in global memory, or run it in the simulator, with k.simulate(...)",
    )


def _overwrites(part: list[st.Stmt], buffer: Buffer) -> bool:
    """Whether the first statement that uses `buffer` writes all of it."""
    for stmt in part:
        if buffer not in buffers_of(stmt):
            continue
        match stmt:
            case st.Store(found, indices, value):
                reads = any(
                    isinstance(node, Load) and node.buffer is buffer for node in walk(value)
                )
                return found is buffer and not indices and not reads
            case tile.Fill(dst) | tile.Copy(dst=dst):
                return dst.buffer is buffer and _is_whole(dst)
        return False
    return True


def _is_whole(region: Region) -> bool:
    return region.extents == region.buffer.shape and all(const_int(m) == 0 for m in region.mins)
