"""The caches of the model: against a plain one in Python, and where the answer is known."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from tileworkbench.bench.cache_model import LOAD, STORE, CacheModel, Passed
from tileworkbench.compiler.device.host.processor import Cache

SMALL = (Cache(1, 1 << 10, 4, 64), Cache(2, 4 << 10, 8, 64), Cache(3, 12 << 10, 6, 64))

SITES = 5


class Plain:
    """The same caches as ordered dictionaries, a set each: of each line the site that wrote it last
    and whether it was written.
    """

    def __init__(self, caches: tuple[Cache, ...]) -> None:
        self.caches = caches
        self.sets = [
            [
                OrderedDict[int, tuple[bool, int]]()
                for _ in range(c.bytes_ // c.line_bytes // c.ways)
            ]
            for c in caches
        ]
        self.counts = [[[0, 0, 0] for _ in caches] for _ in range(SITES)]

    def visit(
        self, level: int, line: int, site: int, dirty: bool, store: bool, back: bool = False
    ) -> None:
        if level == len(self.caches):
            return
        own = self.sets[level][line % len(self.sets[level])]
        if line in own:
            own.move_to_end(line)
            own[line] = (True, site) if dirty else own[line]
            return
        if not back:
            self.counts[site][level][store] += 1
        if len(own) == self.caches[level].ways:
            victim, (written, writer) = own.popitem(last=False)
            if written:
                self.counts[writer][level][2] += 1
                self.visit(level + 1, victim, writer, True, False, True)
        if not back:
            self.visit(level + 1, line, site, False, store)
        own[line] = (dirty, site)


@pytest.mark.parametrize("seed", range(6))
def test_the_model_counts_what_a_plain_one_counts(seed: int) -> None:
    random = np.random.default_rng(seed)
    model, plain = CacheModel(SMALL, 1, [2], SITES), Plain(SMALL)
    model.activate()
    loaded, stored = [0] * SITES, [0] * SITES
    for _ in range(300):
        start = int(random.integers(1 << 16))
        run = np.arange(start, start + int(random.integers(1, 3000)), int(random.integers(1, 200)))
        bytes_, store = int(random.integers(1, 100)), bool(random.integers(2))
        site = int(random.integers(SITES))
        model.touch(run, bytes_, STORE if store else LOAD, site)
        loaded[site] += (not store) * run.size * bytes_
        stored[site] += store * run.size * bytes_
        for address in run.tolist():
            for line in range(address // 64, (address + bytes_ - 1) // 64 + 1):
                plain.visit(0, line, site, store, store)
    by_site = model.passed_by_site()
    for site, (first, *behind) in enumerate(by_site):
        assert first == Passed(loaded[site], 0, stored[site])
        assert [(p.read, p.allocated, p.written) for p in behind] == [
            tuple(64.0 * count for count in counts) for counts in plain.counts[site]
        ]
    for level, whole in enumerate(model.passed()):
        assert whole.written == sum(own[level].written for own in by_site)
        assert whole.read == sum(own[level].read for own in by_site)


def walk(model: CacheModel, bytes_: int, kind: int = LOAD, times: int = 1) -> None:
    for _ in range(times):
        model.touch(np.arange(0, bytes_, 64), 64, kind)


def test_what_fits_is_fetched_once() -> None:
    model = CacheModel(SMALL, 1, [])
    model.activate()
    walk(model, 1 << 10, times=5)
    assert [p.read for p in model.passed()] == [5 * 1024, 1024, 1024, 1024]
    model.forget()
    walk(model, 1 << 10)
    assert [p.read for p in model.passed()] == [1024, 0, 0, 0]


def test_what_is_walked_again_beyond_a_cache_comes_from_behind_it() -> None:
    model = CacheModel(SMALL, 1, [])
    model.activate()
    walk(model, 4 << 10)
    model.forget()
    walk(model, 4 << 10, times=3)
    assert [p.read for p in model.passed()] == [3 * 4096, 3 * 4096, 0, 0]


def test_what_is_written_comes_and_goes() -> None:
    model = CacheModel(SMALL, 1, [])
    model.activate()
    walk(model, 64 << 10, STORE)
    memory = model.passed()[-1]
    assert (memory.read, memory.allocated) == (0, 64 << 10)
    assert (64 << 10) - (17 << 10) <= memory.written <= 64 << 10


def test_cores_have_caches_of_their_own_and_share_the_last() -> None:
    model = CacheModel(SMALL, 2, [2])
    model.activate()
    for core in (0, 1, 0, 1):
        model.choose(core)
        walk(model, 1 << 10)
    assert [p.read for p in model.passed()] == [4096, 2048, 2048, 1024]
