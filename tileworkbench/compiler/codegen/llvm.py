"""Program[CPU] -> LLVM IR text.

Every block loop of the program becomes one exported function with the signature of the runtime's
contract, `i32 (ptr args, i64 begin, i64 end, ptr flag, ptr scratch)`: it unpacks the arguments and
calls an internal function for each block, whose pointers are `noalias` because argument checks
have excluded overlap. Vector loops are written out as vector instructions here; nothing is left to
LLVM's vectoriser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.steps import runs_at_least_once, steps
from tileworkbench.compiler.analysis.streaming import streamed_buffers
from tileworkbench.compiler.codegen.atomics import AtomicWriter
from tileworkbench.compiler.codegen.emitter import Emitter, Value, memory_type, register_type
from tileworkbench.compiler.codegen.expressions import ZEROS, Expressions
from tileworkbench.compiler.codegen.isa import Isa
from tileworkbench.compiler.codegen.micro_gemm import MicroGemmSpec, emit_micro_gemm
from tileworkbench.compiler.codegen.pack import PackSpec, emit_pack
from tileworkbench.compiler.codegen.text import EmittedFunction, VectorType
from tileworkbench.compiler.diagnostics import CompileError, UnsupportedError
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, substitute
from tileworkbench.compiler.ir.types import DType

_INT64 = DType("int64")
_UNROLL_LIMIT = 64
_LINE = 64  # bytes of a cache line, and the largest vector
_LONG = 1 << 14  # statements, of one vector each: some 10 us
# The micro-kernel's name for the operands that a panel dtype stands for.
_PANEL_INPUT = {"float32": "float32", "float64": "float64", "int16": "uint8", "int8": "int8"}


@dataclass(frozen=True, slots=True)
class Launch:
    """One grid of the program: its entry function and the number of blocks, in the symbols."""

    entry: str
    blocks: Expr


@dataclass(frozen=True, slots=True)
class Module:
    """The generated text with what the runtime needs to call it."""

    text: str
    launches: tuple[Launch, ...]
    scratch_bytes: int
    assertions: tuple[tuple[str, int], ...]


def generate(program: Program, isa: Isa) -> Module:
    """LLVM IR for a program of stage CPU, using no instruction that `isa` lacks.

    Raises `UnsupportedError` with the statement's span for a dtype without native code.
    """
    return _ModuleWriter(program, isa).write()


class _ModuleWriter:
    def __init__(self, program: Program, isa: Isa) -> None:
        self.program = program
        self.isa = isa
        self.functions: dict[str, EmittedFunction] = {}
        self.kernels: list[EmittedFunction] = []
        self.assertions: list[tuple[str, int]] = []
        self.launches: list[Launch] = []
        self.ranges = Ranges(program)
        self.streamed = streamed_buffers(program)
        self.texts: list[str] = []

    def text_constant(self, text: str) -> str:
        """The name of a constant with the bytes of `text` and a final zero."""
        data = text.encode() + b"\0"
        escaped = "".join(f"\\{byte:02X}" for byte in data)
        name = f"@text_{len(self.texts)}"
        self.texts.append(f'{name} = private constant [{len(data)} x i8] c"{escaped}"')
        return name

    def write(self) -> Module:
        prelude: list[st.Stmt] = []
        body = self.program.body
        for stmt in body.stmts if isinstance(body, st.Seq) else (body,):
            if isinstance(stmt, st.For) and stmt.kind is st.LoopKind.BLOCKS:
                self.kernel(stmt, prelude)
            else:
                prelude.append(stmt)
        emitted = [*self.functions.values(), *self.kernels]
        declarations = sorted({line for function in emitted for line in function.declarations})
        zeros = f"{ZEROS} = private constant [512 x i8] zeroinitializer, align 64"
        parts = [zeros, "!0 = !{i32 1}", *self.texts, *declarations, ""]
        parts += [function.text for function in emitted]
        return Module(
            "\n".join(parts),
            tuple(self.launches),
            self.program.scratch_bytes,
            tuple(self.assertions),
        )

    def kernel(self, loop: st.For, prelude: list[st.Stmt]) -> None:
        entry = f"{self.program.name}_{len(self.launches)}"
        writer = _KernelWriter(self, entry, loop, prelude)
        self.kernels += [writer.block(), writer.entry()]
        self.launches.append(Launch(entry, loop.stop))


class _KernelWriter:
    """Writes one block function and its entry."""

    def __init__(
        self, module: _ModuleWriter, name: str, loop: st.For, prelude: list[st.Stmt]
    ) -> None:
        self.module, self.name, self.loop, self.prelude = module, name, loop, prelude
        self.program, self.isa = module.program, module.isa
        self.loops: list[tuple[str, str]] = []
        self.polled = False
        self.site = 0
        # Whether the stores being written may pass the caches by; None where it does not matter.
        self.streams: bool | None = None

    def formal(self) -> list[tuple[str, Buffer | Var, str]]:
        """(LLVM type, what it is, register name) of each argument, in slot order."""
        values = [param.value for param in self.program.params] + list(self.program.symbols)
        return [
            ("ptr" if isinstance(value, Buffer) else "i64", value, f"%p{index}")
            for index, value in enumerate(values)
        ]

    def block(self) -> EmittedFunction:
        parameters = [
            f"ptr noalias {name}" if kind == "ptr" else f"{kind} {name}"
            for kind, _, name in self.formal()
        ]
        parameters += ["i32 %block", "ptr %flag", "ptr noalias %scratch"]
        self.out = Emitter(f"{self.name}_block", ", ".join(parameters), self.isa)
        self.exprs = Expressions(self.out, self.module.functions)
        for _, value, name in self.formal():
            if isinstance(value, Buffer):
                self.out.pointers[value] = name
            else:
                self.out.bind(value, self.scalar(value, name))
        self.out.bind(self.loop.var, Value("%block", self.loop.var.dtype))
        try:
            for stmt in self.prelude:
                self.stmt(stmt)
            self.stmt(self.loop.body)
        except UnsupportedError as error:
            if error.span is None:
                error.span = self.program.span(self.site)
            raise
        return self.out.finish()

    def scalar(self, var: Var, slot: str) -> Value:
        """A scalar argument or symbol, from its 64-bit slot."""
        if var.dtype.kind == "handle":
            return Value(slot, var.dtype)
        if not var.dtype.is_float:
            return self.exprs.cast(Value(slot, _INT64), var.dtype)
        kind = memory_type(var.dtype)
        bits = {"i16": "i16", "float": "i32", "double": "i64"}[kind.element]
        word = slot if bits == "i64" else self.out.let(f"trunc i64 {slot} to {bits}")
        text = word if str(kind) == bits else self.out.let(f"bitcast {bits} {word} to {kind}")
        return self.exprs.from_memory(text, var.dtype, 1)

    def entry(self) -> EmittedFunction:
        """The exported loop over blocks."""
        lines = [
            f"define i32 @{self.name}(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch) {{"
        ]
        lines.append("entry:")
        actual = []
        for index, (kind, _, name) in enumerate(self.formal()):
            lines.append(f"  %s{index} = getelementptr i64, ptr %args, i64 {index}")
            lines.append(f"  {name} = load {kind}, ptr %s{index}, align 8")
            actual.append(f"{kind} {name}")
        arguments = ", ".join([*actual, "i32 %number", "ptr %flag", "ptr %scratch"])
        lines += [
            "  %empty = icmp sge i64 %begin, %end",
            "  br i1 %empty, label %done, label %loop",
            "loop:",
            "  %block = phi i64 [ %begin, %entry ], [ %next, %ran ]",
            "  %stop = load atomic i32, ptr %flag monotonic, align 4",
            "  %stopped = icmp ne i32 %stop, 0",
            "  br i1 %stopped, label %interrupted, label %run",
            "run:",
            "  %number = trunc i64 %block to i32",
            f"  %code = call i32 @{self.name}_block({arguments})",
            "  %failed = icmp ne i32 %code, 0",
            "  br i1 %failed, label %failure, label %ran",
            "ran:",
            "  %next = add i64 %block, 1",
            "  %more = icmp slt i64 %next, %end",
            "  br i1 %more, label %loop, label %done",
            "failure:",
            "  br label %done",
            "interrupted:",
            "  br label %done",
            "done:",
            "  %result = phi i32 [ 0, %entry ], [ 0, %ran ], [ %code, %failure ], "
            "[ 1, %interrupted ]",
            # Stores that passed the caches by are seen by other cores only after a fence.
            *(["  fence seq_cst"] if self.module.streamed else []),
            "  ret i32 %result",
            "}",
        ]
        return EmittedFunction(self.name, "\n".join(lines) + "\n", frozenset())

    # Statements

    def stmt(self, stmt: st.Stmt) -> None:
        self.site = stmt.site or self.site
        self.out.moment.clear()
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self.stmt(child)
            case st.Let(var, value):
                level = self.out.level(value)
                if self.out.lane_var is not None and level >= 0:
                    known = self.exprs.definitions
                    known[var] = substitute(value, known)
                depth = len(self.out.scopes) - 1
                self.out.bind(var, self.exprs.evaluate(value), depth if level < 0 else level)
            case st.Alloc():
                self.alloc(stmt)
            case st.Alias(buffer, source):
                self.out.pointers[buffer] = self.out.pointers[source]
            case st.Store():
                self.store(stmt)
            case st.Atomic():
                self.atomic(stmt)
            case st.For(kind=st.LoopKind.VECTORIZED):
                self.vector_loop(stmt)
            case st.For(kind=st.LoopKind.UNROLLED) if self.trip_count(stmt) is not None:
                self.unrolled(stmt)
            case st.For() if self.streams is None and self.has_streams(stmt):
                self.streaming_loop(stmt)
            case st.For():
                self.serial_loop(stmt)
            case st.While(cond, body):
                self.while_loop(cond, body)
            case st.If(cond, then, orelse):
                self.branch(cond, then, orelse)
            case st.Break():
                self.leave(self.loops[-1][0])
            case st.Continue():
                self.leave(self.loops[-1][1])
            case st.DeviceAssert(cond, message):
                self.device_assert(cond, message, stmt.site)
            case st.Assume():
                pass
            case st.Print():
                self.print_line(stmt)
            case tile.Pack():
                self.pack(stmt)
            case tile.MicroGemm():
                self.micro_gemm(stmt)
            case _:
                raise TypeError(f"no code for {type(stmt).__name__}")

    def alloc(self, stmt: st.Alloc) -> None:
        buffer = stmt.buffer
        if stmt.offset is not None:
            place = self.out.scratch(stmt.offset)
        else:
            count = 1
            for extent in buffer.shape:
                count *= const_int(extent) or 1
            place = self.out.alloca(str(memory_type(buffer.dtype)), count)
        self.out.pointers[buffer] = place
        if stmt.init is not None:
            self.write(place, self.exprs.evaluate(stmt.init), buffer.dtype)

    def write(self, address: str, value: Value, dtype: DType) -> None:
        kind = memory_type(dtype, value.lanes)
        stored = self.exprs.to_memory(value)
        self.out.do(f"store {kind} {stored}, ptr {address}, align {dtype.bytes}")

    def store(self, stmt: st.Store) -> None:
        buffer = stmt.buffer
        index = stmt.indices[0] if stmt.indices else None
        value = self.exprs.evaluate(stmt.value)
        predicate = None if stmt.predicate is None else self.exprs.evaluate(stmt.predicate)
        if index is None:
            self.guarded(
                predicate, lambda: self.write(self.exprs.pointer(buffer, None), value, buffer.dtype)
            )
            return
        found = self.exprs.contiguous(index)
        lanes = self.exprs.evaluate(index).lanes if found is None else found[1]
        if self.out.lane_var is not None and lanes == 1:
            self.last_lane(stmt, value, predicate)
            return
        value = self.exprs.spread(value, lanes)
        masked = predicate is not None and predicate.lanes > 1
        if found is not None or lanes == 1:
            first = index if found is None else found[0]

            def write() -> None:
                address = self.exprs.pointer(buffer, first)
                if masked and predicate is not None:
                    self.masked_store(address, value, predicate, buffer.dtype)
                elif self.streams and self.is_streamed(buffer, first, lanes):
                    self.write_past_caches(address, value, buffer.dtype)
                else:
                    self.write(address, value, buffer.dtype)

            self.guarded(None if masked else predicate, write)
            return
        self.guarded(
            None if masked else predicate,
            lambda: self.scatter(buffer, index, value, predicate if masked else None),
        )

    def write_past_caches(self, address: str, value: Value, dtype: DType) -> None:
        kind = memory_type(dtype, value.lanes)
        stored, align = self.exprs.to_memory(value), value.lanes * dtype.bytes
        self.out.do(f"store {kind} {stored}, ptr {address}, align {align}, !nontemporal !0")

    def is_streamed(self, buffer: Buffer, first: Expr | None, lanes: int) -> bool:
        """Whether a store of `lanes` elements from index `first` on may pass the caches by: the
        output is large and the vector one that lies on its own boundary.
        """
        module = self.module
        whole_vector = lanes * buffer.dtype.bytes in (16, 32, 64)
        return (
            whole_vector
            and first is not None
            and buffer in module.streamed
            and module.ranges.divides(lanes, first)
        )

    def has_streams(self, loop: st.For) -> bool:
        return any(
            isinstance(found, st.Store) and found.buffer in self.module.streamed
            for found in statements(loop.body)
        )

    def streaming_loop(self, loop: st.For) -> None:
        """The loop twice: with stores that pass the caches by, which need aligned outputs, and
        without.
        """
        out, stored = (
            self.out,
            {found.buffer for found in statements(loop.body) if isinstance(found, st.Store)},
        )
        pointers = [out.pointers[buffer] for buffer in stored & self.module.streamed]
        low = [out.let(f"ptrtoint ptr {pointer} to i64") for pointer in sorted(pointers)]
        bits = low[0]
        for other in low[1:]:
            bits = out.let(f"or i64 {bits}, {other}")
        bits = out.let(f"and i64 {bits}, {_LINE - 1}")
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

    def last_lane(self, stmt: st.Store, value: Value, predicate: Value | None) -> None:
        """Every iteration of a vector loop writes one element: the last one stays."""
        if value.lanes > 1 or (predicate is not None and predicate.lanes > 1):
            raise CompileError(
                "a vector loop stores different values in one element",
                self.program.span(stmt.site),
            )
        address = self.exprs.pointer
        self.guarded(
            predicate,
            lambda: self.write(address(stmt.buffer, stmt.indices[0]), value, stmt.buffer.dtype),
        )

    def guarded(self, predicate: Value | None, write: Callable[[], None]) -> None:
        """Run `write` where a scalar predicate holds."""
        if predicate is None:
            write()
            return
        then, after = self.out.fresh_label("store"), self.out.fresh_label("after")
        self.out.branch(predicate.text, then, after)
        self.out.place(then)
        with self.out.scope():
            write()
        self.out.jump(after)
        self.out.place(after)

    def atomic(self, stmt: st.Atomic) -> None:
        """One indivisible access. Blocks run at once, and one worker runs a block: memory that a
        block has for itself needs no more than a load and a store.
        """
        index = stmt.indices[0]
        value = self.exprs.evaluate(stmt.value)
        predicate = None if stmt.predicate is None else self.exprs.evaluate(stmt.predicate)
        safe = None if stmt.safe is None else self.exprs.evaluate(stmt.safe)
        writer = AtomicWriter(self.exprs, stmt.kind, shared=stmt.buffer.scope == "global")
        before, found = self.out.block, ["", ""]

        def access() -> None:
            found[0] = writer.write(self.exprs.pointer(stmt.buffer, index), value).text
            found[1] = self.out.block

        self.guarded(predicate, access)
        if stmt.previous is None:
            return
        text = found[0]
        if predicate is not None:
            other = value.type.constant(0) if safe is None else safe.text
            chosen = f"[ {text}, %{found[1]} ], [ {other}, %{before} ]"
            text = self.out.let(f"phi {value.type} {chosen}")
        self.out.bind(stmt.previous, Value(text, value.dtype))

    def masked_store(self, address: str, value: Value, mask: Value, dtype: DType) -> None:
        kind, lanes = memory_type(dtype, value.lanes), VectorType("i1", value.lanes)
        stored = self.exprs.to_memory(value)
        callee = f"llvm.masked.store.{kind.mangled}.p0"
        self.out.declare("void", callee, kind, "ptr", "i32", lanes)
        arguments = f"{kind} {stored}, ptr {address}, i32 {dtype.bytes}, {lanes} {mask.text}"
        self.out.do(f"call void @{callee}({arguments})")

    def scatter(self, buffer: Buffer, index: Expr, value: Value, mask: Value | None) -> None:
        kind, lanes = memory_type(buffer.dtype, value.lanes), VectorType("i1", value.lanes)
        stored, addresses = self.exprs.to_memory(value), self.exprs.pointers(buffer, index)
        active = "splat (i1 true)" if mask is None else mask.text
        pointers = VectorType("ptr", value.lanes)
        callee = f"llvm.masked.scatter.{kind.mangled}.v{value.lanes}p0"
        self.out.declare("void", callee, kind, pointers, "i32", lanes)
        arguments = f"{pointers} {addresses}, i32 {buffer.dtype.bytes}, {lanes} {active}"
        self.out.do(f"call void @{callee}({kind} {stored}, {arguments})")

    # Control flow

    def trip_count(self, loop: st.For) -> range | None:
        """The values of a loop short enough to be written out, else None."""
        bounds = [const_int(bound) for bound in (loop.start, loop.stop, loop.step)]
        if None in bounds:
            return None
        values = range(*bounds)  # type: ignore[arg-type]
        size = len(values) * sum(1 for _ in statements(loop.body))
        exits = any(isinstance(found, st.Break | st.Continue) for found in statements(loop.body))
        return values if size <= _UNROLL_LIMIT and not exits else None

    def unrolled(self, loop: st.For) -> None:
        for number in self.trip_count(loop) or ():
            with self.out.scope():
                value = const(number, loop.var.dtype)
                self.out.bind(loop.var, self.exprs.evaluate(value))
                self.stmt(loop.body)

    def vector_loop(self, loop: st.For) -> None:
        lanes = const_int(loop.stop) or 1
        kind = register_type(loop.var.dtype, lanes)
        numbers = ", ".join(f"{kind.element} {lane}" for lane in range(lanes))
        with self.out.scope():
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
            more = self.continues(start.text, stop, step, number, str(kind))
            out.branch(more, header, after)
        out.place(header)
        counter, following = out.let_later(), out.let_later()
        out.do(f"{counter} = phi {kind} [ {start.text}, %{before} ], [ {following}, %{latch} ]")
        with out.scope(preheader):
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
        more = self.continues(following, stop, step, number, str(kind))
        out.branch(more, header, after)
        out.place(after)

    def continues(
        self, counter: str, stop: Value, step: Value, number: int | None, kind: str
    ) -> str:
        """Whether an iteration with this counter value is to run."""
        up = self.out.let(f"icmp slt {kind} {counter}, {stop.text}")
        if number is not None and number > 0:
            return up
        down = self.out.let(f"icmp sgt {kind} {counter}, {stop.text}")
        if number is not None:
            return down
        forward = self.out.let(f"icmp sgt {kind} {step.text}, 0")
        return self.out.let(f"select i1 {forward}, i1 {up}, i1 {down}")

    def must_poll(self, loop: st.For) -> bool:
        """Whether iterations look for an interrupt: in the outermost loop that takes long, and in
        those inside it whose iterations do; never in the innermost loops.
        """
        inner = any(
            isinstance(found, st.For | st.While | tile.MicroGemm | tile.Pack)
            and getattr(found, "kind", None) is not st.LoopKind.VECTORIZED
            for found in statements(loop.body)
        )
        return inner and steps(loop) >= _LONG and (not self.polled or steps(loop.body) >= _LONG)

    def poll(self) -> None:
        """Leave the block when the user has interrupted."""
        stop = self.out.let("load atomic i32, ptr %flag monotonic, align 4")
        self.exit_if(self.out.let(f"icmp ne i32 {stop}, 0"), 1)

    def exit_if(self, condition: str, code: int) -> None:
        leave, stay = self.out.fresh_label("leave"), self.out.fresh_label("stay")
        self.out.branch(condition, leave, stay)
        self.out.place(leave)
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

    def device_assert(self, cond: Expr, message: str, site: int) -> None:
        test = self.exprs.evaluate(cond)
        failed = self.out.let(f"xor i1 {test.text}, true")
        self.exit_if(failed, 2 + len(self.module.assertions))
        self.module.assertions.append((message, site))

    def print_line(self, stmt: st.Print) -> None:
        """Call printf, and flush: Python's own output and this one go to the same place."""
        pieces, arguments = [_printf_text(stmt.parts[0])], []
        for value, part in zip(stmt.values, stmt.parts[1:], strict=True):
            found = self.exprs.evaluate(value)
            is_float, unsigned = found.dtype.is_float, found.dtype.kind == "uint"
            wide = self.exprs.cast(found, DType("float64") if is_float else _INT64)
            arguments.append(f"{wide.type} {wide.text}")
            pieces.append(
                ("%g" if is_float else "%llu" if unsigned else "%lld") + _printf_text(part)
            )
        name = self.module.text_constant("".join(pieces) + "\n")
        self.out.declare_variadic("i32", "printf", "ptr")
        self.out.do(f"call i32 (ptr, ...) @printf({', '.join([f'ptr {name}', *arguments])})")
        self.out.call("i32", "fflush", ("ptr", "null"))

    # Micro-kernels

    def address(self, address: Address) -> str:
        return self.exprs.pointer(address.buffer, address.indices[0] if address.indices else None)

    def wide(self, expr: Expr) -> str:
        return self.exprs.cast(self.exprs.evaluate(expr), _INT64).text

    def shared_function(self, key: str, emit: Callable[[str], EmittedFunction]) -> str:
        """The name of a function that equal specifications share within the module."""
        if key not in self.module.functions:
            count = len(self.module.functions)
            self.module.functions[key] = emit(f"{key.split('(')[0].lower()}_{count}")
        return self.module.functions[key].name

    def pack(self, stmt: tile.Pack) -> None:
        along_rows = const_int(stmt.row_stride) == 1
        if not along_rows and const_int(stmt.col_stride) != 1:
            raise TypeError("a packed matrix has no unit stride")
        # A width of 1 is the packing routine's row-major form.
        rows = (const_int(stmt.valid_rows), const_int(stmt.valid_cols))
        whole = rows[0] is not None and rows[1] is not None
        spec = PackSpec(
            k=stmt.cols,
            extent=stmt.rows,
            width=0 if stmt.width == 1 else stmt.width,
            group=stmt.group,
            transposed=not along_rows,
            source_dtype=str(stmt.src.buffer.dtype),
            panel_dtype=str(stmt.dst.buffer.dtype),
            column_sums=stmt.operand == "b" and stmt.dst.buffer.dtype == "int8",
            ragged=not (whole and rows[0] >= stmt.rows and rows[1] >= stmt.cols),  # type: ignore[operator]
            isa=self.isa,
        )
        limits = "%k_valid, %extent_valid"
        name = self.shared_function(repr(spec), lambda name: emit_pack(spec, name, limits))
        stride = self.wide(stmt.col_stride if along_rows else stmt.row_stride)
        src, dst = self.address(stmt.src), self.address(stmt.dst)
        valid = f"i64 {self.wide(stmt.valid_cols)}, i64 {self.wide(stmt.valid_rows)}"
        self.out.do(f"call void @{name}(ptr {src}, i64 {stride}, ptr {dst}, {valid})")

    def micro_gemm(self, stmt: tile.MicroGemm) -> None:
        spec = MicroGemmSpec(
            m=stmt.m,
            n=stmt.n,
            k=stmt.k,
            in_dtype=_PANEL_INPUT[str(stmt.a.buffer.dtype)],
            acc_dtype=str(stmt.c.buffer.dtype),
            isa=self.isa,
            mr=stmt.mr,
            nr=stmt.nr,
            a_layout="columns" if stmt.columns else "rows",
        )
        name = self.shared_function(repr(spec), lambda name: emit_micro_gemm(spec, name))
        a, b, c = map(self.address, (stmt.a, stmt.b, stmt.c))
        accumulate = self.exprs.evaluate(stmt.clear)
        keep = self.out.let(f"xor i1 {accumulate.text}, true")
        lda, ldc = self.wide(stmt.lda), self.wide(stmt.ldc)
        operands = f"ptr {a}, i64 {lda}, ptr {b}, i64 0, ptr {c}, i64 {ldc}, i1 {keep}"
        self.out.do(f"call void @{name}({operands})")


def _printf_text(text: str) -> str:
    return text.replace("%", "%%")
