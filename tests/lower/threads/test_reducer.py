"""Reducers on threads: contributions to copies of their own, combined once at the end."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.threads.planned import lowered, program
from tests.lower.threads.warps import Warps, array_dtype
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.passes.lower_to_threads import LowerToThreads
from tileworkbench.compiler.target import parse_target

NUMPY = {"add": np.sum, "max": np.max, "min": np.min, "or": np.bitwise_or.reduce}
NEUTRAL = {"add": 0, "max": -(2**31), "min": 2**31 - 1, "or": 0}


def contribute(
    kind: str, init: int, dtype: str = "int32", shape: tuple[int, int] = (64, 32),
    index: str = "i", steps: int = 3, threads: int = 128,
) -> Warps:  # fmt: skip
    """`steps` nests over a tile of `shape` contribute to one element for each `index`."""
    kept = {"i": (shape[0],), "j": (shape[1],), "0": (1,), "i, j": shape, "i // 4": (16,)}[index]
    text = f"""
        total = T.alloc_fragment({kept}, "{dtype}")
        result = T.alloc_fragment({kept}, "{dtype}")
        T.fill(total, T.cast({init}, "{dtype}"))
        for k in T.serial({steps}):
            for i, j in T.Parallel({shape[0]}, {shape[1]}):
                T.atomic_{kind}(total[{index}], A[k * {shape[0]} + i, j])
        T.copy(total, result)
        T.copy(result, B)
    """
    params = [
        f'A: T.Tensor({(shape[0] * steps, shape[1])}, "{dtype}")',
        f'B: T.Tensor({kept}, "{dtype}")',
    ]
    made = lowered(program(params, text, threads))
    rng = np.random.default_rng(0)
    a = rng.integers(-9, 10, (steps, *shape)).astype(array_dtype(dtype))
    axes: dict[str, tuple[int, ...]] = {"i": (0, 2), "j": (0, 1), "0": (0, 1, 2), "i, j": (0,)}
    if index == "i // 4":
        values = np.moveaxis(a.reshape(steps, 16, 4, -1), 1, 0).reshape(16, -1)
    else:
        order = [d for d in range(3) if d not in axes[index]]
        values = np.transpose(a, (*order, *axes[index])).reshape(*kept, -1)
    first = np.full((*values.shape[:-1], 1), init, values.dtype)
    values = np.concatenate([first, values], -1)
    run = Warps(made, {"A": a.reshape(-1, shape[1]), "B": np.zeros(kept, values.dtype)})
    expected = NUMPY[kind](values, axis=-1)
    assert np.array_equal(run.memory["B"], expected.astype(values.dtype))
    run.program = made
    return run


@pytest.mark.covering(1)
@pytest.mark.parametrize("index", ["i", "j", "0", "i, j", "i // 4"])
@pytest.mark.parametrize("kind", ["add", "max"])
def test_every_index(kind: str, index: str) -> None:
    contribute(kind, NEUTRAL[kind], index=index)
    contribute(kind, 5, index=index)


@pytest.mark.parametrize("kind", sorted(NUMPY))
def test_every_kind(kind: str) -> None:
    contribute(kind, NEUTRAL[kind])
    contribute(kind, 3)


def test_narrow_results_are_combined_wide() -> None:
    contribute("add", 2, "float16", index="j")


@pytest.mark.parametrize("threads", [32, 96, 256])
def test_any_number_of_threads(threads: int) -> None:
    contribute("add", 1, index="0", threads=threads)
    contribute("add", 1, index="i", threads=threads)


def test_copies_are_combined_once_after_all_contributions() -> None:
    few, many = (contribute("add", 0, index="i", steps=steps) for steps in (1, 9))
    assert few.issued["shfl_xor"] == many.issued["shfl_xor"] > 0


MIXED = """\
@T.program(stage="planned", target="cuda:sm_80")
def kernel(
    B: T.Tensor((4,), "int32"),
):
    with T.Kernel(1, threads=4, thread_vars=["tx"]) as bx:
        total = T.alloc_fragment((4,), "int32", layout=Fragment((4,), lambda i, rep: (i ^ rep, 0), \
replicate=4))
        for i in T.Parallel(4, loop_layout=Fragment((4,), lambda i: (i, 0))):
            T.atomic_add(total[i], 1)
        T.copy(total, B)
"""


def test_copies_that_no_digits_tell_apart_are_refused() -> None:
    with pytest.raises(UnsupportedError) as found:
        LowerToThreads(parse_target("cuda:sm_80"))(parse(MIXED))
    assert found.value.message == (
        "the threads' copies of the reducer 'total' cannot be combined: its layout is "
        "'(i, rep) -> thread (i ^ rep), slot 0'"
    )
    assert found.value.hint == "contribute from one T.Parallel nest, at its variables"
