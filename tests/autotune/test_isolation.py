"""A configuration that fails, however it does, is a row with its reason, and the others go on."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.diagnostics import (
    CheckError,
    DeviceUnavailableError,
    OutOfBoundsError,
    ResourceError,
)
from tileworkbench.isolation.process import ChildError, Process, ProcessEndedError
from tileworkbench.tuning import courses, measuring
from tileworkbench.tuning.store import default_store
from tileworkbench.tuning.trials import Fault

SECONDS = 20  # a busy machine needs some to compile
GOOD, WRONG, ABORT, FAULT, HANG, MEMORY, REFUSED, ODD = range(8)


def behaving(N, how=GOOD):
    if how == ODD:
        raise ValueError("no such kernel")
    size = 2**43 if how == MEMORY else N

    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((size,), T.float32)):
        with T.Kernel(1, threads=32) as bx:
            if how == ABORT:
                T.call_extern("int32", "raise", int(signal.SIGABRT))
            if how == FAULT:
                T.call_extern("int32", "raise", int(signal.SIGSEGV))
            if how == HANG:
                T.call_extern("int32", "pause")
            if how == REFUSED:
                T.call_extern("int32", "no_such_function_anywhere", 1)
            for i in T.Parallel(N):
                B[i] = A[i] * (3.0 if how == WRONG else 2.0)

    return main


def tuned(kinds: list[int], **options: Any) -> Any:
    configs = [{"how": kind} for kind in kinds]
    made = tw.autotune(configs, warmup=0, rep=0.1, ref_prog=lambda a: a * 2, **options)
    return made(tw.jit(out_idx=[-1])(behaving))


def test_every_failure_is_a_row() -> None:
    function = tuned([ABORT, HANG, MEMORY, REFUSED, ODD, WRONG, GOOD], timeout=SECONDS)
    kernel = function(64)
    assert kernel.config == {"how": GOOD}
    assert torch.equal(kernel(torch.ones(64)), torch.full((64,), 2.0))
    errors = {trial.config["how"]: trial.error for trial in function.trials}
    assert errors[GOOD] == ""
    assert errors[ABORT] == "ProcessEndedError: its process ended: SIGABRT (Aborted)"
    assert errors[HANG] == f"TileError: took longer than {SECONDS} s"
    assert errors[MEMORY].endswith("and there is no memory for it")
    assert "no_such_function_anywhere" in errors[REFUSED]
    assert errors[ODD] == "ValueError: no such kernel"
    assert errors[WRONG].startswith("CheckError: the result disagrees with the reference in 64 of")
    assert "7 points, 6 failed" in repr(function.results)
    store = default_store()
    assert store is not None
    with closing(sqlite3.connect(store.path)) as connection:
        kept = {row[0] for row in connection.execute("select config from trials").fetchall()}
    # there may be memory another time
    assert kept == {repr({"how": kind}) for kind in (GOOD, ABORT, HANG, REFUSED, WRONG)}


def test_failures_that_are_kept_answer_the_next_search(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned([FAULT, GOOD])(64)

    def refuse(*given: Any) -> Any:
        raise AssertionError("nothing is left to measure")

    monkeypatch.setattr(measuring, "_apart", refuse)
    again = tuned([FAULT, GOOD])
    again(64)
    assert [trial.is_stored for trial in again.trials] == [True, True]
    assert again.trials[0].error == (
        "ProcessEndedError: its process ended: SIGSEGV (Segmentation fault); "
        f"on {date.today()}, not tried again: pass retry=True"
    )


def test_what_took_too_long_is_tried_again_with_more_time_or_where_one_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[float] = []

    def apart(process: Any, left: Any, setting: Any, function: Any, given: Any) -> Any:
        if function is measuring._begin and setting.timeout < 60:
            tried.append(setting.timeout)
            return measuring._too_long(setting)
        return measuring.Outcome("here", latency=1.0)

    monkeypatch.setattr(measuring, "_apart", apart)

    def error(timeout: float, **options: Any) -> str:
        function = tuned([GOOD], timeout=timeout, skip_check=True, **options)
        with contextlib.suppress(tw.TileError):
            function(64)
        return str(function.trials[0].error)

    known = f"; on {date.today()}, not tried again: pass retry=True or a longer timeout"
    assert error(15, top=1) == "TileError: took longer than 15 s"  # the model's turn was enough
    assert error(15) == error(10) == error(15, top=1) == f"TileError: took longer than 15 s{known}"
    assert tried == [15]
    assert error(20) == "TileError: took longer than 20 s"
    assert error(15) == f"TileError: took longer than 20 s{known}"
    assert error(15, retry=True) == "TileError: took longer than 15 s"
    assert tried == [15, 20, 15]
    assert error(60) == error(15) == ""  # a time is an answer for everybody


def test_what_may_pass_is_not_kept() -> None:
    """Data, arguments and devices may be others another time; a kernel is always the same."""
    faults = {
        Fault.OTHER: [
            *(tw.ArgumentError("no"), OutOfBoundsError("no"), MemoryError()),
            DeviceUnavailableError("no"),
        ],
        Fault.CHECK: [CheckError("no")],
        Fault.KERNEL: [tw.UnsupportedError("no"), ResourceError("no")],
    }
    for fault, errors in faults.items():
        assert [measuring._fault_of(error) for error in errors] == [fault] * len(errors)


def add_one(A, block: int = 8):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            A[bx * block + i] = A[bx * block + i] + 1.0


def test_tensors_of_the_call_travel_and_stay_as_they_are() -> None:
    """What a kernel writes into its arguments is compared, too."""

    def make(reference: Any) -> Any:
        configs = [{"block": 16}, {"block": 32}]
        return tw.autotune(configs, warmup=0, rep=0.1, ref_prog=reference)(tw.jit(add_one))

    a = torch.zeros(50)
    with pytest.raises(tw.TileError, match="none of the 2 configurations of 'add_one'"):
        make(lambda a: None)(a)
    assert torch.equal(a, torch.zeros(50))
    right = make(lambda a: a.add_(1))
    right(a)
    assert torch.equal(a, torch.ones(50))
    assert [trial.error for trial in right.trials] == ["", ""]


def test_what_cannot_be_sent_is_said() -> None:
    class Odd:
        shape, dtype = (64,), "float32"

        def __reduce__(self) -> Any:
            raise TypeError("no")

        def __deepcopy__(self, memo: Any) -> Any:
            return self

    with tw.set_autotune_inputs(Odd()), pytest.raises(tw.TileError) as caught:
        tw.autotune([{"how": GOOD}])(tw.jit(out_idx=[-1])(behaving))(64)
    assert caught.value.hint is not None
    assert "an argument cannot be sent to another process: no" in caught.value.hint


class Log:
    """What is done when, by a clock that counts events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, latencies: dict[int, float]) -> None:
        self.events: list[tuple[str, str]] = []
        self.latencies = latencies
        self.together = threading.Barrier(2)
        self._lock = threading.Lock()
        monkeypatch.setattr(measuring, "_apart", self)
        monkeypatch.setattr(processor, "core_count", lambda: 2)

    def note(self, kind: str, step: str) -> int:
        """How often this happened before."""
        with self._lock:
            self.events.append((kind, step))
            return self.events.count((kind, step)) - 1

    def __call__(
        self, process: Any, left: Any, setting: Any, function: Any, given: tuple[Any, ...]
    ) -> measuring.Outcome:
        step = "compile" if function is measuring._begin else str(given[0])
        before = self.note("begin", step)
        if step == "compile" and before < 2:
            self.together.wait(timeout=60)  # the first two compile at once, or this fails
        else:  # later ones may wait for each other's measurements
            threading.Event().wait(0.05)  # time for another one to begin, if it may
        self.note("end", step)
        return measuring.Outcome("here", latency=1.0)


def test_two_compile_at_once_and_one_measures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, {})
    function = tw.autotune([{"how": at} for at in (0, 1, 2, 3)], store=False)(
        tw.jit(out_idx=[-1])(behaving)
    )
    function.compile(64)
    assert sum(event == ("end", "measure") for event in log.events) == 4
    running: list[str] = []
    for kind, step in log.events:
        if kind == "begin":
            assert "measure" not in running, log.events
            assert step != "measure" or not running, log.events
            running.append(step)
        else:
            running.remove(step)


def test_a_sweep_that_measures_has_rows_for_failures_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tw.Kernel, "causes", property(lambda kernel: None))
    seen: list[tuple[int, int]] = []
    swept = tw.sweep(
        tw.jit(out_idx=[-1])(behaving),
        {"how": [GOOD, FAULT, ODD]},
        constants={"N": 64},
        bench=3,
        progress=lambda *at: seen.append(at),
    )
    good, fault, odd = swept.points
    assert good.time_us > 0 and good.error == ""
    assert fault.error == "ProcessEndedError: its process ended: SIGSEGV (Segmentation fault)"
    assert odd.error == "ValueError: no such kernel"
    assert seen == [(done, 6) for done in (0, 1, 2, 4, 5)]  # one has nothing to measure


# Takes turns, and writes down when, by the order of lines in a file.
TURNS = """
import sys, time
from pathlib import Path
from tileworkbench.tuning.turns import compiling, measuring
folder, number = Path(sys.argv[1]), int(sys.argv[2])
(folder / f"ready{number}").touch()
while len(list(folder.glob("ready*"))) < 3:
    time.sleep(0.01)
for at in range(20):
    kind = (compiling, measuring)[(at + number) % 2]
    with kind(), open(folder / "log", "a") as file:
        print("begin", kind.__name__, file=file, flush=True)
        time.sleep(0.002)
        print("end", kind.__name__, file=file, flush=True)
"""


def test_turns_hold_between_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TURNS, str(tmp_path)]
    started = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [each.wait() for each in started] == [0, 0, 0]
    running: list[str] = []
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 3 * 20 * 2
    for line in lines:
        kind, step = line.split()
        if kind == "end":
            running.remove(step)
            continue
        assert "measuring" not in running and (step != "measuring" or not running), lines
        running.append(step)


def test_a_lock_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tileworkbench.tuning import turns

    monkeypatch.setattr(turns, "lock_file", lambda: tmp_path)
    with pytest.raises(tw.UnsupportedError) as caught, turns.measuring():
        pass
    assert str(caught.value) == (
        f"nothing can be measured, since '{tmp_path}' cannot be opened: Is a directory\n"
        "hint: name another folder for temporary files in TMPDIR"
    )


class TestProcess:
    """The process itself."""

    def test_it_answers_again_and_again(self) -> None:
        process = Process()
        first = process.call(os.getpid, seconds=60)
        assert first != os.getpid() and process.call(os.getpid, seconds=60) == first
        with pytest.raises(ChildError) as caught:
            process.call(int, "x", seconds=60)
        assert caught.value.message.startswith("ValueError: invalid literal for int()")
        assert process.call(os.getpid, seconds=60) == first
        process.close()
        with pytest.raises(ProcessEndedError, match="it was stopped"):
            process.call(os.getpid, seconds=60)

    def test_it_starts_again_after_an_end(self) -> None:
        process = Process()
        first = process.call(os.getpid, seconds=60)
        with pytest.raises(ProcessEndedError) as caught:
            process.call(os._exit, 3, seconds=60)
        assert caught.value.cause == "exit status 3"
        with pytest.raises(ProcessEndedError) as caught:
            process.call(signal.pause, seconds=0.1)
        assert caught.value.timed_out and caught.value.message == "took longer than 0.1 s"
        assert process.call(os.getpid, seconds=60) != first
        process.close()

    def test_arguments_that_are_large_or_cannot_be_sent(self) -> None:
        process = Process()
        with pytest.raises(tw.TileTypeError) as caught:
            process.call(len, threading.Lock(), seconds=60)
        assert str(caught.value) == (
            "an argument cannot be sent to another process: cannot pickle '_thread.lock' object\n"
            "hint: pass numpy arrays, tensors of PyTorch or numbers"
        )
        assert process.call(len, bytes(20_000_000), seconds=60) == 20_000_000
        process.close()

    def test_it_ends_with_the_process_that_started_it(self, tmp_path: Path) -> None:
        code = (
            "import os, signal, threading\n"
            "from tileworkbench.isolation.process import Process\n"
            "process = Process()\n"
            "print(process.call(os.getpid, seconds=60), flush=True)\n"
            "threading.Thread(target=process.call, args=(signal.pause,), "
            "kwargs={'seconds': 600}, daemon=True).start()\n"
            "threading.Event().wait(0.5)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        pid = int(done.stdout)
        for _ in range(600):
            state = _state(pid)
            if state in ("", "Z"):
                return
            threading.Event().wait(0.1)
        raise AssertionError(f"process {pid} is still there: {state}")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@contextmanager
def _interrupt_when(condition: threading.Event) -> Iterator[None]:
    """Send this process what Ctrl-C sends, as soon as `condition` holds."""

    def send() -> None:
        if condition.wait(60):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    yield
    thread.join()


def test_an_interrupt_keeps_what_was_measured_and_stops_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processor, "core_count", lambda: 1)
    first = threading.Event()
    note = courses.Course._note

    def tell(course: Any, place: int, trial: Any) -> None:
        note(course, place, trial)
        first.set()

    monkeypatch.setattr(courses.Course, "_note", tell)
    monkeypatch.setattr(courses.Course, "rank", lambda course: None)  # the good one goes first
    function = tuned([GOOD, HANG], timeout=600)
    with _interrupt_when(first), pytest.raises(KeyboardInterrupt) as caught:
        function(64)
        threading.Event().wait(60)
    assert "interrupted after 1 of 2 configurations of 'behaving'" in str(caught.value)
    assert [trial.config for trial in function.trials] == [{"how": GOOD}]
    assert not measuring._idle.get(os.getpid()) or all(
        not process.is_closed for process in measuring._idle[os.getpid()]
    )
