"""What tests of torch share: compilers that have seen nothing, and no times.

What is measured when a graph is compiled decides nothing here: kernels are taken to win.
"""

import logging
from typing import Any

import pytest
import torch

from tileworkbench.pytorch import trials

# torch tells each step of a compilation to whoever listens to this logger. Nobody does, but pytest
# gives handlers to every logger that does not propagate: texts that no test reads would be written.
logging.getLogger("torch.__trace").propagate = True


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Any:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _guards_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo empties the processor's caches to log how long guards take, 60 ms for each graph."""
    guards = torch._dynamo.guards
    monkeypatch.setattr(guards, "profile_guard_manager", lambda *given: 0.0, raising=False)


@pytest.fixture(autouse=True)
def _kernels_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_times", lambda calls, sets: [0.0, 1.0])
