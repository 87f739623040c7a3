"""CUDA C++ text of a program in the SIMT stage.

The text is meant to be read: one function per launch, the user's line above what it became, and
only the device functions that are called, without headers or templates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tileworkbench.compiler.analysis.dataflow import effects_of
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.expressions import CudaExpressions
from tileworkbench.compiler.emit.c_like.names import renamed
from tileworkbench.compiler.emit.c_like.statements import GRID_BARRIER, KernelWriter
from tileworkbench.compiler.emit.cuda.helpers import resolve
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables
from tileworkbench.compiler.ir.simt import GridBarrier
from tileworkbench.compiler.ir.stmt import Alloc, Assume, Kernel, Let, Seq, SourceKernel, Stmt
from tileworkbench.compiler.target import Target

_AXES = "xyz"


@dataclass(frozen=True, slots=True)
class CudaLaunch:
    """One `__global__` function and how it is launched.

    `grid` are its extents x, y, z in the program's scalars and symbols; `shared_bytes` the dynamic
    shared memory of a block; `cooperative` says that its blocks wait for each other. Arguments are
    the module's `arguments`, in order.
    """

    entry: str
    grid: tuple[Expr, ...]
    threads: int
    shared_bytes: int
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class CudaModule:
    """The text of a translation unit, its launches in order, and what each is given: the tensor and
    scalar parameters, the symbols, then workspaces that live as long as one call. Where a launch is
    cooperative the last of these is its barrier, which must be zero.
    """

    text: str
    launches: tuple[CudaLaunch, ...]
    arguments: tuple[Buffer | Var, ...]
    workspaces: tuple[Buffer, ...]


def generate_cuda(program: Program, target: Target, source: tuple[str, ...] = ()) -> CudaModule:
    """The module of `program`; `source` are the lines of the file that its sites point into.

    Raises `UnsupportedError` for what the target or this back end cannot express.
    """
    match = re.match(r"sm_(\d+)", target.arch)
    if target.kind != "cuda" or match is None:
        raise UnsupportedError(f"target '{target}' is not a CUDA target")
    arch = int(match.group(1))
    allocated = [s.buffer for s in statements(program.body) if isinstance(s, Alloc)]
    workspaces = tuple(buffer for buffer in allocated if buffer.scope == "global")
    if _is_cooperative(program.body):
        workspaces = (*workspaces, GRID_BARRIER)
    arguments = (*(param.value for param in program.params), *program.symbols, *workspaces)
    ranges = Ranges(program)
    texts: list[str] = []
    launches: list[CudaLaunch] = []
    names = renamed(program)
    expressions = CudaExpressions(ranges, arch, names)
    for kernel in _kernels(program.body, {}):
        if isinstance(kernel, SourceKernel):
            texts += [text for text in [_source_text(kernel)] if text not in texts]
            launches.append(CudaLaunch(kernel.entry, kernel.grid, _row(kernel, program), 0))
            continue
        own = "main_kernel" if program.name == "main" else program.name  # C++ keeps that name
        entry = names.get(own, own)
        entry = entry if not launches else f"{entry}_{len(launches)}"
        shared = program.scratch_bytes if _uses_shared(kernel) else 0
        writer = KernelWriter(expressions, program, source)
        texts.append(_function(entry, kernel, arguments, writer))
        cooperative = _is_cooperative(kernel.body)
        threads = kernel.threads[0]
        launches.append(CudaLaunch(entry, kernel.grid or (), threads, shared, cooperative))
    head = f"// {program.name} for {target.arch}"
    tables = [
        f"__device__ __constant__ {c_type} {name}[16] = {{{entries}}};"
        for (c_type, entries), name in expressions.tables.items()
    ]
    parts = [head, *resolve(expressions.helpers), *tables, *program.sources, *texts]
    return CudaModule("\n\n".join(parts) + "\n", tuple(launches), arguments, workspaces)


def _source_text(kernel: SourceKernel) -> str:
    """The user's text, with names as they are written."""
    if 'extern "C"' in kernel.source:
        return kernel.source
    return kernel.source.replace("__global__", 'extern "C" __global__')


def _row(kernel: SourceKernel, program: Program) -> int:
    """The threads of a block, which lie along x."""
    first, *others = kernel.threads
    if any(extent != 1 for extent in others):
        raise UnsupportedError(
            "blocks of CUDA source have threads along x only",
            program.span(kernel.site),
            hint="compute y and z from threadIdx.x",
        )
    return first


def _kernels(body: Stmt, lets: dict[Var, Expr]) -> list[Kernel | SourceKernel]:
    """The launches of a program, in order; scalars computed on the host are put in their place."""
    if isinstance(body, Kernel | SourceKernel):
        return [substitute(body, lets) if lets else body]
    if isinstance(body, Seq):
        found: list[Kernel | SourceKernel] = []
        known = dict(lets)
        for stmt in body.stmts:
            if isinstance(stmt, Let):
                known[stmt.var] = substitute(stmt.value, known)
            elif not isinstance(stmt, Alloc | Assume):  # the host has checked what it assumes
                found += _kernels(stmt, known)
        return found
    raise UnsupportedError(
        f"'{type(body).__name__}' around a launch is not possible on a GPU",
        hint="launch the kernel from Python for each case",
    )


def _is_cooperative(body: Stmt) -> bool:
    """Whether blocks wait for each other."""
    return any(isinstance(stmt, GridBarrier) for stmt in statements(body))


def _uses_shared(kernel: Kernel) -> bool:
    return any(
        isinstance(stmt, Alloc) and stmt.buffer.scope in ("shared", "shared.barrier")
        for stmt in statements(kernel.body)
    )


def _function(
    entry: str,
    kernel: Kernel,
    arguments: tuple[Buffer | Var, ...],
    writer: KernelWriter,
) -> str:
    effects = effects_of(kernel.body)
    params = []
    for value in arguments:
        if value is GRID_BARRIER:
            params.append(f"unsigned* {GRID_BARRIER.name}")
        elif isinstance(value, Buffer):
            read, written = value in effects.reads, value in effects.writes
            const = "" if written else "const "
            # What other threads may have written is read again behind a barrier.
            pointer = "*" if read and written else "* __restrict__"
            params.append(
                f"{const}{writer.memory_type(value.dtype)}{pointer} {writer.named(value)}"
            )
        else:
            params.append(f"{writer.expressions.c_type(value.dtype)} {writer.named(value)}")
    threads = kernel.threads[0]
    lines = [
        f'extern "C" __global__ void __launch_bounds__({threads})',
        f"{entry}({', '.join(params)})",
        "{",
    ]
    if _uses_shared(kernel):
        lines.append("  extern __shared__ __align__(1024) unsigned char shared_memory[];")
    lines.append(f"  const int {writer.named(kernel.thread_vars[0])} = threadIdx.x;")
    used = set(variables(kernel.body))
    for var, axis in zip(kernel.vars, _AXES, strict=False):
        if var not in used:
            continue
        lines.append(
            f"  const {writer.expressions.c_type(var.dtype)} {writer.named(var)} = blockIdx.{axis};"
        )
    writer.write(kernel.body, 1)
    return "\n".join([*lines, *writer.lines, "}"])
