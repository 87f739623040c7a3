"""What instructions cost by what was measured of them beside others, and what loops need once."""

from __future__ import annotations

import pytest

from tests.bench.test_llvm_code import CORE as ASSUMED
from tests.bench.test_llvm_code import busy, costs_of, function_of, only, time_ns
from tileworkbench.bench.llvm.block_time import BlockTimes
from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.core_costs import ADD, ARITHMETIC, FREE, LANES, MULTIPLY
from tileworkbench.bench.llvm.loops import constant_in, shape_of
from tileworkbench.bench.llvm.values import Place, Values
from tileworkbench.bench.operation_rates import (
    AFTER,
    CHAIN,
    COMPARISON,
    CONVERSION,
    CYCLE,
    EXTREMUM,
    INTEGER,
    INTEGER_PRODUCT,
    LARGER,
    LOAD,
    MULTIPLIED,
    NARROWING,
    PERMUTATION,
    SHIFT,
    SHUFFLE,
    SIMPLE,
    STORE,
    WIDENING,
    OperationRates,
)

# What is assumed is the same for all of them.
RATES = OperationRates(
    ASSUMED.rates.vector_ns
    | {f"{COMPARISON} beside logic": 5.0, f"{COMPARISON} beside products": 3.0}
    | {f"{PERMUTATION} beside products": 4.0, f"{PERMUTATION} {AFTER}": 17.0}
)
CORE = Core(RATES, 512, 1.0, {})


def test_the_larger_of_what_is_compared_is_one_instruction() -> None:
    """A choice between anything else is one besides the comparison."""
    found = costs_of(
        """  %a = load <16 x float>, ptr %p0, align 4
  %b = load <16 x float>, ptr %p1, align 4
  %less = fcmp olt <16 x float> %a, %b
  %larger = select <16 x i1> %less, <16 x float> %b, <16 x float> %a
  %below = fcmp olt <16 x float> %a, zeroinitializer
  %chosen = select <16 x i1> %below, <16 x float> %b, <16 x float> %a
  %apart = fcmp olt <16 x float> %a, %b
  %first = select <16 x i1> %apart, <16 x float> %b, <16 x float> %a
  %second = select <16 x i1> %apart, <16 x float> zeroinitializer, <16 x float> %a""",
        CORE,
    )
    assert found["%less"] == FREE
    assert busy(found["%larger"]) == busy_of(LARGER)
    compared = busy_of(COMPARISON)
    compared[ARITHMETIC] = max(compared[ARITHMETIC] - RATES.of(SIMPLE), RATES.of(SIMPLE))
    for name in ("%below", "%apart"):
        assert busy(found[name]) == pytest.approx(compared) and found[name].instructions == 1
    assert list(busy(found["%chosen"])) == [ARITHMETIC]


def busy_of(operation: str, registers: float = 1.0) -> dict[str, float]:
    """Nanoseconds of the ports that so many of an operation of `MIXED` take."""
    shares = RATES.shares(operation)
    ports = zip((ARITHMETIC, ADD, MULTIPLY), shares, strict=True)
    return {port: registers * time_ns for port, time_ns in ports if time_ns}


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        ("shl <16 x i32> %i, splat (i32 3)", SHIFT),
        ("mul <16 x i32> %i, %i", INTEGER_PRODUCT),
        ("sitofp <16 x i32> %i to <16 x float>", CONVERSION),
        ("call <16 x float> @llvm.floor.v16f32(<16 x float> %x)", CONVERSION),
        ("fpext <8 x float> %h to <8 x double>", WIDENING),
        ("fptrunc <8 x double> %d to <8 x float>", NARROWING),
        ("call <16 x float> @llvm.maximumnum.v16f32(<16 x float> %x, <16 x float> %x)", EXTREMUM),
    ],
)
def test_operations_take_the_ports_that_were_measured(body: str, operation: str) -> None:
    found = costs_of(f"  %y = {body}", CORE)["%y"]
    assert busy(found) == pytest.approx(busy_of(operation))
    assert found.latency(0) == RATES.latency(operation)


@pytest.mark.parametrize(
    ("mask", "operation", "registers", "waits"),
    [
        ([3, 2, 1, 0] * 4, SHUFFLE, 1, True),  # lanes of the first 128 bits go everywhere
        ([lane ^ 1 for lane in range(16)], SHUFFLE, 1, False),
        ([(5 * lane) % 32 for lane in range(16)], PERMUTATION, 1, True),
        ([0] * 64, SHUFFLE, 1, True),  # all registers are alike
        ([lane ^ 1 for lane in range(16)] + [15 - lane for lane in range(16)], SHUFFLE, 2, True),
    ],
)
def test_lanes_of_one_vector_and_of_two(
    mask: list[int], operation: str, registers: int, waits: bool
) -> None:
    lanes = ", ".join(f"i32 {lane}" for lane in mask)
    shuffle = f"shufflevector <16 x float> %x, <16 x float> %y, <{len(mask)} x i32> <{lanes}>"
    found = costs_of(f"  %z = {shuffle}", CORE)["%z"]
    taken = busy(found)
    assert taken.pop(LANES) == registers * CORE.fused_ns
    assert taken == pytest.approx(busy_of(operation, registers))
    assert found.latency(0) == (RATES.latency(operation) if waits else CORE.cycles(1))


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        ("permvar.sf.512(<16 x float> %x, <16 x i32> %i)", SHUFFLE),
        ("vpermi2var.ps.512(<16 x float> %x, <16 x i32> %i, <16 x float> %y)", PERMUTATION),
    ],
)
def test_lanes_whose_places_are_numbers(call: str, operation: str) -> None:
    found = costs_of(f"  %z = call <16 x float> @llvm.x86.avx512.{call}", CORE)["%z"]
    assert busy(found) == busy_of(operation) | {LANES: CORE.fused_ns}
    assert found.latency(0) == RATES.latency(operation)


def test_products_of_half_words_are_as_fast_as_sums() -> None:
    found = costs_of("  %y = mul <32 x i16> %h, %h\n  %z = add <32 x i16> %h, %h", CORE)
    assert found["%y"] == found["%z"]


def test_shares_of_ports_are_what_others_take_longer() -> None:
    usual = {
        SIMPLE: 0.5,
        INTEGER: 0.5,
        LOAD: 1.0,
        CHAIN: 3.0,
        MULTIPLIED: 4.0,
        CYCLE: 1.0,
        "erf": 9.0,
    }
    measured = {"beside logic": 1.5, "beside sums": 2.0, "beside products": 1.15, AFTER: 9.0}
    rates = OperationRates(usual | {f"{SHIFT} {kind}": ns for kind, ns in measured.items()})
    assert rates.shares(SHIFT) == (1.0, 1.0, 0.0)  # a little longer is no share
    assert rates.latency(SHIFT) == 5.0
    # What was not measured goes to any port, and where sums are.
    assert rates.shares(SHUFFLE) == (0.5, 1.0, 0.0) and rates.latency(SHUFFLE) == 3.0


def test_what_is_the_same_in_each_iteration_is_computed_before_the_loop() -> None:
    """But not what is loaded, what follows from it, or what is less than a register."""
    function = function_of(
        """entry:
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i1, %more ]
  br label %inner
inner:
  %j = phi i64 [ 0, %outer ], [ %j1, %inner ]
  %row = mul i64 %i, 64
  %twice = fadd <16 x float> %x, %x
  %four = fmul <16 x float> %twice, %twice
  %part = fadd <2 x float> %h, %h
  %loaded = load <16 x float>, ptr %p0, align 4
  %s = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %p0, i32 4, <16 x i1> %m, <16 x float> %x)
  %sum = fadd <16 x float> %loaded, %four
  %j1 = add i64 %j, 1
  %again = icmp ult i64 %j1, 8
  br i1 %again, label %inner, label %more
more:
  %i1 = add i64 %i, 1
  %last = icmp ult i64 %i1, 8
  br i1 %last, label %outer, label %done
done:
  ret void""",
    )
    shape = shape_of(function)
    inner, outer = (constant_in(function, shape, shape.loops[at]) for at in ("inner", "outer"))
    assert inner == {"%row", "%twice", "%four"} and outer == {"%twice", "%four"}


def test_halves_of_a_reduction_are_no_whole_registers() -> None:
    """Of four registers three are added, then a half, a quarter, an eighth and one element."""
    rates = OperationRates({**RATES.vector_ns, f"half {SIMPLE}": 0.5 * RATES.of(SIMPLE)})
    core = Core(rates, 512, 1.0, {})
    text = "call float @llvm.vector.reduce.fadd.v64f32(float -0.0, <64 x float> %p0)"
    cost = costs_of(f"  %made = {text}", core)["%made"]
    assert dict(reversed(cost.busy))[ADD] == 3 + 4 * 0.5  # and what moves are done there
    assert busy(cost)[LANES] == 4 * 0.5
    assert cost.instructions == 3 + 2 * 4


@pytest.mark.parametrize("order", ["0123", "0132", "1023"])
def test_a_vector_that_is_put_together_again_costs_nothing(order: str) -> None:
    """Its elements are stored and loaded; in another order they have to be moved."""
    lines, vector = ["  %v = load <4 x float>, ptr %p1"], "poison"
    places = [f"  %at{lane} = getelementptr float, ptr %p0, i64 {lane}" for lane in range(4)]
    for lane in range(4):
        lines += [places[lane], f"  %e{lane} = extractelement <4 x float> %v, i64 {lane}"]
        lines += [f"  store float %e{lane}, ptr %at{lane}"]
    for lane, source in enumerate(order):
        lines += [f"  %l{lane} = load float, ptr %at{source}"]
        lines += [f"  %i{lane} = insertelement <4 x float> {vector}, float %l{lane}, i64 {lane}"]
        vector = f"%i{lane}"
    body = "\n".join(("entry:", *lines, f"  store <4 x float> {vector}, ptr %p2", "  ret void"))
    text = f"define void @code(ptr %p0, ptr %p1, ptr %p2) {{\n{body}\n}}"
    places_of: Values = {name: Place(name, 0) for name in ("%p0", "%p1", "%p2")}
    works = BlockTimes(text, CORE).works("code", places_of)
    moved_again = {"0123": 0, "0132": 2, "1023": 3}[order]
    # A load, five stores, and three elements that are not the first.
    assert sum(each.instructions for each in works) == pytest.approx(9 + moved_again)


@pytest.mark.parametrize(("extension", "is_short"), [("zext", True), ("sext", False)])
def test_the_distance_of_short_integers_is_taken_of_short_ones(
    extension: str, is_short: bool
) -> None:
    """As LLVM does: the smaller of both from the larger, and one extension in place of two."""
    lines = [f"  %wide{at} = {extension} <64 x i8> %p{at} to <64 x i32>" for at in range(2)]
    lines += ["  %off = sub nsw <64 x i32> %wide0, %wide1"]
    lines += ["  %made = call <64 x i32> @llvm.abs.v64i32(<64 x i32> %off, i1 false)"]
    costs = costs_of("\n".join(lines))
    assert (costs["%off"] == FREE) == (costs["%wide0"] == FREE) == is_short
    # Three with 64 bytes, then four registers, of which three are taken out first.
    assert costs["%made"].instructions == (3 + 7 if is_short else 4)


def test_the_distance_of_single_integers_is_taken_as_it_is_written() -> None:
    lines = [f"  %wide{at} = zext i8 %p{at} to i32" for at in range(2)]
    lines += ["  %off = sub nsw i32 %wide0, %wide1"]
    lines += ["  %made = call i32 @llvm.abs.i32(i32 %off, i1 false)"]
    costs = costs_of("\n".join(lines))
    assert costs["%off"] == costs["%made"] == costs_of("  %x = add i32 %p0, %p1")["%x"]


def test_a_core_computes_some_single_integers_in_a_cycle() -> None:
    sums = "\n".join(f"  %x{at} = add i32 %block, {at}" for at in range(60))
    few, many = (
        time_ns(f"define void @code(ptr %p0, i32 %block) {{\n{body}\n  ret void\n}}", {}, CORE)
        for body in ("\n".join(sums.splitlines()[:20]), sums)
    )
    assert many - few == pytest.approx(40 / 4 * CORE.cycles(1), rel=0.05)


def test_what_was_loaded_is_made_longer_for_an_address() -> None:
    """What a loop counts is stepped with its addresses."""
    costs = costs_of(
        """  %i = load i32, ptr %p0, align 4
  %row = mul i32 %i, 40
  %far = sext i32 %row to i64
  %near = sext i32 %block to i64
  %x = getelementptr float, ptr %p1, i64 %far
  %y = getelementptr float, ptr %p1, i64 %near
  %inside = icmp ult i32 %i, 16
  %at = select i1 %inside, ptr %x, ptr @zeros
  %v = load <8 x float>, ptr %at, align 4
  %w = load <8 x float>, ptr %y, align 4"""
    )
    assert costs["%far"].instructions == 1 and costs["%near"] == FREE
    # A choice between two addresses needs them by themselves.
    assert costs["%x"].instructions == 1 and costs["%y"] == FREE


@pytest.mark.parametrize("used", ["%off", "%wide0"])
def test_a_difference_that_is_of_use_itself_is_not_left_out(used: str) -> None:
    lines = [f"  %wide{at} = zext <16 x i8> %p{at} to <16 x i32>" for at in range(2)]
    lines += ["  %off = sub nsw <16 x i32> %wide0, %wide1"]
    lines += ["  %made = call <16 x i32> @llvm.abs.v16i32(<16 x i32> %off, i1 false)"]
    lines += [f"  %both = xor <16 x i32> {used}, %made"]
    costs = costs_of("\n".join(lines))
    assert FREE not in (costs["%off"], costs["%wide0"], costs["%wide1"])


@pytest.mark.parametrize(("whole_ns", "expected"), [(0.5, 2.0), (1.0, 1.5)])
def test_lines_that_a_vector_crosses_count(whole_ns: float, expected: float) -> None:
    """Twice where a register is loaded at once; of two halves only one lies in two lines."""
    core = with_halves(LOAD, whole_ns)

    def loads(offset: int) -> float:
        text = f"""define void @code(ptr %p0) {{
entry:
  %at = getelementptr i8, ptr %p0, i64 {offset}
  %a = load <16 x float>, ptr %at, align 4
  store <16 x float> %a, ptr %p0, align 4
  ret void
}}"""
        return time_ns(text, {"%p0": Place("%p0", 0)}, core) / whole_ns

    assert loads(0) == pytest.approx(1.0, rel=0.03)
    assert loads(128) == pytest.approx(1.0, rel=0.03)
    assert loads(4) == pytest.approx(expected, rel=0.03)


def with_halves(operation: str, whole_ns: float) -> Core:
    """A core on which nothing takes time but an operation, 0.5 ns on half a register."""
    rates = {**only(whole_ns, operation).rates.vector_ns, f"half {operation}": 0.5}
    return Core(OperationRates(rates), 512, 1e-3, {})


@pytest.mark.parametrize(
    ("op", "first", "size", "in_halves", "whole"),
    [
        ("load", 0, 64, 1, 1),
        ("load", 32, 64, 1, 2),  # two halves in a line each
        ("load", 20, 64, 1.5, 2),
        ("load", 60, 4, 1, 1),
        ("load", 60, 8, 2, 2),
        ("load", 28, 32, 1, 1),
        ("load", 36, 32, 2, 2),
        ("load", 36, 256, 12 / 8, 2),
        ("store", 0, 64, 1, 1),
        ("store", 32, 64, 1, 2),
        ("store", 4, 64, 1.5, 2),
        ("store", 4, 32, 2, 1),  # in one line, but in two places of half a register
        ("store", 40, 32, 2, 2),
        ("store", 28, 4, 1, 1),
        ("store", 28, 8, 2, 1),
        ("store", -4, 8, 2, 2),
    ],
)
def test_what_lies_in_two_places_takes_longer(
    op: str, first: int, size: int, in_halves: float, whole: float
) -> None:
    """As micro-measurements on a Zen 4 say, whose ways to memory are half a register wide."""
    operation = LOAD if op == "load" else STORE
    assert with_halves(operation, 1.0).split(op, first, size) == in_halves
    assert with_halves(operation, 0.5).split(op, first, size) == whole
