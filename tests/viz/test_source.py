"""The source view: weights, what became of a line, and the shaded text."""

from __future__ import annotations

import pytest

import tileworkbench as tw
from tests.viz.sanitiser import problems
from tileworkbench.kernels import matmul
from tileworkbench.viz.model import source
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import view_html, view_model


@pytest.fixture(scope="module")
def view() -> KernelView:
    return tw.compile(matmul(256, 256, 256, "float16", num_stages=3), target="sim:sm_80").view()


def line_of(view: KernelView, text: str) -> int:
    lines = view.record.source.splitlines()
    return view.record.first_line + next(i for i, line in enumerate(lines) if text in line)


def test_weights_are_shares(view: KernelView) -> None:
    weights = {cost["line"]: cost["weight"] for cost in view_model(view, "source")["costs"]}
    assert abs(sum(weights.values()) - 1) < 1e-9
    gemm, clear = line_of(view, "T.gemm("), line_of(view, "T.clear(")
    assert weights[gemm] > 0.1 > weights[clear]


def test_what_became_of_a_line(view: KernelView) -> None:
    answer = source.line_answer(view, {"line": line_of(view, "T.gemm(")})
    names = [each["name"] for each in answer["passes"]]
    assert names[0] == "front end" and names[-1] == view.record.snapshots[-1].name
    assert any("T.mma(" in text for text in answer["passes"][-1]["lines"])
    assert any("mma_m16n8k16" in text or "mma" in text for text in answer["code"])
    copies = source.line_answer(view, {"line": line_of(view, "T.copy(A[by")})["code"]
    assert any("cp_async_16" in text for text in copies)
    assert not any("ldmatrix" in text for text in copies)
    assert source.line_answer(view, {"line": 1}) == {"passes": [], "code": []}


def test_the_static_text_is_shaded_and_safe(view: KernelView) -> None:
    page = view_html(view, "source")
    assert problems(page) == []
    assert "33.6 M flop" in page and "rgba(240,150,0,0." in page


def test_a_line_with_conflicts_says_so() -> None:
    cost = {"flops": 0.0, "global_bytes": 2048.0, "ideal": 4, "wavefronts": 16, "barriers": 1}
    assert source.cost_words(cost) == "2.0 KiB  4x conflicts  1 barrier"


def test_the_code_opens_at_the_kernel(view: KernelView) -> None:
    data = view_model(view, "code")
    assert data["language"] == "c"
    assert data["text"].splitlines()[data["helpers"]].startswith('extern "C" __global__')
    native = tw.compile(matmul(64, 64, 64), target="cpu").view()
    data = view_model(native, "code")
    assert data["language"] == "llvm"
    assert "@matmul" in data["text"].splitlines()[data["helpers"]]
    assert data["helpers"] > 50  # packing and micro-kernels
