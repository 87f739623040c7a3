"""Which buffers a statement writes, and which share memory."""

from __future__ import annotations

from collections import Counter

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.effects import declared, exposed
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.rewrite import buffers_of, statements
from tileworkbench.compiler.ir.simt import Start, TensorMap


def written(stmt: st.Stmt) -> tuple[Buffer, ...]:
    """The buffers that `stmt` itself stores to, not those of the statements inside it."""
    return tuple(access.buffer for access in declared(stmt) if access.writes)


def starts_operations(root: st.Stmt) -> bool:
    """Whether something below `root` is started and waited for."""
    return any(isinstance(stmt, Start) for stmt in statements(root))


def exposes(call: st.ExternCall) -> bool:
    """Whether an external function gets an address: then it may change memory, each time it is
    called.
    """
    return any(arg.dtype.kind == "handle" for arg in call.args)


def hides_accesses(root: st.Stmt) -> bool:
    """Whether memory has two names below `root`, or code outside may do with it what it likes."""
    return any(
        isinstance(stmt, st.Alias | st.Pointer) or exposed(stmt) for stmt in statements(root)
    )


def owners(root: st.Stmt) -> dict[Buffer, Buffer]:
    """The buffer whose memory each alias or tensor map below `root` is a view of."""
    owner: dict[Buffer, Buffer] = {}
    for stmt in statements(root):
        if isinstance(stmt, st.Alias | TensorMap):
            owner[stmt.buffer] = owner.get(stmt.source, stmt.source)
    return owner


def uses(root: st.Stmt) -> Counter[Buffer]:
    """How many statements below `root` name each buffer, those that allocate it aside."""
    return Counter(
        buffer
        for stmt in statements(root)
        if not isinstance(stmt, st.Alloc)
        for child in stmt.children()
        if not isinstance(child, st.Stmt)
        for buffer in buffers_of(child)
    )


def packed_tiles(root: st.Stmt) -> frozenset[Buffer]:
    """Tiles of 4-bit elements that keep two in a byte. On a CPU other tiles have a byte for each
    element; these have a view as larger elements, which must find the same bits.
    """
    groups: dict[Buffer, set[Buffer]] = {}
    for view, owner in owners(root).items():
        groups.setdefault(owner, {owner}).add(view)
    return frozenset(
        buffer
        for group in groups.values()
        if any(not buffer.dtype.is_packed for buffer in group)
        for buffer in group
        if buffer.dtype.is_packed
    )


def constant_buffers(body: st.Stmt) -> frozenset[Buffer]:
    """The tensors that `body` only reads; none where raw addresses could reach any."""
    if any(isinstance(stmt, st.Pointer | st.ExternCall) for stmt in statements(body)):
        return frozenset()
    tensors = frozenset(buffer for buffer in buffers_of(body) if buffer.scope == "global")
    aliased = {buffer for pair in owners(body).items() for buffer in pair}
    return tensors - written_below(body) - aliased


def written_below(root: st.Stmt) -> set[Buffer]:
    """The buffers whose memory some statement below `root` stores to, also through an alias."""
    buffers = {buffer for stmt in statements(root) for buffer in written(stmt)}
    aliases = owners(root)
    return buffers | {aliases[buffer] for buffer in buffers if buffer in aliases}
