"""Atomic additions of boxes at random places: as vectors or one by one, every element once."""

# Annotations are evaluated where kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import storage
from tests.tiers import examples

ROWS, COLUMNS = 6, 40


@st.composite
def boxes(draw: st.DrawFn) -> dict[str, Any]:
    rows, columns = draw(st.sampled_from([4, 3, 1])), draw(st.sampled_from([32, 16, 12, 4]))
    return {
        "rows": rows,
        "columns": columns,
        "row": draw(st.integers(0, 3)),
        "column": draw(st.sampled_from([0, 4, 8, 16, 24, 2, 20, 1])),  # beyond the edge, too
        "dtype": draw(st.sampled_from(["float16", "bfloat16", "float32", "int32"])),
        "source": draw(st.sampled_from(["fragment", "shared", "global"])),
        "arch": draw(st.sampled_from(["sm_80", "sm_90"])),
        "threads": draw(st.sampled_from([32, 64])),
        "width": draw(st.sampled_from([COLUMNS, COLUMNS + 8, COLUMNS + 2, COLUMNS + 1])),
    }


@settings(max_examples=examples(60))
@given(box=boxes())
def test_every_element_is_added_once(box: dict[str, Any]) -> None:
    shape, dtype, width = (box["rows"], box["columns"]), box["dtype"], box["width"]
    row, column, source = box["row"], box["column"], box["source"]

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), C: T.Tensor((ROWS, width), dtype)):
        with T.Kernel(2, threads=box["threads"]) as bx:
            if source == "global":
                for i, j in T.Parallel(*shape):
                    T.atomic_add(C[row + i, column + j], A[i, j])
            else:
                tile = T.alloc_fragment if source == "fragment" else T.alloc_shared
                F = tile(shape, dtype)
                T.copy(A, F)
                T.atomic_add(C[row, column], F)

    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, shape).astype(storage(dtype))
    c = rng.integers(-4, 5, (ROWS, width)).astype(storage(dtype))
    expected = c.astype(np.float64)
    inside = expected[row : row + shape[0], column : column + shape[1]]
    inside += 2 * a.astype(np.float64)[: inside.shape[0], : inside.shape[1]]
    tw.compile(main, target=f"sim:{box['arch']}")(a, c)
    np.testing.assert_array_equal(c.astype(np.float64), expected)
