"""One of sixteen numbers for every lane: a permutation of registers that hold them."""

from __future__ import annotations

from collections.abc import Sequence

from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.ir.types import DType


def lookup(
    writer: FunctionWriter, isa: Isa, code: str, lanes: int, table: Sequence[float], dtype: DType
) -> str:
    """`table[code % 16]` for `lanes` lanes of i32; the table's entries are of a 32-bit `dtype`."""
    element = "float" if dtype.is_float else "i32"
    if isa.level not in _PERMUTATIONS:
        return _choose(writer, code, lanes, table, element)
    width, permute = _PERMUTATIONS[isa.level]
    kind = VectorType("i32", lanes)
    parts = []
    for start in range(0, lanes, width):
        few = kind.lanes <= width
        part = writer.resize(code, kind, width) if few else writer.slice(code, kind, start, width)
        parts.append(permute(writer, part, table, element))
    return writer.join(parts, VectorType(element, width), lanes)


def lane_at(writer: FunctionWriter, table: str, code: str, lanes: int) -> str:
    """`table[code % 16]` for `lanes` lanes of i32 (16 or a multiple of 32), where a table of 16
    lanes of i16 and its result are stored elements: VPERMW, which takes the low five bits."""
    width = min(lanes, 32)
    short, word = VectorType("i16", width), VectorType("i32", lanes)
    if width == 32:
        order = ", ".join(f"i32 {lane % 16}" for lane in range(32))
        both = f"<16 x i16> {table}, <16 x i16> poison"
        table = writer.let(f"shufflevector {both}, <32 x i32> <{order}>")
    index = writer.let(f"trunc {word} {code} to {word.of('i16')}")
    name = f"llvm.x86.avx512.permvar.hi.{16 * width}"
    indices = (writer.slice(index, word.of("i16"), at, width) for at in range(0, lanes, width))
    parts = [writer.call(short, name, (short, table), (short, part)) for part in indices]
    return writer.join(parts, short, lanes)


def _permute_512(writer: FunctionWriter, code: str, table: Sequence[float], element: str) -> str:
    """VPERMPS or VPERMD, which take the low four bits of each lane."""
    kind, suffix = VectorType(element, 16), "sf" if element == "float" else "si"
    arguments = ((kind, _constants(kind, table)), (kind.of("i32"), code))
    return writer.call(kind, f"llvm.x86.avx512.permvar.{suffix}.512", *arguments)


def _permute_256(writer: FunctionWriter, code: str, table: Sequence[float], element: str) -> str:
    """The same with the low three bits; the fourth chooses between two halves."""
    kind, index = VectorType(element, 8), VectorType("i32", 8)
    name = f"llvm.x86.avx2.perm{'ps' if element == 'float' else 'd'}"
    halves = [
        writer.call(kind, name, (kind, _constants(kind, table[at : at + 8])), (index, code))
        for at in (0, 8)
    ]
    bit = writer.let(f"and {index} {code}, {index.constant(8)}")
    low = writer.let(f"icmp eq {index} {bit}, {index.constant(0)}")
    return writer.let(f"select <8 x i1> {low}, {kind} {halves[0]}, {kind} {halves[1]}")


_PERMUTATIONS = {"avx512": (16, _permute_512), "avx2": (8, _permute_256)}


def _choose(
    writer: FunctionWriter, code: str, lanes: int, table: Sequence[float], element: str
) -> str:
    """By comparison with every code."""
    kind, index = VectorType(element, lanes), VectorType("i32", lanes)
    low = writer.let(f"and {index} {code}, {index.constant(len(table) - 1)}")
    value = kind.constant(table[0])
    for number, entry in enumerate(table[1:], 1):
        same = writer.let(f"icmp eq {index} {low}, {index.constant(number)}")
        flags = index.of("i1")
        value = writer.let(f"select {flags} {same}, {kind} {kind.constant(entry)}, {kind} {value}")
    return value


def _constants(kind: VectorType, values: Sequence[float]) -> str:
    single = VectorType(kind.element, 1)
    return f"<{', '.join(f'{single} {single.constant(value)}' for value in values)}>"

