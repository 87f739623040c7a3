"""`tilelang.engine.param.KernelParam`: what scripts make random inputs from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.frontend.dtypes import TileDType
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Param
from tileworkbench.tuning.supply import TensorSupplyType, supply_tensor


class KernelParam:
    """A parameter of a kernel: its `dtype`, its `shape` (integers, and values for extents that each
    call brings; [] for a scalar) and its `name`.
    """

    def __init__(self, dtype: Any, shape: Sequence[Any], name: str = "") -> None:
        self.dtype, self.shape, self.name = TileDType(dtype), list(shape), name

    @classmethod
    def of(cls, param: Param) -> KernelParam:
        """That of a program's parameter."""
        value = param.value
        shape = TensorValue(value).shape if isinstance(value, Buffer) else ()
        return cls(value.dtype, shape, param.name)

    def is_scalar(self) -> bool:
        """Whether it is a number, not a tensor."""
        return not self.shape

    def is_unsigned(self) -> bool:
        """Whether its elements are unsigned integers."""
        return self.dtype.kind == "uint"

    def is_float8(self) -> bool:
        """Whether its elements are floats of 8 bits."""
        return self.dtype.startswith("float8")

    def is_float4(self) -> bool:
        """Whether its elements are floats of 4 bits."""
        return self.dtype.startswith("float4")

    def is_boolean(self) -> bool:
        """Whether its elements are of type bool."""
        return self.dtype.is_bool

    def torch_dtype(self) -> Any:
        """The torch dtype that stores it."""
        return self.dtype.as_torch()

    def __repr__(self) -> str:
        return f"KernelParam({self.name!r}, dtype={self.dtype!s}, shape={self.shape})"


def get_tensor_supply(
    supply_type: TensorSupplyType = TensorSupplyType.Integer,
) -> Callable[[KernelParam], Any]:
    """A function that makes up a tensor for a parameter; see `TensorSupplyType`.

    It raises `ArgumentError` for a scalar and for a shape with symbols.
    """
    import torch

    generator = torch.Generator().manual_seed(0)

    def supply(param: KernelParam) -> Any:
        if param.is_scalar() or not all(isinstance(extent, int) for extent in param.shape):
            raise ArgumentError(
                f"no tensor can be made up for {param!r}",
                hint="its shape must consist of integers; pass the inputs yourself",
            )
        return supply_tensor(param.dtype, param.shape, supply_type, generator)

    return supply
