"""Elements of 4 bits in global memory: two per byte, the even one in the low half.

The memory of a worker (tiles, fragments, arrays) has a byte for each such element, unless it has a
view as larger elements: then two share a byte as in global memory. Neighbours that share a byte may
belong to two blocks, which run at once: a single element is therefore replaced by two atomic
operations on its byte, which leave the other half as it is.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.emitter import Emitter, Value
from tileworkbench.compiler.emit.llvm.text import VectorType


def byte_of(out: Emitter, index: Value) -> tuple[str, str]:
    """The number of the byte (or bytes) with element `index`, and by how far its bits are
    shifted there.
    """
    kind = index.type
    number = out.let(f"ashr {kind} {index.text}, {kind.constant(1)}")
    odd = out.let(f"and {kind} {index.text}, {kind.constant(1)}")
    half = out.let(f"shl {kind} {odd}, {kind.constant(2)}")
    shift = VectorType("i8", index.lanes)
    return number, out.let(f"trunc {kind} {half} to {shift}")


def half_of(out: Emitter, byte: str, shift: str, lanes: int) -> str:
    """The half of each byte that `shift` selects, in the low bits of a byte."""
    kind = VectorType("i8", lanes)
    return out.let(f"and {kind} {out.let(f'lshr {kind} {byte}, {shift}')}, {kind.constant(15)}")


def interleave(out: Emitter, packed: str, lanes: int) -> str:
    """The `lanes` elements of `lanes` / 2 bytes."""
    half, whole = VectorType("i8", lanes // 2), VectorType("i8", lanes)
    low = out.let(f"and {half} {packed}, {half.constant(15)}")
    high = out.let(f"lshr {half} {packed}, {half.constant(4)}")
    if lanes == 2:
        first = out.let(f"insertelement {whole} poison, i8 {low}, i32 0")
        return out.let(f"insertelement {whole} {first}, i8 {high}, i32 1")
    order = ", ".join(f"i32 {i // 2 + i % 2 * lanes // 2}" for i in range(lanes))
    return out.let(f"shufflevector {half} {low}, {half} {high}, <{lanes} x i32> <{order}>")


def deinterleave(out: Emitter, elements: str, lanes: int) -> str:
    """The bytes of `lanes` elements, each of which has only its low bits set."""
    half, whole = VectorType("i8", lanes // 2), VectorType("i8", lanes)
    parts = []
    for first in (0, 1):
        if lanes == 2:
            parts.append(out.let(f"extractelement {whole} {elements}, i32 {first}"))
            continue
        order = ", ".join(f"i32 {i}" for i in range(first, lanes, 2))
        mask = f"<{lanes // 2} x i32> <{order}>"
        parts.append(out.let(f"shufflevector {whole} {elements}, {whole} poison, {mask}"))
    high = out.let(f"shl {half} {parts[1]}, {half.constant(4)}")
    return out.let(f"or {half} {parts[0]}, {high}")


def low_bits(out: Emitter, stored: str, lanes: int) -> str:
    """Elements of a byte each without the upper bits of their bytes."""
    kind = VectorType("i8", lanes)
    return out.let(f"and {kind} {stored}, {kind.constant(15)}")


def replace_element(out: Emitter, base: str, index: Value, half: str) -> None:
    """Write four bits into element `index` (one lane) of the packed memory at `base`."""
    number, shift = byte_of(out, index)
    address = out.let(f"getelementptr i8, ptr {base}, {index.type} {number}")
    hole = out.let(f"xor i8 {out.let(f'shl i8 15, {shift}')}, -1")
    out.do(f"atomicrmw and ptr {address}, i8 {hole} monotonic")
    out.do(f"atomicrmw or ptr {address}, i8 {out.let(f'shl i8 {half}, {shift}')} monotonic")


def replace_elements(out: Emitter, base: str, index: Value, halves: str, mask: str | None) -> None:
    """Write element `index` of each lane where `mask` holds, one after the other."""
    lanes, kind = index.lanes, index.type
    places = out.alloca(kind.element, lanes)
    values = out.alloca("i8", lanes)
    out.do(f"store {kind} {index.text}, ptr {places}, align 64")
    out.do(f"store <{lanes} x i8> {halves}, ptr {values}, align 64")
    flags = None
    if mask is not None:
        flags = out.alloca("i8", lanes)
        wide = out.let(f"zext <{lanes} x i1> {mask} to <{lanes} x i8>")
        out.do(f"store <{lanes} x i8> {wide}, ptr {flags}, align 64")

    def one(lane: str) -> None:
        if flags is not None:
            at = out.let(f"getelementptr i8, ptr {flags}, i64 {lane}")
            active = out.let(f"trunc i8 {out.let(f'load i8, ptr {at}')} to i1")
            then, after = out.fresh_label("store"), out.fresh_label("after")
            out.branch(active, then, after)
            out.place(then)
        at = out.let(f"getelementptr {kind.element}, ptr {places}, i64 {lane}")
        number = out.let(f"load {kind.element}, ptr {at}")
        at = out.let(f"getelementptr i8, ptr {values}, i64 {lane}")
        half = out.let(f"load i8, ptr {at}")
        replace_element(out, base, Value(number, index.dtype), half)
        if flags is not None:
            out.jump(after)
            out.place(after)

    with out.scope():
        out.repeat(lanes, one)
