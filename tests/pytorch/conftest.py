"""What is measured when a graph is compiled decides nothing in tests: kernels are taken to win."""

import pytest

from tileworkbench.pytorch import trials


@pytest.fixture(autouse=True)
def _kernels_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_times", lambda calls, sets: [0.0, 1.0])
