"""Every pass keeps the meaning of a program: the simulator gives the same results before and after.

The kernels are `kernels/*.tile`; a comment on the first line gives the symbols their values.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tolerances import epsilon
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import Rewriter, statements
from tileworkbench.compiler.ir.stmt import Seq
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.pipeline import pass_name, pipeline
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.target import Target

KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.tile"))
TARGETS = {
    "avx512": Target("cpu", "avx512", vector_bits=512, dot_int8=True, dot_bfloat16=True),
    "avx2": Target("cpu", "avx2", vector_bits=256),
    "generic": Target("cpu", "generic", vector_bits=128),
}


def symbol_values(text: str) -> dict[str, int]:
    first = text.splitlines()[0]
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", first) if "#" in first}


def random_arguments(program: Program, symbols: dict[str, int]) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for param in program.params:
        if not isinstance(param.value, Buffer):
            found[param.name] = 3
            continue
        shape = tuple(int(evaluate(extent, symbols)) for extent in param.value.shape)
        dtype = param.value.dtype
        if dtype.is_float:
            import ml_dtypes

            name = getattr(ml_dtypes, str(dtype), None) or np.dtype(str(dtype))
            found[param.name] = generator.normal(size=shape).astype(name)
        else:
            found[param.name] = generator.integers(-99, 99, shape).astype(str(dtype))
    return found


def assert_same(found: Any, expected: Any, what: str) -> None:
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected, err_msg=what)
        return
    unit = max(epsilon(expected.dtype), float(np.finfo(np.float32).eps))
    wide, reference = found.astype(np.float64), expected.astype(np.float64)
    scale = max(1.0, float(np.abs(reference).max(initial=0.0)))
    np.testing.assert_allclose(wide, reference, rtol=0, atol=64 * unit * scale, err_msg=what)


@pytest.mark.covering(1)
@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_every_stage_computes_the_same(path: Path, level: str) -> None:
    text = path.read_text()
    first = parse(text)
    verify(first)
    symbols = symbol_values(text)
    arguments = random_arguments(first, symbols)
    expected = simulate(first, arguments, symbols)
    assert expected.report.ok, str(expected.report)
    current = first
    for step in pipeline(TARGETS[level]):
        after = step(current)
        if after is current:
            continue
        current = after
        verify(current)
        result = simulate(current, arguments, symbols, signature=first)
        what = f"after {pass_name(step)}"
        assert result.report.ok, f"{what}: {result.report}"
        for name, array in expected.arrays.items():
            assert_same(result.arrays[name], array, f"'{name}' {what}")
    assert current.stage is Stage.CPU


# The others do not take their own result for granted: a condition of an `If` proves no index to be
# in range, and a vector loop is taken for one that the user wrote.
IDEMPOTENT = (
    "complete_operations",
    "check_thread_effects",
    "check_accesses",
    "simplify_expressions",
    "widen_blocks",
    "split_rows",
    "merge_k_steps",
    "serialize_pipelines",
    "lower_tile_operators",
    "flatten_buffers",
    "plan_scratch",
)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_pass_has_nothing_left_to_do_after_itself(path: Path) -> None:
    current = parse(path.read_text())
    for step in pipeline(TARGETS["avx2"]):
        current = step(current)
        if pass_name(step) in IDEMPOTENT:
            again = step(current)
            assert again is current, f"{pass_name(step)}:\n{print_program(again)}"


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_statements_keep_the_site_they_came_from(path: Path) -> None:
    """Numbered in the order written, every statement of the last stage has one of those numbers."""
    first = parse(path.read_text())
    numbers = itertools.count(1)
    number = Rewriter(
        rewrite_stmt=lambda stmt: (
            stmt if isinstance(stmt, Seq) else replace(stmt, site=next(numbers))
        )
    )
    current = replace(first, body=number(first.body))
    last = next(numbers)
    for step in pipeline(TARGETS["avx512"]):
        current = step(current)
        for stmt in statements(current.body):
            assert isinstance(stmt, Seq) or 0 < stmt.site < last, (pass_name(step), stmt)
