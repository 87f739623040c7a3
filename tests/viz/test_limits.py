"""Views of what is large or hostile: outputs stay small, and names are names."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module

import nbformat
import pytest

import tileworkbench as tw
import tileworkbench.kernels as kernels
import tileworkbench.language as T
from tests.viz.sample import full_view, hostile_view, tile_program
from tests.viz.sanitiser import problems
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.stmt import seq
from tileworkbench.compiler.record import Snapshot
from tileworkbench.compiler.sim.threads import listing
from tileworkbench.viz.model import passes
from tileworkbench.viz.model.bundle import OUTPUT_BYTES
from tileworkbench.viz.model.card import HTML_LIMIT, card_html, card_model
from tileworkbench.viz.model.page import page_html
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.saved import saved_card
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import VIEWS, available, view_html, view_model

CASES = import_module("tests.kernels.test_gpu")


def views_of(view: KernelView) -> dict[str, str]:
    """The static form of the card and of each view, by name."""
    return {"card": card_html(view), **{name: view_html(view, name) for name in VIEWS}}


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["sim:sm_80", "cpu"])
@pytest.mark.parametrize("name", kernels.__all__)
def test_outputs_of_the_library_are_small(name: str, target: str) -> None:
    view = tw.compile(getattr(CASES, name)()[0], target=target).view()
    page = card_html(view)
    assert len(page.encode()) <= HTML_LIMIT
    assert problems(page) == []
    saved = saved_card(view, OUTPUT_BYTES - len(page.encode()))
    assert saved is None or len(json.dumps(saved)) + len(page.encode()) <= OUTPUT_BYTES + 1000
    if name == "flash_attention_backward":  # the largest; a notebook of fifteen of them
        data = {"text/html": page, "application/vnd.tileworkbench+json": saved or {}}
        shown = [nbformat.v4.new_output("display_data", data)]
        cells = [nbformat.v4.new_code_cell("kernel", outputs=shown) for _ in range(15)]
        content = nbformat.writes(nbformat.v4.new_notebook(cells=cells))
        assert len(content.encode()) < 1_000_000


def test_views_of_many_dimensions_and_of_a_huge_grid() -> None:
    @tw.jit(target="sim:sm_80")
    def deep(A):
        A: T.Tensor((2, 2, 2, 2, 2, 2, 2, 8), "float32")
        B = T.empty((2, 2, 2, 2, 2, 2, 2, 8), "float32")
        with T.Kernel(2_147_483_647, threads=128) as _:
            tile = T.alloc_shared((2, 2, 2, 2, 2, 2, 2, 8), "float32")
            local = T.alloc_fragment((2, 2, 2, 2, 2, 2, 2, 8), "float32")
            T.copy(A, tile)
            T.copy(tile, local)
            T.copy(local, B)
        return B

    view = deep.compile().view()
    assert "2147483647" in views_of(view)["card"]
    for name, page in views_of(view).items():
        assert problems(page) == [], name
        assert len(page.encode()) <= HTML_LIMIT, name
    for name in available(view):
        if VIEWS[name].model is not None:
            assert "missing" not in view_model(view, name)


def long_program(lines: int) -> Program:
    """The sample with its statements again and again."""
    program = tile_program()
    kernel = program.body
    body = kernel.body  # type: ignore[attr-defined]
    return replace(program, body=replace(kernel, body=seq([body] * (lines // 8))))  # type: ignore[type-var]


def test_ten_thousand_lines_of_ir() -> None:
    before, after = tile_program(), long_program(10_000)
    assert str(after).count("\n") > 9_000
    record = full_view().record
    snapshots = (*record.snapshots, Snapshot("grow", "Grow.", after, True, 1.0))
    view = replace(full_view(), record=replace(record, snapshots=snapshots, program=before))
    browser = PassBrowser(view.record)
    diff = browser.diff(len(snapshots))
    assert len(diff["rows"]) + diff["dropped"] >= 9_000
    assert len(json.dumps(diff)) < 1_000_000
    assert len(card_html(view).encode()) <= HTML_LIMIT
    saved = saved_card(view, OUTPUT_BYTES)
    assert saved is None or len(saved["packed"]) <= OUTPUT_BYTES


def test_hostile_names_are_text_in_every_static_view() -> None:
    for name, page in views_of(hostile_view()).items():
        assert problems(page) == [], name
        assert "<img src=x" not in page and "<script" not in page, name


def test_names_in_other_scripts() -> None:
    @tw.jit
    def 核心_ядро(Вход, 出力幅: int = 32):
        Вход: T.Tensor((64, 64), "float32")
        Ωмега = T.empty((64, 64), "float32")
        with T.Kernel(2, 2, threads=64) as (ब, 블록):
            タイル = T.alloc_shared((32, 32), "float32")
            T.copy(Вход[ब * 32, 블록 * 32], タイル)
            T.copy(タイル, Ωмега[ब * 32, 블록 * 32])
        return Ωмега

    for target in ("cpu", "sim:sm_80"):
        view = 核心_ядро.with_target(target).compile().view()
        assert card_model(view)["name"] == "核心_ядро"
        pages = views_of(view)
        assert all("核心_ядро" in page for page in pages.values())
        assert "タイル" in pages["smem"] and "Вход" in pages["source"]
        assert all(problems(page) == [] for page in pages.values())


def test_views_share_what_is_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """All views together walk the threads of a block once, and count each program once."""
    program = CASES.flash_attention()[0]
    kernel = tw.compile(program, target="sim:sm_80")
    walked: list[object] = []
    counted: list[object] = []
    run, count = listing._Lister.run, passes.count_nodes
    monkeypatch.setattr(listing._Lister, "run", lambda self: walked.append(self) or run(self))
    monkeypatch.setattr(passes, "count_nodes", lambda one: counted.append(one) or count(one))
    page_html(kernel.view())
    assert len(walked) == 1
    programs = {id(each.program) for each in kernel.record.snapshots} | {id(kernel.program)}
    assert len(counted) == len(programs)
