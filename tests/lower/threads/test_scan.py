"""Scans on threads: every dimension, direction and place, executed in lock step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.threads.planned import lowered, program
from tests.lower.threads.warps import Warps, array_dtype
from tileworkbench.compiler.diagnostics import UnsupportedError

NUMPY = {"sum": np.add, "max": np.fmax}


def scan(
    shape: tuple[int, ...], dim: int, kind: str = "sum", dtype: str = "float32", *,
    reverse: bool = False, src: str = "shared", dst: str | None = "shared", threads: int = 128,
    values: np.ndarray | None = None,
) -> Warps:  # fmt: skip
    """Run one scan from and to global memory (in place without `dst`), and compare it."""
    target = "S" if dst is None else "D"
    lines = [f'S = T.alloc_{src}({shape}, "{dtype}")']
    if dst is not None:
        lines.append(f'D = T.alloc_{dst}({shape}, "{dtype}")')
    lines += [
        "T.copy(A, S)",
        f"T.scan_{kind}(S, {target}, dim={dim}, reverse={reverse})",
        f"T.copy({target}, B)",
    ]
    params = [f'A: T.Tensor({shape}, "{dtype}")', f'B: T.Tensor({shape}, "{dtype}")']
    made = lowered(program(params, "\n".join(lines), threads))
    if values is None:
        rng = np.random.default_rng(sum(shape))
        values = rng.integers(0, 5, shape).astype(array_dtype(dtype))
    flipped = np.flip(values, dim) if reverse else values
    expected = NUMPY[kind].accumulate(flipped, axis=dim, dtype=values.dtype)
    expected = np.flip(expected, dim) if reverse else expected
    run = Warps(made, {"A": values, "B": np.zeros_like(values)})
    assert np.array_equal(run.memory["B"], expected, equal_nan=values.dtype.kind == "f")
    return run


SHAPES = [
    ((64, 32), 0), ((64, 32), 1), ((5, 100), 1), ((5, 100), 0), ((128,), 0), ((77,), 0),
    ((1,), 0), ((3, 1), 1), ((2, 3, 40), 1), ((2, 3, 40), 2), ((2, 3, 40), 0), ((300, 3), 0),
    ((3, 300), 0),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_shape(shape: tuple[int, ...], dim: int, reverse: bool) -> None:
    scan(shape, dim, reverse=reverse)
    scan(shape, dim, "max", reverse=reverse, dst=None)


@pytest.mark.parametrize("src", ["shared", "fragment"])
@pytest.mark.parametrize("dst", ["shared", "fragment", None])
@pytest.mark.parametrize("shape", [(16, 40), (64,)])
def test_every_place(src: str, dst: str | None, shape: tuple[int, ...]) -> None:
    for dim in range(len(shape)):
        scan(shape, dim, src=src, dst=dst)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "float16", "float64", "int64"])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_every_dtype(dtype: str, kind: str) -> None:
    for dim in (0, 1):
        scan((4, 70), dim, kind, dtype)


@pytest.mark.parametrize("threads", [32, 48, 96, 256])
def test_any_number_of_threads(threads: int) -> None:
    for dim in (0, 1):
        scan((10, 50), dim, threads=threads)


@pytest.mark.parametrize("dim", [0, 1])
def test_leading_nan_stays_nan(dim: int) -> None:
    values = np.ones((70, 70), np.float32)
    values[0], values[:, 0], values[40, 40] = np.nan, np.nan, np.nan
    scan((70, 70), dim, "max", values=values)


def test_a_part_of_a_tile() -> None:
    text = """
        S = T.alloc_shared((8, 64), "float32")
        T.copy(A, S)
        T.scan_sum(S[2:6, 16:56], S[2:6, 16:56], dim=1, reverse=False)
        T.copy(S, B)
    """
    params = ['A: T.Tensor((8, 64), "float32")', 'B: T.Tensor((8, 64), "float32")']
    values = np.random.default_rng(0).integers(0, 5, (8, 64)).astype(np.float32)
    run = Warps(lowered(program(params, text)), {"A": values, "B": np.zeros_like(values)})
    expected = values.copy()
    expected[2:6, 16:56] = values[2:6, 16:56].cumsum(1)
    assert np.array_equal(run.memory["B"], expected)


def test_a_part_of_a_fragment_is_refused() -> None:
    text = """
        S = T.alloc_fragment((8, 64), "float32")
        T.fill(S, 1.0)
        T.scan_sum(S[0:4, 0:64], S[0:4, 0:64], dim=1, reverse=False)
        T.copy(S, B)
    """
    with pytest.raises(UnsupportedError) as found:
        lowered(program(['B: T.Tensor((8, 64), "float32")'], text))
    assert found.value.message == "a scan takes the fragment 'S' as a whole, not a part of it"
    assert found.value.hint == "keep it in shared memory"


def test_an_array_of_each_thread_is_refused() -> None:
    text = """
        S = T.alloc_local((64,), "float32")
        T.scan_sum(S, S, dim=0, reverse=False)
    """
    with pytest.raises(UnsupportedError) as found:
        lowered(program([], text))
    assert found.value.message == "a scan takes tiles, and 'S' is in scope 'local'"
    assert found.value.hint == "allocate it with T.alloc_shared or T.alloc_fragment"
