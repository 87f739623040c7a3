"""Machine code by the blocks of its IR, and what a core takes for it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

import tileworkbench as tw
from tests.bench.test_llvm_code import CORE, RATES, function_of
from tileworkbench.bench.llvm.block_time import BlockTimes
from tileworkbench.bench.llvm.core_costs import ISSUED
from tileworkbench.bench.llvm.numbered import numbered
from tileworkbench.bench.llvm.pipeline import Pipeline
from tileworkbench.bench.llvm.values import Place
from tileworkbench.bench.llvm.x86.code import Coded, coded, lines_of
from tileworkbench.bench.llvm.x86.costs import MachineCosts
from tileworkbench.bench.llvm.x86.operations import operations_of
from tileworkbench.bench.llvm.x86.walk import MachineWalk
from tileworkbench.bench.operation_probes import operation_probe
from tileworkbench.bench.operation_rates import (
    ACCUMULATED,
    CHAIN,
    FORWARD,
    LOAD,
    MULTIPLIED,
    STORE,
)
from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.device.host.llvm import compile_assembly, optimized_text
from tileworkbench.kernels import flash_attention, gemv, matmul, online_softmax, softmax

BODY = """entry:
  %own = alloca <16 x float>, align 64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %p0, i64 %i
  %x = load <16 x float>, ptr %at, align 4
  %y = fmul <16 x float> %x, %x
  %z = fadd <16 x float> %y, %x
  store <16 x float> %z, ptr %own, align 64
  %next = add i64 %i, 16
  %more = icmp slt i64 %next, 1600
  br i1 %more, label %loop, label %done
done:
  ret void"""
TRIPS = 100
# A product of two loads.
OF_TWO = BODY.replace(
    "  %y = fmul <16 x float> %x, %x",
    "  %there = getelementptr float, ptr %p1, i64 %i\n"
    "  %other = load <16 x float>, ptr %there, align 4\n  %y = fmul <16 x float> %x, %other",
)
INSTRUCTION = re.compile(r"\t([a-z]\w*)(?:\t(.*))?$")

# The numbers of BODY's instructions: 5 loads, 6 multiplies, 7 adds, 8 stores, 11 branches.
TEXT = """\t.text
code:                                   # @code
# %bb.0:
\t.loc\t1 2 0
\txorl\t%eax, %eax
.LBB0_1:                                # =>This Inner Loop Header: Depth=1
\t.loc\t1 5 0
\tvmovups\t(%rdi,%rax,4), %zmm0
\t.loc\t1 7 0
\tvmulps\t%zmm0, %zmm0, %zmm1
\tvaddps\t%zmm0, %zmm1, %zmm1
\t.loc\t1 8 0
\tvmovaps\t%zmm1, -64(%rsp)
{more}\t.loc\t1 9 0
\taddq\t$16, %rax
\t.loc\t1 10 0
\tcmpq\t$1600, %rax
\t.loc\t1 11 0
\tjl\t.LBB0_1
# %bb.2:
\t.loc\t1 12 0
\tretq
.Lfunc_end0:
"""
PLACES = {"%p0": Place("%p0", 0), "%block": 0}


def code_of(more: str = "", body: str = BODY, text: str = TEXT) -> dict[str, list[Coded]]:
    """The machine code of `code` by its blocks."""
    return dict(coded(lines_of(text.replace("{more}", more))["code"], function_of(body)))


def works_of(more: str = "", body: str = BODY, text: str = TEXT) -> list[Any]:
    module = f"define void @code(ptr %p0, i32 %block) {{\n{body}\n}}"
    return BlockTimes(module, CORE, text.replace("{more}", more)).works("code", PLACES)


def time_ns(more: str = "", **others: str) -> float:
    """Nanoseconds of an iteration."""
    return sum(each.time_ns for each in works_of(more, **others)) / TRIPS


def names(code: list[Coded]) -> list[str]:
    return [each.operation.op for each in code]


def accesses(code: list[Coded]) -> list[Coded]:
    """Its loads and stores."""
    return [each for each in code if each.operation.op in ("load", "store")]


def test_blocks_have_the_code_that_was_made_of_them() -> None:
    code = code_of()
    assert names(code["entry"]) == ["zero"]
    assert names(code["loop"]) == ["load", "vmulps", "vaddps", "store", "addq", "cmpq"]
    assert names(code["done"]) == ["idle"]


def test_accesses_are_those_of_the_ir() -> None:
    load, store = accesses(code_of()["loop"])
    assert (load.address, load.offset, load.slot) == ("%at", 0, None)
    assert (store.address, store.slot) == ("%own", Place("rsp", -64))


def test_a_part_of_an_operation_is_what_it_loads() -> None:
    """With the number of the sum; each register of a value is so many bytes behind the first."""
    more = "\t.loc\t1 7 0\n" + "".join(
        f"\tvaddps\t{64 * at}(%rdi,%rax,4), %zmm1, %zmm2\n" for at in range(3)
    )
    text = TEXT.replace("\tvmovups\t(%rdi,%rax,4), %zmm0\n", "")
    parts = [each for each in code_of(more, text=text)["loop"] if each.operation.op == "load"]
    assert [(each.address, each.offset) for each in parts] == [("%at", 64 * n) for n in range(3)]


def test_what_is_loaded_elsewhere_is_of_what_uses_it() -> None:
    """LLVM forgets the number of a load that it takes out of an instruction again."""
    text = TEXT.replace("\tvmovups\t(%rdi,%rax,4), %zmm0\n", "")
    more = "\t.loc\t1 9 0\n\tvmovss\t(%rdi,%rax,4), %xmm5\n"
    use = "\t.loc\t1 7 0\n\tvaddss\t%xmm5, %xmm1, %xmm2\n"
    alone = [accesses(code_of(code, text=text)["loop"])[-1] for code in (more + use, more)]
    assert [each.address for each in alone] == ["%at", ""]


def test_the_same_registers_tell_how_far_apart_accesses_are() -> None:
    """As long as they are the same."""
    more = "\t.loc\t1 9 0\n\tvmovss\t-8(%rdi,%rax,4), %xmm5\n"
    last = accesses(code_of(more)["loop"])[-1]
    assert (last.address, last.offset) == ("%at", -8)
    for change in ("\tmovq\t%rcx, %rdi\n", "\tincq\t%rax\n"):
        assert accesses(code_of(change + more)["loop"])[-1].address == ""
    assert accesses(code_of(more.replace("rax,4", "rax,8"))["loop"])[-1].address == ""


def test_a_store_changes_no_register_of_an_address() -> None:
    """Not the one that an address without an index lacks either."""
    more = "\t.loc\t1 9 0\n\tvmovss\t-8(%rdi), %xmm5\n"
    last = accesses(code_of(more, text=TEXT.replace("(%rdi,%rax,4)", "(%rdi)"))["loop"])[-1]
    assert (last.address, last.offset) == ("%at", -8)


def test_a_register_on_the_stack_is_no_access_of_the_ir() -> None:
    more = "\t.loc\t1 7 0\n\tvmovaps\t%zmm9, 64(%rsp)\n"
    *_, spilled = accesses(code_of(more)["loop"])
    assert (spilled.address, spilled.slot) == ("", Place("rsp", 64))


def test_of_what_an_operation_may_load_the_size_tells() -> None:
    body = BODY.replace(
        "  %y = fmul",
        "  %one = load float, ptr %own, align 4\n"
        "  %first = insertelement <16 x float> poison, float %one, i64 0\n"
        "  %all = shufflevector <16 x float> %first, <16 x float> poison, <16 x i32> "
        "zeroinitializer\n  %y = fmul",
    ).replace("%y, %x", "%all, %x")
    more = "\t.loc\t1 10 0\n\tvaddps\t-64(%rsp){1to16}, %zmm1, %zmm2\n"
    more += "\tvaddps\t(%rdi,%rax,4), %zmm1, %zmm2\n"
    text = TEXT.replace("\tvmovups\t(%rdi,%rax,4), %zmm0\n", "")
    loads = [e for e in code_of(more, body, text)["loop"] if e.operation.op == "load"]
    assert [each.address for each in loads] == ["%own", "%at"]


def test_a_load_without_a_number_is_of_what_uses_it() -> None:
    """LLVM writes no number where it knows none, so it seems to be of the load before."""
    second = "\tvmovups\t(%rsi,%rax,4), %zmm5\n\t.loc\t1 8 0\n\tvmulps\t%zmm5, %zmm0, %zmm1\n"
    text = TEXT.replace("\t.loc\t1 7 0\n", second, 1)
    loads = accesses(code_of(body=OF_TWO, text=text)["loop"])[:2]
    assert [each.address for each in loads] == ["%at", "%there"]
    same = text.replace("(%rsi,%rax,4)", "64(%rdi,%rax,4)")  # another part of a large value
    loads = accesses(code_of(body=OF_TWO, text=same)["loop"])[:2]
    assert [(each.address, each.offset) for each in loads] == [("%at", 0), ("%at", 64)]


def test_two_values_of_an_operation_begin_at_their_own_addresses() -> None:
    """Though both are addressed by the same registers."""
    body = BODY.replace(
        "  %y = fmul <16 x float> %x, %x",
        "  %one = load float, ptr %own, align 4\n"
        "  %first = insertelement <16 x float> poison, float %one, i64 0\n"
        "  %all = shufflevector <16 x float> %first, <16 x float> poison, <16 x i32> "
        "zeroinitializer\n  %y = fmul <16 x float> %x, %all",
    )
    pair = "\t.loc\t1 8 0\n\tvbroadcastss\t(%rdi,%rax,4), %zmm6\n"
    pair += "\t.loc\t1 10 0\n\tvfmadd231ps\t2432(%rdi,%rax,4), %zmm6, %zmm1\n"
    text = TEXT.replace("\tvmovups\t(%rdi,%rax,4), %zmm0\n", "").replace("\t.loc\t1 7 0\n", pair, 1)
    one, all_ = accesses(code_of(body=body, text=text)["loop"])[:2]
    assert [(each.address, each.offset) for each in (one, all_)] == [("%own", 0), ("%at", 0)]


def test_parts_of_a_value_are_apart_though_their_numbers_differ() -> None:
    """What uses each of them has a number of its own."""
    shuffles = "".join(
        f"  %part{at} = shufflevector <16 x float> %x, <16 x float> poison, <8 x i32> "
        f"<{', '.join(f'i32 {8 * at + lane}' for lane in range(8))}>\n"
        for at in range(2)
    )
    body = BODY.replace("  %y = fmul", f"{shuffles}  %y = fmul")
    text = TEXT.replace(
        "\t.loc\t1 5 0\n\tvmovups\t(%rdi,%rax,4), %zmm0\n",
        "\t.loc\t1 6 0\n\tvmovups\t-64(%rdi,%rax,4), %ymm0\n"
        "\t.loc\t1 6 0\n\tvaddps\t%ymm0, %ymm0, %ymm2\n"
        "\t.loc\t1 7 0\n\tvmovups\t-32(%rdi,%rax,4), %ymm3\n"
        "\t.loc\t1 7 0\n\tvaddps\t%ymm3, %ymm3, %ymm4\n",
    )
    loads = accesses(code_of(body=body, text=text)["loop"])[:2]
    assert [(each.address, each.offset) for each in loads] == [("%at", 0), ("%at", 32)]


def test_what_has_a_load_of_its_own_is_no_part() -> None:
    """Of two vectors that are added one is loaded before, the other with the sum."""
    text = TEXT.replace("1 5 0\n", "1 5 0\n\tvmovups\t(%rdi,%rax,4), %zmm0\n\t.loc\t1 8 0\n", 1)
    text = text.replace("\tvmovups\t(%rdi,%rax,4), %zmm0\n\t.loc\t1 7", "\t.loc\t1 7")
    more = "\tvmulps\t(%rsi,%rax,4), %zmm0, %zmm1\n"
    part = accesses(code_of("\t.loc\t1 8 0\n" + more, OF_TWO, text)["loop"])[-1]
    assert (part.operation.name, part.address) == ("part", "%there")


@pytest.mark.parametrize("name", ["leave1", "rare1"])
def test_unusual_ways_are_not_taken(name: str) -> None:
    """They are one of two where a label says nothing."""
    body = (
        "entry:\n  %x = load i32, ptr %p0, align 4\n  %c = icmp eq i32 %x, 0\n"
        "  br i1 %c, label %way, label %on\nway:\n"
        + "".join(f"  %v{at} = load volatile float, ptr %p0, align 4\n" for at in range(40))
        + "  ret void\non:\n  ret void"
    )

    def ns(label: str) -> float:
        text = f"define void @code(ptr %p0, i32 %block) {{\n{body.replace('way', label)}\n}}"
        return sum(each.time_ns for each in BlockTimes(text, CORE).works("code", PLACES))

    assert ns(name) < 0.5 * ns("other1")


def test_a_place_on_the_stack_is_not_taken_for_a_tensor() -> None:
    """Of a sum that loads a register from the stack the IR names a tensor; a tile is one there."""
    more = "\t.loc\t1 7 0\n\tvaddps\t256(%rbp), %zmm1, %zmm2\n"
    text = TEXT.replace("\tvmovups\t(%rdi,%rax,4), %zmm0\n", "").replace("{more}", more)
    module = f"define void @code(ptr %p0, i32 %block) {{\n{BODY}\n}}"
    times = BlockTimes(module, CORE, text)
    values = {**PLACES, "%at": Place("%p0", 0), "%own": Place("%own", 0)}
    walk = times.walk("code", values, Pipeline(times.machine_costs))
    assert isinstance(walk, MachineWalk)
    places = [walk.place(each) for each in accesses(times.code("code")["loop"])]
    assert places == [Place("%own", 0), Place("rbp", 256)]


def test_masked_accesses_are_known() -> None:
    body = BODY.replace(
        "%x = load <16 x float>, ptr %at, align 4",
        "%x = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %at, i32 4, <16 x i1> "
        "zeroinitializer, <16 x float> zeroinitializer)",
    ).replace(
        "store <16 x float> %z, ptr %own, align 64",
        "call void @llvm.masked.store.v16f32.p0(<16 x float> %z, ptr %own, i32 4, <16 x i1> "
        "zeroinitializer)",
    )
    addresses = [
        e.address for e in code_of(body=body)["loop"] if e.operation.op in ("load", "store")
    ]
    assert addresses == ["%at", "%own"]


def test_code_of_no_instruction_is_of_what_stands_around_it_in_its_loop() -> None:
    """What LLVM puts before or behind a loop is not in it, though it stands beside it."""
    text = TEXT.replace("{more}", "").replace("1 12 0\n", "1 0 0\n\tvmovaps\t%zmm3, %zmm4\n")
    code = code_of(text=text)
    assert names(code["entry"]) == ["zero", "move", "idle"]
    assert "move" not in names(code["loop"])


def test_an_end_behind_each_block_before_it_is_not_that_end() -> None:
    """A block whose last instruction is a copy of another block's stays what it is."""
    more = "\t.loc\t1 12 0\n\tretq\n"
    assert names(code_of(more)["loop"])[4] == "idle"


def test_blocks_that_always_follow_each_other_are_one() -> None:
    function = function_of(
        "entry:\n  %a = add i32 %block, 1\n  br label %next\n"
        "next:\n  %b = phi i32 [ %a, %entry ]\n  br label %loop\n"
        "loop:\n  %i = phi i32 [ %b, %next ], [ %more, %loop ]\n  %more = add i32 %i, 1\n"
        "  %on = icmp slt i32 %more, 9\n  br i1 %on, label %loop, label %done\ndone:\n  ret void"
    )
    assert list(function.blocks) == ["entry", "loop", "done"]
    assert [each.op for each in function.blocks["entry"]] == ["add", "br", "freeze", "br"]
    assert function.blocks["loop"][0].labels == ("entry", "loop")
    assert len(function.instructions) == 9


def test_a_loop_takes_what_its_machine_code_does() -> None:
    ns = {
        name: time_ns(more)
        for name, more in {
            "": "",
            "stores": "".join(f"\tvmovaps\t%zmm2, {64 * at}(%rsp)\n" for at in range(8)),
            "sums": "\tvaddps\t%zmm2, %zmm3, %zmm4\n" * 8,
            "moves": "\tmovl\t%eax, %ebx\n" * 60,
            "loads": "\tvmovaps\t(%rsp), %zmm2\n" * 12,
        }.items()
    }
    assert ns["stores"] - ns[""] == pytest.approx(8 * RATES.of(STORE), rel=0.3)
    assert ns["sums"] == pytest.approx(9 * CORE.fused_ns, rel=0.1)
    assert ns["moves"] == pytest.approx(67 / ISSUED * CORE.cycles(1), rel=0.05)
    assert ns["loads"] == pytest.approx(13 * RATES.of(LOAD), rel=0.3)


def test_chains_go_through_registers() -> None:
    """A register that is written again begins a new chain, and a renamed one goes on."""
    step = "\tvaddps\t%zmm9, %zmm9, %zmm9\n"
    chained = time_ns(step * 12)
    assert chained == pytest.approx(12 * RATES.of(CHAIN), rel=0.05)
    assert time_ns(
        step * 6 + "\tvmovaps\t%zmm9, %zmm10\n\tvmovaps\t%zmm10, %zmm9\n" + step * 6
    ) == (pytest.approx(chained, rel=0.05))
    assert time_ns(step * 6 + "\tvxorps\t%xmm9, %xmm9, %xmm9\n" + step * 6) < 0.8 * chained
    assert time_ns(step * 12 + "\tvmovaps\t%zmm8, %zmm9\n") < 0.8 * chained


@pytest.mark.parametrize(("form", "adds_to"), [("132", 1), ("213", 0), ("231", 2)])
def test_a_multiply_add_waits_least_for_what_it_adds_to(form: str, adds_to: int) -> None:
    registers = ["%zmm1", "%zmm2", "%zmm3"]
    (operation,) = operations_of(f"vfmadd{form}ps", ", ".join(registers))
    cost = MachineCosts(CORE).of(operation.instruction)
    late = [MULTIPLIED] * 3
    late[adds_to] = ACCUMULATED
    assert list(cost.latencies) == [RATES.of(each) for each in late]


def test_what_is_stored_to_the_stack_is_forwarded() -> None:
    step = "\t.loc\t1 9 0\n\tvmovaps\t-192(%rsp), %zmm9\n\tvaddps\t%zmm9, %zmm9, %zmm9\n"
    step += "\tvmovaps\t%zmm9, -192(%rsp)\n"
    # Blocks begin while those before them end.
    assert 0.6 * RATES.of(FORWARD) < time_ns(step) < 1.1 * RATES.of(FORWARD)
    elsewhere = step.replace("\tvmovaps\t%zmm9, -192", "\tvmovaps\t%zmm9, -256")
    assert time_ns(elsewhere) < 0.5 * time_ns(step)


def test_bytes_of_tensors_are_counted() -> None:
    moved = Counter[str]()
    for work in works_of():
        moved.update(work.bytes_)
    assert moved["%p0"] == pytest.approx(64 * TRIPS)


PROGRAMS = [
    softmax(64, 1000, block_M=4),
    online_softmax(64, 512, block_M=16, block_N=64),
    matmul(64, 64, 64, block_M=32, block_N=32, block_K=32),
    gemv(64, 2048, block_N=2, block_K=16),
    flash_attention(1, 1, 128, 128, 64, causal=True, block_M=64, block_N=64),
]
ONLY_X86 = pytest.mark.skipif(
    host_isa().level not in ("avx512", "avx2"), reason="only x86's assembly is read"
)


def code_of_program(program: Any) -> tuple[str, str]:
    text = optimized_text(tw.compile(program, target="cpu").source)
    return text, compile_assembly(numbered(text), None, ())


@ONLY_X86
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_all_code_of_kernels_is_of_a_block(program: Any) -> None:
    """Every instruction is in one, inner loops have code, and most accesses are known."""
    text, assembly = code_of_program(program)
    times, lines = BlockTimes(text, CORE, assembly), lines_of(assembly)
    for name in (name for name in times.functions if name.endswith("_block")):
        code, shape = times.code(name), times.shape(name)
        written = [
            match for line in lines[name] if (match := re.match(r"\t([a-z]\w*)(?:\t(.*))?$", line))
        ]
        expected = sum(len(operations_of(each[1], each[2] or "")) for each in written)
        assert sum(map(len, code.values())) == expected
        inner = [loop.header for loop in shape.loops.values() if not shape.inside(loop)]
        assert {*inner} <= code.keys() <= times.functions[name].blocks.keys()
        accesses = [
            e for each in code.values() for e in each if e.operation.op in ("load", "store")
        ]
        known = [each for each in accesses if each.address or each.slot]
        assert len(known) > 0.95 * len(accesses)


@ONLY_X86
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_code_and_ir_move_the_same_bytes(program: Any) -> None:
    """Counted from the machine code and from the IR, of each tensor that is stored."""
    text, assembly = code_of_program(program)
    machine, ir = BlockTimes(text, CORE, assembly), BlockTimes(text, CORE)
    for name in (name for name in machine.functions if name.endswith("_block")):
        moved = [Counter[str](), Counter[str]()]
        for counter, times in zip(moved, (machine, ir), strict=True):
            for work in times.block_work(name, [0]):
                counter.update(work.bytes_)
        for tensor in moved[1]:
            assert moved[0][tensor] == pytest.approx(moved[1][tensor], rel=0.02), tensor


@ONLY_X86
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_calls_for_unusual_lanes_are_rare(name: str) -> None:
    text = optimized_text(operation_probe(name, host_isa()).ir_text)
    times = BlockTimes(text, CORE, compile_assembly(numbered(text), None, ()))
    works = times.works("work", {"%area": Place("%area", 0), "%repeats": 1000})
    assert sum(each.time_ns for each in works) < 1000 * CORE.cycles(150)
