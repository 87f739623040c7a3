"""What operations of x86 cost."""

from __future__ import annotations

import pytest

from tests.bench.test_llvm_code import CORE, RATES
from tileworkbench.bench.llvm.core_costs import (
    ACCESSES,
    ADD,
    ARITHMETIC,
    DIVIDER,
    DIVIDER_OF_INTEGERS,
    LANES,
    LOADS,
    MULTIPLY,
    SCALARS,
    STORES,
    WAIT,
    Cost,
)
from tileworkbench.bench.llvm.x86.costs import INWARD, OUTWARD, PRODUCTS, MachineCosts
from tileworkbench.bench.llvm.x86.operations import operations_of
from tileworkbench.bench.operation_rates import (
    COMPARISON,
    CONVERSION,
    INTEGER,
    INTEGER_PRODUCT,
    LARGER,
    NARROWING,
    PERMUTATION,
    SHIFT,
    SHUFFLE,
    SIMPLE,
    STORE,
    WIDENING,
)


def cost_of(text: str) -> Cost:
    """Of the last operation of an instruction."""
    *_, operation = operations_of(*text.split(" ", 1))
    return MachineCosts(CORE).of(operation.instruction)


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("vaddps %zmm1, %zmm2, %zmm3", {ARITHMETIC, ADD}),
        ("vsubss %xmm1, %xmm2, %xmm3", {ARITHMETIC, ADD}),
        ("vmulps %zmm1, %zmm2, %zmm3", {ARITHMETIC, MULTIPLY}),
        ("vfnmadd213ps %zmm1, %zmm2, %zmm3", {ARITHMETIC, MULTIPLY}),
        ("vdpbf16ps %zmm1, %zmm2, %zmm3", {ARITHMETIC, MULTIPLY}),
        ("vpmaddwd %zmm1, %zmm2, %zmm3", {ARITHMETIC, MULTIPLY}),
        ("vdivps %zmm1, %zmm2, %zmm3", {ARITHMETIC, MULTIPLY, DIVIDER}),
        ("vsqrtps %zmm1, %zmm3", {ARITHMETIC, MULTIPLY, DIVIDER}),
        ("vscalefps %zmm1, %zmm2, %zmm3", {ARITHMETIC, ADD}),
        ("vandps %zmm1, %zmm2, %zmm3", {ARITHMETIC}),
        ("vpternlogd $1, %zmm1, %zmm2, %zmm3", {ARITHMETIC}),
        ("vpaddd %zmm1, %zmm2, %zmm3", {ARITHMETIC}),
        ("vblendvps %ymm1, %ymm2, %ymm3, %ymm4", {ARITHMETIC}),
        ("kandw %k1, %k2, %k3", {ARITHMETIC}),
        ("vpgatherdd (%rdi,%zmm1,4), %zmm2 {%k1}", {LOADS, ARITHMETIC}),
        ("vscatterdps %zmm2, (%rdi,%zmm1,4) {%k1}", {STORES}),
        ("addq %rax, %rcx", {SCALARS}),
        ("idivl %ecx", {DIVIDER_OF_INTEGERS}),
        ("lock addl $1, (%rdi)", {WAIT}),
        ("vmovups (%rdi), %zmm1", {LOADS, ACCESSES}),
        ("vmovups %zmm1, (%rdi)", {STORES, ACCESSES}),
        ("vmovaps %zmm1, %zmm2", set()),
        ("tdpbssd %tmm1, %tmm2, %tmm3", {MULTIPLY}),
        ("tileloadd (%rdi,%rax), %tmm1", {LOADS}),
        ("tilestored %tmm1, (%rdi,%rax)", {STORES}),
    ],
)
def test_ports(text: str, ports: set[str]) -> None:
    assert {name for name, _ in cost_of(text).busy} == ports


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("vmaxps %zmm1, %zmm2, %zmm3", LARGER),
        ("vrangeps $5, %zmm1, %zmm2, %zmm3", LARGER),
        ("vcvtdq2ps %zmm1, %zmm2", CONVERSION),
        ("vrndscaleps $8, %zmm1, %zmm2", CONVERSION),
        ("vcvtph2ps %ymm1, %zmm2", WIDENING),
        ("vcvtps2ph $4, %zmm1, %ymm2", NARROWING),
        ("vcvtneps2bf16 %zmm1, %ymm2", NARROWING),
        ("vpslld $3, %zmm1, %zmm2", SHIFT),
        ("vpsrlvd %zmm1, %zmm2, %zmm3", SHIFT),
        ("vpmulld %zmm1, %zmm2, %zmm3", INTEGER_PRODUCT),
        ("vpmovdw %zmm1, %ymm2", SHUFFLE),
        ("vpopcntd %zmm1, %zmm2", SHIFT),
        ("vpmovzxbd %xmm1, %zmm2", SHUFFLE),
        ("vpermt2ps %zmm1, %zmm2, %zmm3", PERMUTATION),
        ("vpermps %zmm1, %zmm2, %zmm3", SHUFFLE),
    ],
)
def test_what_was_measured_of_such_operations(text: str, operation: str) -> None:
    cost = cost_of(text)
    shares = [time_ns for time_ns in RATES.shares(operation) if time_ns]
    assert [time_ns for name, time_ns in cost.busy if name != LANES] == shares
    assert cost.latencies == (RATES.latency(operation),)


def test_a_comparison_is_without_the_choice() -> None:
    """It was measured with one, which is an instruction of its own."""
    compared, chosen = cost_of("vcmpltps %zmm1, %zmm2, %k1"), cost_of("vmovaps %zmm1, %zmm2 {%k1}")
    late = compared.latencies[0] + chosen.latencies[0]
    assert late == pytest.approx(RATES.latency(COMPARISON))


def test_lanes_within_128_bits_move_at_once() -> None:
    assert cost_of("vshufps $1, %zmm1, %zmm2, %zmm3").latencies == (CORE.cycles(1),)
    assert cost_of("vshufi64x2 $1, %zmm1, %zmm2, %zmm3").latencies == (RATES.latency(SHUFFLE),)
    assert cost_of("vpinsrd $1, %eax, %xmm1, %xmm2").instructions == 2
    assert cost_of("vinsertps $16, %xmm1, %xmm2, %xmm3").instructions == 1


def test_a_load_is_an_instruction_where_it_is_no_part_of_one() -> None:
    alone = cost_of("vmovups (%rdi), %zmm1")
    part, own = operations_of("vaddps", "(%rdi), %zmm1, %zmm2")
    costs = MachineCosts(CORE)
    assert alone.instructions == 1
    assert costs.of(part.instruction).instructions == 0
    assert costs.of(own.instruction).instructions == 1
    assert cost_of("vmovups %zmm1, (%rdi)").busy[0] == (STORES, RATES.of(STORE))


def test_integers() -> None:
    assert cost_of("imulq %rax, %rcx").latencies == (CORE.cycles(3),)
    assert cost_of("addq %rax, %rcx").latencies == (CORE.cycles(1),)
    assert dict(cost_of("imulq %rax, %rcx").busy)[PRODUCTS] == CORE.cycles(1)
    time_ns = RATES.of(INTEGER)
    assert cost_of("vpaddd %zmm1, %zmm2, %zmm3").busy == ((ARITHMETIC, time_ns),)
    assert cost_of("vandps %zmm1, %zmm2, %zmm3").busy == ((ARITHMETIC, RATES.of(SIMPLE)),)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("vmovd %eax, %xmm1", INWARD),
        ("vmovq %xmm1, %rax", OUTWARD),
        ("kmovw %eax, %k1", INWARD),
        ("kmovb %k1, %eax", OUTWARD),
        ("vpbroadcastd %eax, %zmm1", INWARD),
        ("vpinsrd $1, %eax, %xmm1, %xmm2", INWARD),
        ("vpextrq $1, %xmm1, %rax", OUTWARD),
        ("vcvtsi2ss %eax, %xmm1, %xmm2", INWARD),
        ("vcvttss2si %xmm1, %eax", OUTWARD),
        ("vucomiss %xmm1, %xmm2", OUTWARD),
        ("vmovmskps %ymm1, %eax", OUTWARD),
        ("vpmovmskb %ymm1, %eax", OUTWARD),
    ],
)
def test_one_number_in_a_cycle_crosses(text: str, way: str) -> None:
    """Between integers and vectors or masks; nothing else takes these ports."""
    cost = cost_of(text)
    assert {name: time for name, time in cost.busy if name in (INWARD, OUTWARD)} == {
        way: CORE.cycles(1)
    }
    assert cost.latencies[0] >= CORE.cycles(1)


def test_elements_and_lanes_of_vectors_do_not_cross() -> None:
    for text in (
        "vpinsrd $1, (%rdi), %xmm1, %xmm2",
        "vinsertps $16, %xmm1, %xmm2, %xmm3",
        "vbroadcastss %xmm1, %zmm2",
        "kmovw %k1, %k2",
        "vmovaps %zmm1, %zmm2 {%k1}",
    ):
        assert not {name for name, _ in cost_of(text).busy} & {INWARD, OUTWARD}


def test_tiles_come_late() -> None:
    """As Intel's manual says, in cycles."""
    late = {"tdpbf16ps %tmm1, %tmm2, %tmm3": 52, "tileloadd (%rdi,%rax), %tmm1": 45}
    for text, cycles in late.items():
        assert cost_of(text).latencies == (CORE.cycles(cycles),)
