"""What is known about a kernel before it runs: where shared buffers are, and how threads
synchronise.
"""

from __future__ import annotations

from math import gcd, prod

from tileworkbench.compiler.diagnostics import UnsupportedError, VerifyError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Ramp
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.machine.nvidia import BOXES
from tileworkbench.compiler.sim.threads.multicasts import is_multicast

_ALIGNMENT = BOXES.swizzle_rows * BOXES.alignment  # bytes, after which every swizzle repeats


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """How a kernel is simulated.

    `bases` are the byte offsets of its shared buffers; there are none when tile operators use them
    as wholes. `granule` divides the size and the place of every access of shared memory. `partial`:
    some threads synchronise without the others. `lock_step` and `guards` as before stage SIMT;
    `grid_wide`: all blocks run at once, `cluster_wide`: those of a cluster do;
    `blocks` as in `Kernel`; `starts`: operations are started and waited for, `products`:
    the registers of asynchronous products.
    """

    bases: dict[Buffer, int]
    shared_bytes: int
    granule: int
    partial: bool
    lock_step: bool
    grid_wide: bool
    cluster_wide: bool
    blocks: int
    starts: bool
    products: frozenset[str] = frozenset()


def plan_kernel(program: Program, kernel: st.Kernel) -> KernelPlan:
    """The plan of one launch of `program`."""
    stmts = list(statements(kernel.body))
    cluster_wide = is_multicast(kernel) or any(
        isinstance(stmt, (*simt.CLUSTER_WIDE, simt.Peer)) for stmt in stmts
    )
    partial = cluster_wide or any(
        isinstance(stmt, (simt.WarpBarrier, simt.Role, simt.BarrierArrive, simt.BarrierWait))
        or (isinstance(stmt, simt.Barrier) and stmt.count not in (0, prod(kernel.threads)))
        for stmt in stmts
    )
    bases: dict[Buffer, int] = {}
    size = program.scratch_bytes
    if not any(isinstance(stmt, tile.OPERATORS) for stmt in stmts):
        bases, size = _places(stmts, size)
    return KernelPlan(
        bases,
        size,
        _granule(kernel, bases),
        partial,
        program.stage is not Stage.SIMT,
        any(isinstance(stmt, simt.GridBarrier) for stmt in stmts),
        cluster_wide,
        kernel.blocks,
        any(isinstance(stmt, simt.Start) for stmt in stmts),
        frozenset(
            address.buffer.name
            for stmt in stmts
            if isinstance(stmt, simt.Wgmma)
            for address in (stmt.a, stmt.c)
            if address.buffer.scope == "local"
        ),
    )


def _places(stmts: list[st.Stmt], size: int) -> tuple[dict[Buffer, int], int]:
    """(the offset of each shared buffer, the bytes of all): those without one come last."""
    bases: dict[Buffer, int] = {}
    for stmt in stmts:
        if isinstance(stmt, st.Alloc) and stmt.buffer.scope == "shared" and stmt.offset is not None:
            bases[stmt.buffer] = stmt.offset
            size = max(size, stmt.offset + physical_bytes(stmt.buffer))
            if stmt.offset % max(stmt.buffer.dtype.bytes, 1):
                raise VerifyError(f"'{stmt.buffer.name}' is at the odd offset {stmt.offset}")
    for stmt in stmts:
        if isinstance(stmt, st.Alloc) and stmt.buffer.scope == "shared" and stmt.offset is None:
            base = -(-size // _ALIGNMENT) * _ALIGNMENT
            bases[stmt.buffer], size = base, base + physical_bytes(stmt.buffer)
    return bases, size


def physical_bytes(buffer: Buffer) -> int:
    """The size of a shared buffer, holes of its layout included."""
    layout = buffer.layout if len(buffer.shape) > 1 else None
    if isinstance(layout, Layout):
        count = prod(layout.output_shape)
    else:
        extents = [const_int(extent) for extent in buffer.shape]
        if None in extents:
            raise UnsupportedError(f"the shared buffer '{buffer.name}' has no constant size")
        count = prod(extent for extent in extents if extent is not None)
    bits = buffer.dtype.bits if buffer.dtype.bits == 4 else 8 * buffer.dtype.bytes
    return -(-count * bits // 8)


def _granule(kernel: st.Kernel, bases: dict[Buffer, int]) -> int:
    """The largest size, up to 16 bytes, that divides every access of shared memory."""
    made = 16
    for base in bases.values():
        made = gcd(made, base)
    for node in walk(kernel.body):
        width = _width(node)
        if width:
            made = gcd(made, width)
    return made


def _width(node: object) -> int:
    """The bytes a thread accesses shared memory with at once; 0 for other nodes."""
    match node:
        case Load(buffer=buffer, indices=indices) | st.Store(buffer=buffer, indices=indices):
            return _vector_bytes(buffer, indices)
        case st.Atomic(buffer=buffer):
            return _vector_bytes(buffer, ())
        case simt.AsyncCopy(dst=dst, elements=elements):
            return max(elements * dst.buffer.dtype.bits // 8, 1)
    return 0


def _vector_bytes(buffer: Buffer, indices: tuple[Expr, ...]) -> int:
    if buffer.scope != "shared":
        return 0
    lanes = max((index.dtype.lanes for index in indices), default=1)
    if lanes > 1 and not any(
        isinstance(index, Ramp) and const_int(index.stride) == 1 for index in indices
    ):
        lanes = 1
    bits = buffer.dtype.bits if buffer.dtype.bits == 4 else 8 * buffer.dtype.bytes
    return max(lanes * bits // 8, 1)
