"""Random element-wise nests: guards, predicates and vector loops change no element."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.pipeline import pipeline
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.target import Target

TARGETS = [
    Target("cpu", "avx512", vector_bits=512),
    Target("cpu", "generic", vector_bits=128),
]
ROWS, COLS = 12, 20


@st.composite
def nests(draw: st.DrawFn) -> str:
    """A nest over (rows, cols) that writes each element of B and S at most once.

    Reads may leave the tensor A, which is masked, but not the tile S.
    """
    rows, cols = draw(st.integers(1, ROWS)), draw(st.integers(1, COLS))
    low, left = draw(st.integers(0, 5)), draw(st.integers(0, 9))
    row, col = f"i + bx * {rows} - {low}", f"j + by * {cols} - {left}"
    value = st.sampled_from(
        [
            f"A[{row} + 1, {col}]",
            f"A[{row}, {col} - 2]",
            "A[j, i]",
            "A[i // 2, j % 3]",
            "T.int32(S[i, j])",
            "T.int32(S[i, 0])",
            f"T.int32(S[{rows - 1} - i, j])",
            f"(T.int32(S[i, j - 1]) if j > 0 else A[{row}, j])",
            "(7 // (i - 3) if i != 3 else j)",
            "i * 3 - j",
        ]
    )
    condition = st.sampled_from(
        [
            "j > 0",
            "i % 2 == 0",
            "i < j",
            "bx == 1",
            f"A[{row}, {col}] > 0",
            "i > 1 and S[i - 1, j] > 0.0",
        ]
    )
    store = f"B[{row}, {col}] = {draw(value)} + {draw(value)} * 2"
    style = draw(st.sampled_from(["plain", "branch", "else", "let", "loop"]))
    lines = {
        "plain": [store],
        "branch": [f"if {draw(condition)}:", f"    {store}"],
        "else": [
            f"if {draw(condition)}:",
            f"    {store}",
            "else:",
            f"    B[{row}, {col}] = {draw(value)}",
        ],
        "let": [f"x = {draw(value)}", f"if {draw(condition)}:", f"    B[{row}, {col}] = x - 1"],
        "loop": ["for k in T.serial(3):", "    R[i, j] = R[i, j] + A[i + k, j]", store],
    }[style]
    body = "\n".join(f"            {line}" for line in lines)
    return f"""
@T.program(stage="tile", symbols={{"m": "int32"}})
def nest(
    A: T.Tensor((m, {COLS}), "int32"),
    B: T.Tensor((m, {COLS}), "int32"),
):
    with T.Kernel(2, 2, threads=128) as (bx, by):
        S = T.alloc_shared(({rows}, {cols}), "float32")
        R = T.alloc_fragment(({rows}, {cols}), "int32")
        T.fill(R, 1)
        for p, q in T.Parallel({rows}, {cols}):
            S[p, q] = T.float32(p * 5 - q * 2 + bx)
        for i, j in T.Parallel({rows}, {cols}):
{body}
        T.copy(R, B[{ROWS - 2}:{ROWS - 2 + rows}, 0:{cols}])
"""


@settings(max_examples=60)
@given(nests(), st.sampled_from(TARGETS))
def test_lowered_nests_write_what_the_nest_writes(text: str, target: Target) -> None:
    first = parse(text)
    verify(first)
    generator = np.random.default_rng(0)
    arguments = {
        "A": generator.integers(-50, 50, (ROWS, COLS)).astype(np.int32),
        "B": np.zeros((ROWS, COLS), np.int32),
    }
    expected = simulate(first, arguments)
    current = first
    for step in pipeline(target):
        current = step(current)
        verify(current)
    found = simulate(current, arguments, signature=first)
    assert not found.report.out_of_bounds
    np.testing.assert_array_equal(found.arrays["B"], expected.arrays["B"])
