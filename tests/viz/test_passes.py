"""The pass explorer's model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.viz.sample import compile_record
from tileworkbench.compiler.record import Snapshot
from tileworkbench.viz.model.diff import Row
from tileworkbench.viz.model.passes import ROW_LIMIT, PassBrowser, fold_rows


@pytest.fixture(scope="module")
def browser() -> PassBrowser:
    return PassBrowser(compile_record())


def test_overview_lists_the_front_end_and_every_pass(browser: PassBrowser) -> None:
    entries = browser.overview(live=False)["entries"]
    assert [(entry["name"], entry["changed"]) for entry in entries] == [
        ("front end", True),
        ("simplify_indices", False),
        ("lower_fill", True),
        ("lower_copy", True),
        ("hoist_invariants", False),
        ("vectorize_loops", True),
    ]
    assert entries[3]["doc"] == "Turn each copy into loops with explicit indices."
    assert not any("time" in entry for entry in entries)


def test_only_the_live_overview_has_times(browser: PassBrowser) -> None:
    times = [entry.get("time") for entry in browser.overview(live=True)["entries"]]
    assert times == [None, "41 µs", "88.4 µs", "410 µs", "12.7 µs", "1.63 ms"]


def test_a_changed_row_carries_text_words_and_source_line(browser: PassBrowser) -> None:
    changed = [row for row in browser.diff(5)["rows"] if row["kind"] == "changed"]
    assert changed[0] == {
        "kind": "changed",
        "before": {
            "number": 12,
            "text": "            for j in T.serial(64):",
            "source": 12,
            "words": [[23, 29]],
        },
        "after": {
            "number": 12,
            "text": "            for j in T.vectorized(64):",
            "source": 12,
            "words": [[23, 33]],
        },
    }
    assert [row["after"]["source"] for row in changed] == [12, 14, 15]


def test_counts_of_a_difference(browser: PassBrowser) -> None:
    diff = browser.diff(2)
    assert (diff["added"], diff["removed"], diff["dropped"]) == (3, 1, 0)
    assert not any(row["kind"] == "changed" for row in diff["rows"])  # unlike lines are no pair


def test_a_pass_without_effect_shows_the_program_unchanged(browser: PassBrowser) -> None:
    assert {row["kind"] for row in browser.diff(1)["rows"]} == {"same"}
    assert browser.lines(1) is browser.lines(0)
    assert browser.unified(1) == ""


def test_a_pass_says_why_it_chose() -> None:
    record = compile_record()
    first = replace(record.snapshots[1], program=replace(record.snapshots[1].program, notes=("a",)))
    noted = replace(record.snapshots[2].program, notes=("a", "b: row-major"))
    second = replace(record.snapshots[2], program=noted)
    steps = (record.snapshots[0], first, second, *record.snapshots[3:])
    browser = PassBrowser(replace(record, snapshots=steps))
    assert [browser.diff(index)["notes"] for index in (0, 2, 3)] == [[], ["a"], ["b: row-major"]]


def test_unified_text(browser: PassBrowser) -> None:
    assert browser.unified(2).splitlines() == [
        "--- after simplify_indices",
        "+++ after lower_fill",
        "@@ -8,7 +8,9 @@",
        '         A_shared = T.alloc_shared((64, 32), "float32")',
        '         B_shared = T.alloc_shared((32, 64), "float32")',
        '         C_local = T.alloc_fragment((64, 64), "float32")',
        "-        T.fill(C_local, 0.0)",
        "+        for i in T.serial(64):",
        "+            for j in T.serial(64):",
        "+                C_local[i, j] = 0.0",
        "         for k in T.Pipelined(8, num_stages=2):",
        "             T.copy(A[by * 64:by * 64 + 64, k * 32:k * 32 + 32], A_shared)",
        "             T.copy(B[k * 32:k * 32 + 32, bx * 64:bx * 64 + 64], B_shared)",
    ]


def test_search_counts_lines_in_every_program(browser: PassBrowser) -> None:
    assert browser.search("VECTORIZED") == {
        "query": "VECTORIZED",
        "hits": [{"index": 5, "count": 3}],
    }
    assert [hit["index"] for hit in browser.search("t.fill")["hits"]] == [0, 1]
    assert browser.search("")["hits"] == []
    assert browser.search("nowhere")["hits"] == []


def test_find_and_first_shown(browser: PassBrowser) -> None:
    assert browser.find("lower_copy") == 3
    assert browser.first_shown() == 2
    with pytest.raises(ValueError) as caught:
        browser.find("lower_coppy")
    assert str(caught.value) == (
        "'lower_coppy' is not a pass; the passes are simplify_indices, lower_fill, lower_copy, "
        "hoist_invariants, vectorize_loops"
    )


@pytest.mark.parametrize("index", [-1, 6])
def test_an_index_out_of_range_is_an_error(browser: PassBrowser, index: int) -> None:
    with pytest.raises(IndexError) as caught:
        browser.diff(index)
    assert str(caught.value) == f"there is no pass {index}: the record has 5"


def test_a_record_without_passes_shows_the_front_end() -> None:
    browser = PassBrowser(compile_record(snapshots=()))
    assert browser.first_shown() == 0
    assert len(browser.diff(0)["rows"]) == 16


def test_a_site_in_another_file_has_no_source_line() -> None:
    record = compile_record(source_file="elsewhere.py")
    rows = PassBrowser(record).diff(0)["rows"]
    assert {row["after"]["source"] for row in rows} == {0}


def test_fold_keeps_context_around_changes() -> None:
    rows = [Row("same", i, i) for i in range(10)]
    rows[5] = Row("changed", 5, 5)
    assert fold_rows(rows, context=1) == [4, rows[4], rows[5], rows[6], 3]


def test_a_huge_difference_stays_small() -> None:
    record = compile_record()
    kernel = record.program.body
    body = kernel.body
    many = replace(kernel, body=replace(body, stmts=(*body.stmts[:4], *body.stmts[3:4] * 20_000)))
    huge = replace(record.program, body=many)
    less = replace(huge, body=replace(many, body=replace(many.body, stmts=many.body.stmts[1:])))
    steps = (Snapshot("a", "", huge, True, 1.0), Snapshot("b", "", less, True, 1.0))
    diff = PassBrowser(replace(record, snapshots=steps)).diff(2)
    assert len(diff["rows"]) <= ROW_LIMIT
    assert any(row["kind"] == "fold" and row["count"] > 19_000 for row in diff["rows"])
    assert len(json.dumps(diff)) < 500_000
    front = PassBrowser(replace(record, program=huge, snapshots=())).diff(0)
    assert len(front["rows"]) == ROW_LIMIT
    assert {row["kind"] for row in front["rows"]} == {"same"}
    assert front["dropped"] > 17_000
