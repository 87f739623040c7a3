"""A kernel that is certainly wrong says so where it is looked at: `k.warnings` and the card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.viz.model.card import card_model


@tw.jit(out_idx=[1])
def wrong() -> Any:
    @T.prim_func
    def total(A: T.Tensor((32,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            s = T.alloc_shared((8,), "float32")
            T.copy(A[0:8], s)
            for i in T.Parallel(32):
                s[i // 4] += A[i]
            for i in T.Parallel(8):
                B[i] = s[i] + s[i + 1]

    return total


def test_warnings_stand_with_their_lines() -> None:
    kernel = wrong()
    race, outside = kernel.warnings
    assert race.message == (
        "iterations i = 0 and i = 1 of this parallel loop write the same element of 's', with "
        "different values"
    )
    assert outside.message == (
        "'i + 1' reaches 8 here, outside dimension 0 of 's', which has 8 elements"
    )
    assert race.span is not None and outside.span is not None
    assert outside.span.line == race.span.line + 2
    assert outside.render("warning").splitlines()[2:] == [
        f"{outside.span.line} | B[i] = s[i] + s[i + 1]",
        f"{' ' * len(str(outside.span.line))} | {'^' * 22}",
    ]


def test_the_card_shows_them_in_every_form() -> None:
    kernel = wrong()
    lines = [note.span.line for note in kernel.warnings if note.span]
    data = kernel._repr_mimebundle_()[0]
    assert f"| 2 warnings (lines {lines[0]}, {lines[1]})>" in data["text/plain"]
    for line, note in zip(lines, kernel.warnings, strict=True):
        assert f"line {line}: " in data["text/html"]
        assert note.message.split("'")[0] in data["text/html"]
    model = card_model(kernel.view())
    assert model["warnings"] == [
        {"text": note.message, "line": line}
        for line, note in zip(lines, kernel.warnings, strict=True)
    ]


def test_the_simulator_finds_what_depends_on_a_run() -> None:
    kernel = wrong()
    with pytest.raises(tw.OutOfBoundsError, match=r"'s\[8\]' is outside 's' of shape \(8\)"):
        kernel.simulate(np.ones(32, np.float32))
