"""Kernels of the library as operators whose gradients are kernels of the library, too."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench import kernels


def library(name: str) -> tuple[Any, list[Any], Callable[..., Any], int]:
    """(operator whose gradients are kernels, arguments, the same in torch, results compared)."""
    made = lambda name, *shape, **how: tw.compile(getattr(kernels, name)(*shape, **how))  # noqa: E731
    if name == "matmul":
        of_a = tw.torch_op(made("matmul", 40, 24, 56, trans_B=True))
        of_b = tw.torch_op(made("matmul", 24, 56, 40, trans_A=True))
        gradients = lambda a, b, c, dc: (of_a(dc, b), of_b(a, dc))  # noqa: E731
        op = tw.torch_op(made("matmul", 40, 56, 24), backward=gradients)
        return op, [torch.randn(40, 24), torch.randn(24, 56)], torch.matmul, 1
    if name == "flash_attention":
        shape = (2, 2, 40, 40, 16)
        backward = tw.torch_op(made("flash_attention_backward", *shape, causal=True))
        gradients = lambda q, k, v, o, s, do, ds: backward(q, k, v, o, do, s)  # noqa: E731
        op = tw.torch_op(made(name, *shape, causal=True), backward=gradients)

        def attention(q: Any, k: Any, v: Any) -> Any:
            heads = (each.transpose(1, 2) for each in (q, k, v))
            made = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            return made.transpose(1, 2)

        return op, [torch.randn(2, 40, 2, 16) for _ in range(3)], attention, 2
    backward = tw.torch_op(made(f"{name}_backward", 30, 48))
    count = 2 if name == "rmsnorm" else 3
    gradients = lambda *values: backward(*values[:2], values[-1])  # noqa: E731
    op = tw.torch_op(made(name, 30, 48), backward=gradients)
    args = [torch.randn(30, 48), torch.randn(48), torch.randn(48)][:count]
    if name == "rmsnorm":
        return op, args, lambda x, w: torch.nn.functional.rms_norm(x, (48,), w, 1e-6), 1
    return op, args, lambda x, w, b: torch.nn.functional.layer_norm(x, (48,), w, b), 1


SLOW = ("matmul", "flash_attention", "layernorm")


@pytest.mark.parametrize(
    "name", ["rmsnorm", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)]
)
def test_gradients_by_kernels_of_the_library(name: str) -> None:
    op, args, plain, results = library(name)
    leaves = [each.requires_grad_() for each in args]
    torch.library.opcheck(op, tuple(leaves))
    model = torch.compile(lambda *a: op(*a), backend="tileworkbench", fullgraph=True)
    expected = plain(*leaves)
    weight = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * weight).sum(), leaves)
    for call in (op, model):
        made = call(*leaves)
        made = made[0] if results > 1 else made
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
        found = torch.autograd.grad((made * weight).sum(), leaves)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
