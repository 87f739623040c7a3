"""Mutation proof on what the compiler writes: every wrong version of a kernel's PTX is caught, or
does the same for a reason that is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tests.ptx.mutants import Mutant, mutants
from tests.ptx.support import Array
from tests.ptx.test_mutants import EQUIVALENT, LIMIT
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.sim.ptx import PtxProgram, PtxRun
from tileworkbench.kernels.flash_attention import flash_attention
from tileworkbench.kernels.matmul import matmul

pytestmark = [pytest.mark.nvrtc, pytest.mark.slow]


@dataclass(frozen=True)
class Launch:
    """One launch of the right program: its arguments before it, and the arrays after it."""

    shape: tuple[Any, ...]  # entry, grid, block
    before: list[Any]
    shared_bytes: int
    after: list[Array]
    run: PtxRun
    text: str

    def gives_the_same(self, text: str) -> bool:
        values = [value.copy() if isinstance(value, np.ndarray) else value for value in self.before]
        program = PtxProgram.parse(text)
        program.launch(*self.shape, values, self.shared_bytes, instruction_limit=2 * LIMIT)
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        return all((a == b).all() for a, b in zip(arrays, self.after, strict=True))


def record(kernel: Any, arguments: Sequence[Any], monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Call a kernel whose target executes PTX, and keep its only launch."""
    launches: list[Launch] = []
    plain = PtxProgram.launch

    def launch(self: PtxProgram, *shape_and_values: Any, **options: Any) -> PtxRun:
        *shape, values, shared_bytes = shape_and_values
        before = [value.copy() if isinstance(value, np.ndarray) else value for value in values]
        run = plain(self, *shape_and_values, **options)
        after = [value.copy() for value in values if isinstance(value, np.ndarray)]
        launches.append(Launch(tuple(shape), before, shared_bytes, after, run, self.text))
        return run

    with monkeypatch.context() as patch:
        patch.setattr(PtxProgram, "launch", launch)
        kernel(*arguments)
    (found,) = launches
    return found


def survivors(launch: Launch, every: int) -> tuple[int, list[Mutant]]:
    """How many places were tried, and the mutants that nobody noticed."""
    sites = [mutant for mutant in mutants(launch.text) if mutant.line in launch.run.lines][::every]
    alive = []
    for mutant in sites:
        try:
            if launch.gives_the_same(mutant.text):
                alive.append(mutant)
        except RunError:
            continue
    return len(sites), alive


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(0)).half()


def check(
    program: Any, arguments: Sequence[Any], every: int, monkeypatch: pytest.MonkeyPatch
) -> int:
    require("nvrtc", missing_nvrtc())
    kernel = tw.compile(program, target="ptx:sm_80")
    launch = record(kernel, arguments, monkeypatch)
    count, alive = survivors(launch, every)
    unexplained = [each for each in alive if each.kind not in EQUIVALENT]
    assert [(each.kind, each.line, each.before) for each in unexplained] == []
    assert len(alive) < count / 5
    return count


def test_matmul(monkeypatch: pytest.MonkeyPatch) -> None:
    program = matmul(120, 64, 160, T.float16, num_stages=3, block_M=64, block_N=64)
    assert check(program, [integers(120, 160), integers(160, 64)], 1, monkeypatch) >= 100


def test_flash_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    program = flash_attention(1, 1, 96, 160, 64, T.float16, causal=True, block_N=32)
    generator = torch.Generator().manual_seed(0)
    arguments = [
        torch.randn(1, length, 1, 64, generator=generator).half() for length in (96, 160, 160)
    ]
    assert check(program, arguments, 2, monkeypatch) >= 90
