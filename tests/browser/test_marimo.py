"""A kernel as the last expression of a marimo cell: its still card, every section of which opens.

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
    from playwright.sync_api import Browser

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
    return
"""
CHECKOUT = str(Path(__file__).parents[2])
START_MS = 60_000


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of the app, served by a marimo of this interpreter."""
    (tmp_path / "app.py").write_text(APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "marimo", "run", "app.py", "--headless", "--no-token"]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((CHECKOUT, os.environ.get("PYTHONPATH", ""))),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=15)


def test_the_card_in_marimo(address: str, browser: Browser) -> None:
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
    page.get_by_text("matmul", exact=True).first.wait_for()
    sections = page.locator("details:has(> summary > b)")
    titles = [each.inner_text() for each in sections.locator("summary > b").all()]
    assert {"Source", "Passes", "Layouts", "Banks", "Global memory"} <= set(titles)
    for section in sections.all():
        section.locator("summary").first.click()
        assert section.evaluate("node => node.open && node.scrollHeight > 40")
    assert page.locator("details img").count() > 0
    assert errors == []
    page.close()
