"""What symbolic extents must be multiples of for rows to be whole vectors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tileworkbench.language as T
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.sizes import strides_of
from tileworkbench.compiler.lower.threads.divisibility import vector_facts

N, M, S = T.dynamic("N"), T.dynamic("M"), T.dynamic("S")


def copied(*tensors: Any) -> Program:
    """A program that fills every tensor."""
    count = len(tensors)
    kinds = [*tensors, *([T.Tensor((4,), "float32")] * (3 - count))]

    @T.prim_func
    def fill(A: kinds[0], B: kinds[1], C: kinds[2]):
        with T.Kernel(1, threads=32):
            T.fill(A, 0)
            if count > 1:
                T.fill(B, 0)
            if count > 2:
                T.fill(C, 0)

    return fill.program


@pytest.mark.parametrize(
    ("tensors", "facts"),
    [
        ([T.Tensor((M, 8), "float16")], []),
        ([T.Tensor((M, N), "float16")], ["N % 8 == 0"]),
        ([T.Tensor((N,), "float32")], ["N % 4 == 0"]),
        ([T.Tensor((N,), "int8"), T.Tensor((N,), "float64")], ["N % 16 == 0"]),
        ([T.Tensor((N,), "float64"), T.Tensor((N,), "int8")], ["N % 16 == 0"]),
        # What the constants of a row leave to the symbol.
        ([T.Tensor((M, N, 4), "float16")], ["N % 2 == 0"]),
        ([T.Tensor((M, 2 * N), "float16")], ["N % 4 == 0"]),
        ([T.Tensor((M, 8 * N), "float16")], []),
        ([T.Tensor((M, N + 2), "float16")], ["N % 2 == 0"]),
        ([T.Tensor((M, N + 1), "float16")], []),
        # Rows inside rows: the innermost is enough.
        ([T.Tensor((M, S, N), "float32")], ["N % 4 == 0"]),
        ([T.Tensor((M, N, S, 2), "float32")], ["S % 2 == 0"]),
        # Rows that are apart from each other; columns are no rows.
        ([T.StridedTensor((M, 64), (N, 1), "float16")], ["N % 8 == 0"]),
        ([T.StridedTensor((M, 64), (1, N), "float16")], []),
        ([T.Tensor((M, N), "float32"), T.Tensor((N, S), "float32")], ["N % 4 == 0", "S % 4 == 0"]),
    ],
)  # fmt: skip
def test_facts(tensors: list[Any], facts: list[str]) -> None:
    assert [print_expr(fact) for fact in vector_facts(copied(*tensors))] == facts


def test_facts_that_the_program_says_are_not_asked_for_again() -> None:
    @T.prim_func
    def fill(A: T.Tensor((M, N), "float16")):
        T.assume(N % 4 == 0)
        with T.Kernel(1, threads=32):
            T.fill(A, 0)

    assert [print_expr(fact) for fact in vector_facts(fill.program)] == ["N % 8 == 0"]


extents = st.sampled_from([1, 2, 3, 4, 8, 12, 64, N, M, S, 2 * N, 4 * M])


@given(
    st.lists(extents, min_size=1, max_size=4),
    st.sampled_from(["int8", "float16", "float32", "float64"]),
    st.lists(st.integers(0, 24), min_size=3, max_size=3),
)
def test_under_the_facts_symbolic_rows_are_whole_vectors(
    shape: list[Any], dtype: str, values: list[int]
) -> None:
    program = copied(T.Tensor(tuple(shape), dtype))
    (buffer,) = (param.value for param in program.params if param.name == "A")
    names = dict(zip(("N", "M", "S"), values, strict=True))
    if all(evaluate(fact, names) for fact in vector_facts(program)):
        for length in (buffer.shape[-1], *strides_of(buffer)[:-1]):
            whole = evaluate(length, names) % (128 // buffer.dtype.bits) == 0
            assert whole or const_int(length) is not None
