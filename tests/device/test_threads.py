from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from types import ModuleType

import pytest

from tests.device.kernels import COUNT, launcher
from tileworkbench.compiler.device.host import processor, threads
from tileworkbench.compiler.diagnostics import ArgumentError

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def run_script(text: str) -> str:
    """The standard output of a Python process that runs `text` with success."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_default_number_is_that_of_torch(
    monkeypatch: pytest.MonkeyPatch, default_threads: None
) -> None:
    torch = ModuleType("torch")
    torch.get_num_threads = lambda: 11  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert threads.get_num_threads() == 11
    threads.set_num_threads(2)
    assert threads.get_num_threads() == 2
    threads.set_num_threads(None)
    assert threads.get_num_threads() == 11


@pytest.mark.parametrize("present", [True, False])
def test_default_number_without_torch_is_that_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, present: bool
) -> None:
    if present:  # being imported by another thread just now: the module exists and is empty
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    else:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert threads.get_num_threads() == processor.core_count()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "the number of threads must be at least 1, not 0"),
        (-1, "the number of threads must be at least 1, not -1"),
        (2.0, "the number of threads must be an integer, not '2.0'"),
        (True, "the number of threads must be an integer, not 'True'"),
    ],
)
def test_wrong_number_of_threads(value: int, message: str) -> None:
    before = threads.get_num_threads()
    with pytest.raises(ArgumentError) as raised:
        threads.set_num_threads(value)
    assert str(raised.value) == message
    assert threads.get_num_threads() == before


def test_team_follows_the_number_of_threads(team: str) -> None:
    run, count = launcher(COUNT), ctypes.c_int64(0)
    kinds = {"openmp": threads.OpenMPTeam, "pool": threads.PoolTeam, "python": threads.PythonTeam}
    for number in (2, 5, 1, 3):
        threads.set_num_threads(number)
        run((ctypes.addressof(count),), 40)
        if number > 1:
            assert type(threads._team) is kinds[team]
            assert getattr(threads._team, "threads", number) == number
    assert count.value == 160


def test_team_is_kept_between_launches(team: str) -> None:
    first = threads.team_for(3)
    assert threads.team_for(3) is first


def test_openmp_is_found_once_torch_has_brought_it() -> None:
    pytest.importorskip("torch")
    output = run_script("""
        from tests.device.kernels import COUNT, launcher
        from tileworkbench.compiler.device.host import threads
        import ctypes
        threads.set_num_threads(2)
        run, count = launcher(COUNT), ctypes.c_int64(0)
        run((ctypes.addressof(count),), 4)
        print(type(threads._team).__name__)
        import torch
        run((ctypes.addressof(count),), 4)
        print(type(threads._team).__name__ if threads.find_openmp() else "OpenMPTeam", count.value)
    """)
    assert output.split() == ["PoolTeam", "OpenMPTeam", "8"]


def test_no_openmp_where_the_system_lists_no_libraries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(threads, "_MAPS", threads.Path(str(tmp_path)) / "absent")
    assert threads.find_openmp() is None


def test_libraries_without_the_entry_point_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    maps = threads.Path(str(tmp_path)) / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 42    /nowhere/libgomp.so.1\n"
        "7f02-7f03 r-xp 00000000 08:01 43    /usr/lib/libc.so.6\n7f04-7f05 rw-p 0 00:00 0\n"
    )
    monkeypatch.setattr(threads, "_MAPS", maps)
    assert threads.find_openmp() is None


FORK = """
import ctypes, os, sys
from tests.device.kernels import COUNT, launcher
from tileworkbench.compiler.device.host import threads
{setup}
threads.set_num_threads(3)
run, count = launcher(COUNT), ctypes.c_int64(0)
run((ctypes.addressof(count),), 30)
child = os.fork()
if child == 0:
    run((ctypes.addressof(count),), 30)
    run((ctypes.addressof(count),), 30)
    good = count.value == 90 and type(threads._team).__name__ == "PoolTeam"
    os._exit(0 if good else 1)
_, status = os.waitpid(child, 0)
run((ctypes.addressof(count),), 30)
print(os.waitstatus_to_exitcode(status), count.value)
"""


OPENMP_IN_USE = "import torch; torch.ones(2000, 2000) @ torch.ones(2000, 9)"


@needs_fork
@pytest.mark.parametrize("setup", ["", OPENMP_IN_USE], ids=["pool", "openmp"])
def test_forked_child_builds_threads_of_its_own(setup: str) -> None:
    if setup:
        pytest.importorskip("torch")
    assert run_script(FORK.format(setup=setup)).split() == ["0", "60"]


BESIDE = """
import gc, os, sys, threading, types
import tileworkbench as tw
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler import driver
from tileworkbench.compiler.device.host import llvm
from tileworkbench.compiler.runtime import forks

def program(number):
    return parse(f'''
@T.program(stage="tile")
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as bx:
        for i in T.Parallel(8):
            A[i] = {number}.0
''')

def compile(number):
    return driver.compile_program(program(number), "cpu")

started, may_end, order = threading.Event(), threading.Event(), []

def fork():
    child = os.fork()
    if child == 0:
        import numpy as np
        array = np.zeros(8, np.float32)
        compile(2)(array)
        assert gc.isenabled() and array.tolist() == [2.0] * 8
        os._exit(0)
    order.append("forked")
    may_end.set()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
{setup}
thread = threading.Thread(target=work)
thread.start()
started.wait()
if "{name}" != "locks":  # the fork waits for it
    threading.Timer(0.2, may_end.set).start()
status = fork()
thread.join()
compile(3)
print(status, *order)
"""

HOLDERS = {
    "llvmlite": """
compile(1)

def work():
    import llvmlite.binding.ffi as ffi
    with ffi.lib._lock:
        started.set()
        may_end.wait()
        order.append("ended")
""",
    "a compilation": """
compiled = driver.compile_for

def slow(compilation):
    if threading.current_thread() is thread:
        started.set()
        may_end.wait()
        order.append("ended")
    return compiled(compilation)

driver.compile_for = slow
work = lambda: compile(1)
""",
    "locks": """
compile(1)

def work():
    with llvm._link_lock, driver._memory_lock:
        started.set()
        may_end.wait()
        order.append("ended")
""",
}


@needs_fork
@pytest.mark.parametrize("name", HOLDERS)
def test_a_child_forked_beside_a_thread_that_compiles_can_compile(name: str) -> None:
    status, *order = run_script(
        BESIDE.replace("{setup}", HOLDERS[name]).replace("{name}", name)
    ).split()
    assert status == "0"
    # Who is in the middle of something ends it first; a mere lock is free in the child.
    assert order == (["forked", "ended"] if name == "locks" else ["ended", "forked"])


@needs_fork
def test_forks_while_threads_compile_without_end() -> None:
    script = """
compile(1)
ends = threading.Event()

def work():
    number = 10
    while not ends.is_set():
        compile(number)
        number += 1
        started.set()
"""
    end = """
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
started.wait()
print(*[fork() for _ in range(5)])
ends.set()
"""
    text = BESIDE.replace("{setup}", script)
    assert run_script(text.partition("thread = ")[0] + end).split() == ["0"] * 5
