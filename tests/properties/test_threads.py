"""Random kernels of single threads: native code, the threads of a GPU and its PTX do what the
simulator does thread by thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.differential.harness import Array, run_native
from tests.frontend.golden import program_of
from tests.properties.thread_programs import RoleProgram, ThreadProgram
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.sim import simulate

SEEDS = [*range(16), *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(16, 200)]]


def threads_of(seed: int) -> tuple[str, dict[str, Array]]:
    threads = (32, 64, 96)[seed % 3]
    rng = np.random.default_rng(seed)
    return ThreadProgram(seed, threads).source, {
        "A": rng.integers(-20, 20, (2, threads)).astype(np.int32),
        "B": np.zeros((2, threads, 5), np.int32),
        "H": np.zeros(8, np.int32),
    }


def roles_of(seed: int) -> tuple[str, dict[str, Array]]:
    program = RoleProgram(seed)
    rng = np.random.default_rng(seed)
    return program.source, {
        "A": rng.integers(-50, 50, (program.steps, 64)).astype(np.int32),
        "B": np.zeros((program.steps, 64), np.int32),
        "H": np.zeros(8, np.int32),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_in_loops_do_what_threads_do(seed: int) -> None:
    compare(*threads_of(seed), stages=seed % 4 == 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_roles_that_take_turns_do_what_roles_do(seed: int) -> None:
    compare(*roles_of(seed), stages=seed % 4 == 0)


@pytest.mark.nvrtc
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [threads_of, roles_of], ids=["threads", "roles"])
def test_threads_of_a_gpu_do_what_threads_do(
    kind: Callable[[int], tuple[str, dict[str, Array]]], seed: int
) -> None:
    source, arguments = kind(seed)
    program = program_of(source)
    expected = simulate(program, arguments).arrays
    for target in ("sim:sm_80", "ptx:sm_80"):
        found = run_native(program, arguments, target)
        for name in ("B", "H"):
            np.testing.assert_array_equal(found[name], expected[name], f"{target}\n{source}")


def compare(source: str, arguments: dict[str, Array], stages: bool) -> None:
    """The simulator thread by thread, native code and, with `stages`, the program of loops give the
    same.
    """
    program = program_of(source)
    assert parse(print_program(program)) == program
    expected = simulate(program, arguments)
    assert expected.report.ok, f"{expected.report}\n{source}"
    found = {"native": run_native(program, arguments, "cpu")}
    if stages:
        steps = lower_program(program, resolve_target("cpu"))
        split = next(step for step in steps if step.changed)
        result = simulate(split.program, arguments, signature=program)
        assert result.report.ok, f"{result.report}\n{source}"
        found[split.name] = result.arrays
    for stage, arrays in found.items():
        for name in ("B", "H"):
            np.testing.assert_array_equal(arrays[name], expected.arrays[name], f"{stage}\n{source}")
