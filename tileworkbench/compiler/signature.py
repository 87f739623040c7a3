"""A program as a call sees it: the checks of its arguments, its symbols' values, its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.analysis.assumptions import check_assumptions, host_assumptions
from tileworkbench.compiler.analysis.effects import written_below
from tileworkbench.compiler.analysis.elementwise import is_elementwise
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import buffers_of, parameters, statements, variables
from tileworkbench.compiler.ir.stmt import Pointer, SourceKernel
from tileworkbench.compiler.runtime.arguments import ArgumentBinder, BoundArguments
from tileworkbench.compiler.runtime.arrays import poison
from tileworkbench.compiler.runtime.parameters import DerivedDim, DimSpec, ParameterSpec


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call of `program` takes and returns.

    `scalars` are the slots of scalar parameters by name, `returns` the places of the returned
    tensors among the outputs, `assumptions` what is checked of symbols and scalars, `masks` the
    bits that must be zero in the addresses of slots.
    """

    name: str
    binder: ArgumentBinder
    scalars: tuple[tuple[str, int], ...]
    returns: tuple[int, ...]
    assumptions: tuple[Expr, ...]
    masks: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls, program: Program, device: str, allow_alias: bool, alignment: Mapping[str, int]
    ) -> Signature:
        """The signature of a program whose tensors are on `device`; `alignment` is what their
        addresses are multiples of, in bytes by name, where that is more than an element's size."""
        params = program.params
        outputs = [slot for slot, param in enumerate(params) if param.output]
        return cls(
            program.name,
            _binder(program, device, allow_alias, alignment),
            tuple((p.name, slot) for slot, p in enumerate(params) if isinstance(p.value, Var)),
            tuple(outputs.index(slot) for slot in program.returns),
            host_assumptions(program),
            tuple((at, alignment.get(p.name, 1) - 1) for at, p in enumerate(params)),
        )

    def bind(self, args: tuple[Any, ...]) -> BoundArguments:
        """Check the arguments and make the slots of a launch. Raises `ArgumentError`."""
        bound = self.binder.bind(args)
        if self.assumptions:
            check_assumptions(self.name, self.assumptions, self.numbers(bound))
        return bound

    def poisoned(self) -> Signature:
        """The same, where a call finds its outputs full of NaN, or bytes 0xCD."""
        fields = (getattr(self, name) for name in self.__dataclass_fields__)
        return _Poisoned(*fields)

    def fits(self, bound: BoundArguments, numbers: dict[str, int]) -> bool:
        """Whether every assumption is true of a call that another signature has bound."""
        aligned = not any(bound.slots[slot] & mask for slot, mask in self.masks)
        return aligned and all(evaluate(cond, numbers) for cond in self.assumptions)

    def numbers(self, bound: BoundArguments) -> dict[str, int]:
        """Scalar arguments (their bits) and symbols by name."""
        numbers = dict(zip(self.binder.symbols, bound.symbols, strict=True))
        return {**numbers, **{name: bound.slots[slot] for name, slot in self.scalars}}

    def results(self, bound: BoundArguments) -> Any:
        """What the call returns: None, one array, or a list."""
        results = [bound.outputs[place] for place in self.returns]
        return results if len(results) > 1 else results[0] if results else None


class _Poisoned(Signature):
    """A signature for checks."""

    __slots__ = ()

    def bind(self, args: tuple[Any, ...]) -> BoundArguments:
        bound = Signature.bind(self, args)
        made = (spec for spec in self.binder.parameters if spec.is_output)
        for spec, array in zip(made, bound.outputs, strict=True):
            poison(array, spec.dtype)
        return bound


def _binder(
    program: Program, device: str, allow_alias: bool, alignment: Mapping[str, int]
) -> ArgumentBinder:
    written: set[Buffer | Var] = {*written_below(program.body)}
    for stmt in statements(program.body):
        if isinstance(stmt, Pointer) and stmt.buffer in written:
            written.update(variables(stmt.address))
    used = set(buffers_of(program.body))
    if any(isinstance(stmt, SourceKernel) for stmt in statements(program.body)):
        used = set(parameters(program))
        written |= used  # what the source does to them is its own affair
    specs = [
        replace(
            _parameter(param.value, param.output, written),
            is_used=param.value in used,
            alignment=alignment.get(param.name, 1),
        )
        for param in program.params
    ]
    return ArgumentBinder(
        program.name,
        specs,
        {symbol.name: symbol.dtype for symbol in program.symbols},
        allow_alias=allow_alias,
        elementwise_alias_ok=is_elementwise(program),
        device=device,
    )


def _parameter(value: Buffer | Var, output: bool, written: set[Buffer | Var]) -> ParameterSpec:
    if isinstance(value, Var):
        return ParameterSpec(value.name, "scalar", str(value.dtype), is_written=value in written)
    return ParameterSpec(
        value.name,
        "tensor",
        str(value.dtype),
        tuple(_computed_dim(extent) if output else _dim(extent) for extent in value.shape),
        tuple(_dim(stride) for stride in value.strides) or None,
        is_output=output,
        is_written=output or value in written,
    )


def _computed_dim(extent: Expr) -> DimSpec:
    """An extent that is computed, not solved for a symbol."""
    number = const_int(extent)
    return DerivedDim(formula=extent) if number is None else DimSpec(number)


def _dim(extent: Expr) -> DimSpec:
    """An extent or stride, from which a symbol follows where it is linear in one."""
    linear = _linear_dim(extent)
    return _computed_dim(extent) if linear is None else replace(linear, dtype=extent.dtype)


def _linear_dim(extent: Expr) -> DimSpec | None:
    match extent:
        case Const(value=number):
            return DimSpec(int(number))
        case Var(name):
            return DimSpec(0, name)
        case ir.Binary("mul", inner, Const(value=number)) | ir.Binary(
            "mul", Const(value=number), inner
        ):
            scale, offset = int(number), 0
        case ir.Binary("add", inner, Const(value=number)):
            scale, offset = 1, int(number)
        case ir.Binary("sub", inner, Const(value=number)):
            scale, offset = 1, -int(number)
        case _:
            return None
    linear = _linear_dim(inner)
    if linear is None:
        return None
    return DimSpec(linear.constant * scale + offset, linear.symbol, linear.coefficient * scale)
