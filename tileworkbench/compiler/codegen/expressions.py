"""Expressions of the CPU stage as LLVM values: scalar, or a lane per iteration of a vector loop."""

from __future__ import annotations

from functools import partial, reduce

from tileworkbench.compiler.codegen.convert import convert
from tileworkbench.compiler.codegen.emitter import Emitter, Value, memory_type, register_type
from tileworkbench.compiler.codegen.float8 import FORMATS
from tileworkbench.compiler.codegen.text import EmittedFunction, VectorType
from tileworkbench.compiler.codegen.vector_math import emit_vector_math
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import add, const, const_int, sub
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Var
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.types import BOOL, HANDLE, DType

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
_LANES = {
    "lanes_max": ("maxnum", "max"),
    "lanes_min": ("minnum", "min"),
    "lanes_max_nan": ("maximum", "max"),
    "lanes_min_nan": ("minimum", "min"),
    "lanes_and": ("", "and"),
    "lanes_or": ("", "or"),
    "lanes_xor": ("", "xor"),
}
ZEROS = "@zeros"
"""512 bytes of zeros: what a load whose predicate is false reads instead."""


class Expressions:
    """Evaluates expressions in an emitter's current place."""

    def __init__(self, emitter: Emitter, functions: dict[str, EmittedFunction]) -> None:
        self.out = emitter
        self.functions = functions
        # Lets of the current vector loop: an index may be written in them.
        self.definitions: dict[Var, Expr] = {}

    def evaluate(self, expr: Expr) -> Value:
        """The value of `expr`: one lane when it does not depend on the vector loop."""
        match expr:
            case Const(number, dtype):
                return Value(self._const(number, dtype), dtype)
            case Var():
                return self.out.values[expr]
        return self.out.placed(expr, "value", lambda: self._compute(expr))

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

    def evaluate_in(self, expr: Expr, lanes: int) -> Value:
        """`expr` with exactly `lanes` lanes."""
        value = self.evaluate(expr)
        if value.lanes == lanes:
            return value
        return self.out.placed(expr, f"spread{lanes}", lambda: self.spread(value, lanes))

    def _const(self, number: float | int, dtype: DType) -> str:
        if dtype.is_bool:
            return "true" if number else "false"
        return register_type(dtype).constant(number)

    def _compute(self, expr: Expr) -> Value:
        match expr:
            case ir.Binary(op, a, b) if op in ir.LOGICAL:
                return self._logical(op, a, b)
            case ir.Binary(op, a, b, dtype):
                return self._binary(op, a, b, dtype)
            case ir.Unary(op, a):
                return self._unary(op, self.evaluate(a))
            case ir.Select(cond, then, other, lazy):
                return self._select(cond, then, other, lazy)
            case ir.Cast(value, dtype):
                return self.cast(self.evaluate(value), dtype.scalar)
            case ir.Reinterpret(value, dtype):
                return self._reinterpret(self.evaluate(value), dtype.scalar)
            case ir.Call(name, args):
                return self._call(name, [self.evaluate(arg) for arg in args])
            case ir.Load():
                return self._load(expr)
            case ir.Ramp(base, stride, lanes):
                return self._ramp(self.evaluate(base), self.evaluate(stride), lanes)
            case ir.Broadcast(value, lanes):
                return self.spread(self.evaluate(value), lanes)
        raise TypeError(f"no code for {type(expr).__name__}")

    def _together(self, *values: Value) -> tuple[list[Value], int]:
        lanes = max(value.lanes for value in values)
        return [self.spread(value, lanes) for value in values], lanes

    # Arithmetic

    def _binary(self, op: str, a: Expr, b: Expr, dtype: DType) -> Value:
        left, right = self.evaluate(a), self.evaluate(b)
        lanes = max(left.lanes, right.lanes)
        if lanes > 1:
            left, right = self.evaluate_in(a, lanes), self.evaluate_in(b, lanes)
        if op in ir.COMPARISONS:
            return self._compare(op, left, right)
        if left.dtype.is_float:
            return self._float_binary(op, left, right)
        return self._int_binary(op, left, right, const_int(b))

    def combine(self, op: str, a: Value, b: Value) -> Value:
        """`a op b` for two values of one dtype, arithmetic or bitwise but no division."""
        if a.dtype.is_float:
            return self._float_binary(op, a, b)
        return self._int_binary(op, a, b, None)

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
            callee = f"llvm.{op}num.{kind.mangled}"
            text = self.out.call(kind, callee, (kind, a.text), (kind, b.text))
            return Value(text, a.dtype, a.lanes)  # one of the two: nothing to round
        elif op == "fmod":
            text = self.out.let(f"frem {kind} {a.text}, {b.text}")
        else:
            return self._per_lane("pow" if kind.element == "double" else "powf", [a, b])
        return self._rounded(Value(text, a.dtype, a.lanes))

    def _int_binary(self, op: str, a: Value, b: Value, divisor: int | None) -> Value:
        kind, signed = a.type, a.dtype.kind == "int"
        if op in _INT_OPS:
            text = self.out.let(f"{_INT_OPS[op]} {kind} {a.text}, {b.text}")
        elif op in ("min", "max"):
            callee = f"llvm.{'s' if signed else 'u'}{op}.{kind.mangled}"
            text = self.out.call(kind, callee, (kind, a.text), (kind, b.text))
        elif op in ("shl", "shr"):
            b = self.cast(b, a.dtype)
            name = "shl" if op == "shl" else "ashr" if signed else "lshr"
            text = self.out.let(f"{name} {kind} {a.text}, {b.text}")
        else:
            text = self._divide(op, a, b, divisor)
        return Value(text, a.dtype, a.lanes)

    def _divide(self, op: str, a: Value, b: Value, divisor: int | None) -> str:
        """Division that never traps: a zero divisor, or the one quotient that overflows, divides
        by 1."""
        let, kind, signed = self.out.let, a.type, a.dtype.kind == "int"
        remainder = op.endswith("mod")
        if divisor is None:
            b = self._safe_divisor(a, b)
        elif signed and op.startswith("floor") and divisor > 0 and not divisor & (divisor - 1):
            if remainder:
                return let(f"and {kind} {a.text}, {self._splat(divisor - 1, a)}")
            return let(f"ashr {kind} {a.text}, {self._splat(divisor.bit_length() - 1, a)}")
        if not signed:
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
            return Value(let(f"xor {kind} {a.text}, {ones}"), a.dtype, a.lanes)
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
            return Value(text, a.dtype, a.lanes)
        return Value(let(f"sub {kind} {self._splat(0, a)}, {a.text}"), a.dtype, a.lanes)

    def _rounded(self, value: Value) -> Value:
        """The float32 result of a 16-bit float operation, rounded to its dtype."""
        if str(value.dtype) not in _NARROW:
            return value
        single = DType("float32")
        return self.cast(Value(value.text, single, value.lanes), value.dtype)

    # Conditions

    def _logical(self, op: str, a: Expr, b: Expr) -> Value:
        left = self.evaluate(a)
        wanted = left if op == "logical_and" else self._unary("not", left)
        right = self._guarded(b, wanted)
        (left, right), lanes = self._together(left, right)
        name = "and" if op == "logical_and" else "or"
        return Value(self.out.let(f"{name} {left.type} {left.text}, {right.text}"), BOOL, lanes)

    def _select(self, cond: Expr, then: Expr, other: Expr, lazy: bool) -> Value:
        chosen = self.evaluate(cond)
        if lazy:
            first = self._guarded(then, chosen)
            second = self._guarded(other, self._unary("not", chosen))
        else:
            first, second = self.evaluate(then), self.evaluate(other)
        (first, second), lanes = self._together(first, second)
        if chosen.lanes > lanes:
            (first, second, chosen), lanes = self._together(first, second, chosen)
        kind = first.type
        text = f"select {chosen.type} {chosen.text}, {kind} {first.text}, {kind} {second.text}"
        return Value(self.out.let(text), first.dtype, lanes)

    def _guarded(self, expr: Expr, condition: Value) -> Value:
        """`expr`, with loads only where `condition` holds."""
        if self.out.level(expr) >= 0:
            return self.evaluate(expr)
        outer = self.out.guard
        self.out.guard = condition if outer is None else self.both(outer, condition)
        value = self.evaluate(expr)
        self.out.guard = outer
        return value

    def both(self, a: Value, b: Value) -> Value:
        """The conjunction of two conditions."""
        (a, b), lanes = self._together(a, b)
        return Value(self.out.let(f"and {a.type} {a.text}, {b.text}"), BOOL, lanes)

    # Conversions

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
            sign = "si" if dtype.kind == "int" else "ui"
            callee = f"llvm.fpto{sign}.sat.{want.mangled}.{have.mangled}"
            text = self.out.call(want, callee, (have, value.text))
        elif dtype.is_float:
            name = "sitofp" if source.kind == "int" else "uitofp"
            text = let(f"{name} {have} {value.text} to {want}")
            if str(dtype) in _NARROW:
                return self._rounded(Value(text, dtype, value.lanes))
        elif source.bits == dtype.bits:
            text = value.text
        elif source.bits > dtype.bits:
            text = let(f"trunc {have} {value.text} to {want}")
        else:
            name = "sext" if source.kind == "int" else "zext"
            text = let(f"{name} {have} {value.text} to {want}")
        return Value(text, dtype, value.lanes)

    def _float_to_float(self, value: Value, dtype: DType) -> Value:
        held = "float32" if value.type.element == "float" else "float64"
        if str(dtype) in _NARROW:
            stored = self._convert(value.text, held, str(dtype), value.lanes)
            text = self._convert(stored, str(dtype), "float32", value.lanes)
        else:
            target = "float64" if dtype == "float64" else "float32"
            text = self._convert(value.text, held, target, value.lanes)
        return Value(text, dtype, value.lanes)

    def _convert(self, text: str, source: str, target: str, lanes: int) -> str:
        return convert(self.out, text, source, target, lanes, self.out.isa)

    def _reinterpret(self, value: Value, dtype: DType) -> Value:
        stored = self.to_memory(value)
        have, want = memory_type(value.dtype, value.lanes), memory_type(dtype, value.lanes)
        if have != want:
            stored = self.out.let(f"bitcast {have} {stored} to {want}")
        return self.from_memory(stored, dtype, value.lanes)

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
            return self._convert(value.text, "float32", str(value.dtype), value.lanes)
        return value.text

    def from_memory(self, text: str, dtype: DType, lanes: int) -> Value:
        """A stored element (or vector of them) as a value."""
        if dtype.is_bool:
            have = memory_type(dtype, lanes)
            text = self.out.let(f"icmp ne {have} {text}, {have.constant(0)}")
        elif str(dtype) in _NARROW:
            text = self._convert(text, str(dtype), "float32", lanes)
        return Value(text, dtype, lanes)

    # Calls

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
        elif name == "popcount":
            text = self.out.call(kind, f"llvm.ctpop.{kind.mangled}", (kind, first.text))
        elif name in _DIRECT:
            text = self.out.call(kind, f"llvm.{_DIRECT[name]}.{kind.mangled}", (kind, first.text))
        else:
            text = self._math(name, first)
        return self._rounded(Value(text, first.dtype, lanes))

    def _math(self, name: str, value: Value) -> str:
        kind = value.type
        held = "float64" if kind.element == "double" else "float32"
        function = emit_vector_math(name, held, value.lanes, self.out.isa)
        self.functions[function.name] = function
        return self.out.let(f"call {kind} @{function.name}({kind} {value.text})")

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
        if name == "lanes_sum":
            if value.dtype.is_float:
                callee = f"llvm.vector.reduce.fadd.{kind.mangled}"
                self.out.declare(scalar, callee, scalar, kind)
                start = scalar.constant(-0.0)
                call = f"call reassoc {scalar} @{callee}({scalar} {start}, {kind} {value.text})"
                return self._rounded(Value(self.out.let(call), value.dtype))
            callee = f"llvm.vector.reduce.add.{kind.mangled}"
        else:
            of_float, of_int = _LANES[name]
            if value.dtype.is_float:
                return self._halve(of_float, value)
            if of_int in ("min", "max"):
                operation = f"{'s' if value.dtype.kind == 'int' else 'u'}{of_int}"
            else:
                operation = of_int
            callee = f"llvm.vector.reduce.{operation}.{kind.mangled}"
        return Value(self.out.call(scalar, callee, (kind, value.text)), value.dtype)

    def _halve(self, operation: str, value: Value) -> Value:
        """The lanes combined as a tree. The order does not matter to maxima and minima, but LLVM
        would keep it: one lane after the other.
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
            callee = f"llvm.{operation}.{less.mangled}"
            text = self.out.call(less, callee, *((less, part) for part in parts))
            value = Value(text, value.dtype, half)
        return value

    def _per_lane(self, callee: str, args: list[Value]) -> Value:
        """A scalar function of the C library, lane by lane."""
        first = args[0]
        scalar = register_type(first.dtype)
        if first.lanes == 1:
            text = self.out.call(scalar, callee, *((scalar, arg.text) for arg in args))
            return self._rounded(Value(text, first.dtype))
        result = "poison"
        for lane in range(first.lanes):
            parts = [
                self.out.let(f"extractelement {arg.type} {arg.text}, i32 {lane}") for arg in args
            ]
            one = self.out.call(scalar, callee, *((scalar, part) for part in parts))
            insert = f"insertelement {first.type} {result}, {scalar} {one}, i32 {lane}"
            result = self.out.let(insert)
        return self._rounded(Value(result, first.dtype, first.lanes))

    # Memory

    def _ramp(self, base: Value, stride: Value, lanes: int) -> Value:
        steps = ", ".join(f"{base.type} {lane}" for lane in range(lanes))
        kind = register_type(base.dtype, lanes)
        stride, base = self.spread(stride, lanes), self.spread(base, lanes)
        scaled = self.out.let(f"mul {kind} {stride.text}, <{steps}>")
        return Value(self.out.let(f"add {kind} {base.text}, {scaled}"), base.dtype, lanes)

    def pointer(self, buffer: Buffer, index: Expr | None) -> str:
        """The address of one element."""
        place = self.out.pointers[buffer]
        if index is None:
            return place
        kind, form = memory_type(buffer.dtype), f"address in {buffer.name}"
        whole: Expr | None = None
        for part in self._from_outside(index):
            whole = part if whole is None else add(whole, part)
            place = self.out.placed(whole, form, partial(self._step, kind, place, part)).text
        return place

    def _step(self, kind: VectorType, place: str, part: Expr) -> Value:
        """The address `part` elements after `place`."""
        offset = self.evaluate(part)
        text = self.out.let(f"getelementptr {kind}, ptr {place}, {offset.type} {offset.text}")
        return Value(text, HANDLE)

    def _from_outside(self, index: Expr) -> list[Expr]:
        """`index` as a sum of parts that change in ever deeper loops; a constant comes last, where
        it costs nothing.

        The address is advanced part by part, so that each loop adds only what it changes. The
        parts' sum cannot overflow where the access is in range, whatever the partial sums do:
        addresses have 64 bits.
        """
        terms, levels = [index], dict[int, list[Expr]]()
        constant: Expr | None = None
        while terms:
            term = terms.pop()
            if isinstance(term, ir.Binary) and term.op == "add":
                terms += [term.b, term.a]
            elif isinstance(term, Const):
                constant = term if constant is None else add(constant, term)
            else:
                levels.setdefault(self.out.level(term), []).append(term)
        if -1 in levels:
            return [index]
        parts = [reduce(add, levels[level]) for level in sorted(levels)]
        return parts if constant is None and parts else [*parts, constant or index]

    def pointers(self, buffer: Buffer, index: Expr) -> str:
        """A vector of addresses, one per lane."""
        offset = self.evaluate(index)
        kind, base = memory_type(buffer.dtype), self.out.pointers[buffer]
        return self.out.let(f"getelementptr {kind}, ptr {base}, {offset.type} {offset.text}")

    def contiguous(self, index: Expr) -> tuple[Expr, int] | None:
        """(first index, lanes) when the lanes of `index` are consecutive elements."""
        if isinstance(index, ir.Ramp):
            return (index.base, index.lanes) if const_int(index.stride) == 1 else None
        var = self.out.lane_var
        if var is None:
            return None
        base = without(substitute(index, self.definitions), var)
        return None if base is None else (base, self.out.lanes)

    def _load(self, load: ir.Load) -> Value:
        buffer, dtype = load.buffer, load.buffer.dtype
        predicate = None if load.predicate is None else self.evaluate(load.predicate)
        if self.out.guard is not None:
            guard = self.out.guard
            predicate = guard if predicate is None else self.both(guard, predicate)
        index = load.indices[0] if load.indices else None
        found = None if index is None else self.contiguous(index)
        lanes = 1 if index is None else self.evaluate(index).lanes if found is None else found[1]
        safe = self._safe(load, lanes)
        if predicate is not None and predicate.lanes > lanes:
            lanes, safe = predicate.lanes, self._safe(load, predicate.lanes)
        elif found is not None or lanes == 1:
            address = self.pointer(buffer, index if found is None else found[0])
            return self._load_at(address, dtype, lanes, predicate, safe)
        return self._load_masked(load, found, lanes, predicate, safe)

    def _safe(self, load: ir.Load, lanes: int) -> Value:
        if load.safe is None:
            kind = register_type(load.buffer.dtype, lanes)
            zero = "false" if load.buffer.dtype.is_bool else VectorType(kind.element, 1).constant(0)
            text = zero if lanes == 1 else f"splat ({kind.element} {zero})"
            return Value(text, load.buffer.dtype, lanes)
        return self.spread(self.evaluate(load.safe), lanes)

    def _load_at(
        self, address: str, dtype: DType, lanes: int, predicate: Value | None, safe: Value
    ) -> Value:
        """A scalar or contiguous access."""
        kind = memory_type(dtype, lanes)
        if predicate is not None and predicate.lanes > 1:
            passed = kind.constant(0) if self._is_zero(safe) else self.to_memory(safe)
            callee = f"llvm.masked.load.{kind.mangled}.p0"
            mask = VectorType("i1", lanes)
            arguments = (("ptr", address), ("i32", str(dtype.bytes)), (mask, predicate.text))
            text = self.out.call(kind, callee, *arguments, (kind, passed))
            return self.from_memory(text, dtype, lanes)
        if predicate is not None:
            chosen = f"select i1 {predicate.text}, ptr {address}, ptr {ZEROS}"
            address = self.out.let(chosen)
        text = self.out.let(f"load {kind}, ptr {address}, align {dtype.bytes}")
        value = self.from_memory(text, dtype, lanes)
        if predicate is not None and not self._is_zero(safe):
            kind = value.type
            chosen = f"select i1 {predicate.text}, {kind} {value.text}, {kind} {safe.text}"
            value = Value(self.out.let(chosen), dtype, lanes)
        return value

    def _is_zero(self, value: Value) -> bool:
        return value.text in (
            value.type.constant(0) if not value.dtype.is_bool else "false",
            "splat (i1 false)",
        )

    def _load_masked(
        self,
        load: ir.Load,
        found: tuple[Expr, int] | None,
        lanes: int,
        predicate: Value | None,
        safe: Value,
    ) -> Value:
        """Lanes at unrelated addresses, or one address under a mask."""
        index, dtype = load.indices[0], load.buffer.dtype
        if found is not None and found[1] == lanes:
            return self._load_at(self.pointer(load.buffer, found[0]), dtype, lanes, predicate, safe)
        addresses = self.pointers(load.buffer, index)
        if self.evaluate(index).lanes == 1:
            first = self.out.let(f"insertelement <{lanes} x ptr> poison, ptr {addresses}, i32 0")
            shuffle = f"<{lanes} x ptr> {first}, <{lanes} x ptr> poison"
            addresses = self.out.let(f"shufflevector {shuffle}, <{lanes} x i32> zeroinitializer")
        kind, mask = memory_type(dtype, lanes), VectorType("i1", lanes)
        active = "splat (i1 true)" if predicate is None else self.spread(predicate, lanes).text
        passed = kind.constant(0) if self._is_zero(safe) else self.to_memory(safe)
        callee = f"llvm.masked.gather.{kind.mangled}.v{lanes}p0"
        pointers = VectorType("ptr", lanes)
        arguments = ((pointers, addresses), ("i32", str(dtype.bytes)), (mask, active))
        text = self.out.call(kind, callee, *arguments, (kind, passed))
        return self.from_memory(text, dtype, lanes)


def without(index: Expr, var: Var) -> Expr | None:
    """`index - var` when `index` is `var` plus something that does not depend on it, else None."""
    if index is var:
        return const(0, index.dtype)
    if isinstance(index, ir.Cast) and index.dtype.is_int:
        inner = without(index.value, var)
        return None if inner is None else ir.Cast(inner, index.dtype)
    if isinstance(index, ir.Binary) and index.op in ("add", "sub"):
        in_a, in_b = mentions(index.a, var), mentions(index.b, var)
        if in_a and not in_b:
            rest = without(index.a, var)
            combine = partial(add if index.op == "add" else sub)
            return None if rest is None else combine(rest, index.b)
        if in_b and not in_a and index.op == "add":
            rest = without(index.b, var)
            return None if rest is None else add(index.a, rest)
    return None


def mentions(expr: Expr, var: Var) -> bool:
    """Whether `var` is read anywhere in `expr`."""
    return expr is var or any(
        mentions(child, var) for child in expr.children() if isinstance(child, Expr)
    )
