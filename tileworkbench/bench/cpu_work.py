"""What the blocks of a lowered CPU program do, counted statement by statement for `time_model`.

Each statement belongs to a site of the user's text, so that time can be told by line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field

from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.analysis.access import depends_on
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.emit.llvm.lane_access import lane_pattern
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk

Env = dict[str, int | float | bool]

# Cycles of a core per vector register, at the rates of current x86 cores: two or three simple
# operations at once; a division, an elementary function of some 20 operations, longer ones.
_SIMPLE, _DIVISION, _FUNCTION, _LONG_FUNCTION = 0.3, 6.0, 6.0, 11.0
_ROOTS = ("sqrt", "rsqrt")
_LONG = ("tanh", "log", "log2", "log10", "log1p", "sin", "cos")
_CHEAP = ("fma", "max_nan", "min_nan", "floor", "ceil", "trunc", "nearbyint", "lookup", "lane_at")
_ROUNDING = 1.7  # to bfloat16, which integer operations do
_LOAD, _STORE, _SCATTERED = 0.4, 0.7, 1.2  # the last per lane
_PACKED, _TRANSPOSED = 2.0, 3.5  # per vector that is written
_SAMPLES = 12  # blocks that stand for a grid
_GUARDED = 1.1  # per vector of bfloat16 that is looked through before dot products
_ACCUMULATOR = 1.5  # load and store of a vector of C
_SCALAR, _ITERATION = 0.35, 0.5  # an operation; a loop's own instructions
# Cycles until the next sum can use this one.
_LATENCY = 4.0
_SCALAR_FUNCTION = 20.0  # of one element


@dataclass(slots=True)
class Spent:
    """What one site spends on one kind of work: cycles of a core, those of them that other code
    would spare, and how many operations it does.
    """

    cycles: float = 0.0
    spare: float = 0.0
    count: float = 0.0


@dataclass(slots=True)
class BlockWork:
    """What one block does.

    `spent` is by site and kind: ``arithmetic``, ``division``, ``scalar``, ``scattered``, ``chain``,
    ``loop``, ``packing``, or the name of a function. `products` are the operations of micro-kernels
    by site and element type, `moved` the bytes of each tensor by site and tensor; `accessed` are
    the bytes of all loads and stores of a site, tiles included.
    """

    spent: dict[tuple[int, str], Spent] = field(default_factory=dict)
    products: dict[tuple[int, str], float] = field(default_factory=dict)
    moved: dict[tuple[int, Buffer], float] = field(default_factory=dict)
    accessed: dict[int, float] = field(default_factory=dict)

    def add(
        self, site: int, kind: str, cycles: float, spare: float = 0.0, count: float = 0.0
    ) -> None:
        """More of a kind of work."""
        spent = self.spent.setdefault((site, kind), Spent())
        spent.cycles += cycles
        spent.spare += spare
        spent.count += count

    def move(self, site: int, buffer: Buffer, bytes_: float) -> None:
        """More bytes of a tensor or tile."""
        self.access(site, bytes_)
        if buffer.scope == "global":
            self.moved[site, buffer] = self.moved.get((site, buffer), 0.0) + bytes_

    def access(self, site: int, bytes_: float) -> None:
        """More bytes that are loaded or stored."""
        self.accessed[site] = self.accessed.get(site, 0.0) + bytes_

    def mean(self, blocks: int) -> BlockWork:
        """The work of one block, where this is that of several."""
        return BlockWork(
            {
                key: Spent(spent.cycles / blocks, spent.spare / blocks, spent.count / blocks)
                for key, spent in self.spent.items()
            },
            {key: operations / blocks for key, operations in self.products.items()},
            {key: bytes_ / blocks for key, bytes_ in self.moved.items()},
            {site: bytes_ / blocks for site, bytes_ in self.accessed.items()},
        )


@dataclass(frozen=True, slots=True)
class GridWork:
    """A launch: how many blocks, and the work of one of them on average."""

    site: int
    blocks: int
    block: BlockWork


def grids(lowered: Program) -> Iterator[GridWork]:
    """The launches of a program of stage CPU without symbols; a few blocks stand for all."""
    env: Env = {}
    for stmt in st.items(lowered.body):
        if isinstance(stmt, st.Let):
            Walker().let(stmt, env)
        elif isinstance(stmt, st.For) and stmt.kind is st.LoopKind.BLOCKS:
            blocks = int(value_of(stmt.stop, env) or 0)
            walker, samples = Walker(), spread(blocks)
            for number in samples:
                inner = {**env, stmt.var.name: number}
                walker.visit(stmt.body, 1.0, inner, stmt.site)
            if blocks:
                yield GridWork(stmt.site, blocks, walker.block.mean(len(samples)))


class Walker:
    """Walks the body of a block; unknown conditions are taken half the time."""

    def __init__(self) -> None:
        self.isa = host_isa()
        self.block = BlockWork()
        self.loops: list[Var] = []  # serial ones around the statement

    def let(self, stmt: st.Let, env: Env) -> None:
        """Remember the value of a name, where it is known."""
        value = value_of(stmt.value, env)
        if value is not None:
            env[stmt.var.name] = value

    def visit(self, stmt: st.Stmt, times: float, env: Env, site: int = 0) -> None:
        """Count `stmt`, executed `times` times, part of what the user wrote at `site`."""
        site = getattr(stmt, "site", 0) or site
        block = self.block
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self.visit(child, times, env, site)
            case st.Let(_, value):
                self.let(stmt, env)
                block.add(site, "arithmetic", times * _SCALAR * _operations(value))
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

    def loop(self, loop: st.For, times: float, env: Env, site: int) -> None:
        """A loop whose iterations follow each other; the middle one stands for all."""
        bounds = [value_of(bound, env) for bound in (loop.start, loop.stop, loop.step)]
        first, last, stride = (1 if bound is None else int(bound) for bound in bounds)
        trips = len(range(first, last, stride or 1)) if None not in bounds else 1
        env[loop.var.name] = first + (trips - 1) // 2 * (stride or 1)
        self.block.add(site, "loop", times * trips * _ITERATION)
        if trips:
            self.loops.append(loop.var)
            self.visit(loop.body, times * trips, env, site)
            self.loops.pop()

    def product(self, stmt: tile.MicroGemm, times: float, site: int) -> None:
        """A micro-kernel, at the peak of its operands."""
        block, dtype = self.block, stmt.a.buffer.dtype
        lanes = self.isa.lanes(4 if stmt.c.buffer.dtype.bytes < 8 else 8)
        columns = -(-stmt.n // lanes) * lanes
        name = {"int16": "uint8"}.get(str(dtype), str(dtype))
        operations = times * 2 * stmt.m * columns * stmt.k
        block.products[site, name] = block.products.get((site, name), 0.0) + operations
        block.add(site, "arithmetic", times * stmt.m * columns / lanes * _ACCUMULATOR)
        block.access(site, times * (stmt.m + columns) * stmt.k * dtype.bytes)
        block.access(site, times * 2 * stmt.m * columns * stmt.c.buffer.dtype.bytes)
        if dtype == "bfloat16":
            vectors = (stmt.m + columns) * stmt.k / self.isa.lanes(2)
            block.add(site, "arithmetic", times * vectors * _GUARDED)

    def pack(self, stmt: tile.Pack, times: float, site: int) -> None:
        """A panel that is written for a micro-kernel."""
        elements = stmt.rows * stmt.cols
        vectors = elements / self.isa.lanes(stmt.dst.buffer.dtype.bytes)
        straight = stmt.width == 1 or const_int(stmt.row_stride) == 1
        self.block.add(site, "packing", times * vectors * (_PACKED if straight else _TRANSPOSED))
        bytes_ = times * elements * stmt.src.buffer.dtype.bytes
        self.block.move(site, stmt.src.buffer, bytes_)
        self.block.access(site, bytes_)  # the panel

    def element(self, stmt: st.Store | st.Atomic, times: float, site: int) -> None:
        """A statement on one element, or on the lanes of a `Ramp`."""
        lanes = max((e.lanes for e in walk(stmt) if isinstance(e, ir.Ramp)), default=1)
        registers = -(-lanes * 32 // self.isa.vector_bits)
        operations = _operations(stmt.value)
        cycles = times * operations * registers * _SCALAR
        one = lanes == 1 and bool(self.loops) and stmt.buffer.dtype.is_float
        if one and self.accumulates(stmt):
            cycles = times * max(operations * _SCALAR, _LATENCY)
            self.block.add(site, "chain", cycles, _saved(cycles, self.isa.lanes(4)), times)
        elif one and operations > 1:
            self.block.add(site, "scalar", cycles, _saved(cycles, self.isa.lanes(4)), times)
        else:
            self.block.add(site, "arithmetic", cycles)
        for node in set(walk(stmt.value)) if one else ():
            name = _function(node)
            if name:
                self.block.add(site, name, times * _SCALAR_FUNCTION, 0.0, times)
        for buffer in _touched(stmt):
            self.block.move(site, buffer, times * lanes * buffer.dtype.bytes)

    def accumulates(self, stmt: st.Store | st.Atomic) -> bool:
        """Whether each iteration of the innermost loop adds to what the one before it wrote."""
        innermost = frozenset(self.loops[-1:])
        if any(depends_on(index, innermost) for index in stmt.indices):
            return False
        return any(
            isinstance(node, ir.Load)
            and node.buffer is stmt.buffer
            and node.indices == stmt.indices
            for node in walk(stmt.value)
        )

    def vectors(self, loop: st.For, times: float, site: int) -> None:
        """A loop that is executed as one vector."""
        lanes = const_int(loop.stop) or 1
        varying, seen = {loop.var}, set[Expr]()
        for stmt in loop.body.stmts if isinstance(loop.body, st.Seq) else (loop.body,):
            at = getattr(stmt, "site", 0) or site
            if isinstance(stmt, st.Let) and depends_on(stmt.value, frozenset(varying)):
                varying.add(stmt.var)
            for node in walk(stmt):
                if isinstance(node, Expr) and node not in seen:
                    seen.add(node)
                    moves = depends_on(node, frozenset(varying))
                    if moves and not _is_pattern(node, loop.var):
                        self.operation(node, loop.var, frozenset(varying), lanes, times, at)
            if isinstance(stmt, st.Store):
                self.access(stmt.buffer, stmt.indices, loop.var, lanes, times * _STORE, times, at)
            for buffer in _touched(stmt, frozenset(varying)):
                self.block.move(at, buffer, times * lanes * buffer.dtype.bytes)

    def operation(
        self, node: Expr, lane: Var, varying: frozenset[Var], lanes: int, times: float, site: int
    ) -> None:
        """One operation on all lanes."""
        block = self.block
        registers = times * max(1.0, lanes * max(node.dtype.bits, 32) / self.isa.vector_bits)
        name = _function(node)
        match node:
            case ir.Binary("div", _, divisor):
                cycles = _DIVISION * registers
                spare = 0.0 if depends_on(divisor, varying) else cycles - _SIMPLE * registers
                block.add(site, "division", cycles, spare, times * lanes)
            case ir.Call() if name:
                cost = _DIVISION if name in _ROOTS else _FUNCTION
                cost = _LONG_FUNCTION if name in _LONG else cost
                block.add(site, name, cost * registers, 0.0, times * lanes)
            case ir.Cast(_, dtype) if dtype == "bfloat16":
                block.add(site, "arithmetic", _ROUNDING * registers)
            case ir.Load(buffer, indices):
                self.access(buffer, indices, lane, lanes, times * _LOAD, times, site)
            case ir.Binary("add" | "sub", a, b) if _is_product(a) or _is_product(b):
                pass  # fused with the product
            case ir.Binary() | ir.Unary() | ir.Select() | ir.Cast() | ir.Call():
                block.add(site, "arithmetic", _SIMPLE * registers)

    def access(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        lane: Var,
        lanes: int,
        cycles: float,
        times: float,
        site: int,
    ) -> None:
        """A load or store of all lanes; `cycles` are those of a register."""
        whole = cycles * max(1.0, lanes * buffer.dtype.bits / self.isa.vector_bits)
        if not indices or lane_pattern(indices[-1], lane, lanes) is not None:
            self.block.add(site, "arithmetic", whole)
        elif depends_on(indices[-1], frozenset({lane})):
            spent = times * _SCATTERED * lanes
            self.block.add(site, "scattered", spent, max(spent - whole, 0.0), times * lanes)
        else:
            self.block.add(site, "arithmetic", cycles)


def value_of(value: Expr, env: Mapping[str, int | float | bool]) -> int | float | bool | None:
    """The value of an expression, None where it depends on memory or on unknown variables."""
    try:
        return evaluate(value, env)
    except (KeyError, ValueError, ZeroDivisionError, OverflowError):
        return None


def spread(blocks: int) -> tuple[int, ...]:
    """Some blocks of a grid, with no period that a row of blocks could have."""
    if blocks <= _SAMPLES:
        return tuple(range(blocks))
    golden = (math.sqrt(5) - 1) / 2
    return tuple(int(blocks * (golden * at % 1)) for at in range(1, _SAMPLES + 1))


def _saved(cycles: float, lanes: int) -> float:
    """What vectors of that many lanes would spare."""
    return cycles * (1 - 1 / lanes)


def _function(node: object) -> str:
    """The name of a function that takes many operations; empty for anything else."""
    return node.name if isinstance(node, ir.Call) and node.name not in _CHEAP else ""


def _is_pattern(node: Expr, lane: Var) -> bool:
    """Whether an expression is the same vector in every iteration, or part of an address."""
    if node.dtype == "int32" and isinstance(node, ir.Binary) and node.op in ("add", "mul"):
        return True
    return not any(
        isinstance(x, ir.Load) or (isinstance(x, Var) and x is not lane) for x in walk(node)
    )


def _is_product(value: Expr) -> bool:
    return value.dtype.is_float and isinstance(value, ir.Binary) and value.op == "mul"


def _touched(stmt: st.Stmt, varying: frozenset[Var] | None = None) -> Iterator[Buffer]:
    """The buffers of the accesses of a statement, only those that move with `varying` if given."""
    seen: set[Expr] = set()
    for node in walk(stmt):
        if isinstance(node, ir.Load) and node not in seen:
            seen.add(node)
            if varying is None or depends_on(node, varying):
                yield node.buffer
    if isinstance(stmt, st.Store | st.Atomic):
        yield stmt.buffer


def _operations(value: Expr) -> int:
    return sum(isinstance(node, ir.Binary | ir.Call | ir.Select) for node in walk(value)) + 1
