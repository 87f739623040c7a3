"""Caches as they are counted: sets of lines, of which the one unused for longest gives way.

Every access looks for its line level by level, and a line that is missed is brought into each level
it was missed in; one that was written goes back to the level behind when it gives way (write-back,
write-allocate, least recently used, neither inclusive nor exclusive). Sizes, ways and lines are
those of this machine. Prefetch, a hash of the sets, other programs and what cores take from each
other are left out.

Each access is made on behalf of a site, and all is counted by site: what is fetched is of the site
that asks for it, what is written back of the one that wrote the line last.

The model is code of its own (LLVM IR), since it is asked for each access of a kernel.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tileworkbench.compiler.device.host.background import PendingFunction
from tileworkbench.compiler.device.host.llvm import NativeFunction
from tileworkbench.compiler.device.host.native import build_native
from tileworkbench.compiler.device.host.processor import Cache
from tileworkbench.compiler.fast_dataclass import dataclass

LOAD, STORE, WRITE = 0, 3, 5
"""Kinds of accesses, as `touch` takes them; `WRITE` stores what need not be fetched.
"""

CURRENT = -1
"""In place of a site: the one that `at` named last."""
MOST_SITES = 1 << 15

_LEVEL_WORDS, _HEAD_WORDS = 3, 4
_SITE_BIT = 48  # of an entry
# A level: the address of its entries, sets, ways. An entry is the number of a line, doubled, plus
# one if it was written, with the site that wrote it last from bit 48 on; -1 is none. The head:
# levels, bits of a line, the address of the counts, the current site. The counts of a site: three
# words, loaded, none and stored bytes, then three for each level: lines fetched by loads and by
# stores, lines given back. Bits of a kind: 1 makes the line dirty, 2 a store wants it, 4 nothing is
# to be fetched.
_TEXT = """
@state = global ptr null

define internal void @visit(ptr %state, i64 %level, i64 %line, i64 %kind, i64 %site) {
entry:
  %levels = load i64, ptr %state
  %none = icmp sge i64 %level, %levels
  br i1 %none, label %done, label %search
search:
  %skipped = mul i64 %level, 3
  %at = add i64 %skipped, 4
  %own = getelementptr i64, ptr %state, i64 %at
  %entries = load ptr, ptr %own
  %sets.at = getelementptr i64, ptr %own, i64 1
  %sets = load i64, ptr %sets.at
  %ways.at = getelementptr i64, ptr %own, i64 2
  %ways = load i64, ptr %ways.at
  %counts.at = getelementptr i64, ptr %state, i64 2
  %counts = load ptr, ptr %counts.at
  %stages = add i64 %levels, 1
  %size = mul i64 %stages, 3
  %group = add i64 %level, 1
  %offset = mul i64 %group, 3
  %number = urem i64 %line, %sets
  %before = mul i64 %number, %ways
  %set = getelementptr i64, ptr %entries, i64 %before
  %last = sub i64 %ways, 1
  br label %look
look:
  %way = phi i64 [ 0, %search ], [ %way.next, %other ]
  %place = getelementptr i64, ptr %set, i64 %way
  %entry.there = load i64, ptr %place
  %line.high = lshr i64 %entry.there, 1
  %line.there = and i64 %line.high, 140737488355327
  %hit = icmp eq i64 %line.there, %line
  br i1 %hit, label %found, label %other
other:
  %way.next = add i64 %way, 1
  %more = icmp slt i64 %way.next, %ways
  br i1 %more, label %look, label %missed
found:
  br label %shift
missed:
  %fetches = and i64 %kind, 4
  %is.back = icmp ne i64 %fetches, 0
  %wants = lshr i64 %kind, 1
  %store = and i64 %wants, 1
  %own.counts = mul i64 %site, %size
  %own.group = add i64 %own.counts, %offset
  %counter = add i64 %own.group, %store
  %count.at = getelementptr i64, ptr %counts, i64 %counter
  %count = load i64, ptr %count.at
  %one = select i1 %is.back, i64 0, i64 1
  %count.new = add i64 %count, %one
  store i64 %count.new, ptr %count.at
  %next.level = add i64 %level, 1
  %victim.at = getelementptr i64, ptr %set, i64 %last
  %victim = load i64, ptr %victim.at
  %victim.high = lshr i64 %victim, 1
  %victim.line = and i64 %victim.high, 140737488355327
  %victim.site = lshr i64 %victim, 48
  %present = icmp sge i64 %victim, 0
  %bit = and i64 %victim, 1
  %written = icmp ne i64 %bit, 0
  %goes = and i1 %present, %written
  br i1 %goes, label %give, label %fetch
give:
  %back.counts = mul i64 %victim.site, %size
  %back.group = add i64 %back.counts, %offset
  %back.counter = add i64 %back.group, 2
  %back.at = getelementptr i64, ptr %counts, i64 %back.counter
  %back = load i64, ptr %back.at
  %back.new = add i64 %back, 1
  store i64 %back.new, ptr %back.at
  call void @visit(ptr %state, i64 %next.level, i64 %victim.line, i64 5, i64 %victim.site)
  br label %fetch
fetch:
  br i1 %is.back, label %shift, label %behind
behind:
  %wanted = and i64 %kind, 2
  call void @visit(ptr %state, i64 %next.level, i64 %line, i64 %wanted, i64 %site)
  br label %shift
shift:
  %from = phi i64 [ %way, %found ], [ %last, %fetch ], [ %last, %behind ]
  %old = phi i64 [ %entry.there, %found ], [ 0, %fetch ], [ 0, %behind ]
  br label %move
move:
  %slot = phi i64 [ %from, %shift ], [ %slot.next, %moved ]
  %first = icmp eq i64 %slot, 0
  br i1 %first, label %insert, label %moved
moved:
  %slot.next = sub i64 %slot, 1
  %source = getelementptr i64, ptr %set, i64 %slot.next
  %value = load i64, ptr %source
  %target = getelementptr i64, ptr %set, i64 %slot
  store i64 %value, ptr %target
  br label %move
insert:
  %doubled = shl i64 %line, 1
  %was = and i64 %old, 1
  %makes = and i64 %kind, 1
  %dirty = or i64 %was, %makes
  %plain = or i64 %doubled, %dirty
  %writes = icmp ne i64 %makes, 0
  %old.site = lshr i64 %old, 48
  %writer = select i1 %writes, i64 %site, i64 %old.site
  %writer.bits = shl i64 %writer, 48
  %new = or i64 %plain, %writer.bits
  store i64 %new, ptr %set
  br label %done
done:
  ret void
}

define void @at(i64 %site) {
  %state = load ptr, ptr @state
  %current.at = getelementptr i64, ptr %state, i64 3
  store i64 %site, ptr %current.at
  ret void
}

define void @touch(ptr %pointer, i64 %bytes, i64 %kind, i64 %asked) {
entry:
  %nothing = icmp sle i64 %bytes, 0
  br i1 %nothing, label %done, label %some
some:
  %state = load ptr, ptr @state
  %current.at = getelementptr i64, ptr %state, i64 3
  %current = load i64, ptr %current.at
  %follows = icmp slt i64 %asked, 0
  %site = select i1 %follows, i64 %current, i64 %asked
  %levels = load i64, ptr %state
  %stages = add i64 %levels, 1
  %size = mul i64 %stages, 3
  %own = mul i64 %site, %size
  %store = and i64 %kind, 1
  %of.stores = shl i64 %store, 1
  %counter = add i64 %own, %of.stores
  %counts.at = getelementptr i64, ptr %state, i64 2
  %counts = load ptr, ptr %counts.at
  %count.at = getelementptr i64, ptr %counts, i64 %counter
  %count = load i64, ptr %count.at
  %count.new = add i64 %count, %bytes
  store i64 %count.new, ptr %count.at
  %bits.at = getelementptr i64, ptr %state, i64 1
  %bits = load i64, ptr %bits.at
  %address = ptrtoint ptr %pointer to i64
  %first = lshr i64 %address, %bits
  %end = add i64 %address, %bytes
  %inside = sub i64 %end, 1
  %final = lshr i64 %inside, %bits
  br label %each
each:
  %line = phi i64 [ %first, %some ], [ %line.next, %each ]
  call void @visit(ptr %state, i64 0, i64 %line, i64 %kind, i64 %site)
  %line.next = add i64 %line, 1
  %more = icmp sle i64 %line.next, %final
  br i1 %more, label %each, label %done
done:
  ret void
}

define void @touch_all(ptr %addresses, i64 %count, i64 %bytes, i64 %kind, i64 %site) {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %each, label %done
each:
  %at = phi i64 [ 0, %entry ], [ %at.next, %each ]
  %place = getelementptr i64, ptr %addresses, i64 %at
  %address = load ptr, ptr %place
  call void @touch(ptr %address, i64 %bytes, i64 %kind, i64 %site)
  %at.next = add i64 %at, 1
  %more = icmp slt i64 %at.next, %count
  br i1 %more, label %each, label %done
done:
  ret void
}
"""


@dataclass(frozen=True, slots=True)
class Passed:
    """Bytes that passed between a level and the one in front of it: `read` for loads, `allocated`
    fetched since a store needs the rest of its line, `written` back. Of the innermost level: loads
    and stores.
    """

    read: float
    allocated: float
    written: float

    def scaled(self, factor: float) -> Passed:
        """So many times as much."""
        return Passed(self.read * factor, self.allocated * factor, self.written * factor)


class CacheModel:
    """The caches of `cores` cores, of which those numbered in `shared` (from 0, innermost first)
    are one for all; what is accessed last stays. Sites are 0 to `sites` - 1. One model at a time is
    `active` in a process.
    """

    def __init__(
        self, caches: Sequence[Cache], cores: int, shared: Sequence[int], sites: int = 1
    ) -> None:
        self._caches = caches
        self._line_bytes = caches[0].line_bytes
        self._entries = [
            [
                np.full(max(cache.bytes_ // self._line_bytes, cache.ways), -1, np.int64)
                for _ in range(1 if level in shared else cores)
            ]
            for level, cache in enumerate(caches)
        ]
        self._counts = np.zeros((sites, len(caches) + 1, 3), np.int64)
        self._state = np.zeros(_HEAD_WORDS + _LEVEL_WORDS * len(caches), np.int64)
        self._state[:2] = len(caches), self._line_bytes.bit_length() - 1
        self._state[2] = self._counts.ctypes.data
        for own, cache, entries in zip(self._levels(), caches, self._entries, strict=True):
            own[1:3] = entries[0].size // cache.ways, cache.ways
        self.choose(0)

    def choose(self, core: int) -> None:
        """What comes next is accessed by this core."""
        for own, entries in zip(self._levels(), self._entries, strict=True):
            own[0] = entries[core % len(entries)].ctypes.data

    def activate(self) -> None:
        """Have `touch` of this process count here."""
        address = model_functions()["state"].address
        ctypes.c_void_p.from_address(address).value = self._state.ctypes.data

    def touch(self, addresses: np.ndarray[Any, Any], bytes_: int, kind: int, site: int = 0) -> None:
        """Access `bytes_` bytes from each address on, in their order; the model must be active."""
        flat = np.ascontiguousarray(addresses, np.int64)
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)
        function = call(model_functions()["touch_all"].address)
        function(flat.ctypes.data, flat.size, bytes_, kind, site)

    def forget(self) -> None:
        """Count from nothing; the lines stay where they are."""
        self._counts[:] = 0

    def passed(self) -> tuple[Passed, ...]:
        """What passed between the levels: of the innermost, of those behind it, of memory."""
        return self._passed(self._counts.sum(axis=0))

    def passed_by_site(self) -> list[tuple[Passed, ...]]:
        """The same for each site; their sum is `passed`."""
        return [self._passed(own) for own in self._counts]

    def _passed(self, counts: np.ndarray[Any, Any]) -> tuple[Passed, ...]:
        scale = [1.0] + [float(self._line_bytes)] * len(self._caches)
        return tuple(
            Passed(*(each * unit).tolist()) for each, unit in zip(counts, scale, strict=True)
        )

    def unwritten(self) -> list[int]:
        """Bytes of the outermost level that were written and are still only there, by site."""
        entries = np.concatenate(self._entries[-1])
        dirty = entries[(entries >= 0) & (entries & 1 == 1)] >> _SITE_BIT
        lines = np.bincount(dirty, minlength=len(self._counts))
        return [int(count) * self._line_bytes for count in lines]

    def _levels(self) -> np.ndarray[Any, Any]:
        return self._state[_HEAD_WORDS:].reshape(-1, _LEVEL_WORDS)


@functools.cache
def model_functions() -> Mapping[str, NativeFunction | PendingFunction]:
    """``touch``, ``touch_all``, ``at`` and ``state`` of the model, linked into this process."""
    return build_native(_TEXT, ("touch", "touch_all", "at", "state")).functions
