"""Fixtures of the browser tests: JupyterLab, Chromium, and a notebook open in both."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, find_chromium, serve
from tests.capability import require

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ARTEFACTS = Path(__file__).parents[2] / ".ci" / "artefacts"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_FAILED: pytest.StashKey[bool] = pytest.StashKey()


def why_no_browser() -> str | None:
    """One sentence saying what browser tests miss on this machine, or None."""
    for module in ("playwright", "jupyterlab"):
        if importlib.util.find_spec(module) is None:
            return f"the Python package '{module}' is not installed"
    return None if find_chromium() else "no Chromium or Chrome is installed"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder `browser`, and give it a second try, which the summary names.

    Browser, server and kernel share few cores with other tests: one of 135 has now and then waited
    too long. What is wrong fails twice.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """A running JupyterLab that serves an empty folder, one for all browser tests."""
    require("browser", why_no_browser())
    with serve(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="package")
def browser(lab: LabServer) -> Iterator[Browser]:
    """Headless Chromium, one for all browser tests; closed before any other test's event loop."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=[*FLAGS])
        yield chromium
        chromium.close()


@dataclass
class Shared:
    """The page of JupyterLab that tests use one after the other, once there is one."""

    page: NotebookPage | None = None


@pytest.fixture(scope="package")
def shared() -> Shared:
    return Shared()


@pytest.fixture
def open_notebook(
    lab: LabServer, browser: Browser, shared: Shared, request: pytest.FixtureRequest
) -> Iterator[Callable[..., NotebookPage]]:
    """Opens a notebook of the server's folder: the first of a test in the page that all tests
    share, which shows nothing else; each further one, and one without our JupyterLab extension
    (`extension=False`), in a fresh profile.

    After a failed test each page's picture is kept in `.ci/artefacts`; in any case the kernels end.
    """
    opened: list[NotebookPage] = []

    def open_one(notebook: str, extension: bool = True) -> NotebookPage:
        kept = None if opened or not extension else shared.page
        if kept is None:
            context = browser.new_context(viewport={"width": 1400, "height": 1800})
            kept = NotebookPage(context.new_page(), lab, extension)
        opened.append(kept)
        kept.load(notebook)
        return kept

    yield open_one
    failed = request.node.stash.get(_FAILED, False)
    for number, notebook in enumerate(opened):
        if failed:
            notebook.screenshot(ARTEFACTS / f"{request.node.name}-{number}.png")
        if number == 0 and notebook.extension and not failed:
            notebook.clear()
            shared.page = notebook
            continue
        notebook.page.context.close()  # what a failed test left behind is nothing for the next one
        if notebook is shared.page:
            shared.page = None
    lab.stop_kernels()
