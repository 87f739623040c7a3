"""Buffers of a pipelined loop that several iterations use at once: a ring of versions of each.

Iteration i uses version (i - start) mod n of a buffer that has n of them, which is the first index
of what it becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tileworkbench.compiler.diagnostics import ResourceError, TileValueError
from tileworkbench.compiler.ir.build import binary, const, const_int, int_const, sub
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter
from tileworkbench.compiler.ir.stmt import Alloc, Atomic, Stmt, Store
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.schedule.pipelines import Schedule

_MOST_STAGES = 128


def needed_versions(loop: Pipelined, program: Program) -> dict[Buffer, int]:
    """How many iterations' worth of each shared buffer is alive at once, where it is more than one.

    Raises `ResourceError` for more stages than code or shared memory could hold, `TileValueError`
    when a register would have to be kept for several iterations.
    """
    stages = max(loop.stage, default=0) + 1
    if stages > _MOST_STAGES:
        raise ResourceError(
            f"a pipeline of {stages} stages needs as many versions of its tiles, and at most "
            f"{_MOST_STAGES} are possible",
            program.span(loop.site),
            hint="use fewer stages in T.Pipelined: shared memory holds a few",
        )
    versions: dict[Buffer, int] = {}
    for buffer, (apart, number) in Schedule(loop).lives().items():
        if not apart or buffer.scope == "global":
            continue
        if buffer.scope != "shared":
            raise TileValueError(
                f"the schedule keeps '{buffer.name}' for {apart + 1} iterations, which only "
                "a shared buffer can be",
                program.span(loop.site),
                hint="give the statements that write and read it the same stage",
            )
        if number > 1:
            versions[buffer] = number
    return versions


def in_versions(buffer: Buffer, number: int) -> Buffer:
    """The ring of `number` versions of a shared buffer."""
    layout = buffer.layout
    if layout is not None:
        if not isinstance(layout, Layout):
            raise TypeError(f"'{buffer.name}' is not in shared memory")
        layout = layout.expand((number,))
    return replace(buffer, shape=(int_const(number), *buffer.shape), layout=layout)


def version_count(ring: Buffer) -> int:
    """How many versions a ring has."""
    return const_int(ring.shape[0]) or 1


def version_of(iteration: Expr, loop: Pipelined, number: int) -> Expr:
    """Which of `number` versions an iteration of the loop uses."""
    distance = sub(iteration, loop.start)
    return binary("floormod", distance, const(number, distance.dtype))


def with_versions(
    body: Stmt, rings: Mapping[Buffer, Buffer], index: Callable[[Buffer], Expr]
) -> Stmt:
    """`body` with rings instead of their buffers, accessed at the version `index` of each."""

    def change(node: object) -> object:
        if isinstance(node, Load | Address) and node.buffer in rings:
            indices = (index(node.buffer), *node.indices)
            buffer = rings[node.buffer]
            if isinstance(node, Address):
                return Address(buffer, indices)
            return Load(buffer, indices, node.predicate, node.safe)
        return node

    def change_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Atomic) and stmt.buffer in rings:
            indices = (index(stmt.buffer), *stmt.indices)
            return replace(stmt, buffer=rings[stmt.buffer], indices=indices)
        if isinstance(stmt, Alloc) and stmt.buffer in rings:
            return replace(stmt, buffer=rings[stmt.buffer])
        return stmt

    return Rewriter(change, change_stmt)(body)  # type: ignore[no-any-return]
