"""Made-up inputs of a kernel, for `--check`, `--bench` and the commands of `%tile`."""

from __future__ import annotations

from math import prod
from typing import Any

from tileworkbench.bench.units import format_bytes
from tileworkbench.compiler.analysis.effects import owners, written_below
from tileworkbench.compiler.analysis.index_ranges import IndexRange, index_ranges
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import parameters, statements

SIMULATED_BYTES = 2**30
"""The most that tensors take which are made up for a view, in bytes."""


def simulated_inputs(program: Program) -> list[Any]:
    """Made-up inputs of a kernel that a view runs in the simulator, without being told to.

    Raises `ArgumentError` as `make_inputs`, and for tensors of more than `SIMULATED_BYTES`.
    """
    bytes_ = 0
    for param in program.params:
        if isinstance(param.value, Buffer):
            shape = [const_int(extent) or 0 for extent in param.value.shape]
            bytes_ += prod(shape) * param.value.dtype.bytes
    if bytes_ > SIMULATED_BYTES:
        raise ArgumentError(
            f"the tensors of '{program.name}' take {format_bytes(bytes_)}, and no more than "
            f"{format_bytes(SIMULATED_BYTES)} are made up for the simulator",
            hint="pass smaller ones yourself: 'with_inputs(...)' of the kernel",
        )
    return make_inputs(program)


def make_inputs(program: Program) -> list[Any]:
    """Random torch tensors for the parameters a caller passes: normal floats, small integers, and
    in integer tensors that indices are made of, values that keep them inside.

    Raises `ArgumentError` for extents that are symbols and for scalar parameters.
    """
    import torch

    if unknown := unknown_input(program):
        raise ArgumentError(
            f"no inputs can be made up for '{unknown}' of '{program.name}'",
            hint="pass the arguments yourself: --args a,b in a cell, .check(reference, a, b) "
            "and .bench(a, b) of a kernel",
        )
    generator = torch.Generator().manual_seed(0)
    ranges = index_ranges(program)
    inputs = []
    for param in program.params:
        if isinstance(param.value, Buffer) and not param.output:
            shape = [const_int(extent) for extent in param.value.shape]
            values = ranges.get(param.name)
            inputs.append(_tensor(torch, param.value.dtype, shape, values, generator))
    return inputs


def unknown_input(program: Program) -> str:
    """The first parameter that no input can be made up for: a scalar, or a tensor whose extents
    are symbols; empty where there is none.
    """
    for param in program.params:
        buffer = param.value
        if param.output:
            continue
        if not isinstance(buffer, Buffer) or buffer.strides:
            return param.name
        if None in [const_int(extent) for extent in buffer.shape]:
            return param.name
    return ""


def _tensor(
    torch: Any, dtype: Any, shape: list[Any], values: IndexRange | None, generator: Any
) -> Any:
    kind = getattr(torch, str(dtype))
    if dtype.is_float:
        return torch.randn(shape, generator=generator).to(kind)
    if values is None:
        low, high = (0, 2) if dtype.is_bool else (0, 8) if dtype.kind == "uint" else (-8, 8)
    else:
        low, high = values.low, values.high + 1
        if values.distinct and prod(shape) <= high - low:
            order = torch.randperm(high - low, generator=generator)[: prod(shape)]
            return (order + low).reshape(shape).to(kind)
    return torch.randint(low, high, shape, generator=generator).to(kind)


def written_parameters(program: Program) -> list[Buffer]:
    """The tensor parameters that the kernel writes, in order."""
    written = written_below(program.body)
    return [buffer for buffer in parameters(program) if buffer in written]


def read_parameters(program: Program) -> set[Buffer]:
    """The tensor parameters whose elements the kernel reads, through views too."""
    owner = owners(program.body)
    read = {
        owner.get(use.buffer, use.buffer)
        for stmt in statements(program.body)
        for use in accesses(stmt)
        if use.reads
    }
    return read & set(parameters(program))
