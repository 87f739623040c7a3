"""The time of a block on a core: the code that LLVM makes of it, walked with the block's number.

Nothing is run. Integers and addresses follow from the number of the block; a loop is walked in its
middle, and counts as often as its branches say, which compare numbers that move by the same step in
each iteration. A piece of code without loops takes as long as the port with most to do, or as its
iterations wait for each other: three are followed, and what the third takes longer than the second
is what each waits. Pieces that are short enough for a core to look past them go on side by side
(`cpu_ports.overlap`).

What is left out: registers that are spilled, decoding, mispredicted branches. Data are taken to be
in the innermost cache; `time_model` adds what lies behind it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from tileworkbench.bench.cpu_ports import AHEAD, Piece, overlap
from tileworkbench.bench.llvm.costs import ACCESSES, ISSUE, ISSUED, LOADS, STORES, WAIT, Core, Costs
from tileworkbench.bench.llvm.flow import Flow, longest_step
from tileworkbench.bench.llvm.instructions import (
    Function,
    Instruction,
    Kind,
    parse_functions,
    touches_memory,
)
from tileworkbench.bench.llvm.loops import Loop, Shape, shape_of, successors
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
_FOLLOWED = 3  # iterations
_RARE = 0.3  # code that is reached less often holds up nothing
_CALLED = 4.0  # instructions of a call


@dataclass(slots=True)
class Usage:
    """What a piece of code takes of a core: nanoseconds of its ports; and the bytes that it loads
    or stores of each tensor, by the name of the argument.
    """

    busy: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    instructions: float = 0.0
    bytes_: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def time_ns(self) -> float:
        """Of the port that takes longest."""
        return max(self.busy.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Work:
    """Nanoseconds of a piece, and bytes that it loads or stores of tensors."""

    time_ns: float
    bytes_: Mapping[str, float]

    def scaled(self, by: float) -> Work:
        """So many times as much."""
        return Work(self.time_ns * by, {name: size * by for name, size in self.bytes_.items()})


def _work(piece: Piece[Usage]) -> Work:
    times, usage = piece.times, piece.ports
    moved = {name: times * size for name, size in usage.bytes_.items()}
    return Work(piece.scale * times * usage.time_ns, moved)


class BlockTimes:
    """The times of blocks of a module. `text` is LLVM IR as `optimized_text` gives it."""

    def __init__(self, text: str, core: Core) -> None:
        self.functions, self.core = parse_functions(text), core
        self._shapes: dict[str, Shape] = {}
        self._costs: dict[str, Costs] = {}
        self._called: dict[tuple[object, ...], list[Piece[Usage]]] = {}

    def block_work(self, name: str, numbers: Iterable[int]) -> list[Work]:
        """The pieces of a block of the function `name`, the mean of blocks of these numbers. Where
        the first two take the same, all do.
        """
        blocks: list[list[Work]] = []
        for number in numbers:
            blocks.append([_work(piece) for piece in self._of_block(name, number)])
            if len(blocks) == 2 and blocks[0] == blocks[1]:
                break
        return [each.scaled(1 / len(blocks)) for block in blocks for each in block]

    def _of_block(self, name: str, number: int) -> list[Piece[Usage]]:
        function = self.functions[name]
        values: Values = {param: Place(param, 0) for param in function.params if param != "%flag"}
        values["%block"] = number
        return self.pieces(name, values)

    def pieces(self, name: str, values: Mapping[str, Value]) -> list[Piece[Usage]]:
        """The pieces of a call of a function with such arguments."""
        function = self.functions[name]
        if name not in self._shapes:
            self._shapes[name] = shape_of(function)
            self._costs[name] = Costs(self.core, function)
        walk = _Walk(self, function, self._shapes[name], self._costs[name], dict(values))
        return walk.whole()

    def called(self, name: str, args: Iterable[Value | None]) -> list[Piece[Usage]]:
        """The pieces of a call, which are the same for the same numbers and places in a line."""
        params = self.functions[name].params
        known = {
            param: Place(arg.base, arg.offset % LINE_BYTES) if isinstance(arg, Place) else arg
            for param, arg in zip(params, args, strict=False)
            if arg is not None
        }
        key = (name, *sorted(known.items(), key=lambda item: item[0]))
        if key not in self._called:
            self._called[key] = self.pieces(name, known)
        return self._called[key]


_Access = tuple[Value | str, Kind]
"""A place, or the name of an address, and what is accessed there."""


def _are_apart(first: _Access, second: _Access) -> bool:
    """Whether two accesses have no byte in common, as far as is known: what arguments point to is
    never the same.
    """
    (one, kind), (other, other_kind) = first, second
    if not isinstance(one, Place) or not isinstance(other, Place):
        return False
    if one.base != other.base:
        return True
    ends, other_ends = one.offset + kind.bytes_, other.offset + other_kind.bytes_
    return ends <= other.offset or other_ends <= one.offset


class _Walk:
    """A walk through a function; `pieces` are what was found so far."""

    def __init__(
        self, times: BlockTimes, function: Function, shape: Shape, costs: Costs, values: Values
    ) -> None:
        self.times, self.function, self.shape = times, function, shape
        self.costs, self.values, self.flow = costs, values, Flow(costs)
        self.pieces: list[Piece[Usage]] = []
        self.usage = Usage()
        # The names of what was stored and loaded: in code without branches LLVM loads nothing again
        # that no store may have changed.
        self.known: dict[_Access, str] = {}

    def whole(self) -> list[Piece[Usage]]:
        self.pass_through(set(self.shape.order), self.function.entry, None)
        overlap(self.pieces, 1.0)
        return self.pieces

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
        if self.usage.time_ns:
            self.pieces.append(Piece(self.usage, 1.0))
        self.usage = Usage()

    def block(
        self, label: str, times: float, came: str | None, loop: Loop | None
    ) -> dict[tuple[str, str], float]:
        """Add a block; returns how often each edge out of it is taken."""
        if not self.falls_into(label):
            self.known.clear()
        for each in self.function.blocks[label]:
            if each.op == "phi":
                if loop is None or label != loop.header:
                    arg = each.args[each.labels.index(came) if came in each.labels else 0]
                    self.put(each.name, value_of(self.values, arg))
                    self.flow.pass_on(each.name, arg)
            elif each.op == "br":
                self.issue(times)
                return self.branch(label, each)
            elif each.op == "switch":
                return {(label, to): 1 / len(each.labels) for to in each.labels}
            else:
                self.instruction(each, times)
        return {}

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

    def issue(self, count: float) -> None:
        self.usage.instructions += count
        self.usage.busy[ISSUE] += count * self.costs.core.cycles(1 / ISSUED)

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
            if self.is_there(each, place):
                return
            if isinstance(place, Place) and _TENSOR.match(place.base):
                self.usage.bytes_[place.base] += times * each.kind.bytes_
        cost = self.costs.of(each)
        lines = self.lines(each, place)
        for port, time_ns in cost.busy:
            self.usage.busy[port] += times * time_ns * (lines if port in _MEMORY else 1.0)
        self.issue(times * cost.instructions)
        if times >= _RARE:
            self.flow.follow(each, cost, place)

    def is_there(self, each: Instruction, place: Value | None) -> bool:
        """Whether a register has what a load asks for; of a store, never."""
        key = place or each.args[-1], each.kind
        if each.op == "store":
            self.known = {k: name for k, name in self.known.items() if _are_apart(k, key)}
            self.known[key] = each.args[0]
            return False
        first = self.known.setdefault(key, each.name)
        if first == each.name or each.detail == "atomic":
            return False
        self.flow.pass_on(each.name, first)
        return True

    def lines(self, each: Instruction, place: Value | None) -> float:
        """Two where each register is part of two lines of the cache, else one."""
        size = min(each.kind.bytes_, self.flow.register_bytes)
        if not isinstance(place, Place) or size <= LINE_BYTES // 4:
            return 1.0
        return 2.0 if place.offset % LINE_BYTES + size > LINE_BYTES else 1.0

    def call(self, each: Instruction, times: float) -> None:
        """A function of the module, for which code around it waits."""
        args = [value_of(self.values, arg) for arg in each.args]
        self.issue(times * _CALLED)
        self.pieces += [
            Piece(piece.ports, piece.times * times, piece.scale)
            for piece in self.times.called(each.detail, args)
        ]

    def loop(self, loop: Loop, times: float, came: str | None) -> dict[tuple[str, str], float]:
        """Add all iterations of a loop; returns how often each edge out of it is taken."""
        phis = [each for each in self.function.blocks[loop.header] if each.op == "phi"]
        start = {each.name: self.incoming(each, loop, came) for each in phis}
        back = {each.name: self.incoming(each, loop, None) for each in phis}
        first = {name: value_of(self.values, arg) for name, arg in start.items()}
        for name, arg in start.items():
            self.flow.pass_on(name, arg)
        conditions = self.conditions(loop, first)
        second = {name: value_of(self.values, arg) for name, arg in back.items()}
        steps = {name: step(first[name], second[name]) for name in first}
        left, trips = _leaves(conditions, self.conditions(loop, second))

        def enter(iteration: int) -> None:
            for name, value in first.items():
                by = steps[name]
                self.put(name, moved(value, None if by is None else by * iteration))

        before = len(self.pieces)
        if self.shape.inside(loop):
            enter((trips - 1) // 2)
            self.pass_through(loop.blocks, loop.header, loop)
        else:
            self.innermost(loop, trips, back, enter)
        for piece in self.pieces[before:]:
            piece.times *= trips * times
        overlap(self.pieces[before:], trips * times)
        return self.exits(loop, left)

    def incoming(self, phi: Instruction, loop: Loop, came: str | None) -> str:
        """The operand that a phi of a header has on the way in, or on the way back."""
        is_back = came is None
        for arg, label in zip(phi.args, phi.labels, strict=True):
            if (label in loop.latches) == is_back and (is_back or came in (label, None)):
                return arg
        pairs = zip(phi.args, phi.labels, strict=True)
        return next((arg for arg, label in pairs if label not in loop.latches), "")

    def innermost(self, loop: Loop, trips: int, back: Mapping[str, str], enter: _Enter) -> None:
        """The first iterations of a loop without others; the last one stands for all."""
        before, waits = len(self.pieces), 0.0
        # What was stored before the loop is there, if at different times.
        self.flow.stored.clear()
        times = [self.flow.times(name) for name in back]
        stored_ns = 0.0
        followed = min(trips, _FOLLOWED)
        for iteration in range(followed):
            del self.pieces[before:]
            enter(iteration)
            self.flow.last_store_ns = 0.0
            self.pass_through(loop.blocks, loop.header, loop)
            now = [self.flow.ready.get(arg, (0.0,)) for arg in back.values()]
            if iteration:
                waits = longest_step(times, now)
                if stored_ns:
                    waits = max(waits, self.flow.last_store_ns - stored_ns)
            times, stored_ns = now, self.flow.last_store_ns
            for name, arg in back.items():
                self.flow.pass_on(name, arg)
        if self.pieces[before:]:
            usage = self.pieces[-1].ports
            count = trips * sum(piece.ports.instructions for piece in self.pieces[before:])
            alone = count / (count + AHEAD) if count else 1.0
            usage.busy[WAIT] = max(usage.busy[WAIT], alone * waits)
        rest = (trips - followed) * waits
        for label in loop.blocks:
            for each in self.function.blocks[label]:
                if each.name in self.flow.ready:
                    ready = self.flow.ready[each.name]
                    self.flow.ready[each.name] = tuple(time_ns + rest for time_ns in ready)

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


_MEMORY = frozenset((LOADS, STORES, ACCESSES))
_Enter = Callable[[int], None]


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
