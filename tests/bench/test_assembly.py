"""What assembly tells of loops beyond their LLVM IR, from text and from LLVM."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

import tileworkbench as tw
from tests.bench.test_llvm_code import CORE, function_of
from tileworkbench.bench.llvm.assembly import KINDS, LoopCode, lines_of, machine_code
from tileworkbench.bench.llvm.block_time import BlockTimes
from tileworkbench.bench.llvm.costs import ISSUED, Costs
from tileworkbench.bench.llvm.instructions import Function
from tileworkbench.bench.llvm.loops import constant_in, shape_of
from tileworkbench.bench.operation_rates import STORE
from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.device.host.llvm import optimized_and_assembly
from tileworkbench.kernels import gemv, matmul, online_softmax, softmax

BODY = """entry:
  %own = alloca <16 x float>, align 64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = load <16 x float>, ptr %p0, align 4
  %y = fmul <16 x float> %x, %x
  %z = fadd <16 x float> %y, %x
  store <16 x float> %z, ptr %own, align 64
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 100
  br i1 %more, label %loop, label %done
done:
  ret void"""
COUNT = 8  # instructions of the loop

TEXT = """\t.text
code:                                   # @code
# %bb.0:
\txorl\t%eax, %eax
.LBB0_1:                                # =>This Inner Loop Header: Depth=1
\tvmovups\t(%rdi), %zmm0
\tvmulps\t%zmm0, %zmm0, %zmm1
\tvaddps\t%zmm0, %zmm1, %zmm1
\tvmovaps\t%zmm1, -64(%rsp)
{more}\tincq\t%rax
\tcmpq\t$100, %rax
\tjl\t.LBB0_1
# %bb.2:
\tretq
.Lfunc_end0:
"""


def read(more: str = "", body: str = BODY, text: str = TEXT) -> Mapping[str, LoopCode]:
    """The loops of `code` by their headers; without `text` nothing is known."""
    function: Function = function_of(body)
    lines = lines_of(text.replace("{more}", more)).get("code", ())
    shape = shape_of(function)
    constant = partial(constant_in, function, shape)
    found = machine_code(lines, function, shape, Costs(CORE, function), constant)
    return {loop.header: each for loop, each in found.items() if loop is not None}


def bytes_of(code: LoopCode) -> dict[str, float]:
    """Bytes of an iteration beyond the IR."""
    return {kind: size * COUNT for kind, size in zip(KINDS, code.more, strict=True) if size}


def test_what_the_ir_says_is_nothing_more() -> None:
    loop = read()["loop"]
    assert bytes_of(loop) == {}
    # A comparison and its branch are one instruction.
    assert loop.instructions * COUNT == pytest.approx(6)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("\tvmovaps\t%zmm2, 64(%rsp)\n", {"store": 64}),
        ("\tvmovups\t%ymm2, (%rsp,%rax,4)\n", {"store": 32}),
        ("\tvmovaps\t64(%rsp), %zmm2\n", {"load": 64}),
        ("\tvaddps\t128(%rbp), %zmm2, %zmm2\n", {"load": 64, "fadd": 64}),
        ("\tvfmadd213ps\t.LCPI0_0(%rip){1to16}, %zmm2, %zmm3\n", {"load": 32, "fmul": 64}),
        ("\tvbroadcastss\t.LCPI0_1(%rip), %zmm2  # zmm2 = [1.0]\n", {"load": 32}),
        ("\tvmulss\t%xmm1, %xmm2, %xmm3\n", {"fmul": 32}),
        ("\tmovq\t%rbx, 8(%rsp)\n", {}),
        ("\tvmovaps\t%zmm3, (%rsi)\n", {}),
    ],
)
def test_the_stack_constants_and_what_is_computed_again(
    more: str, expected: dict[str, float]
) -> None:
    loop = read(more)["loop"]
    assert bytes_of(loop) == expected
    assert loop.instructions * COUNT == pytest.approx(7)


def test_what_stays_the_same_is_computed_before_the_loop_unless_it_stands_there() -> None:
    """A product that LLVM may take out of the loop is one more where it stays in it."""
    fixed = BODY.replace("%y = fmul <16 x float> %x, %x", "%y = fmul <16 x float> %a, %a")
    fixed = fixed.replace("entry:\n", "entry:\n  %a = load <16 x float>, ptr %p0, align 4\n")
    assert bytes_of(read(body=fixed)["loop"]) == {"fmul": 64}


def test_other_loops_say_nothing() -> None:
    inner = "\t.p2align\t4\n.LBB0_3:\n\tdecq\t%rdx\n\tjne\t.LBB0_3\n"
    assert read(inner) == {}
    assert read(text="") == {}


def test_a_loop_takes_what_its_machine_code_does() -> None:
    """Stores to the stack, sums and instructions are executed besides those of the IR."""

    def time_ns(more: str) -> float:
        module = f"define void @code(ptr %p0, i32 %block) {{\n{BODY}\n}}"
        times = BlockTimes(module, CORE, TEXT.replace("{more}", more))
        return sum(each.time_ns for each in times.works("code", {}))

    stores = "".join(f"\tvmovaps\t%zmm2, {64 * at}(%rsp)\n" for at in range(8))
    sums = "\tvaddps\t%zmm2, %zmm3, %zmm4\n" * 8
    moves = "\tmovl\t%eax, %ebx\n" * 60
    ns = {name: time_ns(more) / 100 for name, more in {"": "", "s": stores, "a": sums}.items()}
    assert ns["s"] - ns[""] > 6 * CORE.rates.of(STORE)
    assert ns["a"] - ns[""] > 6 * CORE.fused_ns
    assert time_ns(moves) / 100 >= 60 / ISSUED * CORE.cycles(1)


@pytest.mark.parametrize(
    "program",
    [
        softmax(64, 1000, block_M=4),
        online_softmax(64, 512, block_M=16, block_N=64),
        matmul(64, 64, 64, block_M=32, block_N=32, block_K=32),
        gemv(64, 2048, block_N=2, block_K=16),
    ],
    ids=lambda program: program.name,
)
def test_the_loops_of_kernels_are_known_again(program: Any) -> None:
    if host_isa().level not in ("avx512", "avx2"):
        pytest.skip("only x86's assembly is read")
    text, assembly = optimized_and_assembly(tw.compile(program, target="cpu").source)
    times = BlockTimes(text, CORE, assembly)
    blocks = [name for name in times.functions if name.endswith("_block")]
    assert blocks
    for name in blocks:
        loops = set(times.code(name))
        assert loops == {None, *times.shape(name).loops.values()}
