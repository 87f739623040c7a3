"""The native half of a launch (`dispatch_ir`), linked into this process, as ctypes functions."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.dispatch_ir import (
    PORTABLE_SYMBOLS,
    POSIX_SYMBOLS,
    dispatch_ir,
)
from tileworkbench.compiler.device.host.llvm import compile_object, load_object, native_target
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.runtime.forks import fresh_lock

_lock = fresh_lock()


@dataclass(frozen=True, slots=True)
class Pool:
    """Functions of the native worker pool; `thread` is the address of the thread's main
    function."""

    init: Callable[[int, int], None]
    close: Callable[[int], None]
    run: Callable[[int, int], int]
    thread: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The functions of `dispatch_ir`. Each releases Python's lock while it runs; addresses are
    plain integers.

    Those that need POSIX signals and threads are None on other systems.
    """

    run_serial: Callable[[int], int]
    reset: Callable[[int], None]
    work: Callable[[int, int], None]
    interrupt_flag: int
    never_flag: int
    run_openmp: Callable[[int, int], int] | None
    run_sequence: Callable[[int, int, int], int] | None
    runners: tuple[int, int]  # addresses of what runs a record with OpenMP, and with a pool
    guard_enter: Callable[[], None] | None
    guard_leave: Callable[[], None] | None
    pool: Pool | None


def dispatch() -> Dispatch:
    """The process's dispatch functions, compiled on first use."""
    with _lock:
        return _load()


def is_posix() -> bool:
    """Whether this system has sigaction and POSIX threads in its C library."""
    return os.name == "posix"


@functools.cache
def _load() -> Dispatch:
    posix = is_posix()
    text = dispatch_ir(processor.architecture(), posix)
    symbols = (*PORTABLE_SYMBOLS, *POSIX_SYMBOLS) if posix else PORTABLE_SYMBOLS
    # It is not worth optimising, and compiling it is part of the first kernel's latency.
    code = compile_object(text, native_target("generic"), (), codegen_level=0)
    # Permanent: pool threads and a late signal may be inside until the process ends.
    library = load_object(code, symbols, permanent=True)
    address = {name: symbol.address for name, symbol in library.items()}
    integer, pointer = ctypes.c_int, ctypes.c_void_p

    def function(name: str, result: type | None, *arguments: type) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, *arguments)(address[name])

    pool = run_openmp = run_sequence = guard_enter = guard_leave = None
    runners = (0, 0)
    if posix:
        run_openmp = function("tw_run_openmp", integer, pointer, pointer)
        run_sequence = function("tw_run_sequence", ctypes.c_int64, pointer, pointer, pointer)
        runners = (address["tw_run_openmp"], address["tw_run_pool"])
        guard_enter = function("tw_guard_enter", None)
        guard_leave = function("tw_guard_leave", None)
        pool = Pool(
            init=function("tw_pool_init", None, pointer, ctypes.c_int64),
            close=function("tw_pool_close", None, pointer),
            run=function("tw_run_pool", integer, pointer, pointer),
            thread=address["tw_pool_thread"],
        )
    return Dispatch(
        run_serial=function("tw_run_serial", integer, pointer),
        reset=function("tw_reset", None, pointer),
        work=function("tw_work", None, pointer, ctypes.c_int64),
        interrupt_flag=address["tw_interrupt_flag"],
        never_flag=address["tw_never_flag"],
        run_openmp=run_openmp,
        run_sequence=run_sequence,
        runners=runners,
        guard_enter=guard_enter,
        guard_leave=guard_leave,
        pool=pool,
    )
