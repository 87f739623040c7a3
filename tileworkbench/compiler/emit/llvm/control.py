"""Loops, branches and ways out of a block as LLVM IR."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from tileworkbench.compiler.analysis.dataflow import may_leave
from tileworkbench.compiler.analysis.steps import (
    may_be_endless,
    may_take_seconds,
    runs_at_least_once,
    steps,
)
from tileworkbench.compiler.emit.llvm.emitter import Emitter, Value, register_type
from tileworkbench.compiler.emit.llvm.module import ModuleState
from tileworkbench.compiler.emit.llvm.stores import Stores
from tileworkbench.compiler.emit.llvm.text import LINE_BYTES, VectorType
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.types import INT64

SHOWN = "@shown"  # what a failed assertion shows
_UNROLL_LIMIT = 64
_LONG = 1 << 14  # statements, of one vector each: some 10 us
_REPEATING = (st.For, st.While, tile.MicroGemm, tile.Pack)


class ControlFlow(Stores, ABC):
    """Statements with statements inside; `stmt` writes those."""

    def __init__(self, module: ModuleState, emitter: Emitter) -> None:
        super().__init__(module, emitter)
        self.loops: list[tuple[str, str]] = []
        self.polled = False

    @abstractmethod
    def stmt(self, stmt: st.Stmt) -> None:
        """Write any statement."""

    def trip_count(self, loop: st.For) -> range | None:
        """The values of a loop short enough to be written out, else None."""
        values = iterations(loop)
        if values is None:
            return None
        size = len(values) * sum(1 for _ in statements(loop.body))
        return values if size <= _UNROLL_LIMIT and not may_leave(loop.body) else None

    def unrolled(self, loop: st.For) -> None:
        for number in self.trip_count(loop) or ():
            with self.out.scope(certain=True):
                value = const(number, loop.var.dtype)
                self.out.bind(loop.var, self.exprs.evaluate(value))
                self.stmt(loop.body)

    def vector_loop(self, loop: st.For) -> None:
        lanes = const_int(loop.stop) or 1
        kind = register_type(loop.var.dtype, lanes)
        numbers = ", ".join(f"{kind.element} {lane}" for lane in range(lanes))
        with self.out.scope(certain=True):
            self.out.bind(loop.var, Value(f"<{numbers}>", loop.var.dtype, lanes))
            self.out.lanes, self.out.lane_var = lanes, loop.var
            self.stmt(loop.body)
            self.out.lanes, self.out.lane_var = 1, None
            self.exprs.definitions.clear()

    def serial_loop(self, loop: st.For) -> None:
        out = self.out
        start, stop = self.exprs.evaluate(loop.start), self.exprs.evaluate(loop.stop)
        step = self.exprs.evaluate(loop.step)
        kind = register_type(loop.var.dtype)
        start, stop = self.exprs.cast(start, loop.var.dtype), self.exprs.cast(stop, loop.var.dtype)
        step = self.exprs.cast(step, loop.var.dtype)
        preheader = out.open_preheader()
        header, latch, after = map(out.fresh_label, ("loop", "latch", "after"))
        number, before = const_int(loop.step), out.block
        if runs_at_least_once(loop):
            out.jump(header)
        else:
            out.branch(self.begins(start, stop, step, number), header, after)
        out.place(header)
        counter, following = out.let_later(), out.let_later()
        out.do(f"{counter} = phi {kind} [ {start.text}, %{before} ], [ {following}, %{latch} ]")
        with out.scope(preheader, certain=self.is_certain(loop)):
            out.bind(loop.var, Value(counter, loop.var.dtype))
            polls = self.must_poll(loop)
            if polls:
                self.poll()
            outer, self.polled = self.polled, self.polled or polls
            self.loops.append((after, latch))
            self.stmt(loop.body)
            self.loops.pop()
            self.polled = outer
        out.jump(latch)
        out.place(latch)
        out.do(f"{following} = add {kind} {counter}, {step.text}")
        # Tested at the end: one jump per iteration.
        if _next_fits(loop):
            test = "slt" if number and number > 0 else "sgt"
            more = out.let(f"icmp {test} {kind} {following}, {stop.text}")
        else:
            more = self.goes_on(counter, stop, step, number)
        out.branch(more, header, after)
        out.place(after)

    def is_certain(self, loop: st.For) -> bool:
        """Whether every statement of the body is executed once the loop is reached."""
        exits = (st.Break, st.Continue, st.DeviceAssert)
        left = any(isinstance(inner, exits) for inner in statements(loop.body))
        return runs_at_least_once(loop) and not left

    def begins(self, start: Value, stop: Value, step: Value, number: int | None) -> str:
        """Whether the loop has an iteration."""
        let, kind = self.out.let, start.type
        up = "" if number and number < 0 else let(f"icmp slt {kind} {start.text}, {stop.text}")
        down = "" if number and number > 0 else let(f"icmp sgt {kind} {start.text}, {stop.text}")
        if number is not None:
            return up or down
        forward = let(f"icmp sgt {kind} {step.text}, 0")
        return let(f"select i1 {forward}, i1 {up}, i1 {down}")

    def goes_on(self, counter: str, stop: Value, step: Value, number: int | None) -> str:
        """Whether another iteration follows that of `counter`: whether more than one step is left.

        The next value of the counter is not computed, since its dtype may not hold it.
        """
        let, kind = self.out.let, stop.type
        left, size = let(f"sub {kind} {stop.text}, {counter}"), step.text
        if number is None:
            forward = let(f"icmp sgt {kind} {size}, 0")
            left, size = (
                let(f"select i1 {forward}, {kind} {value}, {kind} {let(f'sub {kind} 0, {value}')}")
                for value in (left, size)
            )
        elif number < 0:
            left, size = let(f"sub {kind} 0, {left}"), str(-number)
        return let(f"icmp ugt {kind} {left}, {size}")

    def has_streams(self, loop: st.For) -> bool:
        return any(
            isinstance(inner, st.Store) and inner.buffer in self.module.streamed
            for inner in statements(loop.body)
        )

    def streaming_loop(self, loop: st.For) -> None:
        """Write the loop twice: with stores that bypass the caches, for aligned outputs, and with
        ordinary ones.
        """
        out, stored = (
            self.out,
            {inner.buffer for inner in statements(loop.body) if isinstance(inner, st.Store)},
        )
        pointers = [out.pointers[buffer] for buffer in stored & self.module.streamed]
        low = [out.let(f"ptrtoint ptr {pointer} to i64") for pointer in sorted(pointers)]
        bits = low[0]
        for other in low[1:]:
            bits = out.let(f"or i64 {bits}, {other}")
        bits = out.let(f"and i64 {bits}, {LINE_BYTES - 1}")
        aligned = out.let(f"icmp eq i64 {bits}, 0")
        labels = out.fresh_label("aligned"), out.fresh_label("unaligned")
        after = out.fresh_label("after")
        out.branch(aligned, *labels)
        for label, self.streams in zip(labels, (True, False), strict=True):
            out.place(label)
            with out.scope():
                self.serial_loop(loop)
            out.jump(after)
        self.streams = None
        out.place(after)

    def must_poll(self, loop: st.For) -> bool:
        """Whether the iterations of a loop check for an interrupt. Those of the outermost loop that
        takes long do, and of loops inside it those that may take seconds or whose iterations take
        long. Innermost loops do so only where nothing says that they end within seconds.
        """
        loops = [f for f in statements(loop.body) if isinstance(f, _REPEATING)]
        vectors = any(getattr(f, "kind", None) is st.LoopKind.VECTORIZED for f in loops)
        if all(getattr(f, "kind", None) is st.LoopKind.VECTORIZED for f in loops):
            return may_be_endless(loop, vectors)
        if not self.polled:
            return steps(loop) >= _LONG
        return steps(loop.body) >= _LONG or may_take_seconds(loop, self.module.ranges)

    def poll(self) -> None:
        """Leave the block when the user has interrupted."""
        stop = self.out.let("load atomic i32, ptr %flag monotonic, align 4")
        self.exit_if(self.out.let(f"icmp ne i32 {stop}, 0"), 1)

    def exit_if(self, condition: str, code: int, before: Callable[[], None] | None = None) -> None:
        leave, stay = self.out.fresh_label("leave"), self.out.fresh_label("stay")
        self.out.branch(condition, leave, stay)
        self.out.place(leave)
        if before is not None:
            before()
        self.out.do(f"ret i32 {code}")
        self.out.place(stay)

    def while_loop(self, cond: Expr, body: st.Stmt) -> None:
        out = self.out
        preheader = out.open_preheader()
        header, inside, after = map(out.fresh_label, ("while", "do", "after"))
        out.jump(header)
        out.place(header)
        with out.scope(preheader):
            self.poll()
            out.branch(self.exprs.evaluate(cond).text, inside, after)
            out.place(inside)
            self.loops.append((after, header))
            self.stmt(body)
            self.loops.pop()
        out.jump(header)
        out.place(after)

    def branch(self, cond: Expr, then: st.Stmt, orelse: st.Stmt | None) -> None:
        out = self.out
        test = self.exprs.evaluate(cond)
        first, second, after = map(out.fresh_label, ("then", "else", "after"))
        out.branch(test.text, first, after if orelse is None else second)
        for label, body in ((first, then), (second, orelse)):
            if body is not None:
                out.place(label)
                with out.scope():
                    self.stmt(body)
                out.jump(after)
        out.place(after)

    def leave(self, label: str) -> None:
        """Jump away; what follows in the same block is unreachable."""
        self.out.jump(label)
        self.out.place(self.out.fresh_label("unreachable"))

    def device_assert(self, cond: Expr, message: str, site: int, value: Expr | None = None) -> None:
        """Note `value` and leave the block with the number of the assertion where `cond` does not
        hold; in a vector loop, where it does not hold in some lane.
        """
        test = self.exprs.evaluate(cond)
        shown = None if value is None else self.exprs.cast(self.exprs.evaluate(value), INT64)
        if test.lanes == 1:
            failed = lanes = self.out.let(f"xor i1 {test.text}, true")
        else:
            held, bits = VectorType("i1", test.lanes), f"i{test.lanes}"
            lanes = self.out.let(f"bitcast {held} {test.text} to {bits}")
            lanes = self.out.let(f"xor {bits} {lanes}, -1")
            failed = self.out.let(f"icmp ne {bits} {lanes}, 0")

        def note() -> None:
            if shown is None:
                return
            number = shown.text
            if shown.lanes > 1:
                bits = f"i{test.lanes}"
                first = self.out.call(bits, f"llvm.cttz.{bits}", (bits, lanes), ("i1", "true"))
                number = self.out.let(f"extractelement {shown.type} {number}, {bits} {first}")
            self.out.do(f"store i64 {number}, ptr {SHOWN}")

        self.exit_if(failed, 2 + len(self.module.assertions), note)
        self.module.assertions.append((message, site))
        self.module.shows_value = self.module.shows_value or shown is not None


def _next_fits(loop: st.For) -> bool:
    """Whether the loop's dtype holds the value after the last iteration's, as it surely does for a
    step of 1.
    """
    stop, step = const_int(loop.stop), const_int(loop.step)
    if step in (1, -1):
        return True
    limit = 1 << (loop.var.dtype.bits - 1)
    return stop is not None and step is not None and -limit <= stop + step < limit
