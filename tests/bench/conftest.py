"""What tests of counted bytes share: a machine whose caches are known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tileworkbench.bench import counted
from tileworkbench.bench.cache_model import CacheModel
from tileworkbench.compiler.device.host.processor import Cache
from tileworkbench.compiler.device.host.threads import get_num_threads, set_num_threads

CACHES = (Cache(1, 32 << 10, 8, 64), Cache(2, 1 << 20, 8, 64), Cache(3, 8 << 20, 16, 64))


@pytest.fixture
def same_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Known caches, and one thread."""

    def this_machine(threads: int, sites: int) -> CacheModel:
        return CacheModel(CACHES, threads, [2], sites)

    before = get_num_threads()
    set_num_threads(1)
    monkeypatch.setattr(counted.processor, "caches", lambda: CACHES)
    monkeypatch.setattr(counted, "this_machine", this_machine)
    yield
    set_num_threads(before)
