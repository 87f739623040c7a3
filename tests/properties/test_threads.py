"""Random kernels of single threads: native code does what the simulator does thread by thread."""

from __future__ import annotations

import numpy as np
import pytest

from tests.differential.harness import run_native
from tests.frontend.golden import program_of
from tests.properties.thread_programs import ThreadProgram
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.sim import simulate

SEEDS = [*range(24), *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(24, 300)]]


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_in_loops_do_what_threads_do(seed: int) -> None:
    threads = (32, 64, 96)[seed % 3]
    source = ThreadProgram(seed, threads).source
    program = program_of(source)
    assert parse(print_program(program)) == program
    rng = np.random.default_rng(seed)
    arguments = {
        "A": rng.integers(-20, 20, (2, threads)).astype(np.int32),
        "B": np.zeros((2, threads, 5), np.int32),
        "H": np.zeros(8, np.int32),
    }
    found = simulate(program, arguments)
    assert found.report.ok, f"{found.report}\n{source}"
    native = run_native(program, arguments, "cpu")
    split = next(step for step in lower_program(program, resolve_target("cpu")) if step.changed)
    stages = {"native": native}
    if seed % 4 == 0:
        result = simulate(split.program, arguments, signature=program)
        assert result.report.ok, f"{result.report}\n{source}"
        stages[split.name] = result.arrays
    for stage, arrays in stages.items():
        for name in ("B", "H"):
            np.testing.assert_array_equal(arrays[name], found.arrays[name], f"{stage}\n{source}")
