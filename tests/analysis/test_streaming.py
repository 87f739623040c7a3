"""Loads that run through large tensors."""

import pytest

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.streaming import fetched_loads
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.rewrite import parameters


@pytest.mark.parametrize(
    ("dtype", "trips", "step", "found"),
    [
        ("float32", 128, 16, True),  # 8 KiB
        ("float32", 127, 16, False),
        ("bfloat16", 128, 32, True),
        ("bfloat16", 128, 16, False),
        ("float32", 1024, 128, False),  # most of what is fetched is not used
    ],
)
def test_runs_of_8_kib_are_fetched_ahead(dtype: str, trips: int, step: int, found: bool) -> None:
    program = parse(
        f"""
@T.program(stage="cpu")
def kernel(A: T.Tensor(({1 << 24},), "{dtype}"), B: T.Tensor((64,), "{dtype}")):
    for block in T.blocks(16):
        for i in T.serial({trips}):
            for lane in T.vectorized(16):
                B[lane] = A[block * 524288 + i * {step} + lane]
"""
    )
    constant = frozenset(parameters(program)[:1])
    assert bool(fetched_loads(program, constant, Ranges(program))) == found
