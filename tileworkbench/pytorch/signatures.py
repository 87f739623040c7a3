"""What an operator of torch takes and returns, from the signature of its kernel."""

from __future__ import annotations

from typing import Any

from tileworkbench.api import Jit
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.signature import Signature
from tileworkbench.workbench.kernel import Kernel

_PLAIN_TYPES: tuple[type, ...] = (bool, int, float, str)  # bool first: it is an int, too


@dataclass(frozen=True, slots=True)
class OperatorParameter:
    """One argument of the operator: its name and type in a schema, and whether it is written."""

    name: str
    type: str
    is_written: bool = False
    default: Any = None

    @property
    def is_tensor(self) -> bool:
        return self.type == "Tensor"

    def text(self, number: int) -> str:
        """Its declaration in a schema."""
        if self.is_tensor:
            return f"Tensor(a{number}!) {self.name}" if self.is_written else f"Tensor {self.name}"
        return f"{self.type} {self.name}" + ("" if self.default is None else f"={self.default!r}")


@dataclass(frozen=True, slots=True)
class OperatorForm:
    """What an operator takes and how many tensors it returns."""

    name: str
    parameters: tuple[OperatorParameter, ...]
    results: int

    @property
    def schema(self) -> str:
        taken = ", ".join(each.text(number) for number, each in enumerate(self.parameters))
        made = ", ".join(["Tensor"] * self.results)
        return f"({taken}) -> " + (made if self.results == 1 else f"({made})")

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.parameters if each.is_written)

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.parameters if each.is_tensor)


def form_of(kernel: Kernel | Jit) -> OperatorForm:
    if isinstance(kernel, Kernel):
        return _form_of_signature(kernel.compiled.signature)
    if not isinstance(kernel, Jit):
        raise ArgumentError(
            f"tw.torch_op takes a kernel or a function of tw.jit, not a '{type(kernel).__name__}'"
        )
    name = kernel.fn.__name__
    if not kernel.is_eager:
        raise ArgumentError(
            f"'{name}' returns a kernel and is none", hint=f"tw.torch_op({name}.compile(...))"
        )
    if kernel.kernel is None:
        raise ArgumentError(
            f"'{name}' is not compiled yet, so that nobody knows what it returns",
            hint=f"call it once, or {name}.compile(...), before tw.torch_op({name})",
        )
    traced = _form_of_signature(kernel.kernel.compiled.signature)
    known = {each.name: each for each in traced.parameters}
    parameters = tuple(
        known.get(each) or _constant(kernel, each) for each in kernel.signature.parameters
    )
    return OperatorForm(name, parameters, traced.results)


def _form_of_signature(signature: Signature) -> OperatorForm:
    parameters = []
    for spec in signature.binder.parameters:
        if spec.is_output:
            continue
        type_ = "Tensor" if spec.kind == "tensor" else _scalar_type(spec.dtype)
        if type_ != "Tensor" and spec.is_written:
            raise ArgumentError(
                f"'{signature.name}' writes to the address '{spec.name}', and torch has to know "
                "the tensor that an operator writes to",
                hint="declare the parameter as T.Tensor",
            )
        parameters.append(OperatorParameter(spec.name, type_, spec.is_written))
    return OperatorForm(signature.name, tuple(parameters), len(signature.returns))


def _scalar_type(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "float" if "float" in dtype else "SymInt"


def _constant(jit: Jit, name: str) -> OperatorParameter:
    """A compile-time argument of a function, by its default value or that of its last kernel."""
    default = jit.signature.parameters[name].default
    if type(default) not in _PLAIN_TYPES:
        raise ArgumentError(
            f"'{jit.fn.__name__}': '{name}' is a compile-time argument without a default value "
            "that is a number, a bool or a string, which is what operators of torch take",
            hint="give it such a default, or make the operator of a kernel: "
            f"tw.torch_op({jit.fn.__name__}.compile(...))",
        )
    return OperatorParameter(name, type(default).__name__, default=default)
