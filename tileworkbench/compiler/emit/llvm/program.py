"""Program[CPU] -> LLVM IR text.

Every block loop of the program becomes one exported function with the signature of the runtime's
contract, `i32 (ptr args, i64 begin, i64 end, ptr flag, ptr scratch)`: it unpacks the arguments and
calls an internal function for each block, whose pointers are `noalias` because argument checks
have excluded overlap. Vector loops are written out as vector instructions here; nothing is left to
LLVM's vectoriser.
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.effects import written
from tileworkbench.compiler.analysis.evaluate import ASSUMPTION, is_on_host
from tileworkbench.compiler.analysis.micro_tile import LINE_OF_LEAST, tile_dtype
from tileworkbench.compiler.analysis.names import ascii_name
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_sources import symbol_of
from tileworkbench.compiler.emit.llvm.control import SHOWN, ControlFlow
from tileworkbench.compiler.emit.llvm.emitter import Emitter, Value, memory_type, register_type
from tileworkbench.compiler.emit.llvm.expressions import ZEROS
from tileworkbench.compiler.emit.llvm.gemm_spec import MicroGemmSpec
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.micro_gemm import emit_micro_gemm
from tileworkbench.compiler.emit.llvm.module import ModuleState
from tileworkbench.compiler.emit.llvm.pack import PackSpec, emit_pack
from tileworkbench.compiler.emit.llvm.text import EmittedFunction
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, substitute
from tileworkbench.compiler.ir.types import DType

_INT64 = DType("int64")
# What the micro-kernel calls the operands of a panel dtype, where that is not its own name.
_PANEL_INPUT = {"int16": "uint8"}


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
    value_entry: str = ""  # gives what belongs to the assertion that failed


def generate(program: Program, isa: Isa) -> Module:
    """LLVM IR for a program of stage CPU, using no instruction that `isa` lacks.

    Raises `UnsupportedError` with the statement's span for a dtype without native code.
    """
    state = ModuleState.of(program, isa)
    state.told = filled_by_packing(program.body, isa)
    prelude: list[st.Stmt] = []
    kernels: list[EmittedFunction] = []
    launches: list[Launch] = []
    name = ascii_name(program.name)
    for stmt in st.items(program.body):
        if isinstance(stmt, st.For) and stmt.kind is st.LoopKind.BLOCKS:
            writer = _KernelWriter(state, f"{name}_{len(launches)}", stmt)
            kernels += [writer.block(prelude), writer.entry()]
            launches.append(Launch(writer.name, stmt.stop))
        else:
            prelude.append(stmt)
    emitted = [*state.functions.values(), *kernels]
    declarations = sorted({line for function in emitted for line in function.declarations})
    zeros = f"{ZEROS} = private constant [512 x i8] zeroinitializer, align 64"
    value_entry = f"{name}_value" if state.shows_value else ""
    if value_entry:
        state.texts += [f"{SHOWN} = internal global i64 0", _VALUE_ENTRY.format(name=value_entry)]
    parts = [zeros, "!0 = !{i32 1}", ALIGNED_STACK, *state.texts, *declarations, ""]
    parts += [function.text for function in emitted]
    text, scratch = "\n".join(parts), program.scratch_bytes
    return Module(text, tuple(launches), scratch, tuple(state.assertions), value_entry)


# What a failed assertion shows: `SHOWN` is written before a block returns its number.
_VALUE_ENTRY = f"""define i64 @{{name}}() {{{{
  %value = load i64, ptr {SHOWN}
  ret i64 %value
}}}}"""

ALIGNED_STACK = """!llvm.module.flags = !{!1}
!1 = !{i32 1, !"override-stack-alignment", i32 64}"""
"""Vectors that find no register wait on the stack, each in one line of the cache: a core takes much
longer for one that lies in two. An entry aligns its stack, what it calls relies on that.
"""


class _KernelWriter(ControlFlow):
    """Writes one block function and its entry."""

    def __init__(self, module: ModuleState, name: str, loop: st.For) -> None:
        self.name, self.loop, self.site = name, loop, 0
        self.file = next((span.file for span in module.program.sites if span is not None), "")
        values = [param.value for param in module.program.params] + list(module.program.symbols)
        # (LLVM type, what it is, register name) of each argument, in slot order.
        self.formal: list[tuple[str, Buffer | Var, str]] = [
            ("ptr" if isinstance(value, Buffer) else "i64", value, f"%p{index}")
            for index, value in enumerate(values)
        ]
        parameters = [
            f"ptr noalias {register}" if kind == "ptr" else f"{kind} {register}"
            for kind, _, register in self.formal
        ]
        parameters += ["i32 %block", "ptr %flag", "ptr noalias %scratch"]
        facts = (module.constant, module.packed)
        emitter = Emitter(f"{name}_block", ", ".join(parameters), module.isa, *facts)
        super().__init__(module, emitter)

    def block(self, prelude: list[st.Stmt]) -> EmittedFunction:
        """The function of one block: the host's scalars in `prelude`, then the loop's body."""
        for _, value, register in self.formal:
            if isinstance(value, Buffer):
                self.out.pointers[value] = register
            else:
                self.out.bind(value, self.scalar(value, register))
        self.out.bind(self.loop.var, Value("%block", self.loop.var.dtype))
        try:
            for stmt in prelude:
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
            f"define i32 @{self.name}(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch) "
            '"stackrealign" {'
        ]
        lines.append("entry:")
        actual = []
        for index, (kind, _, name) in enumerate(self.formal):
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
            # Other cores see stores that bypassed the caches only after a fence.
            *(["  fence seq_cst"] if self.module.streamed else []),
            "  ret i32 %result",
            "}",
        ]
        return EmittedFunction(self.name, "\n".join(lines) + "\n", frozenset())

    def stmt(self, stmt: st.Stmt) -> None:
        self.site = stmt.site or self.site
        span = self.program.span(self.site)
        self.out.line = span.line if span is not None and span.file == self.file else 0
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
                if source in self.out.bound_inside:
                    self.out.bound_inside.add(buffer)
            case st.Pointer(buffer, address):
                place = self.exprs.evaluate(address).text
                self.out.pointers[buffer] = self.out.let(f"inttoptr i64 {place} to ptr")
                self.out.bound_inside.add(buffer)
            case st.ExternCall():
                self.extern_call(stmt)
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
            case st.DeviceAssert(cond, message, value):
                self.device_assert(cond, message, stmt.site, value)
            case st.Assume(cond):
                if not is_on_host(cond, self.program):  # others are checked before the launch
                    self.device_assert(cond, ASSUMPTION, stmt.site)
            case st.Print():
                self.print_line(stmt)
            case st.Breakpoint():
                pass
            case tile.Pack():
                self.pack(stmt)
            case tile.MicroGemm():
                self.micro_gemm(stmt)
            case _:
                raise TypeError(f"no code for {type(stmt).__name__}")

    def print_line(self, stmt: st.Print) -> None:
        """Call printf, and flush: Python's own output and this one go to the same place."""
        pieces, arguments = [_printf_text(stmt.parts[0])], []
        for value, part in zip(stmt.values, stmt.parts[1:], strict=True):
            printed = self.exprs.evaluate(value)
            is_float, unsigned = printed.dtype.is_float, printed.dtype.kind == "uint"
            wide = self.exprs.cast(printed, DType("float64") if is_float else _INT64)
            arguments.append(f"{wide.type} {wide.text}")
            pieces.append(
                ("%g" if is_float else "%llu" if unsigned else "%lld") + _printf_text(part)
            )
        name = self.module.text_constant("".join(pieces) + "\n")
        self.out.declare_variadic("i32", "printf", "ptr")
        self.out.do(f"call i32 (ptr, ...) @printf({', '.join([f'ptr {name}', *arguments])})")
        self.out.call("i32", "fflush", ("ptr", "null"))

    def extern_call(self, stmt: st.ExternCall) -> None:
        """Call a C function under the name that stands for the program's own sources."""
        actual, formal = [], []
        for arg in stmt.args:
            value = self.exprs.evaluate(arg)
            kind, text = str(value.type), value.text
            if value.dtype.kind == "handle":
                kind, text = "ptr", self.out.let(f"inttoptr i64 {text} to ptr")
            elif value.dtype.bits < 32:  # as the C calling conventions extend them
                kind += " signext" if value.dtype.kind == "int" else " zeroext"
            formal.append(kind)
            actual.append(f"{kind} {text}")
        symbol = symbol_of(stmt.name, self.program.sources)
        result = "void" if stmt.var is None else str(register_type(stmt.var.dtype))
        self.out.declare(result, symbol, *formal)
        call = f"call {result} @{symbol}({', '.join(actual)})"
        if stmt.var is None:
            self.out.do(call)
        else:
            self.out.bind(stmt.var, Value(self.out.let(call), stmt.var.dtype))

    def address(self, address: Address) -> str:
        return self.exprs.pointer(address.buffer, address.indices[0] if address.indices else None)

    def wide(self, expr: Expr) -> str:
        return self.exprs.cast(self.exprs.evaluate(expr), _INT64).text

    def pack(self, stmt: tile.Pack) -> None:
        along_rows = const_int(stmt.row_stride) == 1
        if not along_rows and const_int(stmt.col_stride) != 1:
            raise TypeError("a packed matrix has no unit stride")
        if stmt.width == 1:  # the packing routine's row-major form
            if const_int(stmt.col_stride) != 1:
                raise TypeError("a compact copy of rows needs columns of unit stride")
            along_rows = False
        rows = (const_int(stmt.valid_rows), const_int(stmt.valid_cols))
        whole = rows[0] is not None and rows[1] is not None
        spec = PackSpec(
            k=stmt.cols,
            extent=stmt.rows,
            width=0 if stmt.width == 1 else stmt.width,
            group=stmt.group,
            transposed=not along_rows,
            source_dtype=str(tile_dtype(stmt.src.buffer.dtype)),
            panel_dtype=str(stmt.dst.buffer.dtype),
            column_sums=stmt.operand == "b" and stmt.dst.buffer.dtype == "int8",
            ragged=not (whole and rows[0] >= stmt.rows and rows[1] >= stmt.cols),  # type: ignore[operator]
            isa=self.isa,
            least=stmt.dst.buffer in self.module.told,
        )
        limits = "%k_valid, %extent_valid"
        name = self.module.shared_function(repr(spec), lambda name: emit_pack(spec, name, limits))
        stride = self.wide(stmt.col_stride if along_rows else stmt.row_stride)
        src, dst = self.address(stmt.src), self.address(stmt.dst)
        valid = f"i64 {self.wide(stmt.valid_cols)}, i64 {self.wide(stmt.valid_rows)}"
        self.out.do(f"call void @{name}(ptr {src}, i64 {stride}, ptr {dst}, {valid})")

    def micro_gemm(self, stmt: tile.MicroGemm) -> None:
        spec = _gemm_spec(stmt, self.isa, stmt.b.buffer in self.module.told)
        name = self.module.shared_function(repr(spec), lambda name: emit_micro_gemm(spec, name))
        a, b, c = map(self.address, (stmt.a, stmt.b, stmt.c))
        accumulate = self.exprs.evaluate(stmt.clear)
        keep = self.out.let(f"xor i1 {accumulate.text}, true")
        lda, ldc = self.wide(stmt.lda), self.wide(stmt.ldc)
        operands = f"ptr {a}, i64 {lda}, ptr {b}, i64 0, ptr {c}, i64 {ldc}, i1 {keep}"
        self.out.do(f"call void @{name}({operands})")


def _gemm_spec(stmt: tile.MicroGemm, isa: Isa, b_least: bool = False) -> MicroGemmSpec:
    panel = str(stmt.a.buffer.dtype)
    return MicroGemmSpec(
        m=stmt.m,
        n=stmt.n,
        k=stmt.k,
        in_dtype=_PANEL_INPUT.get(panel, panel),
        acc_dtype=str(stmt.c.buffer.dtype),
        isa=isa,
        mr=stmt.mr,
        nr=stmt.nr,
        a_layout="columns" if stmt.columns else "rows",
        b_least=b_least,
    )


def filled_by_packing(body: st.Stmt, isa: Isa) -> frozenset[Buffer]:
    """Panels that packing alone fills, and of which a product asks for the smallest exponent."""
    asking, packed, other = set[Buffer](), set[Buffer](), set[Buffer]()
    for stmt in statements(body):
        if isinstance(stmt, tile.Pack):
            packed.add(stmt.dst.buffer)
        else:
            other.update(written(stmt))
        if isinstance(stmt, tile.MicroGemm):
            spec, elements = _gemm_spec(stmt, isa), const_int(stmt.b.buffer.shape[0]) or 1
            # A program that was written by hand may have no room for it.
            if spec.asks and elements % (spec.b_elements + LINE_OF_LEAST) == 0:
                asking.add(stmt.b.buffer)
    return frozenset(asking & packed - other)


def _printf_text(text: str) -> str:
    return text.replace("%", "%%")
