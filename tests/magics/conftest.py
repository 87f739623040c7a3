"""A notebook for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.magics.notebook import Notebook, open_notebook


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    with open_notebook() as opened:
        yield opened
