"""The whole text of what a run finds: the line, who met whom, and what to do."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.capability import require
from tests.frontend.golden import define
from tests.messages.test_calls import rendered
from tests.sim.threads import report
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import DeadlockError, RunError
from tileworkbench.compiler.sim.problems import PTX_PROBLEMS, remedy


def compiled(body: str, grid: int = 1, target: str = "sim:sm_80") -> tw.Kernel:
    """The kernel with these lines over two tensors of 128 elements, with 64 threads."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = (
        '@T.prim_func\ndef kernel(A: T.Tensor((128,), "float32"), '
        'B: T.Tensor((128,), "float32")):\n'
        f"    with T.Kernel({grid}, threads=64) as bx:\n{lines}"
    )
    made: tw.Kernel = tw.compile(define(source)["kernel"], target=target)
    return made


def running(body: str, grid: int = 1, target: str = "sim:sm_80") -> Callable[[], Any]:
    """A call of it."""
    kernel = compiled(body, grid, target)
    a = np.arange(-64, 64, dtype=np.float32)
    return lambda: kernel(a, np.zeros(128, np.float32))


@contextmanager
def interrupting_once_busy() -> Iterator[None]:
    """Ctrl-C comes once this process has computed for a while, however long others let it wait."""
    begun, done = time.process_time(), threading.Event()

    def send() -> None:
        while time.process_time() < begun + 0.2:
            if done.wait(0.001):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


SOME_WRITE = (
    'S = T.alloc_shared((64,), "float32")\n'
    "for i in T.Parallel(64):\n"
    "    if A[i] > 100.0:\n"
    "        S[i] = A[i]\n"
    "for i in T.Parallel(64):\n"
    "    B[bx * 64 + i] = S[i]"
)


def test_two_threads_that_write_one_element() -> None:
    run = running("tx = T.get_thread_binding()\nB[tx // 2] = A[tx]")
    assert rendered(run, tw.RaceError) == (
        "RaceError: 'B[0]' in block (0), threads 0 and 1: two threads write this element, "
        "unordered by a barrier\n"
        "  --> kernel.py, line 5\n"
        "5 | B[tx // 2] = A[tx]\n"
        "  | ^^^^^^^^^^^^^^^^^^\n"
        "hint: let one thread write it, put T.sync_threads() between the writes, or add to it with "
        "T.atomic_add"
    )


def test_two_accesses_on_two_lines() -> None:
    body = 'S = T.alloc_shared((64,), "float32", offset=0)\nS[tx] = A[tx]\nB[tx] = S[63 - tx]'
    a = np.arange(64, dtype=np.float32)
    found = report("A: (64,) float32; B: (64,) float32", body, 64, A=a, B=a.copy()).error()
    assert found is not None and found.render() == (
        "RaceError: 'S[63]' in block (0), threads 0 and 63: one thread reads what another one "
        "writes, unordered by a barrier\n"
        "  --> k.py, line 3\n"
        "note: the other access\n"
        "  --> k.py, line 2\n"
        "hint: put T.sync_threads() between the two accesses, or add to it with T.atomic_add"
    )


def test_two_iterations_that_meet() -> None:
    kernel = compiled("for i in T.Parallel(64):\n    B[i // 2] = A[i]", target="cpu")
    found = kernel.simulate(np.arange(128, dtype="f"), np.zeros(128, "f")).report.error()
    assert found is not None and found.render() == (
        "RaceError: 'B[0]' in block (0), iterations (0) and (1): two iterations of one parallel "
        "loop write this element\n"
        "  --> kernel.py, line 5\n"
        "5 | B[i // 2] = A[i]\n"
        "  | ^^^^^^^^^^^^^^^^\n"
        "hint: let each iteration write elements of its own, or add to it with T.atomic_add"
    )


def test_two_blocks_that_write_one_element() -> None:
    run = running("for i in T.Parallel(64):\n    B[i] = A[i] + bx", grid=2)
    assert rendered(run, tw.RaceError) == (
        "RaceError: 'B[0]' in blocks (1) and (0): two blocks write this element\n"
        "  --> kernel.py, line 5\n"
        "5 | B[i] = A[i] + bx\n"
        "  | ^^^^^^^^^^^^^^^^\n"
        "hint: let each block write elements of its own, or add to it with T.atomic_add"
    )


def test_further_findings_are_notes() -> None:
    run = running("tx = T.get_thread_binding()\nB[tx // 2] = A[tx]", grid=2)
    assert (
        "note: 'B[0]' in blocks (1) and (0): two blocks write this element (kernel.py, line 5), "
        "64 times\nhint: "
    ) in rendered(run, tw.RaceError)


def test_an_element_that_nobody_wrote() -> None:
    place = (
        "\n  --> kernel.py, line 9\n"
        "9 | B[bx * 64 + i] = S[i]\n"
        "  | ^^^^^^^^^^^^^^^^^^^^^\n"
        "hint: write it first, with T.clear, T.fill or T.copy"
    )
    assert rendered(running(SOME_WRITE), RunError) == (
        f"RunError: 'S[0]' in block (0), thread 0: read before it is written{place}"
    )
    require("nvrtc", missing_nvrtc())
    assert rendered(running(SOME_WRITE, target="ptx:sm_80"), RunError).endswith(place)


def test_threads_that_wait_for_ever() -> None:
    body = "tx = T.get_thread_binding()\nif A[tx] > -64.0:\n    T.sync_threads()\nB[tx] = 1.0"
    run = running(body)
    assert rendered(run, DeadlockError) == (
        "DeadlockError: block (0) waits for ever: threads 1-63 wait at barrier 0, where 63 of 64 "
        "threads have arrived (kernel.py, line 6); thread 0 has ended\n"
        "  --> kernel.py, line 6\n"
        "6 | T.sync_threads()\n"
        "  | ^^^^^^^^^^^^^^^^\n"
        "hint: let all threads that a barrier waits for reach it, whatever branch they take"
    )


@pytest.mark.parametrize("kind", list(PTX_PROBLEMS))
def test_what_the_ptx_interpreter_finds_has_a_remedy(kind: str) -> None:
    assert remedy(PTX_PROBLEMS[kind])


@pytest.mark.parametrize("target", ["sim:sm_80", "ptx:sm_80"])
def test_a_run_that_ctrl_c_stops(target: str) -> None:
    if target.startswith("ptx"):
        require("nvrtc", missing_nvrtc())
    run = running("while A[0] < 0.0:\n    B[0] = 1.0", target=target)
    with pytest.raises(tw.Interrupted) as caught, interrupting_once_busy():
        run()
    said, *place = caught.value.render().splitlines()
    assert said == "Interrupted: 'kernel' was interrupted; its outputs are incomplete"
    # The simulator knows where it was.
    assert bool(place) == target.startswith("sim")
    assert not place or place[0] in ("  --> kernel.py, line 4", "  --> kernel.py, line 5")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
