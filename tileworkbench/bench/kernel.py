"""Measuring one compiled kernel, with the operations and bytes of the call beside the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tileworkbench.bench.cold import ColdCalls
from tileworkbench.bench.timing import (
    BenchInterrupted,
    BenchResult,
    interrupted_after,
    measure,
    refuse_simulated,
)
from tileworkbench.compiler.analysis.cost import count_work
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.device.gpu import Device
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.compiler.target import parse_target

_KERNEL, _OTHER = "kernel", "other"
_LONG_MS = 250


class BenchableKernel(Protocol):
    """A compiled kernel: its program, and a call."""

    @property
    def name(self) -> str: ...
    @property
    def program(self) -> Program: ...
    @property
    def target(self) -> str: ...
    @property
    def compiled(self) -> Any: ...
    def __call__(self, *args: Any) -> Any: ...


def bench_kernel(
    kernel: BenchableKernel,
    args: Sequence[Any],
    rounds: int = 0,
    against: Callable[..., Any] | None = None,
    cold: bool = False,
) -> BenchResult:
    """Time `kernel(*args)`: the median of `rounds` calls (0: as many as a fifth of a second takes).

    A call includes its argument checks and the allocation of outputs. `against(*args)` is timed in
    the same rounds; one that takes more than a quarter of a second is timed once. With `cold` each
    call of both begins with cold caches (`bench.cold`). On a GPU a call ends when the device is
    done. Ctrl-C raises `BenchInterrupted` with the result of the rounds completed so far. Raises
    `UnsupportedError` for a target that is simulated, or where caches cannot be made cold.
    """
    refuse_simulated(kernel.name, kernel.target)
    call_of, chill = _ways(kernel, args, cold)
    calls = {_KERNEL: _finished(kernel, call_of(kernel))}
    once_ms = 0.0
    if against is not None:
        compared = call_of(against)
        if chill is not None:
            chill()
        start = time.perf_counter()
        compared()
        once_ms = 1e3 * (time.perf_counter() - start)
        if once_ms <= _LONG_MS:
            calls[_OTHER] = compared
    try:
        results = measure(calls, rounds, before_each=chill)
    except BenchInterrupted as error:
        own = replace(error.results[_KERNEL], name=kernel.name, cold=cold)
        raise interrupted_after({kernel.name: _with_counts(own, kernel.program, args)}) from None
    own = replace(results[_KERNEL], name=kernel.name, cold=cold)
    result = _with_counts(own, kernel.program, args)
    if against is None:
        return result
    named = str(getattr(against, "__name__", type(against).__name__))
    other = results.get(_OTHER)
    return replace(result, against=(named, once_ms if other is None else other.median))


_Call = Callable[[], object]


def _ways(
    kernel: BenchableKernel, args: Sequence[Any], cold: bool
) -> tuple[Callable[[Callable[..., Any]], _Call], _Call | None]:
    """What makes a call on `args` of a function, and what makes the next call a cold one."""
    if not cold:
        return lambda fn: lambda: fn(*args), None
    if parse_target(kernel.target).kind != "cpu":
        return lambda fn: lambda: fn(*args), _device(kernel).flush
    calls = ColdCalls(args)
    return calls.of, calls.chill


def _finished(kernel: BenchableKernel, call: _Call) -> _Call:
    """`call`, and on a GPU the wait until it is done."""
    if parse_target(kernel.target).kind == "cpu":
        return call
    wait = _device(kernel).wait

    def call_and_wait() -> None:
        call()
        wait()

    return call_and_wait


def _device(kernel: BenchableKernel) -> Device:
    device: Device = kernel.compiled.device
    return device


def _with_counts(result: BenchResult, program: Program, args: Sequence[Any]) -> BenchResult:
    """`result` with the operations and bytes of a call of `program` with `args`."""
    program = specialize(program, args)
    work = count_work(program)
    return replace(
        result,
        flops=work.flops.value,
        bytes_=work.bytes_.value,
        dtype=host_peak(arithmetic_dtype(program)),
    )


def specialize(program: Program, args: Sequence[Any]) -> Program:
    """`program` with its symbols and scalar parameters replaced by their values in `args`.

    `args` are the arguments of a call that has run: one for each parameter that is no output.
    """
    given = [param for param in program.params if not param.output]
    values: dict[Var, Expr] = {}
    for param, arg in zip(given, args, strict=True):
        if isinstance(param.value, Buffer):
            for extent, number in zip(param.value.shape, arg.shape, strict=True):
                values |= _solve(extent, int(number))
        else:
            values[param.value] = const(arg, param.value.dtype)
    if not values:
        return program
    params = tuple(_specialize_parameter(param, values) for param in program.params)
    symbols = tuple(symbol for symbol in program.symbols if symbol not in values)
    body = substitute(program.body, values)
    return replace(program, params=params, symbols=symbols, body=body)


def _solve(extent: Expr, number: int) -> dict[Var, Expr]:
    """The value of the one symbol in which `extent`, equal to `number`, is linear."""
    used = variables(extent)
    if len(used) != 1:
        return {}
    symbol = used[0]
    at_zero, at_one = (int(evaluate(extent, {symbol.name: value})) for value in (0, 1))
    return {symbol: const((number - at_zero) // (at_one - at_zero), symbol.dtype)}


def _specialize_parameter(param: Param, values: dict[Var, Expr]) -> Param:
    if isinstance(param.value, Var):
        return param
    return replace(param, value=substitute(param.value, values))


def arithmetic_dtype(program: Program) -> str:
    """The element type whose peak bounds a program: that of the operands of its largest T.gemm.

    Without one it is the type of its largest floating-point tensor, or of the first tensor.
    """
    products = [stmt for stmt in statements(program.body) if isinstance(stmt, Gemm)]
    if products:
        return str(max(products, key=lambda stmt: _elements(stmt.a.extents)).a.buffer.dtype)
    tensors = [param.value for param in program.params if isinstance(param.value, Buffer)]
    floats = [buffer for buffer in tensors if str(buffer.dtype).startswith(("float", "bfloat"))]
    if floats:
        return str(max(floats, key=lambda buffer: _elements(buffer.shape)).dtype)
    return str(tensors[0].dtype) if tensors else ""


def host_peak(dtype: str) -> str:
    """The name of a CPU's peak of arithmetic on `dtype`: it computes tfloat32 as float32."""
    return "float32" if dtype == "tfloat32" else dtype


def _elements(extents: Sequence[Expr]) -> float:
    """Elements of a tile or tensor; infinite where an extent is not a number."""
    return math.prod(math.inf if (n := const_int(extent)) is None else n for extent in extents)
