"""What one statement reads and writes, and whether it does so whenever it is executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Load, Region
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import statements, walk

_PLAIN = (
    *st.SCALAR,
    st.Kernel,
    *tile.COLLECTIVE,
    simt.Barrier,
    simt.WarpBarrier,
    simt.GridBarrier,
    simt.ClusterBarrier,
    simt.Exchange,
    simt.Role,
    simt.Fence,
)


@dataclass(frozen=True, slots=True)
class Use:
    """One access of `buffer`, by element or, with a `region`, by tile.

    `certain` says that it happens whenever its statement is executed: no predicate, no branch of an
    expression, no option of an operator decides.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    certain: bool
    region: Region | None = None


def is_plain(stmt: st.Stmt) -> bool:
    """Whether `uses` knows everything that `stmt` itself does to memory."""
    return isinstance(stmt, _PLAIN)


def uses(stmt: st.Stmt) -> list[Use]:
    """The accesses of `stmt` itself, reads first; not those of the statements inside it."""
    found = list(_loads(stmt))
    match stmt:
        case st.Store(buffer, indices, _, predicate):
            found.append(Use(buffer, indices, True, predicate is None))
        case st.Atomic(kind, buffer, indices, predicate=predicate):
            certain = predicate is None
            if kind is not st.AtomicKind.STORE:
                found.append(Use(buffer, indices, False, certain))
            if kind is not st.AtomicKind.LOAD:
                found.append(Use(buffer, indices, True, certain))
        case tile.Copy(src, dst):
            found += [_region(src, False), _region(dst, True)]
        case tile.Gemm(a, b, c, clear=clear):
            found += [_region(a, False), _region(b, False)]
            if clear is not ir.Const(True, clear.dtype):
                found.append(_region(c, False, isinstance(clear, Const)))
            found.append(_region(c, True))
        case tile.Fill(dst):
            found.append(_region(dst, True))
        case tile.Reduce(src=src, dst=dst, clear=clear):
            found.append(Use(src, (), False, True))
            if not clear:
                found.append(Use(dst, (), False, True))
            found.append(Use(dst, (), True, True))
        case tile.Scan(src=src, dst=dst):
            found += [_region(src, False), _region(dst, True)]
    return found


def _region(region: Region, is_write: bool, certain: bool = True) -> Use:
    return Use(region.buffer, region.mins, is_write, certain, region)


def _loads(stmt: st.Stmt) -> Iterator[Use]:
    stack: list[tuple[Node, bool]] = [
        (child, True) for child in reversed(stmt.children()) if not isinstance(child, st.Stmt)
    ]
    while stack:
        node, certain = stack.pop()
        match node:
            case Load(buffer, indices, predicate):
                yield Use(buffer, indices, False, certain and predicate is None)
                stack += [(child, certain) for child in node.children()]
            case ir.Select(cond, then, other):
                stack += [(cond, certain), (then, False), (other, False)]
            case ir.Binary("logical_and" | "logical_or", a, b):
                stack += [(a, certain), (b, False)]
            case Buffer():
                pass
            case _:
                stack += [(child, certain) for child in node.children()]


def may_leave(body: st.Stmt) -> bool:
    """Whether some statement below `body` ends an iteration early."""
    return any(isinstance(found, st.Break | st.Continue) for found in statements(body))


def touched(stmt: st.Stmt) -> set[Buffer]:
    """Every buffer named below `stmt`."""
    return {found for found in walk(stmt) if isinstance(found, Buffer)}
