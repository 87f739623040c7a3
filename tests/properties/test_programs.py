"""Properties of random tile programs: text, passes and native code keep their meaning."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as hs

from tests.differential.harness import run_native
from tests.properties.programs import Sample, samples
from tests.tiers import examples
from tileworkbench.compiler.driver import lower_program
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.sim import SimOptions, SimResult, simulate
from tileworkbench.compiler.target import Target

TARGETS = [
    Target("cpu", "avx512", vector_bits=512, dot_int8=True, dot_bfloat16=True),
    Target("cpu", "avx2", vector_bits=256),
    Target("cpu", "generic", vector_bits=128),
]


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        np.testing.assert_array_equal(
            found[name].astype(np.float64), value.astype(np.float64), name
        )


def run(program: Program, sample: Sample, seed: int | None = None) -> SimResult:
    result = simulate(
        program, sample.arguments, options=SimOptions(seed=seed), signature=sample.program
    )
    assert result.report.ok, f"{result.report}\n{print_program(program)}"
    return result


@settings(max_examples=examples(120))
@given(samples())
def test_text_says_everything(sample: Sample) -> None:
    verify(sample.program)
    text = print_program(sample.program)
    assert parse(text) == sample.program
    assert print_program(parse(text)) == text


@settings(max_examples=examples(60))
@given(samples(), hs.integers(0, 99))
def test_blocks_run_in_any_order(sample: Sample, seed: int) -> None:
    assert_same(run(sample.program, sample, seed).arrays, run(sample.program, sample).arrays)


@settings(max_examples=examples(40))
@given(samples(), hs.sampled_from(TARGETS))
def test_passes_keep_results(sample: Sample, target: Target) -> None:
    expected = run(sample.program, sample).arrays
    for snapshot in lower_program(sample.program, target):  # verifies after each pass
        if snapshot.changed:
            assert parse(print_program(snapshot.program)) == snapshot.program, snapshot.name
            assert_same(run(snapshot.program, sample).arrays, expected)


@settings(max_examples=examples(40))
@given(samples(), hs.sampled_from(["native", "generic"]))
def test_native_code_agrees_with_the_simulator(sample: Sample, level: str) -> None:
    expected = run(sample.program, sample).arrays
    assert_same(run_native(sample.program, sample.arguments, f"cpu:{level}"), expected)
