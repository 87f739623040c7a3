"""The rules of passes as the view has them: the page counts what Python counts."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from html import unescape
from types import ModuleType

import pytest

import tileworkbench as tw
from tests.viz.sample import compile_record
from tests.viz.tiled import compiled
from tileworkbench.compiler.lowering import step_of
from tileworkbench.compiler.rewrites import counts_of
from tileworkbench.compiler.target import parse_target
from tileworkbench.kernels import matmul
from tileworkbench.viz.model import pass_rules
from tileworkbench.viz.model.pass_changes import whole
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.passes_static import diff_section, diff_text, passes_section


def test_the_page_counts_what_python_counts() -> None:
    kernel = compiled("mm")
    browser = PassBrowser(kernel.record)
    seen = Counter()
    for index, snapshot in enumerate(kernel.passes, 1):
        found = browser.rules(index)
        told = snapshot.rewrites or snapshot.changes
        assert {each["name"]: each["count"] for each in found["rules"]} == counts_of(told)
        assert found["total"] == len(told) == len(found["rewrites"])
        assert found["index"] == index
        assert bool(found["whole"]) == (snapshot.changed and not snapshot.rules)
        for each, text in zip(found["rewrites"], told, strict=True):
            assert (each["rule"], each["source"]) == (text.rule, text.line)
        seen[snapshot.name] += len(snapshot.rewrites)
    assert seen["flatten_buffers"] > 10 and seen["drop_unused_lets"] > 1
    assert seen["insert_barriers"] == 0


def test_a_pass_without_rules_says_what_it_did() -> None:
    browser, kernel = PassBrowser(compiled("mm").record), compiled("mm")
    found = browser.rules(browser.find("insert_barriers"))
    counts = {each["name"]: each["count"] for each in found["rules"]}
    assert found["whole"] == (
        f"This pass works on the whole kernel: it adds {counts['add Barrier']} Barrier."
    )
    for each in found["rewrites"]:
        assert (each["before"], each["side"]) == ("", "after")
        lines = browser.lines(browser.find("insert_barriers"))
        assert lines[each["number"] - 1].text.strip() == each["after"]
    layouts = kernel.passes["infer_thread_layouts"].changes
    (made,) = (each for each in layouts if each.statement.startswith("C_local = "))
    assert made.rule == "rewrite Alloc" and made.before != made.after
    assert whole([]) == (
        "This pass works on the whole kernel; it changed no statement, and its notes say more."
    )
    became = [each.rule for each in kernel.passes["lower_to_threads"].changes]
    assert "Copy to For" in became
    assert "turns 3 Copy into For" in whole(kernel.passes["lower_to_threads"].changes)


def test_a_rewrite_stands_in_its_line() -> None:
    browser = PassBrowser(compiled("mm").record)
    index = browser.find("flatten_buffers")
    lines = [line.text for line in browser.lines(index - 1)]
    for each in browser.rules(index)["rewrites"]:
        assert each["before"] in lines[each["number"] - 1]
        assert browser.lines(index - 1)[each["number"] - 1].source == each["source"]


def test_rewrites_as_plain_data() -> None:
    snapshot = compiled("mm").passes["flatten_buffers"]
    first, *_ = snapshot.to_dict()
    assert first["rule"] == "flatten_buffer" and first["doc"] == "A buffer has one dimension."
    assert (first["number"], first["statement"]) == (1, first["before"])
    assert first["after"].startswith('A_shared = T.alloc_shared((6144,), "float16"')
    (row,) = [each for each in compiled("mm").to_dict("passes") if each["name"] == snapshot.name]
    assert row["rules"] == snapshot.rules


def test_rewrites_as_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda rows: ("frame", rows)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    snapshot = compiled("mm").passes["flatten_buffers"]
    assert snapshot.to_frame() == ("frame", snapshot.to_dict())


def test_passes_that_tell_nothing() -> None:
    record = compile_record()  # by hand, of passes that are none of any target
    unchanged = PassBrowser(record).rules(1)
    assert (unchanged["rules"], unchanged["rewrites"], unchanged["total"]) == ([], [], 0)
    assert PassBrowser(record).rules(0)["total"] == 0
    with pytest.raises(IndexError):
        PassBrowser(record).rules(17)
    with pytest.raises(LookupError) as caught:
        step_of(parse_target("sim:sm_80"), "simplify_expressions", 2)
    assert str(caught.value) == (
        "'sim:sm_80' has no pass 'simplify_expressions' after 2 others of that name"
    )
    off = tw.compile(
        matmul(64, 64, 64, "float16"), target="sim:sm_80", disable=["simplify_expressions"]
    )
    assert [each.rules for each in off.passes if each.disabled] == [{}, {}]


def test_long_lists_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_rules, "MOST", 3)
    browser = PassBrowser(compiled("mm").record)
    found = browser.rules(browser.find("flatten_buffers"))
    assert len(found["rewrites"]) == 3 < found["total"]
    assert sum(each["count"] for each in found["rules"]) == found["total"]


def test_without_a_kernel() -> None:
    view = compiled("mm").view()
    page = unescape(passes_section(view, True))
    counts = compiled("mm").passes["flatten_buffers"].rules
    assert "What flatten_buffers did" in page and "A buffer has one dimension." in page
    assert f"and {counts['flatten_address'] - 3} more" in page
    assert "What flatten_buffers did" not in passes_section(view, False)  # of a card
    assert "What flatten_buffers did" not in passes_section(compiled("mm", "cpu").view(), True)
    at = PassBrowser(view.record).find("flatten_buffers")
    assert diff_text(view, at).splitlines()[1].startswith("rules: flatten_address ")
    assert "flatten_address" in diff_section(view, at)
    at = PassBrowser(view.record).find("insert_barriers")
    assert "This pass works on the whole kernel: it adds " in diff_text(view, at).splitlines()[1]
    assert "add Barrier" in diff_section(view, at)
    edited = replace(view, record=replace(view.record, snapshots=()))
    assert "rules" not in diff_text(edited, 0)
