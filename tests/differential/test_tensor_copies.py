"""Copies by the copy engine of sm_90: 1 to 5 dimensions, dtypes, swizzles, edges, several boxes,
dynamic shapes; numpy, the simulator after every pass and the executed PTX agree.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_on_threads, equals, named, random_array, run_native
from tileworkbench.compiler.driver import compile_program

LOAD, STORE = "tensor_load_", "tensor_store_"


def check_engine(kernel, arguments, check, *uses):
    """The same everywhere; the emitted text has (or with "!" in front has not) each of `uses`."""
    check_on_threads(kernel, arguments, check, "sim:sm_90")
    compiled = compile_program(kernel.program, "ptx:sm_90")
    for use in uses:
        assert (use.lstrip("!") in compiled.module.text) is not use.startswith("!"), use
    with named("PTX"):
        check(run_native(kernel.program, arguments, "ptx:sm_90"))


def through(shape, tile, dtype="float16", grid=1):
    """A kernel that takes box `bx` of A, along its second dimension from the right (the only one
    of a vector), to shared memory and from there to B."""
    axis = max(len(tile) - 2, 0)

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(grid, threads=128) as bx:
            S = T.alloc_shared(tile, dtype)
            origin = [0] * len(tile)
            origin[axis] = bx * tile[axis]
            box = tuple(slice(o, o + e) for o, e in zip(origin, tile, strict=True))
            T.copy(A[box], S)
            T.copy(S, B[box])

    return kernel


def check_through(shape, tile, dtype="float16", grid=1):
    a = random_array(shape, dtype)
    b = np.zeros_like(a)
    expected = b.copy()
    axis = max(len(tile) - 2, 0)
    box = [slice(0, extent) for extent in tile]
    box[axis] = slice(0, grid * tile[axis])
    expected[tuple(box)] = a[tuple(box)]
    rank = len(shape)
    check_engine(
        through(shape, tile, dtype, grid),
        {"A": a, "B": b},
        equals(B=expected),
        f"{LOAD}{rank}",
        f"{STORE}{rank}",
    )


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("shape", "tile", "grid"),
    [
        ((100,), (64,), 2),
        ((20, 40), (8, 32), 3),
        ((3, 20, 16), (2, 8, 16), 3),
        ((2, 3, 20, 8), (2, 1, 8, 8), 3),
        ((2, 2, 3, 20, 8), (1, 2, 3, 8, 8), 3),
    ],
)
def test_one_to_five_dimensions(shape, tile, grid):
    check_through(shape, tile, "float32", grid)


@pytest.mark.nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bfloat16", "int8", "uint8", "int16", "int64", "uint32"],
)
def test_every_dtype(dtype):
    check_through((20, 48), (8, 32), dtype, 3)
