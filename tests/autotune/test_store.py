"""Results of tuning that outlive a process, and configurations chosen by the time model."""

from __future__ import annotations

import functools
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.tuning import courses, measuring
from tileworkbench.tuning import store as store_module
from tileworkbench.tuning.reference import digest_of
from tileworkbench.tuning.store import Origin, Stored, TuningStore, default_store, key_of

ORIGIN = Origin("k", "cpu", "m", "{}")
CONFIGS = [{"block": 8}, {"block": 16}, {"block": 32}]


class Clock:
    """In place of `do_bench`: counts what is measured, and gives times in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for module in (measuring, courses):
            monkeypatch.setattr(module, "do_bench", self)

    def __call__(self, run: Callable[[], Any], *rest: Any) -> float:
        run()
        self.count += 1
        return 10.0 - self.count


def make(**options: Any) -> Any:
    @tw.autotune(configs=CONFIGS, isolate=False, **options)
    @tw.jit(target="cpu")
    def doubled(N, block=8):
        @T.prim_func
        def kernel(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
            with T.Kernel(T.ceildiv(N, block), threads=32) as b:
                for i in T.Parallel(block):
                    B[b * block + i] = A[b * block + i] * 2

        return kernel

    return doubled


def test_what_was_measured_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    first = make()
    kernel = first(64)
    assert clock.count == 3
    again = make()
    found = again(64)
    assert clock.count == 3
    assert (found.config, found.latency) == (kernel.config, kernel.latency) == ({"block": 32}, 7.0)
    assert [trial.is_stored for trial in again.trials] == [True] * 3
    assert [trial.latency for trial in again.trials] == [9.0, 8.0, 7.0]
    again(128)  # another shape
    assert clock.count == 6


def test_what_another_process_measures_meanwhile_is_not_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    ours, theirs = make(), make()
    note = courses.Course._note

    def noted(course: courses.Course, place: int, trial: Any) -> None:
        note(course, place, trial)
        monkeypatch.setattr(courses.Course, "_note", note)
        theirs(64)

    monkeypatch.setattr(courses.Course, "_note", noted)
    ours(64)
    assert clock.count == 3
    assert [trial.is_stored for trial in theirs.trials] == [True, False, False]
    assert [trial.is_stored for trial in ours.trials] == [False, True, True]


def test_the_key_is_the_text_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    factor = 2

    def tuned() -> Any:
        @tw.autotune(configs=CONFIGS, isolate=False)
        @tw.jit(target="cpu")
        def scaled(N, block=8):
            @T.prim_func
            def kernel(A: T.Tensor((N,), "float32")):
                with T.Kernel(T.ceildiv(N, block), threads=32) as b:
                    for i in T.Parallel(block):
                        A[b * block + i] = A[b * block + i] * factor

            return kernel

        return scaled

    tuned()(64)
    tuned()(64)
    assert clock.count == 3
    factor = 3
    tuned()(64)
    assert clock.count == 6


def test_sizes_of_tensors_belong_to_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def tuned() -> Any:
        @tw.autotune(configs=[{"block": 8}, {"block": 16}], isolate=False)
        @tw.jit(target="cpu")
        def eager(A, block: int = 8):
            n = T.dynamic("n")
            A: T.Tensor((n,), "float32")
            B = T.empty((n,), "float32")
            with T.Kernel(T.ceildiv(n, block), threads=32) as b:
                for i in T.Parallel(block):
                    B[b * block + i] = A[b * block + i] + 1
            return B

        return eager

    tuned()(torch.zeros(64))
    assert clock.count == 2
    assert tuned()(torch.zeros(64)).sum() == 64
    assert clock.count == 2
    tuned()(torch.zeros(65))
    assert clock.count == 4


def test_a_result_that_was_not_checked_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    make()(64)
    reference = lambda a, b: b.copy_(a * 2)  # noqa: E731
    make(ref_prog=reference, skip_check=True)(64)
    assert clock.count == 3
    checked = make(ref_prog=reference)
    checked(64)
    assert clock.count == 7  # and the reference
    make(ref_prog=reference)(64)
    assert clock.count == 7


def test_a_comparison_holds_for_one_reference_and_its_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That results are wrong is said by a reference, which may be wrong itself."""
    clock = Clock(monkeypatch)

    def refused(N, block=8):
        @T.prim_func
        def kernel(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
            with T.Kernel(T.ceildiv(N, block), threads=32) as b:
                if block == 8:
                    T.call_extern("int32", "no_such_function_anywhere", 1)
                for i in T.Parallel(block):
                    B[b * block + i] = A[b * block + i] * 2

        return kernel

    def tuned(factor: float, **options: Any) -> Any:
        reference = lambda a, b: b.copy_(a * factor)  # noqa: E731
        decorate = tw.autotune(configs=CONFIGS, isolate=False, ref_prog=reference, **options)
        return decorate(tw.jit(target="cpu")(refused))

    def stored(function: Any) -> list[bool]:
        return [trial.is_stored for trial in function.trials]

    wrong, again, right, strict = tuned(3), tuned(3), tuned(2), tuned(2, rtol=1e-3)
    for function in (wrong, again):
        with pytest.raises(tw.TileError, match="none of the 3 configurations"):
            function(64)
    assert (stored(wrong), stored(again)) == ([False] * 3, [True] * 3)
    assert again.trials[1].error == (
        f"{wrong.trials[1].error}; on {date.today()}, not tried again: pass retry=True"
    )
    assert right(64).config == {"block": 32}
    assert stored(right) == [True, False, False]  # it never compiles
    assert strict(64).config == {"block": 32}
    assert stored(strict) == [True, False, False]
    last = tuned(2, rtol=1e-3)
    last(64)
    assert stored(last) == [True] * 3 and [each.error for each in last.trials[1:]] == ["", ""]
    assert clock.count == 6  # two kernels, and the reference, of each of two searches
    store = default_store()
    assert store is not None
    with closing(sqlite3.connect(store.path)) as connection:
        rows = connection.execute("select kernel, target, config, error from trials").fetchall()
    assert sorted((row[0], row[2]) for row in rows) == sorted(
        ("refused", repr(each)) for each in CONFIGS
    )
    assert all(row[1].startswith("cpu") for row in rows)
    assert sorted(row[3].partition(":")[0] for row in rows) == ["", "", "UnsupportedError"]


def scaled_by(factor: Any, more: Any = 0) -> Callable[[Any], Any]:
    def reference(a: Any) -> Any:
        return _helped(a, factor) + more

    return reference


def _helped(a: Any, factor: Any) -> Any:
    return a * factor * _FACTOR


_FACTOR = 2
_LOCK = threading.Lock()


class TestDigest:
    """What tells references apart."""

    def test_what_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def digest(reference: Any, *limits: float) -> str:
            return digest_of(reference, limits)

        assert digest(scaled_by(2)) == digest(scaled_by(2))
        different = [
            *(scaled_by(2), scaled_by(3), scaled_by(2.0), scaled_by("2"), scaled_by((2,))),
            *(scaled_by(torch.float32), scaled_by(torch.float16), scaled_by(torch.relu)),
            *(scaled_by(torch.ones(2)), scaled_by(torch.zeros(2)), scaled_by(2, 1)),
            *(lambda a: a * 2, lambda a: a * 3, lambda a, b=1: a * 3, lambda a: (lambda: a * 3)()),
            *(functools.partial(scaled_by(2), 1), functools.partial(scaled_by(2), 2)),
            *(torch.matmul, torch.add, Clock.__call__, scaled_by(_LOCK), scaled_by({1, 2})),
        ]
        digests = [digest(each) for each in different]
        assert len({*digests}) == len(digests)
        assert digest(scaled_by(2), 1e-2) != digest(scaled_by(2), 1e-3)
        monkeypatch.setattr(sys.modules[__name__], "_FACTOR", 3)
        assert digest(scaled_by(2)) != digests[0]

    def test_what_holds_itself(self) -> None:
        loop: list[Any] = [1]
        loop.append(loop)
        assert digest_of(scaled_by(loop), []) != digest_of(scaled_by([2, loop]), [])

    def test_it_holds_in_another_process(self) -> None:
        code = (
            "from tileworkbench.tuning.reference import digest_of\n"
            "def f(a, b={'x', 'y', 'z'}):\n"
            "    return f(a) if a in {'p', 'q', 'r'} else [each for each in b]\n"
            "print(digest_of(f, [1.0]))"
        )
        command = [sys.executable, "-c", code]
        first, second = (subprocess.check_output(command, text=True) for _ in range(2))
        assert first == second and len(first) == 65


def test_it_can_be_switched_off_and_have_a_file_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock(monkeypatch)
    make(store=False)(64)
    make(store=False)(64)
    assert clock.count == 6
    make(store=tmp_path / "mine.sqlite")(64)
    make(store=str(tmp_path / "mine.sqlite"))(64)
    assert clock.count == 9
    make(store=tmp_path / "mine.sqlite", supply_prog=lambda params: [torch.zeros(64)] * 2)
    TuningStore(tmp_path / "mine.sqlite").clear()
    make(store=tmp_path / "mine.sqlite")(64)
    assert clock.count == 12
    monkeypatch.setenv("TILEWORKBENCH_DISABLE_CACHE", "1")
    assert default_store() is None


class TestTrouble:
    """Files that cannot be used: it is said once, and the search goes on."""

    def told(self, path: Path) -> list[str]:
        store = TuningStore(path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store.put(key_of("a"), Stored(1.0), ORIGIN)
            store.find([key_of("a")])
            store.find([key_of("a")])
        return [str(each.message) for each in caught]

    def test_corrupt(self, tmp_path: Path) -> None:
        path = tmp_path / "t.sqlite"
        path.write_bytes(b"no database at all" * 100)
        assert self.told(path) == [
            f"tuning results in '{path}' are not used: file is not a database; remove the file to "
            "begin anew"
        ]
        assert path.read_bytes().startswith(b"no database")

    def test_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "t.sqlite"
        for number in range(200):
            TuningStore(path).put(key_of(number), Stored(1.0), ORIGIN)
        path.write_bytes(path.read_bytes()[:5000])
        assert len(self.told(path)) == 1

    def test_of_another_version(self, tmp_path: Path) -> None:
        path = tmp_path / "t.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("pragma user_version = 7")
            connection.execute("create table other (x)")
        assert self.told(path) == [
            f"tuning results in '{path}' are not used: it is of format 7, and this version reads "
            "3; remove the file to begin anew"
        ]

    def test_a_folder_in_its_place(self, tmp_path: Path) -> None:
        (told,) = self.told(tmp_path)
        assert told == (
            f"tuning results in '{tmp_path}' are not used: unable to open database file; "
            "name another file"
        )

    def test_locked_by_another_process(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is waited for once."""
        monkeypatch.setattr(store_module, "_WAIT_SECONDS", 0.01)
        monkeypatch.setattr(store_module, "_WAIT_AGAIN_SECONDS", 0.02)
        waits: list[float] = []
        connect = sqlite3.connect

        def connecting(path: Path, timeout: float, **options: Any) -> sqlite3.Connection:
            waits.append(timeout)
            return connect(path, timeout=timeout, **options)

        path = tmp_path / "t.sqlite"
        TuningStore(path).put(key_of("a"), Stored(2.0), ORIGIN)
        with closing(connect(path, isolation_level=None)) as other:
            other.execute("begin exclusive")
            monkeypatch.setattr(sqlite3, "connect", connecting)
            assert self.told(path) == [
                f"tuning results in '{path}' are not used: database is locked; wait for the "
                "process that holds it"
            ]
        assert waits == [0.01, 0.02, 0.02]

    def test_read_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "t.sqlite"
        TuningStore(path).put(key_of("a"), Stored(2.0), ORIGIN)
        opened = TuningStore._open

        def reading(store: TuningStore, create: bool = False) -> sqlite3.Connection:
            connection = opened(store, create)  # root may write to every file
            connection.execute("pragma query_only = 1")
            return connection

        monkeypatch.setattr(TuningStore, "_open", reading)
        assert self.told(path) == [
            f"tuning results in '{path}' are read, and new ones are not kept: attempt to write a "
            "readonly database"
        ]
        assert TuningStore(path).find([key_of("a")])[key_of("a")].latency == 2.0

    def test_a_search_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch)
        path = tmp_path / "u.sqlite"
        path.write_bytes(b"no database at all" * 100)
        with pytest.warns(RuntimeWarning, match="file is not a database"):
            assert make(store=path)(64).config == {"block": 32}
        assert clock.count == 3


# Without torch, which takes longer to import than all of it takes.
WRITE = """
import sys
from tileworkbench.tuning.store import Origin, Stored, TuningStore, key_of
path, process = sys.argv[1], int(sys.argv[2])
for number in range(40):
    store = TuningStore(path)
    store.put(key_of(process, number), Stored(float(number)), Origin("k", "cpu", "m", "{}"))
    store.put(key_of("shared"), Stored(float(process)), Origin("k", "cpu", "m", "{}"))
"""


def test_processes_write_to_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "t.sqlite")
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, path, each]) for each in "01"]
    assert [writer.wait() for writer in writers] == [0, 0]
    keys = [key_of(process, number) for process in range(2) for number in range(40)]
    found = TuningStore(path).find([*keys, key_of("shared"), key_of("never")])
    assert len(found) == 81
    assert [found[key].latency for key in keys] == [*map(float, range(40))] * 2


class TestTop:
    """Only what the time model ranks first is measured."""

    def test_the_first_ones_are_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch)
        times = {8: 3.0, 16: 1.0, 32: 2.0}

        class Causes:
            def __init__(self, kernel: Any) -> None:
                grid = int(str(kernel.program.body.grid[0]))
                self.total_us = 1e3 * times[64 // grid]

        monkeypatch.setattr(tw.Kernel, "causes", property(Causes))
        tuned = make(top=2, store=False)
        kernel = tuned(64)
        assert clock.count == 2
        assert kernel.config == {"block": 32}  # the second is the fastest by this clock
        assert [trial.config["block"] for trial in tuned.trials] == [16, 32, 8]
        assert [trial.predicted for trial in tuned.trials] == [1.0, 2.0, 3.0]
        assert tuned.trials[2].error == "" and tuned.trials[2].latency != tuned.trials[2].latency
        table = str(tuned.results).splitlines()
        assert table[0].split() == ["block", "time", "predicted"]
        assert table[3].split() == ["8", "3", "ms"]
        assert table[-1] == "1 of 3 were not measured: they are predicted to be slower"
        assert "failed" not in repr(tuned.results)

    def test_without_a_prediction_all_are_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch)
        monkeypatch.setattr(tw.Kernel, "causes", property(lambda kernel: None))
        make(top=1, store=False)(64)
        assert clock.count == 3

    @pytest.mark.parametrize("top", [0, -1, 1.5, True])
    def test_numbers_that_are_none(self, top: Any) -> None:
        with pytest.raises(tw.ArgumentError) as caught:
            make(top=top)
        assert str(caught.value) == f"top is how many configurations are measured, not {top!r}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout is a positive number of seconds, not 0"),
        ({"timeout": None}, "timeout is a positive number of seconds, not None"),
        ({"timeout": "15"}, "timeout is a positive number of seconds, not '15'"),
        ({"timeout": float("nan")}, "timeout is a positive number of seconds, not nan"),
        ({"rep": 0}, "rep is a positive number of milliseconds, not 0"),
        ({"warmup": -1}, "warmup is a number of milliseconds, 0 or more, not -1"),
        ({"ref_prog": 3}, "ref_prog is a function, not 3"),
        ({"supply_prog": [1]}, "supply_prog is a function, not [1]"),
        ({"store": 3}, "store is True, False or a path, not 3"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tw.ArgumentError) as caught:
        make(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize("configs", [None, {"block": [8]}, "block=8", 3])
@pytest.mark.parametrize("is_made", [False, True])
def test_configurations_that_are_none(configs: Any, is_made: bool) -> None:
    with pytest.raises(tw.ArgumentError) as caught:
        tw.autotune((lambda N: configs) if is_made else configs)(tw.jit(untraced))(64)
    kind = type(configs).__name__
    assert str(caught.value) == (
        f"configs is a list of dictionaries, or a function that returns one, not '{kind}'\n"
        "hint: such as configs=[{'block_M': 64}, {'block_M': 128}]"
    )
    with pytest.raises(tw.ArgumentError, match="a configuration is a dictionary, not 'block=8'"):
        tw.autotune(["block=8"])


def test_configurations_may_be_an_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    tuned = tw.autotune(iter(CONFIGS[:2]), isolate=False)(make().jit)
    tuned(64)
    tuned(128)
    assert clock.count == 4


def untraced(N: int, block: int = 8) -> None:
    """Never traced."""
