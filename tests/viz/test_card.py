"""The kernel card: its model, the static page, and the one line of text."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

import tileworkbench as tw
from tests.viz.sample import (
    LAYOUTS,
    MACHINE,
    compile_record,
    full_view,
    hostile_view,
    kernel_view,
)
from tests.viz.sanitiser import problems
from tileworkbench.bench.units import format_bytes, format_count, format_error, format_time
from tileworkbench.compiler.diagnostics import Note
from tileworkbench.compiler.record import Count, Snapshot
from tileworkbench.kernels import matmul
from tileworkbench.viz.model.bench import bench_model
from tileworkbench.viz.model.card import (
    HTML_LIMIT,
    card_html,
    card_model,
    status,
    tabs,
)
from tileworkbench.viz.model.code import CODE_LIMIT
from tileworkbench.viz.model.text import first_sentence, plain_line
from tileworkbench.viz.model.views import view_html, view_model
from tileworkbench.workbench.results import CheckResult


def test_plain_line() -> None:
    assert plain_line(kernel_view()) == (
        "<TileKernel mm[BK=32,BM=64] cpu grid=4x4 threads=128 smem=16.0KiB | 5 passes, 3 changed"
        " | AI 42.7 FLOP/B | check ok | 1 warning (line 13)>"
    )


def test_plain_line_without_optional_facts() -> None:
    view = kernel_view(
        record=compile_record(constants=(), warnings=()),
        shared_bytes=0,
        flops=None,
        check=None,
        bench=None,
    )
    assert plain_line(view) == "<TileKernel mm cpu grid=4x4 threads=128 | 5 passes, 3 changed>"


def test_variants_are_named() -> None:
    view = kernel_view(variants=("code for every size", "code where N % 8 == 0"))
    variant = replace(view.record, facts=("N % 8 == 0", "K % 4 == 0"))
    assert "| where N % 8 == 0 and K % 4 == 0 |" in plain_line(replace(view, record=variant))
    record = replace(view.record, variants=(variant,))
    assert "| 2 variants |" in plain_line(replace(view, record=record))
    assert card_model(view)["notes"] == ["code for every size", "code where N % 8 == 0"]
    assert "code where N % 8 == 0" in card_html(view)


def test_plain_line_says_that_threads_are_executed() -> None:
    view = kernel_view()
    program = view.record.program
    step = Snapshot("split_threads", "", program, True, 1.0)
    record = replace(view.record, snapshots=(step, *view.record.snapshots))
    assert " threads=128 simt smem=16.0KiB " in plain_line(replace(view, record=record))
    assert " simt " not in plain_line(view)


def test_plain_line_of_a_failed_check_rounds_the_error() -> None:
    view = kernel_view(check=CheckResult(False, 0.0312, 1e-5))
    assert "check FAILED (max err 3e-02)" in plain_line(view)


def test_text_and_html_do_not_depend_on_host_time_or_place() -> None:
    """Only what the user wrote and what the compiler decided may show: nbval compares the rest."""
    one = kernel_view(layouts=LAYOUTS)
    record = replace(
        one.record,
        level="generic",
        cached="disk",
        code="other",
        source_file="/elsewhere.py",
        timings=(),
        program=replace(one.record.program, sites=(None,)),
        warnings=tuple(
            Note(note.message, replace(note.span, file="/elsewhere.py"))
            for note in one.record.warnings
            if note.span
        ),
        snapshots=tuple(replace(found, time_us=1e9) for found in one.record.snapshots),
    )
    check = CheckResult(True, 9e-9, 1e-3)
    other = replace(one, record=record, scratch_bytes=1, bench=None, check=check)
    assert plain_line(one) == plain_line(other)
    assert card_html(one) == card_html(other)
    for word in ("avx512", "/tmp", "µs", "ms", "cached", "compiled in", "0x", "40.0 KiB"):
        assert word not in card_html(kernel_view())


def test_static_views_survive_the_sanitiser() -> None:
    view = full_view()
    for page in (card_html(view), view_html(view, "passes"), view_html(view, "layouts")):
        assert problems(page) == []


def test_the_sanitiser_check_can_fail() -> None:
    assert problems("<svg></svg>") == ["tag <svg>"]
    assert problems('<div id="x" onclick="y"></div>') == [
        "attribute id of <div>",
        "attribute onclick of <div>",
    ]
    assert problems('<img src="https://example.org/x.png">') == [
        "address https://example.org/x.png"
    ]
    assert problems('<b style="position:fixed">') == ["style position", "unclosed <b>"]


def test_everything_a_user_wrote_is_escaped() -> None:
    view = hostile_view()
    page = card_html(view)
    assert "<script" not in page
    assert problems(page) == []


def test_static_card_stays_small_whatever_the_kernel() -> None:
    record = compile_record(source="x = 1  # <&>\n" * 5000)
    view = replace(full_view(), record=record, layouts=LAYOUTS * 40)
    page = card_html(view)
    assert len(page.encode()) <= HTML_LIMIT
    assert problems(page) == []
    assert "Passes" in page
    assert "Too large" not in card_html(full_view())


def test_the_static_card_names_layouts_made_for_one_machine() -> None:
    view = replace(full_view(), portable_layouts=False)
    page = card_html(view)
    names = ", ".join(layout.name for layout in LAYOUTS)
    assert f"{names}: it depends on the machine: run the cell to see it" in page
    assert "coloured by" not in page and "coloured by" in view_html(view, "layouts")
    assert problems(page) == []


def test_a_view_that_was_asked_for_is_open() -> None:
    view = full_view()
    assert "<details" in card_html(view) and "open=" not in card_html(view)
    for name in ("passes", "layouts", "source"):
        assert view_html(view, name).count('open=""') == 1


def test_sections_appear_only_with_something_to_show() -> None:
    page = card_html(kernel_view(record=compile_record(source="", code="")))
    assert all(f"<b>{name}</b>" not in page for name in ("Source", "Layouts", "Code", "Roofline"))
    page = card_html(full_view())
    assert all(f"<b>{name}</b>" in page for name in ("Source", "Layouts", "Code", "Roofline"))


def test_tabs_appear_only_with_something_to_show() -> None:
    names = [name for name, _ in tabs(full_view())]
    assert names == ["card", "source", "passes", "layouts", "roofline", "code"]
    bare = kernel_view(record=compile_record(source="", code=""), machine=MACHINE)
    assert tabs(bare) == [["card", "Card"], ["passes", "Passes"]]


def test_card_model() -> None:
    model = card_model(full_view())
    assert [(fact["label"], fact["value"]) for fact in model["facts"]] == [
        ("grid", "4x4"),
        ("threads", "128"),
        ("passes", "3 of 5"),
        ("shared", "16.0 KiB"),
        ("scratch", "40.0 KiB"),
        ("flops", "33.6 M"),
        ("traffic", "768.0 KiB"),
        ("intensity", "42.7 FLOP/B"),
    ]
    assert model["facts"][5]["hint"] == "2*M*N*K"
    assert model["check"] == {
        "ok": True,
        "text": "check ok",
        "detail": "largest error 3e-07, tolerance 1e-05 against torch.matmul",
    }
    assert model["status"] == "compiled in 36.7 ms"
    assert model["warnings"] == [
        {"text": "'num_stages=2' has no effect on the target 'cpu'", "line": 13}
    ]
    source = view_model(full_view(), "source")
    assert (source["first"], source["lines"][0]) == (2, "@tw.jit")
    assert source["warnings"] == model["warnings"]


def test_a_count_without_a_value_shows_its_formula() -> None:
    view = kernel_view(flops=Count(math.nan, "2*M*N*K"))
    facts = {fact["label"]: fact["value"] for fact in card_model(view)["facts"]}
    assert facts["flops"] == "2*M*N*K"
    assert "intensity" not in facts


@pytest.mark.parametrize(
    ("cached", "text"), [("", "compiled in 36.7 ms"), ("memory", "cached (memory)")]
)
def test_status(cached: str, text: str) -> None:
    assert status(compile_record(cached=cached)) == text


def test_arithmetic_of_integers_is_counted_in_operations() -> None:
    view = tw.compile(matmul(64, 64, 64, "int8"), target="sim:sm_80").view()
    (fact,) = (each for each in card_model(view)["facts"] if each["label"] == "intensity")
    assert re.fullmatch(r"[\d.]+ OP/B", fact["value"])
    assert fact["hint"] == "arithmetic intensity: OP per byte of global memory"
    assert f"| AI {fact['value']}" in plain_line(view)


def test_a_measurement() -> None:
    run = kernel_view().bench
    assert run is not None
    summary = bench_model(run)
    assert summary["median"] == "408 µs"
    assert summary["quartiles"] == "404 µs – 413 µs"
    assert summary["flops"] == "82.3 GFLOP/s"
    assert summary["bytes"] == "1.93 GB/s"
    assert bench_model(replace(run, times_us=(7.0,)))["quartiles"] == "7 µs – 7 µs"


def test_long_code_is_cut_and_says_so() -> None:
    long = kernel_view(record=compile_record(code="x" * (CODE_LIMIT + 5)))
    text = view_model(long, "code")
    assert (len(text["text"]), text["dropped"]) == (CODE_LIMIT, 5)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (format_bytes(512), "512 B"),
        (format_bytes(24 * 1024), "24.0 KiB"),
        (format_count(950), "950"),
        (format_count(999.7), "1 k"),
        (format_count(33_554_432), "33.6 M"),
        (format_count(0.00125), "0.00125"),
        (format_time(0.84), "840 ns"),
        (format_time(3400), "3.4 ms"),
        (format_time(1.2e6), "1.2 s"),
        (format_error(0.0), "0"),
        (format_error(math.nan), "nan"),
        (format_error(3.44e-7), "3e-07"),
        (first_sentence("Do this.\nThen that.\n\nMore."), "Do this."),
        (first_sentence("No full stop\nhere\n\nMore."), "No full stop here"),
    ],
)
def test_numbers_and_sentences(written: str, text: str) -> None:
    assert written == text
