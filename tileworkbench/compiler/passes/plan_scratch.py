"""Tiles get their place in the worker's scratch arena; small local arrays stay on the stack.

A buffer lives until the end of the sequence it is allocated in, so buffers of sequences that do not
enclose one another share memory. Offsets are multiples of 64 bytes, a cache line and the widest
vector.

Before::

    A_shared = T.alloc_shared((4096,), "float32")
    B_shared = T.alloc_shared((4096,), "float32")

After::

    A_shared = T.alloc_shared((4096,), "float32", offset=0)
    B_shared = T.alloc_shared((4096,), "float32", offset=16384)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.diagnostics import ResourceError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, with_body
from tileworkbench.compiler.ir.stmt import Alloc, Seq, Stmt

ALIGNMENT = 64
STACK_BYTES = 1024
MOST_BYTES = 1 << 30  # of one worker


def plan_scratch(program: Program) -> Program:
    """Choose the offset of every tile and the size of the arena.

    Raises `ResourceError` where tiles are larger than a worker's memory.
    """
    planner = _Planner()
    planned = with_body(program, planner.place(program.body, 0))
    if planner.size > MOST_BYTES:
        largest = max((s for s in statements(program.body) if isinstance(s, Alloc)), key=_bytes)
        raise ResourceError(
            f"the tiles of a block take {planner.size >> 20} MiB, and target 'cpu' has "
            f"{MOST_BYTES >> 20} for them: '{largest.buffer.name}' is the largest",
            program.span(largest.site),
            hint="use smaller tiles",
        )
    if planned.scratch_bytes == planner.size:
        return planned
    return replace(planned, scratch_bytes=planner.size)


class _Planner:
    def __init__(self) -> None:
        self.size = 0

    def place(self, stmt: Stmt, used: int) -> Stmt:
        """`stmt` with its tiles after the first `used` bytes of the arena."""
        if isinstance(stmt, Seq):
            return self.place_sequence(stmt, used)
        if isinstance(stmt, Alloc):
            return self.place_sequence(Seq((stmt,)), used).stmts[0]
        return stmt.map_children(
            lambda child: self.place(child, used) if isinstance(child, Stmt) else child
        )

    def place_sequence(self, sequence: Seq, used: int) -> Seq:
        placed: list[Stmt] = []
        for stmt in sequence.stmts:
            if isinstance(stmt, Alloc) and _in_arena(stmt):
                if stmt.offset != used:
                    stmt = replace(stmt, offset=used)
                used += -(-_bytes(stmt) // ALIGNMENT) * ALIGNMENT
                self.size = max(self.size, used)
            elif not isinstance(stmt, Alloc):
                stmt = self.place(stmt, used)
            placed.append(stmt)
        same = all(new is old for new, old in zip(placed, sequence.stmts, strict=True))
        return sequence if same else replace(sequence, stmts=tuple(placed))


def _bytes(stmt: Alloc) -> int:
    buffer = stmt.buffer
    elements = const_int(buffer.shape[0]) if buffer.shape else 1
    return (elements or 0) * buffer.dtype.bytes


def _in_arena(stmt: Alloc) -> bool:
    scope = stmt.buffer.scope
    return scope == "shared" or (scope == "local" and _bytes(stmt) > STACK_BYTES)
