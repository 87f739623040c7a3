"""The state spaces: global, shared, local and parameter memory of a batch of blocks.

Generic addresses are 64-bit numbers in windows, one a space; shared, local and parameter addresses
count from 0 in their own space. Every access is checked against the allocation it falls into and
for its alignment.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.sim.ptx.numeric import UNSIGNED, Array

GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
PARAM_WINDOW = 0x7C00_0000_0000
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
_WINDOW_BITS = 40

POISON = 0xFF  # NaN in every floating-point format
# Allocations begin this many bytes apart, so that an overrun does not reach the next one.
_SPACING = 1 << 36
_LARGE, _PART = 1 << 28, 1 << 20


@dataclass(frozen=True, slots=True)
class Allocation:
    """One buffer of global memory: `start` is its address, `size` in bytes."""

    name: str
    start: int
    size: int
    is_writable: bool = True


class GlobalMemory:
    """All allocations of a launch, far apart as addresses and one after the other in one byte
    array.

    Arrays that overlap in the caller's memory, the same one passed twice for example, overlap here
    too.
    """

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._next_address = GLOBAL_BASE
        self._used = 0
        self._arrays: list[tuple[int, Array]] = []
        self._initial: list[tuple[int, bytes]] = []
        self.bytes_ = np.zeros(0, dtype=np.uint8)
        self._starts = np.zeros(0, dtype=np.int64)
        self._ends = np.zeros(0, dtype=np.int64)
        self._shifts: list[int] = []  # an address less this is a place in the byte array

    def reserve(self, name: str, size: int, is_writable: bool = True) -> int:
        """Make room for `size` bytes and return the address."""
        start = self._next_address
        self.allocations.append(Allocation(name, start, size, is_writable))
        self._shifts.append(start - self._used)
        self._next_address += -(-max(size, 1) // _SPACING) * _SPACING
        self._used += -(-size // 16) * 16
        return start

    def place(self, address: int, data: bytes) -> None:
        """Let memory at `address` start with these bytes."""
        self._initial.append((address, data))

    def add_arrays(self, named: Sequence[tuple[str, Array]]) -> list[int]:
        """Copy arrays in and return their addresses in the order given."""
        addresses = [0] * len(named)
        order = sorted(range(len(named)), key=lambda i: _bounds(named[i][1]))
        group: list[int] = []
        end = 0
        for number in (*order, None):
            low, high = _bounds(named[number][1]) if number is not None else (0, 0)
            if group and (number is None or low >= end):
                self._add_group([(each, *named[each]) for each in group], addresses)
                group = []
            if number is not None:
                group.append(number)
                end = max(end, high) if len(group) > 1 else high
        return addresses

    def _add_group(self, group: list[tuple[int, str, Array]], addresses: list[int]) -> None:
        """One allocation for arrays whose memory overlaps."""
        low = min(_bounds(array)[0] for _, _, array in group)
        high = max(_bounds(array)[1] for _, _, array in group)
        name = " and ".join(name for _, name, _ in group)
        is_writable = any(array.flags.writeable for _, _, array in group)
        start = self.reserve(name, high - low, is_writable)
        for number, _, array in group:
            addresses[number] = start + _bounds(array)[0] - low
            self._arrays.append((addresses[number], array))

    def copy_in(self) -> None:
        """Take the memory itself, with the contents of arrays and variables."""
        self.bytes_ = np.zeros(self._used, dtype=np.uint8)
        end = 0
        for start, size in sorted((self.place_of(at), a.nbytes) for at, a in self._arrays):
            self.bytes_[end:start] = POISON
            end = max(end, start + size)
        self.bytes_[end:] = POISON
        self._starts = np.array([each.start for each in self.allocations], dtype=np.int64)
        self._ends = np.array([each.start + each.size for each in self.allocations], np.int64)
        for address, data in self._initial:
            self._slice(address, len(data))[:] = np.frombuffer(data, dtype=np.uint8)
        for address, array in self._arrays:
            _copy(array.reshape(-1).view(np.uint8), self._slice(address, array.nbytes))

    def copy_out(self) -> None:
        """Write the contents back into the caller's arrays."""
        for address, array in self._arrays:
            if array.flags.writeable:
                _copy(self._slice(address, array.nbytes), array.reshape(-1).view(np.uint8))

    def _slice(self, address: int, size: int) -> Array:
        start = self.place_of(address)
        return self.bytes_[start : start + size]

    def place_of(self, address: int) -> int:
        """The place of an address in the byte array."""
        starts = [each.start for each in self.allocations]
        return address - self._shifts[bisect.bisect_right(starts, address) - 1]

    def places_of(self, addresses: Array, allocations: Array) -> Array:
        """The places in the byte array of addresses that are in these allocations."""
        return np.asarray(addresses - np.array(self._shifts, dtype=np.int64)[allocations])

    def find(self, addresses: Array, size: int) -> Array:
        """For each access the index of its allocation, -1 for one that is in none."""
        numbers = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (numbers >= 0) & (addresses + size <= self._ends[numbers])
        return np.where(inside, numbers, -1)

    def describe(self, address: int) -> str:
        """Where an access lies that is in no allocation, or out of it."""

        def distance(allocation: Allocation) -> int:
            before, after = allocation.start - address, address - allocation.start
            return max(before, after - allocation.size, 0)

        nearest = min(self.allocations, key=distance, default=None)
        if nearest is None or distance(nearest) > _SPACING:
            return f"address {address:#x}, which is in no buffer"
        offset = address - nearest.start
        return f"byte {offset} of {nearest.name}, which has {nearest.size} bytes"

    def read_text(self, address: int) -> bytes:
        """The zero-terminated bytes at an address."""
        start = end = self.place_of(address)
        while self.bytes_[end]:
            end += 1
        return self.bytes_[start:end].tobytes()


def _copy(source: Array, into: Array) -> None:
    """Copy bytes, but in large arrays only what differs: pages that nobody touched stay so."""
    if source.size < _LARGE:
        into[:] = source
        return
    for start in range(0, source.size, _PART):
        part = slice(start, start + _PART)
        if not np.array_equal(into[part], source[part]):
            into[part] = source[part]


def _bounds(array: Array) -> tuple[int, int]:
    if not array.flags.c_contiguous:
        raise ArgumentError("an array of a launch must be contiguous")
    start = int(array.__array_interface__["data"][0])
    return start, start + max(array.nbytes, 1)


class Memory:
    """Everything a batch can address. The second half of each array is what lanes see: shared
    memory a row per block, local memory a row per lane."""

    def __init__(
        self,
        global_memory: GlobalMemory,
        *,
        blocks: int,
        lanes: int,
        shared_bytes: int,
        dynamic_bytes: int,
        local_bytes: int,
        parameters: bytes,
    ) -> None:
        self.global_memory = global_memory
        self.shared_bytes, self.dynamic_bytes = shared_bytes, dynamic_bytes
        self.local_bytes = local_bytes
        self.shared_stride = max(-(-shared_bytes // 128) * 128, 128)
        self.local_stride = max(-(-local_bytes // 16) * 16, 16)
        self.shared = np.full(blocks * self.shared_stride, POISON, dtype=np.uint8)
        self.local = np.full(lanes * self.local_stride, POISON, dtype=np.uint8)
        self.parameter_bytes = len(parameters)
        padded = parameters + bytes(-len(parameters) % 16 + 16)
        self.parameters = np.frombuffer(padded, dtype=np.uint8).copy()
        self._views: dict[tuple[str, int], Array] = {}

    def view(self, space: str, bits: int) -> Array:
        """The bytes of a space as unsigned numbers of this many bits."""
        known = self._views.get((space, bits))
        if known is None:
            known = self._views[space, bits] = self._bytes(space).view(UNSIGNED[bits])
        return known

    def _bytes(self, space: str) -> Array:
        if space == "global":
            return self.global_memory.bytes_
        if space in ("shared", "cluster"):
            return self.shared
        return self.local if space == "local" else self.parameters


def space_of(addresses: Array) -> Array:
    """The window of each generic address: its number is the window's base shifted down."""
    return addresses.astype(np.int64) >> _WINDOW_BITS


def window_number(space: str) -> int:
    """The number of the window that is a space's."""
    return WINDOWS[space] >> _WINDOW_BITS
