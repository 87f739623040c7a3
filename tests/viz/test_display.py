"""Outputs, widgets without a browser, the browser's files, and the saved page."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import weakref
from collections import deque
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import IPython
import pytest

from tests.viz.sample import LAYOUTS, compile_record, full_view, kernel_view
from tests.viz.tiled import compiled
from tileworkbench.compiler.diagnostics import ArgumentError, Note
from tileworkbench.viz.display import NAMES, mimebundle, show
from tileworkbench.viz.magics.grammar import TABS
from tileworkbench.viz.model.assets import module, needed, read_static, script, stylesheet
from tileworkbench.viz.model.page import page_html, save_html
from tileworkbench.viz.model.views import VIEWS
from tileworkbench.viz.widgets import base
from tileworkbench.viz.widgets.base import ViewWidget

STATIC_FILES = Path(__file__).parents[2] / "tileworkbench" / "viz" / "static"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process looks like that is a notebook's kernel."""
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.delenv("TILEWORKBENCH_STATIC", raising=False)
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")


def replies(widget: ViewWidget, *messages: Any) -> list[Any]:
    """What the widget answers to messages of a browser."""
    sent: list[Any] = []
    widget.send = lambda content, buffers=None: sent.append(content)  # type: ignore[method-assign]
    for message in messages:
        widget._receive(widget, message, [])
    return sent


def test_without_a_kernel_an_output_is_html_and_text() -> None:
    data, metadata = mimebundle(full_view())
    assert set(data) == {"text/plain", "text/html"}
    assert metadata == {}


def test_a_card_is_drawn_without_loading_jupyter() -> None:
    code = (
        "import sys; from tests.viz.sample import full_view\n"
        "from tileworkbench.viz.display import mimebundle\n"
        "mimebundle(full_view())\n"
        "print({'ipywidgets', 'anywidget', 'matplotlib', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize(
    "name", ["card", "source", "passes", "diff", "layouts", "code", "passes:lower_copy", "roofline"]
)
def test_every_view_has_text_and_html(name: str) -> None:
    widget = show(full_view(), name)
    data, _ = widget._repr_mimebundle_()
    assert data["text/plain"] == repr(widget)
    assert " at 0x" not in repr(widget)
    assert len(data["text/html"].encode()) <= 60_000


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bank",
            f"'bank' is not a view\nhint: choose one of {', '.join(NAMES)}",
        ),
        (
            "passes:nope",
            "'nope' is not a pass; the passes are simplify_indices, lower_fill, lower_copy, "
            "hoist_invariants, vectorize_loops",
        ),
    ],
)
def test_a_view_that_is_none_is_an_error(name: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        show(kernel_view(), name)
    assert str(caught.value) == message


def test_a_buffer_that_is_none_is_an_error() -> None:
    with pytest.raises(ArgumentError) as caught:
        show(full_view(), "layouts:D")
    assert str(caught.value) == (
        "'D' has no layout; there are ['A_shared', 'C_local', 'row', 'versions']"
    )


def test_views_open_where_asked() -> None:
    assert show(full_view(), "passes:lower_copy").selected_pass == 3
    assert show(full_view(), "layouts:C_local").layout_name == "C_local"
    assert show(full_view(), "all").tab == "card"


def test_the_still_form_of_one_layout_has_no_other() -> None:
    def drawn(which: str) -> list[str]:
        html = show(full_view(), which)._repr_mimebundle_()[0]["text/html"]
        return [name for name in ("A_shared", "C_local", "row") if f">{name}<" in html]

    assert drawn("layouts:C_local") == ["C_local"]
    assert drawn("layouts") == ["A_shared", "C_local", "row"]


def test_a_difference_travels_on_request() -> None:
    widget = show(full_view(), "passes")
    first, second = replies(
        widget,
        {"type": "diff", "request": "a", "index": 3},
        {"type": "search", "request": "b", "query": "serial"},
    )
    assert (first["type"], first["request"], first["value"]["index"]) == ("answer", "a", 3)
    assert [hit["index"] for hit in second["value"]["hits"]] == [2, 3, 4, 5]


def test_a_bad_request_is_answered_with_its_error() -> None:
    widget = show(full_view(), "passes")
    assert replies(widget, {"type": "diff", "request": "a", "index": 99}) == [
        {"type": "answer", "request": "a", "error": "there is no pass 99: the record has 5"}
    ]
    assert replies(widget, {"type": "unknown"}, "text", None) == []
    assert "error" in replies(widget, {"type": "diff", "request": "a"})[0]


def test_code_travels_on_request() -> None:
    for widget in (show(full_view()), show(full_view(), "code")):
        [answer] = replies(widget, {"type": "view", "name": "code", "request": 1})
        assert answer["value"]["text"].startswith("define void @mm")


def test_choosing_a_thread_brings_its_elements() -> None:
    widget = show(full_view(), "layouts:C_local")
    widget.selected_thread = 5
    assert widget.thread_elements[:4] == [[1, 2], [1, 3], [9, 2], [9, 3]]
    widget.selected_thread = -1
    assert widget.thread_elements == []


def test_choosing_a_buffer_replaces_the_tables_and_the_selection() -> None:
    widget = show(full_view(), "layouts")
    widget.selected_thread, widget.selected_element = 7, [0, 7]
    widget.layout_name = "versions"
    assert widget.layout_data["name"] == "versions"
    assert (widget.selected_thread, widget.selected_element) == (-1, [])
    widget.layout_lead = [2]
    assert widget.layout_data["lead"] == [2]
    widget.layout_name = "nowhere"
    assert widget.layout_data["name"] == "versions"


def test_an_element_is_located_on_request() -> None:
    message = {"type": "locate", "request": 1, "name": "C_local", "index": [1, 2]}
    assert replies(show(full_view(), "layouts"), message)[0]["value"] == {
        "threads": [5],
        "slot": 0,
    }


def test_a_displayed_card_sends_less_than_a_megabyte() -> None:
    record = compile_record(code="x" * 5_000_000)
    state = show(full_view()).get_state() | show(kernel_view(record=record)).get_state()
    assert sum(len(str(value)) for value in state.values()) < 375_000


def test_the_browsers_files_are_small_and_fetch_nothing() -> None:
    files = sorted(STATIC_FILES.iterdir())
    assert {path.suffix for path in files} == {".js", ".css"}
    for path in files:
        text = read_static(path.name)
        assert len(text.encode()) < 40_000
        assert not re.search(r"\bimport\(", text)
        assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|innerHTML|eval)\b", text)
        # Data may come from a notebook that nobody trusts: `drawing` alone makes markup of text.
        assert not re.search(r"\b(outerHTML|insertAdjacentHTML|srcdoc|document\.write)\b", text)
        assert path.name == "common.js" or "DOMParser" not in text
        assert "://" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("view", ["card", *VIEWS])
def test_a_module_stands_alone_and_exports_its_view(view: str) -> None:
    text = module(view)
    assert not re.search(r"^\s*import\b", text, re.MULTILINE)  # all forms were understood
    assert re.findall(r"^export.*$", text, re.MULTILINE) == [text.rstrip().splitlines()[-1]]
    assert all(text.count(f"const ${name} = ") == 1 for name in needed(view))
    assert stylesheet(view).count("{") == stylesheet(view).count("}")


def test_a_class_of_elements_belongs_to_one_sheet() -> None:
    """A widget joins the sheets of all its views, so a rule of one would change another."""
    owners: dict[str, set[str]] = {}
    for path in STATIC_FILES.glob("*.css"):
        for rule in re.findall(r"^([^{}]+)\{", read_static(path.name), re.MULTILINE):
            for selector in rule.split(","):
                if found := re.fullmatch(r"\s*\.(tw-[\w-]+)\s*", selector):
                    owners.setdefault(found.group(1), set()).add(path.name)
    shared = {name: files for name, files in owners.items() if len(files) > 1}
    assert shared == {}


def test_modules_come_after_what_they_import() -> None:
    found = needed("layouts")
    assert (found[0], found[-1]) == ("common", "layouts")
    assert found.index("slices") < found.index("grid") < found.index("layouts")
    assert script("card", "page").index("const $grid") < script("card", "page").index("const $page")


def test_the_magics_know_every_view() -> None:
    assert tuple(VIEWS) == TABS
    types = [kind for each in VIEWS.values() for kind in each.answers]
    assert len(types) == len(set(types))


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_with_nothing_to_show_says_why(kernel: None, name: str) -> None:
    bare = kernel_view(record=compile_record(source="", code=""))
    widget = show(bare, name)
    if name == "passes":
        return
    why = VIEWS[name].missing(bare)
    assert why and why in unescape(widget._repr_mimebundle_()[0]["text/html"])
    [reply] = replies(widget, {"type": "view", "name": name, "request": 1})
    assert reply["value"] == {"missing": why}


def test_a_saved_page_is_one_file_without_a_network(tmp_path: Path) -> None:
    path = save_html(full_view(), tmp_path / "mm.html")
    assert path.is_absolute()
    text = path.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_saved_page_keeps_a_users_text_as_data() -> None:
    evil = "</script><script>alert(1)</script><!-- \u2028"
    record = compile_record(name=evil, source=evil, code=evil, warnings=(Note(evil),))
    page = page_html(kernel_view(record=record, layouts=LAYOUTS))
    assert page.count("<script") == 1
    assert page.count("</script>") == 1
    assert "<!--" not in page
    assert "\u2028" not in page.split("<script")[1]


def test_a_saved_page_answers_for_every_pass() -> None:
    page = page_html(full_view())
    found = re.search(r"new \$page.SavedModel\((\{.*\}), (\{.*\})\);\n", page)
    assert found is not None
    answers = json.loads(found.group(2))
    assert [diff["index"] for diff in answers["diffs"]] == list(range(6))
    assert sorted(answers["layouts"]["versions"]) == ["0", "1", "2"]


def test_the_oldest_live_views_of_a_session_end(
    kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they stand on is freed; displayed again, a view is live again."""
    monkeypatch.setattr(base, "MOST_LIVE", 2)
    monkeypatch.setattr(base, "_shown", deque())
    views = [show(kernel_view()) for _ in range(3)]
    for view in views[:2]:
        view._repr_mimebundle_()
    views[0]._repr_mimebundle_()  # used again: the second is the oldest now
    views[2]._repr_mimebundle_()
    assert [view.comm is not None for view in views] == [True, False, True]
    data, _ = views[1]._repr_mimebundle_()
    assert views[1].comm is not None and views[1].place in data["text/html"]
    gone = weakref.ref(views[0])
    assert views[0].comm is None
    views.clear()
    gc.collect()
    assert gone() is None


def test_a_terminal_reads_the_numbers_of_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    view = compiled("conflicting").view()
    told = repr(show(view, "banks")).splitlines()
    assert "conflicts         CONFLICTS: 1 access conflicts, up to 4 words of one bank" in told
    (read,) = (line for line in told if line.startswith("A_shared: read"))
    assert read.endswith("512 wavefronts for 128, 4 in the worst phase CONFLICT")
    why = "Pipeline: no loop is T.Pipelined, or waits for copies of its own"
    assert repr(show(view, "pipeline")).splitlines()[1:] == [why]


@pytest.mark.parametrize("name", ["banks", "layouts", "roofline", "pipeline"])
def test_a_notebook_keeps_one_line(kernel: None, name: str) -> None:
    view = compiled("conflicting").view(roofline=True)
    assert len(repr(show(view, name)).splitlines()) == 1
