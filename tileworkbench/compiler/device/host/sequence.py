"""Several launches, one behind the other, in one native call.

A launch from Python takes some microseconds, more than a kernel on few elements. A sequence has a
launch record for each of its kernels, written when it is made. A call writes the addresses of its
tensors into them and runs them in order, in one native function; each ends before the next begins.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from threading import get_ident, main_thread
from time import monotonic_ns
from typing import Any

from tileworkbench.compiler.device.host import dispatch_ir as words
from tileworkbench.compiler.device.host import launch
from tileworkbench.compiler.device.host.dispatch import dispatch
from tileworkbench.compiler.device.host.launch import LINE, PAGE, Launcher, aligned
from tileworkbench.compiler.device.host.threads import (
    OpenMPTeam,
    PoolTeam,
    get_num_threads,
    team_for,
)
from tileworkbench.compiler.diagnostics import RunError, interrupted
from tileworkbench.compiler.fast_dataclass import dataclass

_KEPT = 4


@dataclass(frozen=True, slots=True)
class Step:
    """One launch: `slots` say where each argument is, as (number of a base, bytes behind it);
    `owner` is the kernel that its errors name.
    """

    launcher: Launcher
    blocks: int
    estimated_ns: float | None
    slots: tuple[tuple[int, int], ...]
    owner: Any = None


class _Frame:
    """The memory of one call: launch records, scratch memory, and what is between the kernels."""

    def __init__(self, steps: Sequence[Step], base_count: int, arena_bytes: int, flag: int) -> None:
        self.threads = 0
        self._steps = steps
        self._queues = self._scratch = bytearray()
        sizes = [-(-8 * (words.SLOTS_WORD + len(step.slots)) // LINE) * LINE for step in steps]
        places = sum(len(step.slots) for step in steps)
        tables = 8 * (words.SEQUENCE_WORDS + len(steps) + 3 * places + base_count + 1)
        self._memory = bytearray(sum(sizes) + tables + arena_bytes + 4 * LINE)
        at = aligned(self._memory, LINE)
        self.records = []
        for size in sizes:
            self.records.append(at)
            at += size
        self.address, at = at, at + 8 * words.SEQUENCE_WORDS
        listed, at = at, at + 8 * len(steps)
        moves, at = at, at + 24 * places
        self.bases = (ctypes.c_int64 * (base_count + 1)).from_address(at)
        arena = -(-(at + 8 * (base_count + 1)) // LINE) * LINE
        self.bases[base_count] = arena
        triples = []
        for record, step in zip(self.records, steps, strict=True):
            first = record + 8 * words.SLOTS_WORD
            _write(record + 8 * words.ENTRY_WORD, step.launcher.entry, first, flag)
            for place, (base, offset) in enumerate(step.slots):
                triples += [first + 8 * place, base, offset]
        _write(listed, *self.records)
        _write(moves, *triples)
        _write(self.address, len(steps), listed, places, moves, at)

    def set_threads(self, threads: int) -> None:
        """Write how many threads run each step. The queues are those of all steps, as only one
        runs at a time."""
        counts, needed = [], 0
        for step in self._steps:
            several = step.blocks > 1 and launch.is_worth_several(step.estimated_ns)
            counts.append(min(threads, step.blocks) if several else 1)
            needed = max(needed, counts[-1] * step.launcher.stride)
        queues = bytearray(words.QUEUE_BYTES * threads + LINE)
        scratch = bytearray(needed + PAGE if needed else 0)
        queues_at = aligned(queues, LINE)
        base = aligned(scratch, PAGE) if needed else 0
        for record, step, count in zip(self.records, self._steps, counts, strict=True):
            chunk = step.launcher.chunk_of(step.blocks, count)
            at = record + 8 * words.QUEUES_WORD
            _write(at, queues_at, base, step.launcher.stride, step.blocks, chunk, count)
        self._queues, self._scratch, self.threads = queues, scratch, threads


class LaunchSequence:
    """Launches in order. Safe to call from several Python threads at once.

    `base_count` addresses come with each call; the base behind them is memory of `arena_bytes`,
    which a call has for itself. Needs POSIX threads (`is_available`).
    """

    def __init__(self, steps: Sequence[Step], base_count: int, arena_bytes: int) -> None:
        self._steps, self._base_count, self._arena_bytes = tuple(steps), base_count, arena_bytes
        self._dispatch = dispatch()
        self._free: dict[bool, list[_Frame]] = {True: [], False: []}
        estimates = [step.estimated_ns for step in steps]
        self._estimated_ns = sum(each or 0.0 for each in estimates)
        self._may_split = any(
            step.blocks > 1 and launch.is_worth_several(step.estimated_ns) for step in steps
        )

    @staticmethod
    def is_available() -> bool:
        """Whether this system runs sequences."""
        return dispatch().run_sequence is not None

    def __call__(self, bases: Sequence[int]) -> None:
        """Run all with memory at these addresses. Raises what the launcher of a step raises; later
        steps are not run then.
        """
        guarded = get_ident() == main_thread().ident
        free = self._free[guarded]
        frame = free.pop() if free else self._new_frame(guarded)
        threads = self._threads()
        if threads != frame.threads:
            frame.set_threads(threads)
        frame.bases[: self._base_count] = list(bases)
        code = self._run(frame, guarded, threads)
        if len(free) < _KEPT:
            free.append(frame)
        if threads > 1:
            launch.note_use()
        if code:
            self._fail(self._steps[(code >> 32) - 1], code & 0xFFFFFFFF)

    @staticmethod
    def _fail(step: Step, code: int) -> None:
        try:
            step.launcher.fail(code)
        except RunError as error:
            error.kernel = step.owner
            raise

    def _threads(self) -> int:
        if not self._may_split:
            return 1
        if self._estimated_ns < launch.WAKE_FROM_NS and not launch.is_awake(monotonic_ns()):
            launch.note_use()
            return 1
        return get_num_threads()

    def _new_frame(self, guarded: bool) -> _Frame:
        flag = self._dispatch.interrupt_flag if guarded else self._dispatch.never_flag
        try:
            return _Frame(self._steps, self._base_count, self._arena_bytes, flag)
        except (MemoryError, OverflowError):
            raise MemoryError(
                f"a graph needs {self._arena_bytes} bytes for what is between its kernels"
            ) from None

    def _run(self, frame: _Frame, guarded: bool, threads: int) -> int:
        native = self._dispatch
        assert native.run_sequence is not None
        runner = team = 0
        if threads > 1:
            chosen = team_for(threads)
            assert isinstance(chosen, OpenMPTeam | PoolTeam)
            runner, team = chosen.native
        if not guarded or native.guard_enter is None or native.guard_leave is None:
            return native.run_sequence(frame.address, runner, team)
        # As in `Launcher`: a Ctrl-C before `guard_enter` is Python's.
        try:
            native.guard_enter()
            return native.run_sequence(frame.address, runner, team)
        except KeyboardInterrupt:
            raise interrupted(self._steps[0].launcher.kernel_name) from None
        finally:
            native.guard_leave()


def _write(address: int, *numbers: int) -> None:
    layout = struct.Struct(f"={len(numbers)}q")
    layout.pack_into((ctypes.c_char * layout.size).from_address(address), 0, *numbers)
