"""Faster float32 instructions, where they are asked for."""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compat import kernels as compat
from tileworkbench.kernels import flash_attention, softmax

pytestmark = pytest.mark.nvrtc
CONFIG = {"tl.enable_fast_math": True}


@T.prim_func
def quotients(A: T.Tensor((64,), T.float32), B: T.Tensor((64,), T.float32)):
    C = T.empty((64,), T.float32)
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            C[i] = T.exp2(A[i]) / B[i]
    return C


@tw.jit(target="ptx:sm_80", fast_math=True)
def eager(A, B):
    A: T.Tensor((64,), T.float32)
    B: T.Tensor((64,), T.float32)
    C = T.empty((64,), T.float32)
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            C[i] = T.exp2(A[i]) / B[i]
    return C


def tensors():
    return torch.linspace(-140, 100, 64), torch.linspace(0.5, 2.0, 64)


def is_approximate(kernel):
    text = kernel.asm
    assert ("div.approx.ftz.f32" in text) == ("ex2.approx.ftz.f32" in text)
    assert ("div.rn.f32" in text) != ("div.approx.ftz.f32" in text)
    return "div.approx.ftz.f32" in text


@pytest.mark.parametrize(
    ("make", "fast"),
    [
        (lambda: tw.compile(quotients, target="ptx:sm_80"), False),
        (lambda: tw.compile(quotients, target="ptx:sm_80", fast_math=True), True),
        (lambda: tw.compile(quotients, target="ptx:sm_80", pass_configs=CONFIG), True),
        (
            lambda: tw.compile(quotients, target="ptx:sm_80", pass_configs=CONFIG, fast_math=False),
            False,
        ),
        (lambda: compat.compile(quotients, target="ptx:sm_80", pass_configs=CONFIG), True),
        (eager.compile, True),
        (eager.with_target("ptx:sm_90").compile, True),
        (eager.with_target("ptx:sm_80", fast_math=False).compile, False),
    ],
)
def test_it_is_asked_for(make, fast):
    assert is_approximate(make()) == fast


def test_denormals_are_zero_and_the_rest_is_close():
    a, b = tensors()
    exact = torch.exp2(a.double()) / b.double()
    plain = tw.compile(quotients, target="ptx:sm_80")(a, b)
    fast = tw.compile(quotients, target="ptx:sm_80", fast_math=True)(a, b)
    tiny = torch.finfo(torch.float32).tiny
    denormal = (exact < tiny) & (exact > 2.0**-149)
    assert denormal.any() and (plain[denormal] > 0).all() and (fast[exact < tiny] == 0).all()
    normal = ~(exact < tiny)
    torch.testing.assert_close(fast[normal].double(), exact[normal], rtol=4e-7, atol=0)


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_other_targets_compute_as_without_it(target):
    a, b = tensors()
    plain = tw.compile(quotients, target=target)(a, b)
    assert torch.equal(tw.compile(quotients, target=target, fast_math=True)(a, b), plain)


@pytest.mark.parametrize(
    ("page", "sizes", "shape", "count"),
    [
        (flash_attention, (1, 1, 64, 64, 64), (1, 64, 1, 64), 3),
        (softmax, (8, 128), (8, 128), 1),
    ],
    ids=["attention", "softmax"],
)
def test_library_kernels_stay_within_the_tolerance_of_their_references(page, sizes, shape, count):
    kernel = tw.compile(page(*sizes, T.float16), target="ptx:sm_80", fast_math=True)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator).half() for _ in range(count)]
    assert kernel.check(page.reference, *inputs)
