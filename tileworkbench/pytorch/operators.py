"""`tw.torch_op`: a kernel as an operator of torch, which its compiler and its autograd know.

A kernel that is called directly is no node of a graph: `torch.compile` has to leave its graph for
it, `torch.export` refuses it, and no gradient flows. `torch.library.custom_op` makes it a node. It
asks for a schema, for a function that makes results without contents, for a gradient and for a rule
under vmap; all of them follow from the kernel's signature here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileworkbench.api import Jit
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.build import FOLD
from tileworkbench.compiler.ir.expr import Binary, Const, Expr, Var
from tileworkbench.compiler.runtime.arrays import array_maker
from tileworkbench.compiler.runtime.parameters import DerivedDim, DimSpec
from tileworkbench.compiler.signature import Signature
from tileworkbench.workbench.kernel import Kernel

if TYPE_CHECKING:
    from torch.library import CustomOpDef

Gradient = Callable[..., Any]

NAMESPACE = "tileworkbench"
_ARITHMETIC = ("add", "sub", "mul", "min", "max", "floordiv", "floormod")
_QUALIFIED = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
_PLAIN_TYPES: tuple[type, ...] = (bool, int, float, str)  # bool first: it is an int, too


@dataclass(frozen=True, slots=True)
class _Parameter:
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
class _Form:
    """What an operator takes and how many tensors it returns."""

    name: str
    parameters: tuple[_Parameter, ...]
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


def torch_op(
    kernel: Kernel | Jit,
    *,
    name: str | None = None,
    backward: Gradient | Kernel | Jit | None = None,
    reference: Gradient | None = None,
) -> CustomOpDef:
    """An operator of torch that runs `kernel`: `op = tw.torch_op(kernel)`, then `op(a, b)`.

    It takes what the kernel takes and returns what it returns, and is a node of the graphs of
    `torch.compile`, `torch.export` and `make_fx`. Under `torch.vmap` the kernel runs once for each
    member of the batch. `kernel` is a compiled kernel, or an eager function of `tw.jit` that was
    compiled or called at least once (then its results are known); a function compiles what it needs
    for each set of shapes, as in a direct call.

    `name` is "namespace::name", by default "tileworkbench::" and the kernel's name, with a number
    behind it where that name is taken. An exported program holds it, so give one to operators that
    it shall find again. An operator of the same given name is replaced.

    Gradients: `backward` is called with the operator's arguments, its results, and the gradients of
    its results, contiguous, in this order. It returns one gradient per tensor argument, None where
    there is none. It is a function of torch operations and operators, or a kernel with these
    parameters. With `reference` instead, a function of torch operations of the same arguments,
    the gradients are those of torch for `reference`, which is computed again in the backward pass.
    With neither, a backward pass through the operator raises torch's `RuntimeError`.

    Raises `ArgumentError` for a kernel or a name that cannot be an operator, and for a gradient of
    a kernel that writes to its arguments.
    """
    form = _form_of(kernel)
    return _registered(kernel, form, name, _gradient(form, backward, reference))


def _registered(
    kernel: Kernel | Jit, form: _Form, name: str | None, gradient: Gradient | None
) -> CustomOpDef:
    import torch

    def run(*args: Any) -> Any:
        with torch.no_grad():  # autograd sees the operator, not the kernel
            return _as_results(kernel(*args))

    op = torch.library.custom_op(
        _qualified(form.name, name),
        run,
        mutates_args=form.written,
        schema=form.schema,
        tags=(torch.Tag.needs_exact_strides,),  # kernels take contiguous tensors
    )
    op.register_fake(_fake(kernel, run))
    op.register_vmap(_one_by_one(form, op))
    if gradient is not None:
        op.register_autograd(_backward(form, gradient), setup_context=_keep)
    return op


# What an operator takes


def _form_of(kernel: Kernel | Jit) -> _Form:
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
    return _Form(name, parameters, traced.results)


def _form_of_signature(signature: Signature) -> _Form:
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
        parameters.append(_Parameter(spec.name, type_, spec.is_written))
    return _Form(signature.name, tuple(parameters), len(signature.returns))


def _scalar_type(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "float" if "float" in dtype else "SymInt"


def _constant(jit: Jit, name: str) -> _Parameter:
    """A compile-time argument of a function, by its default value or that of its last kernel."""
    default = jit.signature.parameters[name].default
    if type(default) not in _PLAIN_TYPES:
        raise ArgumentError(
            f"'{jit.fn.__name__}': '{name}' is a compile-time argument without a default value "
            "that is a number, a bool or a string, which is what operators of torch take",
            hint="give it such a default, or make the operator of a kernel: "
            f"tw.torch_op({jit.fn.__name__}.compile(...))",
        )
    return _Parameter(name, type(default).__name__, default=default)


_taken: set[str] = set()


def _qualified(kernel: str, name: str | None) -> str:
    if name is not None:
        if not _QUALIFIED.fullmatch(name):
            raise ArgumentError(
                f"'{name}' is no name of an operator", hint=f"as in 'mine::{kernel}'"
            )
        return name
    for number in itertools.count(1):
        free = f"{NAMESPACE}::{kernel}" + (f"_{number}" if number > 1 else "")
        if free not in _taken:
            _taken.add(free)
            return free
    raise AssertionError("there is always a next number")


def _as_results(value: Any) -> Any:
    """Several results as torch takes them."""
    return tuple(value) if isinstance(value, list) else value


# Results without contents


def _fake(kernel: Kernel | Jit, run: Callable[..., Any]) -> Callable[..., Any]:
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


# Gradients


def _gradient(
    form: _Form, backward: Gradient | Kernel | Jit | None, reference: Gradient | None
) -> Gradient | None:
    """The function of arguments, results and gradients of results."""
    if backward is None and reference is None:
        return None
    if backward is not None and reference is not None:
        raise ArgumentError(
            f"'{form.name}': 'backward' and 'reference' both say what the gradient is",
            hint="give one of them",
        )
    if form.written:
        raise ArgumentError(
            f"'{form.name}' writes to '{form.written[0]}', and only results have gradients",
            hint="let the kernel make its results: out_idx=[...], or T.empty",
        )
    if reference is not None:
        return _recomputed(form, reference)
    if not isinstance(backward, Kernel | Jit):
        return backward
    op: Gradient = torch_op(backward)
    taken = _form_of(backward)
    given = len(form.parameters) + 2 * form.results
    if len(taken.parameters) != given:
        raise ArgumentError(
            f"'{form.name}': its gradient '{taken.name}' takes {len(taken.parameters)} arguments, "
            f"and is called with {given}: the arguments, the results, their gradients",
            hint="give a function that picks what the kernel takes",
        )
    return op


def _recomputed(form: _Form, reference: Gradient) -> Gradient:
    """The gradient of torch for `reference`."""
    import torch

    def gradient(*values: Any) -> tuple[Any, ...]:
        args = values[: len(form.parameters)]
        with torch.enable_grad():
            again = [
                each.detach().requires_grad_(each.is_floating_point())
                if isinstance(each, torch.Tensor)
                else each
                for each in args
            ]
            made = reference(*again)
            results = tuple(made) if isinstance(made, tuple | list) else (made,)
        if len(results) != form.results:
            raise ArgumentError(
                f"'{form.name}' returns {form.results} tensors, and its reference {len(results)}"
            )
        leaves = [each for each in again if isinstance(each, torch.Tensor) and each.requires_grad]
        given = zip(results, values[-form.results :], strict=True)
        pairs = [(result, each) for result, each in given if result.requires_grad]
        gradients = iter(
            torch.autograd.grad(
                [result for result, _ in pairs],
                leaves,
                [each.to(result.dtype) for result, each in pairs],
                allow_unused=True,
            )
        )
        tensors = [each for each in again if isinstance(each, torch.Tensor)]
        return tuple(next(gradients) if each.requires_grad else None for each in tensors)

    return gradient


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep what a gradient is computed from."""
    import torch

    results = output if isinstance(output, tuple) else (output,)
    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    ctx.save_for_backward(*tensors, *results)
    ctx.plain = [None if isinstance(each, torch.Tensor) else each for each in inputs]


def _backward(form: _Form, gradient: Gradient) -> Callable[..., Any]:
    """What autograd calls with the gradients of the results."""

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        count = len(form.tensors)
        tensors, results = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        inputs = _placed(form, tensors, ctx.plain)
        value = gradient(*inputs, *results, *(each.contiguous() for each in gradients))
        made = tuple(value) if isinstance(value, tuple | list) else (value,)
        if len(made) != count:
            raise ArgumentError(
                f"'{form.name}' has {count} tensor arguments ({', '.join(form.tensors)}), and its "
                f"gradient returns {len(made)} values",
                hint="one for each, None where there is none",
            )
        return tuple(_placed(form, made, [None] * len(form.parameters)))

    return backward


def _placed(form: _Form, tensors: Sequence[Any], others: Sequence[Any]) -> Iterator[Any]:
    """One value for each parameter: the next of `tensors`, or its own of `others`."""
    following = iter(tensors)
    for parameter, other in zip(form.parameters, others, strict=True):
        yield next(following) if parameter.is_tensor else other


# vmap


def _one_by_one(form: _Form, op: CustomOpDef) -> Callable[..., Any]:
    """The rule under `torch.vmap`: a call for each member of the batch."""
    import torch

    def batched(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        if form.written:
            raise ArgumentError(
                f"'{form.name}' writes to '{form.written[0]}', and vmap takes operators that "
                "return what they make",
                hint="let the kernel make its results: out_idx=[...], or T.empty",
            )
        if info.batch_size == 0:
            raise ArgumentError(f"'{form.name}' is called under vmap with an empty batch")
        calls = [
            op(
                *(
                    each if dim is None else each.select(dim, member).contiguous()
                    for each, dim in zip(args, in_dims, strict=True)
                )
            )
            for member in range(info.batch_size)
        ]
        if form.results == 1:
            return torch.stack(calls), 0
        columns = zip(*calls, strict=True)
        return tuple(torch.stack(column) for column in columns), (0,) * form.results

    return batched
