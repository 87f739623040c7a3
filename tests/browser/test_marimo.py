"""A kernel as the last expression of a marimo cell: live, with answers from Python; and, where live
views are switched off, its still card, every section of which opens.

marimo is not installed with the test tools: ``pip install '.[marimo]'``.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("marimo") is None,
        reason="the Python package 'marimo' is not installed: pip install '.[marimo]'",
    ),
]
APP = """\
import marimo
app = marimo.App()

@app.cell
def _():
    import tileworkbench as tw
    from tileworkbench.kernels import matmul
    kernel = tw.compile(matmul(64, 64, 64, "float16"), target="sim:sm_80")
    kernel
    return kernel, tw

@app.cell
def _(kernel):
    kernel.show("passes")
    return

@app.cell
def _(kernel, tw):
    from tileworkbench.kernels import matmul as other
    tw.compare(kernel, tw.compile(other(64, 64, 64, "float16"), target="sim:sm_90a"))
    return
"""
STILL = "TILEWORKBENCH_STATIC"
CHECKOUT = str(Path(__file__).parents[2])
START_MS = 60_000


@pytest.fixture
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the app, served by a marimo of this interpreter."""
    (tmp_path / "app.py").write_text(APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "marimo", "run", "app.py", "--headless", "--no-token"]
    path = os.pathsep.join((CHECKOUT, os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, STILL: getattr(request, "param", "")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture
def page(address: str, browser: Browser) -> Iterator[Page]:
    """The app, open; no script of it may fail, and nothing may come from elsewhere."""
    from playwright.sync_api import Error

    page = browser.new_page(viewport={"width": 1200, "height": 1200})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(START_MS)
    for _ in range(100):  # until the server answers
        try:
            page.goto(address)
            break
        except Error:
            page.wait_for_timeout(200)
    yield page
    assert errors == []
    page.close()


def test_the_card_is_live(page: Page) -> None:
    """Its tabs open, and what they show is asked of the kernel."""
    from playwright.sync_api import expect

    card = page.locator(".tw-view").first
    card.get_by_role("tab", name="Passes").click()
    name = card.get_by_text("infer_thread_layouts", exact=True).first
    name.click()
    card.get_by_text("C_local").first.wait_for()  # the IR comes from Python
    card.get_by_role("tab", name="Banks").click()
    card.locator("canvas").first.wait_for()
    card.get_by_role("tab", name="Source").click()
    expect(card).to_contain_text("T.clear(C_local)")


def test_a_view_is_live(page: Page) -> None:
    from playwright.sync_api import expect

    alone = page.locator("marimo-anywidget").nth(1).locator(".tw-view").first
    alone.get_by_text("insert_barriers", exact=True).first.click()
    expect(alone).to_contain_text("T.sync_threads()")


def test_a_comparison_is_live(page: Page) -> None:
    """Its tabs open, and in them the views of both kernels, which ask Python."""
    from playwright.sync_api import expect

    both = page.locator(".tw-comparison")
    both.get_by_role("tab", name="Banks").click()
    sides = both.locator(".tw-pane-banks .tw-side")
    expect(sides).to_have_count(2)
    for side in sides.all():
        side.locator("canvas").first.wait_for()
    both.get_by_role("tab", name="Passes").click()
    side = both.locator(".tw-pane-passes .tw-side").nth(1)
    side.get_by_text("specialize_warps", exact=True).first.click()
    expect(side).to_contain_text("T.threads(128, 128)")


@pytest.mark.parametrize("address", ["1"], indirect=True)
def test_the_still_card(page: Page) -> None:
    sections = page.locator("details:has(> summary > b)")
    sections.filter(has_text="Source").first.wait_for()
    titles = [each.inner_text() for each in sections.locator("summary > b").all()]
    assert {"Source", "Passes", "Banks", "Global memory"} <= set(titles)
    for section in sections.all():
        section.locator("summary").first.click()
        assert section.evaluate("node => node.open && node.scrollHeight > 40")
    assert page.locator("details img").count() > 0
