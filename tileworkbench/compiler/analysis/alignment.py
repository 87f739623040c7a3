"""Which alignment the accesses of a lowered program need of the addresses of tensors."""

from __future__ import annotations

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.ir.expr import Address, AddressOf, Buffer, Expr, Load, Region
from tileworkbench.compiler.ir.node import InternedNode, Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.simt import AsyncCopy
from tileworkbench.compiler.ir.stmt import Atomic, SourceKernel, Store
from tileworkbench.compiler.machine.machine import VECTOR_BITS

_MOST_BYTES = VECTOR_BITS // 8


def needed_alignment(program: Program) -> dict[str, int]:
    """Bytes by name of a tensor: those of its widest access at once, the most there are where its
    address is given to other code.
    """
    views = owners(program.body)
    alignments: dict[str, int] = {}

    def need(buffer: Buffer, elements: int) -> None:
        bits = elements * buffer.dtype.bits * buffer.dtype.lanes
        bytes_ = min(1 << max(-(-bits // 8) - 1, 0).bit_length(), _MOST_BYTES)
        name = views.get(buffer, buffer).name
        alignments[name] = max(alignments.get(name, 1), bytes_)

    seen: set[Node] = set()
    pending: list[Node] = [program.body]
    while pending:
        node = pending.pop()
        children = node.children()
        match node:
            case Load(buffer, indices) | Store(buffer, indices) | Atomic(_, buffer, indices):
                need(buffer, _lanes(indices))
            case AsyncCopy(_, Address(buffer, indices), elements):
                need(buffer, elements)
                children = tuple(child for child in children if child is not node.src)
                children += indices
            case AddressOf(buffer) | Address(buffer) | Region(buffer):
                need(buffer, _MOST_BYTES * 8)
            case SourceKernel():
                return {param.name: _MOST_BYTES for param in program.params}
        for child in children:
            if not isinstance(child, InternedNode):
                pending.append(child)
            elif child not in seen:
                seen.add(child)
                pending.append(child)
    return alignments


def _lanes(indices: tuple[Expr, ...]) -> int:
    return max((index.dtype.lanes for index in indices), default=1)
