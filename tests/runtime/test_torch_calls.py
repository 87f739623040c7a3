"""Kernels beside torch: gradients, fake tensors, transformations and tracing."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tileworkbench as tw
import tileworkbench.language as T

n = T.dynamic("n")


@T.prim_func
def plus(A: T.Tensor((n,), "float32"), B: T.Tensor((n, 2), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(n):
            B[i, 0] = A[i] + 1.0


@T.prim_func
def inc(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            A[i] = A[i] + 100.0


@T.prim_func
def inc_at(p: T.ptr, q: T.ptr):
    with T.Kernel(1, threads=32):
        A = T.make_tensor(p, (8,), "float32")
        B = T.make_tensor(q, (8,), "float32")
        for i in T.Parallel(8):
            A[i] = B[i] + 100.0


@tw.jit
def doubled(A):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(N):
            B[i] = A[i] * 2.0
    return B


def rendered(call: Callable[[], Any]) -> str:
    with pytest.raises(tw.ArgumentError) as caught:
        call()
    return caught.value.render()


@pytest.fixture(params=["cpu", "sim:sm_80"])
def target(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


# --- gradients


def test_leaves_that_require_grad_are_not_written(target: str) -> None:
    kernel, w = tw.compile(inc, target=target), torch.ones(8, requires_grad=True)
    hint = "hint: call it under torch.no_grad(), or pass A.detach()"
    assert rendered(lambda: kernel(w)) == (
        "ArgumentError: 'inc': 'A' is a leaf that requires grad, and the kernel writes to it\n"
        f"{hint}"
    )
    views = [w[:], w.view(8)]
    with torch.no_grad():
        views.append(w[:])
    for view in views:
        assert rendered(lambda: kernel(view)) == (  # noqa: B023
            "ArgumentError: 'inc': 'A' is a view of a leaf that requires grad, and the kernel "
            f"writes to it\n{hint}"
        )
    with pytest.raises(tw.ArgumentError, match="a leaf that requires grad"):
        kernel(torch.nn.Parameter(torch.ones(8)))
    assert w.tolist() == [1.0] * 8


@pytest.mark.parametrize("way", ["no_grad", "detach", "data"])
def test_what_autograd_has_kept_may_not_be_written_unnoticed(way: str) -> None:
    kernel, w = tw.compile(inc), torch.ones(8, requires_grad=True)
    v = w * w
    with torch.no_grad():
        kernel({"no_grad": w, "detach": w.detach(), "data": w.data}[way])
    if way == "data":  # torch's own way around its bookkeeping
        assert v.sum().backward() is None
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            v.sum().backward()


def test_versions_count_writes_only(target: str) -> None:
    x, source = torch.ones(8), torch.ones(8)
    kernel, pointed = tw.compile(inc, target=target), tw.compile(inc_at)
    for count in (1, 2):
        kernel(x)
        assert x._version == count
    pointed(x, source)
    assert (x._version, source._version) == (3, 0)
    tw.compile(plus, out_idx=[1], target=target)(source)
    assert source._version == 0
    leaf = torch.ones(8, requires_grad=True)
    assert rendered(lambda: pointed(leaf, source)).startswith(
        "ArgumentError: 'inc_at': 'p' is a leaf that requires grad"
    )


def test_inference_tensors_are_written_in_inference_mode_only() -> None:
    kernel = tw.compile(inc)
    with torch.inference_mode():
        x = torch.ones(8)
        kernel(x)
    assert x.tolist() == [101.0] * 8
    assert rendered(lambda: kernel(x)) == (
        "ArgumentError: 'inc': 'A' was made in inference mode, and the kernel writes to it outside "
        "of that\nhint: call it under torch.inference_mode(), or pass a clone"
    )


def test_a_detached_result_is_a_warning_once_per_kernel(target: str) -> None:
    kernel, w = tw.compile(plus, out_idx=[1], target=target), torch.ones(8, requires_grad=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with torch.no_grad():
            kernel(w)
        kernel(torch.ones(8))
        assert not found
        assert not kernel(w).requires_grad and not kernel(w).requires_grad
    (warning,) = found
    assert warning.filename == __file__
    assert str(warning.message) == (
        "'plus': 'A' requires grad, and autograd does not see into a kernel: its results are "
        "detached (call it under torch.no_grad(), or give it a gradient with "
        "tw.torch_op)"
    )


# --- tensors without contents


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_fake_tensors_give_shapes_and_dtypes(target: str, dtype: torch.dtype) -> None:
    kernel, mode = tw.compile(plus, out_idx=[1], target=target), FakeTensorMode()
    with mode:
        fake = torch.empty(24, dtype=dtype)
    if dtype is torch.float16:
        assert rendered(lambda: kernel(fake)) == (
            "ArgumentError: 'plus': 'A' has dtype 'float16', expected 'float32'\n"
            "hint: convert it with .to(torch.float32)"
        )
        return
    found = kernel(fake)
    assert type(found) is type(fake) and found.fake_mode is mode
    assert (found.shape, found.dtype) == ((24, 2), torch.float32)
    real = torch.ones(24)
    with mode:
        assert type(kernel(fake)) is type(kernel(real)) is type(fake)
    assert type(doubled(fake)) is type(fake)
    tw.compile(inc, target=target)(fake[:8])
    assert rendered(lambda: kernel.simulate(fake)) == (
        "ArgumentError: 'plus': 'A' is a fake tensor, which has no contents"
    )


def test_a_fake_tensor_of_a_device_that_is_not_there() -> None:
    with FakeTensorMode():
        fake = torch.empty(24, device="cuda")
    found = tw.compile(plus, out_idx=[1], target="cuda:sm_80")(fake)
    assert (type(found), found.shape, found.device) == (type(fake), (24, 2), fake.device)


def test_tensors_without_memory() -> None:
    kernel, freed = tw.compile(plus, out_idx=[1]), torch.ones(8)
    freed.untyped_storage().resize_(0)
    assert rendered(lambda: kernel(freed)) == (
        "ArgumentError: 'plus': 'A' has elements and no memory: its storage was freed, or it "
        "stands for other tensors"
    )
    assert kernel(torch.ones(0)).shape == (0, 2)


# --- transformations and tracing


@pytest.mark.parametrize(
    "transform",
    [
        lambda kernel: torch.vmap(kernel)(torch.ones(2, 8)),
        lambda kernel: torch.func.grad(lambda x: kernel(x).sum())(torch.ones(8)),
        lambda kernel: torch.func.functionalize(kernel)(torch.ones(8)),
    ],
    ids=["vmap", "grad", "functionalize"],
)
def test_transformations(transform: Callable[[Any], Any]) -> None:
    assert rendered(lambda: transform(tw.compile(plus, out_idx=[1]))) == (
        "ArgumentError: 'plus': 'A' is a value inside a transformation of torch, such as vmap or "
        "grad, and has no memory of its own\n"
        "hint: call the kernel outside of it, or make it an operator with tw.torch_op"
    )


class Module(torch.nn.Module):
    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.kernel(x) + 1
        return found


@pytest.mark.parametrize("way", ["real", "fake", "symbolic", "early", "export"])
def test_a_graph_has_no_place_for_a_kernel(way: str) -> None:
    kernel, x = tw.compile(plus, out_idx=[1]), torch.ones(8)

    def trace() -> None:
        if way == "export":
            torch.export.export(Module(kernel), (x,), strict=False)
        elif way == "early":
            make_fx(Module(kernel), pre_dispatch=True)(x)
        else:
            make_fx(Module(kernel), tracing_mode=way)(x)

    assert rendered(trace) == (
        "ArgumentError: 'plus' is called while torch traces (make_fx, torch.export), and a kernel "
        "is no operator that a graph can hold\n"
        "hint: make it one with tw.torch_op"
    )


# --- arrays that are more than their elements


def test_nested_tensors_and_masked_arrays() -> None:
    kernel = tw.compile(plus, out_idx=[1])
    parts = [torch.ones(8), torch.ones(4)]
    hint = "hint: pass its parts, from .unbind()"
    for layout in (torch.strided, torch.jagged):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nested = torch.nested.nested_tensor(parts, layout=layout)
        for call in (kernel, kernel.simulate):
            assert rendered(lambda: call(nested)) == (  # noqa: B023
                f"ArgumentError: 'plus': 'A' is a nested tensor\n{hint}"
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor(parts)
    assert rendered(lambda: doubled(nested)) == (
        "ArgumentError: 'doubled': the parameter 'A' has no shape that the constant 'N' could be "
        "read from\nhint: pass the parts of a nested tensor one by one"
    )
    ones = np.ones(8, np.float32)
    masked = np.ma.masked_array(ones, mask=[0, 1] * 4)
    for call in (kernel, kernel.simulate):
        assert rendered(lambda: call(masked)) == (  # noqa: B023
            "ArgumentError: 'plus': 'A' is masked, and a kernel would read what the mask hides\n"
            "hint: call .filled(), or pass .data"
        )
    assert kernel(np.ma.masked_array(ones))[:, 0].tolist() == [2.0] * 8
