"""Bytes per memory level, counted: a kernel's own code is run with all its accesses told to a model
of this machine's caches (`instrumented`, `cache_model`).

Blocks run one after another, each on behalf of the core whose turn it is; what they write goes to
copies of the arguments. A kernel is run twice, as each call of a measurement finds what the one
before it left, and the second time is counted; with cold caches once. Where that would take too
long, whole blocks from the first on are run once, and count for the others.

Each access is made for a line of the user's text, where generated code says for which (`located`);
a routine works for the line that calls it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import cycle
from typing import Any, Protocol

import numpy as np

from tileworkbench.bench.cache_model import CacheModel, Passed, model_functions
from tileworkbench.bench.instrumented import instrument
from tileworkbench.bench.located import located
from tileworkbench.bench.points import CountedLevel
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.llvm import compile_object, load_object, optimized_text
from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass

SIMULATED = "counted by simulating the caches"

_PAGE = 4096
# Arguments, first block, the one after the last, flag, scratch memory.
_ENTRY = ctypes.CFUNCTYPE(
    *(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
    *(ctypes.c_void_p, ctypes.c_void_p),
)


@dataclass(frozen=True, slots=True)
class CountedTraffic:
    """The bytes of a call by memory level, innermost first, and `how` they were counted. `blocks`
    of `all_blocks` were run; `cold` says that the caches held nothing when it began. `threads` is 0
    for a GPU. `lines` has the levels for each line of the user's text, and with 0 for what belongs
    to none, such as arguments and macros of other files; together they have what `levels` has. Of
    a GPU `requests` has (wavefronts, ideal, sectors, ideal) of those lines, of all blocks.
    """

    levels: tuple[CountedLevel, ...]
    how: str
    blocks: int
    all_blocks: int
    cold: bool
    threads: int
    lines: Mapping[int, tuple[CountedLevel, ...]] = field(default_factory=dict)
    requests: Mapping[int, tuple[float, float, float, float]] = field(default_factory=dict)

    @property
    def by_level(self) -> dict[str, float]:
        """Level -> `CountedLevel.bytes_`."""
        return {level.name: level.bytes_ for level in self.levels}

    @property
    def note(self) -> str:
        """How it was counted, in a line."""
        caches = "cold" if self.cold else "warm"
        part = ""
        if self.blocks < self.all_blocks:
            part = f", from {self.blocks} of {self.all_blocks} blocks"
        threads = f", {self.threads} thread{'' if self.threads == 1 else 's'}"
        return f"{self.how}, {caches} at first{threads if self.threads else ''}{part}"

    def rows(self) -> list[dict[str, Any]]:
        """A row per level."""
        return [
            {
                "level": level.name,
                "bytes": level.bytes_,
                "read": level.read,
                "allocated": level.allocated,
                "written": level.written,
                "how": self.how,
                "blocks": self.blocks,
                "all_blocks": self.all_blocks,
                "cold": self.cold,
            }
            for level in self.levels
        ]


class Countable(Protocol):
    """What counting needs of a kernel compiled for a CPU."""

    @property
    def name(self) -> str: ...
    @property
    def compiled(self) -> Any: ...


def count_traffic(
    kernel: Countable, args: Sequence[Any], cold: bool = False, seconds: float = 2.0
) -> CountedTraffic:
    """The bytes of a call with `args`, in about `seconds`, by simulating the caches. The arguments
    stay as they are. Raises `UnsupportedError` for code whose accesses cannot be told.
    """
    run = _Run(kernel, args)
    end = time.perf_counter() + seconds
    done = run.blocks_until(end - seconds / 2)
    if done == run.blocks and not cold:
        run.model.forget()
        run.blocks_until(float("inf"))
    factor = run.blocks / done
    is_cold = cold or done < run.blocks
    by_site = [_levels(passed, factor) for passed in run.model.passed_by_site()]
    lines = dict(zip(run.lines, by_site, strict=True))
    levels = _levels(run.model.passed(), factor)
    return CountedTraffic(levels, SIMULATED, done, run.blocks, is_cold, run.threads, lines)


def _levels(passed: Sequence[Passed], factor: float) -> tuple[CountedLevel, ...]:
    names = [f"L{cache.level}" for cache in processor.caches()] + ["DRAM"]
    scaled = zip(names, (each.scaled(factor) for each in passed), strict=True)
    return tuple(
        CountedLevel(name, each.read, each.allocated, each.written) for name, each in scaled
    )


def this_machine(threads: int, sites: int = 1) -> CacheModel:
    """The caches of this machine, for so many threads: one for all where more than one core has it
    and all of them do, or where the system does not say so of the outermost.
    """
    caches = processor.caches()
    shared = [
        number
        for number, cache in enumerate(caches)
        if cache.level == 3 or len(cache.sharers) >= max(threads, 2)
    ]
    return CacheModel(caches, threads, shared, sites)


class _Run:
    """A kernel's code, told, with memory for a call."""

    def __init__(self, kernel: Countable, args: Sequence[Any]) -> None:
        compiled = kernel.compiled
        self.threads = get_num_threads()
        self._args = [_copied(value) for value in args]  # alive until the last block has run
        self._bound = compiled.signature.bind(self._args)
        self._slots = np.array([*self._bound.slots, 0], np.int64)
        size = compiled.module.scratch_bytes + _PAGE
        self._arenas = [np.zeros(size, np.uint8) for _ in range(self.threads)]
        self._flag = np.zeros(8, np.int64)
        numbers = compiled.signature.numbers(self._bound)
        entries = [launch.entry for launch in compiled.module.launches]
        told = instrument(optimized_text(located(compiled.module.text), compiled.native))
        self.lines = told.lines
        self.model = this_machine(self.threads, len(told.lines))
        self._library = _linked(compiled, told.text, entries)
        self._launches = [
            (_ENTRY(self._library[launch.entry].address), int(evaluate(launch.blocks, numbers)))
            for launch in compiled.module.launches
        ]
        self.blocks = sum(blocks for _, blocks in self._launches)

    def blocks_until(self, end: float) -> int:
        """Run blocks until all have run or it is `end`; how many did."""
        self.model.activate()
        done, turns = 0, cycle(range(self.threads))
        for function, begin, stop in self._chunks():
            core = next(turns)
            self.model.choose(core)
            scratch = -(-self._arenas[core].ctypes.data // _PAGE) * _PAGE
            code = function(self._slots.ctypes.data, begin, stop, self._flag.ctypes.data, scratch)
            if code:
                raise UnsupportedError("the kernel did not end as it should while it was counted")
            done += stop - begin
            if time.perf_counter() > end:
                break
        return done

    def _chunks(self) -> Iterator[tuple[Any, int, int]]:
        """The blocks that a thread takes at a time, in order."""
        for function, blocks in self._launches:
            size = max(-(-blocks // (self.threads * 8)), 1)
            for begin in range(0, blocks, size):
                yield function, begin, min(begin + size, blocks)


def _linked(compiled: Any, text: str, entries: Sequence[str]) -> Any:
    data = compile_object(text, compiled.native, ())
    model = {name: model_functions()[name].address for name in ("touch", "at")}
    return load_object(data, entries, imports={**compiled.imports, **model})


def _copied(value: Any) -> Any:
    """An array that a kernel may write to."""
    copy = getattr(value, "clone", None) or getattr(value, "copy", None)
    return value if copy is None else copy()
