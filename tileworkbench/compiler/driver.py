"""Program to callable: targets by name, compiled kernels by program.

`compile_program` takes what the front end made and has `cpu` or `gpu` compile it: the target's
passes (verified, a snapshot after each), code, and what runs it. The result is plain data and a
callable, which `tileworkbench.workbench.kernel.Kernel` wraps for users.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.compilation import (
    Compilation,
    CompiledKernel,
    Options,
    Source,
)
from tileworkbench.compiler.device.table import compile_for
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.lowering import check_uses, stopped_lowering
from tileworkbench.compiler.lowering import lower_program as lower_program
from tileworkbench.compiler.record import CompileRecord, Timing
from tileworkbench.compiler.runtime.collection import uncollected
from tileworkbench.compiler.runtime.forks import fresh_lock, not_while_forking
from tileworkbench.compiler.target import Target, parse_target

_RECURSION_LIMIT = 10_000
_MEMORY_CACHE_SIZE = 256
_RECORD = "_record_so_far"


def resolve_target(text: str) -> Target:
    """The target of that spelling, a CPU one with this machine's level and vector width.

    Raises `TileValueError` for an unknown spelling and `UnsupportedError` for a level that this
    machine does not have.
    """
    target = parse_target("cpu" if text == "auto" else text)
    if target.kind != "cpu":
        return target
    from tileworkbench.compiler.device.host.kernel import isa_of
    from tileworkbench.compiler.device.host.llvm import native_target

    isa = isa_of(native_target(target.arch))
    return replace(
        target,
        arch=isa.level,
        vector_bits=isa.vector_bits,
        dot_int8=isa.dot_int8,
        dot_bfloat16=isa.dot_bfloat16,
    )


_memory: OrderedDict[tuple[Any, ...], CompiledKernel] = OrderedDict()
_memory_lock = fresh_lock()


def clear_memory_cache() -> None:
    """Forget every kernel compiled in this process."""
    with _memory_lock:
        _memory.clear()


@not_while_forking()
def compile_program(
    program: Program,
    target: str = "auto",
    *,
    source: Source | None = None,
    options: Options | None = None,
    trace_us: float = 0.0,
) -> CompiledKernel:
    """Compile a TILE program for `target` and link it into this process.

    An equal program from equal source compiled before is returned as it is, with
    `record.cached == "memory"`. Raises `CompileError` kinds, `TileValueError` for an unknown
    target and `DeviceUnavailableError` for one that nothing here can run. `record_of` gives what
    was done before a pass failed.
    """
    source, options = source or Source(), options or Options()
    resolved = resolve_target(target)
    check_uses(program, resolved)  # equal programs may differ in them
    key = (program, resolved, source.text, source.first_line, source.file, options)
    with _memory_lock:
        known = _memory.get(key)
        if known is not None:
            _memory.move_to_end(key)
            return replace(known, record=replace(known.record, cached="memory"))
    timings = [Timing("trace", trace_us)] if trace_us else []
    compilation = Compilation(program, resolved, source, options, timings=timings)
    try:
        with _deep_recursion(), uncollected(), _recorded(compilation):
            made = compile_for(compilation)
    except RecursionError:
        raise UnsupportedError(
            f"an expression of '{program.name}' is nested too deeply to be compiled",
            hint="give its parts names",
        ) from None
    with _memory_lock:
        _memory[key] = made
        while len(_memory) > _MEMORY_CACHE_SIZE:
            _memory.popitem(last=False)
    return made


@contextmanager
def _recorded(compilation: Compilation) -> Iterator[None]:
    """Give an error that a pass has raised the record of the compilation so far."""
    try:
        yield
    except Exception as error:
        stopped = stopped_lowering(error)
        if stopped is not None:
            record = compilation.record(stopped.snapshots, "", "", (), stop=stopped.stop)
            keep_record(error, record)
        raise


def keep_record(error: BaseException, record: CompileRecord | None) -> None:
    """`record_of` finds from now on what was done until `error`."""
    setattr(error, _RECORD, record)


def record_of(error: BaseException) -> CompileRecord | None:
    """The record of the compilation that a pass ended with `error`; None for other errors."""
    record = getattr(error, _RECORD, None)
    return record if isinstance(record, CompileRecord) else None


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Room for expressions of a thousand terms; their trees are walked recursively."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
