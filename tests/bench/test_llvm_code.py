"""LLVM IR as the time model reads it: parts of its text, numbers and loops, against LLVM itself."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.bench.llvm.block_time import BlockTimes
from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.core_costs import (
    ACCESSES,
    ADD,
    ARITHMETIC,
    FREE,
    LANES,
    LOADS,
    MULTIPLY,
    STORES,
)
from tileworkbench.bench.llvm.costs import Costs, named_kind
from tileworkbench.bench.llvm.instructions import (
    Function,
    Instruction,
    parse_functions,
    parse_kind,
)
from tileworkbench.bench.llvm.loops import shape_of, successors
from tileworkbench.bench.llvm.values import Place, Values, evaluate, moved, step
from tileworkbench.bench.operation_probes import operation_probe
from tileworkbench.bench.operation_rates import (
    ACCUMULATED,
    CHAIN,
    CYCLE,
    FORWARD,
    GATHER,
    LOAD,
    MULTIPLIED,
    OperationRates,
    assumed_rates,
)
from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.device.host.llvm import optimized_text
from tileworkbench.compiler.device.host.native import build_native

RATES = assumed_rates(1.0)
CORE = Core(
    *(RATES, 512, 1.0, {"bfloat16": 1.0, "int8": 1.0}), tiles_ns={"bfloat16": 16.0, "int8": 16.0}
)
ENTRY = "i32 @code(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch)"


def function_of(body: str, head: str = "void @code(ptr %p0, i32 %block)") -> Function:
    return parse_functions(f"define {head} {{\n{body}\n}}")["code"]


def costs_of(body: str, core: Core = CORE) -> dict[str, Any]:
    """The cost of each instruction of a block, by its name."""
    function = function_of(f"entry:\n{body}\n  ret void")
    costs = Costs(core, function)
    return {each.name or each.op: costs.of(each) for each in function.blocks["entry"]}


def busy(cost: Any) -> dict[str, float]:
    return dict(cost.busy)


def accessed(times: BlockTimes, values: Values) -> float:
    """Bytes of the first argument that a call of `code` loads and stores."""
    return sum(each.bytes_.get("%p0", 0.0) for each in times.works("code", values))


def time_ns(text: str, values: Values, core: Core = CORE) -> float:
    """Nanoseconds of a call of `code` among others."""
    return sum(each.time_ns for each in BlockTimes(text, core).works("code", values))


def only(cost_ns: float, *operations: str) -> Core:
    """A core on which nothing takes time but operations that are named."""
    rates = {name: cost_ns if name in operations else 1e-3 for name in RATES.vector_ns}
    return Core(OperationRates({**rates, CYCLE: 0.01}), 512, 1e-3, {})


# The text.


def test_parts_of_instructions() -> None:
    function = function_of(
        """entry:
  %v1 = load atomic i32, ptr %p0 monotonic, align 4
  %v2 = getelementptr inbounds nuw [4 x float], ptr %p0, i64 %v0, i64 3
  %v3 = load <16 x float>, ptr %v2, align 4, !nontemporal !0
  store <16 x float> splat (float 6.250000e-02), ptr %v2, align 4
  %v4 = call reassoc float @llvm.vector.reduce.fadd.v64f32(float -0.000000e+00, <64 x float> %v3)
  %v5 = shufflevector <4 x i8> %v3, <4 x i8> poison, <4 x i32> <i32 2, i32 poison, i32 0, i32 1>
  %v6 = select <2 x i1> <i1 true, i1 false>, <2 x float> %v3, <2 x float> %v4
  %v7 = fadd contract <16 x float> %v3, %v3
  %v8 = icmp samesign ult i32 %v1, 256
  br i1 %v8, label %entry, label %done
done:                                             ; preds = %entry
  ret void""",
    )
    flag, place, load, store, total, shuffle, choice, added, test, branch = function.blocks["entry"]
    assert (flag.detail, flag.kind, flag.args) == ("atomic", parse_kind("i32"), ("%p0",))
    assert place.strides == (16, 4) and place.args == ("%p0", "%v0", "3")
    assert load.kind.bytes_ == 64 and load.args == ("%v2",)
    assert store.args[1] == "%v2" and store.kind.lanes == 16
    assert total.detail == "llvm.vector.reduce.fadd.v64f32" and total.args[1] == "%v3"
    assert shuffle.mask == (2, None, 0, 1)
    assert choice.mask == (1, 0) and choice.kind.lanes == 2
    assert added.is_contract and not load.is_contract
    assert (test.detail, test.args) == ("ult", ("%v1", "256"))
    assert branch.labels == ("entry", "done") and branch.args == ("%v8",)
    assert function.params == ("%p0", "%block")


def test_a_switch_has_all_its_targets() -> None:
    function = function_of(
        """entry:
  switch i32 %block, label %c [
    i32 0, label %a
    i32 7, label %b
  ]
a:
  ret void
b:
  ret void
c:
  ret void"""
    )
    (switch,) = function.blocks["entry"]
    assert switch.labels == ("c", "a", "b") and successors(function, "entry") == switch.labels


MADE = [
    kernels.matmul(64, 64, 64),
    kernels.matmul(64, 64, 64, "bfloat16"),
    kernels.softmax(8, 1000),
    kernels.flash_attention(1, 1, 128, 128, 64, causal=True),
    kernels.dequant_gemv(32, 256),
    kernels.rope(1, 16, 2, 64),
    kernels.histogram(4096, 64),
    kernels.topk(16, 128, 4),
]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.program.name)
def test_all_code_of_kernels_is_understood(made: Any) -> None:
    """Every operand is a number, a constant, or a result; every label a block."""
    text = optimized_text(tw.compile(made).source)
    functions = parse_functions(text)
    assert functions.keys() == {
        line.split("@")[1].split("(")[0] for line in text.splitlines() if line.startswith("define")
    }
    for function in functions.values():
        names = set(function.params)
        names |= {each.name for block in function.blocks.values() for each in block}
        for block in function.blocks.values():
            for each in block:
                assert {arg for arg in each.args if arg.startswith("%")} <= names, each
                if each is not block[-1] and each.op == "br":
                    assert len(each.labels) == 1  # goes on here
                else:
                    assert set(each.labels) <= function.blocks.keys()
                assert each.detail != "?"
                if each.name and each.op not in ("call", "alloca", "cmpxchg", "extractvalue"):
                    assert each.kind.lanes, each
        shape = shape_of(function)
        for label, place in shape.order.items():
            for to in successors(function, label):
                assert shape.order[to] > place or label in shape.loops[to].latches


# Numbers.


@pytest.fixture(scope="module")
def run() -> Any:
    """Calls code with an array of i64 arguments; returns its i32."""
    kept = []

    def called(body: str, args: list[int]) -> int:
        native = build_native(f"define {ENTRY} {{\n{body}\n}}", ("code",)).functions["code"]
        kept.append(native)
        words = (ctypes.c_int64 * len(args))(*args)
        call = ctypes.CFUNCTYPE(
            ctypes.c_int32,
            *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p),
        )
        return int(call(native.address)(ctypes.addressof(words), 0, 1, None, None))

    return called


OPERATIONS = ["add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "sdiv", "udiv"]
OPERATIONS += ["srem", "urem", "icmp slt", "icmp ult", "icmp sge", "icmp ne"]
NUMBERS = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-9, 9))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), NUMBERS), min_size=1, max_size=5), NUMBERS)
def test_numbers_are_those_that_llvm_computes(run: Any, steps: list[Any], start: int) -> None:
    lines, value = [f"  %v0 = add i32 {start}, 0"], 0
    for at, (operation, number) in enumerate(steps, 1):
        if operation in ("shl", "lshr", "ashr"):
            number %= 32
        elif operation[1:] in ("div", "rem"):
            number = abs(number) + 2 if number > -(2**31) else 3
            number = min(number, 2**31 - 1)
        is_test = operation.startswith("icmp")
        lines.append(f"  %v{at}{'.bit' * is_test} = {operation} i32 %v{at - 1}, {number}")
        if is_test:
            lines.append(f"  %v{at} = zext i1 %v{at}.bit to i32")
        value = at
    body = "\n".join(["entry:", *lines, f"  ret i32 %v{value}"])
    values: Values = {}
    for each in function_of(body, ENTRY).blocks["entry"]:
        found = evaluate(each, values) if each.name else None
        if found is not None:
            values[each.name] = found
    assert values[f"%v{value}"] == run(body, [0])


def test_places_move_by_bytes() -> None:
    function = function_of(
        """entry:
  %v1 = alloca [64 x float], align 64
  %v2 = getelementptr float, ptr %v1, i64 %at
  %v3 = getelementptr i8, ptr %v2, i64 -4
  ret void"""
    )
    values: Values = {"%at": 3}
    for each in function.blocks["entry"][:3]:
        values[each.name] = evaluate(each, values)  # type: ignore[assignment]
    assert values["%v2"] == Place("%v1", 12) and values["%v3"] == Place("%v1", 8)
    assert step(values["%v3"], values["%v2"]) == 4 and step(values["%v2"], 7) is None
    assert moved(Place("%v1", 8), 4) == Place("%v1", 12) and moved(None, 4) is None
    assert moved(5, None) is None and moved(5, 0) == 5


def test_what_is_expected_is_taken() -> None:
    function = function_of(
        """entry:
  %x = load i32, ptr %p0, align 4
  %odd = icmp eq i32 %x, 1
  %usual = call i1 @llvm.expect.i1(i1 %odd, i1 true)
  ret void"""
    )
    _, odd, usual, _ = function.blocks["entry"]
    assert evaluate(odd, {}) is None and evaluate(usual, {}) == 1


# Loops.

LOOP = """entry:
  br label %loop
loop:
  %i = phi i32 [ {start}, %entry ], [ %next, %loop ]
  %n = phi i32 [ 0, %entry ], [ %count, %loop ]
  %count = add i32 %n, 1
  store float 1.0, ptr {place}, align 4
  %next = add i32 %i, {step}
  %more = icmp {test} i32 {tested}, {end}
  br i1 %more, label {then}, label {otherwise}
done:
  ret {result}"""


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["slt", "sle", "sgt", "sge", "ne", "ult"]),
    st.integers(-20, 20),
    st.integers(1, 5),
    st.integers(-20, 60),
    st.booleans(),
)
def test_loops_count_as_often_as_they_are_executed(
    run: Any, test: str, start: int, by: int, end: int, is_next: bool
) -> None:
    """Loops that would not end within 100 iterations are left out."""
    by = -by if test in ("sgt", "sge") else by
    if test == "ne":
        end = start + by * (abs(end) % 9 + 1)
    if test == "ult":
        start, end = abs(start), abs(end)
    goes_on = {"slt": int.__lt__, "sle": int.__le__, "sgt": int.__gt__, "sge": int.__ge__}
    goes_on |= {"ne": int.__ne__, "ult": int.__lt__}
    values = itertools.count(start + (by if is_next else 0), by)
    trips = next((n for n, v in enumerate(values, 1) if not goes_on[test](v, end)), 0)
    parts = {"start": start, "step": by, "test": test, "end": end, "then": "%loop"}
    parts |= {"tested": "%next" if is_next else "%i", "otherwise": "%done"}
    body = LOOP.format(**parts, place="%args", result="i32 %count")
    assert run(body, [0]) == trips
    body = LOOP.format(**parts, place="%p0", result="void")
    times = BlockTimes(f"define void @code(ptr %p0, i32 %block) {{\n{body}\n}}", CORE)
    assert accessed(times, {"%p0": Place("%p0", 0)}) == pytest.approx(4 * trips)


NESTED = """define i32 @code(ptr %p0, i32 %block, ptr %flag) {
entry:
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %i.next, %latch ]
  %stop = load atomic i32, ptr %flag monotonic, align 4
  %go = icmp eq i32 %stop, 0
  br i1 %go, label %inner, label %done
inner:
  %j = phi i32 [ 0, %outer ], [ %j.next, %inner ]
  store float 1.0, ptr %p0, align 4
  %j.next = add i32 %j, 1
  %more = icmp ult i32 %j.next, 10
  br i1 %more, label %inner, label %after
after:
  %small = icmp slt i32 %i, %block
  br i1 %small, label %some, label %latch
some:
  store float 2.0, ptr %p0, align 4
  br label %latch
latch:
  %i.next = add i32 %i, 1
  %again = icmp slt i32 %i.next, 12
  br i1 %again, label %outer, label %done
done:
  %code = phi i32 [ 0, %latch ], [ 1, %outer ]
  ret i32 %code
}"""


def test_loops_inside_each_other_and_branches() -> None:
    """12 x 10 stores, and one in each iteration before the block's number; %flag stops nothing."""
    times = BlockTimes(NESTED, CORE)
    shape = shape_of(times.functions["code"])
    assert set(shape.loops) == {"outer", "inner"}
    assert shape.loops["inner"].parent is shape.loops["outer"]

    def stores(block: int) -> float:
        return accessed(times, {"%p0": Place("%p0", 0), "%block": block}) / 4

    assert stores(0) == pytest.approx(120)
    assert stores(6) == pytest.approx(126)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("eq i32 %i, 0", 1), ("eq i32 0, %i", 1), ("ne i32 %i, 0", 11), ("eq i32 %i, 40", 0)],
)
def test_what_is_done_in_the_first_iteration_only(condition: str, expected: int) -> None:
    """However long the iterations are, of which one stands for all then."""
    text = NESTED.replace("slt i32 %i, %block", condition)
    for trips in (10, 20_000):
        times = BlockTimes(text.replace("%j.next, 10", f"%j.next, {trips}"), CORE)
        stores = accessed(times, {"%p0": Place("%p0", 0), "%block": 0}) / 4
        assert stores - 12 * trips == pytest.approx(expected, abs=0.01)


# Costs.


def test_what_llvm_makes_no_instruction_of_is_free() -> None:
    found = costs_of(
        """  %x = load float, ptr %p0, align 4
  %one = insertelement <16 x float> poison, float %x, i64 0
  %all = shufflevector <16 x float> %one, <16 x float> poison, <16 x i32> zeroinitializer
  %a = load <32 x float>, ptr %p0, align 4
  %low = shufflevector <32 x float> %a, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %turned = shufflevector <16 x float> %low, <16 x float> poison, <16 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6, i32 9, i32 8, i32 11, i32 10, i32 13, i32 12, i32 15, i32 14>
  %product = fmul contract <16 x float> %all, %turned
  %sum = fadd contract <16 x float> %low, %product
  %place = getelementptr float, ptr %p0, i64 16"""  # noqa: E501
    )
    for name in ("%one", "%all", "%low", "%product", "%place"):
        assert not found[name].busy and found[name].instructions == 0, name
    assert LANES in busy(found["%turned"])
    assert busy(found["%sum"])[MULTIPLY] == 1.0
    assert found["%sum"].latency(0) == RATES.of(ACCUMULATED)
    assert found["%sum"].latency(1) == RATES.of(MULTIPLIED)


def test_products_that_others_use_are_instructions() -> None:
    found = costs_of(
        """  %a = load <16 x float>, ptr %p0, align 4
  %product = fmul contract <16 x float> %a, %a
  %sum = fadd contract <16 x float> %a, %product
  %other = fadd contract <16 x float> %a, %product
  %third = fmul <16 x float> %a, %a
  %strict = fadd <16 x float> %a, %third"""
    )
    assert MULTIPLY in busy(found["%product"]) and MULTIPLY in busy(found["%third"])
    assert ADD in busy(found["%sum"]) and ADD in busy(found["%strict"])


def test_vectors_of_several_registers_take_so_many() -> None:
    found = costs_of(
        """  %a = load <64 x float>, ptr %p0, align 4
  %sum = fadd <64 x float> %a, %a
  %b = load <4 x float>, ptr %p0, align 4
  store <64 x float> %sum, ptr %p0, align 4"""
    )
    assert busy(found["%a"])[LOADS] == 4 * RATES.of("load")
    assert busy(found["%b"])[LOADS] == RATES.of("load")
    assert busy(found["%sum"])[ADD] == 4.0
    assert busy(found["store"])[STORES] == 4 * RATES.of("store")
    assert busy(found["store"])[ACCESSES] == 4 * RATES.of("access")


@pytest.mark.parametrize(
    ("first", "rest", "second", "is_free"),
    [
        (range(8), 8, "zeroinitializer", True),
        (range(8), 8, "%y", False),
        (range(1, 9), 8, "zeroinitializer", False),
        (range(8), 3, "zeroinitializer", False),
    ],
)
def test_zeros_behind_a_part_of_a_register_cost_nothing(
    first: range, rest: int, second: str, is_free: bool
) -> None:
    """A load clears them."""
    order = ", ".join(f"i32 {lane}" for lane in (*first, *[rest] * 8))
    both = f"<8 x float> %x, <8 x float> {second}"
    costs = costs_of(f"  %s = shufflevector {both}, <16 x i32> <{order}>")
    assert (costs["%s"] == FREE) == is_free


def test_a_gather_takes_a_time_for_each_lane() -> None:
    def gather(lanes: int, which: str = "splat (i1 true)", element: str = "float") -> Any:
        short = {"float": "f32", "bfloat": "bf16"}[element]
        kind = f"<{lanes} x {element}> @llvm.masked.gather.v{lanes}{short}.v{lanes}p0"
        args = f"<{lanes} x ptr> %p, i32 4, <{lanes} x i1> {which}, <{lanes} x {element}> %x"
        return costs_of(f"  %g = call {kind}({args})")["%g"]

    assert busy(gather(16))[LOADS] == RATES.of(GATHER)
    assert busy(gather(8))[LOADS] == RATES.of(GATHER) / 2
    # Addresses out of vectors and elements into them are operations on vectors, which wait; a core
    # does by itself what a condition chooses, if its elements are no shorter than 32 bits.
    assert gather(16).busy[0][0] == gather(16, "%m", "bfloat").busy[0][0] == ARITHMETIC
    assert gather(16, "%m").busy[0][0] == LOADS
    assert gather(16).instructions == 2 * gather(8).instructions > 2 * 16


def test_products_of_tiles_take_their_peak() -> None:
    found = costs_of(
        """  call void @llvm.x86.tileloadd64(i8 4, ptr %p0, i64 64)
  call void @llvm.x86.tdpbf16ps(i8 0, i8 4, i8 6)"""
    )
    product = busy(found["call"])  # the last one of that name
    assert product == {MULTIPLY: 16.0}
    load = costs_of("  call void @llvm.x86.tileloadd64(i8 4, ptr %p0, i64 64)")["call"]
    assert busy(load) == {LOADS: 16 * RATES.of("load")}


def test_types_in_names() -> None:
    for name, lanes, bits in (
        ("llvm.masked.store.v16f32.p0", 16, 32),
        ("llvm.masked.scatter.v8i64.v8p0", 8, 64),
        ("llvm.vector.reduce.fadd.v32bf16", 32, 16),
        ("llvm.x86.avx512.mask.scatter.dps.512", 1, 32),
    ):
        kind = named_kind(Instruction("", "call", detail=name))
        assert (kind.lanes, kind.bits) == (lanes, bits)


@pytest.mark.parametrize(
    "operation",
    [
        "fadd <16 x float> %x, %x",
        "sitofp <16 x i32> %n to <16 x float>",
        "fptosi <16 x float> %x to <16 x i32>",
        "call <16 x float> @llvm.floor.v16f32(<16 x float> %x)",
        "call <16 x float> @llvm.x86.avx512.mask.range.ps.512(<16 x float> %x, <16 x float> %x,"
        " i32 5, <16 x float> zeroinitializer, i16 -1, i32 4)",
        "call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %x, <16 x float> %x,"
        " <16 x float> zeroinitializer, i16 -1, i32 4)",
    ],
)
def test_what_is_done_where_additions_are(operation: str) -> None:
    """Beside products, as micro-measurements on a Zen 4 say."""
    taken = busy(costs_of(f"  %made = {operation}")["%made"])
    assert taken[ADD] > 0
    assert MULTIPLY not in taken


@pytest.mark.parametrize(
    ("between", "to", "loads"),
    [
        ("", "label %more", 2),  # a vector and, at the same place, a number
        ("", "i1 %c, label %more, label %done", 2.5),
        ("store float 1.0, ptr %p1, align 4", "label %more", 2),
        ("store float 1.0, ptr %p0, align 4", "label %more", 2),
        ("store float 1.0, ptr %at, align 4", "label %more", 3),
        ("store <32 x float> zeroinitializer, ptr %p0, align 4", "label %more", 3),
        ("store float 1.0, ptr %p2, align 4", "label %more", 3),  # wherever that is
        ("store <16 x float> %a, ptr %at, align 4", "label %more", 2),
        ("call void @llvm.prefetch.p0(ptr %p1, i32 0, i32 3, i32 1)", "label %more", 3),
        ("%u = call float @llvm.fma.f32(float 1.0, float 1.0, float 1.0)", "label %more", 2),
    ],
)
def test_what_a_register_has_is_not_loaded_again(between: str, to: str, loads: float) -> None:
    """As LLVM selects instructions; blocks that only follow each other are one."""
    text = f"""define void @code(ptr %p0, ptr %p1, ptr %p2, i1 %c) {{
entry:
  %at = getelementptr i8, ptr %p0, i64 64
  %a = load <16 x float>, ptr %at, align 4
  %n = load i32, ptr %at, align 4
  {between}
  br {to}
more:
  %same = getelementptr i8, ptr %p0, i64 64
  %b = load <16 x float>, ptr %same, align 4
  %s = fadd <16 x float> %a, %b
  store <16 x float> %s, ptr %p1, align 4
  br label %done
done:
  ret void
}}"""
    values = {"%p0": Place("%p0", 0), "%p1": Place("%p1", 0)}
    assert time_ns(text, values, only(1.0, LOAD, f"half {LOAD}")) == pytest.approx(loads, rel=0.03)


# Time.

CHAINED = """define void @code(ptr %p0, i32 %block) {{
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  {carried}
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, 1000000
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""


def waits_ns(carried: str, core: Core = CORE) -> float:
    """Nanoseconds that an iteration waits for the one before, in a long loop."""
    return time_ns(CHAINED.format(carried=carried), {"%p0": Place("%p0", 0)}, core) / 1000000


def test_sums_wait_for_each_other() -> None:
    carried = """%s = phi <16 x float> [ zeroinitializer, %entry ], [ %t, %loop ]
  %t = fadd <16 x float> %s, splat (float 1.0)"""
    assert waits_ns(carried) == pytest.approx(RATES.of(CHAIN), rel=1e-3)
    twice = carried.replace("%t = fadd", "%u = fadd").replace("[ %t,", "[ %t,")
    twice += "\n  %t = fadd <16 x float> %u, splat (float 2.0)"
    assert waits_ns(twice) == pytest.approx(2 * RATES.of(CHAIN), rel=1e-3)


def test_a_sum_in_memory_waits_for_the_store() -> None:
    carried = """%s = load <16 x float>, ptr %p0, align 4
  %x = load <16 x float>, ptr %p0, align 4
  %t = fadd <16 x float> %s, %x
  store <16 x float> %t, ptr %p0, align 4"""
    assert waits_ns(carried) == pytest.approx(RATES.of(FORWARD), rel=1e-3)


def test_nothing_waits_for_what_a_loop_before_has_stored_bit_by_bit() -> None:
    """A chain stores its sums one after the other; a loop that reads them finds all of them."""
    text = """define void @code(ptr %p0, ptr %p1) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi <16 x float> [ zeroinitializer, %entry ], [ %t, %loop ]
  %t = fadd <16 x float> %s, splat (float 1.0)
  %to = getelementptr <16 x float>, ptr %p0, i64 %i
  store <16 x float> %t, ptr %to, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 1000
  br i1 %more, label %loop, label %then
then:
  br label %second
second:
  %j = phi i64 [ 0, %then ], [ %after, %second ]
  %from = getelementptr <16 x float>, ptr %p0, i64 %j
  %x = load <16 x float>, ptr %from, align 4
  %at = getelementptr <16 x float>, ptr %p1, i64 %j
  store <16 x float> %x, ptr %at, align 4
  %after = add i64 %j, 1
  %on = icmp slt i64 %after, 1000
  br i1 %on, label %second, label %done
done:
  ret void
}"""
    values = {"%p0": Place("%p0", 0), "%p1": Place("%p1", 0)}
    chain = 1000 * RATES.of(CHAIN)
    assert chain < time_ns(text, values) < 1.1 * (chain + 1000 * RATES.of("store"))


def test_halves_of_a_vector_wait_apart() -> None:
    """One register of a value is replaced in each iteration: nothing waits for the other one."""
    low, high = (", ".join(f"i32 {lane}" for lane in range(at, at + 16)) for at in (0, 16))
    wide = ", ".join([low, *["i32 poison"] * 16])
    shifted = ", ".join([*["i32 poison"] * 16, low])
    first, second = (
        ", ".join([f"i1 {begin}"] * 16 + [f"i1 {end}"] * 16)
        for begin, end in (("true", "false"), ("false", "true"))
    )
    carried = f"""%v = phi <32 x float> [ zeroinitializer, %entry ], [ %both, %loop ]
  %a = shufflevector <32 x float> %v, <32 x float> poison, <16 x i32> <{low}>
  %a1 = fadd <16 x float> %a, splat (float 1.0)
  %aw = shufflevector <16 x float> %a1, <16 x float> poison, <32 x i32> <{wide}>
  %one = select <32 x i1> <{first}>, <32 x float> %aw, <32 x float> %v
  %b = shufflevector <32 x float> %one, <32 x float> poison, <16 x i32> <{high}>
  %b1 = fadd <16 x float> %b, splat (float 1.0)
  %bw = shufflevector <16 x float> %b1, <16 x float> poison, <32 x i32> <{shifted}>
  %both = select <32 x i1> <{second}>, <32 x float> %bw, <32 x float> %one"""
    assert waits_ns(carried) == pytest.approx(RATES.of(CHAIN), rel=1e-3)


def test_an_element_waits_for_itself_only() -> None:
    """Each lane adds to itself; what was put into the other lanes before is there later."""
    lanes = ["%v"]
    steps = ["%v = phi <8 x float> [ zeroinitializer, %entry ], [ %v7, %loop ]"]
    for lane in range(8):
        steps += [
            f"%x{lane} = extractelement <8 x float> {lanes[-1]}, i32 {lane}",
            f"%y{lane} = fadd float %x{lane}, 1.0",
            f"%v{lane} = insertelement <8 x float> {lanes[-1]}, float %y{lane}, i32 {lane}",
        ]
        lanes.append(f"%v{lane}")
    add, moved_ns = RATES.of(CHAIN), RATES.of(CHAIN) / 2
    # A lane goes out and is added to; the others go in one after the other meanwhile.
    assert waits_ns("\n  ".join(steps)) < 3 * add + 8 * moved_ns
    again = "\n  ".join([*steps, "%z = extractelement <8 x float> %v7, i32 3"])
    assert costs_of(again.split("\n", 1)[1])["%z"] == FREE


def test_short_chains_go_on_beside_the_next_ones() -> None:
    carried = """%s = phi <16 x float> [ zeroinitializer, %entry ], [ %t, %loop ]
  %t = fadd <16 x float> %s, splat (float 1.0)"""
    text = CHAINED.format(carried=carried).replace("1000000", "8")
    assert time_ns(text, {}) < 8 * 0.6 * RATES.of(CHAIN)
    assert waits_ns(carried) == pytest.approx(RATES.of(CHAIN), rel=1e-3)


def test_a_product_takes_its_multiply_adds() -> None:
    """At the peak, and a little for its beginnings and ends."""
    kernel = tw.compile(kernels.matmul(128, 128, 512, block_M=128, block_N=128, block_K=64))
    bits, lanes = host_isa().vector_bits, host_isa().lanes(4)
    fused_ns = 2 * lanes / 100.0
    core = Core(OperationRates({n: fused_ns / 4 for n in RATES.vector_ns}), bits, fused_ns, {})
    times = BlockTimes(optimized_text(kernel.source), core)
    (name,) = (name for name in times.functions if name.endswith("_block"))
    work = times.block_work(name, [0])
    least = 128 * 128 * 512 / lanes * fused_ns
    assert least <= sum(each.time_ns for each in work) < 1.25 * least
    moved = {name: round(sum(each.bytes_.get(name, 0) for each in work)) for name in ("%p1", "%p2")}
    # B is packed once, what is computed is stored once; A is read for every few columns of it.
    assert moved == {"%p1": 128 * 512 * 4, "%p2": 128 * 128 * 4}
    assert sum(each.bytes_.get("%p0", 0) for each in work) >= 128 * 512 * 4


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_lanes_too_large_for_the_short_way_are_rare(name: str) -> None:
    """Half of all vectors through the C library would take ten times as long."""
    times = BlockTimes(optimized_text(operation_probe(name, host_isa()).ir_text), CORE)
    works = times.works("work", {"%area": Place("%area", 0), "%repeats": 1000})
    assert sum(each.time_ns for each in works) < 1000 * CORE.cycles(150)


def test_the_probe_of_gathers_gathers_each_time() -> None:
    """LLVM would do it once for all iterations where the places were known."""
    times = BlockTimes(optimized_text(operation_probe(GATHER, host_isa()).ir_text), CORE)
    works = times.works("work", {"%area": Place("%area", 0), "%repeats": 1000})
    registers = host_isa().lanes(4) / 16
    assert sum(each.time_ns for each in works) >= 1000 * registers * RATES.of(GATHER)


def test_causal_blocks_take_what_they_do() -> None:
    """The last block of keys is four times as long as the first."""
    kernel = tw.compile(
        kernels.flash_attention(1, 1, 256, 256, 64, causal=True, block_M=64, block_N=64)
    )
    times = BlockTimes(optimized_text(kernel.source), CORE)
    (name,) = (name for name in times.functions if name.endswith("_block"))

    def time_ns(*numbers: int) -> float:
        return sum(each.time_ns for each in times.block_work(name, numbers))

    each = sorted(map(time_ns, range(4)))
    assert each[-1] > 2.5 * each[0]
    assert time_ns(*range(4)) == pytest.approx(sum(each) / 4)
