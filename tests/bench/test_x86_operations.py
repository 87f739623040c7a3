"""What the instructions of x86 read, write and access."""

from __future__ import annotations

import pytest

from tileworkbench.bench.llvm.x86.operations import LOADED, Operation, operations_of, register


def told(operation: Operation) -> str:
    """An operation as text: its result, name, operands and bytes; where it accesses memory."""
    each, memory = operation.instruction, operation.memory
    words = [each.name and f"{each.name} =", each.op, *each.args]
    if memory is not None:
        words += [f"[{memory.displacement}+{memory.base}+{memory.index}]", f"{each.kind.bytes_}B"]
    return " ".join(filter(None, words))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vaddps %zmm1, %zmm2, %zmm3", ["v3 = vaddps v1 v2"]),
        ("vaddps %zmm1, %zmm2, %zmm3 {%k1}", ["v3 = vaddps v1 v2 v3 k1"]),
        ("vaddps %zmm1, %zmm2, %zmm3 {%k1} {z}", ["v3 = vaddps v1 v2 k1"]),
        ("addps %xmm1, %xmm2", ["v2 = addps v1 v2"]),
        (
            "vaddps -64(%rsp,%r8,4), %ymm2, %ymm3",
            ["part = load r8 [-64+rsp+r8] 32B", "v3 = vaddps part v2"],
        ),
        (
            "vmulps .LCPI0_1(%rip){1to16}, %zmm2, %zmm3",
            ["part = load [0+rip+] 4B", "v3 = vmulps part v2"],
        ),
        ("vfmadd231ps %zmm1, %zmm2, %zmm3", ["v3 = vfmadd231ps v1 v2 v3"]),
        (
            "vfmadd213ps 8(%rax), %zmm2, %zmm3",
            ["part = load rax [8+rax+] 64B", "v3 = vfmadd213ps part v2 v3"],
        ),
        ("vmovups (%rdi), %zmm3", ["v3 = load rdi [0+rdi+] 64B"]),
        ("vmovups (%rdi), %ymm3 {%k2} {z}", ["v3 = load rdi k2 [0+rdi+] 32B"]),
        (
            "vmovups (%rdi), %ymm3 {%k2}",
            ["part = load rdi [0+rdi+] 32B", "v3 = blend part v3 k2"],
        ),
        ("vbroadcastss (%rdi), %zmm3", ["v3 = load rdi [0+rdi+] 4B"]),
        ("vpbroadcastw (%rdi), %ymm3", ["v3 = load rdi [0+rdi+] 2B"]),
        ("vbroadcastss %xmm1, %zmm3", ["v3 = vbroadcastss v1"]),
        ("vmovss (%rdi), %xmm3", ["v3 = load rdi [0+rdi+] 4B"]),
        ("vmovss %xmm1, %xmm2, %xmm3", ["v3 = blend v1 v2"]),
        ("vmovhps (%rdi), %xmm2, %xmm3", ["part = load rdi [0+rdi+] 8B", "v3 = blend part v2"]),
        ("vmovaps %zmm1, %zmm2", ["v2 = move v1"]),
        ("movq %rax, %rcx", ["rcx = move rax"]),
        ("movl $7, %ecx", ["rcx = idle"]),
        ("movslq %ecx, %rax", ["rax = movslq rcx"]),
        ("movzbl 3(%rdi,%rcx), %eax", ["rax = load rdi rcx [3+rdi+rcx] 1B"]),
        ("vmovd %eax, %xmm3", ["v3 = cross rax"]),
        ("kmovw %k1, %eax", ["rax = cross k1"]),
        ("vmovaps %zmm1, 64(%rsp)", ["store v1 [64+rsp+] 64B"]),
        ("vmovups %zmm1, (%rdi) {%k1}", ["store v1 k1 rdi [0+rdi+] 64B"]),
        ("movl $0, 4(%rsp)", ["store [4+rsp+] 4B"]),
        ("movb %al, (%rdi)", ["store rax rdi [0+rdi+] 1B"]),
        ("vpmovdw %zmm1, (%rdi)", ["result = vpmovdw v1", "store result rdi [0+rdi+] 32B"]),
        ("vpmovdb %ymm1, (%rdi)", ["result = vpmovdb v1", "store result rdi [0+rdi+] 8B"]),
        ("vpmovzxbd (%rdi), %zmm1", ["part = load rdi [0+rdi+] 16B", "v1 = vpmovzxbd part"]),
        ("vcvtph2ps (%rdi), %zmm1", ["part = load rdi [0+rdi+] 32B", "v1 = vcvtph2ps part"]),
        (
            "vextractf128 $1, %ymm1, (%rdi)",
            ["result = vextractf128 v1", "store result rdi [0+rdi+] 16B"],
        ),
        (
            "vinserti64x4 $1, (%rdi), %zmm1, %zmm2",
            ["part = load rdi [0+rdi+] 32B", "v2 = vinserti64x4 part v1"],
        ),
        (
            "vpinsrb $3, (%rdi), %xmm1, %xmm2",
            ["part = load rdi [0+rdi+] 1B", "v2 = vpinsrb part v1"],
        ),
        (
            "addq $8, 16(%rsp)",
            ["part = load [16+rsp+] 8B", "result = addq part", "store result [16+rsp+] 8B"],
        ),
        ("addq %rax, %rcx", ["rcx = addq rax rcx"]),
        ("leaq 8(%rdi,%rcx,4), %rax", ["rax = leaq rdi rcx"]),
        ("imulq $12, %rcx, %rax", ["rax = imulq rcx"]),
        ("cmpq $8, %rax", ["flags = cmpq rax"]),
        ("vucomiss (%rdi), %xmm1", ["part = load rdi [0+rdi+] 4B", "flags = vucomiss part v1"]),
        ("cmovll %ecx, %eax", ["rax = cmovll rcx rax flags"]),
        ("setl %al", ["rax = setl flags"]),
        ("vcmpltps %zmm1, %zmm2, %k1", ["k1 = vcmpltps v1 v2"]),
        ("vcmpltps %zmm1, %zmm2, %k1 {%k2}", ["k1 = vcmpltps v1 v2 k2"]),
        ("vgatherdps (%rdi,%zmm1,4), %zmm2 {%k1}", ["v2 = vgatherdps rdi v1 v2 k1"]),
        ("vxorps %xmm0, %xmm0, %xmm0", ["v0 = zero"]),
        ("vpternlogd $255, %zmm1, %zmm1, %zmm1", ["v1 = zero"]),
        ("vpternlogd $248, %zmm1, %zmm2, %zmm3", ["v3 = vpternlogd v1 v2 v3"]),
        ("vpcmpeqd %ymm1, %ymm1, %ymm1", ["v1 = zero"]),
        ("vpcmpeqd %ymm1, %ymm2, %ymm1", ["v1 = vpcmpeqd v1 v2"]),
        ("xorl %eax, %eax", ["rax = zero"]),
        ("xorl %ecx, %eax", ["rax = xorl rcx rax"]),
        ("popcntl %r9d, %eax", ["rax = popcntl r9"]),
        ("popq %rax", ["idle"]),
        ("andnl %r8d, %r9d, %eax", ["rax = andnl r8 r9"]),
        ("shldl $3, %eax, %ecx", ["rcx = shldl rax rcx"]),
        ("negl %eax", ["rax = negl rax"]),
        ("xchgl %eax, %ecx", ["rcx = xchgl rax rcx"]),
        ("xchgl %eax, (%rdi)", ["atomic"]),
        ("jl .LBB0_1", []),
        ("jmp .LBB0_1", ["idle"]),
        ("retq", ["idle"]),
        ("callq cosf@PLT", ["call"]),
        ("lock cmpxchgl %ecx, (%rdi)", ["atomic"]),
        ("prefetcht1 64(%rdi)", ["prefetch"]),
    ],
)
def test_operations(text: str, expected: list[str]) -> None:
    name, _, operands = text.partition(" ")
    assert [told(each) for each in operations_of(name, operands)] == expected


def test_what_is_loaded_by_itself_is_told_from_a_part() -> None:
    (alone,) = operations_of("vmovups", "(%rdi), %zmm3")
    part, _ = operations_of("vaddps", "(%rdi), %zmm2, %zmm3")
    assert (alone.instruction.detail, part.instruction.detail) == (LOADED, "")


def test_a_call_names_its_function() -> None:
    (call,) = operations_of("callq", "cosf@PLT")
    assert call.instruction.detail == "cosf"


@pytest.mark.parametrize(
    ("name", "lanes", "is_float"),
    [
        ("vaddps %xmm1, %xmm2, %xmm3", 4, True),
        ("vaddss %xmm1, %xmm2, %xmm3", 1, True),
        ("vpaddd %zmm1, %zmm2, %zmm3", 16, True),
        ("vpmovdw %zmm1, %ymm2", 16, True),
        ("vcvttss2si %xmm1, %eax", 4, True),
        ("addl %eax, %ecx", 1, False),
    ],
)
def test_the_widest_register_decides(name: str, lanes: int, is_float: bool) -> None:
    (operation,) = operations_of(*name.split(" ", 1))
    kind = operation.instruction.kind
    assert (kind.lanes, kind.is_float) == (lanes, is_float)


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        *(("eax", "rax"), ("al", "rax"), ("r8d", "r8"), ("r10b", "r10"), ("sil", "rsi")),
        *(("bpl", "rbp"), ("ymm12", "v12"), ("xmm0", "v0"), ("k3", "k3"), ("rip", "rip")),
    ],
)
def test_parts_of_registers(part: str, whole: str) -> None:
    assert register(part) == whole


def test_a_product_of_tiles_adds_to_its_result() -> None:
    """It waits for the sums, too, and takes as long as Intel's manual says (52 cycles)."""
    (product,) = operations_of("tdpbf16ps", "%tmm7, %tmm4, %tmm1")
    assert product.instruction.name == "tmm1"
    assert set(product.instruction.args) == {"tmm7", "tmm4", "tmm1"}
