"""All views, those of `VIEWS` that come later too: readable in every theme, usable without a
pointer, named for screen readers, and each says what it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.audit import AUDIT, THEMES, faults, reached_by_tab, use_theme
from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tileworkbench.viz.model.views import VIEWS

if TYPE_CHECKING:
    from playwright.sync_api import Locator

GPU, CPU, PIPELINED, WRONG, STATIC, HOSTILE, PRINTING = 1, 2, 3, 4, 5, 6, 7
FILLED = (("wrong", "errors"), ("printing", "prints"))
CELLS = [
    f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from IPython.display import HTML, display
import tileworkbench as tw
from tests.viz.sample import full_view, hostile_view
from tests.viz.tiled import compiled, conflicting
from tileworkbench.kernels import matmul
from tileworkbench.viz.display import show
from tileworkbench.viz.model.card import card_html
from tileworkbench.viz.model.views import VIEWS, view_html
gpu, cpu = conflicting.compile(), tw.compile(matmul(64, 64, 64), target="cpu")
for each in (gpu, cpu):
    each.with_costs(shown=False, counted=True)
from tests.api.wrong_kernels import cases
from tests.viz.test_prints import printing
gpu.numerics()
printed = printing.with_target("sim:sm_80").compile()
printed.prints()
measured, recorded = full_view(), gpu.footprint()
wrong, reference, inputs = cases()["wrong_warp"]
wrong = wrong.with_target("sim:sm_80").compile()
try:
    wrong.check(reference, *inputs)
except tw.CheckError:
    pass""",
    "gpu",
    "cpu",
    "compiled('mm')",
    "wrong",
    """\
for view in (gpu.view(), cpu.view(), wrong.view(), printed.view(), measured):
    display(*[HTML(view_html(view, name)) for name in VIEWS], HTML(card_html(view)))
display(tw.compare(gpu, cpu))""",
    """\
bad = hostile_view()
for name in VIEWS:
    display(HTML(view_html(bad, name)))
show(bad)""",
    "printed",
]


@pytest.fixture
def notebook(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage], request: pytest.FixtureRequest
) -> Iterator[NotebookPage]:
    """The notebook, run: all of it, or the cells that a test is parametrised with."""
    write_notebook(lab.root / "looks.ipynb", *CELLS)
    page = open_notebook("looks.ipynb")
    page.page.evaluate(AUDIT)
    wanted = getattr(request, "param", None)
    if wanted is None:
        page.run_all()
    for index in wanted or ():
        page.run_cell(index)
    page.page.set_default_timeout(WAIT_MS)
    assert page.cell_errors() == []
    yield page
    page.page.emulate_media(forced_colors="none", contrast="no-preference")
    use_theme(page.page, THEMES[0])


def tabs(card: Locator) -> Iterator[str]:
    """Open each tab of a card, its explanations too; gives the tab's name."""
    for tab in card.get_by_role("tab").all():
        name = tab.get_attribute("data-tab") or ""
        tab.click()
        pane = card.locator(f".tw-pane-{name}")
        if name != "card":
            pane.locator(".tw-about-view").first.wait_for()
        pane.evaluate("node => node.querySelectorAll('details').forEach(each => each.open = true)")
        yield name


def cards(notebook: NotebookPage) -> dict[str, Locator]:
    return {
        "gpu": notebook.output(GPU).locator(".tw-card").first,
        "cpu": notebook.output(CPU).locator(".tw-card").first,
        "pipelined": notebook.output(PIPELINED).locator(".tw-card").first,
        "wrong": notebook.output(WRONG).locator(".tw-card").first,
        "printing": notebook.output(PRINTING).locator(".tw-card").first,
    }


def open_all(notebook: NotebookPage) -> dict[str, Locator]:
    """The cards with the panes of all tabs in sight, and the static views, all unfolded."""
    found = cards(notebook)
    seen = set()
    for card in found.values():
        seen.update(tabs(card))
        card.evaluate(
            "node => node.querySelectorAll('.tw-body > *').forEach(each => {"
            " each.hidden = false; })"
        )
    assert seen == {"card", *VIEWS}
    static = notebook.cell(STATIC).locator(".jp-OutputArea")
    static.evaluate("node => node.querySelectorAll('details').forEach(each => each.open = true)")
    return {**found, "static": static}


def test_views_are_readable_and_named(notebook: NotebookPage) -> None:
    """Some of what the next two tests look at, with the views opened once: for every change."""
    views, found = open_all(notebook), {}
    for theme in THEMES[:2]:
        use_theme(notebook.page, theme)
        found[theme] = {name: faults(view, "contrast") for name, view in views.items()}
    for name, view in views.items():
        kinds = ("names", "words") if name == "static" else ("names", "keys", "focus", "words")
        found.setdefault("names", {})[name] = faults(view, *kinds)
    assert [(kind, *each) for kind, all in found.items() for each in all.items() if each[1]] == []


@pytest.mark.slow
def test_texts_are_readable(notebook: NotebookPage) -> None:
    """4.5:1 for every text, in the themes of JupyterLab and of systems."""
    page, views, found = notebook.page, open_all(notebook), {}
    for theme in THEMES:
        use_theme(page, theme)
        found[theme] = {name: faults(view, "contrast") for name, view in views.items()}
        written = sum(view.evaluate("node => window.audit.texts(node)") for view in views.values())
        assert written > 500  # what canvases write is among them
    use_theme(page, THEMES[0])
    for wanted in ({"contrast": "more"}, {"forced_colors": "active"}):
        page.emulate_media(**wanted)
        found[str(wanted)] = {name: faults(view, "contrast") for name, view in views.items()}
        page.emulate_media(contrast="no-preference", forced_colors="none")
    assert [(theme, *each) for theme, all in found.items() for each in all.items() if each[1]] == []


@pytest.mark.slow
def test_names_keys_and_explanations(notebook: NotebookPage) -> None:
    page = notebook.page
    views = open_all(notebook)
    assert faults(views.pop("static"), "names", "words") == []
    assert [faults(view, "names", "keys", "focus", "words") for view in views.values()] == [[]] * 5
    walked: set[str] = set()
    for kernel, card in cards(notebook).items():
        for name in tabs(card):
            # Pressing Tab through a card takes a second: once per view, and where it has something.
            if name not in walked or (kernel, name) in FILLED:
                assert reached_by_tab(page, card) == [], (kernel, name)
                walked.add(name)
            if name == "card":
                continue
            said = card.locator(f".tw-pane-{name} .tw-about-view").first.inner_text()
            assert re.search(r"\d", said), (kernel, name, said)  # this kernel's numbers
    titles = [VIEWS[name].title for name in VIEWS]
    card = cards(notebook)["gpu"]
    tab = card.get_by_role("tab", name="Card", exact=True)
    tab.focus()
    page.keyboard.press("ArrowRight")
    selected = card.locator("[role=tab][aria-selected=true]")
    assert selected.inner_text().startswith(titles[0])
    page.keyboard.press("ArrowLeft")
    assert selected.inner_text() == "Card"
    for key in ("Enter", "Space"):
        tab.focus()
        tab.click()
        card.get_by_role("tab", name="Code", exact=True).focus()
        page.keyboard.press(key)
        assert selected.inner_text() == "Code"


@pytest.mark.parametrize("notebook", [[0, GPU]], indirect=True, ids=[""])
def test_lines_by_arrow_keys(notebook: NotebookPage) -> None:
    """What a click on a line does, the arrow keys do."""
    card = cards(notebook)["gpu"]
    card.get_by_role("tab", name="Source", exact=True).click()
    listing = card.locator(".tw-pane-source .tw-listing").first
    listing.focus()
    for _ in range(3):
        notebook.page.keyboard.press("ArrowDown")
    marked = listing.locator(".tw-marked")
    assert marked.count() == 1
    first = int(listing.locator(".tw-line").first.get_attribute("data-line") or 0)
    assert int(marked.get_attribute("data-line") or 0) == first + 2
    card.locator(".tw-line-detail").get_by_text(f"line {first + 2}").wait_for()


@pytest.mark.parametrize("notebook", [[0, HOSTILE]], indirect=True, ids=[""])
def test_hostile_names_are_text(notebook: NotebookPage) -> None:
    output = notebook.cell(HOSTILE).locator(".jp-OutputArea")
    card = output.locator(".tw-card").first
    for name in tabs(card):
        assert "window.hacked=1" in card.inner_text(), name
    assert output.locator("script, img[src='x']").count() == 0
    assert notebook.page.evaluate("window.hacked") is None
    assert notebook.errors == []


BAD = """
<div style="background:#fff;color:#8a8a8a">faint</div>
<div style="background:#fff"><b style="opacity:0.5;color:#444">thin</b></div>
<svg width="90" height="20"><rect width="90" height="20" fill="#888"/>
  <text y="15" fill="#777">lost</text></svg>
<button></button><button aria-label="◀"></button><input><canvas></canvas>
<div id="pressed">press</div>
<button style="outline:none">plain</button>
<p style="background:#fff;color:#000">black</p>
<p style="background:#fff;color:#000"><b>two</b><i style="margin-left:9px">words</i></p>
<canvas id="drawn" aria-label="grid" width="90" height="20"></canvas>
"""


@pytest.mark.parametrize("notebook", [[]], indirect=True, ids=[""])
def test_what_is_wrong_is_found(notebook: NotebookPage) -> None:
    page = notebook.page
    page.evaluate(
        "html => { const node = document.createElement('div'); node.id = 'bad';"
        " node.innerHTML = html; node.style.cssText = 'position:fixed;top:0;z-index:99';"
        " document.body.append(node);"
        " node.querySelector('#pressed').addEventListener('click', () => {});"
        " const pen = node.querySelector('#drawn').getContext('2d');"
        " pen.fillStyle = '#555'; pen.fillRect(0, 0, 90, 20); pen.textBaseline = 'middle';"
        " pen.fillStyle = '#fff'; pen.fillText('white', 9, 10);"
        " pen.fillStyle = '#777'; pen.fillText('pale', 50, 10); }",
        BAD,
    )
    bad = page.locator("#bad")
    try:
        assert [fault.partition("'")[2] for fault in faults(bad, "contrast")] == [
            "pale'",
            "faint'",
            "thin'",
            "lost'",
        ]
        named = faults(bad, "names")
        assert len(named) == 5 and any("svg" in each for each in named)
        assert faults(bad, "keys") == ["clicks alone: <div> 'press'"]
        assert faults(bad, "words") == ["one word: 'twowords'"]
        assert "no visible focus: <button> 'plain'" in faults(bad, "focus")
    finally:
        bad.evaluate("node => node.remove()")
