"""Running compiled code over a grid: the launch record, threads, interrupts, errors.

`Launcher` is the path of every call, so it is written for few Python operations: one `pack_into`,
one or three native calls.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from threading import get_ident, main_thread
from time import monotonic_ns

from tileworkbench.compiler.device.host import dispatch_ir as words
from tileworkbench.compiler.device.host.background import PendingFunction
from tileworkbench.compiler.device.host.dispatch import dispatch
from tileworkbench.compiler.device.host.llvm import NativeFunction
from tileworkbench.compiler.device.host.threads import get_num_threads, team_for
from tileworkbench.compiler.diagnostics import (
    DeadlockError,
    Span,
    empty_grid,
    failed_assertion,
    interrupted,
)

# Below this a launch stays on its caller's core: it takes as long as meeting a team that is awake
# (`benchmarks/short_launches.py`; estimates are for tensors in memory, caches are faster).
SERIAL_BELOW_NS = 40_000
# A team that has not run for a while sleeps, and its cores with it. Waking it pays for long
# launches only; short ones that follow each other closely run in parallel from the second on.
WAKE_FROM_NS = 1_000_000
_AWAKE_NS = 1_000_000
PAGE, LINE = 4096, 64
# Chunks per thread when the caller does not say: enough to even out blocks of unequal cost.
_CHUNKS_PER_THREAD = 8
_KEPT_ARENAS = 4


def aligned(memory: bytearray, bytes_: int) -> int:
    """The first address in `memory` that is a multiple of `bytes_`."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return -(-start // bytes_) * bytes_


class _Record:
    """One launch record in memory, with queues for `threads` workers; reused by launches that do
    not overlap in time."""

    __slots__ = ("address", "buffer", "memory", "threads")

    def __init__(self, entry: int, flag: int, slot_count: int, threads: int) -> None:
        size = -(-8 * (words.SLOTS_WORD + slot_count) // LINE) * LINE
        self.memory = bytearray(size + words.QUEUE_BYTES * threads + LINE)
        self.address = aligned(self.memory, LINE)
        self.buffer = (ctypes.c_char * size).from_address(self.address)
        self.threads = threads
        arguments, queues = self.address + 8 * words.SLOTS_WORD, self.address + size
        struct.pack_into("=4q", self.buffer, 8 * words.ENTRY_WORD, entry, arguments, flag, queues)


class _Arena:
    """Scratch memory of one launch at a time, aligned to a page."""

    __slots__ = ("address", "memory", "size")

    def __init__(self, size: int) -> None:
        # The system gives large zeroed blocks page by page on first touch, so an arena costs what
        # is used of it.
        self.memory = bytearray(size + PAGE)
        self.address = aligned(self.memory, PAGE)
        self.size = size


# When the last launch ended that was worth several threads.
_last_use_ns = 0


def _choose_threads(blocks: int, estimated_ns: float | None) -> int:
    """Threads for a launch that is long enough for several, if they are awake."""
    is_short = estimated_ns is not None and estimated_ns < WAKE_FROM_NS
    if is_short and not is_awake(monotonic_ns()):
        return 1
    return min(get_num_threads(), blocks)


def is_worth_several(estimated_ns: float | None) -> bool:
    """Whether a launch that takes so long on one core is worth several."""
    return estimated_ns is None or estimated_ns >= SERIAL_BELOW_NS


def is_awake(now_ns: int) -> bool:
    """Whether several threads ran a short while ago."""
    return now_ns - _last_use_ns <= _AWAKE_NS


def note_use() -> None:
    """Note that a launch ended now that was worth several threads."""
    global _last_use_ns
    _last_use_ns = monotonic_ns()


# Shared by all kernels, since few run at once. `pop` and `append` are atomic.
_free_arenas: list[_Arena] = []


def _take_arena(size: int) -> _Arena:
    try:
        arena = _free_arenas.pop()
    except IndexError:
        return _Arena(size)
    return arena if arena.size >= size else _Arena(size)


def _give_arena(arena: _Arena) -> None:
    if len(_free_arenas) < _KEPT_ARENAS:
        _free_arenas.append(arena)


class Launcher:
    """Calls one compiled kernel. Safe to call from several Python threads at once.

    `slot_count` is the number of 8-byte argument slots, `scratch_bytes` what the code needs per
    worker, `chunk` the blocks a worker takes at a time (0: chosen from the grid). `assertions` are
    the messages of the kernel's device assertions by number, `places` where they stand, `value`
    gives the number that belongs to the one that failed. A `brief` kernel is over before Ctrl-C
    could stop it, which then waits for its end.
    """

    def __init__(
        self,
        native: NativeFunction | PendingFunction,
        kernel_name: str,
        slot_count: int,
        scratch_bytes: int = 0,
        chunk: int = 0,
        assertions: Sequence[str] = (),
        brief: bool = False,
        places: Sequence[Span | None] = (),
        value: NativeFunction | PendingFunction | None = None,
    ) -> None:
        self.kernel_name = kernel_name
        self._native = native
        self._slot_count = slot_count
        self.stride = -(-scratch_bytes // PAGE) * PAGE
        self._chunk = chunk
        self._assertions = tuple(assertions)
        self._places = tuple(places)
        self._value = value
        self._brief = brief
        self._dispatch = dispatch()
        self._run_serial = self._dispatch.run_serial
        self._free: dict[bool, list[_Record]] = {True: [], False: []}
        self._offset = 8 * words.SCRATCH_WORD
        self._pack = struct.Struct(f"={5 + slot_count}q").pack_into

    def __call__(
        self, slots: Sequence[int], blocks: int, estimated_ns: float | None = None
    ) -> None:
        """Execute `blocks` grid blocks with the argument `slots` (64-bit integers, as the contract
        of `llvm` says).

        A launch estimated to take less than `SERIAL_BELOW_NS` on one core runs on the caller's
        thread alone; after a pause so does one below `WAKE_FROM_NS`. Without an estimate the launch
        counts as a long one. Raises `ArgumentError` for an empty grid, `Interrupted` after Ctrl-C,
        `DeviceAssertError`, and `MemoryError` when there is no room for the scratch memory.
        """
        if blocks < 1:
            raise empty_grid(self.kernel_name)
        is_long = blocks > 1 and is_worth_several(estimated_ns)
        threads = _choose_threads(blocks, estimated_ns) if is_long else 1
        chunk = self.chunk_of(blocks, threads)
        guarded = not self._brief and get_ident() == main_thread().ident
        run = self._run if guarded else self._run_team
        records = self._free[guarded]
        record = records.pop() if records else self._new_record(guarded, threads)
        if record.threads < threads:
            record = self._new_record(guarded, threads)
        if self.stride == 0:
            self._pack(record.buffer, self._offset, 0, 0, blocks, chunk, threads, *slots)
            code = run(record.address, threads)
        else:
            arena = self._arena(threads)
            base, stride = arena.address, self.stride
            self._pack(record.buffer, self._offset, base, stride, blocks, chunk, threads, *slots)
            code = run(record.address, threads)
            _give_arena(arena)
        records.append(record)
        if is_long:
            note_use()
        if code:
            self.fail(code)

    @property
    def entry(self) -> int:
        """The address of the compiled code."""
        return self._native.address

    def chunk_of(self, blocks: int, threads: int) -> int:
        """The blocks that a thread takes at a time."""
        return self._chunk or -(-blocks // (threads * _CHUNKS_PER_THREAD))

    def _new_record(self, guarded: bool, threads: int) -> _Record:
        flag = self._dispatch.interrupt_flag if guarded else self._dispatch.never_flag
        return _Record(self._native.address, flag, self._slot_count, threads)

    def _arena(self, threads: int) -> _Arena:
        size = self.stride * threads
        try:
            return _take_arena(size)
        except (MemoryError, OverflowError):
            raise MemoryError(
                f"'{self.kernel_name}' needs {size} bytes of scratch memory "
                f"for {threads} thread{'' if threads == 1 else 's'}"
            ) from None

    def _run(self, record: int, threads: int) -> int:
        enter, leave = self._dispatch.guard_enter, self._dispatch.guard_leave
        if enter is None or leave is None:
            return self._run_team(record, threads)
        # A Ctrl-C before `enter` is Python's: it raises KeyboardInterrupt when that call returns,
        # before the kernel begins. From then on our handler sets the flag, too. `leave` undoes what
        # was done, or nothing.
        try:
            enter()
            return self._run_team(record, threads)
        except KeyboardInterrupt:
            raise interrupted(self.kernel_name) from None
        finally:
            leave()

    def _run_team(self, record: int, threads: int) -> int:
        if threads == 1:
            return self._run_serial(record)
        return team_for(threads).run(record, threads)

    def fail(self, code: int) -> None:
        """Raise the error that a nonzero return code stands for."""
        if code == 1:
            raise interrupted(self.kernel_name)
        number = code - 2
        text = self._assertions[number] if number < len(self._assertions) else f"number {number}"
        place = self._places[number] if number < len(self._places) else None
        shown = ctypes.CFUNCTYPE(ctypes.c_int64)(self._value.address)() if self._value else None
        error = failed_assertion(text, f"'{self.kernel_name}': device assertion failed", shown)
        if not isinstance(error, DeadlockError):  # which says where who waits
            error.span = place
        raise error
