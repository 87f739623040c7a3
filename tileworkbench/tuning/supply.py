"""Made-up input tensors for a program's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.rewrite import variables
from tileworkbench.compiler.ir.types import DType


class TensorSupplyType(Enum):
    """What made-up tensors hold.

    ``Auto`` is ``Randn`` for floats, and integers otherwise; ``Integer`` is integers from -2 to 2
    (unsigned: 0 to 4), ``Uniform`` from -1 to 1, ``Normal`` and ``Randn`` the standard normal
    distribution. Floats of 8 bits are always integers, which they hold exactly.
    """

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def input_parameters(program: Program) -> tuple[Param, ...]:
    """The parameters that a caller passes."""
    return tuple(param for param in program.params if not param.output)


def supply_tensors(
    program: Program,
    kind: TensorSupplyType = TensorSupplyType.Auto,
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
) -> list[Any]:
    """Contiguous torch tensors on the CPU for the parameters that a caller passes.

    `symbols` gives values to T.dynamic extents by name. The same `seed` gives the same tensors.
    Raises `ArgumentError` for a symbol without a value and for a scalar parameter.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for param in input_parameters(program):
        if not isinstance(param.value, Buffer):
            raise ArgumentError(
                f"no value can be made up for the scalar '{param.name}' of '{program.name}'",
                hint="pass the inputs yourself",
            )
        shape = _extents(program.name, param.value, symbols or {})
        tensors.append(supply_tensor(param.value.dtype, shape, kind, generator))
    return tensors


def _extents(name: str, buffer: Buffer, symbols: Mapping[str, int]) -> list[int]:
    missing = [v.name for e in buffer.shape for v in variables(e) if v.name not in symbols]
    if missing:
        raise ArgumentError(
            f"the extent '{missing[0]}' of '{buffer.name}' of '{name}' has no value",
            hint="pass the inputs yourself, or give the symbol a value",
        )
    return [int(evaluate(extent, dict(symbols))) for extent in buffer.shape]


def supply_tensor(dtype: DType, shape: list[int], kind: TensorSupplyType, generator: Any) -> Any:
    """One such tensor, from a `torch.Generator`."""
    import torch

    if dtype.bits == 4:  # two elements in a byte, along the last dimension
        storage = torch.uint8 if dtype.kind == "uint" else torch.int8
        low = 0 if dtype.kind == "uint" else -128
        packed = [*shape[:-1], shape[-1] // 2]
        return torch.randint(low, low + 256, packed, generator=generator).to(storage)
    if dtype.bits == 6:  # a byte each
        return torch.randint(0, 64, shape, generator=generator).to(torch.uint8)
    if dtype == "float8_e8m0fnu":  # powers of two about 1
        codes = torch.randint(124, 131, shape, generator=generator).to(torch.uint8)
        return codes.view(torch.float8_e8m0fnu)
    stored = getattr(torch, "float32" if dtype == "tfloat32" else str(dtype))
    if kind is TensorSupplyType.Zero:
        return torch.zeros(shape, dtype=stored)
    if kind is TensorSupplyType.One:
        return torch.ones(shape, dtype=torch.float32).to(stored)
    if kind is TensorSupplyType.Integer or not dtype.is_float or dtype.bits == 8:
        low, high = (0, 2) if dtype.is_bool else (0, 5) if dtype.kind == "uint" else (-2, 3)
        return torch.randint(low, high, shape, generator=generator).to(stored)
    if kind is TensorSupplyType.Uniform:
        return (torch.rand(shape, generator=generator) * 2 - 1).to(stored)
    return torch.randn(shape, generator=generator).to(stored)
