"""Integer instructions one by one, against definitions on Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ptx.support import examples, run_instruction
from tileworkbench.compiler.sim.ptx import PtxProgram

_EDGES = (0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
WORD = st.one_of(st.sampled_from(_EDGES), st.integers(0, 2**32 - 1))
LONG = st.one_of(st.sampled_from((*_EDGES, 2**63 - 1, 2**63, 2**64 - 1)), st.integers(0, 2**64 - 1))


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def field(a: int, position: int, length: int, bits: int, is_signed: bool) -> int:
    """Bit by bit, as the ISA's pseudo-code of bfe has it."""
    position, length = position & 0xFF, length & 0xFF
    highest = min(position + length - 1, bits - 1)
    sign = a >> highest & 1 if is_signed and length else 0
    result = 0
    for bit in range(bits):
        inside = bit < length and position + bit < bits
        result |= (a >> (position + bit) & 1 if inside else sign) << bit
    return result


def insert(a: int, b: int, position: int, length: int, bits: int) -> int:
    position, length = position & 0xFF, length & 0xFF
    for bit in range(length):
        if position + bit < bits:
            b = b & ~(1 << (position + bit)) | (a >> bit & 1) << (position + bit)
    return b


def permute(a: int, b: int, selector: int) -> int:
    octets = list(a.to_bytes(4, "little") + b.to_bytes(4, "little"))
    result = 0
    for number in range(4):
        choice = selector >> 4 * number & 15
        octet = octets[choice & 7]
        if choice & 8:
            octet = 0xFF if octet & 0x80 else 0
        result |= octet << 8 * number
    return result


def dot(a: int, b: int, c: int, kinds: str) -> int:
    def octets(value: int, kind: str) -> list[int]:
        plain = list(value.to_bytes(4, "little"))
        return [signed(octet, 8) for octet in plain] if kind == "s" else plain

    return c + sum(x * y for x, y in zip(octets(a, kinds[0]), octets(b, kinds[1]), strict=True))


def majority(a: int, b: int, c: int) -> int:
    return (a & b) | (a & c) | (b & c)


S = signed
WORDS: dict[str, Callable[..., int]] = {
    "add.s32 %d, %a, %b;": lambda a, b: a + b,
    "sub.u32 %d, %a, %b;": lambda a, b: a - b,
    "add.sat.s32 %d, %a, %b;": lambda a, b: max(-(2**31), min(2**31 - 1, S(a, 32) + S(b, 32))),
    "mul.lo.s32 %d, %a, %b;": lambda a, b: a * b,
    "mul.hi.u32 %d, %a, %b;": lambda a, b: a * b >> 32,
    "mul.hi.s32 %d, %a, %b;": lambda a, b: S(a, 32) * S(b, 32) >> 32,
    "mul24.lo.u32 %d, %a, %b;": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "mad.lo.u32 %d, %a, %b, %c;": lambda a, b, c: a * b + c,
    "mad.hi.s32 %d, %a, %b, %c;": lambda a, b, c: (S(a, 32) * S(b, 32) >> 32) + c,
    "div.u32 %d, %a, %b;": lambda a, b: a // b if b else -1,
    "div.s32 %d, %a, %b;": lambda a, b: truncated(S(a, 32), S(b, 32)) if b else -1,
    "rem.s32 %d, %a, %b;": lambda a, b: (
        S(a, 32) - truncated(S(a, 32), S(b, 32)) * S(b, 32) if b else a
    ),
    "abs.s32 %d, %a;": lambda a: abs(S(a, 32)),
    "neg.s32 %d, %a;": lambda a: -a,
    "min.s32 %d, %a, %b;": lambda a, b: min(S(a, 32), S(b, 32)),
    "max.u32 %d, %a, %b;": max,
    "sad.u32 %d, %a, %b, %c;": lambda a, b, c: c + abs(a - b),
    "not.b32 %d, %a;": lambda a: ~a,
    "cnot.b32 %d, %a;": lambda a: int(a == 0),
    "lop3.b32 %d, %a, %b, %c, 0xE8;": majority,
    "shl.b32 %d, %a, %b;": lambda a, b: a << b if b < 32 else 0,
    "shr.u32 %d, %a, %b;": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32 %d, %a, %b;": lambda a, b: S(a, 32) >> min(b, 31),
    "shf.l.wrap.b32 %d, %a, %b, %c;": lambda a, b, c: (b << 32 | a) << (c & 31) >> 32,
    "shf.r.clamp.b32 %d, %a, %b, %c;": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    "bfe.u32 %d, %a, %b, %c;": lambda a, b, c: field(a, b, c, 32, False),
    "bfe.s32 %d, %a, %b, %c;": lambda a, b, c: field(a, b, c, 32, True),
    "bfi.b32 %d, %a, %b, %c, %e;": lambda a, b, c, e: insert(a, b, c, e, 32),
    "prmt.b32 %d, %a, %b, %c;": permute,
    "popc.b32 %d, %a;": int.bit_count,
    "clz.b32 %d, %a;": lambda a: 32 - a.bit_length(),
    "brev.b32 %d, %a;": lambda a: int(f"{a:032b}"[::-1], 2),
    "bfind.u32 %d, %a;": lambda a: a.bit_length() - 1,
    "bfind.s32 %d, %a;": lambda a: (a if a < 2**31 else ~a & 0xFFFFFFFF).bit_length() - 1,
    "dp4a.s32.u32 %d, %a, %b, %c;": lambda a, b, c: dot(a, b, c, "su"),
    "dp4a.u32.s32 %d, %a, %b, %c;": lambda a, b, c: dot(a, b, c, "us"),
    "dp2a.lo.s32.s32 %d, %a, %b, %c;": lambda a, b, c: (
        c + S(a & 0xFFFF, 16) * S(b & 0xFF, 8) + S(a >> 16, 16) * S(b >> 8 & 0xFF, 8)
    ),
    "cvt.s32.s8 %d, %a;": lambda a: S(a & 0xFF, 8),
    "cvt.u32.u16 %d, %a;": lambda a: a & 0xFFFF,
    "cvt.sat.u8.s32 %d, %a;": lambda a: max(0, min(255, S(a, 32))),
    "setp.lt.s32 %p, %a, %b; selp.b32 %d, 1, 0, %p;": lambda a, b: int(S(a, 32) < S(b, 32)),
    "setp.hi.u32 %p|%q, %a, %b; selp.b32 %d, 1, 2, %q;": lambda a, b: 1 if a <= b else 2,
    "set.ge.u32.s32 %d, %a, %b;": lambda a, b: -int(S(a, 32) >= S(b, 32)),
    "slct.s32.s32 %d, %a, %b, %c;": lambda a, b, c: a if S(c, 32) >= 0 else b,
}
LONGS: dict[str, Callable[..., int]] = {
    "add.s64 %d, %a, %b;": lambda a, b: a + b,
    "mul.lo.u64 %d, %a, %b;": lambda a, b: a * b,
    "mul.hi.u64 %d, %a, %b;": lambda a, b: a * b >> 64,
    "mul.hi.s64 %d, %a, %b;": lambda a, b: S(a, 64) * S(b, 64) >> 64,
    "div.s64 %d, %a, %b;": lambda a, b: truncated(S(a, 64), S(b, 64)) if b else -1,
    "rem.u64 %d, %a, %b;": lambda a, b: a % b if b else a,
    "xor.b64 %d, %a, %b;": lambda a, b: a ^ b,
    "min.u64 %d, %a, %b;": min,
    "brev.b64 %d, %a;": lambda a: int(f"{a:064b}"[::-1], 2),
    "shl.b64 %d, %a, 33;": lambda a: a << 33,
}


def _check(text: str, define: Callable[..., int], rows: list[tuple[int, ...]], bits: int) -> None:
    count = define.__code__.co_argcount if hasattr(define, "__code__") else text.count(", %")
    dtype = np.uint32 if bits == 32 else np.uint64
    columns = [np.array(column, dtype=dtype) for column in zip(*rows, strict=True)][:count]
    kind = f"b{bits}"
    found = run_instruction(text, [kind] * count, kind, *columns)
    expected = [define(*row[:count]) & ((1 << bits) - 1) for row in rows]
    assert [int(each) for each in found] == expected


@pytest.mark.parametrize("text", WORDS)
@examples(3)
@given(rows=st.lists(st.tuples(WORD, WORD, WORD, WORD), min_size=64, max_size=64))
def test_words(text: str, rows: list[tuple[int, ...]]) -> None:
    _check(text, WORDS[text], rows, 32)


@pytest.mark.parametrize("text", LONGS)
@examples(3)
@given(rows=st.lists(st.tuples(LONG, LONG), min_size=64, max_size=64))
def test_longs(text: str, rows: list[tuple[int, ...]]) -> None:
    _check(text, LONGS[text], rows, 64)


@examples(5)
@given(rows=st.lists(st.tuples(LONG, LONG), min_size=32, max_size=32))
def test_carries_chain_words_to_longs(rows: list[tuple[int, int]]) -> None:
    a, b = (np.array(column, dtype=np.uint64) for column in zip(*rows, strict=True))
    text = """.reg .b32 %al, %ah, %bl, %bh;
        mov.b64 {%al, %ah}, %a; mov.b64 {%bl, %bh}, %b;
        add.cc.u32 %al, %al, %bl; addc.u32 %ah, %ah, %bh; mov.b64 %d, {%al, %ah};"""
    assert (run_instruction(text, ["b64", "b64"], "b64", a, b) == a + b).all()
    text = text.replace("add.cc", "sub.cc").replace("addc", "subc")
    assert (run_instruction(text, ["b64", "b64"], "b64", a, b) == a - b).all()
    text = """.reg .b32 %al, %ah, %bl, %bh;
        mov.b64 {%al, %ah}, %a; mov.b64 {%bl, %bh}, %b;
        mad.lo.cc.u32 %bl, %al, %ah, %bl; madc.hi.u32 %bh, %al, %ah, %bh; mov.b64 %d, {%bl, %bh};"""
    product = (a & 0xFFFFFFFF) * (a >> 32)
    assert (run_instruction(text, ["b64", "b64"], "b64", a, b) == product + b).all()


@examples(5)
@given(rows=st.lists(st.tuples(WORD, WORD), min_size=32, max_size=32))
def test_wide_products_keep_every_bit(rows: list[tuple[int, int]]) -> None:
    columns = [np.array(column, dtype=np.uint32) for column in zip(*rows, strict=True)]
    found = run_instruction("mul.wide.s32 %d, %a, %b;", ["b32", "b32"], "b64", *columns)
    assert [int(each) for each in found] == [S(a, 32) * S(b, 32) % 2**64 for a, b in rows]


@pytest.mark.parametrize("space", ["", ".global "])
def test_the_alignment_of_what_a_parameter_points_to_is_not_its_own(space: str) -> None:
    """PTX ISA, "Kernel Parameter Attribute: .ptr"; the address itself begins at byte 8."""
    program = PtxProgram.parse(
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        f".visible .entry k(.param .u32 n, .param .u64 .ptr {space}.align 1 out) {{\n"
        ".reg .b32 %n; .reg .b64 %at;\n"
        "ld.param.u32 %n, [n];\nld.param.u64 %at, [out];\nst.global.u32 [%at], %n;\nret;\n}"
    )
    out = np.zeros(1, np.uint32)
    program.launch("k", (1,), (1,), [7, out])
    assert out.tolist() == [7]
