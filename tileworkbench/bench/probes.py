"""Small kernels with a known amount of work, compiled like any other: what ceilings are measured
with.

Each follows the contract of `compiler.device.host.llvm`. A block of the grid is one thread's share
and has an area of its own in memory. The arguments are the address of block 0's area, the bytes
from one area to the next, the bytes of one array in an area (streams only, a multiple of
`STEP_BYTES`) and how often to repeat. What a probe leaves in memory is fixed, so that a test can
tell whether it did all its work.
"""

from __future__ import annotations

import functools
import itertools
import time
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray

from tileworkbench.compiler.device.host.launch import Launcher
from tileworkbench.compiler.device.host.llvm import NativeTarget, native_target
from tileworkbench.compiler.device.host.native import build_native
from tileworkbench.compiler.emit.llvm.isa import Isa, isa_from_features
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.fast_dataclass import dataclass

STEP_BYTES = 512
"""What one iteration of a stream reads or writes of each array."""

ARRAY_GAP = 21 * 64
"""Bytes between two arrays of a stream: a load whose address equals an earlier store's modulo 4096
would wait for it, so arrays of a power of two in length must not follow each other closely."""

AREA_BYTES = 8192
"""Least memory of a block: the sums of an arithmetic probe, then its factor in every word."""

_PAGE = 4096
_ENTRY = """
define i32 @probe(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch) {
entry:
  %data = load ptr, ptr %args
  %stride_at = getelementptr i64, ptr %args, i64 1
  %stride = load i64, ptr %stride_at
  %bytes_at = getelementptr i64, ptr %args, i64 2
  %bytes = load i64, ptr %bytes_at
  %repeats_at = getelementptr i64, ptr %args, i64 3
  %repeats = load i64, ptr %repeats_at
  br label %block
block:
  %id = phi i64 [ %begin, %entry ], [ %next, %block ]
  %offset = mul i64 %id, %stride
  %area = getelementptr i8, ptr %data, i64 %offset
  call void @work(ptr %area, i64 %bytes, i64 %repeats)
  %next = add i64 %id, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %block, label %done
done:
  ret i32 0
}
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """LLVM IR of one probe. `work` is what a repetition does: floating-point (or integer)
    operations of an arithmetic probe, arrays walked by a stream, cycles of the chain."""

    name: str
    ir_text: str
    work: int


class ProbeRunner:
    """A probe linked into this process, with an area for each of `blocks` blocks.

    `array_bytes` is the length of one array of a stream; for other probes the area holds
    `AREA_BYTES`. `loaded` is what `load_probe` returned for the probe; without it the probe is
    compiled. The areas are in `memory` where it is given, else in memory of their own; with
    `in_turn` each repetition walks the next ones of all that have room there.
    """

    def __init__(
        self,
        probe: Probe,
        blocks: int,
        array_bytes: int = 0,
        target: NativeTarget | None = None,
        loaded: Launcher | None = None,
        memory: NDArray[np.uint8] | None = None,
        in_turn: bool = False,
    ) -> None:
        self.blocks = blocks
        self.array_bytes = array_bytes
        arrays = probe.work if array_bytes else 0
        self._stride = area_stride(arrays, array_bytes)
        needed = blocks * self._stride
        self._memory = touched_memory(needed + _PAGE) if memory is None else memory
        self._start = -self._memory.ctypes.data % _PAGE
        room = (self._memory.size - self._start) // needed
        if room < 1:
            raise ValueError(f"{self._memory.size} bytes are too few for {needed} of areas")
        self._turns = itertools.cycle(range(room if in_turn else 1))
        self._in_turn = in_turn
        self._launch = loaded or load_probe(probe, target)

    def area(self, block: int) -> NDArray[np.uint8]:
        """The memory of one block."""
        start = self._start + block * self._stride
        return self._memory[start : start + self._stride]

    def run(self, repeats: int) -> None:
        """Execute all blocks, each on a thread of its own if a launch may use as many."""
        data = self._memory.ctypes.data + self._start
        for _ in range(repeats if self._in_turn else 1):
            start = data + next(self._turns) * self.blocks * self._stride
            times = 1 if self._in_turn else repeats
            self._launch((start, self._stride, self.array_bytes, times), self.blocks)


def touched_memory(bytes_: int) -> NDArray[np.uint8]:
    """Zeros that were written, or every page would be the system's one page of zeros, which is
    always cached.
    """
    memory = np.empty(bytes_, np.uint8)
    memory.fill(0)
    return memory


def load_probe(probe: Probe, target: NativeTarget | None = None) -> Launcher:
    """Compile a probe and link it into this process."""
    function = build_native(probe.ir_text, ("probe",), target).functions["probe"]
    return Launcher(function, probe.name, 4, chunk=1)


def area_stride(arrays: int, array_bytes: int) -> int:
    """Bytes from one area to the next: whole pages, and a gap after each array."""
    return -(-max(arrays * (array_bytes + ARRAY_GAP), AREA_BYTES) // _PAGE) * _PAGE


assumed_isa: ContextVar[Isa | None] = ContextVar("isa", default=None)
"""What `host_isa` says instead, where another processor is reckoned with."""


assumed_target: ContextVar[NativeTarget | None] = ContextVar("target", default=None)
"""The processor that LLVM optimises for, where another one is reckoned with."""


def host_isa() -> Isa:
    """What code compiled for all of this machine may use."""
    return assumed_isa.get() or isa_from_features(dict.fromkeys(native_target().features, True))


# The clock: additions that wait for each other, one cycle each.

_CHAIN_PAIRS = 16
_CHAIN_REPEATS = 20_000


def chain_probe() -> Probe:
    """A chain of dependent 64-bit additions and exclusive ors, one cycle each on any processor.

    It begins with the first word of the area, adds the second and flips by the third, and leaves
    the result in the first.
    """
    writer = FunctionWriter("work", "void", "ptr %area, i64 %bytes, i64 %repeats")
    places = [writer.let(f"getelementptr i64, ptr %area, i64 {number}") for number in range(3)]
    start, addend, flips = (writer.let(f"load i64, ptr {at}, align 8") for at in places)

    def iteration(counter: str, values: list[str]) -> list[str]:
        value = values[0]
        for _ in range(_CHAIN_PAIRS):
            value = writer.let(f"xor i64 {writer.let(f'add i64 {value}, {addend}')}, {flips}")
        return [value]

    ends = writer.counted_loop("%repeats", 1, iteration, [(VectorType("i64", 1), start)])
    writer.do(f"store i64 {ends[0]}, ptr {places[0]}, align 8")
    return Probe("dependent additions", module_text(writer), 2 * _CHAIN_PAIRS)


@functools.cache
def _clock_runner() -> ProbeRunner:
    return ProbeRunner(chain_probe(), 1)


def sample_clock() -> float:
    """The processor's clock in GHz just now, from a chain of additions; takes half a
    millisecond.

    Raises `UnsupportedError` where nothing can be compiled.
    """
    runner = _clock_runner()
    fastest = float("inf")
    for _ in range(4):
        start = time.perf_counter_ns()
        runner.run(_CHAIN_REPEATS)
        fastest = min(fastest, time.perf_counter_ns() - start)
    return _CHAIN_REPEATS * 2 * _CHAIN_PAIRS / fastest


def module_text(writer: FunctionWriter) -> str:
    """The module of a probe whose function `work` was written."""
    function = writer.finish()
    return "\n".join((*sorted(function.declarations), function.text, _ENTRY))
