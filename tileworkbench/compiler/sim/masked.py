"""Accesses outside a tensor, which the language masks: how many of which line, and where.

That is expected at the border of a tensor. Tiles that do not divide it are masked in the first or
last blocks, or in the first or last iterations of a loop. A row in a tile of the next power of two
is masked in all blocks, past the same end. Anywhere else it is probably a mistake.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.diagnostics import Note, OutOfBoundsError, Span
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.values import Mask

if TYPE_CHECKING:
    from tileworkbench.compiler.ir.program import Program
    from tileworkbench.compiler.sim.frame import Frame

GUARD = (
    "its index comes from data: ask in an 'if' whether it is inside, or give reads a value with "
    "T.annotate_safe_value"
)
_AXES = "xyz"


@dataclass(frozen=True, slots=True)
class Masked:
    """Accesses of elements outside a tensor by one statement: loads give the safe value, stores are
    skipped.

    `count` of `total` elements were outside; the first one was `index` of the tensor of that
    `shape`, in `block` and by `thread` or in `iteration` of a parallel loop, as far as they are
    known. `place` says which blocks or iterations it was in ("" where there is one only), `away`
    whether some were not at a border. `from_data`: the index comes from data and nothing in the
    kernel guards it.
    """

    access: str
    buffer: str
    site: int
    span: Span | None
    count: int
    total: int
    index: tuple[int, ...]
    shape: tuple[int, ...]
    block: tuple[int, ...]
    thread: int | None
    iteration: tuple[int, ...]
    place: str
    away: bool
    from_data: bool

    @property
    def text(self) -> str:
        """Which line, how many and where: `A, line 7, 1 of 4096 elements, in the last block
        only`.
        """
        return self._described("" if self.span is None else f", line {self.span.line}")

    def _described(self, line: str) -> str:
        place = f", {self.place}" if self.place else ""
        return f"{self.buffer}{line}, {self.count} of {self.total} elements{place}"

    def _who(self) -> str:
        who = f" in block {index_text(self.block)}" if self.block else ""
        if self.thread is not None:
            who += f", thread {self.thread}"
        if self.iteration:
            who += f", iteration {index_text(self.iteration)}"
        return who

    def note(self) -> Note:
        """The masked access as a warning, with its line."""
        times = "" if self.count == 1 else f" ({self.count} elements in all)"
        return Note(f"{self.error().message}{times}; {GUARD}", self.span)

    def error(self) -> OutOfBoundsError:
        """The first of them as an error."""
        at = ", ".join(map(str, self.index))
        happened = {"load": "reads give the safe value", "store": "nothing is stored"}
        return OutOfBoundsError(
            f"'{self.buffer}[{at}]' is outside '{self.buffer}' of shape {index_text(self.shape)}"
            f"{self._who()}: {happened.get(self.access, 'nothing is updated')}",
            GUARD,
            self.span,
        )

    def __str__(self) -> str:
        return f"masked: {self._described('' if self.span is None else f', {self.span}')}"


@dataclass(slots=True)
class _End:
    """What is outside at one end of one dimension."""

    blocks: set[int] = field(default_factory=set)
    away: bool = False
    edges: set[str] | None = None  # what all of them have in common

    def add(self, block: int, edges: set[str] | None) -> None:
        self.blocks.add(block)
        self.away |= edges is not None and not edges
        if edges is not None:
            self.edges = edges if self.edges is None else self.edges & edges


@dataclass(slots=True)
class _Tally:
    index: tuple[int, ...]
    shape: tuple[int, ...]
    block: tuple[int, ...]
    thread: int | None
    iteration: tuple[int, ...]
    count: int = 0
    all_ends: _End = field(default_factory=_End)
    ends: dict[tuple[int, bool], _End] = field(default_factory=dict)  # by dimension; True: the far


@dataclass(slots=True)
class MaskLog:
    """The masked accesses of a run, and how many elements each statement accessed in all."""

    touched: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _tallies: dict[tuple[str, str, int, bool], _Tally] = field(default_factory=dict)

    def touch(self, access: str, buffer: str, site: int, count: int) -> None:
        """Statement `site` accesses `count` elements of the tensor `buffer`."""
        key = (access, buffer, site)
        self.touched[key] = self.touched.get(key, 0) + count

    def add(
        self,
        frame: Frame,
        access: str,
        buffer: str,
        index: tuple[int, ...],
        shape: tuple[int, ...],
        beyond: set[tuple[int, bool]],
        count: int,
        thread: int | None = None,
        iteration: tuple[int, ...] = (),
    ) -> None:
        """`count` elements, `index` the first, are outside, `beyond` these ends of dimensions.

        Raises `OutOfBoundsError` where that is an error of this run.
        """
        key = (access, buffer, frame.site, frame.from_data)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally(index, shape, frame.block, thread, iteration)
        tally.count += count
        tally.all_ends.add(frame.block_number, _edges(frame, {high for _, high in beyond}))
        for end in beyond:
            side = tally.ends.setdefault(end, _End())
            side.add(frame.block_number, _edges(frame, {end[1]}))
        if frame.options.sanitize and frame.from_data:
            raise self._finished(key, tally, frame.recorder.program, 0).error()

    def report(self, program: Program, blocks: int) -> tuple[Masked, ...]:
        """What was masked, in the order first met, in a run of so many blocks."""
        return tuple(
            self._finished(key, tally, program, blocks) for key, tally in self._tallies.items()
        )

    def _finished(
        self, key: tuple[str, str, int, bool], tally: _Tally, program: Program, blocks: int
    ) -> Masked:
        access, buffer, site, from_data = key
        place, away = _place(tally, blocks)
        return Masked(
            access,
            buffer,
            site,
            program.span(site),
            tally.count,
            self.touched.get((access, buffer, site), tally.count),
            tally.index,
            tally.shape,
            tally.block,
            tally.thread,
            tally.iteration,
            place,
            away,
            from_data,
        )


def _place(tally: _Tally, blocks: int) -> tuple[str, bool]:
    """Which blocks or iterations, and whether some of them are away from the borders."""
    every = tally.all_ends
    if every.edges is None:  # one block, and no loop
        return "", False
    if not every.away:
        return _border(every), False
    places = []
    for (dimension, high), end in sorted(tally.ends.items()):
        if not end.away:
            places.append(_border(end))
        elif len(end.blocks) == blocks:
            name = "past the end" if high else "before the start"
            places.append(f"in all blocks, {name} of dimension {dimension}")
        else:
            return f"in {len(every.blocks)} of {blocks} blocks, away from the borders", True
    return "; ".join(dict.fromkeys(places)), False


def _border(end: _End) -> str:
    return f"{min(end.edges, key=_rank)} only" if end.edges else "at the borders only"


def _rank(edge: str) -> tuple[bool, str]:
    return "iteration" in edge, edge  # blocks first


def _edges(frame: Frame, ends: set[bool]) -> set[str] | None:
    """Where the block and the iterations around this access are at the end (True: the far one) that
    an index leaves the tensor by; None where there is one block and no loop of several iterations.
    """
    places: list[tuple[str, bool, bool]] = []
    axes = [d for d, extent in enumerate(frame.grid) if extent > 1]
    for d in axes:
        named = "block" if len(axes) == 1 else f"blocks along {_AXES[d]}"
        at, last = frame.block[d], frame.grid[d] - 1
        places.append((named, at == 0, at == last))
    places += [(f"iteration of '{name}'", first, last) for name, _, first, last in frame.edges]
    if not places:
        return None
    edges = set()
    for named, first, last in places:
        if first and False in ends:
            edges.add(f"in the first {named}")
        if last and True in ends:
            edges.add(f"in the last {named}")
    return edges


def ends_of(index: tuple[Any, ...], shape: tuple[int, ...], bad: Mask) -> set[tuple[int, bool]]:
    """The dimensions that indices of the lanes `bad` are outside of: before (False), behind (True).
    """
    ends = set()
    for dimension, (at, extent) in enumerate(zip(index, shape, strict=True)):
        if np.any(np.less(at, 0) & bad):
            ends.add((dimension, False))
        if np.any(np.greater_equal(at, extent) & bad):
            ends.add((dimension, True))
    return ends


def index_text(values: tuple[int, ...]) -> str:
    """``(0, 3)``: indices of a block, an iteration or an element."""
    return f"({', '.join(map(str, values))})"
