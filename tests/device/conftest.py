from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tileworkbench.compiler.device.host import threads
from tileworkbench.compiler.device.host.dispatch import dispatch


@pytest.fixture
def default_threads() -> Iterator[None]:
    """The default, whatever tests before and after set."""
    threads.set_num_threads(None)
    yield
    threads.set_num_threads(None)


@pytest.fixture(params=["openmp", "pool", "python"])
def team(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each kind of team in turn, three threads wide; its name."""
    kind: str = request.param
    if kind == "openmp":
        pytest.importorskip("torch")
        if threads.find_openmp() is None:
            pytest.skip("this torch brings no OpenMP runtime")
    else:
        monkeypatch.setattr(threads, "find_openmp", lambda: None)
    if kind == "python":
        portable = dataclasses.replace(dispatch(), pool=None)
        monkeypatch.setattr(threads, "dispatch", lambda: portable)
    monkeypatch.setattr(threads, "_team", None)
    threads.set_num_threads(3)
    yield kind
    threads.set_num_threads(None)
