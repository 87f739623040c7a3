"""`tw.torch_op`: a kernel as an operator of torch, which its compiler and its autograd know.

A kernel that is called directly is no node of a graph: `torch.compile` has to leave its graph for
it, `torch.export` refuses it, and no gradient flows. `torch.library.custom_op` makes it a node. It
asks for a schema, for a function that makes results without contents, for a gradient and for a rule
under vmap; all of them follow from the kernel's signature here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tileworkbench.api import Jit
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.pytorch.fakes import fake
from tileworkbench.pytorch.gradients import Gradient, backward_of, gradient_of, keep
from tileworkbench.pytorch.signatures import OperatorForm, form_of
from tileworkbench.workbench.kernel import Kernel

if TYPE_CHECKING:
    from torch.library import CustomOpDef

NAMESPACE = "tileworkbench"
_QUALIFIED = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")


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
    form = form_of(kernel)
    return _registered(kernel, form, name, gradient_of(form, backward, reference, torch_op))


def _registered(
    kernel: Kernel | Jit, form: OperatorForm, name: str | None, gradient: Gradient | None
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
    op.register_fake(fake(kernel, run))
    op.register_vmap(_one_by_one(form, op))
    if gradient is not None:
        op.register_autograd(backward_of(form, gradient), setup_context=keep)
    return op


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


# vmap


def _one_by_one(form: OperatorForm, op: CustomOpDef) -> Callable[..., Any]:
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
