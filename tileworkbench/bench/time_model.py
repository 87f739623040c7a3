"""How long a kernel will take on this CPU, from its lowered program and the machine's ceilings.

The program is walked for a few blocks all over the grid. Four parts:

- arithmetic: micro-kernels at the peak of their operands, and the operations of vector loops at
  the throughputs below;
- packing: vectors written by `Pack`;
- memory: every byte of a tensor once from the level that holds all tensors together, and again
  from the level that holds that tensor as often as blocks read it again;
- overhead: the call, a launch, a block, and pages of outputs that the system has to clear.

Arithmetic and packing share a core's time with waiting for memory; processors overlap the two in
part, which the square root of the sum of squares stands for. Within tens of percent this tells
what a kernel spends its time on; `bench` tells how long it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tileworkbench.bench.probes import host_isa
from tileworkbench.bench.roofline import home_level
from tileworkbench.compiler.analysis.access import depends_on
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.emit.llvm.lane_access import lane_pattern
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.viz.model.roofline import BANDWIDTH, PEAK, Machine

# Cycles of a core per vector register, at the rates of current x86 cores: two or three simple
# operations at once; a division, an elementary function of some 20 operations, longer ones.
_SIMPLE, _DIVISION, _FUNCTION, _LONG_FUNCTION = 0.3, 6.0, 6.0, 11.0
_LONG = ("tanh", "log", "log2", "log10", "log1p", "sin", "cos")
_CHEAP = ("fma", "max_nan", "min_nan", "floor", "ceil", "trunc", "nearbyint", "lookup", "lane_at")
_ROUNDING = 1.7  # to bfloat16, which integer operations do
_LOAD, _STORE, _SCATTERED = 0.4, 0.7, 1.2  # the last per lane
_PACKED, _TRANSPOSED = 2.0, 3.5  # per vector that is written
_SAMPLES = 12  # blocks that stand for a grid
_GUARDED = 1.1  # per vector of bfloat16 that is looked through before dot products
_ACCUMULATOR = 1.5  # load and store of a vector of C
_SCALAR, _ITERATION = 0.35, 0.5  # an operation; a loop's own instructions
# Microseconds of a call and of a block; nanoseconds per byte of a fresh page, which the C library
# asks the system for from so many bytes on.
_CALL_US, _WAKE_US, _BLOCK_US = 6.0, 3.0, 0.02
_FRESH_NS, _FRESH_BYTES = 0.15, 32 << 20


@dataclass(frozen=True, slots=True)
class Prediction:
    """Microseconds of a call by what they are spent on; `memory_us` has a part for each level."""

    compute_us: float
    packing_us: float
    memory_us: Mapping[str, float]
    overhead_us: float
    threads: int

    @property
    def total_us(self) -> float:
        """The whole call."""
        work, memory = self.compute_us + self.packing_us, sum(self.memory_us.values())
        return float(math.hypot(work, memory)) + self.overhead_us

    def __str__(self) -> str:
        parts = {"compute": self.compute_us, "packing": self.packing_us, **self.memory_us}
        shown = ", ".join(f"{name} {value:.3g}" for name, value in parts.items() if value)
        return f"{self.total_us:.4g} µs ({shown}, overhead {self.overhead_us:.3g})"


def refuse_unknown(lowered: Program) -> None:
    """Raise the `ArgumentError` of `predict_time`, before anything is measured for it."""
    if lowered.stage is not Stage.CPU or lowered.symbols:
        raise ArgumentError(
            f"the time of '{lowered.name}' is not known before a call",
            hint="predictions are for target 'cpu' and shapes without symbols",
        )


def predict_time(lowered: Program, machine: Machine, threads: int) -> Prediction:
    """The time of a call of a program of stage CPU with at most `threads` threads.

    Raises `ArgumentError` for symbolic shapes, whose sizes only a call knows, and for programs of
    other targets.
    """
    refuse_unknown(lowered)
    body = st.items(lowered.body)
    model = _Model(machine)
    env: dict[str, int | float | bool] = {}
    used = 1
    for stmt in body:
        if isinstance(stmt, st.Let):
            model.let(stmt, env)
        elif isinstance(stmt, st.For) and stmt.kind is st.LoopKind.BLOCKS:
            used = max(used, model.launch(stmt, env, threads))
    fresh = sum(
        size
        for param in lowered.params
        if param.output and (size := _bytes(param.value)) >= _FRESH_BYTES
    )
    overhead = _CALL_US + (_WAKE_US if used > 1 else 0) + model.block_us + fresh * _FRESH_NS / 1e3
    memory = model.memory(used)
    return Prediction(model.compute_us, model.packing_us, memory, overhead, used)


def _bytes(value: Buffer | Var) -> int:
    if not isinstance(value, Buffer):
        return 0
    return math.prod(const_int(extent) or 1 for extent in value.shape) * value.dtype.bytes


@dataclass(slots=True)
class _Block:
    """What one block does: cycles of arithmetic and packing, bytes of each tensor."""

    compute: float = 0.0
    packing: float = 0.0
    flop_ns: float = 0.0
    traffic: dict[Buffer, float] = field(default_factory=dict)


class _Model:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.isa = machine, host_isa()
        lanes = self.isa.lanes(4)
        self.cycle_ns = 4 * lanes / self.peak("float32")  # two fused multiply-adds a cycle
        self.compute_us = self.packing_us = self.block_us = 0.0
        self.traffic: dict[Buffer, float] = {}

    def peak(self, dtype: str) -> float:
        found = self.machine.find(dtype, PEAK, 1)
        return found.value if found else 1.0

    def let(self, stmt: st.Let, env: dict[str, int | float | bool]) -> None:
        value = _value(stmt.value, env)
        if value is not None:
            env[stmt.var.name] = value

    def launch(self, loop: st.For, env: dict[str, int | float | bool], threads: int) -> int:
        """Add one grid; returns the number of threads it uses."""
        blocks = int(_value(loop.stop, env) or 0)
        if not blocks:
            return 1
        block, samples = _Block(), _spread(blocks)
        for number in samples:
            self.visit(loop.body, 1 / len(samples), {**env, loop.var.name: number}, block)
        workers = min(threads, blocks)
        rounds = math.ceil(blocks / workers)
        self.compute_us += rounds * (block.compute * self.cycle_ns + block.flop_ns) / 1e3
        self.packing_us += rounds * block.packing * self.cycle_ns / 1e3
        self.block_us += rounds * _BLOCK_US
        for buffer, moved in block.traffic.items():
            self.traffic[buffer] = self.traffic.get(buffer, 0.0) + moved * blocks
        return workers

    def memory(self, threads: int) -> dict[str, float]:
        """Microseconds per level."""
        once = {buffer: min(moved, _bytes(buffer)) for buffer, moved in self.traffic.items()}
        home = home_level(sum(once.values()), threads, self.machine)
        found: dict[str, float] = {}
        for buffer, moved in self.traffic.items():
            again = home_level(once[buffer], threads, self.machine)
            for level, bytes_ in ((home, once[buffer]), (again, moved - once[buffer])):
                rate = self.machine.find(level, BANDWIDTH, threads)
                if bytes_ > 0 and rate is not None:
                    found[level] = found.get(level, 0.0) + bytes_ / rate.value / 1e3
        return found

    # One block

    def visit(
        self, stmt: st.Stmt, times: float, env: dict[str, int | float | bool], block: _Block
    ) -> None:
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self.visit(child, times, env, block)
            case st.Let(_, value):
                self.let(stmt, env)
                block.compute += times * _SCALAR * _operations(value)
            case st.For(kind=st.LoopKind.VECTORIZED):
                self.vectors(stmt, times, block)
            case st.For(var, start, stop, step, body=body):
                bounds = [_value(bound, env) for bound in (start, stop, step)]
                first, last, stride = (1 if bound is None else int(bound) for bound in bounds)
                trips = len(range(first, last, stride or 1)) if None not in bounds else 1
                env[var.name] = first + (trips - 1) // 2 * (stride or 1)
                block.compute += times * trips * _ITERATION
                if trips:
                    self.visit(body, times * trips, env, block)
            case st.If(cond, then, orelse):
                taken = _value(cond, env)
                for part, chosen in ((then, True), (orelse, False)):
                    if part is not None and (taken is None or bool(taken) == chosen):
                        share = 0.5 if taken is None else 1.0
                        self.visit(part, times * share, env, block)
            case st.While(body=body):
                self.visit(body, times, env, block)
            case tile.MicroGemm():
                self.product(stmt, times, block)
            case tile.Pack():
                self.pack(stmt, times, block)
            case st.Store() | st.Atomic():
                self.element(stmt, times, block)

    def product(self, stmt: tile.MicroGemm, times: float, block: _Block) -> None:
        lanes, dtype = (
            self.isa.lanes(4 if stmt.c.buffer.dtype.bytes < 8 else 8),
            stmt.a.buffer.dtype,
        )
        columns = -(-stmt.n // lanes) * lanes
        name = {"int16": "uint8"}.get(str(dtype), str(dtype))
        block.flop_ns += times * 2 * stmt.m * columns * stmt.k / self.peak(name)
        block.compute += times * stmt.m * columns / lanes * _ACCUMULATOR
        if dtype == "bfloat16":
            vectors = (stmt.m + columns) * stmt.k / self.isa.lanes(2)
            block.compute += times * vectors * _GUARDED

    def pack(self, stmt: tile.Pack, times: float, block: _Block) -> None:
        elements = stmt.rows * stmt.cols
        vectors = elements / self.isa.lanes(stmt.dst.buffer.dtype.bytes)
        straight = stmt.width == 1 or const_int(stmt.row_stride) == 1
        block.packing += times * vectors * (_PACKED if straight else _TRANSPOSED)
        _move(block, stmt.src.buffer, times * elements * stmt.src.buffer.dtype.bytes)

    def element(self, stmt: st.Store | st.Atomic, times: float, block: _Block) -> None:
        """A statement on one element, or on the lanes of a `Ramp`."""
        lanes = max((e.lanes for e in walk(stmt) if isinstance(e, ir.Ramp)), default=1)
        registers = -(-lanes * 32 // self.isa.vector_bits)
        block.compute += times * _operations(stmt.value) * registers * _SCALAR
        for buffer in _touched(stmt):
            _move(block, buffer, times * lanes * buffer.dtype.bytes)

    def vectors(self, loop: st.For, times: float, block: _Block) -> None:
        lanes = const_int(loop.stop) or 1
        varying, seen = {loop.var}, set[Expr]()
        for stmt in loop.body.stmts if isinstance(loop.body, st.Seq) else (loop.body,):
            if isinstance(stmt, st.Let) and depends_on(stmt.value, frozenset(varying)):
                varying.add(stmt.var)
            for found in walk(stmt):
                if isinstance(found, Expr) and found not in seen:
                    seen.add(found)
                    if depends_on(found, frozenset(varying)) and not _is_pattern(found, loop.var):
                        block.compute += times * self.operation(found, loop.var, lanes)
            if isinstance(stmt, st.Store):
                block.compute += times * self.access(
                    stmt.buffer, stmt.indices, loop.var, lanes, _STORE
                )
            for buffer in _touched(stmt, frozenset(varying)):
                _move(block, buffer, times * lanes * buffer.dtype.bytes)

    def operation(self, found: Expr, lane: Var, lanes: int) -> float:
        registers = max(1.0, lanes * max(found.dtype.bits, 32) / self.isa.vector_bits)
        match found:
            case ir.Binary("div") | ir.Call("sqrt" | "rsqrt"):
                return _DIVISION * registers
            case ir.Call(name):
                cost = _LONG_FUNCTION if name in _LONG else _FUNCTION
                return registers * (_SIMPLE if name in _CHEAP else cost)
            case ir.Cast(_, dtype) if dtype == "bfloat16":
                return _ROUNDING * registers
            case ir.Load(buffer, indices):
                return self.access(buffer, indices, lane, lanes, _LOAD)
            case ir.Binary("add" | "sub", a, b) if _is_product(a) or _is_product(b):
                return 0.0  # fused with the product
            case ir.Binary() | ir.Unary() | ir.Select() | ir.Cast():
                return _SIMPLE * registers
        return 0.0

    def access(
        self, buffer: Buffer, indices: tuple[Expr, ...], lane: Var, lanes: int, cost: float
    ) -> float:
        if not indices or lane_pattern(indices[-1], lane, lanes) is not None:
            return cost * max(1.0, lanes * buffer.dtype.bits / self.isa.vector_bits)
        return _SCATTERED * lanes if depends_on(indices[-1], frozenset({lane})) else cost


def _spread(blocks: int) -> tuple[int, ...]:
    """Some blocks of a grid, with no period that a row of blocks could have."""
    if blocks <= _SAMPLES:
        return tuple(range(blocks))
    golden = (math.sqrt(5) - 1) / 2
    return tuple(int(blocks * (golden * at % 1)) for at in range(1, _SAMPLES + 1))


def _is_pattern(found: Expr, lane: Var) -> bool:
    """Whether an expression is the same vector in every iteration, or part of an address."""
    if found.dtype == "int32" and isinstance(found, ir.Binary) and found.op in ("add", "mul"):
        return True
    return not any(
        isinstance(x, ir.Load) or (isinstance(x, Var) and x is not lane) for x in walk(found)
    )


def _is_product(value: Expr) -> bool:
    return value.dtype.is_float and isinstance(value, ir.Binary) and value.op == "mul"


def _move(block: _Block, buffer: Buffer, bytes_: float) -> None:
    if buffer.scope == "global":
        block.traffic[buffer] = block.traffic.get(buffer, 0.0) + bytes_


def _touched(stmt: st.Stmt, varying: frozenset[Var] | None = None) -> Iterator[Buffer]:
    """The buffers of the accesses of a statement, only those that move with `varying` if given."""
    seen: set[Expr] = set()
    for found in walk(stmt):
        if isinstance(found, ir.Load) and found not in seen:
            seen.add(found)
            if varying is None or depends_on(found, varying):
                yield found.buffer
    if isinstance(stmt, st.Store | st.Atomic):
        yield stmt.buffer


def _operations(value: Expr) -> int:
    return sum(isinstance(found, ir.Binary | ir.Call | ir.Select) for found in walk(value)) + 1


def _value(value: Expr, env: Mapping[str, int | float | bool]) -> int | float | bool | None:
    """The value of an expression, None where it depends on memory or on unknown variables."""
    try:
        return evaluate(value, env)
    except (KeyError, ValueError, ZeroDivisionError, OverflowError):
        return None
