"""What instructions cost by what was measured of them beside others, and what loops need once."""

from __future__ import annotations

import pytest

from tests.bench.test_llvm_code import CORE as ASSUMED
from tests.bench.test_llvm_code import busy, costs_of, function_of
from tileworkbench.bench.llvm.costs import ADD, ARITHMETIC, FREE, LANES, MULTIPLY, Core
from tileworkbench.bench.llvm.loops import constant_in, shape_of
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
