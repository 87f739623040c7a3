"""Where the code of a block is cut: what is computed once, what belongs into loops over threads,
and what all threads do together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from tileworkbench.compiler.analysis.dataflow import leaves_early
from tileworkbench.compiler.analysis.effects import exposes
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.diagnostics import DEADLOCK, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import (
    FALSE,
    TRUE,
    const_int,
    int_const,
    mul,
    unary,
)
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load
from tileworkbench.compiler.ir.loops import as_serial
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.types import BOOL
from tileworkbench.compiler.lower.thread_loops.barriers import Counters
from tileworkbench.compiler.lower.thread_loops.block import Block, Scope, Turns
from tileworkbench.compiler.lower.thread_loops.exchanges import split_exchange
from tileworkbench.compiler.lower.thread_loops.ranges import ThreadRanges

_COLLECTIVE = (*(kind for kind in simt.THREAD_LEVEL if kind is not simt.Fence), *tile.COLLECTIVE)
_TOGETHER = ("shared", "local.fragment", "shared.barrier")  # scopes that threads share
_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")
_SIMULATE = "run it in the simulator, with k.simulate(...)"


@dataclass(slots=True)
class _Writer:
    """The code of one sequence: what is finished, and the thread code that is still open."""

    block: Block
    scope: Scope
    done: list[st.Stmt] = field(default_factory=list)
    run: list[st.Stmt] = field(default_factory=list)

    def cut(self) -> None:
        """Close the loop over threads that is being written."""
        if self.run and self.scope.extent:
            self.done.append(self.block.each(self.run, self.scope))
        self.run = []


class Splitter:
    """Splits the code of one launch, or of some of its threads."""

    def __init__(
        self,
        kernel: st.Kernel,
        threads: Block,
        program: Program,
        counters: dict[Buffer, Counters],
    ) -> None:
        self.threads = threads
        self.counters = counters
        self.in_loops: set[Node] = set()  # variables that are made in loops over threads
        self.program = program
        written = [stmt for stmt in statements(program.body) if isinstance(stmt, simt.Barrier)]
        self.barriers = {stmt.site for stmt in written}
        self.uniformity = Uniformity(kernel)
        self.ranges = ThreadRanges(kernel, threads.thread)

    def block(self, body: st.Stmt, scope: Scope) -> st.Stmt:
        """`body` for the threads of `scope`, all of which execute it together."""
        writer = _Writer(self.threads, scope)
        for stmt in st.items(body):
            self.visit(stmt, writer)
        writer.cut()
        return st.seq(writer.done)

    # Kinds of statements

    def visit(self, stmt: st.Stmt, out: _Writer) -> None:
        if isinstance(stmt, st.Alias | st.Pointer) or (
            isinstance(stmt, st.Alloc) and stmt.buffer.scope in _TOGETHER
        ):
            self.allocate(stmt, out)
        elif isinstance(stmt, simt.Fence):
            return
        elif _is_collective(stmt) or (out.scope.turns is not None and leaves_early(stmt)):
            self.collective(stmt, out)
        elif self.is_pure(stmt):
            out.done.append(stmt)  # in front of the open loop, which may need it
        elif self.is_uniform(stmt) and not out.scope.masks:
            out.cut()
            out.done.append(stmt)
        elif self.is_private(stmt):
            self.in_loops |= {inner.var for inner in statements(stmt) if isinstance(inner, st.Let)}
            out.run.append(stmt)
        else:
            self.control(stmt, out)

    def allocate(self, stmt: st.Stmt, out: _Writer) -> None:
        buffer = stmt.buffer if isinstance(stmt, st.Alloc) else None
        if buffer is not None and buffer.scope == "shared.barrier":
            self.counters[buffer] = Counters.of(buffer, self.threads)
        else:
            out.done.append(stmt)

    def is_pure(self, stmt: st.Stmt) -> bool:
        """Whether it does not matter when, nor how often, `stmt` is executed."""
        match stmt:
            case st.Let(_, value) | st.Assume(value):
                nodes = list(walk(value))
            case _:
                return False
        return not (
            self.uniformity.varies(value)
            or any(isinstance(node, Load) or _may_trap(node) for node in nodes)
            or any(node in self.in_loops for node in nodes)
        )

    def is_uniform(self, stmt: st.Stmt) -> bool:
        """Whether all threads would do the same, and doing it once is enough."""
        for inner in statements(stmt):
            if isinstance(inner, st.Atomic):
                return False
            if isinstance(inner, st.ExternCall) and exposes(inner):
                return False
            if isinstance(inner, st.Let | st.For) and self.uniformity.varies(inner.var):
                return False
            for child in inner.children():
                if isinstance(child, st.Stmt):
                    continue
                if isinstance(child, Buffer):
                    if child in self.uniformity.varying:
                        return False
                elif self.uniformity.varies(child):
                    return False
        return True

    def is_private(self, stmt: st.Stmt) -> bool:
        """Whether each thread can execute `stmt` on its own: it does not change what the block has
        once, nor leave a loop around it.
        """
        if leaves_early(stmt):
            return False
        own = {inner.buffer for inner in statements(stmt) if isinstance(inner, st.Alloc)}
        return not any(
            isinstance(inner, st.Store)
            and inner.buffer.scope in ("local", "local.var")
            and inner.buffer not in self.uniformity.varying
            and inner.buffer not in own
            for inner in statements(stmt)
        )

    # What threads do together

    def collective(self, stmt: st.Stmt, out: _Writer) -> None:
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self.visit(child, out)
            case simt.Role(start, extent, body):
                out.cut()
                self.role(body, out.scope.narrowed(start, extent), out)
            case simt.Barrier():
                self.barrier(stmt, out)
            case simt.WarpBarrier():
                out.cut()
            case simt.GridBarrier():
                self.refuse("'T.sync_grid' at this place", stmt)
            case simt.Exchange():
                self.exchange(stmt, out)
            case (
                simt.BarrierInit()
                | simt.BarrierArrive()
                | simt.BarrierExpect()
                | simt.BarrierSignal()
                | simt.BarrierWait()
            ):
                self.memory_barrier(stmt, out)
            case st.If() | st.For() | st.While() | tile.Pipelined():
                self.control(stmt, out)
            case st.Break() | st.Continue() if out.scope.turns is not None:
                self.leave(stmt, out.scope.turns, out)
            case _:
                self.operator(stmt, out)

    def refuse(self, what: str, stmt: st.Stmt) -> None:
        raise UnsupportedError(
            f"target 'cpu' cannot execute {what}", self.program.span(stmt.site), hint=_SIMULATE
        )

    def role(self, body: st.Stmt, scope: Scope, out: _Writer) -> None:
        """`body` for some of the threads, while the others wait."""
        if scope.extent:
            out.done.append(self.block(body, scope))

    def barrier(self, stmt: simt.Barrier, out: _Writer) -> None:
        threads = stmt.count or self.threads.count
        if out.scope.masks or threads != out.scope.extent:
            if stmt.site not in self.barriers:  # the user wrote none
                self.refuse("an exchange of data for which only some threads could wait here", stmt)
            self.refuse("a barrier that only some threads of the block reach here", stmt)
        out.cut()

    def exchange(self, stmt: simt.Exchange, out: _Writer) -> None:
        of_block = stmt.is_barrier
        if of_block and (out.scope.masks or out.scope.extent != self.threads.per_block):
            self.refuse("a barrier that only some threads of the block reach here", stmt)
        varies = stmt.mask is not None and self.uniformity.varies(stmt.mask)
        parts = split_exchange(stmt, self.threads, out.scope, varies)
        out.run += parts.before
        out.cut()
        out.done += parts.between
        out.run += parts.after

    def operator(self, stmt: st.Stmt, out: _Writer) -> None:
        """A tile operator: once, when some thread takes part in it."""
        out.cut()
        before, some = self.threads.any_active(out.scope, stmt.site)
        out.done += before
        out.done.append(stmt if some is TRUE else st.If(some, stmt, site=stmt.site))

    def memory_barrier(self, stmt: st.Stmt, out: _Writer) -> None:
        out.cut()
        site = stmt.site
        match stmt:
            case simt.BarrierInit(place, count):
                out.done += self.counters[place.buffer].init(place, count, site)
            case simt.BarrierArrive(place):
                self.each_or_count(
                    stmt, lambda count: self.counters[place.buffer].arrive(place, count, site), out
                )
            case simt.BarrierExpect(place, bytes_):
                state = self.counters[place.buffer]
                self.each_or_count(
                    stmt,
                    lambda count: state.expect(place, mul(count, bytes_), site),
                    out,
                )
            case simt.BarrierSignal(place, arrivals, change):
                made = self.counters[place.buffer].signal(place, arrivals, change, site)
                before, some = self.threads.any_active(out.scope, site)
                out.done += before
                out.done += made if some is TRUE else [st.If(some, st.seq(made), site=site)]
            case simt.BarrierWait(place, parity):
                if out.scope.masks or any(map(self.uniformity.varies, (place, parity))):
                    self.refuse("a wait that only some threads reach together", stmt)
                passed = self.counters[place.buffer].has_completed(place, parity)
                out.done.append(st.DeviceAssert(passed, self.waiting(stmt, out.scope), site=site))

    # Control flow

    def control(self, stmt: st.Stmt, out: _Writer) -> None:
        """A branch or loop in which threads wait for each other."""
        match stmt:
            case st.If():
                self.branch(stmt, out)
            case tile.Pipelined():
                self.loop(as_serial(stmt), out)
            case st.For():
                self.loop(stmt, out)
            case st.While():
                self.repeat(stmt, out)
            case _:
                out.run.append(stmt)

    def branch(self, stmt: st.If, out: _Writer) -> None:
        if not self.uniformity.varies(stmt.cond):
            out.cut()
            orelse = None if stmt.orelse is None else self.block(stmt.orelse, out.scope)
            then = self.block(stmt.then, out.scope)
            out.done.append(replace(stmt, then=then, orelse=orelse))
            return
        ranges = self.ranges.split(stmt.cond, out.scope.start, out.scope.extent)
        taken = [(start, extent) for start, extent, holds in ranges or () if holds]
        others = [(start, extent) for start, extent, holds in ranges or () if not holds]
        if ranges is not None and len(taken) <= 1 and (stmt.orelse is None or len(others) <= 1):
            out.cut()
            for body, threads in ((stmt.then, taken), (stmt.orelse, others)):
                if body is not None and threads:
                    self.role(body, out.scope.narrowed(*threads[0]), out)
            return
        thread, site = (self.threads.thread,), stmt.site
        mask = self.threads.array("taken", BOOL)
        out.run.append(st.Store(mask, thread, stmt.cond, site=site))
        other = self.threads.array("not_taken", BOOL) if stmt.orelse is not None else None
        if other is not None:
            out.run.append(st.Store(other, thread, unary("not", Load(mask, thread)), site=site))
        out.cut()
        out.done.append(self.block(stmt.then, out.scope.masked(mask)))
        if stmt.orelse is not None and other is not None:
            out.done.append(self.block(stmt.orelse, out.scope.masked(other)))

    def loop(self, stmt: st.For, out: _Writer) -> None:
        apart = self.uniformity.leaves_divergently(stmt.body) or (
            bool(out.scope.masks) and leaves_early(stmt.body)
        )
        if self.uniformity.varies(stmt.var):
            self.counted(stmt, out)
        elif not apart:
            out.cut()
            out.done.append(replace(stmt, body=self.block(stmt.body, out.scope.in_loop(None))))
        else:
            turns = self.enter(stmt, out)
            live = out.scope.masked(turns.live)
            check, some = self.threads.any_active(live, stmt.site)
            leave = st.If(unary("not", some), st.Break(site=stmt.site), site=stmt.site)
            body = self.block(stmt.body, out.scope.in_loop(turns))
            turn = [*check, leave, self.threads.new_turn(turns, live, stmt.site), body]
            out.done.append(replace(stmt, body=st.seq(turn)))

    def counted(self, stmt: st.For, out: _Writer) -> None:
        """A loop whose number of iterations differs between threads."""
        loop = self.threads.counted(stmt, self.threads.array, (self.threads.thread,))
        out.run += loop.begins
        body = st.seq([st.Let(stmt.var, loop.current, site=stmt.site), stmt.body])
        self.masked_loop(stmt, loop.goes_on, body, loop.next, out)

    def repeat(self, stmt: st.While, out: _Writer) -> None:
        apart = self.uniformity.varies(stmt.cond) or self.uniformity.leaves_divergently(stmt.body)
        if apart or out.scope.masks:
            self.masked_loop(stmt, stmt.cond, stmt.body, None, out)
            return
        out.cut()
        out.done.append(replace(stmt, body=self.block(stmt.body, out.scope.in_loop(None))))

    def masked_loop(
        self, stmt: st.Stmt, cond: Expr, body: st.Stmt, step: st.Stmt | None, out: _Writer
    ) -> None:
        """Repeat `body`, then `step`, for the threads in which `cond` holds."""
        site, thread = stmt.site, (self.threads.thread,)
        turns = self.enter(stmt, out)
        live = out.scope.masked(turns.live)
        again = self.threads.cell("again", BOOL)
        out.done.append(st.Store(again, (), TRUE, site=site))
        ask = self.threads.each([st.Store(turns.live, thread, cond, site=site)], live)
        check, some = self.threads.any_active(live, site)
        turn = [
            self.threads.new_turn(turns, live, site),
            self.block(body, out.scope.in_loop(turns)),
        ]
        if step is not None:
            turn.append(self.threads.each([step], live))
        decide = [
            st.Store(again, (), some, site=site),
            st.If(Load(again, ()), st.seq(turn), site=site),
        ]
        out.done.append(st.While(Load(again, ()), st.seq([ask, *check, *decide]), site=site))

    def enter(self, stmt: st.Stmt, out: _Writer) -> Turns:
        """The masks of a loop that threads leave at different times; at its start all of them are
        in it.
        """
        turns = self.threads.loop_masks()
        out.run.append(st.Store(turns.live, (self.threads.thread,), TRUE, site=stmt.site))
        out.cut()
        return turns

    def leave(self, stmt: st.Stmt, turns: Turns, out: _Writer) -> None:
        """`break` or `continue` by some threads: they are out of the loop, or of this turn."""
        mask = turns.live if isinstance(stmt, st.Break) else turns.turn
        out.run.append(st.Store(mask, (self.threads.thread,), FALSE, site=stmt.site))
        out.cut()

    # Memory barriers

    def each_or_count(
        self, stmt: st.Stmt, make: Callable[[Expr], list[st.Stmt]], out: _Writer
    ) -> None:
        """Arrivals at one memory barrier together, at different ones one after another."""
        operands = [child for child in stmt.children() if not isinstance(child, st.Stmt)]
        if any(self.uniformity.varies(operand) for operand in operands):
            out.done.append(self.threads.each(make(int_const(1)), out.scope, serial=True))
            return
        before, count = self.threads.count_active(out.scope, stmt.site)
        out.done += [*before, *make(count)]

    def waiting(self, stmt: simt.BarrierWait, scope: Scope) -> str:
        """The message of a deadlock at `stmt`."""
        span = self.program.span(stmt.site)
        line = f" in line {span.line}" if span is not None else ""
        name = self.threads.called(stmt.barrier.buffer)
        return (
            f"{DEADLOCK}{self.threads.describe(scope)} wait{line} for "
            f"'{name}[{print_expr(stmt.barrier.indices[0])}]', whose phase nothing completes"
        )


def _may_trap(node: Node) -> bool:
    """Whether `node` is a division by what may be zero."""
    return isinstance(node, Binary) and node.op in _DIVISIONS and not const_int(node.b)


def _is_collective(stmt: st.Stmt) -> bool:
    return any(isinstance(inner, _COLLECTIVE) for inner in statements(stmt))
