"""What one test has measured, no other finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tileworkbench.bench.ceilings import machine_key
from tileworkbench.compiler.device.host.cache import default_cache


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for caches, and so for results of tuning, that is empty but for what this machine
    can do at most: that is measured once in a run of tests, and takes long.
    """
    shared, key = default_cache(), machine_key()
    monkeypatch.setenv("TILEWORKBENCH_CACHE_DIR", str(tmp_path / "cache"))
    own, measured = default_cache(), shared.get(key)
    if measured is not None:
        own.put(key, measured)
    yield
    if measured is None and (new := own.get(key)) is not None:
        shared.put(key, new)
