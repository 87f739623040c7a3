"""Copies that the copy engine does not take: its boxes consist of rows of whole units of bytes, and
so do those of the tensor (CUDA driver API, "cuTensorMapEncodeTiled").
"""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Engine, Start
from tileworkbench.compiler.ir.tile import Copy
from tileworkbench.compiler.machine.nvidia import COPY_ENGINE

_ENGINES = (Engine.TMA, Engine.TMA_STORE)


def refused_boxes(kernel: st.Kernel) -> Iterator[tuple[int, str]]:
    """The site and the sentence of every such copy."""
    for start in statements(kernel.body):
        if isinstance(start, Start) and start.engine in _ENGINES:
            for copy in statements(start.body):
                if isinstance(copy, Copy):
                    yield from _refused(copy)


def _refused(copy: Copy) -> Iterator[tuple[int, str]]:
    unit = COPY_ENGINE.alignment
    region = copy.src if copy.src.buffer.scope == "global" else copy.dst
    buffer, bits = region.buffer, region.buffer.dtype.bits
    row = const_int(region.extents[-1])
    if row is not None and row * bits // 8 % unit:
        yield (
            copy.site,
            f"the copy engine takes rows of a multiple of {unit} bytes, and those of this copy "
            f"have {row * bits // 8}: copy more columns, or use T.copy",
        )
        return
    stride = const_int(buffer.shape[-1])
    if len(buffer.shape) > 1 and stride is not None and stride * bits // 8 % unit:
        yield (
            copy.site,
            f"the copy engine takes tensors whose rows are a multiple of {unit} bytes apart, and "
            f"those of '{buffer.name}' are {stride * bits // 8}: pad them, or use T.copy",
        )
