"""The loops that tell what vector operations cost a core of this machine (`operation_rates.py`).

Functions are written as the emitter of kernels writes them, on vectors that do not depend on each
other, so that throughput counts; steps of chains wait for each other, so that latency counts. Which
ports do an operation is told by what goes on beside it: where sums take longer, ports for sums do.

All are measured once (two to three seconds) and kept with the machine for all processes, the least
of every sample, and how much longer they take in the median of some sweeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tileworkbench.bench.measured_once import MeasuredOnce
from tileworkbench.bench.operation_rates import (
    ACCESS,
    ACCUMULATED,
    AFTER,
    CHAIN,
    CHAIN_LENGTH,
    CHAINS,
    COMPARISON,
    CONVERSION,
    CYCLE,
    DIVISION,
    EXTREMUM,
    FORWARD,
    FUNCTIONS,
    GATHER,
    INTEGER,
    INTEGER_PRODUCT,
    LARGER,
    LOAD,
    MIXED,
    MULTIPLIED,
    OPERATIONS,
    PERMUTATION,
    SHIFT,
    SHUFFLE,
    SIMPLE,
    STORE,
    USUAL,
    WIDENING,
    OperationRates,
)
from tileworkbench.bench.probes import Probe, ProbeRunner, chain_probe, host_isa, module_text
from tileworkbench.compiler.emit.llvm.extrema import emit_extremum
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.emit.llvm.vector_math import emit_vector_math, write_vector_math

_SCHEMA = 13
_INDEPENDENT = 8  # vectors of an iteration
_SUMS = 12  # of them where two operations wait for each other
_SWEEPS, _RUNS, _RUN_NS = 12, 5, 300_000


def operation_rates() -> OperationRates:
    """What operations cost on this machine; measured on first use.

    Raises `UnsupportedError` where nothing can be compiled.
    """
    return once.get()


def measure_operations() -> Mapping[str, float]:
    """Measure each operation on one thread, a few times apart: nanoseconds by name."""
    runners = {name: _runner(operation_probe(name, host_isa())) for name in OPERATIONS}
    sweeps = np.array([[_fastest_ns(*each) for each in runners.values()] for _ in range(_SWEEPS)])
    fastest = np.min(sweeps, axis=0)
    usual = np.median(np.median(sweeps / fastest, axis=1))
    return {**dict(zip(runners, fastest.tolist(), strict=True)), USUAL: float(usual)}


def _runner(probe: Probe) -> tuple[ProbeRunner, int]:
    """What runs a probe, and the vectors of an iteration."""
    runner = ProbeRunner(probe, 1)
    # Neither zeros nor what functions treat apart.
    area = runner.area(0).view(np.float32)
    area[:] = np.linspace(0.5, 1.5, area.size, dtype=np.float32)
    return runner, probe.work


def _fastest_ns(runner: ProbeRunner, work: int) -> float:
    """Nanoseconds of one vector, the least of some runs that are long enough."""
    repeats, taken = 64, 0
    while taken < _RUN_NS:
        start = time.perf_counter_ns()
        runner.run(repeats)
        taken = max(time.perf_counter_ns() - start, 1)
        repeats = repeats if taken >= _RUN_NS else max(2 * repeats, repeats * _RUN_NS // taken)
    for _ in range(_RUNS):
        start = time.perf_counter_ns()
        runner.run(repeats)
        taken = min(taken, max(time.perf_counter_ns() - start, 1))
    return taken / repeats / work


def operation_probe(name: str, isa: Isa) -> Probe:
    """A loop of nothing but one operation on vectors of float32; `work` is vectors an iteration."""
    vector = VectorType("float", isa.lanes(4))
    if name.startswith("half "):
        name, vector = name.removeprefix("half "), VectorType("float", isa.lanes(4) // 2)
    writer = FunctionWriter("work", "void", "ptr %area, i64 %bytes, i64 %repeats")
    if name in FUNCTIONS:
        return _function_probe(writer, vector, name, isa)
    for operation in MIXED:
        if name.startswith(operation):
            other = name.removeprefix(f"{operation} ")
            return _mixed_probe(writer, vector, operation, other, isa)
    if name == FORWARD:
        return _forward_probe(writer, vector)
    if name == CYCLE:
        return chain_probe()
    if name == STORE:
        return _store_probe(writer, vector)
    if name == ACCESS:
        return _access_probe(writer, vector)
    if name == GATHER:
        return _gather_probe(writer, vector)
    if name == CHAINS:
        return _chains_probe(writer, vector, isa.fma)
    if name in (ACCUMULATED, MULTIPLIED):
        return _fused_probe(writer, vector, name, isa.fma)
    steps: dict[str, Callable[[str], str]] = {
        LOAD: lambda x: x,
        DIVISION: lambda x: writer.let(f"fdiv {vector} {x}, {vector.constant(1.25)}"),
    }
    if name in steps:
        _independent(writer, vector, steps[name])
        return Probe(name, module_text(writer), _INDEPENDENT)
    if name == INTEGER:
        return _sum_probe(writer, vector.of("i32"), name, _INDEPENDENT)
    return _sum_probe(writer, vector, name, 1 if name == CHAIN else _SUMS)


def _place(writer: FunctionWriter, vector: VectorType, number: int) -> str:
    return writer.let(f"getelementptr {vector}, ptr %area, i64 {number}")


def _independent(
    writer: FunctionWriter, vector: VectorType, operation: Callable[[str], str]
) -> None:
    """Vectors that are loaded each time, the operation on each, and sums of what it gives."""
    places = [_place(writer, vector, number) for number in range(_INDEPENDENT)]
    size = vector.lanes * 4

    def iteration(counter: str, sums: list[str]) -> list[str]:
        # Volatile: what does not change would be computed once for all iterations.
        loads = [f"load volatile {vector}, ptr {place}, align {size}" for place in places]
        results = [operation(writer.let(load)) for load in loads]
        return [
            writer.let(f"fadd {vector} {total}, {value}")
            for total, value in zip(sums, results, strict=True)
        ]

    _total(writer, vector, places, iteration, size)


def _total(
    writer: FunctionWriter,
    vector: VectorType,
    places: Sequence[str],
    iteration: Callable[[str, list[str]], list[str]],
    align: int = 4,
) -> None:
    """A loop that adds to vectors of zeros, which are stored after it."""
    starts = [(vector, vector.constant(0.0))] * len(places)
    ends = writer.counted_loop("%repeats", 1, iteration, starts)
    for place, value in zip(places, ends, strict=True):
        writer.do(f"store {vector} {value}, ptr {place}, align {align}")


def _mixed_probe(
    writer: FunctionWriter, vector: VectorType, operation: str, other: str, isa: Isa
) -> Probe:
    """Vectors that are loaded each time, one of `MIXED` on each, and what adds its result up; or
    one vector, on which it and what adds to it follow each other.
    """
    is_chain = other == AFTER
    count = 1 if is_chain else _INDEPENDENT
    places = [_place(writer, vector, number) for number in range(count + 2)]
    loads = [writer.let(f"load {vector}, ptr {place}, align 4") for place in places[-2:]]
    whole = vector.of("i32")

    def add_up(total: str, value: str) -> str:
        if other == "beside sums":
            return writer.let(f"fadd {vector} {total}, {value}")
        if other == "beside logic":
            both = [writer.let(f"bitcast {vector} {each} to {whole}") for each in (total, value)]
            made = writer.let(f"xor {whole} {', '.join(both)}")
            return writer.let(f"bitcast {whole} {made} to {vector}")
        return _fused(writer, vector, (total, loads[0], value), isa.fma)

    def iteration(counter: str, totals: list[str]) -> list[str]:
        made = list[str]()
        for total, place in zip(totals, places, strict=False):
            value = writer.let(f"load volatile {vector}, ptr {place}, align 4")
            changed = total if is_chain else value
            result = _mixed(writer, vector, operation, (changed, *loads), isa)
            made.append(add_up(result, value) if is_chain else add_up(total, result))
        return made

    _total(writer, vector, places[:-2], iteration)
    return Probe(f"{operation} {other}", module_text(writer), count)


def _mixed(
    writer: FunctionWriter, vector: VectorType, name: str, values: tuple[str, ...], isa: Isa
) -> str:
    """One of `MIXED`, on the first of some values."""
    value, second, third = values
    lanes, whole = vector.lanes, vector.of("i32")
    half, long = VectorType("float", lanes // 2), VectorType("double", lanes // 2)

    def bits() -> str:
        return writer.let(f"bitcast {vector} {value} to {whole}")

    def on_integers(operation: str, other: str) -> str:
        made = writer.let(f"{operation} {whole} {bits()}, {other}")
        return writer.let(f"bitcast {whole} {made} to {vector}")

    def lanes_of(source: VectorType, first: str, other: str, numbers: Iterable[int | str]) -> str:
        mask = ", ".join(f"i32 {number}" for number in numbers)
        count = mask.count("i32")
        text = f"shufflevector {source} {first}, {source} {other}, <{count} x i32> <{mask}>"
        return writer.let(text)

    if name in (COMPARISON, LARGER):
        is_less = writer.let(f"fcmp olt {vector} {value}, {second}")
        chosen = f"{vector} {third if name == COMPARISON else second}, {vector} {value}"
        return writer.let(f"select {vector.of('i1')} {is_less}, {chosen}")
    if name == EXTREMUM:
        return emit_extremum(writer, isa, "max", vector, value, second)
    if name == CONVERSION:
        return writer.let(f"sitofp {whole} {bits()} to {vector}")
    if name == SHIFT:
        return on_integers("shl", whole.constant(3))
    if name == INTEGER_PRODUCT:
        return on_integers("mul", whole.constant(0x5BD1E995))
    if name == SHUFFLE:
        return lanes_of(vector, value, "poison", ((7 * lane + 3) % lanes for lane in range(lanes)))
    if name == PERMUTATION:
        both = ((7 * lane + 3) % (2 * lanes) for lane in range(lanes))
        return lanes_of(vector, value, second, both)
    if name == WIDENING:
        part = writer.slice(value, vector, 0, lanes // 2)
        made = writer.let(f"fpext {half} {part} to {long}")
        return writer.let(f"bitcast {long} {made} to {vector}")
    doubled = writer.let(f"bitcast {vector} {value} to {long}")
    made = writer.let(f"fptrunc {long} {doubled} to {half}")
    rest = ["poison"] * (lanes - lanes // 2)
    return lanes_of(half, made, "poison", (*range(lanes // 2), *rest))


def _function_probe(writer: FunctionWriter, vector: VectorType, name: str, isa: Isa) -> Probe:
    """A function of one vector after the other, as loops of kernels have it; theirs is the time of
    an iteration.
    """
    function = emit_vector_math(name, "float32", vector.lanes, isa)

    def apply(value: str) -> str:
        if name in ("sqrt", "rsqrt"):
            root = writer.call(vector, f"llvm.sqrt.{vector.mangled}", (vector, value))
            one = vector.constant(1.0)
            return writer.let(f"fdiv {vector} {one}, {root}") if name == "rsqrt" else root
        written = write_vector_math(writer, name, vector, isa, value)
        return written or writer.let(f"call {vector} @{function.name}({vector} {value})")

    def iteration(counter: str, carried: list[str]) -> list[str]:
        number = writer.let(f"and i64 {counter}, {_INDEPENDENT - 1}")
        place = writer.let(f"getelementptr {vector}, ptr %area, i64 {number}")
        value = apply(writer.let(f"load volatile {vector}, ptr {place}, align 4"))
        # Results are stored: a sum would be kept on the stack during each call, which may be
        # called from anywhere, so its lines would count too.
        other = writer.let(f"getelementptr {vector}, ptr {place}, i64 {_INDEPENDENT}")
        writer.do(f"store volatile {vector} {value}, ptr {other}, align 4")
        return []

    writer.counted_loop("%repeats", 1, iteration)
    text = module_text(writer)
    declared = "\n".join(sorted(each for each in function.declarations if each not in text))
    return Probe(name, f"{declared}\n{function.text}\n{text}", 1)


def _sum_probe(writer: FunctionWriter, vector: VectorType, name: str, count: int) -> Probe:
    """Sums in registers, `count` of them at once, and what goes beside sums: two operations of
    each an iteration.
    """
    places = [_place(writer, vector, number) for number in range(count)]
    steps = {CHAIN: ("fadd", "fadd"), SIMPLE: ("fadd", "fmul"), INTEGER: ("add", "xor")}[name]
    addend = writer.let(f"load {vector}, ptr {_place(writer, vector, count)}, align 4")

    def iteration(counter: str, sums: list[str]) -> list[str]:
        for step in steps:
            sums = [writer.let(f"{step} {vector} {total}, {addend}") for total in sums]
        return sums

    starts = [(vector, writer.let(f"load {vector}, ptr {place}, align 4")) for place in places]
    ends = writer.counted_loop("%repeats", 1, iteration, starts)
    for place, value in zip(places, ends, strict=True):
        writer.do(f"store {vector} {value}, ptr {place}, align 4")
    return Probe(name, module_text(writer), 2 * count)


def _forward_probe(writer: FunctionWriter, vector: VectorType) -> Probe:
    """A sum in memory: each addition loads what the one before it stored."""
    place, other = (_place(writer, vector, number) for number in range(2))
    addend = writer.let(f"load {vector}, ptr {other}, align 4")

    def iteration(counter: str, carried: list[str]) -> list[str]:
        value = writer.let(f"load volatile {vector}, ptr {place}, align 4")
        value = writer.let(f"fadd {vector} {value}, {addend}")
        writer.do(f"store volatile {vector} {value}, ptr {place}, align 4")
        return []

    writer.counted_loop("%repeats", 1, iteration)
    return Probe(FORWARD, module_text(writer), 1)


def _store_probe(writer: FunctionWriter, vector: VectorType) -> Probe:
    """Stores of one vector to places in L1."""
    value = writer.let(f"load {vector}, ptr {_place(writer, vector, 0)}, align 4")
    places = [_place(writer, vector, number) for number in range(1, _INDEPENDENT + 1)]

    def iteration(counter: str, carried: list[str]) -> list[str]:
        for place in places:
            writer.do(f"store volatile {vector} {value}, ptr {place}, align 4")
        return []

    writer.counted_loop("%repeats", 1, iteration)
    return Probe(STORE, module_text(writer), _INDEPENDENT)


def _gather_probe(writer: FunctionWriter, vector: VectorType) -> Probe:
    """Vectors of which each lane is an element of another line or two of L1."""
    lanes = vector.lanes
    numbers = ", ".join(f"i32 {7 * lane}" for lane in range(lanes))
    pointers = VectorType("ptr", lanes)

    def iteration(counter: str, sums: list[str]) -> list[str]:
        # The sign of a number, which only we know, or one gather would do for all iterations.
        number = writer.let("load volatile i32, ptr %area, align 4")
        number = writer.let(f"lshr i32 {number}, 31")
        start = writer.let(f"getelementptr float, ptr %area, i32 {number}")
        places = writer.let(f"getelementptr float, ptr {start}, <{lanes} x i32> <{numbers}>")
        active = vector.of("i1"), "splat (i1 true)"
        args = (pointers, places), ("i32", "4"), active, (vector, "poison")
        name = f"llvm.masked.gather.{vector.mangled}.v{lanes}p0"
        value = writer.call(vector, name, *args)
        return [writer.let(f"fadd {vector} {sums[0]}, {value}")]

    ends = writer.counted_loop("%repeats", 1, iteration, [(vector, vector.constant(0.0))])
    writer.do(f"store {vector} {ends[0]}, ptr {_place(writer, vector, 0)}, align 4")
    return Probe(GATHER, module_text(writer), 1)


def _access_probe(writer: FunctionWriter, vector: VectorType) -> Probe:
    """Vectors of L1 that products of others are added to, far enough apart that none waits."""
    places = [_place(writer, vector, number) for number in range(6 * _INDEPENDENT)]
    totals, factors = places[: 2 * _INDEPENDENT], places[2 * _INDEPENDENT :]

    def iteration(counter: str, carried: list[str]) -> list[str]:
        for total, *others in zip(totals, factors[::2], factors[1::2], strict=True):
            loads = [
                writer.let(f"load volatile {vector}, ptr {place}, align 4")
                for place in (total, *others)
            ]
            value = writer.let(f"fmul contract {vector} {loads[1]}, {loads[2]}")
            value = writer.let(f"fadd contract {vector} {loads[0]}, {value}")
            writer.do(f"store volatile {vector} {value}, ptr {total}, align 4")
        return []

    writer.counted_loop("%repeats", 1, iteration)
    return Probe(ACCESS, module_text(writer), 4 * len(totals))


def _fused_probe(writer: FunctionWriter, vector: VectorType, name: str, has_fma: bool) -> Probe:
    """Fused multiply-adds that wait for each other, two an iteration; a product and a sum where
    there are none.
    """
    start, factor, addend = (
        writer.let(f"load {vector}, ptr {_place(writer, vector, number)}, align 4")
        for number in range(3)
    )

    is_sum = name == ACCUMULATED

    def fused(total: str) -> str:
        terms = (factor, addend, total) if is_sum else (total, factor, addend)
        return _fused(writer, vector, terms, has_fma)

    def iteration(counter: str, sums: list[str]) -> list[str]:
        return [fused(fused(sums[0]))]

    ends = writer.counted_loop("%repeats", 1, iteration, [(vector, start)])
    writer.do(f"store {vector} {ends[0]}, ptr {_place(writer, vector, 0)}, align 4")
    return Probe(name, module_text(writer), 2)


def _chains_probe(writer: FunctionWriter, vector: VectorType, has_fma: bool) -> Probe:
    """Chains of fused multiply-adds, each of which begins with a load."""
    places = [_place(writer, vector, number) for number in range(3)]
    factor = writer.let(f"load {vector}, ptr {places[1]}, align 4")

    def iteration(counter: str, carried: list[str]) -> list[str]:
        value = writer.let(f"load volatile {vector}, ptr {places[0]}, align 4")
        for _ in range(CHAIN_LENGTH):
            value = _fused(writer, vector, (value, factor, factor), has_fma)
        writer.do(f"store volatile {vector} {value}, ptr {places[2]}, align 4")
        return []

    writer.counted_loop("%repeats", 1, iteration)
    return Probe(CHAINS, module_text(writer), CHAIN_LENGTH)


def _fused(
    writer: FunctionWriter, vector: VectorType, terms: tuple[str, str, str], has_fma: bool
) -> str:
    """The first times the second, and the third."""
    if has_fma:
        return writer.call(vector, f"llvm.fma.{vector.mangled}", *((vector, x) for x in terms))
    product = writer.let(f"fmul {vector} {terms[0]}, {terms[1]}")
    return writer.let(f"fadd {vector} {product}, {terms[2]}")


once = MeasuredOnce("operations", _SCHEMA, OPERATIONS | {USUAL}, measure_operations, OperationRates)
