"""A walk through the code of a block, with the values of its integers and addresses.

Loops count as often as their branches say, which compare numbers that move by the same step in each
iteration. The walk hands instructions to a core that executes them out of order (`pipeline.py`): a
few iterations of a loop, until the core is full of them, and as many again, which stand for all
that are left. Of loops around others those in the middle are walked.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from tileworkbench.bench.cpu_ports import AHEAD
from tileworkbench.bench.llvm.instructions import Function, Instruction
from tileworkbench.bench.llvm.loops import Loop, Shape, successors
from tileworkbench.bench.llvm.pipeline import Pipeline
from tileworkbench.bench.llvm.values import (
    Place,
    Value,
    Values,
    compare,
    evaluate,
    moved,
    step,
    value_of,
)
from tileworkbench.compiler.fast_dataclass import dataclass

_TENSOR = re.compile(r"%p\d+$")  # as the emitter names arguments of a launch
# As the emitter names what only unusual data take, and where a launch ends with an error.
_UNUSUAL = ("rare", "leave")
_RARE = 0.3  # code that is reached less often holds up nothing
# Instructions after which a core is full of a loop, and of an iteration that stands for all of them
# although it was the first; as many blocks follow each other as nobody counts.
FULL, _LONG, _BLOCKS = AHEAD + 10, 800, 1000
# Code of which one run takes less time does not wait for memory by itself: what it needs next comes
# while the code around it is executed.
_SHORT_NS = 100.0


@dataclass(slots=True)
class Work:
    """Nanoseconds of a piece of code, its instructions, and the bytes that it loads or stores of
    each tensor, by the name of the argument.
    """

    time_ns: float = 0.0
    instructions: float = 0.0
    bytes_: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Work, times: float) -> None:
        """So many times the work of other code."""
        self.time_ns += times * other.time_ns
        self.instructions += times * other.instructions
        for name, size in other.bytes_.items():
            self.bytes_[name] += times * size

    def scaled(self, by: float, slower: float = 1.0) -> Work:
        """So many times as much, each of them slower by a factor."""
        work = Work()
        work.add(self, by)
        work.time_ns *= slower
        return work


class Module(Protocol):
    """The functions that code may call."""

    @property
    def functions(self) -> Mapping[str, Function]:
        """By name."""

    def called(self, name: str, values: Mapping[str, Value]) -> list[Work]:
        """The pieces of a call of a function with such arguments."""

    def walk(self, name: str, values: Values, pipeline: Pipeline) -> Walk:
        """A walk through a function with such arguments, executed by a core."""


class Walk(ABC):
    """A walk through a function; `works` are the pieces of code that were walked so far. What a
    core executes of a block is told by a subclass.
    """

    def __init__(
        self, module: Module, function: Function, shape: Shape, values: Values, pipeline: Pipeline
    ) -> None:
        self.module, self.function, self.shape = module, function, shape
        self.values, self.pipeline = values, pipeline
        self.again = set[Loop]()  # that are past their first iteration
        # What counts in loops around the code: its first value, and how many it has.
        self.counts: dict[str, tuple[int, int]] = {}
        self.works: list[Work] = []
        self.work, self.cut_ns, self.cut_at = Work(), pipeline.retired_ns, pipeline.instructions

    @abstractmethod
    def execute(self, label: str, times: float, came: str | None, loop: Loop | None) -> None:
        """Hand a block of `loop`, into which the code came from the block `came`, to the core; it
        takes the ports `times` as long.
        """

    @abstractmethod
    def inline(self, call: Instruction, called: Walk) -> None:
        """Execute a function among the code around its call."""

    @abstractmethod
    def carry(self, values: Mapping[str, str]) -> None:
        """What changes in a loop is something else now: names, and of what it is."""

    def whole(self) -> list[Work]:
        """A block among many of its kind."""
        values = self.values

        def block(number: int) -> None:
            self.values = dict(values)
            self.once()

        self.repeat(_BLOCKS, block)
        return [each.scaled(1 / _BLOCKS) for each in self.works]

    def once(self) -> None:
        """From the beginning to the end."""
        self.pass_through(set(self.shape.order), self.function.entry, None)

    def repeat(self, trips: int, once: Callable[[int], None]) -> None:
        """Code that follows itself so many times: until the core is full of it, and as long again,
        which stands for all that are left.
        """
        start, before = self.pipeline.instructions, len(self.works)
        first, at, done, busy = 0, before, 0, self.pipeline.busy
        while done < trips:
            once(done)
            self.cut()
            done += 1
            executed = self.pipeline.instructions - start
            if not first and FULL <= executed < _LONG:
                first, at, start = done, len(self.works), self.pipeline.instructions
                busy = self.pipeline.busy
            elif executed >= FULL:
                break
        if done < trips:
            more = (trips - first) / (done - first)
            slower = self.slower(self.works[at:], busy)
            self.works[at:] = [each.scaled(more, slower) for each in self.works[at:]]
            self.pipeline.settle()
        if sum(each.time_ns for each in self.works[before:]) < trips * _SHORT_NS:
            together = Work()
            for each in self.works[before:]:
                together.add(each, 1.0)
            self.works[before:] = [together]

    def slower(self, works: Sequence[Work], busy: Sequence[float]) -> float:
        """How much longer works take than it seems, if a port that was busy for so many cycles
        before them was busy for longer: what leaves late leaves together.
        """
        ports = itertools.zip_longest(self.pipeline.busy, busy, fillvalue=0.0)
        least_ns = max((now - then for now, then in ports), default=0.0) * self.pipeline.cycle_ns
        seen_ns = sum(each.time_ns for each in works)
        return max(least_ns / seen_ns, 1.0) if seen_ns else 1.0

    def pass_through(self, labels: set[str], entry: str, loop: Loop | None) -> None:
        """Go through blocks once: a function, or an iteration of a loop."""
        inner = self.shape.inside(loop)
        covered = set().union(*(each.blocks for each in inner.values()))
        often, came = {entry: 1.0}, dict[str, str]()
        for label in sorted(labels & self.shape.order.keys(), key=self.shape.order.__getitem__):
            times = often.get(label, 0.0)
            if not times or (label in covered and label not in inner):
                continue
            if label in inner:
                self.cut()
                taken = self.loop(inner[label], times, came.get(label))
            else:
                taken = self.block(label, times, came.get(label), loop)
            for (start, end), share in taken.items():
                if end in labels and (loop is None or end != loop.header):
                    often[end] = often.get(end, 0.0) + times * share
                    came.setdefault(end, start)
        self.cut()

    def cut(self) -> None:
        """What comes now is another piece."""
        now_ns, at = self.pipeline.retired_ns, self.pipeline.instructions
        self.work.time_ns, self.work.instructions = now_ns - self.cut_ns, at - self.cut_at
        if self.work.time_ns or self.work.bytes_:
            self.works.append(self.work)
            self.work, self.cut_ns, self.cut_at = Work(), now_ns, at

    def block(
        self, label: str, times: float, came: str | None, loop: Loop | None
    ) -> dict[tuple[str, str], float]:
        """Add a block; returns how often each edge out of it is taken."""
        taken: dict[tuple[str, str], float] = {}
        for each in self.function.blocks[label]:
            if each.op == "phi":
                if loop is None or label != loop.header:
                    self.put(each.name, value_of(self.values, arrived(each, came)))
            elif each.op == "br":
                taken = self.branch(label, each)
            elif each.op == "switch":
                taken = {(label, to): 1 / len(each.labels) for to in each.labels}
            elif each.name:
                self.put(each.name, evaluate(each, self.values))
        self.execute(label, times, came, loop)
        return taken

    def call(self, each: Instruction, times: float) -> None:
        """A function of the module. A short one is executed among the code around it; for others
        that code waits.
        """
        params = self.module.functions[each.detail].params
        known = {
            param: value_of(self.values, arg) for param, arg in zip(params, each.args, strict=False)
        }
        values = {param: value for param, value in known.items() if value is not None}
        self.cut()
        called = self.module.called(each.detail, values)
        if times < 1.0 or sum(work.instructions for work in called) >= FULL:
            self.works += [work.scaled(times) for work in called]
            return
        walk = self.module.walk(each.detail, values, self.pipeline)
        self.inline(each, walk)
        self.works += walk.works
        self.cut_ns, self.cut_at = walk.cut_ns, walk.cut_at

    def hand_over(self, each: Instruction, place: Place | None, times: float) -> None:
        """Have the core execute an instruction, which accesses what is at a place: an access takes
        as often as long as one within a line of the cache as it has parts.
        """
        lines = 1.0
        if place is not None:
            lines = self.pipeline.costs.core.split(each.op, place.offset, each.kind.bytes_)
            if _TENSOR.match(place.base):
                self.work.bytes_[place.base] += times * each.kind.bytes_
        if times >= _RARE:
            self.pipeline.execute(each, place, times, lines)
        else:
            self.pipeline.skip(each, times, lines)

    def branch(self, label: str, each: Instruction) -> dict[tuple[str, str], float]:
        if len(each.labels) == 1:
            return {(label, each.labels[0]): 1.0}
        if (share := self.first_of_many(each.args[0])) is not None:
            return dict(zip(((label, to) for to in each.labels), (share, 1 - share), strict=True))
        taken = value_of(self.values, each.args[0])
        if isinstance(taken, int):
            return {(label, each.labels[0 if taken else 1]): 1.0}
        usual = [to for to in each.labels if not to.startswith(_UNUSUAL)]
        return {(label, to): 1 / len(usual) for to in usual}

    def first_of_many(self, condition: str) -> float | None:
        """The share of a loop's iterations in which a comparison holds, if what it compares is
        whether this is the first one.
        """
        test = self.shape.tests.get(condition)
        if test is None or test.detail not in ("eq", "ne"):
            return None
        for name, other in (test.args, test.args[::-1]):
            begin, trips = self.counts.get(name, (None, 1))
            if begin is not None and value_of(self.values, other) == begin:
                return 1 / trips if test.detail == "eq" else 1 - 1 / trips
        return None

    def put(self, name: str, value: Value | None) -> None:
        """A name has a value now, or none that is known."""
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def loop(self, loop: Loop, times: float, came: str | None) -> dict[tuple[str, str], float]:
        """Add all iterations of a loop; returns how often each edge out of it is taken."""
        phis = [each for each in self.function.blocks[loop.header] if each.op == "phi"]
        start = {each.name: self.incoming(each, loop, came) for each in phis}
        back = {each.name: self.incoming(each, loop, None) for each in phis}
        first = {name: value_of(self.values, arg) for name, arg in start.items()}
        self.carry(start)
        conditions = self.conditions(loop, first)
        second = {name: value_of(self.values, arg) for name, arg in back.items()}
        steps = {name: step(first[name], second[name]) for name in first}
        left, trips = _leaves(conditions, self.conditions(loop, second))

        middle = (trips - 1) // 2

        def iteration(number: int) -> None:
            for name, value in first.items():
                by = steps[name]
                far = None if by is None else by * ((middle + number) % trips)
                self.put(name, moved(value, far))
            self.pass_through(loop.blocks, loop.header, loop)
            self.carry(back)
            self.again.add(loop)

        before = len(self.works)
        around = self.counts
        own = {name: (v, trips) for name, v in first.items() if isinstance(v, int) and steps[name]}
        self.counts = around | own
        self.repeat(trips, iteration)
        self.counts = around
        self.again.discard(loop)
        self.works[before:] = [each.scaled(times) for each in self.works[before:]]
        return self.exits(loop, left)

    def incoming(self, phi: Instruction, loop: Loop, came: str | None) -> str:
        """The operand that a phi of a header has on the way in, or on the way back."""
        is_back = came is None
        for arg, label in zip(phi.args, phi.labels, strict=True):
            if (label in loop.latches) == is_back and (is_back or came in (label, None)):
                return arg
        pairs = zip(phi.args, phi.labels, strict=True)
        return next((arg for arg, label in pairs if label not in loop.latches), "")

    def conditions(self, loop: Loop, values: Mapping[str, Value | None]) -> dict[str, _Condition]:
        """What the branches out of a loop compare in an iteration that begins with such values."""
        for name, value in values.items():
            self.put(name, value)
        covered = {
            label
            for each in self.shape.loops.values()
            if each is not loop and each.header in loop.blocks
            for label in each.blocks
        }
        compared: dict[str, _Condition] = {}
        own = sorted(loop.blocks - covered, key=self.shape.order.__getitem__)
        for label in own:
            for each in self.function.blocks[label]:
                if each.op == "phi" and label != loop.header:
                    known = (value_of(self.values, arg) for arg in each.args)
                    self.put(each.name, next((v for v in known if v is not None), None))
                elif each.op != "phi" and each.name:
                    self.put(each.name, evaluate(each, self.values))
            to = successors(self.function, label)
            if len(to) == 2 and any(each not in loop.blocks for each in to):
                branch = self.function.blocks[label][-1]
                test = self.shape.tests.get(branch.args[0]) if branch.args else None
                if test is not None:
                    args = tuple(value_of(self.values, arg) for arg in test.args)
                    compared[label] = _Condition(test, args, to[0] in loop.blocks)
        return compared

    def exits(self, loop: Loop, left: str) -> dict[tuple[str, str], float]:
        """The edges out of a loop that is left at a block, if that is known."""
        edges = [
            (label, to)
            for label in sorted(loop.blocks, key=self.shape.order.__getitem__)
            for to in successors(self.function, label)
            if to not in loop.blocks and left in (label, "")
        ]
        return {edge: 1 / len(edges) for edge in edges}


def arrived(phi: Instruction, came: str | None) -> str:
    """The operand of a phi that is its value where the code came from a block."""
    return phi.args[phi.labels.index(came) if came in phi.labels else 0]


@dataclass(frozen=True, slots=True)
class _Condition:
    """A comparison with its operands in an iteration, and whether the loop goes on if it holds."""

    test: Instruction
    args: tuple[Value | None, ...]
    stays: bool

    def goes_on(self, first: int, second: int) -> bool:
        """With these operands."""
        kind = self.test.kind
        return compare(self.test.detail, first, second, kind.bits) == self.stays


def _leaves(first: Mapping[str, _Condition], second: Mapping[str, _Condition]) -> tuple[str, int]:
    """The block at which a loop is left, and after how many iterations: from what its branches
    compare in the first and in the second. Where nothing is known there is one.
    """
    trips_at = {
        label: trips
        for label, condition in first.items()
        if (trips := _trips(condition, second[label].args)) is not None
    }
    left = min(trips_at, key=trips_at.__getitem__, default="")
    return left, max(trips_at.get(left, 1), 1)


def _trips(condition: _Condition, later: tuple[Value | None, ...]) -> int | None:
    (a, b), (c, d) = condition.args, later
    if not isinstance(a, int) or not isinstance(b, int):
        return None
    if not condition.goes_on(a, b):
        return 1
    if not isinstance(c, int) or not isinstance(d, int):
        return None
    nearer = (c - a) - (d - b)
    if not nearer:
        return None
    # They meet after so many iterations; around there the comparison changes.
    meet = (b - a) // nearer
    for iteration in range(max(meet - 1, 1), meet + 3):
        if not condition.goes_on(a + iteration * (c - a), b + iteration * (d - b)):
            return iteration + 1
    return None
