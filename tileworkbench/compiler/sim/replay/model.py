"""What was recorded of a run: steps, what each changed, and the memory after any of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import Span, line_in
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.replay.places import Places

Array = np.ndarray[Any, Any]

UNDEFINED, GIVEN = -1, -2
"""Writers of elements that no step wrote: nobody has yet; they come from outside the block."""


@dataclass(frozen=True, slots=True)
class Contents:
    """One buffer of a replay.

    Attributes:
        name: as in the program; with `[i, j]` in front of `lanes` dimensions of threads or
            iterations that have an element each.
        dtype, scope: of its elements, and which memory it is in.
        shape: of what is kept of it; `origin` is the index of its first element there, which is
            not zero for a tensor of which the block touches a part.
        block: whose it is, `()` for a tensor.
        born: the step that made it; -1 where it was there before.
        owners: the thread that has each element by the layout of a fragment, as far as known.
    """

    name: str
    dtype: str
    scope: str
    shape: tuple[int, ...]
    origin: tuple[int, ...]
    block: tuple[int, ...]
    born: int
    lanes: int = 0
    owners: Array | None = None

    def index(self, place: int) -> tuple[int, ...]:
        """The index, in the whole buffer, of the element at a row-major position in `shape`."""
        inside = np.unravel_index(place, self.shape) if self.shape else ()
        return tuple(int(at) + first for at, first in zip(inside, self.origin, strict=True))


@dataclass(frozen=True, slots=True)
class Change:
    """What a step did to one buffer (its number): at `places` `old` became `new`, and the steps
    that wrote them last were `writers`.

    `site` is the statement that wrote, `threads` those of the block, one or for each place; -1
    where the block did as a whole. `defines` is false where the contents became undefined, and
    `lands` where they are those of an asynchronous operation.
    """

    buffer: int
    places: Places
    old: Array
    new: Array
    writers: Array | int
    site: int
    threads: Array | int = -1
    defines: bool = True
    lands: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One executed statement of a block.

    Attributes:
        number: of the step, from 0; the first ones of a long run may be gone.
        site: the statement; `span` of the replay gives its place in the source.
        block: its indices, x first.
        kind: of the statement: "copy", "store", "barrier", ...; "go on" where threads leave a
            barrier at which they waited.
        text: the statement as the program prints it.
        threads: which of the block execute it, as text; empty where it does as a whole.
        loops: the loops around it with the values of their variables, None where threads disagree.
        changes, reads: what it wrote, and of which buffers it read which places.
    """

    number: int
    site: int
    block: tuple[int, ...]
    kind: str
    text: str
    threads: str
    loops: tuple[tuple[str, int | None], ...]
    changes: list[Change] = field(default_factory=list)
    reads: list[tuple[int, Places]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Flight:
    """An asynchronous operation: `places` of `buffer` are under way after step `began` until after
    step `ended`, -1 where it never landed.
    """

    buffer: int
    places: Places
    site: int
    engine: str
    threads: str
    block: tuple[int, ...]
    began: int
    ended: int = -1


@dataclass(frozen=True, slots=True)
class Waiting:
    """`threads` of a block wait after step `began` until after step `ended`, -1 for ever; `what`
    completes "they wait ...".
    """

    threads: str
    what: str
    site: int
    block: tuple[int, ...]
    began: int
    ended: int = -1


@dataclass(frozen=True, slots=True)
class Moment:
    """Something worth a look: what the simulator found wrong, or a breakpoint, at step `step`.

    `other` is the step of the other access of a race, -1 where there is none or it is not known.
    `text` is the whole diagnostic with lines and carets, `hint` what to do.
    """

    kind: str
    message: str
    hint: str
    text: str
    step: int
    span: Span | None
    buffer: str = ""
    index: tuple[int, ...] = ()
    thread: int | None = None
    other: int = -1
    other_span: Span | None = None
    other_thread: int | None = None


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote an element last: the step, its statement's place in the source, the thread (-1: the
    block as a whole).
    """

    step: int
    span: Span | None
    thread: int


class State:
    """The memory of a block after a step: `buffers` by name, and for each which elements are
    `undefined` and which the step wrote (`dirty`), as arrays of the same shapes.
    """

    def __init__(self, replay: Replay, step: int) -> None:
        self._replay, self.step = replay, step
        data, self._writers = replay.memory(step)
        self._numbers = replay.visible(step)
        self.buffers: dict[str, Array] = {}
        self.undefined: dict[str, Array] = {}
        for name, number in self._numbers.items():
            shape = replay.buffers[number].shape
            self.buffers[name] = data[number].reshape(shape).copy()
            self.undefined[name] = (self._writers[number] == UNDEFINED).reshape(shape)

    @property
    def dirty(self) -> dict[str, Array]:
        """Which elements the step wrote, by buffer; those that it did not touch are left out."""
        masks: dict[str, Array] = {}
        for change in self._replay.step(self.step).changes:
            buffer = self._replay.buffers[change.buffer]
            if change.defines and self._numbers.get(buffer.name) == change.buffer:
                mask = masks.setdefault(buffer.name, np.zeros(buffer.shape, np.bool_))
                change.places.put(mask, True)
        return masks

    def writer(self, name: str, index: tuple[int, ...]) -> Writer | None:
        """Who wrote an element last, None where no step that is kept did. `index` is that of the
        whole buffer. Raises `KeyError` for the name of no buffer.
        """
        number = self._numbers[name]
        buffer = self._replay.buffers[number]
        at = tuple(i - first for i, first in zip(index, buffer.origin, strict=True))
        place = int(np.ravel_multi_index(at, buffer.shape)) if at else 0
        return self._replay.writer(number, place, int(self._writers[number][place]))


@dataclass(eq=False)
class Replay:
    """What a block did, step by step: `steps` in order, `at(n)` the memory after one of them.

    Attributes:
        kernel, stage: whose, and after which pass ("tile" is the kernel as written).
        blocks: which ones were recorded, in the order in which they began.
        buffers: everything the steps touch, by number.
        flights, waits: asynchronous operations, and threads at barriers.
        moments: what the simulator found wrong, and breakpoints, in the order of their steps.
        total: how many steps the run had; `steps` are the last of them.
        bytes_: what is kept.
        notes: what the recording lacks, in sentences.
    """

    kernel: str
    stage: str
    grid: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    buffers: tuple[Contents, ...]
    steps: tuple[Step, ...]
    flights: tuple[Flight, ...]
    waits: tuple[Waiting, ...]
    moments: tuple[Moment, ...]
    spans: tuple[Span | None, ...]
    final: tuple[Array, ...]
    final_writers: tuple[Array, ...]
    total: int
    bytes_: int
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def first(self) -> int:
        """The number of the first step that is kept."""
        return self.steps[0].number if self.steps else 0

    @property
    def last(self) -> int:
        """The number of the last step."""
        return self.steps[-1].number if self.steps else -1

    def step(self, number: int) -> Step:
        """A step by its number. Raises `IndexError` for one that is not kept."""
        at = number - self.first
        if not 0 <= at < len(self.steps):
            raise IndexError(f"there is no step {number}: {self.first} to {self.last} are kept")
        return self.steps[at]

    def span(self, site: int) -> Span | None:
        """Where a statement is in the source."""
        return self.spans[site] if 0 <= site < len(self.spans) else None

    def line(self, site: int) -> int:
        """The line of a statement in the source, 0 where it has none."""
        return line_in("", self.span(site))

    def at(self, step: int) -> State:
        """The memory after a step; `first - 1` is before all of them.

        Raises `IndexError` for a step that is not kept.
        """
        if step != self.first - 1:
            self.step(step)
        return State(self, step)

    def visible(self, step: int) -> dict[str, int]:
        """The buffers that there are after a step, of its block and tensors: numbers by name."""
        block = self.step(max(step, self.first)).block if self.steps else ()
        return {
            buffer.name: number
            for number, buffer in enumerate(self.buffers)
            if buffer.born <= step and buffer.block in ((), block)
        }

    def memory(self, step: int) -> tuple[list[Array], list[Array]]:
        """All buffers after a step, flat, and the numbers of the steps that wrote each element
        last (`UNDEFINED`, `GIVEN`: nobody, outside). They are not to be changed.
        """
        at, data, writers = self._held
        while at > step:
            for change in reversed(self.step(at).changes):
                change.places.put(data[change.buffer], change.old)
                change.places.put(writers[change.buffer], change.writers)
            at -= 1
        while at < step:
            at += 1
            for change in self.step(at).changes:
                change.places.put(data[change.buffer], change.new)
                change.places.put(writers[change.buffer], at if change.defines else UNDEFINED)
        self._held = at, data, writers
        return data, writers

    @cached_property
    def _held(self) -> tuple[int, list[Array], list[Array]]:
        """The memory after the step that was asked for last."""
        return (
            self.last,
            [each.copy() for each in self.final],
            [each.copy() for each in self.final_writers],
        )

    def writer(self, buffer: int, place: int, step: int) -> Writer | None:
        """Who wrote an element in that step, None where the step is not kept."""
        if not self.first <= step <= self.last:
            return None
        for change in reversed(self.step(step).changes):
            if change.buffer == buffer:
                where = np.flatnonzero(change.places.positions == place)
                if where.size:
                    threads = np.broadcast_to(change.threads, change.places.size)
                    thread = int(threads[where[-1]])
                    return Writer(step, self.span(change.site), thread)
        return None

    def to_dict(self) -> list[dict[str, Any]]:
        """A row per step as plain data: number, block, line, kind, text, threads, loops, and how
        many elements of which buffers it read and wrote.
        """
        return list(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        for step in self.steps:
            wrote: dict[str, int] = {}
            for change in step.changes:
                name = self.buffers[change.buffer].name
                if change.defines:
                    wrote[name] = wrote.get(name, 0) + change.places.size
            read = {self.buffers[number].name: places.size for number, places in step.reads}
            yield {
                "step": step.number,
                "block": list(step.block),
                "line": self.line(step.site),
                "kind": step.kind,
                "text": step.text,
                "threads": step.threads,
                "loops": dict(step.loops),
                "reads": read,
                "writes": wrote,
            }

    def __str__(self) -> str:
        blocks = ", ".join(f"({', '.join(map(str, block))})" for block in self.blocks)
        kept = f"{self.total} steps" if self.first == 0 else f"{len(self)} of {self.total} steps"
        lines = [f"{self.kernel}, block {blocks or '-'}, stage '{self.stage}': {kept}", *self.notes]
        lines += [f"step {each.step}: {each.kind}: {each.message}" for each in self.moments]
        return "\n".join(lines)
