"""What one block writes to floating-point buffers, statement by statement: in a replay in float64,
which is kept, and in the run itself, which is compared with it.
"""

from __future__ import annotations

import zlib
from collections import deque
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.diagnostics import line_in
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.sim.numerics.origins import Access, Origins
from tileworkbench.compiler.sim.numerics.result import Loops, Step
from tileworkbench.compiler.sim.numerics.rounding import errors_of
from tileworkbench.compiler.sim.observers import Observer, Place
from tileworkbench.compiler.sim.report import LimitReached

if TYPE_CHECKING:
    from tileworkbench.compiler.ir.stmt import Stmt
    from tileworkbench.compiler.sim.frame import Frame
    from tileworkbench.compiler.sim.memory import Storage

Array = np.ndarray[Any, Any]

MOST_BYTES = 1 << 28
"""Of what a replay keeps: 8 bytes for each element that a statement writes."""

MOST_STEPS = 20_000
"""How many steps are kept: about 10 MiB."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one statement of the replay wrote to one buffer; `where` tells the elements apart."""

    site: int
    buffer: str
    where: int
    values: Array


class BlockWatcher(Observer):
    """Collects the floating-point accesses of each statement of the block with these indices."""

    __slots__ = ("_block", "_reads", "_writes")

    def __init__(self, block: tuple[int, ...]) -> None:
        self._block = _padded(block)
        self._reads: list[Access] = []
        self._writes: list[tuple[Storage, Place]] = []

    def watches(self, frame: Frame) -> bool:
        """Whether the block that runs is the one."""
        return frame.block_number > 0 and _padded(frame.block) == self._block

    def began(self, frame: Frame, stmt: Stmt) -> None:
        self._reads, self._writes = [], []

    def wrote(
        self, frame: Frame, storage: Storage, place: Place, threads: Any, registers: Any
    ) -> None:
        if storage.dtype.is_float and self.watches(frame) and _has_elements(storage):
            self._writes.append((storage, place))


class Recording(BlockWatcher):
    """Keeps what the replay writes, until it is too much."""

    __slots__ = ("_bytes", "full", "steps")

    def __init__(self, block: tuple[int, ...]) -> None:
        super().__init__(block)
        self.steps: deque[Written] = deque()
        self._bytes, self.full = 0, ""

    def ended(self, frame: Frame, stmt: Stmt) -> None:
        for storage, place in self._writes:
            values = np.array(storage.data[place], np.float64)
            if not values.size:
                continue
            self._bytes += values.nbytes
            if self._bytes > MOST_BYTES:
                self.full = f"the replay keeps {MOST_BYTES >> 20} MiB, which the first "
                self.full += f"{len(self.steps)} steps fill"
            elif len(self.steps) == MOST_STEPS:
                self.full = f"the first {MOST_STEPS} steps are kept"
            if self.full:
                raise LimitReached
            self.steps.append(Written(stmt.site, storage.name, _where(place), values))
        self._writes = []


class Comparing(BlockWatcher):
    """Compares what the run writes with what the replay wrote; `why` says why the two took
    different ways, if they did.
    """

    __slots__ = ("_exact", "_number", "_program", "origins", "steps", "why")

    def __init__(self, block: tuple[int, ...], program: Program, exact: deque[Written]) -> None:
        super().__init__(block)
        self._program, self._exact, self._number = program, exact, -1
        self.steps: list[Step] = []
        self.origins, self.why = Origins(program), ""

    def read(self, frame: Frame, storage: Storage, place: Place, threads: Any) -> None:
        if storage.dtype.is_float and self.watches(frame) and _has_elements(storage):
            self._reads.append(Access(storage, place, np.array(storage.data[place])))

    @property
    def seen(self) -> bool:
        """Whether the block has run at all."""
        return self._number >= 0

    def ended(self, frame: Frame, stmt: Stmt) -> None:
        if not self.watches(frame):
            return
        self._number += 1
        loops = tuple((name, int(value)) for name, value, _, _ in frame.edges)
        for storage, place in self._writes:
            values = np.asarray(storage.data[place])
            if not values.size:
                continue
            if not self._exact:
                raise LimitReached
            expected = self._exact.popleft()
            if (expected.site, expected.buffer) != (stmt.site, storage.name):
                self.why = self._apart(expected, stmt, storage, loops)
                raise LimitReached
            same = expected.values.shape == values.shape and expected.where == _where(place)
            exact = expected.values if same else None
            written = Access(storage, place, values)
            self.steps.append(self._step(stmt, loops, written, exact))
            self.origins.look(stmt, loops, self._number, written, self._reads, exact)
        self._writes = []

    def _step(self, stmt: Stmt, loops: Loops, written: Access, exact: Array | None) -> Step:
        storage, values = written.storage, written.values
        line, dtype = _line(self._program, stmt.site), storage.dtype
        blank = Step(
            self._number, line, stmt.site, loops, storage.name, str(dtype), values.size,
            comparable=False,
        )  # fmt: skip
        if exact is None:
            return blank
        errors = errors_of(values, exact, dtype)
        return Step(
            *(blank.number, line, stmt.site, loops, storage.name, str(dtype), values.size),
            errors.absolute,
            errors.relative,
            errors.ulp,
            errors.scaled,
            written.element(errors.worst),
            float(values.reshape(-1)[errors.worst]),
            float(exact.reshape(-1)[errors.worst]),
        )

    def _apart(self, expected: Written, stmt: Stmt, storage: Storage, loops: Loops) -> str:
        return (
            f"the replay went another way: where this run writes '{storage.name}' at line "
            f"{_line(self._program, stmt.site)}, float64 writes '{expected.buffer}' at line "
            f"{_line(self._program, expected.site)}; what follows is not compared"
        )


def _padded(block: tuple[int, ...]) -> tuple[int, ...]:
    """The indices along three axes: launches may have fewer."""
    return (*block, 0, 0, 0)[:3]


def _line(program: Program, site: int) -> int:
    return line_in("", program.span(site))


def _has_elements(storage: Storage) -> bool:
    """Whether its data has a number for each element: memory of threads packs small ones."""
    size = prod(storage.data.shape)
    return storage.dtype.bits >= 8 or size == prod(storage.shape)


def _where(place: Place) -> int:
    """A hash of which elements these are: different elements have different ones, nearly always."""
    if any(isinstance(at, np.ndarray) for at in place):
        made = 0
        for at in place:
            if isinstance(at, slice):
                at = np.array([at.start or 0, -1 if at.stop is None else at.stop])
            made = zlib.crc32(np.ascontiguousarray(at, np.int64).tobytes(), made)
        return made
    return hash(tuple([(at.start, at.stop) if isinstance(at, slice) else at for at in place]))
