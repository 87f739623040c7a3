"""What the blocks of a lowered CPU program do, counted statement by statement for `time_model`.

Each statement belongs to a site of the user's text, so that time can be told by line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tileworkbench.bench.cpu_block import BlockWork, Env, GridWork
from tileworkbench.bench.cpu_ports import Piece, Ports, division_spare, overlap, scalar_ns, waits
from tileworkbench.bench.cpu_reuse import Reused
from tileworkbench.bench.cpu_terms import (
    Element,
    carrier,
    covers,
    function,
    in_registers,
    is_innermost,
    is_pattern,
    is_power_of_two,
    is_product,
    loaded_elements,
    moving_tiles,
    of_tile,
    operations,
    touched,
    value_of,
)
from tileworkbench.bench.operation_rates import (
    CHAIN,
    CYCLE,
    DIVISION,
    FORWARD,
    INTEGER,
    LOAD,
    SIMPLE,
    STORE,
    OperationRates,
    assumed_rates,
)
from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.analysis.access import depends_on
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.emit.llvm.lane_access import lane_pattern
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk

# What follows is in units of the time in which a core ends two fused multiply-adds of vectors.
# Per vector that is written: a load and a store; or four shuffles, which transpose 16 vectors.
_PACKED, _TRANSPOSED = 1.2, 2.0
_GUARDED = 1.1  # per vector of bfloat16 that is looked through before dot products
_ACCUMULATOR = 1.5  # load and store of a vector of C
_ROUNDING = 1.7  # of a vector to bfloat16, which integer operations do
# In cycles: a lane that is loaded or stored alone, the end of a loop that is not foreseen, an
# elementary function of one element, an update that no other core may interrupt.
_SCATTERED, _LEFT, _SCALAR_FUNCTION, _ATOMIC = 2.4, 2.0, 40.0, 20.0
# What an operation on one element takes of that on a vector, functions above all; a logarithm,
# which goes to integer registers and back, takes nearly as long.
_ONE, _ONE_LOGARITHM = 0.5, 0.9
_FORESEEN = 8  # iterations of a loop whose end is foreseen
_SAMPLES = 12  # blocks that stand for a grid


def grids(lowered: Program, rates: OperationRates | None = None) -> Iterator[GridWork]:
    """The launches of a program of stage CPU without symbols; a few blocks stand for all.

    Without `rates` a fused multiply-add takes a nanosecond.
    """
    env: Env = {}
    rates = rates or assumed_rates(1.0)
    for stmt in st.items(lowered.body):
        if isinstance(stmt, st.Let):
            Walker(rates).let(stmt, env)
        elif isinstance(stmt, st.For) and stmt.kind is st.LoopKind.BLOCKS:
            blocks = int(value_of(stmt.stop, env) or 0)
            walker, samples = Walker(rates, moving_tiles(stmt)), spread(blocks)
            for number in samples:
                inner = {**env, stmt.var.name: number}
                walker.whole(stmt.body, inner, stmt.site)
            if blocks:
                block = walker.block.mean(len(samples))
                caches = processor.cache_sizes()
                reused = {float(size): Reused(stmt, env, size) for size in (caches.l1, caches.l2)}
                block.keep(*(each.tensor_misses() for each in reused.values()))
                yield GridWork(stmt.site, blocks, block, stmt, dict(env), reused)


class Walker:
    """Walks the body of a block; unknown conditions are taken half the time."""

    def __init__(self, rates: OperationRates, moving: frozenset[Buffer] = frozenset()) -> None:
        self.isa, self.rates, self.moving = host_isa(), rates, moving
        self.unit_ns = 2 * rates.of(LOAD)
        self.block = BlockWork()
        self.pieces: list[Piece] = []  # not in `block` yet
        self.loops: list[Var] = []  # serial ones around the statement
        # Of the loops around the statement, the longest that an iteration waits for the one before.
        self.waits: list[tuple[float, int]] = []

    def let(self, stmt: st.Let, env: Env) -> None:
        """Remember the value of a name, where it is known."""
        value = value_of(stmt.value, env)
        if value is not None:
            env[stmt.var.name] = value

    def whole(self, body: st.Stmt, env: Env, site: int) -> None:
        """Count the body of one block."""
        self.visit(body, 1.0, env, site)
        overlap(self.pieces, 1.0)  # others of its kind follow
        for piece in self.pieces:
            for use in piece.ports.shares():
                times = piece.times * piece.scale
                spent = times * use.time_ns, times * use.spare_ns, piece.times * use.count
                self.block.add(use.site, use.kind, *spent)
        self.pieces.clear()

    @property
    def spent_ns(self) -> float:
        """Nanoseconds of all that was counted."""
        pieces = sum(each.scale * each.times * each.ports.time_ns for each in self.pieces)
        return self.block.total_ns + pieces

    def visit(self, stmt: st.Stmt, times: float, env: Env, site: int = 0) -> None:
        """Count `stmt`, executed `times` times, part of what the user wrote at `site`."""
        site = getattr(stmt, "site", 0) or site
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self.visit(child, times, env, site)
            case st.Let(_, value):
                self.let(stmt, env)
                self.block.add(site, "arithmetic", times * self.scalars(value))
            case st.For(kind=st.LoopKind.VECTORIZED):
                self.vectors(stmt, times, site)
            case st.For():
                self.loop(stmt, times, env, site)
            case st.If(cond, then, orelse):
                taken = value_of(cond, env)
                for part, chosen in ((then, True), (orelse, False)):
                    if part is not None and (taken is None or bool(taken) == chosen):
                        share = 0.5 if taken is None else 1.0
                        self.visit(part, times * share, env, site)
            case st.While(body=body):
                self.visit(body, times, env, site)
            case tile.MicroGemm():
                self.product(stmt, times, site)
            case tile.Pack():
                self.pack(stmt, times, site)
            case st.Store() | st.Atomic():
                self.element(stmt, times, site)

    def scalars(self, value: Expr) -> float:
        """Nanoseconds of an expression of single elements; addresses are counted with loops."""
        return scalar_ns(self.rates, operations(value))

    def loop(self, loop: st.For, times: float, env: Env, site: int) -> None:
        """A loop whose iterations follow each other; the middle one stands for all."""
        bounds = [value_of(bound, env) for bound in (loop.start, loop.stop, loop.step)]
        first, last, stride = (1 if bound is None else int(bound) for bound in bounds)
        trips = len(range(first, last, stride or 1)) if None not in bounds else 1
        env[loop.var.name] = first + (trips - 1) // 2 * (stride or 1)
        cycle_ns = self.rates.of(CYCLE)
        if not trips:
            return
        left = _LEFT if trips > _FORESEEN else 0.0
        self.block.add(site, "loop", times * left * cycle_ns)
        if not is_innermost(loop):
            self.block.add(site, "loop", times * trips * cycle_ns)
        before, first = self.spent_ns, len(self.pieces)
        self.loops.append(loop.var)
        self.waits.append((0.0, site))
        self.visit(loop.body, times * trips, env, site)
        self.loops.pop()
        wait_ns, waiting = self.waits.pop()
        overlap(self.pieces[first:], times * trips)
        excess = times * (trips - 1) * wait_ns - (self.spent_ns - before)
        if excess > 0:
            chain = waits(self.rates, waiting, wait_ns)
            self.pieces.append(Piece(chain, times * trips, excess / (times * trips * wait_ns)))

    def product(self, stmt: tile.MicroGemm, times: float, site: int) -> None:
        """A micro-kernel, at the peak of its operands."""
        block, dtype = self.block, stmt.a.buffer.dtype
        lanes = self.isa.lanes(4 if stmt.c.buffer.dtype.bytes < 8 else 8)
        columns = -(-stmt.n // lanes) * lanes
        name = {"int16": "uint8"}.get(str(dtype), str(dtype))
        operations = times * 2 * stmt.m * columns * stmt.k
        block.products[site, name] = block.products.get((site, name), 0.0) + operations
        sums = stmt.m * columns / lanes * _ACCUMULATOR
        block.add(site, "arithmetic", times * sums * self.unit_ns)
        block.move(site, stmt.a.buffer, times * stmt.m * stmt.k * dtype.bytes)
        block.access(site, times * columns * stmt.k * dtype.bytes)
        block.access(site, times * 2 * stmt.m * columns * stmt.c.buffer.dtype.bytes)
        if dtype == "bfloat16":
            vectors = (stmt.m + columns) * stmt.k / self.isa.lanes(2)
            block.add(site, "arithmetic", times * vectors * _GUARDED * self.unit_ns)

    def pack(self, stmt: tile.Pack, times: float, site: int) -> None:
        """A panel that is written for a micro-kernel."""
        elements = stmt.rows * stmt.cols
        vectors = elements / self.isa.lanes(stmt.dst.buffer.dtype.bytes)
        straight = stmt.width == 1 or const_int(stmt.row_stride) == 1
        each_ns = (_PACKED if straight else _TRANSPOSED) * self.unit_ns
        self.block.add(site, "packing", times * vectors * each_ns)
        bytes_ = times * elements * stmt.src.buffer.dtype.bytes
        self.block.move(site, stmt.src.buffer, bytes_)
        self.block.access(site, bytes_)  # the panel

    def element(self, stmt: st.Store | st.Atomic, times: float, site: int) -> None:
        """A statement on one element, or on the lanes of a `Ramp`."""
        lanes = max((e.lanes for e in walk(stmt) if isinstance(e, ir.Ramp)), default=1)
        if lanes > 1:
            self.ramp(stmt, lanes, times, site)
        else:
            self.one(stmt, times, site)
        for buffer in touched(stmt):
            self.block.move(site, buffer, times * lanes * buffer.dtype.bytes)
        if (stmt.buffer, stmt.indices) not in loaded_elements(stmt):
            self.block.write(site, stmt.buffer, times * lanes * stmt.buffer.dtype.bytes)

    def ramp(self, stmt: st.Store | st.Atomic, lanes: int, times: float, site: int) -> None:
        """A statement on the lanes of a `Ramp`; a tile that it covers whole is in registers."""
        ports = Ports(self.rates)
        registers = max(1.0, lanes * max(stmt.buffer.dtype.bits, 32) / self.isa.vector_bits)
        for node in dict.fromkeys(walk(stmt.value)):
            if isinstance(node, ir.Load):
                if not in_registers(node.buffer, lanes):
                    ports.add(site, LOAD, registers)
            elif isinstance(node, ir.Call) and node.name.startswith("lanes_"):
                # Halves are moved and added to halves; other rows are computed meanwhile.
                ports.add(site, SIMPLE, 2 * math.log2(lanes))
            elif isinstance(node, Expr) and node.dtype.is_float and not isinstance(node, ir.Const):
                self.count(ports, node, registers, lanes, site, frozenset())
        if not in_registers(stmt.buffer, lanes):
            ports.add(site, STORE, registers if covers(stmt) else 1.0)
        self.spend(ports, times)
        self.wait(CHAIN if in_registers(stmt.buffer, lanes) else FORWARD, stmt, site)

    def one(self, stmt: st.Store | st.Atomic, times: float, site: int) -> None:
        """A statement on one element."""
        inside = bool(self.loops) and stmt.buffer.dtype.is_float
        time_ns = times * (self.scalars(stmt.value) + scalar_ns(self.rates, 1))
        atomic = isinstance(stmt, st.Atomic)
        if atomic:
            time_ns += times * _ATOMIC * self.rates.of(CYCLE)
        kind = "scalar" if inside and (atomic or operations(stmt.value) > 1) else "arithmetic"
        spare = _saved(time_ns, self.isa.lanes(4)) if kind == "scalar" else 0.0
        if inside:
            self.wait(CHAIN if in_registers(stmt.buffer, 1) else FORWARD, stmt, site)
        self.block.add(site, kind, time_ns, spare, times)
        for node in dict.fromkeys(walk(stmt.value)):
            name = function(node)
            if name and not name.startswith("lanes_"):
                cycles = _SCALAR_FUNCTION * self.rates.of(CYCLE)
                self.block.add(site, name, times * cycles, 0.0, times)

    def wait(self, operation: str, stmt: st.Store | st.Atomic, site: int) -> None:
        """Iterations of a loop begin with what the one before has stored: they wait for it."""
        depth = carrier(stmt, self.loops)
        if depth is not None:
            self.waits[depth] = max(self.waits[depth], (self.rates.of(operation), site))

    def stays(self, buffer: Buffer, lanes: int) -> bool:
        """Whether the compiler keeps a tile of one vector in a register."""
        return in_registers(buffer, lanes) and buffer not in self.moving

    def vectors(self, loop: st.For, times: float, site: int) -> None:
        """A loop that is executed as one vector."""
        lanes = const_int(loop.stop) or 1
        varying, seen = {loop.var}, set[Expr]()
        ports, written, loaded = Ports(self.rates), set[Element](), set[Element]()
        for stmt in loop.body.stmts if isinstance(loop.body, st.Seq) else (loop.body,):
            at = getattr(stmt, "site", 0) or site
            if isinstance(stmt, st.Let) and depends_on(stmt.value, frozenset(varying)):
                varying.add(stmt.var)
            for node in walk(stmt):
                if isinstance(node, Expr) and node not in seen:
                    seen.add(node)
                    stored = isinstance(node, ir.Load) and (node.buffer, node.indices) in written
                    if isinstance(node, ir.Load) and not stored:
                        loaded.add((node.buffer, node.indices))
                    moves = depends_on(node, frozenset(varying)) and not stored
                    if moves and not is_pattern(node, loop.var):
                        self.operation(ports, node, loop.var, frozenset(varying), lanes, at)
                    elif not moves and of_tile(node):
                        # Each vector computes it again, on one element.
                        one = _ONE_LOGARITHM if function(node) in ("log", "log2") else _ONE
                        self.count(ports, node, one, lanes, at, frozenset(varying))
            if isinstance(stmt, st.Store):
                self.access(ports, STORE, stmt.buffer, stmt.indices, loop.var, lanes, at)
                written.add((stmt.buffer, stmt.indices))
                is_first = (stmt.buffer, stmt.indices) not in loaded
                if is_first and depends_on(stmt, frozenset(varying)):
                    self.block.write(at, stmt.buffer, times * lanes * stmt.buffer.dtype.bytes)
                self.wait(CHAIN if self.stays(stmt.buffer, lanes) else FORWARD, stmt, at)
            for buffer in touched(stmt, frozenset(varying)):
                self.block.move(at, buffer, times * lanes * buffer.dtype.bytes)
        self.spend(ports, times)

    def spend(self, ports: Ports, times: float) -> None:
        """The time of a piece of code that is executed `times` times."""
        self.pieces.append(Piece(ports, times))

    def operation(
        self, ports: Ports, node: Expr, lane: Var, varying: frozenset[Var], lanes: int, site: int
    ) -> None:
        """One operation on all lanes."""
        if isinstance(node, ir.Load):
            self.access(ports, LOAD, node.buffer, node.indices, lane, lanes, site)
            return
        registers = max(1.0, lanes * max(node.dtype.bits, 32) / self.isa.vector_bits)
        self.count(ports, node, registers, lanes, site, varying)

    def count(
        self,
        ports: Ports,
        node: Expr,
        registers: float,
        lanes: int,
        site: int,
        varying: frozenset[Var],
    ) -> None:
        """Arithmetic on so many registers."""
        name = function(node)
        match node:
            case ir.Binary("div", _, divisor) if not is_power_of_two(divisor):
                spare = 0.0 if depends_on(divisor, varying) else division_spare(self.rates)
                ports.add(site, DIVISION, registers, "division", spare, lanes)
            case ir.Call() if name:
                ports.add(site, name, registers, name, 0.0, lanes)
            case ir.Cast(_, dtype) if dtype == "bfloat16":
                ports.add(site, SIMPLE, 2 * _ROUNDING * registers)
            case ir.Binary("add" | "sub", a, b) if is_product(a) or is_product(b):
                pass  # fused with the product
            case ir.Binary() | ir.Unary() | ir.Select() | ir.Cast() | ir.Call():
                ports.add(site, SIMPLE if node.dtype.is_float else INTEGER, registers)

    def access(
        self,
        ports: Ports,
        operation: str,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        lane: Var,
        lanes: int,
        site: int,
    ) -> None:
        """A load or store of all lanes."""
        if self.stays(buffer, lanes):
            return
        registers = max(1.0, lanes * buffer.dtype.bits / self.isa.vector_bits)
        pattern = lane_pattern(indices[-1], lane, lanes) if indices else None
        if not indices or not depends_on(indices[-1], frozenset({lane})):
            ports.add(site, operation, 1.0)
        elif pattern is None or (
            pattern.stride > 1 and (operation == STORE or not pattern.is_dense(int(lanes)))
        ):
            alone = lanes * _SCATTERED * self.rates.of(CYCLE)
            together = registers * self.rates.of(operation)
            ports.lanes(site, lanes, _SCATTERED, max(0.0, 1 - together / alone))
        else:
            ports.add(site, operation, registers * pattern.stride)
            if pattern.stride > 1:
                ports.add(site, SIMPLE, registers * pattern.stride)  # picks every so many


def spread(blocks: int) -> tuple[int, ...]:
    """Some blocks of a grid, with no period that a row of blocks could have."""
    if blocks <= _SAMPLES:
        return tuple(range(blocks))
    golden = (math.sqrt(5) - 1) / 2
    return tuple(int(blocks * (golden * at % 1)) for at in range(1, _SAMPLES + 1))


def _saved(time_ns: float, lanes: int) -> float:
    """What vectors of that many lanes would spare."""
    return time_ns * (1 - 1 / lanes)
