"""The JupyterLab extension: cards of saved notebooks, and what views ask of their notebook.

No cell is run: outputs are written into the files, which no server has signed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import LabServer, NotebookPage
from tests.viz.sample import full_view
from tests.viz.tiled import compiled
from tileworkbench.labext import NAME
from tileworkbench.viz.model.bundle import SAVED
from tileworkbench.viz.model.card import card_html
from tileworkbench.viz.model.saved import pack, saved_card, saved_parts

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FILES = f"/lab/extensions/{NAME}/static"
EVIL = "<img src=x onerror='window.evil = 1'>"
EVIL_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" onload="window.evil = 1" width="10" height="10">'
    '<script>window.evil = 1</script><a href="javascript:window.evil = 1"><text>a</text></a>'
    '<rect width="10" height="10" onclick="window.evil = 1" fill="url(https://outside.invalid)"/>'
    "</svg>"
)


def write(path: Path, *saved: dict[str, Any] | None) -> None:
    """A notebook with an output for each card, and the picture that goes with it."""
    cells = []
    for number, card in enumerate(saved):
        data = {"text/plain": "<TileKernel mm>", "text/html": f"<b>picture {number}</b>"}
        if card is not None:
            data[SAVED] = card
        output = nbformat.v4.new_output("execute_result", data, execution_count=1)
        cells.append(nbformat.v4.new_code_cell("mm", outputs=[output], execution_count=1))
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)


def card(room: int = 100_000, **changes: Any) -> dict[str, Any]:
    """The data of a card."""
    found = saved_card(full_view(), room)
    assert found is not None
    return {**found, **changes}


def hostile() -> dict[str, Any]:
    """A card whose every text is markup that would run."""
    state, answers = saved_parts(full_view())
    state["card"]["name"] = EVIL
    state["card"]["warnings"] = [{"line": 0, "text": EVIL}]
    state["roofline"]["svg"] = EVIL_SVG
    answers["views"]["code"]["text"] = EVIL
    return card(packed=pack((state, answers)))


def test_saved_cards_work_without_a_kernel(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    without_trees = len(card()["packed"]) - 1
    without_lines = len(card(without_trees)["packed"]) - 1
    without_diffs = len(card(without_lines)["packed"]) - 1
    without_code = len(card(without_diffs)["packed"]) - 1
    write(
        lab.root / "cards.ipynb",
        card(),
        hostile(),
        card(version="0.0.1"),
        card(packed="no base64"),
        card(styles=["../../../evil"]),
        card(without_code),
    )
    notebook = open_notebook("cards.ipynb")
    check_card(notebook.output(0))
    check_hostile(notebook, notebook.output(1))
    for number in (2, 3, 4):
        expect(notebook.output(number)).to_have_text(f"picture {number}")
    last = notebook.output(5)
    for tab in last.locator("[data-tab]").all():
        tab.click()
    expect(last).to_contain_text("This is not in the saved copy: run the cell to see it.")
    assert notebook.errors == []
    assert notebook.outside == []


def test_views_that_found_no_room_are_pictures(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    """Those of the output's own HTML, as JupyterLab's sanitiser leaves it."""
    view = compiled("conflicting").view()
    html = card_html(view).replace("<table", "<script>window.evil = 1</script><table", 1)
    saved = next(found for room in range(8_000, 40_000, 500) if (found := saved_card(view, room)))
    data = {"text/plain": "<TileKernel>", "text/html": html, SAVED: saved}
    output = nbformat.v4.new_output("execute_result", data, execution_count=1)
    cell = nbformat.v4.new_code_cell("conflicting", outputs=[output], execution_count=1)
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    made = nbformat.v4.new_notebook(cells=[cell], metadata=metadata)
    nbformat.write(made, lab.root / "little.ipynb")
    notebook = open_notebook("little.ipynb")
    shown = notebook.output(0)
    for tab, text in (("banks", "T.annotate_layout"), ("source", "T.gemm"), ("code", "__global__")):
        shown.locator(f"[data-tab={tab}]").click()
        pane = shown.locator(f".tw-pane-{tab}")
        expect(pane).to_contain_text("A picture, as saved: run the cell for the view that answers.")
        expect(pane).to_contain_text(text)
        expect(pane).not_to_contain_text("not in the saved copy")
    assert notebook.page.evaluate("window.evil") is None
    assert (notebook.errors, notebook.outside) == ([], [])


def check_card(shown: Locator) -> None:
    expect(shown.locator(".tw-status")).to_have_text("saved, compiled in 36.7 ms")
    shown.locator("[data-tab=passes]").click()
    shown.locator(".tw-passes").press("j")
    expect(shown.locator(".tw-passes")).to_have_attribute("data-shown", "3")
    shown.locator("[data-tab=layouts]").click()
    shown.locator(".tw-layouts select").first.select_option("C_local")
    shown.locator(".tw-owner[type=number]").last.fill("5")
    shown.locator(".tw-owner[type=number]").last.press("Enter")
    expect(shown.locator(".tw-elements")).to_contain_text("(1, 2) (1, 3) (9, 2) (9, 3)")
    shown.locator("[data-tab=source]").click()
    shown.locator(".tw-pane-source .tw-line", has_text="T.gemm").click()
    expect(shown.locator(".tw-line-detail").get_by_label("What became of the line")).to_be_visible()
    shown.locator("[data-tab=code]").click()
    expect(shown.locator(".tw-pane-code")).to_contain_text("define void @mm")


def check_hostile(notebook: NotebookPage, shown: Locator) -> None:
    expect(shown.locator(".tw-title")).to_have_text(EVIL)
    for tab in shown.locator("[data-tab]").all():
        tab.click()
    shown.locator("[data-tab=roofline]").click()
    shown.locator("svg rect").click(force=True)
    assert shown.locator("svg script, svg a, img").count() == 0
    assert notebook.page.evaluate("window.evil") is None


def test_a_view_asks_its_notebook(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    write(lab.root / "asking.ipynb", card(), None)
    notebook = open_notebook("asking.ipynb")
    expect(notebook.output(0).locator(".tw-status")).to_be_visible()
    points = [{"time_us": n} for n in range(120)]
    answers = notebook.page.evaluate(
        "async ([address, points]) => {"
        " const tw = await import(address);"
        " const node = document.querySelector('.tw-saved .tw-card');"
        " return [tw.insertCell('a = 1\\nb = 2', node), tw.insertCell('c', document.body),"
        "  tw.keepTrail('mm', points, node), tw.readTrail('mm', node).length,"
        "  tw.readTrail('other', node), tw.readTrail('toString', node),"
        "  tw.readTrail('mm', document.body)]; }",
        [f"{FILES}/views/common.js", points],
    )
    assert answers == [True, False, True, 100, [], [], []]
    assert notebook.page.locator(".jp-Notebook .jp-Cell").count() == 3
    notebook.execute("docmanager:save")
    saved = nbformat.read(lab.root / "asking.ipynb", as_version=4)
    assert [cell.source for cell in saved.cells] == ["mm", "a = 1\nb = 2", "mm"]
    assert saved.cells[1].outputs == []
    assert saved.metadata["tileworkbench"] == {"trail": {"mm": points[-100:]}}

    notebook.close()
    notebook.load("asking.ipynb")
    expect(notebook.output(0).locator(".tw-status")).to_be_visible()
    read = notebook.page.evaluate(
        "async (address) => { const tw = await import(address);"
        " const node = document.querySelector('.tw-saved .tw-card');"
        " const before = tw.readTrail('mm', node); tw.keepTrail('mm', null, node);"
        " return [before[0], tw.readTrail('mm', node)]; }",
        f"{FILES}/views/common.js",
    )
    assert read == [{"time_us": 20}, []]
    assert notebook.errors == []


def test_the_extension_fails_alone(lab: LabServer, browser: Browser) -> None:
    """Loaded as JupyterLab does it, with a share scope and an application unlike JupyterLab's."""
    context = browser.new_context()
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{lab.url}{FILES}/../package.json")
    page.add_script_tag(url=f"{lab.url}{FILES}/remoteEntry.js")
    found = page.evaluate(
        """async name => {
          const container = window._JUPYTERLAB[name];
          const got = async (module) => (await container.get(module))().default;
          const broken = { "1.0.0": { get: () => { throw new Error("no such package"); } } };
          const all = [];
          const other = { "1.0.0": { get: async () => () => ({}) } };
          for (const scope of [undefined, {}, { "@lumino/widgets": {} },
              { "@lumino/widgets": broken }, { "@lumino/widgets": other }]) {
            await container.init(scope);
            all.push(await got("./saved"));
          }
          all.push(await got("./unknown"));
          const [plugin, ...others] = await got("./extension");
          const panel = { content: { model: { sharedModel: {} }, node: document } };
          plugin.activate({});
          for (const shown of [null, [{}], [panel]])
            plugin.activate({ shell: { widgets: () => shown } });
          const unanswered = ["insert-cell", "keep-trail", "read-trail"].map((name) =>
            document.body.dispatchEvent(
              new CustomEvent(`tileworkbench:${name}`, { bubbles: true, cancelable: true })));
          return [all, plugin.id, others, unanswered];
        }""",
        NAME,
    )
    assert found == [[[]] * 6, "@tileworkbench/labext:notebook", [], [True] * 3]
    assert errors == []
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("file", ["remoteEntry.js", "saved.js", "extension.js", "views/card.js"])
def test_jupyterlab_opens_where_a_file_is_broken(
    file: str, lab: LabServer, browser: Browser
) -> None:
    write(lab.root / "broken.ipynb", card())
    context = browser.new_context()
    notebook = NotebookPage(context.new_page(), lab)
    notebook.page.route(f"**{FILES}/{file}", lambda route: route.fulfill(body="}"))
    notebook.load("broken.ipynb")
    shown = notebook.output(0)
    expect(shown).to_contain_text("picture 0" if file != "extension.js" else "saved, compiled")
    context.close()
