"""Tiles that hold something conspicuous before a kernel writes them: for checks on a processor.

The simulator's memory begins so. A processor's holds what earlier blocks and calls left, with which
a wrong kernel is right by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileworkbench.compiler.analysis.uninitialised import uninitialised_reads
from tileworkbench.compiler.compilation import Source
from tileworkbench.compiler.driver import compile_program
from tileworkbench.compiler.frontend.tensors import whole
from tileworkbench.compiler.ir.build import const
from tileworkbench.compiler.ir.expr import Buffer, Const, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Alloc, For, Kernel, LoopKind, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Fill
from tileworkbench.compiler.ir.types import DType

if TYPE_CHECKING:
    from tileworkbench.compiler.compilation import CompiledKernel
    from tileworkbench.workbench.kernel import Kernel as CompiledByUser


def compiled_with_poison(kernel: CompiledByUser) -> CompiledKernel:
    """`kernel` compiled so that what it certainly reads before it writes it is NaN, or bytes 0xCD;
    as it is where there is nothing of the kind, or where it does not run on a processor.
    """
    compiled = kernel.compiled
    program = poisoned(kernel.program)
    if program is kernel.program or compiled.target.kind != "cpu":
        return compiled
    record = compiled.record
    source = Source(record.source, record.source_file, record.first_line)
    return compile_program(program, record.target, source=source, options=compiled.options)


def poisoned(program: Program) -> Program:
    """`program` with its tiles and private arrays filled where they are made, those that hold
    nothing when they are first read.
    """
    fresh = {
        read.buffer
        for kernel in statements(program.body)
        if isinstance(kernel, Kernel)
        for read in uninitialised_reads(kernel)
    }
    if not fresh:
        return program
    names = iter(range(1 << 30))

    def fill(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Alloc) or stmt.buffer not in fresh:
            return stmt
        if stmt.buffer.scope != "local":
            made: Stmt = Fill(whole(stmt.buffer), _conspicuous(stmt.buffer.dtype), site=stmt.site)
        else:
            made = _each_element(stmt.buffer, [f"poison_{next(names)}" for _ in stmt.buffer.shape])
        return seq([stmt, made])

    return with_body(program, Rewriter(rewrite_stmt=fill)(program.body))


def _each_element(buffer: Buffer, names: list[str]) -> Stmt:
    """What each thread has for itself is filled by a loop of its own."""
    loops = [Var(name, extent.dtype) for name, extent in zip(names, buffer.shape, strict=True)]
    made: Stmt = Store(buffer, tuple(loops), _conspicuous(buffer.dtype))
    for var, extent in reversed(list(zip(loops, buffer.shape, strict=True))):
        zero, one = const(0, extent.dtype), const(1, extent.dtype)
        made = For(var, zero, extent, one, LoopKind.SERIAL, made)
    return made


def _conspicuous(dtype: DType) -> Const:
    if dtype.is_bool:
        return const(True, dtype)
    if dtype.is_float:
        return const(float("nan"), dtype)
    return const(int.from_bytes(b"\xcd" * max(dtype.bits // 8, 1), "little"), dtype)
