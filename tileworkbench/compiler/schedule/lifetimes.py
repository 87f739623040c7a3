"""When shared buffers are in use, and where buffers of those lifetimes fit.

A buffer lives from its first to its last use. One that is used in a loop, but allocated outside of
it, lives through the whole loop. One that is used in code of some threads lives through all of that
code, because no barrier can stand in it. A tile that an engine reads is in use until the wait for
that engine.

Of roles side by side the last one may be the user of tiles that others fill (`schedule/settled`).
What it has used for the last time is free for what else only it uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from math import prod

from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import buffers_of, statements
from tileworkbench.compiler.ir.simt import (
    Engine,
    Peer,
    Start,
    TensorLoad,
    TensorStore,
    WaitGroup,
    Wgmma,
)
from tileworkbench.compiler.ir.stmt import Alias, Alloc, For, If, Kernel, Stmt, While
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.machine.nvidia import BOXES
from tileworkbench.compiler.schedule.order import rows
from tileworkbench.compiler.schedule.settled import settled

ALIGNMENT = 128  # bytes: one row of all banks, where every swizzle has the banks it was made for
SWIZZLE_ALIGNMENT = BOXES.swizzle_rows * BOXES.alignment  # bytes: swizzles are by bits of addresses
SHARED_SCOPES = ("shared", "shared.barrier")
_LOOPS = (For, While, Pipelined)
_READERS = (Engine.WGMMA, Engine.TMA_STORE)  # of shared memory, while threads go on


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
    walk = _Walk(kernel, program, scopes)
    walk.visit(kernel.body)
    for life in walk.lifetimes.values():
        if life.fixed:
            life.first, life.last = 0, walk.clock
    lives = tuple(life for life in walk.lifetimes.values() if life.last >= 0)
    return Timeline(lives, tuple(walk.sites), tuple(walk.spans))


class _Walk:
    """A walk in program order that keeps the lifetimes of buffers."""

    def __init__(self, kernel: Kernel, program: Program, scopes: tuple[str, ...]) -> None:
        self.kernel, self.program, self.scopes = kernel, program, scopes
        self.lifetimes: dict[Buffer, Lifetime] = {}
        self.sites, self.clock = [0], 0
        self.spans: list[tuple[int, int]] = []
        self.owner: dict[Buffer, Buffer] = {}
        self.depth_of: dict[Buffer, int] = {}
        self.uniformity = Uniformity(kernel)
        # Of each open loop: its start and the buffers used in it.
        self.loops: list[tuple[int, set[Buffer]]] = []
        # Of each open row of roles, or branch that some threads take: the buffers used in it.
        self.side_by_side: list[set[Buffer]] = []
        # What engines read that nobody has waited for.
        self.under_way: dict[Engine, set[Buffer]] = {}

    def use(self, buffer: Buffer, site: int) -> None:
        buffer = self.owner.get(buffer, buffer)
        life = self.lifetimes.get(buffer)
        if life is not None:
            life.first = min(life.first, self.clock)
            life.last = max(life.last, self.clock)
            life.sites.add(site)
            for depth, (_, used) in enumerate(self.loops):
                if depth >= self.depth_of[buffer]:
                    used.add(buffer)
            for used in self.side_by_side:
                used.add(buffer)

    def tick(self, stmt: Stmt) -> None:
        self.clock += 1
        self.sites.append(stmt.site)

    def visit(self, stmt: Stmt) -> None:
        self.tick(stmt)
        if isinstance(stmt, Alloc) and stmt.buffer.scope in self.scopes:
            size = _static_size(stmt.buffer, self.program, stmt)
            fixed = stmt.buffer.scope == "shared.barrier"
            self.lifetimes[stmt.buffer] = Lifetime(stmt.buffer, size, 1 << 30, -1, fixed)
            self.depth_of[stmt.buffer] = len(self.loops)
            return
        if isinstance(stmt, Alias):
            self.owner[stmt.buffer] = self.owner.get(stmt.source, stmt.source)
            return
        self.visit_engines(stmt)
        for buffer in _named(stmt):
            self.use(buffer, stmt.site)
        below = [child for child in stmt.children() if isinstance(child, Stmt)]
        if isinstance(stmt, _LOOPS):
            self.loops.append((self.clock, set()))
        if isinstance(stmt, If) and self.uniformity.varies(stmt.cond):
            self.visit_row(below, True)
        else:
            for at_once, row in rows(below):
                self.visit_row(row, at_once)
        if isinstance(stmt, _LOOPS):
            start, used = self.loops.pop()
            self.tick(stmt)
            self.spans.append((start, self.clock))
            self.extend(used, start)

    def visit_engines(self, stmt: Stmt) -> None:
        """The alignment that engines need, and how long they read tiles."""
        match stmt:
            case TensorLoad(Address(tile), blocks=blocks):
                self.align(tile)
                if blocks:  # copies of other blocks may arrive at any time
                    self.lifetimes[self.owner.get(tile, tile)].fixed = True
            case TensorStore(_, Address(tile)):
                self.align(tile)
            case Wgmma(Address(left), Address(right)):
                self.align(left)
                self.align(right)
            case Peer(source=source):  # other blocks may access it at any time
                self.lifetimes[self.owner.get(source, source)].fixed = True
            case Start(engine=engine) if engine in _READERS:
                read = (_named(inner) for inner in statements(stmt))
                self.under_way.setdefault(engine, set()).update(*read)
            case WaitGroup(pending, engine):
                for buffer in self.under_way.get(engine, ()):
                    self.use(buffer, stmt.site)
                if not pending:
                    self.under_way.pop(engine, None)

    def align(self, buffer: Buffer) -> None:
        life = self.lifetimes.get(self.owner.get(buffer, buffer))
        if life is not None:  # else it is in registers
            life.alignment = SWIZZLE_ALIGNMENT

    def visit_row(self, row: list[Stmt], at_once: bool) -> None:
        """Visit statements that run one after another, or at once: roles side by side, and a branch
        that only some threads take.
        """
        start = self.clock
        if not at_once:
            for stmt in row:
                self.visit(stmt)
            return
        free = settled(row, self.kernel, self.uniformity)
        self.side_by_side.append(set())
        for stmt in row[:-1] if free else row:
            self.visit(stmt)
        used = self.side_by_side.pop()
        if free:
            self.extend(used & free, start)
            self.visit(row[-1])
        self.extend(used - free, start)

    def extend(self, used: Iterable[Buffer], start: int) -> None:
        for buffer in used:
            life = self.lifetimes[buffer]
            life.first, life.last = min(life.first, start), max(life.last, self.clock)


def _named(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers in the expressions of `stmt` itself."""
    for child in stmt.children():
        if not isinstance(child, Stmt):
            yield from buffers_of(child)


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
