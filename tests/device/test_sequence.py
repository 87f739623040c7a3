"""Several launches in one native call: their order, memory between them, threads, errors."""

import threading
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.host.sequence import LaunchSequence, Step
from tileworkbench.compiler.diagnostics import RunError

N = 4096
pytestmark = pytest.mark.skipif(not LaunchSequence.is_available(), reason="POSIX threads")


@T.prim_func
def doubled(x: T.Tensor((N,), T.float32), y: T.Tensor((N,), T.float32)):
    with T.Kernel(N // 256, threads=128) as bx:
        for i in T.Parallel(256):
            y[bx * 256 + i] = x[bx * 256 + i] * 2.0


@T.prim_func
def summed(x: T.Tensor((N,), T.float32), y: T.Tensor((N,), T.float32)):
    with T.Kernel(N // 256, threads=128) as bx:
        for i in T.Parallel(256):
            # Reads what another block of the step before has written.
            y[bx * 256 + i] = x[bx * 256 + i] + x[N - 1 - (bx * 256 + i)]


@T.prim_func
def positive(x: T.Tensor((N,), T.float32), y: T.Tensor((N,), T.float32)):
    with T.Kernel(N // 256, threads=128) as bx:
        for i in T.Parallel(256):
            T.device_assert(x[bx * 256 + i] > 0, "a number is not positive")
            y[bx * 256 + i] = x[bx * 256 + i]


def steps_of(*made: tuple[Any, tuple[tuple[int, int], ...]], estimated: Any = 1.0) -> list[Step]:
    steps = []
    for function, slots in made:
        kernel = tw.compile(function, target="cpu")
        for launcher, blocks, _ in kernel.native_launches:
            steps.append(Step(launcher, blocks, estimated, slots, kernel))
    return steps


def chain(estimated: Any = 1.0) -> LaunchSequence:
    """out = 2 (2 x + reversed 2 x) by two intermediates in the call's own memory."""
    first, second = (2, 0), (2, 4 * N)
    made = [
        (doubled, ((0, 0), first)),
        (summed, (first, second)),
        (doubled, (second, (1, 0))),
    ]
    return LaunchSequence(steps_of(*made, estimated=estimated), 2, 8 * N)


def run(sequence: LaunchSequence, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    sequence([x.ctypes.data, out.ctypes.data])
    return out


@pytest.mark.parametrize("estimated", [1.0, 1e9])
def test_each_step_sees_what_the_one_before_has_made(team: str, estimated: float) -> None:
    if team == "python":
        pytest.skip("Python threads run no sequences")
    sequence = chain(estimated)
    for seed in range(20):
        x = np.random.default_rng(seed).random(N, dtype=np.float32)
        np.testing.assert_allclose(run(sequence, x), 4 * (x + x[::-1]), rtol=1e-6)


def test_calls_from_several_threads_have_memory_of_their_own() -> None:
    sequence, failures = chain(), []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).random(N, dtype=np.float32)
        for _ in range(100):
            if not np.allclose(run(sequence, x), 4 * (x + x[::-1]), rtol=1e-6):
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert not failures


def test_an_error_names_its_line_and_later_steps_do_not_run() -> None:
    made = [
        (doubled, ((0, 0), (2, 0))),
        (positive, ((2, 0), (2, 4 * N))),
        (doubled, ((2, 0), (1, 0))),
    ]
    sequence = LaunchSequence(steps_of(*made), 2, 8 * N)
    x, out = np.full(N, -1, np.float32), np.zeros(N, np.float32)
    with pytest.raises(RunError, match="a number is not positive") as caught:
        sequence([x.ctypes.data, out.ctypes.data])
    assert caught.value.span is not None
    assert caught.value.kernel.name == "positive"
    assert not out.any()
    assert (run(sequence, -x) == 4).all()
