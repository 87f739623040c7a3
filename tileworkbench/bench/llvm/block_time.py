"""The time of a block on a core: the code that LLVM makes of it, walked with the block's number.

Nothing is run. Integers and addresses follow from the number of the block; loops count as often as
their branches say, which compare numbers that move by the same step in each iteration. The walk
hands instructions to a core that executes them out of order (`pipeline.py`): a few iterations of a
loop, until the core is full of them, and as many again, which stand for all that are left. Of loops
around others those in the middle are walked.

What is left out: decoding, mispredicted branches. Data are taken to be in the innermost cache;
`time_model` adds what lies behind it.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial

from tileworkbench.bench.cpu_ports import AHEAD
from tileworkbench.bench.llvm.assembly import UNKNOWN, LoopCode, lines_of, machine_code
from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.costs import Costs
from tileworkbench.bench.llvm.instructions import (
    Instruction,
    parse_functions,
    touches_memory,
)
from tileworkbench.bench.llvm.known import Known
from tileworkbench.bench.llvm.loops import Loop, Shape, constant_in, shape_of, successors
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
from tileworkbench.bench.memory_rates import LINE_BYTES
from tileworkbench.compiler.fast_dataclass import dataclass

_TENSOR = re.compile(r"%p\d+$")  # as the emitter names arguments of a launch
_RARE = 0.3  # code that is reached less often holds up nothing
_CALLED = 4.0  # instructions of a call
# Instructions after which a core is full of a loop, and of an iteration that stands for all of them
# although it was the first; as many blocks follow each other as nobody counts.
_FULL, _LONG, _BLOCKS = AHEAD + 10, 800, 1000
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


class BlockTimes:
    """The times of blocks of a module. `text` is LLVM IR as `optimized_text` gives it, `assembly`
    what LLVM makes of it, if that is known.
    """

    def __init__(self, text: str, core: Core, assembly: str = "") -> None:
        self.functions, self.core = parse_functions(text), core
        self.lines = lines_of(assembly)
        self._shapes: dict[str, Shape] = {}
        self._costs: dict[str, Costs] = {}
        self._called: dict[tuple[object, ...], list[Work]] = {}
        self._constant: dict[Loop, frozenset[str]] = {}
        self._code: dict[str, Mapping[Loop | None, LoopCode]] = {}

    def block_work(self, name: str, numbers: Iterable[int]) -> list[Work]:
        """The pieces of a block of the function `name`, the mean of blocks of these numbers. Where
        the first two take the same, all do.
        """
        blocks: list[list[Work]] = []
        for number in numbers:
            blocks.append(self._of_block(name, number))
            if len(blocks) == 2 and blocks[0] == blocks[1]:
                break
        return [each.scaled(1 / len(blocks)) for block in blocks for each in block]

    def _of_block(self, name: str, number: int) -> list[Work]:
        function = self.functions[name]
        values: Values = {param: Place(param, 0) for param in function.params if param != "%flag"}
        values["%block"] = number
        return self.works(name, values)

    def works(self, name: str, values: Mapping[str, Value]) -> list[Work]:
        """The pieces of a call of a function with such arguments."""
        return _Walk(self, name, dict(values), Pipeline(self.costs(name))).whole()

    def shape(self, name: str) -> Shape:
        """The loops of a function."""
        if name not in self._shapes:
            self._shapes[name] = shape_of(self.functions[name])
        return self._shapes[name]

    def costs(self, name: str) -> Costs:
        """The costs of a function's instructions."""
        if name not in self._costs:
            self._costs[name] = Costs(self.core, self.functions[name])
        return self._costs[name]

    def constant(self, name: str, loop: Loop) -> frozenset[str]:
        """What is the same in each iteration of a loop of the function `name`."""
        if loop not in self._constant:
            self._constant[loop] = constant_in(self.functions[name], self.shape(name), loop)
        return self._constant[loop]

    def code(self, name: str) -> Mapping[Loop | None, LoopCode]:
        """What the loops of a function become in machine code."""
        if name not in self._code:
            lines = self.lines.get(name, ())
            about = self.functions[name], self.shape(name), self.costs(name)
            self._code[name] = machine_code(lines, *about, partial(self.constant, name))
        return self._code[name]

    def called(self, name: str, values: Mapping[str, Value]) -> list[Work]:
        """The pieces of a call, which are the same for the same numbers and places in a line."""
        known = {
            param: Place(arg.base, arg.offset % LINE_BYTES) if isinstance(arg, Place) else arg
            for param, arg in values.items()
        }
        key = (name, *sorted(known.items(), key=lambda item: item[0]))
        if key not in self._called:
            self._called[key] = self.works(name, known)
        return self._called[key]


class _Walk:
    """A walk through a function; `works` are the pieces of code that were walked so far, `result`
    what it has returned.
    """

    def __init__(self, times: BlockTimes, name: str, values: Values, pipeline: Pipeline) -> None:
        self.times, self.function = times, times.functions[name]
        self.shape, self.costs = times.shape(name), times.costs(name)
        self.values, self.pipeline, self.result = values, pipeline, ""
        self.works: list[Work] = []
        self.work, self.cut_ns, self.cut_at = Work(), pipeline.retired_ns, pipeline.instructions
        self.known = Known(self.costs.defined, self.costs.users)
        self.again = set[Loop]()  # that are past their first iteration
        self.left = defaultdict[Loop | None, float](float)  # instructions that are still to be seen

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
            if not first and _FULL <= executed < _LONG:
                first, at, start = done, len(self.works), self.pipeline.instructions
                busy = self.pipeline.busy
            elif executed >= _FULL:
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
                before = self.pipeline.instructions
                taken = self.block(label, times, came.get(label), loop)
                self.fill_up(label, times, loop, self.pipeline.instructions - before)
            for (start, end), share in taken.items():
                if end in labels and (loop is None or end != loop.header):
                    often[end] = often.get(end, 0.0) + times * share
                    came.setdefault(end, start)
        self.cut()

    def fill_up(self, label: str, times: float, loop: Loop | None, seen: float) -> None:
        """A block of which so many instructions were seen has as many as its machine code has."""
        code = self.times.code(self.function.name).get(loop, UNKNOWN)
        all_ = times * code.instructions * len(self.function.blocks[label])
        left = self.left[loop] = self.left[loop] + all_ - seen
        if left > 0:
            self.pipeline.issue(left)
            self.left[loop] = 0.0

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
        if not self.falls_into(label):
            self.known.clear()
        constant = self.constant(loop)
        code = self.times.code(self.function.name).get(loop, UNKNOWN)
        for each in self.function.blocks[label]:
            self.pipeline.add(code.more, times)
            if each.name in constant:
                continue
            if each.op == "phi":
                if loop is None or label != loop.header:
                    arg = each.args[each.labels.index(came) if came in each.labels else 0]
                    self.put(each.name, value_of(self.values, arg))
                    self.pipeline.pass_on([(each.name, arg)])
            elif each.op == "br":
                self.pipeline.issue(times)
                return self.branch(label, each)
            elif each.op == "switch":
                return {(label, to): 1 / len(each.labels) for to in each.labels}
            elif each.op == "ret":
                self.result = each.args[0] if each.args else ""
            else:
                self.instruction(each, times)
        return {}

    def constant(self, loop: Loop | None) -> frozenset[str]:
        """What an iteration before this one has left."""
        while loop is not None and loop not in self.again:
            loop = loop.parent
        name = self.function.name
        return frozenset() if loop is None else self.times.constant(name, loop)

    def falls_into(self, label: str) -> bool:
        """Whether a block goes on where the only one before it ends."""
        before = self.shape.before.get(label, ())
        return len(before) == 1 and len(successors(self.function, before[0])) == 1

    def branch(self, label: str, each: Instruction) -> dict[tuple[str, str], float]:
        if len(each.labels) == 1:
            return {(label, each.labels[0]): 1.0}
        taken = value_of(self.values, each.args[0])
        if isinstance(taken, int):
            return {(label, each.labels[0 if taken else 1]): 1.0}
        return {(label, to): 0.5 for to in each.labels}

    def put(self, name: str, value: Value | None) -> None:
        """A name has a value now, or none that is known."""
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def instruction(self, each: Instruction, times: float) -> None:
        if each.name:
            self.put(each.name, evaluate(each, self.values))
        if touches_memory(each):
            self.known.clear()
        if each.op == "call" and each.detail in self.times.functions:
            self.call(each, times)
            return
        place = None
        if each.op in ("load", "store"):
            place = value_of(self.values, each.args[-1])
        if each.op in ("load", "store", "insertelement"):
            if (same := self.known.note(each, place)) is not None:
                self.pipeline.pass_on([(each.name, same)])
                return
            if isinstance(place, Place) and _TENSOR.match(place.base):
                self.work.bytes_[place.base] += times * each.kind.bytes_
        elif each.name and (same := self.known.again(each)) is not None:
            self.pipeline.pass_on([(each.name, same)])
            return
        lines = self.lines(each, place)
        if times >= _RARE:
            self.pipeline.execute(each, place, times, lines)
        else:
            self.pipeline.skip(each, times, lines)

    def lines(self, each: Instruction, place: Value | None) -> float:
        """How often as long an access takes as one within a line of the cache."""
        if not isinstance(place, Place):
            return 1.0
        return self.costs.core.split(each.op, place.offset, each.kind.bytes_)

    def call(self, each: Instruction, times: float) -> None:
        """A function of the module. A short one is executed among the code around it; for others
        that code waits.
        """
        params = self.times.functions[each.detail].params
        stands_for = dict(zip(params, each.args, strict=False))
        known = {param: value_of(self.values, arg) for param, arg in stands_for.items()}
        values = {param: value for param, value in known.items() if value is not None}
        self.pipeline.issue(times * _CALLED)
        self.cut()
        called = self.times.called(each.detail, values)
        if times < 1.0 or sum(work.instructions for work in called) >= _FULL:
            self.works += [work.scaled(times) for work in called]
            return
        walk = _Walk(self.times, each.detail, values, self.pipeline)

        def body() -> str:
            walk.once()
            return walk.result

        self.pipeline.call(each.name, self.times.costs(each.detail), stands_for, body)
        self.works += walk.works
        self.cut_ns, self.cut_at = walk.cut_ns, walk.cut_at

    def loop(self, loop: Loop, times: float, came: str | None) -> dict[tuple[str, str], float]:
        """Add all iterations of a loop; returns how often each edge out of it is taken."""
        phis = [each for each in self.function.blocks[loop.header] if each.op == "phi"]
        start = {each.name: self.incoming(each, loop, came) for each in phis}
        back = {each.name: self.incoming(each, loop, None) for each in phis}
        first = {name: value_of(self.values, arg) for name, arg in start.items()}
        self.pipeline.pass_on(start.items())
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
            self.pipeline.pass_on(back.items())
            self.again.add(loop)

        before = len(self.works)
        self.repeat(trips, iteration)
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
                test = self.costs.defined.get(branch.args[0]) if branch.args else None
                if test is not None and test.op == "icmp":
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
