"""Results without contents: what a graph is made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileworkbench.api import Jit
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.build import FOLD
from tileworkbench.compiler.ir.expr import Binary, Const, Expr, Var
from tileworkbench.compiler.runtime.arrays import array_maker
from tileworkbench.compiler.runtime.parameters import DerivedDim, DimSpec
from tileworkbench.compiler.signature import Signature
from tileworkbench.workbench.kernel import Kernel

_ARITHMETIC = ("add", "sub", "mul", "min", "max", "floordiv", "floormod")


def fake(kernel: Kernel | Jit, run: Callable[..., Any]) -> Callable[..., Any]:
    """The function that makes results without contents.

    A call with fake tensors makes some, checks included. Where sizes are symbols of torch, those of
    the results are computed with them: a kernel for every size stays one node for every size.
    """

    def make(*args: Any) -> Any:
        if not any(map(_is_symbolic, args)):
            return run(*args)
        if isinstance(kernel, Kernel):
            return _symbolic_results(kernel.compiled.signature, args)
        return run(*map(_of_fixed_size, args))  # a function has a kernel for each size

    return make


def _is_symbolic(value: Any) -> bool:
    import torch

    if isinstance(value, torch.Tensor):
        return any(isinstance(each, torch.SymInt) for each in (*value.shape, *value.stride()))
    return isinstance(value, torch.SymInt)


def _of_fixed_size(value: Any) -> Any:
    """The same with numbers for sizes, which torch then holds on to."""
    import torch

    if not isinstance(value, torch.Tensor):
        return int(value) if isinstance(value, torch.SymInt) else value
    sizes, strides = ([int(each) for each in form] for form in (value.shape, value.stride()))
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


def _symbolic_results(signature: Signature, args: Sequence[Any]) -> Any:
    """The results of a call whose sizes are symbols; comparisons of sizes become torch's guards."""
    binder = signature.binder
    passed = [slot for slot, spec in enumerate(binder.parameters) if not spec.is_output]
    values = dict(zip(passed, args, strict=True))
    numbers = {binder.parameters[slot].name: value for slot, value in values.items()}
    for source in binder.sources:
        value = values[source.position]
        if source.axis >= 0:
            value = (value.stride() if source.is_stride else value.shape)[source.axis]
        numbers[source.symbol] = (value - source.dim.constant) // source.dim.coefficient
    (device, *_) = {str(each.device) for each in args if hasattr(each, "device")}
    made = [
        array_maker("torch", tuple(_size(dim, numbers) for dim in spec.dims), spec.dtype, device)()
        for spec in binder.parameters
        if spec.is_output
    ]
    results = tuple(made[place] for place in signature.returns)
    return results if len(results) > 1 else results[0] if results else None


def _size(dim: DimSpec, numbers: Mapping[str, Any]) -> Any:
    """An extent of a result, a symbol of torch where it follows from some."""

    def value_of(value: Expr) -> Any:
        match value:
            case Const():
                return value.value
            case Var(name):
                return numbers[name]
            case Binary(op, a, b) if op in _ARITHMETIC:
                return FOLD[op](value_of(a), value_of(b))
        raise ArgumentError(
            f"the extent '{dim}' of a result cannot be computed from sizes that torch keeps open",
            hint="compile or export with fixed sizes (dynamic=False)",
        )

    if isinstance(dim, DerivedDim):
        return value_of(dim.formula)
    return dim.evaluate(numbers)
