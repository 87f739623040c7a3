"""Executors measure instead of this machine: by machine, and whatever becomes of their workers."""

from __future__ import annotations

import importlib.util
import math
import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.tuning import workers
from tileworkbench.tuning.crews import ExecutorLostError
from tileworkbench.tuning.measuring import Outcome
from tileworkbench.tuning.store import default_store
from tileworkbench.tuning.workers import Worker

BLOCKS = (8, 16, 32, 64)


def doubled(N, block=8):
    @T.prim_func
    def kernel(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=32) as b:
            for i in T.Parallel(block):
                # a block of 64 is a wrong one
                B[b * block + i] = A[b * block + i] * (2.0 if block < 64 else 2.5)

    return kernel


def tuned(executor: Any, blocks: tuple[int, ...] = BLOCKS, **options: Any) -> Any:
    configs = [{"block": block} for block in blocks]
    made = tw.autotune(configs, warmup=0, rep=0.1, executor=executor, **options)
    return made(tw.jit(out_idx=[-1], target="cpu")(doubled))


def block_of(job: Any) -> int:
    return 256 // int(str(job.recipe.program.body.grid[0]))


class Fake(Executor):
    """Workers of one machine. `trouble` is asked about each job first."""

    def __init__(
        self,
        machine: str = "there",
        trouble: Callable[[int], None] = lambda block: None,
        worker: Worker | None = None,
    ) -> None:
        self.machine, self.trouble = machine, trouble
        version = importlib.metadata.version("tileworkbench")
        self.worker = worker or Worker(version, machine, f"the machine {machine}")
        self.jobs: list[int] = []
        self.keys: list[str] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            if fn is workers.describe_worker:
                future.set_result(self.worker)
                return future
            self.keys.append(kwargs.get("key", ""))
            block = block_of(args[0])
            self.jobs.append(block)
            self.trouble(block)
            future.set_result(Outcome(self.machine, latency=1.0 / block))
        except Exception as error:
            if isinstance(error, RuntimeError) and str(error) == "shut down":
                raise
            future.set_exception(error)
        return future


@pytest.mark.parametrize("isolate", [True, False])
def test_threads(isolate: bool) -> None:
    with ThreadPoolExecutor(2) as pool:
        function = tuned(pool, isolate=isolate, ref_prog=lambda a: a * 2)
        kernel = function(256)
    assert torch.equal(kernel(torch.ones(256)), torch.full((256,), 2.0))
    trials = {trial.config["block"]: trial for trial in function.trials}
    assert [trials[block].is_measured for block in BLOCKS] == [True, True, True, False]
    assert trials[64].error.startswith("CheckError: the result disagrees with the reference")
    assert all(trial.machine for trial in function.trials)
    # What another machine of the same kind has measured answers here.
    alone = tuned(None, (8, 16, 32), isolate=False, ref_prog=lambda a: a * 2)
    alone(256)
    assert [trial.is_stored for trial in alone.trials] == [True] * 3


def test_processes() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        function = tuned(pool, (8, 16), ref_prog=lambda a: a * 2)
        function(256)
    assert [trial.is_measured for trial in function.trials] == [True, True]


def test_a_task_whose_worker_is_lost_is_given_to_another_one() -> None:
    lost: list[int] = []

    def trouble(block: int) -> None:
        if block == 16 and lost.count(16) < 3:
            lost.append(block)
            raise BrokenProcessPool("a worker died")

    executor = Fake(trouble=trouble)
    function = tuned(executor, ref_prog=None)
    assert function(256).config == {"block": 64}
    assert executor.jobs.count(16) == 4 and lost == [16] * 3
    assert all(trial.is_measured for trial in function.trials)


def test_a_task_that_is_lost_again_and_again_is_a_row_and_is_tried_again() -> None:
    def trouble(block: int) -> None:
        if block == 64:
            raise BrokenProcessPool("a worker died")

    function = tuned(Fake(trouble=trouble))
    assert function(256).config == {"block": 32}
    assert function.trials[-1].error == "BrokenProcessPool: its worker was lost: a worker died"
    again = Fake()
    assert tuned(again)(256).config == {"block": 64}
    assert again.jobs == [64]  # the others are kept


def test_an_executor_that_takes_no_more() -> None:
    """What was measured before is kept, and another one goes on from there."""
    executor = Fake()

    def end(block: int) -> None:
        raise RuntimeError("shut down")

    def lose(block: int) -> None:
        if block == 32:
            executor.trouble = end
            raise BrokenProcessPool("a worker died")

    executor.trouble = lose
    with pytest.raises(ExecutorLostError) as caught:
        tuned(executor, (8, 16, 32))(256)
    assert str(caught.value) == (
        "the executor takes no more work: shut down\n"
        "hint: what was measured is kept: call again with another executor"
    )
    other = Fake()
    assert tuned(other)(256).config == {"block": 64}
    assert other.jobs == [32, 64]


class FakeClient:
    """A cluster as `dask.distributed.Client` shows it: two machines of one kind, one of another."""

    asynchronous = False

    def __init__(self) -> None:
        self.made: list[tuple[Any, Fake]] = []
        self.said: Any = {
            f"tcp://10.0.0.{number}:80{number}": Fake(kind).worker
            for number, kind in enumerate(("fast", "fast", "slow"))
        }

    def run(self, function: Any, *args: Any) -> Any:
        assert function is workers.describe_worker
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    def get_executor(self, **options: Any) -> Executor:
        kinds = {"10.0.0.0": "fast", "10.0.0.2": "slow"}
        executor = Fake(kinds[options["workers"][0]] if "workers" in options else "fast")
        self.made.append((options, executor))
        return executor


def test_each_kind_of_machine_measures_for_itself() -> None:
    client = FakeClient()
    function = tuned(client)
    function(256)
    assert [options for options, _ in client.made] == [
        {"pure": False, "workers": ["10.0.0.0", "10.0.0.1"]},
        {"pure": False, "workers": ["10.0.0.2"]},
    ]
    assert [executor.jobs for _, executor in client.made] == [list(BLOCKS)] * 2
    assert [(trial.machine, trial.config["block"]) for trial in function.trials] == [
        (f"the machine {kind}", block) for kind in ("fast", "slow") for block in BLOCKS
    ]
    assert str(function.results).splitlines()[0].split() == ["block", "time", "machine"]
    store = default_store()
    assert store is not None
    with closing(sqlite3.connect(store.path)) as connection:
        rows = connection.execute(
            "select machine, count(*) from trials group by machine"
        ).fetchall()
    assert rows == [("fast", 4), ("slow", 4)]
    for number, executor in enumerate(executor for _, executor in client.made):
        names = [key.split("-")[:2] for key in executor.keys]
        assert names == [["measure doubled", f"block={block}"] for block in BLOCKS], number
    again = FakeClient()
    tuned(again)(256)
    assert [executor.jobs for _, executor in again.made] == [[], []]


def test_machines_of_one_kind_are_chosen_by_the_cluster() -> None:
    client = FakeClient()
    del client.said["tcp://10.0.0.2:802"]
    tuned(client)(256)
    assert [options for options, _ in client.made] == [{"pure": False}]


def test_what_is_found_here_decides_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call on this machine takes what this machine's workers found, where there are some."""
    client = FakeClient()
    here = Fake(workers.machine_of("cpu")).worker
    client.said = {"tcp://10.0.0.0:1": Fake("fast").worker, "tcp://10.0.0.2:1": here}
    function = tuned(client)
    kernel = function(256)
    assert function.trials[0].machine == here.name
    assert kernel.latency == function.trials[3].latency


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (
            3,
            "executor is a concurrent.futures.Executor, not 'int'\n"
            "hint: or a dask.distributed.Client",
        ),
        (
            Fake(worker=Worker("0.0.9", "m", "m")),
            "the workers of the executor have tileworkbench 0.0.9, and this process has 0.1.0\n"
            "hint: install the same version everywhere",
        ),
    ],
)
def test_wrong_executors(executor: Any, message: str) -> None:
    with pytest.raises(tw.TileError) as caught:
        tuned(executor)(256)
    assert str(caught.value) == message


def test_a_cluster_that_lacks_the_package() -> None:
    client = FakeClient()
    client.said = ModuleNotFoundError("No module named 'tileworkbench'")
    with pytest.raises(tw.UnsupportedError) as caught:
        tuned(client)(256)
    assert str(caught.value) == (
        "the workers of the executor cannot measure: ModuleNotFoundError: No module named "
        "'tileworkbench'\nhint: they need tileworkbench 0.1.0 as it is installed here"
    )
    client.said = {}
    with pytest.raises(tw.ArgumentError) as caught:
        tuned(client)(256)
    assert str(caught.value) == "executor is a cluster without workers"
    client.asynchronous = True
    with pytest.raises(tw.ArgumentError) as caught:
        tuned(client)(256)
    assert str(caught.value) == (
        "executor is an asynchronous client, which cannot be waited for\n"
        "hint: make it with Client(..., asynchronous=False)"
    )


def test_a_sweep_is_measured_by_each_kind_of_machine() -> None:
    swept = tw.sweep(
        tw.jit(out_idx=[-1], target="cpu")(doubled),
        {"block": [8, 16]},
        constants={"N": 256},
        bench=True,
        executor=FakeClient(),
    )
    assert [(point.machine, point.config["block"], point.time_us) for point in swept.points] == [
        (f"the machine {kind}", block, 1e3 / block)
        for kind in ("fast", "slow")
        for block in (8, 16)
    ]
    assert str(swept).splitlines()[0].split()[-1] == "machine"
    assert not swept.interrupted


@pytest.mark.parametrize("bench", [None, 3])
def test_points_of_a_sweep_compile_where_the_executor_is(
    bench: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(tw.Jit, "compile", lambda *_, **__: compiled.append(1))
    function = tw.jit(out_idx=[-1], target="cpu")(doubled)
    with ThreadPoolExecutor(2) as pool:
        axes, constants = {"block": [8, 16, -1]}, {"N": 256}
        swept = tw.sweep(function, axes, constants=constants, bench=bench, executor=pool)
    *good, bad = swept.points
    assert not compiled and all(point.kernel is None for point in good)
    assert all(point.recipe and point.predicted_us > 0 and point.limit for point in good)
    assert [math.isfinite(point.time_us) for point in good] == [bench is not None] * 2
    assert bad.error and bad.recipe is None
    assert swept.target == "cpu" and not swept.interrupted


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None,
    reason="the Python package 'distributed' is not installed: pip install '.[dask]'",
)
class TestDask:
    """A real cluster of processes on this machine."""

    def test_a_worker_that_is_killed_in_the_middle(self, tmp_path: Path) -> None:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            killed: list[int] = []
            blocks = (4, 8, 16, 32, 48, 56)
            function = tuned(client, blocks, ref_prog=lambda a: a * 2, store=tmp_path / "t.sqlite")

            def kill_one() -> None:
                while not Path(tmp_path / "t.sqlite").exists():  # the first result
                    threading.Event().wait(0.01)
                pid = next(iter(client.run(os.getpid).values()))
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

            thread = threading.Thread(target=kill_one, daemon=True)
            thread.start()
            kernel = function(256)
            thread.join(60)
        assert len(killed) == 1
        assert torch.equal(kernel(torch.ones(256)), torch.full((256,), 2.0))
        latencies = [trial.latency for trial in function.trials]
        errors = [trial.error for trial in function.trials]
        assert all(map(math.isfinite, latencies)) and errors == [""] * 6, errors

    def test_workers_that_lack_the_package(self) -> None:
        from distributed import Client, LocalCluster

        code = "import sys\nsys.modules['tileworkbench'] = None\n"
        with (
            LocalCluster(n_workers=1, preload=[code], dashboard_address=None) as cluster,
            Client(cluster) as client,
            pytest.raises(tw.UnsupportedError) as caught,
        ):
            tuned(client)(256)
        assert "the workers of the executor cannot measure: " in str(caught.value)
        assert "tileworkbench" in str(caught.value)


def test_an_executor_that_is_over_is_told() -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(tw.UnsupportedError) as caught:
        tuned(executor)(256)
    assert str(caught.value) == (
        "the workers of the executor cannot measure: RuntimeError: cannot schedule new futures "
        "after shutdown\nhint: make another executor, whose workers start; they need "
        "tileworkbench 0.1.0 as it is installed here"
    )
