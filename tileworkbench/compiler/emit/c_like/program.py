"""The text of a program in the SIMT stage, in any dialect.

It is meant to be read: one function per launch, the user's line above what it became, and only the
helpers that are called, without headers or templates of its own.
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.dataflow import effects_of
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.dialect import Dialect, Function
from tileworkbench.compiler.emit.c_like.expressions import Expressions
from tileworkbench.compiler.emit.c_like.names import renamed
from tileworkbench.compiler.emit.c_like.statements import GRID_BARRIER, KernelWriter
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables
from tileworkbench.compiler.ir.simt import GridBarrier, GridDependency, TensorMap
from tileworkbench.compiler.ir.stmt import Alloc, Assume, Kernel, Let, Seq, SourceKernel, Stmt

Argument = Buffer | Var | TensorMap


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel function and how it is launched.

    `grid` are its extents x, y, z in the program's scalars and symbols; `shared_bytes` the dynamic
    shared memory of a block; `cooperative` says that its blocks wait for each other; `cluster` how
    many of them along x, y, z share their memory, if any do; `early` that it may begin before the
    launch in front of it has ended, for which it waits itself. Arguments are the module's
    `arguments`, in order.
    """

    entry: str
    grid: tuple[Expr, ...]
    threads: int
    shared_bytes: int
    cooperative: bool = False
    cluster: tuple[int, ...] = ()
    early: bool = False


@dataclass(frozen=True, slots=True)
class Module:
    """The text of a translation unit, its launches in order, and what each is given: the tensor and
    scalar parameters, the symbols, tensor maps, then workspaces that live as long as one call.
    Where a launch is cooperative the last of these is its barrier, which must be zero.
    """

    text: str
    launches: tuple[Launch, ...]
    arguments: tuple[Argument, ...]
    workspaces: tuple[Buffer, ...]

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """The tensor maps among the arguments."""
        return tuple(value for value in self.arguments if isinstance(value, TensorMap))


def generate(program: Program, dialect: Dialect, source: tuple[str, ...] = ()) -> Module:
    """The module of `program`; `source` are the lines of the file that its sites point into.

    Raises `UnsupportedError` for what the dialect cannot express.
    """
    allocated = [s.buffer for s in statements(program.body) if isinstance(s, Alloc)]
    workspaces = tuple(buffer for buffer in allocated if buffer.scope == "global")
    if _is_cooperative(program.body):
        workspaces = (*workspaces, GRID_BARRIER)
    params = (param.value for param in program.params)
    maps = (stmt for stmt in statements(program.body) if isinstance(stmt, TensorMap))
    arguments = (*params, *program.symbols, *maps, *workspaces)
    texts: list[str] = []
    launches: list[Launch] = []
    names = renamed(program, dialect)
    expressions = Expressions(Ranges(program), dialect, names)
    for kernel in _kernels(program.body, {}):
        if isinstance(kernel, SourceKernel):
            try:
                text = dialect.source_kernel(kernel)
            except UnsupportedError as error:
                error.span = program.span(kernel.site)
                raise
            texts += [text] if text not in texts else []
            launches.append(Launch(kernel.entry, kernel.grid, kernel.threads[0], 0))
            continue
        own = "main_kernel" if program.name == "main" else program.name  # C++ keeps that name
        entry = names.get(own, own)
        entry = entry if not launches else f"{entry}_{len(launches)}"
        shared = program.scratch_bytes if _uses_shared(kernel) else None
        writer = KernelWriter(expressions, program, source, kernel)
        texts.append(dialect.kernel(_function(entry, kernel, arguments, shared, writer)))
        cooperative = _is_cooperative(kernel.body)
        launched = (entry, kernel.grid or (), kernel.threads[0])
        early = _waits_for_launch(kernel.body)
        launches.append(Launch(*launched, shared or 0, cooperative, kernel.cluster, early))
    head = f"// {program.name} for {dialect.platform}\n{dialect.prelude}".rstrip()
    tables = [
        dialect.table(c_type, name, entries)
        for (c_type, entries), name in expressions.tables.items()
    ]
    helpers = (helper.text for helper in expressions.helpers.values())
    parts = [head, *helpers, *tables, *program.sources, *texts]
    return Module("\n\n".join(parts) + "\n", tuple(launches), arguments, workspaces)


def _kernels(body: Stmt, lets: dict[Var, Expr]) -> list[Kernel | SourceKernel]:
    """The launches of a program, in order; scalars computed on the host are put in their place."""
    if isinstance(body, Kernel | SourceKernel):
        return [substitute(body, lets) if lets else body]
    if isinstance(body, Seq):
        kernels: list[Kernel | SourceKernel] = []
        known = dict(lets)
        for stmt in body.stmts:
            if isinstance(stmt, Let):
                known[stmt.var] = substitute(stmt.value, known)
            elif not isinstance(stmt, Alloc | Assume):  # the host has checked what it assumes
                kernels += _kernels(stmt, known)
        return kernels
    raise UnsupportedError(
        f"'{type(body).__name__}' around a launch is not possible on a GPU",
        hint="launch the kernel from Python for each case",
    )


def _is_cooperative(body: Stmt) -> bool:
    """Whether blocks wait for each other."""
    return any(isinstance(stmt, GridBarrier) for stmt in statements(body))


def _waits_for_launch(body: Stmt) -> bool:
    """Whether threads wait themselves for the launch before."""
    return GridDependency(True) in statements(body)


def _uses_shared(kernel: Kernel) -> bool:
    return any(
        isinstance(stmt, Alloc) and stmt.buffer.scope in ("shared", "shared.barrier")
        for stmt in statements(kernel.body)
    )


def _function(
    entry: str,
    kernel: Kernel,
    arguments: tuple[Argument, ...],
    shared: int | None,
    writer: KernelWriter,
) -> Function:
    effects, dialect = effects_of(kernel.body), writer.dialect
    params = []
    for value in arguments:
        if value is GRID_BARRIER:
            params.append(("unsigned*", GRID_BARRIER.name))
        elif isinstance(value, TensorMap):
            params.append((dialect.tensor_map(writer), writer.named(value.buffer)))
        elif isinstance(value, Buffer):
            read, written = value in effects.reads, value in effects.writes
            const, c_type = "" if written else "const ", writer.memory_type(value.dtype)
            # What other threads may have written is read again behind a barrier.
            pointer = "*" if read and written else f"* {dialect.restrict}"
            params.append((f"{const}{c_type}{pointer}", writer.named(value)))
        else:
            params.append((writer.c_type(value.dtype), writer.named(value)))
    thread = kernel.thread_vars[0]
    writer.define(1, thread.dtype, writer.named(thread), dialect.thread_index)
    writer.in_blocks_of(kernel.threads[0], thread)
    used = set(variables(kernel.body))
    for var, index in zip(kernel.vars, dialect.block_indices, strict=False):
        if var in used:
            writer.define(1, var.dtype, writer.named(var), index)
    writer.write(kernel.body, 1)
    return Function(entry, tuple(params), kernel.threads[0], shared, writer.lines)
