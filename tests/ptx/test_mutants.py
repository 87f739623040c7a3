"""Mutation proof: wrong versions of PTX, one for every place of every kind of mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from tests.ptx.gemm import SOURCE
from tests.ptx.mutants import EDITS, Mutant, mutants
from tests.ptx.support import compile_text
from tests.ptx.test_kernels import COLLECTIVE, COPIES
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.sim.ptx import PtxProgram, PtxRun

pytestmark = pytest.mark.nvrtc

LIMIT = 100_000
# Rows in the middle of a tile, a row more than whole fragments, and a whole tile.
SHAPES = ((60, 64, 160), (33, 64, 96), (64, 128, 128))

# Why a mutant of these kinds may do exactly what the program does.
EQUIVALENT = {
    "zero fill dropped": "every row that this copy brings is a row of the matrix",
    "comparison off by one": "the two sides are never equal at this place",
}

# Runs one version of a program: what it did, or None when its result is wrong.
Run = Callable[[PtxProgram], PtxRun | None]


def run_gemm(program: PtxProgram, shape: tuple[int, int, int]) -> PtxRun | None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, size).astype(np.float16) for size in ((m, k), (k, n)))
    c = np.zeros((m, n), dtype=np.float32)
    arrays = [a.view(np.uint16), b.view(np.uint16), c]
    run = program.launch(
        "gemm", (n // 64, -(-m // 64)), (128,), [*arrays, m, n, k], 3 * 8192,
        instruction_limit=LIMIT,
    )  # fmt: skip
    return run if (c == a.astype(np.float32) @ b.astype(np.float32)).all() else None


def run_sum(program: PtxProgram) -> PtxRun | None:
    x = np.random.default_rng(0).integers(1, 9, 500).astype(np.float32)
    y = np.zeros(1, dtype=np.float32)
    run = program.launch("sum", (1,), (128,), [x, y, 500], instruction_limit=LIMIT)
    return run if y[0] == x.sum() else None


def run_ring(program: PtxProgram) -> PtxRun | None:
    x = np.arange(7 * 32, dtype=np.int32)
    y = np.zeros_like(x)
    run = program.launch("ring", (1,), (64,), [x, y, 7], instruction_limit=LIMIT)
    return run if (y.reshape(7, 32) == x.reshape(7, 32)[:, ::-1]).all() else None


def reached(text: str, runs: list[Run]) -> list[Mutant]:
    """The mutants at places that the program executes in one of these runs."""
    lines: set[int] = set()
    program = PtxProgram.parse(text)
    for run in runs:
        done = run(program)
        assert done is not None
        lines |= done.lines.keys()
    return [mutant for mutant in mutants(text) if mutant.line in lines]


def is_caught(mutant: Mutant, runs: list[Run]) -> bool:
    """Whether a result is wrong or a detector speaks."""
    program = PtxProgram.parse(mutant.text)
    try:
        return any(run(program) is None for run in runs)
    except RunError:
        return True


GEMM_RUNS: list[Run] = [lambda program, shape=shape: run_gemm(program, shape) for shape in SHAPES]


def test_the_first_mutant_of_each_kind_is_caught() -> None:
    kinds = set()
    for source, arch, runs in (
        (SOURCE, "sm_80", GEMM_RUNS[:1]),
        (COLLECTIVE, "sm_80", [run_sum]),
        (COPIES, "sm_90", [run_ring]),
    ):
        first: dict[str, Mutant] = {}
        for mutant in reached(compile_text(source, arch), runs):
            if mutant.kind not in EQUIVALENT:
                first.setdefault(mutant.kind, mutant)
        kinds |= first.keys()
        survivors = [mutant for mutant in first.values() if not is_caught(mutant, runs)]
        assert [(each.kind, each.line, each.before) for each in survivors] == []
    assert set(EDITS) - kinds == {"guard dropped", *EQUIVALENT}


@pytest.mark.slow
def test_every_mutant_is_caught_or_equivalent() -> None:
    found = reached(compile_text(SOURCE), GEMM_RUNS)
    assert len(found) >= 100
    survivors = [mutant for mutant in found if not is_caught(mutant, GEMM_RUNS)]
    kinds = Counter(mutant.kind for mutant in survivors)
    unexplained = [each for each in survivors if each.kind not in EQUIVALENT]
    assert [(each.kind, each.line, each.before) for each in unexplained] == []
    assert kinds.total() < len(found) / 5
