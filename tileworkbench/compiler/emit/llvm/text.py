"""A small writer of LLVM IR functions, and the text of types and constants."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"), 1),
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "int32": 4,
}
"""Bytes of an element of each dtype that operand panels and accumulators may have."""

LINE_BYTES = 64
"""Of a line of the cache, and of the largest vector."""

LINE_COMMENT = "; line "
"""Begins a comment above the instructions of a line of the user's source; its number follows."""

_COMMENT = re.compile(rf"^ *{LINE_COMMENT}\d+\n", re.MULTILINE)
_ELEMENT_TYPES = {"float64": "double", "float32": "float"}


def without_lines(text: str) -> str:
    """The text without comments about lines: the same wherever the kernel stands in its file."""
    return _COMMENT.sub("", text)


@dataclass(frozen=True, slots=True)
class EmittedFunction:
    """LLVM IR text of one internal function.

    Args:
        name: its symbol, without the '@'.
        text: one `define internal` block.
        declarations: the `declare` lines it needs; a module takes the union over its functions.
    """

    name: str
    text: str
    declarations: frozenset[str]


@dataclass(frozen=True, slots=True)
class VectorType:
    """An LLVM type: a vector of `lanes` elements, or the bare element where `lanes` is 1."""

    element: str
    lanes: int

    def __str__(self) -> str:
        return self.element if self.lanes == 1 else f"<{self.lanes} x {self.element}>"

    @property
    def mangled(self) -> str:
        """The suffix that overloaded intrinsics carry for this type, such as 'v16f32'."""
        element = {"float": "f32", "double": "f64", "half": "f16"}.get(self.element, self.element)
        return element if self.lanes == 1 else f"v{self.lanes}{element}"

    def of(self, element: str) -> VectorType:
        """Return the type with the same lanes and another element."""
        return VectorType(element, self.lanes)

    def constant(self, value: float | int) -> str:
        """Return a constant of this type with `value` in every lane."""
        if self.element in ("float", "double"):
            # LLVM writes float constants as the bits of the double that has the same value.
            if self.element == "float":
                value = struct.unpack("<f", struct.pack("<f", value))[0]
            bits = struct.unpack("<Q", struct.pack("<d", value))[0]
            text = f"0x{bits:016X}"
        else:
            text = str(int(value))
        return text if self.lanes == 1 else f"splat ({self.element} {text})"


def storage_type(dtype: str, lanes: int = 1) -> VectorType:
    """Return the type that holds elements of `dtype` in memory; 16-bit floats are stored as i16."""
    element = _ELEMENT_TYPES.get(dtype, f"i{8 * DTYPE_BYTES[dtype]}")
    return VectorType(element, lanes)


class FunctionWriter:
    """Writes the body of one function in SSA form, block by block.

    Values and labels get fresh names; `block` is the label of the block being written.
    """

    def __init__(
        self, name: str, result: str, parameters: str, attributes: str = "nounwind"
    ) -> None:
        self._name = name
        self._header = f"define internal {result} @{name}({parameters}) {attributes} {{"
        self._lines: list[Any] = ["entry:"]
        # Of the user's source, that instructions are written for; 0 is elsewhere.
        self.line: int | None = None
        self._declarations: set[str] = set()
        self._count = 0
        self.block = "entry"

    def let(self, expression: str) -> str:
        """Append an instruction with a result and return the result's name."""
        self._count += 1
        value = f"%v{self._count}"
        self._append(f"  {value} = {expression}")
        return value

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self._append(f"  {instruction}")

    def _append(self, instruction: str) -> None:
        self._lines.append(instruction if self.line is None else (instruction, self.line))

    def fresh_label(self, hint: str) -> str:
        """Return a new label, to be placed later."""
        self._count += 1
        return f"{hint}{self._count}"

    def place(self, label: str) -> None:
        """Begin the block `label`; the block before it must have been ended."""
        self._lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """End the block with a jump."""
        self.do(f"br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """End the block with a conditional jump."""
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def call(
        self, result: VectorType | str, callee: str, *arguments: tuple[VectorType | str, str]
    ) -> str:
        """Append a call of an external function or intrinsic, declared by the argument types."""
        self.declare(result, callee, *(kind for kind, _ in arguments))
        actual = ", ".join(f"{kind} {value}" for kind, value in arguments)
        return self.let(f"call {result} @{callee}({actual})")

    def run(self, callee: str, *arguments: tuple[VectorType | str, str]) -> None:
        """Append a call without a result, declared by the argument types."""
        self.declare("void", callee, *(kind for kind, _ in arguments))
        actual = ", ".join(f"{kind} {value}" for kind, value in arguments)
        self.do(f"call void @{callee}({actual})")

    def prefetch(self, address: str, level: int = 1) -> None:
        """Append a fetch into the cache of a level, 1 the innermost, of any address."""
        locality = str(4 - level)
        options = (("i32", number) for number in ("0", locality, "1"))  # a read, of data
        self.run("llvm.prefetch.p0", ("ptr", address), *options)

    def declare(self, result: VectorType | str, callee: str, *parameters: VectorType | str) -> None:
        """Record a declaration that the function needs."""
        formal = ", ".join(str(kind) for kind in parameters)
        self._declarations.add(f"declare {result} @{callee}({formal})")

    def declare_variadic(self, result: str, callee: str, *parameters: str) -> None:
        """Record the declaration of a function with further arguments."""
        self._declarations.add(f"declare {result} @{callee}({', '.join(parameters)}, ...)")

    def address(self, kind: VectorType, base: str, index: str) -> str:
        """Append the address of element `index` of an array of `kind`.

        Not inbounds: a masked load may name an address past a tile without reading it.
        """
        return self.let(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def times(self, value: str, factor: int | str) -> str:
        """Append an i64 product."""
        return value if factor == 1 else self.let(f"mul nsw i64 {value}, {factor}")

    def plus(self, value: str, offset: int | str) -> str:
        """Append an i64 sum."""
        return value if offset == 0 else self.let(f"add nsw i64 {value}, {offset}")

    def splat(self, value: str, kind: VectorType) -> str:
        """Append the broadcast of a scalar into every lane of `kind`."""
        if kind.lanes == 1:
            return value
        single = self.with_lane("poison", kind, 0, value)
        zeros = f"<{kind.lanes} x i32> zeroinitializer"
        return self.let(f"shufflevector {kind} {single}, {kind} poison, {zeros}")

    def lane(self, value: str, kind: VectorType, number: int) -> str:
        """Append one lane of `value`, a `kind`."""
        return self.let(f"extractelement {kind} {value}, i64 {number}")

    def with_lane(self, value: str, kind: VectorType, number: int, element: str) -> str:
        """Append `value`, a `kind` or ``poison``, with another element in a lane."""
        return self.let(f"insertelement {kind} {value}, {kind.element} {element}, i64 {number}")

    def resize(
        self, value: str, kind: VectorType, lanes: int, rest: str = "zeroinitializer"
    ) -> str:
        """Append the first `lanes` lanes of `value`, a `kind`; lanes it does not have are `rest`,
        ``poison`` where nobody looks at them, or an instruction would clear them.
        """
        if kind.lanes == lanes:
            return value
        if lanes == 1:
            return self.lane(value, kind, 0)
        if kind.lanes == 1:
            return self.with_lane(rest, VectorType(kind.element, lanes), 0, value)
        order = ", ".join(f"i32 {min(lane, kind.lanes)}" for lane in range(lanes))
        both = f"{kind} {value}, {kind} {rest}"
        return self.let(f"shufflevector {both}, <{lanes} x i32> <{order}>")

    def slice(self, value: str, kind: VectorType, start: int, lanes: int) -> str:
        """Append `lanes` lanes of `value`, a `kind`, from `start` on."""
        if kind.lanes == lanes:
            return value
        order = ", ".join(f"i32 {lane}" for lane in range(start, start + lanes))
        both = f"{kind} {value}, {kind} poison"
        return self.let(f"shufflevector {both}, <{lanes} x i32> <{order}>")

    def join(self, parts: Sequence[str], kind: VectorType, lanes: int) -> str:
        """Append the first `lanes` lanes of vectors of one `kind` behind one another; their number
        is a power of two."""
        while len(parts) > 1:
            order = ", ".join(f"i32 {lane}" for lane in range(2 * kind.lanes))
            mask = f"<{2 * kind.lanes} x i32> <{order}>"
            parts = [
                self.let(f"shufflevector {kind} {left}, {kind} {right}, {mask}")
                for left, right in zip(parts[::2], parts[1::2], strict=True)
            ]
            kind = VectorType(kind.element, 2 * kind.lanes)
        return self.resize(parts[0], kind, lanes)

    def repeat(self, count: int, body: Callable[[str], None]) -> None:
        """Write `for i in range(count): body(i)`."""

        def iteration(counter: str, carried: list[str]) -> list[str]:
            body(counter)
            return carried

        if count:
            self.counted_loop(count, 1, iteration)

    def counted_loop(
        self,
        stop: int | str,
        step: int,
        body: Callable[[str, list[str]], list[str]],
        carried: Sequence[tuple[VectorType, str]] = (),
    ) -> list[str]:
        """Write `for i in range(0, stop, step)` over i64, at least once, and return the carried
        values.

        Args:
            stop: a multiple of `step` that is at least `step`; a number or an i64 value.
            body: writes one iteration from the counter and the carried values; returns the new
                carried values.
            carried: type and initial value of each loop-carried value.
        """
        if stop == step:
            return body("0", [value for _, value in carried])
        entry, header = self.block, self.fresh_label("loop")
        self.jump(header)
        self.place(header)
        at = len(self._lines)
        counter = self._reserve()
        names = [self._reserve() for _ in carried]
        results = body(counter, names)
        following = self.let(f"add nuw nsw i64 {counter}, {step}")
        done = self.let(f"icmp eq i64 {following}, {stop}")
        latch, after = self.block, self.fresh_label("done")
        self.branch(done, after, header)
        phis = [f"  {counter} = phi i64 [ 0, %{entry} ], [ {following}, %{latch} ]"]
        for name, (kind, initial), result in zip(names, carried, results, strict=True):
            phis.append(f"  {name} = phi {kind} [ {initial}, %{entry} ], [ {result}, %{latch} ]")
        self._lines[at:at] = phis
        self.place(after)
        return results

    def _reserve(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def finish(self, result: str = "void") -> EmittedFunction:
        """End the function with `ret result` and return its text."""
        self.do(f"ret {result}")
        text = "\n".join([self._header, *self._lines, "}"]) + "\n"
        return EmittedFunction(self._name, text, frozenset(self._declarations))
