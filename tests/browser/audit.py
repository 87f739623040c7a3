"""What every view must have for all readers, checked in the page by `audit.js`.

`AUDIT` is run before views are drawn; `faults` then asks about the view below a locator.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

AUDIT = Path(__file__).with_name("audit.js").read_text(encoding="utf-8")
THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")
THEME_MS = 60_000
DRAWN_MS = 200  # until canvases are drawn again, after two frames of the page


def faults(view: Locator, *kinds: str) -> list[str]:
    """What is wrong with a view: `kinds` of contrast, names, keys, focus, words."""
    if "focus" in kinds:
        view.page.keyboard.press("Tab")  # outlines are for those who use keys
    found = [view.evaluate("(node, kind) => window.audit[kind](node)", kind) for kind in kinds]
    return [fault for each in found for fault in each]


def use_theme(page: Page, name: str) -> None:
    """Show JupyterLab in a theme, and wait until its style sheet is there."""
    before = page.evaluate("getComputedStyle(document.body).getPropertyValue('--jp-layout-color1')")
    shown = page.evaluate("document.body.dataset.jpThemeName")
    if shown == name:
        return
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name
    )
    page.wait_for_function(
        "([name, before]) => document.body.dataset.jpThemeName === name &&"
        " getComputedStyle(document.body).getPropertyValue('--jp-layout-color1') !== before",
        arg=[name, before],
        timeout=THEME_MS,
    )
    page.evaluate("new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)))")
    page.wait_for_timeout(DRAWN_MS)


def reached_by_tab(page: Page, view: Locator) -> list[str]:
    """The controls of a view that the Tab key does not come to, from its first one on."""
    count: int = view.evaluate(
        "node => { window.toReach = new Set(window.audit.controls(node).filter("
        "each => each.tabIndex >= 0)); const count = window.toReach.size;"
        " window.onReach = () => window.toReach.delete(document.activeElement);"
        " document.addEventListener('focusin', window.onReach);"
        " [...window.toReach][0]?.focus(); window.onReach(); return count; }"
    )
    for _ in range(count + 1):
        page.keyboard.press("Tab")
    page.evaluate("document.removeEventListener('focusin', window.onReach)")
    missed: list[str] = page.evaluate(
        "[...window.toReach].map(node => `${node.localName} ${node.className} "
        "${(node.textContent ?? '').trim().slice(0, 30)}`)"
    )
    return missed
