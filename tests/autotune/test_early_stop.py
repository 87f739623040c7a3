"""The search ends when the time model, with its own error as a margin, says that none can win."""

from __future__ import annotations

from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.tuning import measuring
from tileworkbench.tuning.quality import quality_of

# by block: milliseconds that are predicted and measured
TIMES = {1: (1.0, 1.1), 2: (2.0, 1.8), 4: (4.0, 4.4), 8: (1.3, 0.0), 16: (1.5, 0.0), 32: (9.0, 0.0)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks that are measured, in order; times are those of `TIMES`."""
    measured: list[int] = []
    current: list[int] = []

    def causes(kernel: Any) -> Any:
        block = 64 // int(str(kernel.program.body.grid[0]))
        return type("Causes", (), {"total_us": 1e3 * TIMES[block][0]})

    def compile(measurement: Any) -> Any:
        measurement._kernel = measurement._recipe.compile()
        current[:] = [64 // int(str(measurement._kernel.program.body.grid[0]))]
        return measuring.Outcome()

    def bench(*given: Any) -> float:
        measured.append(current[0])
        return TIMES[current[0]][1]

    monkeypatch.setattr(tw.Kernel, "causes", property(causes))
    monkeypatch.setattr(measuring.Measurement, "_compile", compile)
    monkeypatch.setattr(measuring, "do_bench", bench)
    return measured


def tuned(blocks: list[int], **options: Any) -> Any:
    @tw.autotune([{"block": block} for block in blocks], isolate=False, **options)
    @tw.jit(target="cpu")
    def doubled(N, block=8):
        @T.prim_func
        def kernel(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
            with T.Kernel(N // block, threads=32) as b:
                for i in T.Parallel(block):
                    B[b * block + i] = A[b * block + i] * 2

        return kernel

    return doubled


def test_it_ends_when_nothing_can_win(clock: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    function = tuned([32, 4, 2, 1], early_stop=True, store=False)
    assert function(64).config == {"block": 1}
    # The first three are off by 0.1, 0.11 and 0.09: 9 ms may be 9 / 1.2, and the best takes 1.1.
    assert clock == [1, 2, 4]
    assert [dict(trial.config)["block"] for trial in function.trials] == [1, 2, 4, 32]
    last = function.trials[-1]
    assert (last.error, last.predicted) == ("", 9.0) and not last.is_measured
    assert str(function.results).splitlines()[-2] == (
        "1 of 4 were not measured: they are predicted to be slower"
    )


def test_what_may_win_is_measured(clock: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is far off rules nothing out."""
    far = {**TIMES, 1: (1.0, 5.0), 2: (2.0, 20.0), 4: (4.0, 1.0), 32: (5.0, 4.0)}
    monkeypatch.setitem(globals(), "TIMES", far)
    function = tuned([32, 4, 2, 1], early_stop=True, store=False)
    assert function(64).config == {"block": 4}
    # off by 0.8, 0.9 and 3: 5 ms may be 5 / 2.6, which is above 1
    assert clock == [1, 2, 4]
    del clock[:]
    monkeypatch.setitem(globals(), "TIMES", {**far, 32: (2.5, 4.0), 4: (4.0, 1.0)})
    function = tuned([32, 4, 2, 1], early_stop=True, store=False)
    assert function(64).config == {"block": 4}
    assert clock == [1, 2, 32, 4]  # 4 / (1 + 2 * 0.8) is below 4


def test_the_margin_is_twice_the_error(clock: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """All are off by 1 / 11: 1.25 ms may be 1.06, less than the best time of 1.1, and 1.35 not."""
    near = {1: (1.0, 1.1), 2: (1.1, 1.21), 4: (1.2, 1.32), 8: (1.25, 1.4), 32: (1.35, 0.5)}
    monkeypatch.setitem(globals(), "TIMES", near)
    assert tuned([1, 2, 4, 8, 32], early_stop=True, store=False)(64).config == {"block": 1}
    assert clock == [1, 2, 4, 8]


def test_without_being_asked_it_measures_all(clock: list[int]) -> None:
    tuned([32, 4, 2, 1], store=False)(64)
    assert clock == [32, 4, 2, 1]
    del clock[:]
    tuned([32, 4, 2, 1], top=4, early_stop=False, store=False)(64)
    assert clock == [1, 2, 4, 32]
    del clock[:]
    tuned([32, 4, 2, 1], top=4, store=False)(64)
    assert clock == [1, 2, 4]


def test_of_many_configurations_it_stops_while_the_model_is_good(
    clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [2**power for power in range(12)]
    near = {block: (1.0 + place, 1.1 * (1 + place)) for place, block in enumerate(many)}
    monkeypatch.setitem(globals(), "TIMES", near)

    def asked(kernel: Any) -> int:
        return 4096 // int(str(kernel.program.body.grid[0]))

    monkeypatch.setattr(
        tw.Kernel,
        "causes",
        property(lambda k: type("C", (), {"total_us": 1e3 * near[asked(k)][0]})),
    )
    blocks: list[int] = []

    def compile(measurement: Any) -> Any:
        measurement._kernel = measurement._recipe.compile()
        blocks[:] = [asked(measurement._kernel)]
        return measuring.Outcome()

    measured: list[int] = []

    def bench(*given: Any) -> float:
        measured.append(blocks[0])
        return near[blocks[0]][1]

    monkeypatch.setattr(measuring.Measurement, "_compile", compile)
    monkeypatch.setattr(measuring, "do_bench", bench)
    assert tuned(many[::-1], store=False)(4096).config == {"block": 1}
    assert measured == many[:3]  # 4 ms may be 4 / 1.2, which is above 1.1
    measured.clear()
    tuned(many[1:], store=False)(4096)
    assert measured == many[1:]  # few
    measured.clear()
    tuned(many, early_stop=False, store=False)(4096)
    assert measured == many
    measured.clear()
    worse = {block: (1.0 + place, 3.0 * (1 + place)) for place, block in enumerate(many)}
    near.update(worse)  # the model is two thirds off
    tuned(many, store=False)(4096)
    assert measured == many


def test_predictions_are_kept_as_well(clock: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    tuned([32, 4, 2, 1], early_stop=True)(64)
    assert clock == [1, 2, 4]

    def refuse(kernel: Any) -> Any:
        raise AssertionError("it is known")

    monkeypatch.setattr(tw.Kernel, "causes", property(refuse))
    again = tuned([32, 4, 2, 1], early_stop=True)
    assert again(64).config == {"block": 1}
    assert clock == [1, 2, 4]
    assert [trial.predicted for trial in again.trials] == [1.0, 2.0, 4.0, 9.0]
    # Who asks for all of them gets the one that was left out.
    tuned([32, 4, 2, 1])(64)
    assert clock == [1, 2, 4, 32]


def test_quality() -> None:
    nan = float("nan")
    assert quality_of([(1.0, 1.0), (2.0, 2.0), (nan, 3.0)]) is None
    found = quality_of([(1.0, 2.0), (2.0, 2.5), (4.0, 5.0), (3.0, nan)])
    assert found is not None
    assert (found.error, found.rank) == (pytest.approx(0.2), pytest.approx(1.0))
