"""What the calls of printed IR take: how many arguments, and which keywords.

The parser holds every call of a text against this table before it reads any, so that none can have
an argument or a keyword that nobody reads.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.forms import FORMS


class Takes(NamedTuple):
    """The most `arguments` of a call (None: as many as there are) and its `keywords`."""

    arguments: int | None
    keywords: tuple[str, ...] = ()


_ALLOCATIONS = ("shared", "barrier", "fragment", "local", "global")
_CALLS = {
    "program": Takes(
        0,
        (
            *("stage", "target", "symbols", "outputs", "returns"),
            *("safe_values", "scratch_bytes", "sources"),
        ),
    ),
    "Tensor": Takes(2, ("layout",)),
    "StridedTensor": Takes(3, ("layout",)),
    "Kernel": Takes(None, ("threads", "swizzle", "thread_vars", "cluster", "blocks")),
    "Parallel": Takes(None, ("coalesced_width", "loop_layout")),
    "Pipelined": Takes(2, ("num_stages", "order", "stage")),
    **{str(kind): Takes(3, ("dtype",)) for kind in st.LoopKind},
    "threads": Takes(2),
    "started": Takes(2),
    **{f"alloc_{scope}": Takes(2, ("layout", "offset")) for scope in _ALLOCATIONS},
    "alloc_var": Takes(2, ("init",)),
    "view": Takes(3, ("layout",)),
    "peer": Takes(2),
    "make_tensor": Takes(3, ("strides",)),
    "tensor_map": Takes(3, ("strides", "box", "swizzle")),
    "source_kernel": Takes(None, ("threads", "entry", "source")),
    "call_extern": Takes(None),
    "print": Takes(None, ("loops",)),
    "store": Takes(3),
    **{f"atomic_{kind}": Takes(4) for kind in st.AtomicKind},
    **{name: Takes(count, ("width", "mask")) for name, count in simt.EXCHANGES.items()},
    **{name: Takes(2) for name in (*ir.ARITHMETIC, *ir.BITWISE)},
    **{name: Takes(1) for name in (*ir.UNARY, "address_of")},
    **{name: Takes(count) for name, count in ir.INTRINSICS.items()},
    **{name: Takes(2) for name in ("cast", "reinterpret", "Broadcast")},
    **{name: Takes(3) for name in ("Select", "Ramp", "load")},
}


def takes(name: str) -> Takes:
    """What `T.name` takes; any arguments and no keywords where there is no such call."""
    if name in _CALLS:
        return _CALLS[name]
    if name in simt.NAMES:
        kind = simt.NAMES[name]
        fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        return Takes(len(kind.child_fields), tuple(field for field in fields if field != "site"))
    form = FORMS.get(name) or FORMS.get(name.rpartition("_")[0])
    return Takes(len(form.arguments), tuple(form.options)) if form else Takes(None)
