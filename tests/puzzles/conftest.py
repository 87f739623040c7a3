"""One notebook for a module's tests, and a file of progress of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.magics.notebook import Notebook, open_notebook
from tileworkbench.puzzles import progress


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    with open_notebook() as opened:
        yield opened


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of progress."""
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path))
    progress._UNSAVED.clear()
    return tmp_path / "puzzles.json"
