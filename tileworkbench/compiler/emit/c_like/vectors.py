"""Stores of vectors: accesses of up to 16 bytes, their lanes written out.

A vector that is only moved is one assignment. Otherwise what is read from memory is named once, the
lanes are computed one by one, and what goes to memory is put together from 32-bit words.
"""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.expressions import Expressions
from tileworkbench.compiler.emit.c_like.text import C_TYPES, bare, bits_of, wrapped
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import add, const_int, int_const, is_zero, mul
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load, Ramp
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.machine.machine import VECTOR_BITS

_COMPONENTS = "xyzw"
# What an access of so many bits is made of: the type of a part, and how many.
_WORDS = {128: ("unsigned", 4), 64: ("unsigned", 2)} | {
    bits: (c_type, 1)
    for bits, c_type in ((32, "unsigned"), (16, "unsigned short"), (8, "unsigned char"))
}
Kind = tuple[str, int]


class VectorWriter:
    """Writes the vector stores of one kernel, line by line, through `line(depth, text)`.
    `read_otherwise` may have another way to read a vector of one access than a pointer.
    """

    def __init__(
        self,
        expressions: Expressions,
        line: Callable[[int, str], None],
        read_otherwise: Callable[[Load, Kind], str | None],
    ) -> None:
        self.expressions = expressions
        self.line = line
        self.read_otherwise = read_otherwise
        self.dialect = expressions.dialect
        self.named = expressions.named
        self.count = 0

    def store(self, stmt: st.Store, ramp: Ramp, depth: int) -> None:
        """`buffer[ramp] = value` where the predicate holds."""
        buffer, lanes = stmt.buffer, ramp.lanes
        if const_int(ramp.stride) != 1:
            raise UnsupportedError(f"a vector of '{buffer.name}' is not contiguous")
        moved = self.moved(stmt, ramp)
        if moved is not None:
            self.line(depth, self.guard(stmt) + moved)
            return
        self.write(stmt, lambda: self.assignments(buffer, ramp.base, stmt.value, lanes), depth)

    def add(self, stmt: st.Atomic, ramp: Ramp, depth: int) -> None:
        """Atomic additions to neighbouring elements as one instruction."""
        buffer, lanes = stmt.buffer, ramp.lanes
        added = self.dialect.vector_addition(buffer.dtype, lanes, buffer.scope)
        helper = self.expressions.use(*added)
        place = self.place(buffer, ramp.base)

        def call() -> list[str]:
            words = self.words(stmt.value, buffer.dtype, lanes, True)
            return [f"{helper}({', '.join([place, *map(bare, words)])});"]

        self.write(stmt, call, depth)

    def guard(self, stmt: st.Store | st.Atomic) -> str:
        if stmt.predicate is None:
            return ""
        return f"if ({bare(self.expressions(stmt.predicate))}) "

    def write(self, stmt: st.Store | st.Atomic, lines: Callable[[], list[str]], depth: int) -> None:
        """`lines` where the predicate holds, once the vectors of the value are read."""
        guard = self.guard(stmt)
        loads = [node for node in walk(stmt.value) if self.is_memory(node)]
        if guard or loads:
            self.line(depth, f"{guard}{{")
            depth += 1
        for load in dict.fromkeys(loads):
            self.name(load, depth)  # type: ignore[arg-type]
        for text in lines():
            self.line(depth, text)
        if guard or loads:
            self.line(depth - 1, "}")
        self.expressions.vectors.clear()

    @staticmethod
    def is_memory(node: object) -> bool:
        """Whether it is a vector that is read from shared or global memory."""
        return isinstance(node, Load) and node.dtype.lanes > 1 and node.buffer.scope != "local"

    # Moving as it is

    def moved(self, stmt: st.Store, ramp: Ramp) -> str | None:
        """One wide access on each side, when the value is nothing but a load from memory."""
        value, bits = stmt.value, ramp.lanes * bits_of(stmt.buffer.dtype)
        if not isinstance(value, Load) or not self.is_memory(value) or bits > VECTOR_BITS:
            return None
        if stmt.buffer.scope == "local" or not is_zero(value.safe):
            return None
        kind = _words_of(bits)
        text = self.read(value, kind, 0)
        return f"*({self.spelled(kind)}*)({self.place(stmt.buffer, ramp.base)}) = {text};"

    def spelled(self, kind: Kind) -> str:
        """The type of an access."""
        return self.dialect.vector_type(*kind) if kind[1] > 1 else kind[0]

    def read(self, load: Load, kind: Kind, piece: int) -> str:
        """One access to memory; zeros where the predicate does not hold."""
        whole = load.dtype.lanes * bits_of(load.buffer.dtype) <= VECTOR_BITS
        text = self.read_otherwise(load, kind) if whole else None
        if text is None:
            pointer = f"(const {self.spelled(kind)}*)({self.place(load.buffer, _base(load))})"
            text = f"*{pointer}" if whole else f"({pointer})[{piece}]"
        if load.predicate is None:
            return text
        return f"{wrapped(self.expressions(load.predicate), 3)} ? {text} : {self.safe(load, kind)}"

    def safe(self, load: Load, kind: Kind) -> str:
        """What is read outside, in every lane."""
        dtype, (c_type, count) = load.buffer.dtype, kind
        value = "0" if load.safe is None else self.expressions(load.safe)
        if bits_of(dtype) < 32:
            per = min(32 // bits_of(dtype), load.dtype.lanes)
            value = "0u" if is_zero(load.safe) else self.joined(dtype, [value] * per)
        return self.dialect.vector(c_type, [value] * count) if count > 1 else value

    def place(self, buffer: Buffer, base: Expr) -> str:
        return self.expressions.address(Address(buffer, (base,)))

    # Naming what is read

    def name(self, load: Load, depth: int) -> None:
        """Read a vector into variables of up to 16 bytes."""
        bits = load.dtype.lanes * bits_of(load.buffer.dtype)
        kind = _kind_of(load.buffer.dtype, min(bits, VECTOR_BITS))
        words: list[str] = []
        for piece in range(-(-bits // VECTOR_BITS)):
            self.count += 1
            name = f"v{self.count}"
            self.line(depth, f"const {self.spelled(kind)} {name} = {self.read(load, kind, piece)};")
            parts = [f"{name}.{letter}" for letter in _COMPONENTS[: kind[1]]]
            words += parts if kind[1] > 1 else [name]
        self.expressions.vectors[load] = words

    # Putting lanes together

    def assignments(self, buffer: Buffer, base: Expr, value: Expr, lanes: int) -> list[str]:
        """The statements that put the lanes of `value` in their places."""
        dtype = buffer.dtype
        packed = buffer.scope != "local" or buffer in self.expressions.packed
        words = self.words(value, dtype, lanes, packed)
        if buffer.scope == "local":
            if buffer in self.expressions.packed and not self.is_whole_words(buffer, base, lanes):
                return self.into_parts(buffer, base, value, lanes)
            places = self.registers(buffer, base, len(words))
            return [f"{at} = {bare(word)};" for at, word in zip(places, words, strict=True)]
        if buffer.scope == "local.var":
            raise UnsupportedError(f"'{buffer.name}' is a scalar and takes no vector")
        bits = lanes * bits_of(dtype)
        c_type, per = kind = _kind_of(dtype, min(bits, VECTOR_BITS))
        spelled = self.spelled(kind)
        place = self.place(buffer, base)
        lines = []
        for piece in range(-(-bits // VECTOR_BITS)):
            parts = words[piece * per : piece * per + per]
            text = self.dialect.vector(c_type, parts) if per > 1 else parts[0]
            if bits < 32:
                text = f"({spelled})({text})"
            pointer = f"({spelled}*)({place})"
            into = f"*{pointer}" if bits <= VECTOR_BITS else f"({pointer})[{piece}]"
            lines.append(f"{into} = {bare(text)};")
        return lines

    def is_whole_words(self, buffer: Buffer, base: Expr, lanes: int) -> bool:
        """Whether so many elements of a packed array from `base` on are 32-bit words of it. A part
        of a word that has no other elements is one, too.
        """
        per = 32 // bits_of(buffer.dtype)
        if const_shape(buffer) == (lanes,) and lanes < per:
            return is_zero(base)
        return lanes % per == 0 and self.expressions.ranges.divides(per, base)

    def into_parts(self, buffer: Buffer, base: Expr, value: Expr, lanes: int) -> list[str]:
        """Two bytes as half of a word where they are one, else element by element."""
        bits, divides = bits_of(buffer.dtype), self.expressions.ranges.divides
        step = 2 if bits == 8 and lanes % 2 == 0 and divides(2, base) else 1
        put = self.expressions.use(f"set{bits * step}")
        lines = []
        for first in range(0, lanes, step):
            index = bare(self.expressions(add(base, int_const(first))))
            index = f"({index}) / {step}" if step > 1 else index
            parts = [str(first + at) for at in range(step)]
            whole = self.word(value, buffer.dtype, parts) if step > 1 else ""
            text = bare(whole or self.expressions.text(value, parts[0]))
            lines.append(f"{put}({self.named(buffer)}, {index}, {text});")
        return lines

    def registers(self, buffer: Buffer, base: Expr, count: int) -> list[str]:
        """So many words of a packed array, or elements of another, from element `base` on."""
        per = 32 // bits_of(buffer.dtype) if buffer in self.expressions.packed else 1
        name, start = self.named(buffer), const_int(base)
        if start is not None:
            return [f"{name}[{start // per + at}]" for at in range(count)]
        texts = [bare(self.expressions(add(base, int_const(at * per)))) for at in range(count)]
        return [f"{name}[({text}) / {per}]" if per > 1 else f"{name}[{text}]" for text in texts]

    def words(self, value: Expr, dtype: DType, lanes: int, packed: bool) -> list[str]:
        """The 32-bit words of a vector; its elements, when they are as large or not packed."""
        if bits_of(dtype) >= 32 or not packed:
            return [self.expressions.text(value, str(at)) for at in range(lanes)]
        per = min(32 // bits_of(dtype), lanes)
        if isinstance(value, Load) and value.buffer.dtype == dtype:
            if self.is_memory(value):
                return self.expressions.vectors[value]
            picked = self.picked(value, lanes // per)
            if picked is not None:
                return picked
            buffer, base = value.buffer, _base(value)
            if buffer in self.expressions.packed and self.is_whole_words(buffer, base, lanes):
                return self.registers(buffer, base, lanes // per)
        groups = [[str(first + at) for at in range(per)] for first in range(0, lanes, per)]
        return [self.word(value, dtype, group) for group in groups]

    def picked(self, load: Load, count: int) -> list[str] | None:
        """So many words of elements of a packed array that are some way apart, where the language
        has a function for it.
        """
        ramp, bits = load.indices[-1], bits_of(load.buffer.dtype)
        helper = self.dialect.picks.get(bits)
        if not isinstance(ramp, Ramp) or const_int(ramp.stride) == 1 or helper is None:
            return None
        pick, name = self.expressions.use(helper), self.named(load.buffer)
        words, stride = [], self.expressions(ramp.stride)
        for number in range(count):
            moved = mul(ramp.stride, int_const(number * (32 // bits)))
            first = bare(self.expressions(add(ramp.base, moved)))
            words.append(f"{pick}({name}, {first}, {stride})")
        return words

    def word(self, value: Expr, dtype: DType, lanes: list[str]) -> str:
        """Some lanes side by side; two conversions to 16 bits are one instruction."""
        pair = self.dialect.pair(dtype)
        wide = value.value if isinstance(value, ir.Cast) else value
        if pair and wide.dtype.scalar == "float32" and len(lanes) == 2:
            write = self.expressions.half_product
            low, high = (write(wide, lane) or self.expressions.text(wide, lane) for lane in lanes)
            return f"{self.expressions.use(pair)}({low}, {high})"
        return self.joined(dtype, [self.expressions.text(value, lane) for lane in lanes])

    @staticmethod
    def joined(dtype: DType, parts: list[str]) -> str:
        """Elements side by side in one word."""
        mask = (1 << bits_of(dtype)) - 1
        shown = [f"((unsigned){wrapped(part)} & {mask:#x})" for part in parts]
        shifted = [f"{part} << {at * bits_of(dtype)}" for at, part in enumerate(shown)]
        return f"({' | '.join([shown[0], *shifted[1:]])})"


def _base(load: Load) -> Expr:
    ramp = load.indices[-1]
    if not isinstance(ramp, Ramp) or const_int(ramp.stride) != 1:
        raise UnsupportedError(f"a vector of '{load.buffer.name}' is not contiguous")
    return ramp.base


def _words_of(bits: int) -> Kind:
    """An access of so many bits in words. Raises `UnsupportedError` where there is none."""
    if bits not in _WORDS:
        raise UnsupportedError(f"a vector of {bits} bits has no access of its own")
    return _WORDS[bits]


def _kind_of(dtype: DType, bits: int) -> Kind:
    """The access to a vector: in its elements when they are words or larger."""
    if bits_of(dtype) < 32 or bits == bits_of(dtype):
        return _words_of(bits)
    return C_TYPES[str(dtype.scalar)], bits // bits_of(dtype)
