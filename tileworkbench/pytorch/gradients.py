"""Gradients of operators: given as a function or a kernel, or those of torch for a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tileworkbench.api import Jit
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.pytorch.signatures import OperatorForm, form_of
from tileworkbench.workbench.kernel import Kernel

Gradient = Callable[..., Any]
MakeOperator = Callable[[Kernel | Jit], Gradient]


def gradient_of(
    form: OperatorForm,
    backward: Gradient | Kernel | Jit | None,
    reference: Gradient | None,
    make_operator: MakeOperator,
) -> Gradient | None:
    """The function of arguments, results and gradients of results. A kernel becomes one by
    `make_operator`. Raises `ArgumentError` for what cannot be the gradient.
    """
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
    taken = form_of(backward)
    given = len(form.parameters) + 2 * form.results
    if len(taken.parameters) != given:
        raise ArgumentError(
            f"'{form.name}': its gradient '{taken.name}' takes {len(taken.parameters)} arguments, "
            f"and is called with {given}: the arguments, the results, their gradients",
            hint="give a function that picks what the kernel takes",
        )
    return make_operator(backward)


def _recomputed(form: OperatorForm, reference: Gradient) -> Gradient:
    """The gradient of torch for `reference`."""
    import torch

    def gradient(*values: Any) -> tuple[Any, ...]:
        args = values[: len(form.parameters)]
        is_differentiated = torch.is_grad_enabled()  # the gradient itself: create_graph=True
        with torch.enable_grad():
            again = [_fresh(each, is_differentiated) for each in args]
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
                create_graph=is_differentiated,
            )
        )
        tensors = [each for each in again if isinstance(each, torch.Tensor)]
        return tuple(next(gradients) if each.requires_grad else None for each in tensors)

    return gradient


def _fresh(value: Any, is_differentiated: bool) -> Any:
    """An argument that its reference's gradient is taken for. It has no history, unless that
    gradient has one.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if is_differentiated and value.requires_grad:
        return value.view_as(value)
    return value.detach().requires_grad_(value.is_floating_point())


def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep what a gradient is computed from."""
    import torch

    results = output if isinstance(output, tuple) else (output,)
    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    ctx.save_for_backward(*tensors, *results)
    ctx.plain = [None if isinstance(each, torch.Tensor) else each for each in inputs]


def backward_of(form: OperatorForm, gradient: Gradient) -> Callable[..., Any]:
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


def _placed(form: OperatorForm, tensors: Sequence[Any], others: Sequence[Any]) -> Iterator[Any]:
    """One value for each parameter: the next of `tensors`, or its own of `others`."""
    following = iter(tensors)
    for parameter, other in zip(form.parameters, others, strict=True):
        yield next(following) if parameter.is_tensor else other
