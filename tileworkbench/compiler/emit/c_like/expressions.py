"""Expressions as text of a C-like language.

16-bit floats are carried as bits and computed in float32, rounded after every operation, as
everywhere in this compiler. Vectors are written lane by lane: `text(value, "3")` is one lane of a
vector expression whose loads from memory were named before.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.dialect import Dialect
from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.small_floats import code_of
from tileworkbench.compiler.emit.c_like.text import (
    C_TYPES,
    CODES,
    Text,
    bare,
    bits_of,
    chosen,
    float32_text,
    joined,
    wrapped,
)
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import add, const_int, int_const
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Load
from tileworkbench.compiler.ir.types import DType

_MATH = {
    **{name: name for name in ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "fma")},
    **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "atan", "erf")},
    **{name: name for name in ("floor", "ceil", "trunc", "round")},
    "nearbyint": "rint",
}


class Expressions:
    """Writes the expressions of one kernel and notes which helpers they call."""

    def __init__(self, ranges: Ranges, dialect: Dialect, names: Mapping[str, str]) -> None:
        self.ranges = ranges
        self.names = names  # for those that the language has another use for
        self.dialect = dialect
        self.helpers: dict[str, Helper] = {}  # those that others need come first
        self.packed: set[Buffer] = set()  # register arrays kept in 32-bit words
        self.tables: dict[tuple[str, str], str] = {}  # of constants, by type and entries
        self.known: dict[Expr, str] = {}  # what counters of loops stand for
        self.vectors: dict[Load, list[str]] = {}  # the words of vectors read from memory
        self.halves: set[Expr] = set()  # variables of float32 that were float16

    def use(self, name: str, helper: Helper | None = None) -> str:
        """The name of a helper, which is emitted from now on."""
        used = helper or self.dialect.helpers[name]
        self.dialect.check(used)
        for needed in used.needs:
            self.use(needed)
        self.helpers[name] = used
        return name

    def named(self, value: ir.Var | Buffer) -> str:
        """What a variable or a buffer is called in the text."""
        return self.names.get(value.name, value.name)

    def c_type(self, dtype: DType) -> str:
        """The C++ type of a scalar."""
        spelled = C_TYPES[str(dtype.scalar)]
        if spelled in CODES.values():
            self.use(spelled)
        return spelled

    def __call__(self, value: Expr) -> str:
        """A scalar expression."""
        return self.text(value, None)

    def text(self, value: Expr, lane: str | None) -> str:
        """`value`, or its lane `lane` when it is a vector; as an operand of anything."""
        if value in self.known:
            return self.known[value]
        match value:
            case Const():
                return self.constant(value)
            case ir.Var():
                return self.named(value)
            case ir.Broadcast(inner):
                return self.text(inner, None)
            case ir.Ramp(base, stride):
                step = self.text(stride, None)
                return joined("add", self.text(base, None), joined("mul", step, str(lane)))
            case ir.Binary():
                return self.binary(value, lane)
            case ir.Unary(op, a):
                return self.unary(op, a, lane)
            case ir.Select(cond, then, other):
                parts = [self.text(part, lane) for part in (cond, then, other)]
                return chosen(*parts)
            case ir.Cast(inner, dtype):
                if dtype.scalar == "float16" and (product := self.half_product(inner, lane)):
                    return f"{self.use('f16_from_f32')}({product})"
                return self.cast(self.text(inner, lane), inner.dtype.scalar, dtype.scalar)
            case ir.Reinterpret(Load() as whole, dtype) if whole.dtype.lanes > 1 == dtype.lanes:
                return self.word(whole, dtype)
            case ir.AddressOf(buffer, indices):
                place = self.address(ir.Address(buffer, indices))
                return Text(f"(unsigned long long)({place})", 14)
            case ir.Reinterpret(inner, dtype):
                return self.reinterpret(self.text(inner, lane), inner.dtype, dtype)
            case ir.Call(name, args):
                return self.call(name, [self.text(arg, lane) for arg in args], value.dtype, args)
            case Load():
                return self.load(value, lane)
        raise TypeError(f"no text for {type(value).__name__}")

    # Leaves

    def constant(self, value: Const) -> str:
        dtype, number = value.dtype, value.value
        if dtype.is_bool:
            return "true" if number else "false"
        if dtype.is_float:
            return self.float_constant(float(number), dtype)
        suffix = {"int64": "ll", "uint64": "ull", "uint32": "u"}.get(str(dtype), "")
        if dtype == "int64" and int(number) == -(1 << 63):
            return "(-9223372036854775807ll - 1)"
        if dtype == "int32" and int(number) == -(1 << 31):
            return "(-2147483647 - 1)"
        text = f"{int(number)}{suffix}"
        return f"({text})" if number < 0 else text

    def float_constant(self, number: float, dtype: DType) -> str:
        if str(dtype) in CODES:
            return f"({self.c_type(dtype)}){code_of(number, dtype):#0{2 + dtype.bits // 4}x}"
        if dtype == "float64":
            if math.isfinite(number):
                return f"({number!r})" if number < 0 else repr(number)
            bits = struct.unpack("Q", struct.pack("d", number))[0]
            return f"{self.dialect.bit_casts['int64', 'float64']}(0x{bits:016x}ll)"
        if not math.isfinite(number):
            bits = struct.unpack("I", struct.pack("f", number))[0]
            return f"{self.dialect.bit_casts['int32', 'float32']}(0x{bits:08x})"
        text = f"{float32_text(number)}f"
        return f"({text})" if text.startswith("-") else text

    # Operators

    def binary(self, value: ir.Binary, lane: str | None) -> str:
        op, dtype = value.op, value.a.dtype.scalar
        a, b = self.text(value.a, lane), self.text(value.b, lane)
        if str(dtype) in CODES:
            name = CODES[str(dtype)]
            wide = [f"{self.use(f'{name}_to_f32')}({part})" for part in (a, b)]
            text = self.arithmetic(op, wide[0], wide[1], DType("float32"), value)
            compared = op in ir.COMPARISONS or op in ir.LOGICAL
            return text if compared else f"{self.use(f'{name}_from_f32')}({text})"
        return self.arithmetic(op, a, b, dtype, value)

    def arithmetic(self, op: str, a: str, b: str, dtype: DType, value: ir.Binary) -> str:
        if op in ("min", "max"):
            if dtype.is_float:
                return f"f{op}{'f' if dtype.bits == 32 else ''}({a}, {b})"
            sign = "<" if op == "min" else ">"
            test = f"{wrapped(a, 12)} {sign} {wrapped(b, 12)}"
            return chosen(Text(test, 9), a, b)
        if op in ("pow", "fmod"):
            return f"{op}{'f' if dtype.bits == 32 else ''}({a}, {b})"
        if op in ("floordiv", "floormod"):
            return self.floor(op, a, b, dtype, value)
        text = joined(op, a, b)
        return self.narrow(text, dtype) if op in ("add", "sub", "mul", "shl") else text

    def floor(self, op: str, a: str, b: str, dtype: DType, value: ir.Binary) -> str:
        """Python's division: a shift or a mask where the operands allow it."""
        divisor = const_int(value.b)
        if divisor and divisor > 0 and divisor & (divisor - 1) == 0:
            if op == "floordiv":
                return joined("shr", a, str(divisor.bit_length() - 1)) if divisor > 1 else a
            return joined("and", a, str(divisor - 1))
        is_scalar = value.a.dtype.lanes == 1 == value.b.dtype.lanes
        if dtype.kind == "uint" or (is_scalar and self.ranges.are_natural(value.a, value.b)):
            return joined("truncdiv" if op == "floordiv" else "truncmod", a, b)
        name = op if dtype.bits <= 32 else f"{op}_i64"
        return f"{self.use(name)}({a}, {b})"

    def unary(self, op: str, a: Expr, lane: str | None) -> str:
        dtype, text = a.dtype.scalar, self.text(a, lane)
        if op == "not":
            return f"!{wrapped(text)}"
        if op == "bitnot":
            return self.narrow(Text(f"~{wrapped(text)}", 14), dtype)
        if str(dtype) in CODES:
            sign = 1 << (dtype.bits - 1)
            mask = {"neg": f"^ {sign:#x}", "abs": f"& {sign - 1:#x}"}[op]
            return Text(f"({self.c_type(dtype)})({wrapped(text)} {mask})", 14)
        if op == "neg":
            return self.narrow(f"(-{wrapped(text)})", dtype)
        if dtype.is_float:
            return f"fabs{'f' if dtype.bits == 32 else ''}({text})"
        return self.narrow(f"({wrapped(text)} < 0 ? -{wrapped(text)} : {wrapped(text)})", dtype)

    def narrow(self, text: str, dtype: DType) -> str:
        """Cut a value that C++ computed as `int` to the bits of its own type."""
        if not dtype.is_int or dtype.bits >= 32:
            return text
        if dtype.bits == 4:
            return self.low_bits(text, dtype)
        return Text(f"({self.c_type(dtype)}){wrapped(text, 14)}", 14)

    def cast(self, text: str, source: DType, target: DType) -> str:
        if source == target or {str(source), str(target)} == {"float32", "tfloat32"}:
            return text
        if str(source) in CODES:
            text = f"{self.use(f'{CODES[str(source)]}_to_f32')}({text})"
        if str(target) in CODES:
            exact = source.is_float and source.bits <= 32
            wide = text if exact else f"(float){wrapped(text)}"
            if source == "float64":
                wide = f"{self.use('odd_f32')}({text})"
            return f"{self.use(f'{CODES[str(target)]}_from_f32')}({wide})"
        if target == "float32" and str(source) in CODES:
            return text
        if target.is_int and target.bits < 32 and source.is_float:
            low, high = int(target.min_value), int(target.max_value)
            return Text(f"({self.c_type(target)})min(max((int){wrapped(text)}, {low}), {high})", 14)
        if target.bits == 4:
            return self.low_bits(text, target)
        if target.is_bool:
            return joined("ne", text, "0")
        return Text(f"({self.c_type(target)}){wrapped(text)}", 14)

    def half_product(self, value: Expr, lane: str | None) -> str | None:
        """A small integer, or the product of one and a float16, as a float32. It is written so that
        compilers see that one instruction of float16 gives the same, once it is rounded.
        """
        if isinstance(value, ir.Binary) and value.op == "mul":
            for code, half in ((value.a, value.b), (value.b, value.a)):
                if isinstance(code, ir.Cast) and self.is_half(half):
                    number = self.half_product(code, lane)
                    return number and joined("mul", number, self.text(half, lane))
        if isinstance(value, ir.Cast) and value.dtype.scalar == "float32":
            value = value.value
        helper, dtype = self.dialect.small_half, value.dtype
        if helper is None or not dtype.is_int or dtype.lanes > 1:
            return None
        bounds = self.ranges.bounds(value)
        if bounds.low is None or bounds.high is None or not -1024 <= bounds.low <= bounds.high:
            return None
        if bounds.high - bounds.low > 1023:
            return None
        return f"{self.use(helper)}({bare(self.text(value, lane))}, {bounds.low})"

    def is_half(self, value: Expr) -> bool:
        """Whether a float32 is one of float16's numbers, because it was one."""
        cast = isinstance(value, ir.Cast) and value.value.dtype.scalar == "float16"
        return value in self.halves or (cast and value.dtype.scalar == "float32")

    def low_bits(self, text: str, dtype: DType) -> str:
        """The low four bits of an integer as an element of `dtype`."""
        cut = "<< 28 >> 28" if dtype == "int4" else "& 15"
        return Text(f"({self.c_type(dtype)})((int){wrapped(text)} {cut})", 14)

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        if target.bits == 4:
            return self.low_bits(text, target)
        if target.lanes > 1:
            raise UnsupportedError(
                f"{self.dialect.language} emission cannot reinterpret '{source}' as '{target}' yet"
            )
        if function := self.dialect.bit_casts.get((str(source), str(target))):
            return f"{function}({text})"
        return Text(f"({self.c_type(target)}){wrapped(text)}", 14)

    def word(self, vector: Load, dtype: DType) -> str:
        """Neighbouring elements in memory as one value of `dtype`."""
        index = vector.indices[-1]
        memory = vector.buffer.scope in ("global", "shared")
        if not isinstance(index, ir.Ramp) or vector.predicate is not None or not memory:
            raise UnsupportedError(
                f"{self.dialect.language} emission cannot read '{vector}' as '{dtype}'"
            )
        start = self.read(vector.buffer, self(index.base))
        return Text(f"*(const {self.c_type(dtype)}*)&{start}", 14)

    def call(self, name: str, args: list[str], dtype: DType, operands: tuple[Expr, ...]) -> str:
        if name == "philox":
            return f"{self.use('philox')}({', '.join(args)})"
        if name == "lookup":
            return self.lookup(args, dtype.scalar)
        source = operands[0].dtype.scalar
        half = CODES.get(str(source))
        if half:
            args = [f"{self.use(f'{half}_to_f32')}({arg})" for arg in args]
        text = self.intrinsic(name, args, DType("float32") if half else source)
        if half and name not in ("isnan", "isinf"):
            return f"{self.use(f'{half}_from_f32')}({text})"
        return text

    def intrinsic(self, name: str, args: list[str], dtype: DType) -> str:
        suffix = "f" if dtype.bits == 32 else ""
        match name:
            case "isnan":
                return joined("ne", args[0], args[0])
            case "isinf":
                return f"(fabs{suffix}({args[0]}) == {self.float_constant(math.inf, dtype)})"
            case "sigmoid":
                one = "1.0f" if suffix else "1.0"
                return f"({one} / ({one} + exp{suffix}(-{wrapped(args[0])})))"
            case "popcount" if dtype.bits < 32:  # a sign would be counted for every bit above
                args = [f"{wrapped(args[0], 6)} & {(1 << dtype.bits) - 1:#x}"]
            case "max_nan" | "min_nan":
                return f"{self.use(f'{name}{suffix}')}({', '.join(args)})"
        if text := self.dialect.intrinsic(name, args, dtype):
            return text
        called = self.dialect.math.get(name) or _MATH.get(name)
        if called and dtype.is_float:
            return f"{called}{suffix}({', '.join(args)})"
        raise UnsupportedError(
            f"{self.dialect.language} emission does not know 'T.{name}' of '{dtype}'"
        )

    def lookup(self, args: list[str], dtype: DType) -> str:
        """One of 16 constants: a table in constant memory, its name made from what it holds."""
        c_type = self.c_type(dtype)
        entries = ", ".join(args[1:])
        name = f"table_{len(self.tables)}"
        table = self.tables.setdefault((c_type, entries), name)
        return f"{table}[{args[0]} & 15]"

    # Memory

    def address(self, address: ir.Address) -> str:
        """A pointer to the element: into the words of a packed register array."""
        buffer, index = address.buffer, self(address.indices[0])
        if buffer in self.packed:
            per = 32 // bits_of(buffer.dtype)
            number = const_int(address.indices[0])
            index = str(number // per) if number is not None else f"{wrapped(index)} / {per}"
        elif buffer.dtype.bits == 4:
            index = f"{wrapped(index)} / 2"
        index = bare(index)
        name = self.named(buffer)
        return name if index == "0" else f"&{name}[{index}]"

    def load(self, value: Load, lane: str | None) -> str:
        buffer = value.buffer
        if value.dtype.lanes > 1 and lane is not None:
            ramp = value.indices[-1]
            if buffer.scope == "local" and isinstance(ramp, ir.Ramp):
                return self.read(buffer, self(add(ramp.base, int_const(int(lane)))))
            return self.lane(buffer.dtype.scalar, self.vectors[value], int(lane))
        if buffer.scope == "local.var":
            return self.named(buffer)
        index = self.text(value.indices[0], lane)
        text = self.read(buffer, index)
        if value.predicate is None:
            return text
        safe = "0" if value.safe is None else self(value.safe)
        return chosen(self(value.predicate), text, safe)

    def read(self, buffer: Buffer, index: str) -> str:
        """Element `index` of a buffer."""
        if buffer in self.packed:
            return self.element(buffer, index)
        if buffer.dtype.bits == 4:
            code = f"{self.use('get4')}({self.named(buffer)}, {bare(index)})"
            return self.four_bits(code, buffer.dtype)
        return f"{self.named(buffer)}[{bare(index)}]"

    def four_bits(self, text: str, dtype: DType) -> str:
        """A value of a type of four bits, from these bits."""
        return self.low_bits(text, dtype) if dtype == "int4" else text

    def lane(self, dtype: DType, words: list[str], at: int) -> str:
        """One lane of a vector in words."""
        if dtype.bits >= 32:
            return words[at]
        per = 32 // bits_of(dtype)
        word, shift = words[at // per], at % per * bits_of(dtype)
        shifted = Text(f"{word} >> {shift}", 11) if shift else word
        if dtype.bits == 4:
            return self.four_bits(f"({shifted} & 15)", dtype)
        return Text(f"({self.c_type(dtype)}){wrapped(shifted)}", 14)

    def element(self, buffer: Buffer, index: str) -> str:
        """Element `index` of a packed register array."""
        dtype = buffer.dtype.scalar
        if dtype.bits == 4:
            bytes_ = f"(const unsigned char*){self.named(buffer)}"
            return self.four_bits(f"{self.use('get4')}({bytes_}, {bare(index)})", dtype)
        code = f"{self.use(f'get{bits_of(dtype)}')}({self.named(buffer)}, {bare(index)})"
        c_type = self.c_type(dtype)
        return code if c_type in CODES.values() else Text(f"({c_type}){code}", 14)
