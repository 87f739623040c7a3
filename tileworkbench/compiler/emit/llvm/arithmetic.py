"""Operations on values in registers: arithmetic, comparisons, conversions and calls as LLVM IR."""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.emit.llvm.convert import convert
from tileworkbench.compiler.emit.llvm.emitter import Emitter, Value, memory_type, register_type
from tileworkbench.compiler.emit.llvm.extrema import emit_extremum, emit_quiet
from tileworkbench.compiler.emit.llvm.float8 import narrow_float8
from tileworkbench.compiler.emit.llvm.float_to_int import float_to_int
from tileworkbench.compiler.emit.llvm.philox import emit_philox
from tileworkbench.compiler.emit.llvm.text import EmittedFunction, VectorType
from tileworkbench.compiler.emit.llvm.vector_math import emit_vector_math, write_vector_math
from tileworkbench.compiler.ir.float_formats import FORMATS
from tileworkbench.compiler.ir.types import BOOL, DType

_NARROW = ("float16", "bfloat16", *FORMATS)
_FLOAT_OPS = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INT_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_DIRECT = {  # an LLVM intrinsic of one argument with the same meaning
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "round",
    "nearbyint": "roundeven",
}
# The operation for floats, for integers and for bool, and the value that changes nothing.
_ARITHMETIC = {
    "lanes_sum": ("fadd", "add", "or", -0.0),
    "lanes_prod": ("fmul", "mul", "and", 1.0),
}
_LANES = {
    "lanes_max": ("", "max"),
    "lanes_min": ("", "min"),
    "lanes_max_nan": ("maximum", "max"),
    "lanes_min_nan": ("minimum", "min"),
    "lanes_and": ("", "and"),
    "lanes_or": ("", "or"),
    "lanes_xor": ("", "xor"),
}


class Arithmetic:
    """Writes operations in an emitter's current place; operands of different lanes are spread."""

    def __init__(self, emitter: Emitter, functions: dict[str, EmittedFunction]) -> None:
        self.out = emitter
        self.functions = functions

    def spread(self, value: Value, lanes: int) -> Value:
        """`value` in every one of `lanes` lanes."""
        if value.lanes == lanes:
            return value
        kind, scalar = register_type(value.dtype, lanes), value.type
        if not value.text.startswith("%"):
            return Value(f"splat ({scalar} {value.text})", value.dtype, lanes)
        first = self.out.let(f"insertelement {kind} poison, {scalar} {value.text}, i32 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        text = self.out.let(f"shufflevector {kind} {first}, {kind} poison, {zeros}")
        return Value(text, value.dtype, lanes)

    def _const(self, number: float | int, dtype: DType) -> str:
        if dtype.is_bool:
            return "true" if number else "false"
        return register_type(dtype).constant(number)

    def _together(self, *values: Value) -> tuple[list[Value], int]:
        lanes = max(value.lanes for value in values)
        return [self.spread(value, lanes) for value in values], lanes

    def combine(self, op: str, a: Value, b: Value) -> Value:
        """`a op b` for two values of one dtype, arithmetic or bitwise but no division."""
        if a.dtype.is_float:
            return self._float_binary(op, a, b)
        return self._int_binary(op, a, b)

    def _compare(self, op: str, a: Value, b: Value) -> Value:
        if a.dtype.is_float:
            text = f"fcmp {_FLOAT_COMPARE[op]}"
        elif op in ("eq", "ne"):
            text = f"icmp {op}"
        else:
            text = f"icmp {'s' if a.dtype.kind == 'int' else 'u'}{_INT_COMPARE[op]}"
        return Value(self.out.let(f"{text} {a.type} {a.text}, {b.text}"), BOOL, a.lanes)

    def _float_binary(self, op: str, a: Value, b: Value) -> Value:
        kind = a.type
        if op in _FLOAT_OPS:
            text = self.out.let(f"{_FLOAT_OPS[op]} {kind} {a.text}, {b.text}")
        elif op in ("min", "max"):
            return self._extremum(op, self.quieted(a), self.quieted(b))
        else:
            text = self._math(op, a, b)
        return self._rounded(Value(text, a.dtype, a.lanes))

    def quieted(self, value: Value) -> Value:
        """`value` as `_extremum` takes it: without signalling NaNs."""
        if self.out.isa.level != "avx512":
            return value
        return replace(value, text=emit_quiet(self.out, value.type, value.text))

    def _extremum(self, op: str, a: Value, b: Value) -> Value:
        """The larger or smaller of two floats, neither of which is a signalling NaN."""
        text = emit_extremum(self.out, self.out.isa, op, a.type, a.text, b.text)
        return replace(a, text=text)  # one of the two: nothing to round

    def _int_binary(
        self, op: str, a: Value, b: Value, divisor: int | None = None, natural: bool = False
    ) -> Value:
        """`natural` operands are known to be at least 0, and the divisor more."""
        kind, signed = a.type, a.dtype.kind == "int"
        if op in _INT_OPS:
            text = self.out.let(f"{_INT_OPS[op]} {kind} {a.text}, {b.text}")
            return self._wrapped(Value(text, a.dtype, a.lanes))
        if op in ("min", "max"):
            callee = f"llvm.{'s' if signed else 'u'}{op}.{kind.mangled}"
            text = self.out.call(kind, callee, (kind, a.text), (kind, b.text))
        elif op in ("shl", "shr"):
            b = self.cast(b, a.dtype)
            name = "shl" if op == "shl" else "ashr" if signed else "lshr"
            text = self.out.let(f"{name} {kind} {a.text}, {b.text}")
        else:
            text = self._divide(op, a, b, divisor, natural)
        return self._wrapped(Value(text, a.dtype, a.lanes))

    def _wrapped(self, value: Value) -> Value:
        """The result of a 4-bit integer operation, computed in a byte, as its dtype holds it."""
        if not (value.dtype.is_int and value.dtype.is_packed):
            return value
        kind, let = value.type, self.out.let
        if value.dtype.kind == "uint":
            text = let(f"and {kind} {value.text}, {kind.constant(15)}")
        else:
            high = let(f"shl {kind} {value.text}, {kind.constant(4)}")
            text = let(f"ashr {kind} {high}, {kind.constant(4)}")
        return Value(text, value.dtype, value.lanes)

    def _divide(self, op: str, a: Value, b: Value, divisor: int | None, natural: bool) -> str:
        """Division that never traps: where the divisor is zero, or the quotient would overflow, it
        divides by 1 instead. Of natural numbers it is unsigned: rounding down takes as many
        instructions again as the division by a constant.
        """
        let, kind, signed = self.out.let, a.type, a.dtype.kind == "int"
        remainder = op.endswith("mod")
        if divisor is None:
            b = b if natural else self._safe_divisor(a, b)
        elif signed and op.startswith("floor") and divisor > 0 and not divisor & (divisor - 1):
            if remainder:
                return let(f"and {kind} {a.text}, {self._splat(divisor - 1, a)}")
            return let(f"ashr {kind} {a.text}, {self._splat(divisor.bit_length() - 1, a)}")
        if not signed or natural:
            return let(f"{'urem' if remainder else 'udiv'} {kind} {a.text}, {b.text}")
        if op.startswith("trunc"):
            return let(f"{'srem' if remainder else 'sdiv'} {kind} {a.text}, {b.text}")
        rest = let(f"srem {kind} {a.text}, {b.text}")
        zero, flags = self._splat(0, a), register_type(BOOL, a.lanes)
        differs = let(f"icmp slt {kind} {let(f'xor {kind} {rest}, {b.text}')}, {zero}")
        inexact = let(f"icmp ne {kind} {rest}, {zero}")
        adjust = let(f"and {flags} {differs}, {inexact}")
        if remainder:
            moved = let(f"add {kind} {rest}, {b.text}")
            return let(f"select {flags} {adjust}, {kind} {moved}, {kind} {rest}")
        quotient = let(f"sdiv {kind} {a.text}, {b.text}")
        return let(f"add {kind} {quotient}, {let(f'sext {flags} {adjust} to {kind}')}")

    def _safe_divisor(self, a: Value, b: Value) -> Value:
        let, kind, flags = self.out.let, a.type, register_type(BOOL, a.lanes)
        bad = let(f"icmp eq {kind} {b.text}, {self._splat(0, b)}")
        if a.dtype.kind == "int":
            least = let(f"icmp eq {kind} {a.text}, {self._splat(int(a.dtype.min_value), a)}")
            minus = let(f"icmp eq {kind} {b.text}, {self._splat(-1, b)}")
            bad = let(f"or {flags} {bad}, {let(f'and {flags} {least}, {minus}')}")
        text = let(f"select {flags} {bad}, {kind} {self._splat(1, b)}, {kind} {b.text}")
        return Value(text, b.dtype, b.lanes)

    def _splat(self, number: int, like: Value) -> str:
        return like.type.constant(number)

    def _unary(self, op: str, a: Value) -> Value:
        let, kind = self.out.let, a.type
        if op in ("not", "bitnot"):
            ones = "true" if a.dtype.is_bool else "-1"
            ones = ones if a.lanes == 1 else f"splat ({kind.element} {ones})"
            return self._wrapped(Value(let(f"xor {kind} {a.text}, {ones}"), a.dtype, a.lanes))
        if a.dtype.is_float:
            if op == "neg":
                return Value(let(f"fneg {kind} {a.text}"), a.dtype, a.lanes)
            text = self.out.call(kind, f"llvm.fabs.{kind.mangled}", (kind, a.text))
            return Value(text, a.dtype, a.lanes)
        if op == "abs" and a.dtype.kind == "uint":
            return a
        if op == "abs":
            callee = f"llvm.abs.{kind.mangled}"
            text = self.out.call(kind, callee, (kind, a.text), ("i1", "false"))
            return self._wrapped(Value(text, a.dtype, a.lanes))
        text = let(f"sub {kind} {self._splat(0, a)}, {a.text}")
        return self._wrapped(Value(text, a.dtype, a.lanes))

    def _rounded(self, value: Value) -> Value:
        """The float32 result of a 16-bit float operation, rounded to its dtype."""
        if str(value.dtype) not in _NARROW:
            return value
        single = DType("float32")
        return self.cast(Value(value.text, single, value.lanes), value.dtype)

    def both(self, a: Value, b: Value) -> Value:
        """The conjunction of two conditions."""
        (a, b), lanes = self._together(a, b)
        return Value(self.out.let(f"and {a.type} {a.text}, {b.text}"), BOOL, lanes)

    def cast(self, value: Value, dtype: DType) -> Value:
        """`value` as another scalar dtype: floats round to nearest even, float to int truncates
        and saturates."""
        source, let = value.dtype, self.out.let
        if source == dtype:
            return value
        have, want = value.type, register_type(dtype, value.lanes)
        if dtype.is_bool:
            zero = have.constant(0)
            test = "fcmp une" if source.is_float else "icmp ne"
            return Value(let(f"{test} {have} {value.text}, {zero}"), dtype, value.lanes)
        if source.is_bool:
            name = "uitofp" if dtype.is_float else "zext"
            return Value(let(f"{name} {have} {value.text} to {want}"), dtype, value.lanes)
        if source.is_float and dtype.is_float:
            return self._float_to_float(value, dtype)
        if source.is_float:
            text = float_to_int(self.out, value.text, have, want, dtype.kind == "int")
            if dtype.is_packed:
                text = self._limited(Value(text, dtype, value.lanes)).text
        elif dtype.is_float:
            name = "sitofp" if source.kind == "int" else "uitofp"
            text = let(f"{name} {have} {value.text} to {want}")
            if str(dtype) in _NARROW:
                return self._rounded(Value(text, dtype, value.lanes))
        elif have == want:
            text = value.text
        elif source.bits > dtype.bits:
            text = let(f"trunc {have} {value.text} to {want}")
        else:
            name = "sext" if source.kind == "int" else "zext"
            text = let(f"{name} {have} {value.text} to {want}")
        return self._wrapped(Value(text, dtype, value.lanes))

    def _limited(self, value: Value) -> Value:
        """A byte brought into the range of the 4-bit integers."""
        byte = DType("int8" if value.dtype.kind == "int" else "uint8")
        limits = (value.dtype.min_value, value.dtype.max_value)
        low, high = (Value(self._splat(int(n), value), byte, value.lanes) for n in limits)
        return self.combine("min", self.combine("max", replace(value, dtype=byte), low), high)

    def _float_to_float(self, value: Value, dtype: DType) -> Value:
        held = "float32" if value.type.element == "float" else "float64"
        if str(dtype) in _NARROW:
            stored = self._convert(value.text, held, str(dtype), value.lanes)
            return self.from_memory(stored, dtype, value.lanes)
        target = "float64" if dtype == "float64" else "float32"
        return Value(self._convert(value.text, held, target, value.lanes), dtype, value.lanes)

    def _convert(self, text: str, source: str, target: str, lanes: int) -> str:
        return convert(self.out, text, source, target, lanes, self.out.isa)

    def _reinterpret(self, value: Value, dtype: DType) -> Value:
        stored = self.to_memory(value)
        have, want = memory_type(value.dtype, value.lanes), memory_type(dtype, value.lanes)
        if have != want:
            stored = self.out.let(f"bitcast {have} {stored} to {want}")
        return self._wrapped(self.from_memory(stored, dtype, value.lanes))

    def to_memory(self, value: Value) -> str:
        """`value` in the form in which its dtype is stored."""
        if value.dtype.is_bool:
            want = memory_type(value.dtype, value.lanes)
            return self.out.let(f"zext {value.type} {value.text} to {want}")
        if value.dtype == "bfloat16":  # representable, so that nothing is left to round
            word, short = VectorType("i32", value.lanes), VectorType("i16", value.lanes)
            bits = self.out.let(f"bitcast {value.type} {value.text} to {word}")
            high = self.out.let(f"lshr {word} {bits}, {word.constant(16)}")
            return self.out.let(f"trunc {word} {high} to {short}")
        if str(value.dtype) in _NARROW:
            return self.out.stored.get((value.text, value.dtype)) or self._encoded(value)
        return value.text

    def _encoded(self, value: Value) -> str:
        if str(value.dtype) in FORMATS:
            return narrow_float8(self.out, value.text, str(value.dtype), value.lanes, exact=True)
        return self._convert(value.text, "float32", str(value.dtype), value.lanes)

    def from_memory(self, text: str, dtype: DType, lanes: int) -> Value:
        """A stored element (or vector of them) as a value."""
        if dtype.is_bool:
            have = memory_type(dtype, lanes)
            text = self.out.let(f"icmp ne {have} {text}, {have.constant(0)}")
        elif str(dtype) in _NARROW:
            loaded, text = text, self._convert(text, str(dtype), "float32", lanes)
            self.out.stored[text, dtype] = loaded
        return Value(text, dtype, lanes)

    def _call(self, name: str, args: list[Value]) -> Value:
        args, lanes = self._together(*args)
        first = args[0]
        kind = first.type
        if name.startswith("lanes_"):
            return self._across_lanes(name, first)
        if name in ("isnan", "isinf"):
            return self._classify(name, first)
        if name in ("max_nan", "min_nan"):
            callee = f"llvm.{name[:3]}imum.{kind.mangled}"
            text = self.out.call(kind, callee, *((kind, arg.text) for arg in args))
        elif name == "fma":
            text = self.out.call(kind, f"llvm.fma.{kind.mangled}", *((kind, a.text) for a in args))
        elif name == "philox":
            function = emit_philox(lanes)
            self.functions[function.name] = function
            passed = ", ".join(f"{kind} {arg.text}" for arg in args)
            text = self.out.let(f"call {kind} @{function.name}({passed})")
        elif name == "popcount":
            text = self.out.call(kind, f"llvm.ctpop.{kind.mangled}", (kind, first.text))
        elif name in _DIRECT:
            text = self.out.call(kind, f"llvm.{_DIRECT[name]}.{kind.mangled}", (kind, first.text))
        else:
            text = self._math(name, first)
        return self._rounded(Value(text, first.dtype, lanes))

    def _math(self, name: str, *values: Value) -> str:
        value = values[0]
        kind = value.type
        written = write_vector_math(self.out, name, kind, self.out.isa, value.text)
        if written is not None:
            return written
        held = "float64" if kind.element == "double" else "float32"
        function = emit_vector_math(name, held, value.lanes, self.out.isa)
        self.functions[function.name] = function
        passed = ", ".join(f"{kind} {each.text}" for each in values)
        return self.out.let(f"call {kind} @{function.name}({passed})")

    def _classify(self, name: str, value: Value) -> Value:
        kind = value.type
        if name == "isnan":
            text = self.out.let(f"fcmp uno {kind} {value.text}, {value.text}")
            return Value(text, BOOL, value.lanes)
        size = self.out.call(kind, f"llvm.fabs.{kind.mangled}", (kind, value.text))
        infinity = kind.constant(float("inf"))
        return Value(self.out.let(f"fcmp oeq {kind} {size}, {infinity}"), BOOL, value.lanes)

    def _across_lanes(self, name: str, value: Value) -> Value:
        kind, scalar = value.type, register_type(value.dtype)
        if name in _ARITHMETIC:
            of_float, of_int, of_bool, neutral = _ARITHMETIC[name]
            if value.dtype.is_float:
                callee = f"llvm.vector.reduce.{of_float}.{kind.mangled}"
                self.out.declare(scalar, callee, scalar, kind)
                start = scalar.constant(neutral)
                call = f"call reassoc {scalar} @{callee}({scalar} {start}, {kind} {value.text})"
                return self._rounded(Value(self.out.let(call), value.dtype))
            operation = of_bool if value.dtype.is_bool else of_int
            callee = f"llvm.vector.reduce.{operation}.{kind.mangled}"
        else:
            of_float, of_int = _LANES[name]
            if value.dtype.is_float:
                value = value if of_float else self.quieted(value)
                return self._halve(of_float, of_int, value)
            if of_int in ("min", "max"):
                operation = f"{'s' if value.dtype.kind == 'int' else 'u'}{of_int}"
            else:
                operation = of_int
            callee = f"llvm.vector.reduce.{operation}.{kind.mangled}"
        return Value(self.out.call(scalar, callee, (kind, value.text)), value.dtype)

    def _halve(self, operation: str, op: str, value: Value) -> Value:
        """Combine the lanes as a tree, by an operation of LLVM or by the maximum or minimum `op`.
        Their order changes no result, but LLVM does not know that and would combine one lane after
        the other.
        """
        while value.lanes > 1:
            kind, half = value.type, value.lanes // 2
            parts = []
            for first in (0, half):
                order = ", ".join(f"i32 {lane}" for lane in range(first, first + half))
                both = f"{kind} {value.text}, {kind} poison"
                parts.append(self.out.let(f"shufflevector {both}, <{half} x i32> <{order}>"))
            if half == 1:
                parts = [
                    self.out.let(f"extractelement <1 x {kind.element}> {part}, i32 0")
                    for part in parts
                ]
            less = register_type(value.dtype, half)
            if operation:
                callee = f"llvm.{operation}.{less.mangled}"
                text = self.out.call(less, callee, *((less, part) for part in parts))
            else:
                text = emit_extremum(self.out, self.out.isa, op, less, parts[0], parts[1])
            value = Value(text, value.dtype, half)
        return value

    def _ramp(self, base: Value, stride: Value, lanes: int) -> Value:
        steps = ", ".join(f"{base.type} {lane}" for lane in range(lanes))
        kind = register_type(base.dtype, lanes)
        stride, base = self.spread(stride, lanes), self.spread(base, lanes)
        scaled = self.out.let(f"mul {kind} {stride.text}, <{steps}>")
        return Value(self.out.let(f"add {kind} {base.text}, {scaled}"), base.dtype, lanes)
