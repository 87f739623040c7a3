"""Expressions of the CPU stage as LLVM values: scalar, or a lane per iteration of a vector loop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce

from tileworkbench.compiler.analysis.access import loads
from tileworkbench.compiler.analysis.quiet import QuietFloats
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.streaming import Ahead
from tileworkbench.compiler.emit.llvm import packed
from tileworkbench.compiler.emit.llvm.arithmetic import Arithmetic
from tileworkbench.compiler.emit.llvm.emitter import Emitter, Value, memory_type, register_type
from tileworkbench.compiler.emit.llvm.lane_access import (
    LanePattern,
    gather_strided,
    lane_pattern,
    load_apart,
    repeat_lanes,
    strided_starts,
)
from tileworkbench.compiler.emit.llvm.lookup import lane_at, lookup
from tileworkbench.compiler.emit.llvm.text import LINE_BYTES, EmittedFunction, VectorType
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import add, const, const_int
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Var
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.types import BOOL, HANDLE, DType

ZEROS = "@zeros"
"""512 bytes of zeros: what a load whose predicate is false reads instead."""


class Expressions(Arithmetic):
    """Evaluates expressions in an emitter's current place."""

    def __init__(
        self,
        emitter: Emitter,
        functions: dict[str, EmittedFunction],
        ranges: Ranges,
        fetched: Mapping[ir.Load, Ahead] | None = None,
        quiet: QuietFloats | None = None,
    ) -> None:
        super().__init__(emitter, functions)
        self.quiet = quiet or QuietFloats(frozenset())
        self.ranges = ranges
        self.fetched = fetched or {}
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

    def evaluate_in(self, expr: Expr, lanes: int) -> Value:
        """`expr` with exactly `lanes` lanes."""
        value = self.evaluate(expr)
        if value.lanes == lanes:
            return value
        return self.out.placed(expr, f"spread{lanes}", lambda: self.spread(value, lanes))

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
            case ir.Call("lookup", (code, *table), dtype):
                entries = [entry.value for entry in table if isinstance(entry, Const)]
                return self._lookup(code, entries, dtype.scalar)
            case ir.Call("lane_at", (table, code), dtype):
                return self._lane_at(table, code, dtype.scalar)
            case ir.Call("lanes_max" | "lanes_min" as name, (vector,)) if self.quiet.holds(vector):
                operand = self.evaluate(vector)
                if operand.dtype.is_float:
                    return self._halve("", name.removeprefix("lanes_"), operand)
                return self._call(name, [operand])
            case ir.Call(name, args):
                return self._call(name, [self.evaluate(arg) for arg in args])
            case ir.AddressOf(buffer, indices):
                place = self.pointer(buffer, indices[0] if indices else None)
                return Value(self.out.let(f"ptrtoint ptr {place} to i64"), HANDLE)
            case ir.Load():
                return self._load(expr)
            case ir.Ramp(base, stride, lanes):
                return self._ramp(self.evaluate(base), self.evaluate(stride), lanes)
            case ir.Broadcast(value, lanes):
                return self.spread(self.evaluate(value), lanes)
        raise TypeError(f"no code for {type(expr).__name__}")

    def _binary(self, op: str, a: Expr, b: Expr, dtype: DType) -> Value:
        left, right = self.evaluate(a), self.evaluate(b)
        lanes = max(left.lanes, right.lanes)
        if lanes > 1:
            left, right = self.evaluate_in(a, lanes), self.evaluate_in(b, lanes)
        if op in ir.COMPARISONS:
            return self._compare(op, left, right)
        if left.dtype.is_float and op in ("min", "max"):
            sides = ((a, left), (b, right))
            return self._extremum(
                op, *(v if self.quiet.holds(e) else self.quieted(v) for e, v in sides)
            )
        if left.dtype.is_float:
            return self._float_binary(op, left, right)
        natural = op.endswith(("div", "mod")) and self.ranges.are_natural(a, b)
        return self._int_binary(op, left, right, const_int(b), natural)

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
        """`expr`, with loads from memory that may not exist only where `condition` holds."""
        if all(self._exists(load.buffer) for load in loads(expr)):
            return self.evaluate(expr)
        outer = self.out.guard
        self.out.set_guard(condition if outer is None else self.both(outer, condition))
        value = self.evaluate(expr)
        self.out.set_guard(outer)
        return value

    def _exists(self, buffer: ir.Buffer) -> bool:
        """Whether a load can be made where its predicate does not hold, too."""
        return buffer.scope != "global" or buffer in self.out.constant

    def _lane_at(self, table: Expr, code: Expr, dtype: DType) -> Value:
        def store() -> Value:
            return Value(self.to_memory(self.evaluate(table)), dtype, table.dtype.lanes)

        stored, place = self.out.placed(table, "stored", store), self.evaluate(self._all_bits(code))
        text = lane_at(self.out, stored.text, place.text, place.lanes)
        return self.from_memory(text, dtype, place.lanes)

    def _all_bits(self, code: Expr) -> Expr:
        """`code` without the mask that takes its low four bits: the instruction does that itself.
        """
        known = self.definitions.get(code, code) if isinstance(code, Var) else code
        if isinstance(known, ir.Binary) and known.op == "and" and const_int(known.b) == 15:
            return known.a
        return code

    def _lookup(self, code: Expr, table: list[float], dtype: DType) -> Value:
        codes = self.evaluate(self._all_bits(code))
        text = lookup(self.out, self.out.isa, codes.text, codes.lanes, table, dtype)
        return Value(text, dtype, codes.lanes)

    # Memory

    def pointer(self, buffer: Buffer, index: Expr | None) -> str:
        """The address of one element."""
        place = self.out.pointers[buffer]
        if index is None:
            return place
        kind, form = memory_type(buffer.dtype), f"address in {buffer.name}"
        if buffer in self.out.bound_inside:
            return self._step(kind, place, index).text
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
        """`index` as a sum of parts: what changes in outer loops comes first, a constant last,
        where it costs nothing.

        The address is advanced part by part, so that each loop adds only what it changes. An
        address has 64 bits: parts that may wrap around are added up in fewer before.
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
        if -1 in levels or not levels:
            return [index]
        parts = [reduce(add, levels[level]) for level in sorted(levels)]
        if constant is not None:
            parts.append(constant)
        return parts if index.dtype.bits == 64 else self._without_wrapping(parts)

    def _without_wrapping(self, parts: list[Expr]) -> list[Expr]:
        """The parts, with all that may be negative added up into one. The others only increase the
        address. Where they increase it too far, the guard of the access does not hold.
        """
        onward, reach, others = list[Expr](), 0, list[Expr]()
        for part in parts:
            bounds = self.ranges.bounds(part)
            if bounds.low is None or bounds.low < 0 or bounds.high is None:
                others.append(part)
            else:
                onward.append(part)
                reach += bounds.high
        if reach > parts[0].dtype.max_value:
            return [reduce(add, parts)]
        if len(others) < 2:
            return parts
        return [*onward, reduce(add, others)]

    def pointers(self, buffer: Buffer, index: Expr) -> str:
        """A vector of addresses, one per lane."""
        offset = self.evaluate(index)
        kind, base = memory_type(buffer.dtype), self.out.pointers[buffer]
        return self.out.let(f"getelementptr {kind}, ptr {base}, {offset.type} {offset.text}")

    def contiguous(self, index: Expr) -> tuple[Expr, int] | None:
        """(first index, lanes) when the lanes of `index` are consecutive elements."""
        if isinstance(index, ir.Ramp):
            return (index.base, index.lanes) if const_int(index.stride) == 1 else None
        pattern = self.pattern(index)
        alone = pattern is not None and pattern.repeat == pattern.stride == 1
        return (pattern.base, self.out.lanes) if pattern is not None and alone else None

    def pattern(self, index: Expr) -> LanePattern | None:
        """How an index moves with the lane of the current vector loop."""
        var = self.out.lane_var
        if var is None:
            return None
        return lane_pattern(substitute(index, self.definitions), var, self.out.lanes)

    def _load(self, load: ir.Load) -> Value:
        buffer, dtype = load.buffer, load.buffer.dtype
        if not load.indices:  # a variable can always be read
            return self._load_at(self.pointer(buffer, None), dtype, 1, None, self._safe(load, 1))
        predicate = None if load.predicate is None else self.evaluate(load.predicate)
        if self.out.guard is not None:
            guard = self.out.guard
            predicate = guard if predicate is None else self.both(guard, predicate)
        index = load.indices[0]
        run = self.contiguous(index)
        lanes = self.evaluate(index).lanes if run is None else run[1]
        safe = self._safe(load, lanes)
        if self.out.is_packed(buffer):
            return self._load_packed(load, run, max(lanes, _lanes(predicate)), predicate)
        if predicate is not None and predicate.lanes > lanes:
            lanes, safe = predicate.lanes, self._safe(load, predicate.lanes)
        elif run is not None or lanes == 1:
            address = self.pointer(buffer, index if run is None else run[0])
            self._fetch_ahead(load, address, lanes)
            return self._load_at(address, dtype, lanes, predicate, safe)
        elif lanes == self.out.lanes and _lanes(predicate) == 1:
            moves = self.pattern(index)
            if moves is not None and moves.repeat > 1:
                return self._load_repeated(load, moves, lanes, predicate)
            if moves is not None and moves.is_dense(lanes):
                return self._load_strided(load, moves, lanes, predicate)
            if moves is not None and predicate is None:
                first, kind = self.pointer(buffer, moves.base), memory_type(dtype, lanes)
                text = load_apart(self.out, first, kind, moves.stride, dtype.bytes)
                return self.from_memory(text, dtype, lanes)
        return self._load_masked(load, run, lanes, predicate, safe)

    def _load_repeated(
        self, load: ir.Load, moves: LanePattern, lanes: int, predicate: Value | None
    ) -> Value:
        """Neighbours, each of them in several lanes."""
        buffer, count = load.buffer, lanes // moves.repeat
        address = self.pointer(buffer, moves.base)
        self._fetch_ahead(load, address, count)
        value = self._load_at(address, buffer.dtype, count, predicate, self._safe(load, count))
        text = repeat_lanes(self.out, value.text, value.type, moves.repeat)
        return Value(text, buffer.dtype, lanes)

    def _fetch_ahead(self, load: ir.Load, address: str, elements: int) -> None:
        """Prefetch the lines that lie as far behind so many elements as the load is to be fetched
        ahead, even past the end of the tensor.
        """
        ahead = self.fetched.get(load)
        if ahead is None:
            return
        size = max(elements * load.buffer.dtype.bits // 8, 1)
        for offset in range(ahead.bytes_, ahead.bytes_ + size, LINE_BYTES):
            place = self.out.let(f"getelementptr i8, ptr {address}, i64 {offset}")
            self.out.prefetch(place, level=ahead.cache)

    def _load_strided(
        self, load: ir.Load, moves: LanePattern, lanes: int, predicate: Value | None
    ) -> Value:
        """Every second or fourth element: load whole vectors and drop the other elements."""
        buffer, safe = load.buffer, self._safe(load, lanes)
        parts = [
            self._load_at(
                self.pointer(buffer, add(moves.base, const(start, moves.base.dtype))),
                *(buffer.dtype, lanes, predicate, safe),
            )
            for start in strided_starts(lanes, moves.stride)
        ]
        texts = [part.text for part in parts]
        kind = register_type(buffer.dtype, lanes)
        return Value(gather_strided(self.out, texts, kind, moves.stride), buffer.dtype, lanes)

    def _load_packed(
        self, load: ir.Load, run: tuple[Expr, int] | None, lanes: int, predicate: Value | None
    ) -> Value:
        """Elements of which two share a byte: whole bytes where the first element is an even one,
        else each element's own byte.
        """
        index, safe = load.indices[0], self._safe(load, lanes)
        base, byte = self.out.pointers[load.buffer], DType("uint8")
        if run is not None and _lanes(predicate) == 1 and self.has_whole_bytes(run):
            address = self.packed_bytes(load.buffer, run[0])
            zero = Value(VectorType("i8", lanes // 2).constant(0), byte, lanes // 2)
            stored = self._load_at(address, byte, lanes // 2, predicate, zero)
            half = packed.interleave(self.out, stored.text, lanes)
        else:
            place = self.evaluate_in(index, lanes)
            number, shift = packed.byte_of(self.out, place)
            addresses = self.out.let(f"getelementptr i8, ptr {base}, {place.type} {number}")
            zero = Value(VectorType("i8", lanes).constant(0), byte, lanes)
            if lanes == 1:
                stored = self._load_at(addresses, byte, 1, predicate, zero)
            else:
                stored = self._gather(addresses, byte, lanes, predicate, zero)
            half = packed.half_of(self.out, stored.text, shift, lanes)
        value = self._wrapped(self.from_memory(half, load.buffer.dtype, lanes))
        if predicate is not None and not self._is_zero(safe):
            condition = predicate if predicate.lanes == 1 else self.spread(predicate, lanes)
            kind = value.type
            chosen = f"select {condition.type} {condition.text}, {kind} {value.text}, {kind} "
            value = Value(self.out.let(chosen + safe.text), value.dtype, lanes)
        return value

    def packed_bytes(self, buffer: Buffer, first: Expr) -> str:
        """The address of the byte that begins with the 4-bit element `first`."""
        index, base = self.evaluate(first), self.out.pointers[buffer]
        number = self.out.let(f"ashr {index.type} {index.text}, 1")
        return self.out.let(f"getelementptr i8, ptr {base}, {index.type} {number}")

    def has_whole_bytes(self, run: tuple[Expr, int]) -> bool:
        """Whether consecutive 4-bit elements (first index, lanes) fill bytes."""
        first, lanes = run
        return lanes % 2 == 0 and self.ranges.divides(2, first)

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
        run: tuple[Expr, int] | None,
        lanes: int,
        predicate: Value | None,
        safe: Value,
    ) -> Value:
        """Lanes at unrelated addresses, or one address under a mask."""
        index, dtype = load.indices[0], load.buffer.dtype
        if run is not None and run[1] == lanes:
            return self._load_at(self.pointer(load.buffer, run[0]), dtype, lanes, predicate, safe)
        addresses = self.pointers(load.buffer, index)
        if self.evaluate(index).lanes == 1 and predicate is not None:
            return self._load_shared(addresses, dtype, predicate, safe)
        return self._gather(addresses, dtype, lanes, predicate, safe)

    def _load_shared(self, address: str, dtype: DType, mask: Value, safe: Value) -> Value:
        """One element for all lanes of a mask: read if any of them is active."""
        name = f"llvm.vector.reduce.or.{mask.type.mangled}"
        active = Value(self.out.call("i1", name, (mask.type, mask.text)), BOOL)
        zero = Value(register_type(dtype, 1).constant(0), dtype)
        element = self._load_at(address, dtype, 1, active, zero)
        value = self.spread(element, mask.lanes)
        if self._is_zero(safe):
            return value
        kind = value.type
        chosen = f"select {mask.type} {mask.text}, {kind} {value.text}, {kind} {safe.text}"
        return Value(self.out.let(chosen), dtype, mask.lanes)

    def _gather(
        self, addresses: str, dtype: DType, lanes: int, predicate: Value | None, safe: Value
    ) -> Value:
        kind, mask = memory_type(dtype, lanes), VectorType("i1", lanes)
        active = "splat (i1 true)" if predicate is None else self.spread(predicate, lanes).text
        passed = kind.constant(0) if self._is_zero(safe) else self.to_memory(safe)
        callee = f"llvm.masked.gather.{kind.mangled}.v{lanes}p0"
        pointers = VectorType("ptr", lanes)
        arguments = ((pointers, addresses), ("i32", str(dtype.bytes)), (mask, active))
        text = self.out.call(kind, callee, *arguments, (kind, passed))
        return self.from_memory(text, dtype, lanes)


def _lanes(value: Value | None) -> int:
    return 1 if value is None else value.lanes
