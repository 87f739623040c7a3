"""How long views take: what Python prepares for a card, and what a browser needs to draw it.

    python benchmarks/views.py [--rounds N]

Chromium draws the saved page of each kernel (the code of the live card, without a kernel's answers
to wait for); a view is drawn when the second frame after its tab was chosen has come. Medians of
the rounds, each in a page of its own. See README.md for the limits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import FOLDER, environment, markdown_table, write_results

import tileworkbench as tw
from tileworkbench.compiler.layout import Layout
from tileworkbench.kernels import flash_attention, matmul
from tileworkbench.viz.model.layout import layout_model
from tileworkbench.viz.model.page import page_html
from tileworkbench.workbench.results import BufferLayout

sys.path.insert(0, str(FOLDER.parent))

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CARD_MS, PAINT_MS = 1000.0, 200.0  # the whole card of attention; a layout of 128 x 128
DRAWN = """name => new Promise(done => {
  const start = performance.now();
  document.querySelector(`[data-tab=${name}]`).click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""
STARTED = "performance.getEntriesByType('paint').find(e => e.name === 'first-contentful-paint')"


def prepare_ms(kernel: tw.Kernel) -> tuple[float, str]:
    """Milliseconds that Python takes for the data of all views, and the page."""
    start = time.perf_counter()
    page = page_html(kernel.view())
    return 1e3 * (time.perf_counter() - start), page


def draw_ms(browser: Browser, path: Path) -> dict[str, float]:
    """Milliseconds of the page until something is painted, and of each view after it is chosen."""
    page = browser.new_page(viewport={"width": 1400, "height": 1200})
    page.goto(path.as_uri())
    page.locator("[role=tab]").first.wait_for()
    page.wait_for_function(f"{STARTED} !== undefined")
    found = {"page": float(page.evaluate(f"{STARTED}.startTime"))}
    names = [tab.get_attribute("data-tab") for tab in page.locator("[role=tab]").all()]
    for name in names[1:]:
        found[str(name)] = float(page.evaluate(DRAWN, name))
    page.close()
    return found


def measure(browser: Browser, kernel: tw.Kernel, rounds: int) -> dict[str, float]:
    """Medians by step, in milliseconds, and their sum."""
    drawn: list[dict[str, float]] = []
    prepared = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            took, text = prepare_ms(kernel)
            prepared.append(took)
            path = Path(folder) / "card.html"
            path.write_text(text, encoding="utf-8")
            drawn.append(draw_ms(browser, path))
    steps = {name: statistics.median(each[name] for each in drawn) for name in drawn[0]}
    return {"python": statistics.median(prepared), **steps}


def grid_ms(rounds: int) -> float:
    """Milliseconds that Python takes for the tables of a layout of 128 x 128."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        layout_model(BufferLayout("grid", Layout.swizzled((128, 128), 16, 128)))
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import FLAGS
    from tests.browser.lab import find_chromium

    facts = environment(["playwright", "numpy"])
    pages: dict[str, Any] = {
        "attention, sim:sm_80": (flash_attention(1, 8, 512, 512, 64, "float16"), "sim:sm_80"),
        "matmul 128 x 128, sim:sm_80": (matmul(512, 512, 512, "float16"), "sim:sm_80"),
        "matmul 128 x 128, cpu": (matmul(512, 512, 512), "cpu"),
    }
    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*FLAGS])
        for name, (program, target) in pages.items():
            rows.append(
                {"kernel": name, **measure(browser, tw.compile(program, target=target), rounds)}
            )
        browser.close()
    steps = list(dict.fromkeys(step for row in rows for step in row if step != "kernel"))
    lines = [
        [row["kernel"], *(f"{row[step]:.0f}" if step in row else "–" for step in steps)]
        for row in rows
    ]
    whole = rows[0]["python"] + rows[0]["page"]
    paint = grid_ms(rounds) + rows[1].get("layouts", 0.0)
    text = (
        f"{markdown_table(['ms', *steps], lines)}\n\n"
        f"The card of attention: {whole:.0f} ms, limit {CARD_MS:.0f}. "
        f"A layout of 128 x 128: {paint:.0f} ms, limit {PAINT_MS:.0f}."
    )
    print(text)
    print(f"written to {write_results('views', facts, rows, text)}")


if __name__ == "__main__":
    main()
