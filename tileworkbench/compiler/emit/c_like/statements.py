"""Statements as lines of a C-like language; what threads do together is the dialect's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.counters import counters_of
from tileworkbench.compiler.emit.c_like.expressions import Expressions
from tileworkbench.compiler.emit.c_like.loop_front import LoopFront
from tileworkbench.compiler.emit.c_like.text import bare, bits_of, joined, wrapped
from tileworkbench.compiler.emit.c_like.vectors import VectorWriter
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import binary, const, const_int, int_const
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Ramp
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import variables
from tileworkbench.compiler.ir.types import FLOAT32, DType

GRID_BARRIER = Buffer("grid_barrier", DType("uint32"), (int_const(1),), "global")
"""The workspace behind barriers of the grid: zero when a launch begins."""
WARP = "warp_index"


class KernelWriter:
    """Writes the body of one kernel into `lines`."""

    def __init__(
        self,
        expressions: Expressions,
        program: Program,
        source: tuple[str, ...],
        kernel: st.Kernel,
    ) -> None:
        self.expressions = expressions
        self.dialect = expressions.dialect
        self.program = program
        self.source = source
        self.kernel = kernel
        self.lines: list[str] = []
        self.site = 0
        self.unrolled: set[ir.Var] = set()  # what counts loops that are written out
        self.addresses: dict[ir.Buffer, str] = {}  # in shared memory, of no pointer
        self.running: set[ir.Var] = set()  # other variables that change in loops
        self.front = LoopFront(self.lines)
        self.quotients: dict[ir.Expr, str] = {}  # of the thread, from the number of its warp
        self.warps: dict[ir.Expr, str] = {}  # those where the warp's number has a name
        self.in_flight: dict[Buffer, None] = {}  # registers that unfinished operations write
        self.elections = self.dialect.elections(kernel)
        self.named, self.c_type = expressions.named, expressions.c_type
        self.vectors = VectorWriter(
            expressions, self.line, lambda load, kind: self.dialect.read(load, kind, self)
        )

    def in_blocks_of(self, threads: int, thread: ir.Var) -> None:
        """Say how many threads a block has, and what counts them."""
        size, text = self.dialect.warp
        if text and threads % size == 0:
            for shift in range((threads // size - 1).bit_length()):
                quotient = binary("floordiv", thread, const(size << shift, thread.dtype))
                self.quotients[quotient] = joined("shr", WARP, str(shift)) if shift else WARP

    def role(self, role: simt.Role, depth: int) -> None:
        """What only some threads do. Whole warps ask for their number in a way that compilers know
        to be the same in all their threads, right in front of it: lanes may have parted before.
        That takes all their threads, so nothing may stand around the role.
        """
        size, text = self.dialect.warp
        index, unit, head = self.dialect.thread_index, 1, ""
        outer, stop = self.warps, role.start + role.extent
        if self.quotients and depth == 1 and role.start % size == stop % size == 0:
            index, unit, head = WARP, size, f"const int {WARP} = {text}; "
            self.warps = self.quotients
        tests = [f"{index} >= {role.start // unit}"] if role.start else []
        head += " && ".join([*tests, f"{index} < {stop // unit}"])
        self.block(depth, f"if ({head})", role.body)
        self.warps = outer

    def test(self, branch: st.If) -> str:
        """The condition of a branch. Where the warp's number has a name, it may elect a lane."""
        warp = self.elections.get(id(branch))
        if warp is None or not self.warps:
            return bare(self.expressions(branch.cond))
        return f"{WARP} == {warp} && {self.expressions.use(self.dialect.leader)}()"

    @contextmanager
    def uniform(self) -> Iterator[None]:
        """Texts of what all threads of a warp have alike. Compilers keep it in registers of the
        warp, which instructions on tiles and barriers take, if they know.
        """
        known = self.expressions.known
        self.expressions.known = {**known, **self.warps}
        yield
        self.expressions.known = known

    def memory_type(self, dtype: DType) -> str:
        """The C++ type of an element in memory; two elements of four bits share a byte."""
        return "unsigned char" if dtype.bits == 4 else self.c_type(dtype)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def define(self, depth: int, dtype: DType, name: str, text: str) -> None:
        self.line(depth, f"const {self.c_type(dtype)} {name} = {text};")

    def point(self, depth: int, c_type: str, buffer: Buffer, place: str) -> None:
        self.line(depth, f"{c_type}* const {self.named(buffer)} = ({c_type}*){place};")

    def write(self, stmt: st.Stmt, depth: int) -> None:
        """Append the lines of `stmt`."""
        if isinstance(stmt, st.Seq):
            for child in stmt.stmts:
                self.write(child, depth)
            return
        self.comment(stmt, depth)
        try:
            self.write_one(stmt, depth)
        except UnsupportedError as error:
            error.span = error.span or self.program.span(stmt.site)
            raise

    def write_one(self, stmt: st.Stmt, depth: int) -> None:
        """Append the lines of a statement that is no sequence."""
        match stmt:
            case st.Let(var, value):
                if self.is_running(value):
                    self.running.add(var)
                self.front.declared.add(var)
                if self.expressions.is_half(value):
                    self.expressions.halves.add(var)
                self.define(depth, var.dtype, self.named(var), self.expressions(value))
            case st.Alloc():
                self.alloc(stmt, depth)
            case st.Alias(buffer, source):
                c_type = self.memory_type(buffer.dtype)
                if buffer.scope == "local" and bits_of(buffer.dtype) < 32:
                    c_type = "unsigned"
                    self.expressions.packed.add(buffer)
                self.point(depth, c_type, buffer, self.named(source))
            case st.Store():
                self.store(stmt, depth)
            case st.Atomic():
                self.atomic(stmt, depth)
            case st.For():
                self.loop(stmt, depth)
            case st.While(cond, body):
                self.block(depth, f"while ({self.expressions(cond)})", body)
            case st.If(cond, then, orelse):
                before = dict(self.in_flight)
                self.block(depth, f"if ({self.test(stmt)})", then)
                behind, self.in_flight = self.in_flight, before
                if orelse is not None:
                    self.lines[-1] += " else {"
                    self.write(orelse, depth + 1)
                    self.line(depth, "}")
                self.in_flight |= behind
            case st.Break():
                self.line(depth, "break;")
            case st.Continue():
                self.line(depth, "continue;")
            case st.Assume(cond):
                self.line(depth, self.dialect.assume(self.expressions(cond)))
            case st.DeviceAssert(cond, message):
                failed = _quoted(f"device assert failed: {message}\n".replace("%", "%%"))
                test, trap = wrapped(self.expressions(cond)), self.dialect.trap
                self.line(depth, f"if (!{test}) {{ printf({failed}); {trap} }}")
            case st.Print():
                self.print_line(stmt, depth)
            case st.Breakpoint():
                pass
            case simt.Role():
                self.role(stmt, depth)
            case simt.Start():
                self.dialect.start(stmt, self, depth)
            case st.Pointer(buffer, address):
                place = wrapped(self.expressions(address))
                self.point(depth, self.memory_type(buffer.dtype), buffer, place)
            case st.ExternCall():
                self.extern_call(stmt, depth)
            case _:
                for text in self.dialect.statement(stmt, self):
                    self.line(depth, text)

    def comment(self, stmt: st.Stmt, depth: int) -> None:
        """The user's line, where it changes."""
        span = self.program.span(stmt.site)
        if span is None or stmt.site == self.site or isinstance(stmt, st.Let | st.Alloc):
            return
        self.site = stmt.site
        if 0 < span.line <= len(self.source):
            text = self.source[span.line - 1].strip()
            shown = f"// line {span.line}: {text}"
            if text and shown not in self.lines[-1:]:
                self.line(depth, shown)

    def block(self, depth: int, head: str, body: st.Stmt) -> None:
        self.line(depth, f"{head} {{")
        self.write(body, depth + 1)
        self.line(depth, "}")

    def loop(self, stmt: st.For, depth: int) -> None:
        name, number = self.named(stmt.var), const_int(stmt.step)
        start = self.expressions(stmt.start)
        stop = wrapped(self.bound(stmt, stmt.stop, "stop", depth), 10)
        step = self.bound(stmt, stmt.step, "step", depth)
        unrolled = stmt.kind in (st.LoopKind.UNROLLED, st.LoopKind.VECTORIZED)
        (self.unrolled if unrolled else self.running).add(stmt.var)
        if not unrolled:
            self.front.enter(stmt, depth)
        self.front.declared.add(stmt.var)
        test = f"{name} {'>' if number is not None and number < 0 else '<'} {stop}"
        forwards = binary("gt", stmt.step, const(0, stmt.step.dtype))
        if number is None and not self.expressions.ranges.proves(forwards):
            test = f"({wrapped(step, 10)} > 0 ? {name} < {stop} : {name} > {stop})"
        advance = f"++{name}" if number == 1 else f"{name} += {step}"
        if not self.next_fits(stmt, number):
            advance = f"{name} = {_step_or_stop(name, stop, step, number, stmt.var.dtype.bits)}"
        if not unrolled:
            advance = ", ".join([advance, *self.counters(stmt, name, depth)])
        if pragma := self.dialect.unroll(unrolled):
            self.line(depth, pragma)
        head = f"{self.c_type(stmt.var.dtype)} {name} = {start}"
        self.block(depth, f"for ({head}; {test}; {advance})", stmt.body)
        self.front.leave(stmt)

    def counters(self, loop: st.For, name: str, depth: int) -> list[str]:
        """Define the counters beside a loop; how each goes on after an iteration."""
        steps: dict[str, str] = {}
        for counter in counters_of(loop, name, self.expressions.ranges):
            if counter.name not in steps:
                c_type, start = self.c_type(counter.start.dtype), self.expressions(counter.start)
                self.line(depth, f"{c_type} {counter.name} = {start};")
            steps[counter.name] = counter.next
            self.expressions.known[counter.value] = counter.name
        return list(steps.values())

    def is_running(self, value: Expr) -> bool:
        """Whether `value` may change from one iteration of a loop to the next."""
        return has_loads(value) or not self.running.isdisjoint(variables(value))

    def next_fits(self, stmt: st.For, number: int | None) -> bool:
        """Whether the loop's dtype holds the value after the last iteration's."""
        if number in (1, -1):
            return True
        stop, dtype = self.expressions.ranges.bounds(stmt.stop), stmt.var.dtype
        if number is None or stop.low is None or stop.high is None:
            return False
        return stop.low + number >= dtype.min_value and stop.high + number <= dtype.max_value

    def bound(self, stmt: st.For, value: Expr, kind: str, depth: int) -> str:
        """A bound as it is on entry: one that is read from memory gets a name."""
        text = self.expressions(value)
        if not has_loads(value):
            return text
        name = f"{kind}_of_{self.named(stmt.var)}"
        self.define(depth, value.dtype, name, text)
        return name

    # Memory

    def alloc(self, stmt: st.Alloc, depth: int) -> None:
        buffer = stmt.buffer
        self.front.declared.add(buffer)
        match buffer.scope:
            case "local.var":
                init = "" if stmt.init is None else f" = {self.expressions(stmt.init)}"
                c_type = self.c_type(buffer.dtype)
                self.line(depth, f"{c_type} {self.named(buffer)}{init};")
            case "shared" | "shared.barrier":
                place = f"(shared_memory + {stmt.offset})" if stmt.offset else "shared_memory"
                self.point(depth, self.memory_type(buffer.dtype), buffer, place)
            case "local":
                self.registers(buffer, depth)

    def registers(self, buffer: Buffer, depth: int) -> None:
        """A thread's own array; elements below 32 bits are kept in words, as instructions take
        them.
        """
        elements, bits = const_int(buffer.shape[0]) or 0, bits_of(buffer.dtype)
        if bits < 32:
            self.expressions.packed.add(buffer)
            self.line(depth, f"unsigned {self.named(buffer)}[{max(1, -(-elements * bits // 32))}];")
        else:
            c_type = self.c_type(buffer.dtype)
            self.line(depth, f"{c_type} {self.named(buffer)}[{max(1, elements)}];")

    def register_words(self, address: Address) -> str:
        """A pointer to the 32-bit words of registers."""
        text = self.expressions.address(address)
        return f"(unsigned*)({text})" if address.buffer.dtype.bits == 32 else text

    def store(self, stmt: st.Store, depth: int) -> None:
        if stmt.indices and isinstance(stmt.indices[-1], Ramp):
            self.vectors.store(stmt, stmt.indices[-1], depth)
            return
        buffer, value = stmt.buffer, bare(self.expressions(stmt.value))
        if buffer.scope == "local.var":
            text = f"{self.named(buffer)} = {value};"
        else:
            text = self.assignment(buffer, self.expressions(stmt.indices[0]), value)
        if stmt.predicate is not None:
            text = f"if ({bare(self.expressions(stmt.predicate))}) {text}"
        self.line(depth, text)

    def assignment(self, buffer: Buffer, index: str, value: str) -> str:
        packed = buffer in self.expressions.packed
        if packed or buffer.dtype.bits == 4:
            name = self.expressions.use(f"set{bits_of(buffer.dtype)}" if packed else "store4")
            return f"{name}({self.named(buffer)}, {bare(index)}, {value});"
        return f"{self.named(buffer)}[{bare(index)}] = {value};"

    # Atomics, output

    def atomic(self, stmt: st.Atomic, depth: int) -> None:
        buffer, dtype = stmt.buffer, stmt.buffer.dtype
        if isinstance(stmt.indices[-1], Ramp):
            self.vectors.add(stmt, stmt.indices[-1], depth)
            return
        place = self.expressions.address(Address(buffer, (stmt.indices[0],)))
        value = self.expressions(stmt.value)
        call = self.atomic_call(stmt.kind, dtype, place, value)
        if stmt.previous is not None:
            safe = "0" if stmt.safe is None else self.expressions(stmt.safe)
            if stmt.predicate is not None:
                call = f"{wrapped(self.expressions(stmt.predicate), 3)} ? {call} : {safe}"
            self.define(depth, dtype, self.named(stmt.previous), call)
            return
        test = "" if stmt.predicate is None else f"if ({self.expressions(stmt.predicate)}) "
        self.line(depth, f"{test}{call};")

    def atomic_call(self, kind: st.AtomicKind, dtype: DType, place: str, value: str) -> str:
        if kind is st.AtomicKind.LOAD:
            return f"*(volatile {self.c_type(dtype)}*)({place})"
        if kind is st.AtomicKind.STORE:
            return f"*(volatile {self.c_type(dtype)}*)({place}) = {value}"
        return self.dialect.atomic(kind, dtype, place, value, self)

    def combined(self, kind: st.AtomicKind, dtype: DType) -> str:
        """`old` updated by `x`."""
        op = kind.value
        if dtype.is_float:
            wide, suffix = (dtype, "") if dtype.bits == 64 else (FLOAT32, "f")
            a, b = (self.expressions.cast(each, dtype, wide) for each in ("old", "x"))
            text = f"{a} + {b}" if op == "add" else f"f{op}{suffix}({a}, {b})"
            return self.expressions.cast(text, wide, dtype)
        sign = {"add": "+", "and": "&", "or": "|", "xor": "^", "max": ">", "min": "<"}[op]
        return f"old {sign} x" + (" ? old : x" if op in ("max", "min") else "")

    def print_line(self, stmt: st.Print, depth: int) -> None:
        pieces: list[str] = [stmt.parts[0].replace("%", "%%")]
        values: list[str] = []
        for value, part in zip(stmt.values, stmt.parts[1:], strict=True):
            text = self.expressions(value)
            if value.dtype.is_float:
                pieces.append("%g")
                text = self.expressions.cast(text, value.dtype, DType("float64"))
            else:
                pieces.append("%lld")
                text = f"(long long){wrapped(text)}"
            values.append(text)
            pieces.append(part.replace("%", "%%"))
        self.line(depth, f"printf({', '.join([_quoted(''.join(pieces) + chr(10)), *values])});")

    def extern_call(self, stmt: st.ExternCall, depth: int) -> None:
        """A call of a function of the program's sources: pointers keep their element type."""
        args = [
            self.expressions.address(Address(arg.buffer, arg.indices))
            if isinstance(arg, ir.AddressOf)
            else self.expressions(arg)
            for arg in stmt.args
        ]
        call = f"{stmt.name}({', '.join(args)})"
        if stmt.var is None:
            self.line(depth, f"{call};")
        else:
            self.define(depth, stmt.var.dtype, self.named(stmt.var), call)


def _step_or_stop(name: str, stop: str, step: str, number: int | None, bits: int) -> str:
    """The next value of a loop, or its end where less than a step is left."""
    wide = "(unsigned long long)" if bits > 32 else "(unsigned)"
    stop = wrapped(stop)
    up = f"{wide}{stop} - {wide}{name} > {wide}{wrapped(step)}"
    down = f"{wide}{name} - {wide}{stop} > 0u - {wide}{wrapped(step)}"
    either = f"({wrapped(step, 10)} > 0 ? {up} : {down})"
    more = either if number is None else up if number > 0 else down
    return f"{more} ? {name} + {wrapped(step, 12)} : {stop}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
