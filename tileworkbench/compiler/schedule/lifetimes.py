"""When shared buffers are in use, and where buffers of those lifetimes fit.

A buffer lives from its first to its last use; one that is used in a loop it is not allocated in
lives through the whole loop, and one that is used where only some threads are, and no barrier can
be, as long as they are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from math import prod

from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import buffers_of
from tileworkbench.compiler.ir.simt import Peer, TensorLoad, TensorStore, Wgmma
from tileworkbench.compiler.ir.stmt import Alias, Alloc, For, If, Kernel, Stmt, While
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.schedule.order import rows

ALIGNMENT = 128  # bytes: one row of all banks, where every swizzle has the banks it was made for
SWIZZLE_ALIGNMENT = 1024  # bytes: engines swizzle by bits of the address, 8 rows of 128 bytes
SHARED_SCOPES = ("shared", "shared.barrier")
_LOOPS = (For, While, Pipelined)


@dataclass(slots=True)
class Lifetime:
    """The statements, counted in program order, between which `buffer` holds `size` bytes, from a
    multiple of `alignment` on.

    A `fixed` one lives through the whole kernel. `sites` are those of the statements that use it.
    """

    buffer: Buffer
    size: int
    first: int
    last: int
    fixed: bool
    sites: set[int] = field(default_factory=set)
    alignment: int = ALIGNMENT


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lifetimes of a kernel's shared buffers, `sites[t]` the site of statement t (0: none), and
    the first and last statement of each loop.
    """

    lives: tuple[Lifetime, ...]
    sites: tuple[int, ...]
    loops: tuple[tuple[int, int], ...]


def shared_bytes(buffer: Buffer) -> int:
    """The bytes of a shared buffer in memory, with the padding of its layout."""
    if isinstance(buffer.layout, Layout):
        elements = prod(buffer.layout.output_shape)
    else:
        elements = prod(const_int(extent) or 0 for extent in buffer.shape)
    scalar = buffer.dtype.scalar
    bits = 4 if scalar.is_packed else 8 * scalar.bytes  # six bits have a byte
    return -(-elements * bits * buffer.dtype.lanes // 8)


def timeline(kernel: Kernel, program: Program, scopes: tuple[str, ...] = SHARED_SCOPES) -> Timeline:
    """When the shared buffers of a kernel are in use, or those of other scopes.

    Raises `UnsupportedError` for a buffer whose extent is only known at run time.
    """
    lifetimes: dict[Buffer, Lifetime] = {}
    sites, spans = [0], []
    owner: dict[Buffer, Buffer] = {}
    depth_of: dict[Buffer, int] = {}
    loops: list[tuple[int, set[Buffer]]] = []  # start of each open loop, buffers used in it
    side_by_side: list[set[Buffer]] = []  # buffers used in each open row of roles or varying branch
    uniformity = Uniformity(kernel)
    clock = 0

    def use(buffer: Buffer, site: int) -> None:
        buffer = owner.get(buffer, buffer)
        life = lifetimes.get(buffer)
        if life is not None:
            life.first = min(life.first, clock)
            life.last = max(life.last, clock)
            life.sites.add(site)
            for depth, (_, used) in enumerate(loops):
                if depth >= depth_of[buffer]:
                    used.add(buffer)
            for used in side_by_side:
                used.add(buffer)

    def align(buffer: Buffer) -> None:
        life = lifetimes.get(owner.get(buffer, buffer))
        if life is not None:  # else it is in registers
            life.alignment = SWIZZLE_ALIGNMENT

    def visit(stmt: Stmt) -> None:
        nonlocal clock
        clock += 1
        sites.append(stmt.site)
        match stmt:
            case Alloc(buffer) if buffer.scope in scopes:
                size = _static_size(buffer, program, stmt)
                fixed = buffer.scope == "shared.barrier"
                lifetimes[buffer] = Lifetime(buffer, size, 1 << 30, -1, fixed)
                depth_of[buffer] = len(loops)
                return
            case Alias(buffer, source):
                owner[buffer] = owner.get(source, source)
                return
            case TensorLoad(Address(tile), blocks=blocks):
                align(tile)
                if blocks:  # copies of other blocks come here when they like
                    lifetimes[owner.get(tile, tile)].fixed = True
            case TensorStore(_, Address(tile)):
                align(tile)
            case Wgmma(Address(left), Address(right)):
                align(left)
                align(right)
            case Peer(source=source):  # other blocks access it when they like
                lifetimes[owner.get(source, source)].fixed = True
        for child in stmt.children():
            if not isinstance(child, Stmt):
                for buffer in buffers_of(child):
                    use(buffer, stmt.site)
        if isinstance(stmt, _LOOPS):
            loops.append((clock, set()))
        below = [child for child in stmt.children() if isinstance(child, Stmt)]
        if isinstance(stmt, If) and uniformity.varies(stmt.cond):
            visit_row(below, True)
        else:
            for at_once, row in rows(below):
                visit_row(row, at_once)
        if isinstance(stmt, _LOOPS):
            start, used = loops.pop()
            clock += 1
            sites.append(stmt.site)
            spans.append((start, clock))
            extend(used, start)

    def visit_row(row: list[Stmt], at_once: bool) -> None:
        """Statements one after another, or at once: roles side by side, and what a branch does
        that some threads take.
        """
        start = clock
        if at_once:
            side_by_side.append(set())
        for stmt in row:
            visit(stmt)
        if at_once:
            extend(side_by_side.pop(), start)

    def extend(used: set[Buffer], start: int) -> None:
        for buffer in used:
            lifetimes[buffer].first = min(lifetimes[buffer].first, start)
            lifetimes[buffer].last = max(lifetimes[buffer].last, clock)

    visit(kernel.body)
    for life in lifetimes.values():
        if life.fixed:
            life.first, life.last = 0, clock
    lives = tuple(life for life in lifetimes.values() if life.last >= 0)
    return Timeline(lives, tuple(sites), tuple(spans))


def _static_size(buffer: Buffer, program: Program, stmt: Alloc) -> int:
    if any(const_int(extent) is None for extent in buffer.shape):
        raise UnsupportedError(
            f"shared buffer '{buffer.name}' has an extent that is only known at run time",
            program.span(stmt.site),
            hint="give it a constant extent; T.copy handles the rest of a tile at the edge",
        )
    return -(-shared_bytes(buffer) // ALIGNMENT) * ALIGNMENT


def place(lives: Iterable[Lifetime]) -> tuple[dict[Buffer, int], int]:
    """The offset of each buffer and the bytes of all: largest first, each at the lowest offset that
    is free while it lives.
    """
    placed: list[tuple[Lifetime, int]] = []
    for life in sorted(lives, key=lambda life: (-life.size, life.first, life.buffer.name)):
        offset = 0
        busy = [
            (start, start + other.size)
            for other, start in placed
            if other.first <= life.last and life.first <= other.last
        ]
        for start, end in sorted(busy):
            if start - offset >= life.size:
                break
            offset = max(offset, -(-end // life.alignment) * life.alignment)
        placed.append((life, offset))
    size = max((offset + life.size for life, offset in placed), default=0)
    return {life.buffer: offset for life, offset in placed}, size
