"""A matmul of stage SIMT against numpy, and small mistakes in it, each of which must be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sim.simt_matmul import Matmul
from tileworkbench.compiler.diagnostics import OutOfBoundsError, RunError
from tileworkbench.compiler.sim import SimReport, SimResult, simulate

RIGHT = Matmul()


def operands(kind: Matmul) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(7)
    a = random.standard_normal((kind.m, kind.k)).astype(np.float16)
    return a, random.standard_normal((kind.k, kind.n)).astype(np.float16)


def run(kind: Matmul) -> SimResult:
    a, b = operands(kind)
    return simulate(kind.program(), {"A": a, "B": b})


def is_right(kind: Matmul, result: SimResult) -> bool:
    a, b = operands(kind)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return bool(np.allclose(result.outputs[0].astype(np.float64), expected, atol=0.05, rtol=1e-2))


@pytest.mark.parametrize("stage", ["planned", "simt"])
@pytest.mark.parametrize(
    "kind",
    [
        RIGHT,
        replace(RIGHT, m=128, n=128, block_n=128),
        replace(RIGHT, k=32),
        replace(RIGHT, k=64, stages=2, pending=0),
        replace(RIGHT, k=192, stages=4, pending=2),
    ],
    ids=["3 stages", "4 blocks", "fewer steps than stages", "2 stages", "4 stages"],
)
def test_the_product_is_right_and_nothing_is_found(kind: Matmul, stage: str) -> None:
    if kind.trips < kind.stages - 1:
        kind = replace(kind, stages=2, pending=0)
    result = run(replace(kind, stage=stage))
    assert result.report.ok, str(result.report)
    assert is_right(kind, result)


# (what is wrong, the change, what shows it: a kind of finding, "raises", or "result")
MUTANTS = [
    ("no barrier", {"barrier": "pass"}, "race"),
    ("one wait less", {"pending": 2}, "uninitialised"),
    ("a copy that overtakes", {"version_load": "(k + 2) % {s}"}, "race"),
    ("another version is read", {"version_load": "(k + 1) % {s}"}, "uninitialised"),
    ("no guard of the last copies", {"guard": "k >= 0"}, "raises"),
    ("swizzle on one side", {"swizzle_load_b": "{c}"}, "result"),
    ("another swizzle on one side", {"swizzle_load_b": "({c} ^ {r} % 4)"}, "result"),
    ("not transposed", {"transpose_b": False}, "result"),
    ("wrong rows", {"row_a": "tx % 8"}, "result"),
    ("wrong chunk", {"chunk_a": "tx % 16 // 8"}, "result"),
    ("wrong lane map of the result", {"column_c": "tx % 2 * 2"}, "race"),
    ("a barrier in divergent code", {"barrier": "if tx < 16:\n        T.sync_threads()"}, "raises"),
    ("a predicate that drops rows", {"predicate": ", predicate=tx < 64"}, "result"),
]


@pytest.mark.parametrize(
    ("change", "sign"), [mutant[1:] for mutant in MUTANTS], ids=[mutant[0] for mutant in MUTANTS]
)
def test_a_mistake_is_found(change: dict[str, Any], sign: str) -> None:
    kind = replace(RIGHT, **change)
    if sign == "raises":
        with pytest.raises((RunError, OutOfBoundsError)):
            run(kind)
        return
    result = run(kind)
    if sign == "result":
        assert result.report.ok, str(result.report)
        assert not is_right(kind, result)
    else:
        assert sign in {str(finding.kind) for finding in result.report.findings}


def factors(report: SimReport) -> dict[tuple[str, str], float]:
    return {(found.buffer, found.kind): found.factor for found in report.accesses}


def test_swizzled_accesses_have_no_conflicts_and_plain_ones_do() -> None:
    plain = replace(RIGHT, swizzle_store_b="{c}", swizzle_load_b="{c}")
    assert factors(run(RIGHT).report) == {
        ("A", "cp.async"): 1.0,
        ("A_shared", "cp.async"): 1.0,
        ("B", "cp.async"): 1.0,
        ("B_shared", "cp.async"): 1.0,
        ("A_shared", "ldmatrix.x4"): 1.0,
        ("B_shared", "ldmatrix.x4.trans"): 1.0,
        ("C", "store"): 2.0,  # 16 of the 32 bytes of each sector
    }
    result = run(plain)
    assert is_right(plain, result)
    assert factors(result.report)["B_shared", "ldmatrix.x4.trans"] == 8.0  # rows 128 bytes apart


def test_what_the_warps_executed_is_counted() -> None:
    report = run(RIGHT).report
    steps, warps = 4, 4
    assert dict(report.instructions) == {
        "global cp.async": steps * 4 * warps,
        "wait": steps * warps,
        "barrier": steps * warps,
        "ldmatrix": steps * 2 * (2 + 2) * warps,
        "mma": steps * 2 * 2 * 4 * warps,
        "global store": 2 * 4 * 2 * warps,
    }
    assert report.barriers == steps
    lines = [str(found) for found in report.accesses]
    assert lines[4] == "A_shared: load (ldmatrix.x4) 1.00x"
    assert lines[1] == "A_shared: store (cp.async) 1.00x"
