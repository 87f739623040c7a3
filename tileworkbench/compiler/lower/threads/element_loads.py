"""What nests of T.Parallel load from tensors to tiles of shared memory: who does it, and why the
copy engine, which only makes copies of boxes, does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.compiler.ir.expr import Buffer, Cast, Expr, Load
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.simt import AsyncCopy
from tileworkbench.compiler.ir.stmt import Stmt, Store
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.threads.context import ThreadContext


def notes(body: Stmt, lowered: Stmt, context: ThreadContext) -> Iterator[str]:
    """A sentence for each tensor that a nest of `body` fills a tile from."""
    if context.target.machine.box_copies("shared") is None:
        return
    copies = {
        (each.src.buffer, each.dst.buffer)
        for each in statements(lowered)
        if isinstance(each, AsyncCopy)
    }
    tiles = {dst.name: src for src, dst in copies}
    said: set[str] = set()
    for nest in statements(body):
        for store in statements(nest) if isinstance(nest, Parallel) else ():
            if not isinstance(store, Store) or store.buffer.scope != "shared":
                continue
            for tensor, reason in _loads(store.value, store.buffer):
                who = "cp.async" if tiles.get(store.buffer.name) is tensor else "threads"
                span = context.span(nest.site)
                line = f" (T.Parallel, line {span.line})" if span else ""
                text = f"{tensor.name}: {who}, because {reason}{line}"
                if text not in said:
                    said.add(text)
                    yield text


def _loads(value: Expr, tile: Buffer) -> Iterator[tuple[Buffer, str]]:
    """The tensors whose elements go to a tile, and why that is no copy of a box."""
    chosen = {node for load in _global(value) for at in load.indices for node in _global(at)}
    alone = value.value if isinstance(value, Cast) else value
    for load in _global(value):
        if load in chosen:
            continue
        by = [each.buffer.name for at in load.indices for each in _global(at)]
        if load is not alone:
            yield load.buffer, f"'{tile.name}' is computed from its elements"
        elif isinstance(value, Cast):
            yield load.buffer, f"'{load.dtype}' and '{tile.dtype}' are converted"
        elif by:
            yield load.buffer, f"'{by[0]}' says which of its elements are copied"
        else:
            yield load.buffer, "it is copied by element, not by T.copy"


def _global(value: Expr) -> Iterator[Load]:
    for node in walk(value):
        if isinstance(node, Load) and node.buffer.scope == "global":
            yield node
