"""The iterations of one thread as expressions: loops over steps, guards, indices and registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import prod
from typing import Any, Protocol

from tileworkbench.compiler.analysis.access import conjuncts
from tileworkbench.compiler.analysis.traces import Trace, UntraceableError
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, conjunction, int_const, sub
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.stmt import Atomic, Store
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.layout.digits import Digit, DigitSum, NotDigitsError
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.maps import DigitMap, unflatten
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.formulas import map_exprs, sum_expr
from tileworkbench.compiler.lower.threads.nests import FragmentAccess, Nest
from tileworkbench.compiler.lower.threads.partition import Partition, as_sums

_DIGITS = ("add", "sub", "mul", "floordiv", "floormod", "xor", "and", "shl", "shr")


class ThreadIterations(Protocol):
    """Which iterations of a nest a thread executes."""

    def substitute(self, root: Any, lane: Expr) -> Any:
        """`root` with the loop variables replaced, for one lane of the group."""

    def replica(self) -> Expr | None:
        """The condition that this is the first of several copies of an iteration."""

    def slot(self, buffer: Buffer, indices: tuple[Expr, ...], lane: Expr) -> Expr:
        """The register of a fragment's element."""

    def apart(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """How many registers the lanes of a group are apart, 0 where no number says it."""


@dataclass(frozen=True, slots=True)
class Iterations:
    """The iterations of one thread: `sums` give ``(*index, replica)`` over the box `box` of its
    steps and the thread.

    `values` are the expressions of the steps, `loops` their variables with the extents; the step at
    `lane_dim` (None where there is none) is the lane of a group, which is given for each use.
    """

    nest: Nest
    shared: Partition
    box: tuple[int, ...]
    sums: tuple[DigitSum, ...]
    values: tuple[Expr, ...]
    lane_dim: int | None
    lanes: int
    loops: tuple[tuple[Var, int], ...]
    context: ThreadContext
    accesses: Mapping[tuple[Buffer, tuple[Expr, ...]], FragmentAccess]
    _slots: dict[object, tuple[tuple[int, ...], DigitSum] | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        nest: Nest,
        shared: Partition,
        lane_step: int | None,
        lanes: int,
        context: ThreadContext,
    ) -> Iterations:
        """The steps of `shared` as loops; step number `lane_step` in groups of `lanes`."""
        values: list[Expr] = []
        loops: list[tuple[Var, int]] = []
        extents: list[int] = []
        lane_dim: int | None = None
        for number, step in enumerate(shared.steps):
            trips = step.extent // lanes if number == lane_step else step.extent
            name = nest.op.vars[step.dim].name if step.dim is not None else "step"
            extents.append(trips)
            values.append(_loop(name, trips, loops, context))
            if number == lane_step:
                lane_dim = len(values)
                values.append(int_const(0))
                extents.append(lanes)
        box = (*extents, shared.box[-1])
        accesses = {(access.buffer, access.indices): access for access in nest.fragments}
        parts = (nest, shared, box, _split(shared, box, lane_dim), tuple(values), lane_dim, lanes)
        return cls(*parts, tuple(loops), context, accesses).merged()

    def merged(self) -> Iterations:
        """One loop over all registers, where the body uses the iteration only to name registers."""
        total = prod(self.box[:-1])
        names = {var for var, _ in self.loops}
        if len(names) < 2 or self.shared.bounded or _is_used_outside_fragments(self.nest):
            return self
        loops: list[tuple[Var, int]] = []
        value = _loop(self.nest.op.vars[0].name, total, loops, self.context)
        box = (total, self.box[-1])
        flat, thread = Index.variables(box)
        steps = [*unflatten(self.box[:-1], flat), thread]
        try:
            sums = as_sums(box, DigitMap(self.box, self.sums).evaluate(steps))
        except NotDigitsError:
            return self
        made = replace(self, box=box, sums=sums, values=(value,), loops=tuple(loops), _slots={})
        return made if made._terms() <= self._terms() else self

    def _terms(self) -> int:
        """How much arithmetic the registers of all accesses take."""
        places = [self.slot_digits(access) for access in self.accesses.values()]
        return sum(len(digits[1].terms) if digits else 100 for digits in places)

    @property
    def thread(self) -> Expr:
        """The thread's number, counted from the first one that has iterations."""
        base = self.shared.base
        return sub(self.context.thread, int_const(base)) if base else self.context.thread

    def point(self, lane: Expr) -> list[Expr]:
        """The values of the steps and the thread, for one lane of the group."""
        values = [lane if at == self.lane_dim else value for at, value in enumerate(self.values)]
        return [*values, self.thread]

    def index(self, lane: Expr) -> dict[Var, Expr]:
        """The loop variables, for one lane of the group."""
        point = self.point(lane)
        return {
            var: sum_expr(self.box, total, point)
            for var, total in zip(self.nest.op.vars, self.sums, strict=False)
        }

    def substitute(self, root: Any, lane: Expr) -> Any:
        """`root` with the loop variables replaced, digits of them simplified."""
        index = self.index(lane)
        trace = Trace(
            {
                var: Index(self.box, total)
                for var, total in zip(self.nest.op.vars, self.sums, strict=False)
            }
        )
        point = self.point(lane)
        memo: dict[Expr, Expr] = {}

        def visit(node: Any) -> Any:
            if not isinstance(node, Expr):
                return node.map_children(visit)
            if node not in memo:
                memo[node] = simplified(node)
            return memo[node]

        def simplified(node: Expr) -> Expr:
            if isinstance(node, Var):
                return index.get(node, node)
            if isinstance(node, Binary) and node.op in _DIGITS and node.dtype == INT32:
                try:
                    traced = trace(node)
                    if isinstance(traced, Index):
                        return sum_expr(self.box, traced.sum, point)
                except (UntraceableError, NotDigitsError, TypeError):
                    pass
            return node.map_children(visit)

        return visit(root)

    def replica(self) -> Expr | None:
        """The condition that this is the first of several copies of an iteration; None where there
        are no copies.
        """
        total = self.sums[-1]
        if not total.terms:
            return None
        replica = sum_expr(self.box, total, self.point(int_const(0)))
        return binary("eq", replica, int_const(0))

    def thread_guard(self) -> Expr | None:
        """The condition that the thread has iterations at all."""
        conditions: list[Expr] = []
        if self.shared.base:
            conditions.append(binary("ge", self.context.thread, int_const(self.shared.base)))
        for guard in self.shared.guards:
            digit = binary("floordiv", self.thread, int_const(guard.divisor))
            if guard.capacity:
                digit = binary("floormod", digit, int_const(guard.capacity))
            if guard.extent == 1:
                conditions.append(binary("eq", digit, int_const(0)))
            else:
                conditions.append(binary("lt", digit, int_const(guard.extent)))
        return conjunction([cond for cond in conditions if not self.context.ranges.proves(cond)])

    def bound_guard(self) -> Expr | None:
        """The condition that the iteration is inside the nest."""
        shape = self.nest.shape or ()
        index = list(self.index(int_const(0)).values())
        return conjunction(
            [
                binary("lt", index[d], int_const(shape[d]))
                for d in self.shared.bounded
                if d < len(shape)
            ]
        )

    def slot_digits(self, access: FragmentAccess) -> tuple[tuple[int, ...], DigitSum] | None:
        """The slot of an access as digits of the steps, the thread and other variables, with the
        extents of these; None where digits do not express it.
        """
        key = (access.buffer, access.indices)
        if key not in self._slots:
            self._slots[key] = self._find_slot(access)
        return self._slots[key]

    def _find_slot(self, access: FragmentAccess) -> tuple[tuple[int, ...], DigitSum] | None:
        fragment = access.buffer.layout
        if access.map is None or not isinstance(fragment, Fragment):
            return None
        others = access.map.shape[access.rank :]
        box = (*self.box, *others)
        inputs = [Index(box, total) for total in self.sums[:-1]]
        inputs += Index.variables(box)[len(self.box) :]
        try:
            slot = fragment.evaluate(*access.map.evaluate(*inputs), 0)[1]
        except (NotDigitsError, LayoutError, ValueError):
            return None
        return (box, slot.sum) if isinstance(slot, Index) else (box, DigitSum(slot, (), slot, slot))

    def slot(self, buffer: Buffer, indices: tuple[Expr, ...], lane: Expr) -> Expr:
        """The register of a fragment's element; `indices` are in terms of the loop variables."""
        access = self.accesses.get((buffer, indices))
        place = None if access is None else self.slot_digits(access)
        if access is None or place is None:
            moved = tuple(self.substitute(index, lane) for index in indices)
            return register_of(buffer, moved)
        box, total = place
        point = self.point(lane)
        for other in access.others:
            low = self.context.ranges.bounds(other).low or 0
            point.append(sub(other, int_const(low)) if low else other)
        return sum_expr(box, total, point)

    def apart(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """How many registers the lanes of a group are apart, 0 where no number says it. Neighbours
        begin at a multiple of their number.
        """
        access = self.accesses.get((buffer, indices))
        place = None if access is None else self.slot_digits(access)
        if place is None or self.lane_dim is None:
            return 0
        slots, whole = place[1], (Digit(self.lane_dim, 1, self.lanes),)
        steps = [term.stride for term in slots.terms if term.digits == whole]
        rest = [term for term in slots.terms if term.digits != whole]
        if len(steps) != 1 or any(d.dim == self.lane_dim for term in rest for d in term.digits):
            return 0
        starts = (slots.constant, *(term.stride for term in rest))
        aligned = not any(start % self.lanes for start in starts)
        return steps[0] if steps[0] > 1 or (steps[0] == 1 and aligned) else 0


@dataclass(frozen=True, slots=True)
class SymbolicIterations:
    """The iterations of one thread in a nest of symbolic extents: `values` are the loop variables
    at the first lane of a group along the last one.
    """

    nest: Nest
    values: tuple[Expr, ...]

    def substitute(self, root: Any, lane: Expr) -> Any:
        """`root` with the loop variables replaced."""
        values = dict(zip(self.nest.op.vars, self.values, strict=True))
        last = self.nest.op.vars[-1]
        return substitute(root, {**values, last: add(values[last], lane)})

    def replica(self) -> Expr | None:
        """Every iteration is executed once."""
        return None

    def slot(self, buffer: Buffer, indices: tuple[Expr, ...], lane: Expr) -> Expr:
        """Such a nest has no fragments: the inference refuses it."""
        raise LayoutError(f"a nest of symbolic extents indexes '{buffer.name}'")

    def apart(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """There are no registers."""
        return 0


def _loop(name: str, extent: int, loops: list[tuple[Var, int]], context: ThreadContext) -> Expr:
    """The variable of a new loop, 0 for a single trip."""
    if extent == 1:
        return int_const(0)
    var = context.loop_var(name)
    context.ranges.enter(var, int_const(0), int_const(extent), 1)
    loops.append((var, extent))
    return var


def _split(shared: Partition, box: tuple[int, ...], lane_dim: int | None) -> tuple[DigitSum, ...]:
    """The index with the step before `lane_dim` cut in groups and lanes."""
    if lane_dim is None:
        return shared.sums
    variables = list(Index.variables(box))
    lane = variables.pop(lane_dim)
    variables[lane_dim - 1] = variables[lane_dim - 1] * box[lane_dim] + lane
    return as_sums(box, DigitMap(shared.box, shared.sums).evaluate(variables))


def _is_used_outside_fragments(nest: Nest) -> bool:
    """Whether the body uses its loop variables for more than to index fragments."""
    variables = set(nest.op.vars)
    stack: list[Node] = [nest.op.body]
    while stack:
        node = stack.pop()
        if node in variables:
            return True
        if isinstance(node, Load | Store | Atomic) and node.buffer.scope == "local.fragment":
            indices = set(node.indices)
            stack.extend(child for child in node.children() if child not in indices)
        else:
            stack.extend(node.children())
    return False


def register_of(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The slot of an element at any index, by the formula of the fragment.

    Raises `LayoutError` where the fragment has none.
    """
    fragment = buffer.layout
    if not isinstance(fragment, Fragment):
        raise LayoutError(f"'{buffer.name}' has no threads yet")
    return map_exprs(fragment.mapping, (*indices, int_const(0)))[1]


def guarded(load: Load, context: ThreadContext) -> Load:
    """A load that reads the safe value outside its global buffer."""
    missing = missing_guards(load.buffer, load.indices, load.predicate, context)
    if not missing:
        return load
    predicate = conjunction([*conjuncts(load.predicate), *missing])
    safe = load.safe if load.safe is not None else context.safe_values.get(load.buffer.name)
    return Load(load.buffer, load.indices, predicate, safe)


def missing_guards(
    buffer: Buffer, indices: tuple[Expr, ...], predicate: Expr | None, context: ThreadContext
) -> list[Expr]:
    """The conditions under which an element of a global buffer is in range, without those known to
    hold.
    """
    if buffer.scope != "global":
        return []
    present = conjuncts(predicate)
    guards: dict[Expr, None] = {}
    for index, extent in zip(indices, buffer.shape, strict=True):
        guards |= dict.fromkeys(context.ranges.guards(index, extent))
    return [cond for cond in guards if cond not in present]
