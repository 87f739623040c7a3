"""Ctrl-C while a kernel runs. Each case is a process of its own; the order of its events is
compared, never a time."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

PRELUDE = '''
import ctypes, dataclasses, os, signal, sys, threading, time
from tests.device.kernels import COUNT, ENDLESS, launcher
from tileworkbench.compiler.diagnostics import Interrupted
from tileworkbench.compiler.device.host import threads
# a shell may have started the tests in the background, with the signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
threads.set_num_threads(3)
started, count = ctypes.c_int64(0), ctypes.c_int64(0)
endless, counting = launcher(ENDLESS), launcher(COUNT)

def say(*words):
    print(*words, flush=True)

def interrupt_once_started(times=1):
    def work():
        while not started.value:
            time.sleep(0.001)
        say("running")
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=work, daemon=True).start()

def interrupt_once_busy():
    """Once the process has computed for a while, however long others let it wait."""
    begun = time.process_time()
    def work():
        while time.process_time() < begun + 0.2:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=work, daemon=True).start()

def run_endless(blocks):
    endless((ctypes.addressof(started),), blocks)

def run_counting():
    counting((ctypes.addressof(count),), 10)
    say("counted", count.value)
'''


def events(script: str, prelude: str = PRELUDE) -> list[str]:
    """The lines that a process running `script` says. A hang is a failure."""
    result = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


TEAMS = {
    "pool": "",
    "openmp": "import torch\n",
    "python": """
portable = dataclasses.replace(threads.dispatch(), pool=None)
threads.dispatch = lambda: portable
""",
}
STOPS = """
interrupt_once_started()
try:
    run_endless(BLOCKS)
except KeyboardInterrupt as error:
    say(type(error).__name__, "|", error)
say(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
run_counting()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt as error:
    say(type(error).__name__)
run_counting()
"""


@pytest.mark.covering(1)
@pytest.mark.parametrize("blocks", [1, 1000])
@pytest.mark.parametrize("kind", TEAMS.values(), ids=TEAMS)
def test_interrupt_stops_the_kernel_and_the_process_goes_on(kind: str, blocks: int) -> None:
    if "torch" in kind:
        pytest.importorskip("torch")
    assert events(STOPS.replace("BLOCKS", str(blocks)), PRELUDE + kind) == [
        "running",
        "Interrupted | 'test' was interrupted; its outputs are incomplete",
        "True",
        "counted 10",
        "KeyboardInterrupt",
        "counted 20",
    ]


def test_several_interrupts_stop_one_kernel() -> None:
    script = """
    sys.setswitchinterval(60)  # the thread sends all of them before this one goes on
    interrupt_once_started(times=3)
    try:
        run_endless(4)
    except KeyboardInterrupt as error:
        say(type(error).__name__)
    """
    lines = events(script)
    assert lines == ["running", "Interrupted"]


def test_handler_of_the_user_runs_too() -> None:
    script = """
    signal.signal(signal.SIGINT, lambda number, frame: say("handler", number))
    interrupt_once_started()
    try:
        run_endless(4)
    except Interrupted as error:
        say("Interrupted")
    os.kill(os.getpid(), signal.SIGINT)
    run_counting()
    """
    assert events(script) == ["running", "handler 2", "Interrupted", "handler 2", "counted 10"]


def test_interrupt_during_set_up_is_not_lost() -> None:
    script = """
    def interrupted_by(wrapper):
        real = endless._dispatch
        endless._dispatch = dataclasses.replace(real, guard_enter=wrapper(real.guard_enter))
        try:
            run_endless(4)
        except KeyboardInterrupt as error:
            say(type(error).__name__, started.value)
        endless._dispatch = real

    def kill():
        os.kill(os.getpid(), signal.SIGINT)

    interrupted_by(lambda enter: lambda: (kill(), enter()))
    interrupted_by(lambda enter: lambda: (enter(), kill()))
    run_counting()
    interrupt_once_started()
    try:
        run_endless(4)
    except KeyboardInterrupt:
        say("stopped")
    """
    assert events(script) == [
        "Interrupted 0",
        "Interrupted 0",
        "counted 10",
        "running",
        "stopped",
    ]


def test_wakeup_descriptor_is_written() -> None:
    """Event loops learn of signals by this descriptor; Python's own handler writes it."""
    script = """
    import socket
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno())
    interrupt_once_started()
    try:
        run_endless(4)
    except Interrupted:
        say("Interrupted", list(ours.recv(10)))
    """
    assert events(script) == ["running", "Interrupted [2]"]


def test_ignored_signal_stays_ignored() -> None:
    script = """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGINT)
    run_counting()
    say(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
    """
    assert events(script) == ["counted 10", "True"]


def test_launch_of_another_thread_is_not_interrupted() -> None:
    script = """
    def work():
        run_counting()
        worker_done.set()

    worker_done = threading.Event()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    say(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """
    assert events(script) == ["counted 10", "True"]


def test_process_ends_cleanly_with_idle_threads() -> None:
    script = """
    run_counting()
    """
    assert events(script) == ["counted 10"]


def test_handler_in_the_kernel_of_the_system_is_put_back() -> None:
    script = """
    def installed():
        action = ctypes.create_string_buffer(256)
        assert ctypes.CDLL(None).sigaction(2, None, action) == 0
        return action.raw[:8]

    before = installed()
    run_counting()
    say(installed() == before)
    during = []
    real = endless._dispatch
    enter = lambda: (real.guard_enter(), during.append(installed()))
    endless._dispatch = dataclasses.replace(real, guard_enter=enter)
    interrupt_once_started()
    try:
        run_endless(4)
    except Interrupted:
        say(during[0] != before, installed() == before)
    """
    assert events(script) == ["counted 10", "True", "running", "True True"]


# Loops that Ctrl-C alone ends, of every kind that code generation writes.
ENDLESS_LOOPS = {
    "count": "for i in T.serial(n):\n    v = v * 3 + i",
    "constant": "for i in T.serial(2**62):\n    v = v * 3 + i",
    "vectors": "for i in T.Parallel(n):\n    A[i] = A[i] + 1",
    "atomics": "for i in T.Parallel(n):\n    T.atomic_add(A[i % 4], 1)",
    "while": "while v >= 0:\n    v = (v + 1) % 100",
    "threads": "while v >= 0:\n    v = (v + 1) % 100\n    T.sync_threads()",
    "nest": "for i, j in T.grid(n, n):\n    v = v + i * j",
    "inside": "for p in T.serial(3):\n    for q in T.serial(2000000000):\n"
    "        for i, j in T.Parallel(9, 16):\n            T.atomic_add(A[j % 4], i)",
    "inside, counted": "for p in T.serial(3):\n    for q in T.serial(n):\n"
    "        for i, j in T.Parallel(9, 16):\n            T.atomic_add(A[j % 4], i)",
    "copy": "T.copy(A[0:n], B[0:n])",
}


@pytest.mark.parametrize("body", ENDLESS_LOOPS.values(), ids=ENDLESS_LOOPS)
def test_every_loop_can_be_interrupted(body: str, tmp_path: Path) -> None:
    kernel = f"""
import tileworkbench.language as T

@T.prim_func
def kernel(A: T.Tensor((4,), "int64"), B: T.Tensor((4,), "int64"), n: T.int64):
    with T.Kernel(1, threads=32):
        v = T.alloc_var("int64", init=0)
{textwrap.indent(body, " " * 8)}
        B[0] = v
"""
    tmp_path.joinpath("endless.py").write_text(kernel)
    script = f"""
    import sys
    sys.path.insert(0, {str(tmp_path)!r})
    import numpy as np, tileworkbench as tw
    from endless import kernel
    compiled = tw.compile(kernel, target="cpu")
    assert compiled.asm  # the native code is there
    interrupt_once_busy()
    try:
        compiled(np.zeros(4, np.int64), np.zeros(4, np.int64), 2**62)
    except KeyboardInterrupt as error:
        say(type(error).__name__)
    """
    assert events(script) == ["Interrupted"]


def test_ctrl_c_ends_a_sequence_of_launches() -> None:
    script = """
from tileworkbench.compiler.device.host.sequence import LaunchSequence, Step
steps = [Step(endless, 1, 1.0, ((0, 0),)), Step(counting, 1, 1.0, ((1, 0),))]
sequence = LaunchSequence(steps, 2, 0)
interrupt_once_started()
try:
    sequence([ctypes.addressof(started), ctypes.addressof(count)])
except KeyboardInterrupt as error:
    say(type(error).__name__)
say("counted", count.value)
say(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert events(script) == ["running", "Interrupted", "counted 0", "True"]
