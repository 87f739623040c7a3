"""Random indices with numbers of every size: nothing outside a tensor is touched, and native code
does what the simulator does with the lowered program.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.frontend.golden import define
from tileworkbench.compiler.diagnostics import CompileError, RunError

Array = np.ndarray[Any, Any]

GUARD = 4096  # bytes beside each tensor
NUMBERS = [0, 1, 5, 39, 65536, 46341, 2**29 + 1, 2**30, 2**31 - 16, 2**31 - 1]
NUMBERS += [-1, -3, -7, -(2**30), -(2**31)]
CONSTANTS = [0, 1, 2, 3, 7, 8, 16, 63, 64, 1000, 65536, 2**30, 2**31 - 1, -1, -2, -5, -(2**31)]
FORMS = [
    *("{0} + {1}", "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} * {1}"),
    *("({0}) // {2}", "({0}) % {2}", "T.truncdiv({0}, {2})", "({0}) << {3}", "({0}) >> {3}"),
    *("({0}) & {2}", "T.min({0}, {1})", "T.max({0}, {1})", "T.cast({0}, '{4}')"),
    *("T.if_then_else({0} < {1}, {0}, {1})", "T.int64({0})"),
]


def index(rng: random.Random, depth: int, names: list[str]) -> str:
    """The text of a random expression."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*names, str(rng.choice(CONSTANTS))])
    parts = [f"({index(rng, depth - 1, names)})" for _ in range(2)]
    divisor, shift = rng.choice([1, 2, 3, 4, 7, 8, 16, 33, 64, 1000]), rng.choice([0, 1, 3, 16, 30])
    kind = rng.choice(["int8", "uint8", "int16", "uint16", "uint32"])
    return f"({rng.choice(FORMS).format(*parts, divisor, shift, kind)})"


def source(seed: int) -> str:
    """A kernel of loops, vectors and copies with such indices."""
    rng = random.Random(seed)
    e = [index(rng, rng.randint(1, 3), ["i", "n", "m", "V[i]", "bx", "k"]) for _ in range(6)]
    v = [index(rng, rng.randint(1, 3), ["i", "j", "n", "m", "bx", "k"]) for _ in range(3)]
    u = [index(rng, rng.randint(1, 2), ["n", "m", "bx", "k", "V[bx]"]) for _ in range(6)]
    natural = "T.assume(n >= 0)" if rng.random() < 0.4 else "pass"
    low = rng.choice(["0", "n", "m - 2", "-3"])
    extent = rng.choice(["32", "64", "n % 50", "T.min(n, 40)"])
    return f"""
a, b = T.dynamic("a, b")
@T.prim_func
def kernel(
    A: T.Tensor((40,), "int32"), D: T.Tensor((a, b), "int32"), V: T.Tensor((64,), "int32"),
    O: T.Tensor((3, 64, 64), "int32"), P: T.Tensor((40, 40), "int32"), Q: T.Tensor((a, b), "int32"),
    n: T.int32, m: T.int32,
):
    with T.Kernel(3, threads=32) as bx:
        {natural}
        tile = T.alloc_shared((16, 16), "int32")
        for k in T.serial({low}, {low} + 2):
            for i in T.Parallel({extent}):
                T.atomic_add(O[0, 0, i], A[{e[0]}] + D[{e[1]}, {e[2]}])
                T.atomic_add(P[0, {e[3]}], 1)
                T.atomic_add(Q[{e[4]}, {e[5]}], 1)
            for j, i in T.Parallel(4, {extent}):
                O[bx, j + 1, i] = A[{v[0]}] + D[{v[1]}, {v[2]}]
            T.copy(D[{u[0]}, {u[1]}], tile)
            if bx == 0:
                T.copy(tile, Q[{u[2]}, {u[3]}])
                T.copy(tile[0:8, :], P[{u[4]}, {u[5]}])
"""


def guarded(array: Array) -> tuple[Array, Array]:
    """A copy of `array`, and all of the memory that it is in."""
    memory = np.full(array.nbytes + 2 * GUARD, 0xA5, np.uint8)
    inside = memory[GUARD:-GUARD].view(array.dtype).reshape(array.shape)
    inside[...] = array
    return inside, memory


@pytest.fixture(autouse=True)
def blocks_in_order() -> Iterator[None]:
    before = tw.get_num_threads()
    tw.set_num_threads(1)
    yield
    tw.set_num_threads(before)


@pytest.mark.parametrize("seed", range(24))
def test_nothing_outside_is_touched(seed: int) -> None:
    rng = random.Random(-1 - seed)
    try:
        compiled = tw.compile(define(source(seed))["kernel"], target="cpu")
    except CompileError:
        return  # an index that can be in no range, or has another type
    for _ in range(4):
        n, m = rng.choice(NUMBERS), rng.choice(NUMBERS)
        values = np.array(rng.choices([*NUMBERS, *range(-50, 50)], k=64), np.int32)
        arrays = [np.arange(40), np.arange(300).reshape(15, 20), values, np.zeros((3, 64, 64))]
        arrays += [np.zeros((40, 40)), np.zeros((15, 20))]
        arguments = [array.astype(np.int32) for array in arrays]
        held = [guarded(array) for array in arguments]
        try:
            expected = compiled.simulate(*arguments, n, m, stage="lowered")
        except (RunError, tw.ArgumentError):
            continue  # a division by zero, or an assumption that does not hold
        compiled(*[inside for inside, _ in held], n, m)
        names = [param.name for param in compiled.program.params]
        for name, (inside, memory) in zip(names, held, strict=False):
            assert (memory[:GUARD] == 0xA5).all() and (memory[-GUARD:] == 0xA5).all(), name
            np.testing.assert_array_equal(inside, expected.arrays[name].reshape(inside.shape), name)
