"""Random tile programs on the threads of a GPU's block: every pass keeps their meaning, and so does
the emitted CUDA, executed from its PTX.

A program may be refused with an error that says why: a conflict of layouts, a product that no
partition of warps covers, an exchange where no barrier can be.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.properties.programs import Sample, samples
from tests.properties.test_programs import assert_same, run
from tests.tiers import examples
from tileworkbench.compiler.diagnostics import LayoutError, TileValueError, UnsupportedError
from tileworkbench.compiler.driver import compile_program, lower_program
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.target import parse_target

REFUSALS = (LayoutError, TileValueError, UnsupportedError)


@settings(max_examples=examples(40))
@given(samples())
def test_passes_keep_results(sample: Sample) -> None:
    expected = run(sample.program, sample).arrays
    try:
        snapshots = lower_program(sample.program, parse_target("sim:sm_80"))
    except REFUSALS:
        return
    for snapshot in snapshots:
        if snapshot.changed:
            assert parse(print_program(snapshot.program)) == snapshot.program, snapshot.name
            assert_same(run(snapshot.program, sample).arrays, expected)


@pytest.mark.nvrtc
@settings(max_examples=examples(12))
@given(samples())
def test_executed_ptx_agrees_with_the_simulator(sample: Sample) -> None:
    expected = run(sample.program, sample).arrays
    try:
        kernel = compile_program(sample.program, "ptx:sm_80")
    except REFUSALS:
        return
    passed = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in sample.arguments.items()
    }
    kernel(*[passed[param.name] for param in sample.program.params])
    found = {name: value for name, value in passed.items() if isinstance(value, np.ndarray)}
    assert_same(found, {name: expected[name] for name in found})
