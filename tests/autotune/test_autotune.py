"""Every configuration is tried once, wrong ones are left out, the fastest runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.tuning import courses, measuring
from tileworkbench.tuning.autotune import Autotuned
from tileworkbench.tuning.supply import TensorSupplyType, supply_tensors
from tileworkbench.viz.model.bundle import Live

CONFIGS = [{"block": 16}, {"block": 32}, {"block": 64}]


def lazy(N, block=8):
    if block == 0:
        raise ValueError("a block needs elements")

    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                # a block of 64 is a wrong one
                B[bx * block + i] = A[bx * block + i] * (2.0 if block < 64 else 2.5)

    return main


def eager(A, block: int = 8, factor: int = 2):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * factor
    return B


def in_place(A, block: int = 8):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            A[bx * block + i] = A[bx * block + i] + 1.0


def tuned(fn: Callable[..., Any], configs: Any = CONFIGS, **options: Any) -> Autotuned:
    jit = tw.jit(out_idx=[-1]) if fn is lazy else tw.jit
    return tw.autotune(configs, warmup=0, rep=0.1, **{"isolate": False, **options})(jit(fn))


@pytest.fixture
def latencies(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Milliseconds that the next measurements will take, instead of the clock."""
    coming: list[float] = []

    def measure(fn: Callable[[], object], warmup: float, rep: float) -> float:
        fn()
        return coming.pop(0)

    for module in (measuring, courses):
        monkeypatch.setattr(module, "do_bench", measure)
    return coming


def test_the_fastest_kernel_is_returned_with_its_facts(latencies: list[float]) -> None:
    latencies += [3.0, 1.0, 2.0]
    function = tuned(lazy)
    kernel = function(100)
    assert (kernel.config, kernel.latency, kernel.ref_latency) == ({"block": 32}, 1.0, None)
    assert [trial.latency for trial in function.trials] == [3.0, 1.0, 2.0]
    assert function(100) is kernel is function.kernel  # no more measurements are left to take
    latencies += [1.0, 2.0, 3.0]
    assert function(101).config == {"block": 16}
    a = torch.randn(100)
    assert torch.equal(kernel(a), a * 2)


def test_configurations_that_fail_or_are_wrong_are_left_out(latencies: list[float]) -> None:
    latencies += [5.0, 7.0]
    function = tuned(lazy, [{"block": 0}, *CONFIGS[1:]], ref_prog=lambda a: a * 2)
    kernel = function(100)
    assert (kernel.config, kernel.latency, kernel.ref_latency) == ({"block": 32}, 5.0, 7.0)
    first, _, last = function.trials
    assert first.error == "ValueError: a block needs elements"
    assert math.isnan(first.latency)
    assert last.error.startswith("CheckError: the result disagrees with the reference in ")


def test_checks_can_be_skipped_or_made_by_hand(latencies: list[float]) -> None:
    latencies += [5.0, 7.0, 1.0]
    unchecked = tuned(lazy, CONFIGS[1:], ref_prog=lambda a: a * 2, skip_check=True)
    assert unchecked(100).config == {"block": 64}

    def refuse(outputs: list[Any], expected: list[Any]) -> None:
        assert torch.equal(outputs[0], expected[0]), "by hand"

    latencies += [5.0, 7.0, 1.0]  # it is asked about what was measured
    by_hand = tuned(lazy, CONFIGS[1:], ref_prog=lambda a: a * 2, manual_check_prog=refuse)
    assert by_hand(100).config == {"block": 32}
    assert by_hand.trials[1].error.startswith("AssertionError: by hand")


def test_a_call_with_every_tunable_argument_is_not_tuned(latencies: list[float]) -> None:
    function = tuned(lazy)
    assert function(100, block=16).config is None
    assert function(100, 32).config is None
    assert function.trials == ()


def test_arguments_of_the_call_go_before_those_of_a_configuration(
    latencies: list[float],
) -> None:
    configs = [{"block": 16, "factor": 3}, {"block": 16, "factor": 4}, {"block": 32, "factor": 5}]
    latencies += [2.0, 1.0]
    function = tuned(eager, configs)
    a = torch.randn(50)
    assert torch.equal(function(a, factor=7), a * 7)
    assert [dict(trial.config) for trial in function.trials] == [{"block": 16}, {"block": 32}]
    assert function.kernel is not None and function.kernel.config == {"block": 32}


def test_eager_functions_are_tuned_per_shape_and_run(latencies: list[float]) -> None:
    latencies += [1.0, 2.0, 3.0, 3.0, 2.0, 1.0]
    function = tuned(eager)
    for size in (50, 60, 50):
        a = torch.randn(size)
        assert torch.equal(function(a), a * 2)
    assert latencies == []


def test_trials_do_not_touch_the_callers_tensors(latencies: list[float]) -> None:
    latencies += [1.0, 2.0, 3.0]
    a = torch.zeros(10)
    assert tuned(in_place)(a) is None
    assert torch.equal(a, torch.ones(10))


def test_an_interrupted_search_goes_on(
    latencies: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(fn: Callable[[], object], warmup: float, rep: float) -> float:
        if len(latencies) == 2:
            raise KeyboardInterrupt
        return latencies.pop(0)

    latencies += [1.0, 3.0, 2.0]
    function = tuned(lazy)
    with monkeypatch.context() as patched:
        patched.setattr(measuring, "do_bench", interrupt)
        with pytest.raises(KeyboardInterrupt) as caught:
            function(100)
    assert str(caught.value) == (
        "interrupted after 1 of 3 configurations of 'lazy'; the fastest so far is {'block': 16}, "
        "1 ms\nhint: 'lazy.results' has what was measured; the same call goes on from there"
    )
    assert [trial.latency for trial in function.trials] == [1.0]
    assert str(function.results).endswith("interrupted after 1 of 3 points")
    assert function(100).config == {"block": 16}
    assert [trial.latency for trial in function.trials] == [1.0, 3.0, 2.0]


def test_an_interrupt_before_any_result_goes_on_as_it_is(
    latencies: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(fn: Callable[[], object], warmup: float, rep: float) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "do_bench", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        tuned(lazy)(100)
    assert type(caught.value) is KeyboardInterrupt


def test_the_results_are_a_table(latencies: list[float]) -> None:
    latencies += [2.0, 1.0]
    configs = [{"block": 16}, {"block": 0}, {"block": 32}]
    function = tuned(lazy, configs)
    function(100)
    found = function.results
    assert [point.time_us for point in found.points if not point.error] == [2000.0, 1000.0]
    assert found.best is not None and found.best.config == {"block": 32}
    assert "ValueError: a block needs elements" in found.points[1].error
    assert [row["block"] for row in found.to_dict()] == [16, 0, 32]
    assert repr(found) == "<sweep of lazy cpu | block=16,0,32 | 3 points, 1 failed>"
    assert not found.interrupted


def test_progress_is_seen_and_taken_away(
    latencies: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []

    class Widget:
        def __init__(self, **at: int) -> None:
            shown.append(at)

        def __setattr__(self, name: str, value: object) -> None:
            shown.append({name: value})

        def close(self) -> None:
            shown.append("closed")

    monkeypatch.setattr("tileworkbench.tuning.progress.live_form", lambda: Live.PLACED)
    monkeypatch.setattr("tileworkbench.viz.widgets.progress.ProgressWidget", Widget)
    latencies += [1.0, 2.0, 3.0]
    tuned(lazy)(100)
    done = [{"done": 0, "total": 3}, *({"done": count} for count in range(4))]
    assert shown == [*done, {"ended": True}, "closed"]
    del shown[:]
    latencies += [1.0]
    tuned(lazy, CONFIGS[:1])(100)
    assert shown == []


def test_a_configuration_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(tw.TileError) as caught:
        tuned(lazy, CONFIGS[:2], timeout=1e-9)(100)
    assert str(caught.value) == (
        "none of the 2 configurations of 'lazy' could be measured\n"
        "hint: the first one, {'block': 16}, failed: TileError: took longer than 1e-09 s"
    )


def test_inputs_come_from_the_context_or_a_function(latencies: list[float]) -> None:
    seen: list[Any] = []

    def reference(a: Any) -> Any:
        seen.append(a.clone())
        return a * 2

    mine = torch.full((100,), 5.0)
    latencies += [1.0, 1.0]
    with tw.set_autotune_inputs([mine]):
        tuned(lazy, CONFIGS[:1], ref_prog=reference)(100)
    latencies += [1.0, 1.0]
    made = tuned(
        lazy,
        CONFIGS[:1],
        ref_prog=reference,
        supply_prog=lambda params: [torch.full((100,), float(len(params)))],
    )
    made(100)
    assert {float(tensor.max()) for tensor in seen} == {5.0, 1.0}


def test_symbols_are_arguments_like_others(latencies: list[float]) -> None:
    """Two of one name are the same argument; one of another name or dtype is another one."""
    jit = tw.jit(out_idx=[-1])(lazy)
    assert jit(T.dynamic("N"), 16) is jit(T.dynamic("N"), 16)
    other = jit(T.dynamic("N", "int64"), 16)
    assert other is not jit(T.dynamic("N"), 16) and jit(T.dynamic("M"), 16) is not other
    latencies += [2.0, 1.0]
    with tw.set_autotune_inputs([torch.ones(96)]):
        kernel = tuned(lazy, CONFIGS[:2], store=False)(T.dynamic("N"))
    assert kernel.config == {"block": 32}
    assert kernel(torch.ones(32)).tolist() == [2.0] * 32


def test_cached_inputs_are_shared(latencies: list[float]) -> None:
    made: list[Any] = []

    def supply(params: Any) -> Any:
        made.append(params)
        return torch.zeros(100)

    latencies += [1.0, 2.0, 3.0]
    tuned(lazy, supply_prog=supply, cache_input_tensors=True)(100)
    assert len(made) == 1


def test_configurations_may_depend_on_the_call(latencies: list[float]) -> None:
    latencies += [2.0, 1.0]
    function = tuned(lazy, lambda N: [{"block": N // 4}, {"block": N // 2}])
    assert function(80).config == {"block": 40}


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ([], "'lazy' has no configuration to tune"),
        ([{"blok": 3}], "'lazy' has no argument 'blok'"),
    ],
)
def test_wrong_configurations(configs: Any, message: str) -> None:
    with pytest.raises(tw.ArgumentError) as caught:
        tuned(lazy, configs)(100)
    assert str(caught.value) == message


def test_wrong_uses() -> None:
    with pytest.raises(tw.TileTypeError) as caught:
        tw.autotune(configs=CONFIGS)(lazy)
    assert str(caught.value) == (
        "tw.autotune goes above @tw.jit, not above 'function'\n"
        "hint: write @tw.autotune(configs=...) on the line before @tw.jit"
    )
    with pytest.raises(tw.TileTypeError) as caught:
        tw.autotune(tw.jit(lazy))
    assert str(caught.value) == "tw.autotune needs configurations: @tw.autotune(configs=[...])"
    with pytest.raises(tw.ArgumentError, match="'lazy': too many positional arguments"):
        tuned(lazy)(1, 2, 3)
    with pytest.raises(tw.TileTypeError, match="'lazy': an argument has no hash"):
        tuned(lazy)([100])


def test_measured_for_real() -> None:
    function = tuned(lazy, CONFIGS[:2], ref_prog=lambda a: a * 2)
    kernel = function(100)
    assert kernel.latency == min(trial.latency for trial in function.trials) > 0
    assert kernel.ref_latency > 0


@pytest.mark.parametrize("kind", list(TensorSupplyType))
def test_supplied_tensors(kind: TensorSupplyType) -> None:
    @T.prim_func
    def kernel(
        A: T.Tensor((8, T.dynamic("n")), T.float16),
        B: T.Tensor((5,), T.uint8),
        C: T.Tensor((5,), T.float8_e4m3fn),
        D: T.Tensor((2,), T.bool),
    ):
        with T.Kernel(1, threads=32) as bx:
            A[0, 0] = 1

    a, b, c, d = supply_tensors(kernel.program, kind, {"n": 40})
    assert a.shape == (8, 40) and a.dtype is torch.float16
    assert [x.dtype for x in (b, c, d)] == [torch.uint8, torch.float8_e4m3fn, torch.bool]
    whole = bool((a == a.round()).all())
    assert whole == (kind.name in ("Integer", "Zero", "One"))
    assert bool((c.float() == c.float().round()).all())
    assert bool((a.abs() <= 1).all()) == (kind.name in ("Uniform", "Zero", "One"))
    with pytest.raises(tw.ArgumentError, match="the extent 'n' of 'A' of 'kernel' has no value"):
        supply_tensors(kernel.program, kind)


def test_arguments_that_a_search_does_not_depend_on(latencies: list[float]) -> None:
    latencies += [3, 1, 2]
    kernel = tuned(lazy, do_not_specialize=["block"])
    found = kernel(64, 32)
    assert found.config == {"block": 32} and len(kernel.trials) == 3
    # Another value of such an argument finds the same configuration, without a search.
    again = kernel(N=64, block=16)
    assert again is found and not latencies
    assert tuned(lazy)(64, block=32).config is None  # without it the call has chosen


def test_other_arguments_that_a_search_does_not_depend_on(latencies: list[float]) -> None:
    latencies += [3, 1, 2]
    kernel = tuned(lazy, do_not_specialize=("N",))
    assert kernel(64).config == kernel(128).config == {"block": 32}
    out = kernel(128)(torch.arange(128.0))
    assert torch.equal(out, torch.arange(128.0) * 2) and not latencies


def test_compile_tunes_and_returns_the_kernel(latencies: list[float]) -> None:
    latencies += [3, 2, 1, 3, 1, 2]
    function = tuned(eager)
    a = torch.arange(64.0)
    kernel = function.compile(a)
    assert kernel.config == {"block": 64} and kernel.latency == 1
    assert torch.equal(kernel(a), a * 2)
    # A declaration in place of a tensor: measured on made-up ones.
    other = function.compile(T.Tensor((96,), T.float32), factor=3)
    assert other.config == {"block": 32}
    assert torch.equal(other(torch.ones(96)), torch.full((96,), 3.0))
    by_name = function.compile(A=T.Tensor[96, T.float32], factor=3)
    assert by_name.config == {"block": 32} and not latencies
    latencies.append(1)
    assert tuned(lazy, [{"block": 16}]).compile(64).config == {"block": 16}


def test_nothing_is_chosen_by_the_time_of_a_simulator() -> None:
    tuned = tw.autotune(CONFIGS)(tw.jit(eager, target="sim:sm_80"))
    with pytest.raises(tw.UnsupportedError) as caught:
        tuned(torch.ones(64))
    assert caught.value.message == (
        "'eager' is simulated on 'sim:sm_80': a time would be that of the simulator, not of a "
        "device"
    )
    assert tuned.trials == ()
