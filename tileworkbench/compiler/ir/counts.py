"""Numbers of a statement that must fit each other, or its instruction."""

from __future__ import annotations

from math import prod

from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.target import MOST_THREADS

_COPIED_BYTES = (4, 8, 16)
_MATRICES = (1, 2, 4)


def count_fault(stmt: st.Stmt) -> str:
    """What does not fit in a launch, a schedule or an instruction, empty where all does."""
    match stmt:
        case st.Kernel():
            return _launch(stmt)
        case tile.Pipelined():
            return _schedule(stmt)
        case tile.Parallel(vars=names, extents=extents) if len(names) != len(extents):
            return f"{len(names)} indices of a loop over {len(extents)} extents"
        case simt.AsyncCopy(dst=dst, elements=elements, in_line=False):
            bits = elements * dst.buffer.dtype.bits
            if bits not in [8 * size for size in _COPIED_BYTES]:
                return f"a thread copies 4, 8 or 16 bytes, not {bits / 8:g}"
        case simt.LoadMatrix(count=count) if count not in _MATRICES:
            return f"an instruction loads 1, 2 or 4 matrices, not {count}"
        case tile.MicroGemm(m=m, n=n, k=k, mr=mr, nr=nr) if min(m, n, k, mr, nr) < 1:
            return "extents of a product below 1"
    return ""


def _launch(stmt: st.Kernel) -> str:
    if len(stmt.vars) != len(stmt.grid):
        return f"{len(stmt.vars)} indices of a block in a grid of {len(stmt.grid)} extents"
    if any(extent < 1 for extent in stmt.threads):
        return f"a block of {' x '.join(map(str, stmt.threads))} threads"
    if prod(stmt.threads) > MOST_THREADS:
        return f"a block of {prod(stmt.threads)} threads: it has at most {MOST_THREADS}"
    return ""


def _schedule(stmt: tile.Pipelined) -> str:
    count = sum(not st.declares(each) for each in st.items(stmt.body))
    for name, entries in (("order", stmt.order), ("stage", stmt.stage)):
        if entries and len(entries) != count:
            return f"'{name}' has {len(entries)} entries for {count} statements"
    return ""
