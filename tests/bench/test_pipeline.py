"""A core that executes out of order: its ports, what is inside, and loops that were measured."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileworkbench.bench.ceilings import machine
from tileworkbench.bench.cpu_ports import AHEAD
from tileworkbench.bench.llvm.block_time import BlockTimes
from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.instructions import Instruction, Kind
from tileworkbench.bench.llvm.known import Known
from tileworkbench.bench.llvm.pipeline import Port
from tileworkbench.bench.llvm.values import Place, Values
from tileworkbench.bench.operation_probes import operation_probe, operation_rates
from tileworkbench.bench.operation_rates import (
    ACCESS,
    AFTER,
    BESIDE,
    CHAINS,
    CYCLE,
    DIVISION,
    FORWARD,
    FUNCTIONS,
    HALVED,
    MIXED,
    MULTIPLIED,
    SHIFT,
    STORE,
    OperationRates,
    assumed_rates,
)
from tileworkbench.bench.points import PEAK
from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.device.host.llvm import optimized_text

CYCLES = assumed_rates(1.0).vector_ns | {CYCLE: 1.0, MULTIPLIED: 4.0, "accumulated": 4.0}
LONG = 10000


def core(chains: float, **others: float) -> Core:
    """A core that ends a multiply-add each cycle, and of whose chains so many cycles are seen."""
    rates = CYCLES | {CHAINS: chains, "simple": 0.5} | others
    return Core(OperationRates(rates), 512, 1.0, {})


VALUES: Values = {"%p0": Place("%p0", 0), "%p1": Place("%p1", 0)}


def loop(body: str, trips: int = LONG, then: str = "") -> str:
    """A loop, and what comes after it."""
    return f"""define void @code(ptr %p0, ptr %p1) {{
entry:
  %a = load <16 x float>, ptr %p1, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{body}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {trips}
  br i1 %more, label %loop, label %done
done:
{then}
  ret void
}}"""


def time_ns(text: str, of: Core) -> float:
    """Nanoseconds of a call of `code` among others."""
    return sum(each.time_ns for each in BlockTimes(text, of).works("code", VALUES))


def cycles(body: str, of: Core) -> float:
    """Cycles of an iteration of a loop."""
    return time_ns(loop(body), of) / LONG


def chain(length: int) -> str:
    """Multiply-adds that wait for each other."""
    fused = (
        "call <16 x float> @llvm.fma.v16f32(<16 x float> %x{0}, <16 x float> %a, <16 x float> %a)"
    )
    steps = [f"  %x{at + 1} = {fused.format(at)}" for at in range(length)]
    return "\n".join(["  %x0 = load volatile <16 x float>, ptr %p1, align 4", *steps])


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0.01, 7.5)), max_size=40))
def test_a_port_never_does_more_than_a_cycle_has(taken: list[tuple[int, float]]) -> None:
    port = Port()
    for cycle, time in taken:
        first = port.free(cycle)
        assert first >= cycle
        assert all(port.used.get(each, 0.0) > 1 - 1e-5 for each in range(cycle, first))
        port.take(cycle, time)
    assert all(used <= 1 + 1e-9 for used in port.used.values())
    assert sum(port.used.values()) == pytest.approx(sum(time for _, time in taken), abs=1e-6)


def test_short_chains_are_hidden_and_long_ones_seen() -> None:
    """Where half of a chain's latency is seen of 96, of a few nothing is, and of many most."""
    of = core(chains=2.0)
    assert of.rates.window == 96 / 2 + 1
    assert cycles(chain(8), of) == pytest.approx(8, rel=0.05)
    assert cycles(chain(400), of) > 0.7 * 400 * 4


@pytest.mark.parametrize("seen", [2.0, 2.5, 3.0])
def test_chains_take_what_was_measured_of_them(seen: float) -> None:
    """Or somewhat longer: other code does not wait in as many places."""
    assert 0.8 * 96 * seen < cycles(chain(96), core(chains=seen)) < 1.3 * 96 * seen


CALLED = """define <16 x float> @work(<16 x float> %x, <16 x float> %y) {{
entry:
{body}
  ret <16 x float> %x{last}
}}
"""


def of_calls(length: int, argument: str) -> float:
    """Cycles of a loop that calls a chain of so many multiply-adds, on `argument`."""
    fused = (
        "call <16 x float> @llvm.fma.v16f32(<16 x float> %x{0}, <16 x float> %y, <16 x float> %y)"
    )
    steps = (f"  %x{at + 1} = {fused.format(at or '')}" for at in range(length))
    text = loop(
        f"  %sum = call <16 x float> @work(<16 x float> {argument}, <16 x float> %a)"
    ).replace("%i = phi", "%last = phi <16 x float> [ %a, %entry ], [ %sum, %loop ]\n  %i = phi")
    called = CALLED.format(body="\n".join(steps), last=length)
    return time_ns(called + text, core(chains=2.0)) / LONG


def test_short_functions_are_executed_among_the_code_around_them() -> None:
    """A chain that goes on in the next call is seen whole, others overlap; of a long function as
    much is seen as where it follows itself.
    """
    assert of_calls(8, "%last") == pytest.approx(8 * 4, rel=0.05)
    assert of_calls(8, "%a") < 0.4 * 8 * 4
    assert of_calls(400, "%last") == pytest.approx(of_calls(400, "%a"), rel=0.05)


def test_products_of_a_function_are_part_of_its_own_sums() -> None:
    """Its names stand for other values than those of the code that calls it."""
    called = """define <16 x float> @work(<16 x float> %x, <16 x float> %y) {
entry:
  %product = fmul contract <16 x float> %x, %y
  %sum = fadd contract <16 x float> %product, %y
  ret <16 x float> %sum
}
"""
    body = "  %sum = call <16 x float> @work(<16 x float> %last, <16 x float> %a)"
    carried = "%last = phi <16 x float> [ %a, %entry ], [ %sum, %loop ]"
    text = called + loop(body).replace("%i = phi", f"{carried}\n  %i = phi")
    of = core(chains=2.0)
    assert time_ns(text, of) / LONG == pytest.approx(CYCLES[MULTIPLIED], rel=0.05)


def test_a_call_that_is_rare_takes_its_part() -> None:
    """Of a branch that nothing is known of."""
    chain_of = "\n".join(f"  %x{at + 1} = fdiv <16 x float> %x{at or ''}, %y" for at in range(4))
    called = CALLED.format(body=chain_of, last=4)
    whole = "  %sum = call <16 x float> @work(<16 x float> %a, <16 x float> %a)"
    half = f"""  %one = load volatile i32, ptr %p1, align 4
  %odd = icmp ne i32 %one, 0
  br i1 %odd, label %some, label %rest
some:
{whole}
  br label %rest
rest:"""
    of = core(chains=2.0, division=20.0)
    texts = [called + loop(body) for body in (whole, half)]
    texts[1] = texts[1].replace("[ %next, %loop ]", "[ %next, %rest ]")
    always, sometimes = (time_ns(text, of) for text in texts)
    assert sometimes == pytest.approx(always / 2, rel=0.2)


def test_no_chains_were_measured() -> None:
    """Of a described processor, say: only all instructions limit what is inside."""
    rates = {name: time for name, time in CYCLES.items() if name != CHAINS}
    of = Core(OperationRates(rates | {"simple": 0.5}), 512, 1.0, {})
    assert 48 <= cycles(chain(48), of) < 1.2 * 48
    # All but so many instructions of a chain have left when the next one begins.
    assert cycles(chain(700), of) == pytest.approx(4 * (700 - AHEAD), rel=0.1)


def test_operations_on_half_a_register() -> None:
    """And on single elements, which take as much."""
    halves = {"half simple": 0.25, "half store": 0.5, "half access": 0.2}
    of = core(1.0, **halves, **{STORE: 2.0, ACCESS: 0.2})
    for kind, sums, stores in (
        ("<16 x float>", 8, 16),
        ("<8 x float>", 4, 4),
        ("float", 4, 4),
    ):
        start = f"  %x = load volatile {kind}, ptr %p1, align 4\n"
        adds = "\n".join(f"  %s{at} = fadd {kind} %x, %x" for at in range(8))
        assert cycles(start + adds, of) == pytest.approx(sums, rel=0.05), kind
        store = "\n".join(8 * [f"  store {kind} zeroinitializer, ptr %p0, align 4"])
        assert cycles(store, of) == pytest.approx(stores, rel=0.05), kind


def test_operations_share_the_ports_of_what_they_make_longer() -> None:
    """Shifts go on where sums are, and beside products."""
    shifts = {"beside logic": 1.3, "beside sums": 2.0, "beside products": 1.0}
    rates = {f"{SHIFT} {beside}": time for beside, time in shifts.items()}
    of = core(1.0, **{"integer": 0.8}, **rates)
    shift = "\n".join(f"  %s{at} = shl <16 x i32> %n, splat (i32 {at})" for at in range(8))
    start = "  %n = load volatile <16 x i32>, ptr %p1, align 4\n"
    sums = "\n".join(f"  %t{at} = fadd <16 x float> %a, %x" for at in range(8))
    fused = "\n".join(
        f"  %t{at} = call <16 x float> @llvm.fma.v16f32(<16 x float> %a, <16 x float> %x,"
        " <16 x float> %x)"
        for at in range(8)
    )
    start += "  %x = load volatile <16 x float>, ptr %p1, align 4\n"
    assert cycles(f"{start}{shift}\n{sums}", of) == pytest.approx(16, rel=0.05)
    assert cycles(f"{start}{shift}\n{fused}", of) == pytest.approx(8, rel=0.1)


def test_what_has_begun_waits_no_more() -> None:
    """Of 49 that may wait a chain of 40 leaves room for nine others; those that need nothing begin
    at once and make room for more.
    """
    of = core(chains=2.0)
    alone = cycles(chain(40), of)
    others = "\n".join(f"  %o{at} = fadd <16 x float> %a, %a{at}" for at in range(60))
    loads = "\n".join(
        f"  %a{at} = load volatile <16 x float>, ptr %p1, align 4" for at in range(60)
    )
    assert cycles(f"{loads}\n{others}\n{chain(40)}", of) < alone + 60


def test_what_is_the_same_in_each_iteration_takes_no_time_in_it() -> None:
    of = core(1.0)
    quotient = "  %q = fdiv <16 x float> %a, %a\n  store <16 x float> %q, ptr %p0, align 4"
    assert cycles(quotient, of) == pytest.approx(CYCLES[STORE], rel=0.05)
    part = (
        "  %h = shufflevector <16 x float> %a, <16 x float> poison, <2 x i32> <i32 0, i32 1>\n"
        "  %q = fdiv <2 x float> %h, %h\n  store <2 x float> %q, ptr %p0, align 4"
    )
    assert cycles(part, of) >= CYCLES["half division"]


@pytest.mark.parametrize(("value", "quotients"), [("%x", 1), ("%a", 0)])
def test_what_an_outer_loop_changes_is_computed_once_for_each_of_its_iterations(
    value: str, quotients: int
) -> None:
    """Four stores for each quotient; what no loop changes is computed before both."""
    text = f"""define void @code(ptr %p0, ptr %p1) {{
entry:
  %a = load <16 x float>, ptr %p1, align 4
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i1, %more ]
  %x = load volatile <16 x float>, ptr %p1, align 4
  br label %inner
inner:
  %j = phi i64 [ 0, %outer ], [ %j1, %inner ]
  %q = fdiv <16 x float> {value}, {value}
  store <16 x float> %q, ptr %p0, align 4
  %j1 = add i64 %j, 1
  %again = icmp slt i64 %j1, 4
  br i1 %again, label %inner, label %more
more:
  %i1 = add i64 %i, 1
  %last = icmp slt i64 %i1, {LONG}
  br i1 %last, label %outer, label %done
done:
  ret void
}}"""
    expected = max(60.0 * quotients, 4 * CYCLES[STORE])
    assert time_ns(text, core(1.0, division=60.0)) / LONG == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("offset", "waits"), [(0, True), (5, True), (15, True), (16, False)])
def test_an_element_of_a_vector_that_was_just_stored_waits_for_it(offset: int, waits: bool) -> None:
    """Sums that go through memory, by one element of them or by one behind them."""
    body = f"""  %place = getelementptr float, ptr %p0, i64 {offset}
  %one = load float, ptr %place, align 4
  %in = insertelement <16 x float> poison, float %one, i64 0
  %all = shufflevector <16 x float> %in, <16 x float> poison, <16 x i32> zeroinitializer
  %sum = fadd <16 x float> %all, %a
  store <16 x float> %sum, ptr %p0, align 4"""
    of = core(chains=2.0)
    least = of.rates.of(FORWARD)
    assert (cycles(body, of) == pytest.approx(least, rel=0.05)) == waits
    assert waits or cycles(body, of) < 0.3 * least


STORED_TWICE = """  store <16 x float> {value}, ptr %p0, align 4
  %behind = getelementptr float, ptr %p0, i64 16
  store <16 x float> {value}, ptr %behind, align 4
  %place = getelementptr float, ptr %p0, i64 {offset}
  %part = load <{lanes} x float>, ptr %place, align 4
  %all = shufflevector <{lanes} x float> %part, <{lanes} x float> poison, <16 x i32> <{order}>
  %sum = fadd <16 x float> %all, %a"""


def stored_twice(value: str, lanes: int, offset: int) -> float:
    """Cycles of an iteration that stores two vectors of a value, and adds to so many lanes of them,
    from an offset on; `%last` is the sum of the iteration before.
    """
    order = ", ".join(f"i32 {lane % lanes}" for lane in range(16))
    body = STORED_TWICE.format(value=value, lanes=lanes, offset=offset, order=order)
    carried = "%last = phi <16 x float> [ %a, %entry ], [ %sum, %loop ]"
    text = loop(body).replace("%i = phi", f"{carried}\n  %i = phi")
    return time_ns(text, core(chains=2.0)) / LONG


@pytest.mark.parametrize(
    ("lanes", "offset", "waits"),
    [
        *[(8, 0, False), (8, 8, False), (8, 24, False), (8, 3, True), (8, 12, True)],
        *[(16, 8, True), (16, 5, True)],
    ],
)
def test_what_lies_across_what_was_stored_waits_for_the_cache(
    lanes: int, offset: int, waits: bool
) -> None:
    """A half of one of two vectors, or of both, or halves of both."""
    took, forward = stored_twice("%last", lanes, offset), CYCLES[FORWARD]
    assert took > forward
    assert (took > 1.8 * forward) == waits


def test_what_waits_for_the_cache_waits_until_the_store_has_left() -> None:
    """In the order of the program, behind what the iteration before has waited for."""
    forward = CYCLES[FORWARD]
    assert stored_twice("%a", 8, 8) < 0.5 * forward
    assert stored_twice("%a", 8, 3) > 1.5 * forward


def test_what_was_stored_long_ago_is_in_the_cache() -> None:
    """The second loop begins with what the first, of which little is walked, stored first."""
    place = "  %at = getelementptr <16 x float>, ptr %p0, i64 %i\n"
    store = place + "  store <16 x float> %a, ptr %at, align 4"
    text = loop(store, then="  %b = load <16 x float>, ptr %p0, align 4")
    assert time_ns(text, core(1.0, **{FORWARD: 1e6})) < 10 * LONG


def test_pieces_that_are_run_in_no_time_are_one() -> None:
    """What a loop computes between its loads overlaps with them; what takes long by itself stands
    apart.
    """

    def pieces(length: int) -> int:
        text = f"""define void @code(ptr %p0, ptr %p1) {{
entry:
  %a = load <16 x float>, ptr %p1, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %latch ]
  br label %inner
inner:
  %j = phi i64 [ 0, %loop ], [ %after, %inner ]
{chain(8)}
  %after = add i64 %j, 1
  %on = icmp slt i64 %after, {length}
  br i1 %on, label %inner, label %latch
latch:
  %at = getelementptr float, ptr %p0, i64 %i
  store float 1.0, ptr %at, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {LONG}
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""
        return len(BlockTimes(text, core(1.0)).works("code", VALUES))

    # What stands before the loop is one, too.
    assert pieces(4) < pieces(400)


def test_of_a_loop_around_others_the_middle_is_walked() -> None:
    """The rows of a triangle: half as long as the longest on average."""
    text = f"""define void @code(ptr %p0, ptr %p1) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %latch ]
  br label %inner
inner:
  %j = phi i64 [ 0, %loop ], [ %after, %inner ]
  store float 1.0, ptr %p0, align 4
  %after = add i64 %j, 1
  %on = icmp sle i64 %after, %i
  br i1 %on, label %inner, label %latch
latch:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {LONG}
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""
    works = BlockTimes(text, core(1.0)).works("code", VALUES)
    stores = sum(each.bytes_.get("%p0", 0.0) for each in works) / 4
    assert stores == pytest.approx(LONG**2 / 2, rel=0.01)


def test_a_store_may_have_changed_what_an_unknown_address_has() -> None:
    known, float_ = Known({}, {}), Kind(1, 32, True)
    load, again = (Instruction(name, "load", ("%x",), float_) for name in ("%a", "%b"))
    assert known.note(load, None) is None
    assert known.note(again, None) == "%a"
    known.note(Instruction("", "store", ("%c", "%p0"), float_), Place("%p0", 0))
    assert known.note(again, None) is None


def test_the_same_of_what_is_loaded_again_is_computed_once() -> None:
    """Not if a store came between: then it is another number."""

    def roots(between: str) -> str:
        return "\n".join(
            f"""  %x{at} = load <16 x float>, ptr %p1, align 4
  %d{at} = fdiv <16 x float> %a, %x{at}
  %r{at} = call <16 x float> @llvm.sqrt.v16f32(<16 x float> %d{at})
  {between}"""
            for at in range(2)
        )

    of = core(16.0, division=100.0, sqrt=100.0)
    once, twice = (
        cycles(roots(between), of) for between in ("", "store <16 x float> %a, ptr %p1, align 4")
    )
    assert twice == pytest.approx(2 * once, rel=0.05)


@functools.cache
def host() -> Core:
    """This machine, as the time model has it."""
    isa, peak = host_isa(), machine().find("float32", PEAK, 1)
    assert peak is not None
    fused_ns = 2 * isa.lanes(4) / peak.value
    return Core(operation_rates(), isa.vector_bits, fused_ns, {}, isa.fma)


def test_what_operations_usually_take_is_no_less_than_at_best() -> None:
    assert 1.0 <= operation_rates().usual < 2.0


@pytest.mark.parametrize(
    "name",
    [
        *("simple", "load", "store", "access", DIVISION, "chain", FORWARD, MULTIPLIED, CHAINS),
        *(f"half {name}" for name in HALVED),
        *FUNCTIONS,
        *(f"{name} beside {other}" for name in MIXED for other in BESIDE),
        *(f"{name} {AFTER}" for name in MIXED),
    ],
)
def test_probes_take_on_the_model_what_they_took_on_the_machine(name: str) -> None:
    """Loops of functions too, whose times the model makes of their operations."""
    probe = operation_probe(name, host_isa())
    times = BlockTimes(optimized_text(probe.ir_text), host())
    works = times.works("work", {"%area": Place("%area", 0), "%repeats": LONG})
    each_ns = sum(each.time_ns for each in works) / LONG / probe.work
    assert each_ns == pytest.approx(operation_rates().of(name), rel=0.35)
