"""Layout inference (paper, section 4.2): strict demands, then what follows from them, then choices.

1. Strict: what instructions dictate, once, in program order.
2. Common: what follows from known layouts, until nothing changes.
3. Free: fragments that are still open fall into components that share operators. In each, every
   operator in turn may choose first; what follows is worked out, and the cheapest outcome is kept:
   the least traffic to memory, with what cannot be in registers, then the fewest registers, then
   the first in the program.
4. Final: every operator is called with all layouts known; it raises an error for what it cannot
   lower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.decisions import Verdict
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.layout.contain import contains
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import SWIZZLES, Layout
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import (
    LayoutConflict,
    LayoutMap,
    LayoutUpdate,
    Level,
    Place,
    Proposal,
)
from tileworkbench.compiler.lower.threads.plan import plan_loop
from tileworkbench.compiler.lower.threads.views import seen_as

_REGISTERS = 240  # of 32 bits that a thread has for fragments
_SPILL_BYTES = 8  # to memory and back

Infer = Callable[[Stmt, LayoutMap, Level, ThreadContext], LayoutUpdate]
Cost = Callable[[Stmt, Fragment, LayoutMap, ThreadContext], int]


@dataclass(frozen=True, slots=True)
class Operator:
    """A tile operator or element-wise nest, the tiles it uses, and the threads that execute it."""

    stmt: Stmt
    buffers: tuple[Buffer, ...]
    context: ThreadContext


@dataclass(frozen=True, slots=True)
class Origin:
    """Who set a layout: the position of the operator (-1: the user or the compiler), and why."""

    operator: int
    reason: str
    level: Level


@dataclass(frozen=True, slots=True)
class Rejected:
    """A choice that did not work out: of which operator, and the conflict that it led to."""

    operator: int
    conflict: LayoutConflict
    met_by: int


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator (by position; -1: the user or the compiler) demanded, and what became of it;
    without a buffer it is about all that follows from a choice.
    """

    verdict: Verdict
    operator: int
    reason: str
    buffer: Buffer | None = None
    layout: Place | None = None


class Failure(Exception):
    """No layouts suit all operators: the conflict, the operator that met it, and what was tried."""

    def __init__(
        self, conflict: LayoutConflict, operator: int, rejected: tuple[Rejected, ...] = ()
    ) -> None:
        super().__init__(conflict.message)
        self.conflict = conflict
        self.operator = operator
        self.rejected = rejected


@dataclass(slots=True)
class Solver:
    """The state of one kernel's inference: `known` is the result, `origins` says where it is from,
    `loops` has the fragment of each operator's iterations.

    `views` are the tiles that share the memory of a tile. `calls` counts the calls of operators.
    `steps` are the demands, choices and rejections in order.
    """

    operators: Sequence[Operator]
    infer: Infer
    cost: Cost
    views: dict[Buffer, tuple[Buffer, ...]] = field(default_factory=dict)
    known: dict[Buffer, Place] = field(default_factory=dict)
    origins: dict[Buffer, Origin] = field(default_factory=dict)
    loops: dict[int, Fragment] = field(default_factory=dict)
    calls: int = 0
    steps: list[Step] = field(default_factory=list)
    _journal: list[tuple[Buffer, Place | None, Origin | None]] = field(default_factory=list)
    _users: dict[Buffer, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        users: dict[Buffer, list[int]] = {}
        for number, operator in enumerate(self.operators):
            for buffer in operator.buffers:
                users.setdefault(buffer, []).append(number)
        self._users = {buffer: tuple(operators) for buffer, operators in users.items()}

    def solve(self, given: Iterable[tuple[Proposal, bool]], tiles: Sequence[Buffer]) -> None:
        """Find the layouts of `tiles`; `given` are fixed before, each with whether it is strict.

        Raises `Failure`.
        """
        for proposal, strict in given:
            self._apply(proposal, -1, Level.STRICT if strict else Level.FREE)
        for number in range(len(self.operators)):
            self._ask_strictly(number)
        self._settle(range(len(self.operators)))
        fragments = [b for b in tiles if b.scope == "local.fragment"]
        for component in self._components(fragments):
            self._choose(component)
        self._settle(range(len(self.operators)), Level.FREE)
        for buffer in fragments:
            if buffer not in self.known:
                self._place_unused(buffer)
        self._finish()

    # Levels

    def _ask_strictly(self, number: int) -> None:
        for proposal in self._ask(number, Level.STRICT).proposals:
            self._apply(proposal, number, Level.STRICT)

    def _settle(self, start: Iterable[int], level: Level = Level.COMMON) -> None:
        """Call operators until nothing changes. A conflict is left for the end: another operator
        may still set the layout that this one lacks.
        """
        pending = deque(start)
        waiting = set(pending)
        while pending:
            number = pending.popleft()
            waiting.discard(number)
            try:
                update = self._ask(number, level)
            except Failure:
                continue
            for proposal in update.proposals:
                for buffer in self._apply(proposal, number, level):
                    for user in self._users.get(buffer, ()):
                        if user != number and user not in waiting:
                            pending.append(user)
                            waiting.add(user)

    def _ask(self, number: int, level: Level) -> LayoutUpdate:
        operator = self.operators[number]
        self.calls += 1
        try:
            return self.infer(operator.stmt, LayoutMap(self.known), level, operator.context)
        except LayoutConflict as conflict:
            raise Failure(conflict, number) from conflict

    def _components(self, fragments: Sequence[Buffer]) -> list[tuple[int, ...]]:
        """The operators that open fragments tie together, in program order."""
        parent = list(range(len(self.operators)))

        def root(number: int) -> int:
            while parent[number] != number:
                parent[number] = parent[parent[number]]
                number = parent[number]
            return number

        touched: set[int] = set()
        for buffer in fragments:
            if buffer in self.known:
                continue
            group = (buffer, *self.views.get(buffer, ()))
            users = [user for member in group for user in self._users.get(member, ())]
            touched.update(users)
            for user in users[1:]:
                first, second = sorted((root(users[0]), root(user)))
                parent[second] = first
        members: dict[int, list[int]] = {}
        for number in sorted(touched):
            members.setdefault(root(number), []).append(number)
        return [tuple(numbers) for numbers in members.values()]

    def _choose(self, component: tuple[int, ...]) -> None:
        """Let each operator choose first, and keep the cheapest outcome."""
        outcomes: list[dict[Buffer, Place]] = []
        rejected: list[Rejected] = []
        scores: dict[int, tuple[int, int]] = {}
        for number in component:
            try:
                update = self._ask(number, Level.FREE)
            except Failure as failure:
                rejected.append(Rejected(number, failure.conflict, failure.operator))
                continue
            if any(_foresees(outcome, update) for outcome in outcomes):
                continue  # it would choose what came out before
            mark, told = len(self._journal), len(self.steps)
            try:
                self._attempt(number, component)
                scores[number] = self._score(component)
                outcomes.append(dict(self.known))
            except Failure as failure:
                rejected.append(Rejected(number, failure.conflict, failure.operator))
            self._undo(mark)
            del self.steps[told:]
        if scores:
            best = min(scores, key=lambda number: (scores[number], number))
            self._tell_choice(best, scores, rejected)
            self._attempt(best, component)
        elif rejected:
            first = rejected[0]
            raise Failure(first.conflict, first.met_by, tuple(rejected))

    def _tell_choice(
        self, best: int, scores: Mapping[int, tuple[int, int]], rejected: Sequence[Rejected]
    ) -> None:
        """The choices that were tried, the best one last."""
        for attempt in rejected:
            conflict = attempt.conflict
            step = Step(
                Verdict.REJECTED,
                attempt.operator,
                conflict.message,
                conflict.buffer,
                conflict.wanted,
            )
            self.steps.append(step)
        bytes_, slots = scores[best]
        for number, (more_bytes, more_slots) in scores.items():
            if number != best:
                cost = f"{more_bytes} bytes of traffic and {more_slots} registers a thread"
                alike = (more_bytes, more_slots) == (bytes_, slots)
                than = "no less than what comes before it" if alike else f"not {bytes_} and {slots}"
                reason = f"choosing first it costs {cost}, {than}"
                self.steps.append(Step(Verdict.REJECTED, number, reason))
        if len(scores) + len(rejected) > 1:
            reason = (
                f"choosing first it costs {bytes_} bytes of traffic and {slots} registers a thread"
            )
            self.steps.append(Step(Verdict.CHOSEN, best, f"{reason}: nothing costs less"))

    def _attempt(self, root: int, component: tuple[int, ...]) -> None:
        """`root` chooses, then the others of its component, as far as anything is open."""
        for number in (root, *component):
            for proposal in self._ask(number, Level.FREE).proposals:
                changed = self._apply(proposal, number, Level.FREE)
                users = {user for buffer in changed for user in self._users.get(buffer, ())}
                self._settle(sorted(users - {number}))
        for number in component:
            self._ask(number, Level.FREE)

    def _score(self, component: tuple[int, ...]) -> tuple[int, int]:
        traffic = 0
        for number in component:
            loop = self._ask(number, Level.FREE).loop
            if loop is not None:
                operator = self.operators[number]
                layouts = LayoutMap(self.known)
                traffic += self.cost(operator.stmt, loop, layouts, operator.context)
        buffers = {buffer for number in component for buffer in self.operators[number].buffers}
        places = [(self.known.get(buffer), buffer.dtype.bits) for buffer in buffers]
        held = [(place.slots, bits) for place, bits in places if isinstance(place, Fragment)]
        words = sum(-(-slots * bits // 32) for slots, bits in held)
        threads = self.operators[component[0]].context.threads
        spilled = max(0, words - _REGISTERS) * threads * _SPILL_BYTES
        return traffic + spilled, sum(slots for slots, _ in held)

    def _place_unused(self, buffer: Buffer) -> None:
        shape = const_shape(buffer)
        if shape and self.operators:
            threads = self.operators[0].context.threads
            layout = plan_loop(shape, 1, threads, True)
            self._apply(Proposal(buffer, layout, "is not used by any operator"), -1, Level.FREE)

    def _finish(self) -> None:
        """Call each operator with all layouts known, and keep the loops."""
        for _ in range(len(self.operators) + 1):
            changed = False
            for number in range(len(self.operators)):
                update = self._ask(number, Level.FREE)
                if update.loop is not None:
                    self.loops[number] = update.loop
                for proposal in update.proposals:
                    changed = bool(self._apply(proposal, number, Level.FREE)) or changed
            if not changed:
                return

    # Setting layouts

    def _apply(self, proposal: Proposal, number: int, level: Level) -> list[Buffer]:
        """Take a proposal; the buffers that changed. Raises `Failure` for a conflict."""
        layout = proposal.layout
        if number >= 0 and isinstance(layout, Fragment) and layout.thread_range is None:
            context = self.operators[number].context
            if context.start:
                layout = layout.bind_thread_range(context.start, context.threads)
        changed = []
        origin = Origin(number, proposal.reason, level)
        known = self.known.get(proposal.buffer)
        try:
            chosen = self._merge(proposal.buffer, layout, proposal.soft)
            self._tell(proposal, number, level, known, chosen)
            if chosen is None:
                return []
            for buffer in (proposal.buffer, *self.views.get(proposal.buffer, ())):
                seen = seen_as(chosen, proposal.buffer, buffer)
                self._journal.append((buffer, self.known.get(buffer), self.origins.get(buffer)))
                self.known[buffer] = seen
                self.origins[buffer] = origin
                changed.append(buffer)
        except LayoutConflict as conflict:
            raise Failure(conflict, number) from conflict
        except LayoutError as error:
            torn = LayoutConflict(error.message, proposal.buffer, layout)
            raise Failure(torn, number) from error
        return changed

    def _tell(
        self,
        proposal: Proposal,
        number: int,
        level: Level,
        known: Place | None,
        chosen: Place | None,
    ) -> None:
        """Keep what became of a proposal. A proposal that only repeats what is known is kept once,
        where the instruction dictates it: operators are asked again and again.
        """
        if chosen is not None:
            verdict = Verdict.SET if known is None else Verdict.REFINED
        else:
            same = known == proposal.layout
            verdict = Verdict.AGREED if same else Verdict.YIELDED
            repeated = any(
                step.operator == number and step.buffer is proposal.buffer for step in self.steps
            )
            if repeated or (same and level is not Level.STRICT):
                return
        layout = proposal.layout if chosen is None else chosen
        self.steps.append(Step(verdict, number, proposal.reason, proposal.buffer, layout))

    def _merge(self, buffer: Buffer, layout: Place, soft: bool) -> Place | None:
        """The layout to take for `buffer`; None to keep what is known."""
        known = self.known.get(buffer)
        if known is None:
            return layout
        if known == layout:
            return None
        if isinstance(known, Layout) and isinstance(layout, Layout):
            given = self.origins[buffer].operator < 0
            finer = None if given else self._finer(buffer, known, layout)
            if finer is not None:
                return None if finer == known else finer
            if soft:
                return None
        elif isinstance(known, Fragment) and isinstance(layout, Fragment):
            is_fixed = self.origins[buffer].level is Level.STRICT
            if not is_fixed and contains(known, layout):
                return layout
        raise LayoutConflict(
            f"'{buffer.name}' already has another layout", buffer, layout, _THROUGH_SHARED
        )

    def _finer(self, buffer: Buffer, known: Layout, layout: Layout) -> Layout | None:
        """The narrower of two swizzles of one tile, None unless both are swizzles."""
        first, second = (swizzle_width(each, buffer.dtype.bits) for each in (known, layout))
        if first is None or second is None:
            return None
        return known if first <= second else layout

    def _undo(self, mark: int) -> None:
        while len(self._journal) > mark:
            buffer, place, origin = self._journal.pop()
            if place is None or origin is None:
                self.known.pop(buffer, None)
                self.origins.pop(buffer, None)
            else:
                self.known[buffer] = place
                self.origins[buffer] = origin


def _foresees(outcome: Mapping[Buffer, Place], update: LayoutUpdate) -> bool:
    """Whether an outcome has all layouts that `update` proposes."""
    return all(outcome.get(p.buffer) == p.layout for p in update.proposals)


_THROUGH_SHARED = "copy it to shared memory and from there to a second fragment"


def swizzle_width(layout: Layout, bits: int) -> int | None:
    """The width in bytes of a swizzled layout, None for any other."""
    for width in SWIZZLES:
        try:
            if layout == Layout.swizzled(layout.shape, bits, width):
                return width
        except LayoutError:
            continue
    return None
