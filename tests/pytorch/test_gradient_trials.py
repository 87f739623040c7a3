"""Graphs whose gradients are taken are measured with them, when there is a graph for them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tileworkbench.pytorch import backend, trials
from tileworkbench.pytorch.report import Report

WHOLE = "measured: the whole graph with its gradients takes torch 1 ms, with kernels 2 ms"


def fn(x: Any, w: Any) -> Any:
    return torch.tanh(x * w) * 2 + w


def compiled(call: Callable[..., Any], report: Report) -> Any:
    settings = backend.Settings(least_work=1, least_elements=1)
    own = functools.partial(backend.tile_backend, report=report, settings=settings)
    return torch.compile(call, backend=own)


class Measured:
    """What stands for a clock: says which is faster, and counts how often it is asked."""

    def __init__(self, kernels_are_faster: bool) -> None:
        self.answer = [1e-3, 2e-3] if kernels_are_faster else [2e-3, 1e-3]
        self.count = 0

    def __call__(self, calls: Any, sets: Any) -> list[float]:
        self.count += 1
        mine, theirs = (call(*sets[0]) for call in calls)
        for got, want in zip(mine, theirs, strict=True):
            torch.testing.assert_close(got, want)
        return self.answer


def step(call: Any, x: Any, w: Any) -> None:
    """A call whose results and gradients are compared with torch's."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    got, want = call(x, w), fn(x, w)
    torch.testing.assert_close(got, want)
    for mine, theirs in zip(
        torch.autograd.grad(got.square().sum(), [x, w]),
        torch.autograd.grad(want.square().sum(), [x, w]),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("kernels_are_faster", [True, False])
def test_the_next_call_measures_both_graphs(
    kernels_are_faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(kernels_are_faster)
    monkeypatch.setattr(trials, "_times", measured)
    report, x, w = Report(), torch.randn(64, 32), torch.randn(32)
    call = compiled(fn, report)
    step(call, x, w)
    assert measured.count == 0 and report.parts  # there was no graph for gradients before it
    for _ in range(3):
        step(call, x, w)
    assert measured.count == 1
    assert {each.in_backward for each in report.operations} == {True, False}
    if kernels_are_faster:
        assert report.parts and any(each.kernel for each in report.operations if each.in_backward)
    else:
        assert not report.parts and not report.forms
        assert {why for _, why in report.in_torch} >= {WHOLE}
        assert not any(each.kernel for each in report.operations)


def test_what_takes_no_gradients_is_not_measured_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(kernels_are_faster=False)
    monkeypatch.setattr(trials, "_times", measured)
    call = compiled(fn, Report())
    x, w = torch.randn(64, 32).requires_grad_(), torch.randn(32).requires_grad_()
    for _ in range(3):  # nobody asks for them: they would be compiled for nothing
        torch.testing.assert_close(call(x, w), fn(x, w))
    assert measured.count == 0


def test_other_graphs_of_a_function_keep_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one for calls without gradients, which is compiled in between."""
    measured = Measured(kernels_are_faster=False)
    report, x, w = Report(), torch.randn(64, 32), torch.randn(32)
    call = compiled(fn, report)
    step(call, x, w)
    with torch.no_grad():
        torch.testing.assert_close(call(x, w), fn(x, w))
    before = sum(not each.in_backward for each in report.operations)
    monkeypatch.setattr(trials, "_times", measured)
    step(call, x, w)
    kept = [each for each in report.operations if each.kernel]
    assert measured.count == 1 and before == 2 * len(kept) and not any(k.in_backward for k in kept)
    assert {each.kernel for each in kept} == {part.name for part in report.parts}
    with torch.no_grad():
        torch.testing.assert_close(call(x, w), fn(x, w))


def test_users_gradients_and_random_numbers_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_times", Measured(kernels_are_faster=True))
    layer = torch.nn.Linear(32, 32)
    call = compiled(lambda x: torch.tanh(layer(x)) * 2 + 1, Report())
    x = torch.randn(64, 32)
    call(x).sum().backward()
    held = [each.grad.clone() for each in layer.parameters()]
    state = torch.get_rng_state()
    call(x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(
        torch.equal(each.grad, old) for each, old in zip(layer.parameters(), held, strict=True)
    )


def test_two_threads_measure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(kernels_are_faster=False)
    monkeypatch.setattr(trials, "_times", measured)
    call, x, w = compiled(fn, Report()), torch.randn(64, 32), torch.randn(32)
    step(call, x, w)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                step(call, x, w)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert not errors and measured.count == 1
