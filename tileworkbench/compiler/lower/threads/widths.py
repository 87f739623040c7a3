"""Why an access to memory is not wider: the rule that the next wider vector would break."""

from __future__ import annotations

from math import prod

from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.sizes import strides_of
from tileworkbench.compiler.ir.stmt import Kernel
from tileworkbench.compiler.ir.tile import Copy, Fill, Parallel
from tileworkbench.compiler.lower.threads.context import ThreadContext, with_contexts
from tileworkbench.compiler.lower.threads.inference import LayoutMap
from tileworkbench.compiler.lower.threads.nests import MemoryAccess, Nest, nest_of
from tileworkbench.compiler.lower.threads.plan import plan_vector
from tileworkbench.compiler.lower.threads.vectors import (
    Motion,
    Obstacle,
    motions,
    obstacle,
    step_box,
)
from tileworkbench.compiler.machine.machine import VECTOR_BITS
from tileworkbench.compiler.target import Target


class Widths:
    """The element-wise operators of a PLANNED program, by the sites of their statements."""

    def __init__(self, program: Program, target: Target) -> None:
        self.operators: dict[int, list[tuple[Parallel | Copy | Fill, ThreadContext]]] = {}
        for kernel in statements(program.body):
            if isinstance(kernel, Kernel):
                whole = ThreadContext.of(program, kernel, target)
                for op, context in with_contexts(kernel.body, whole):
                    if isinstance(op, Parallel | Copy | Fill):
                        for site in {getattr(stmt, "site", 0) for stmt in statements(op)}:
                            self.operators.setdefault(site, []).append((op, context))

    def why_not_wider(self, site: int, name: str, width: int) -> str:
        """Why the operator `site` accesses the buffer `name` by `width` bytes and not by twice as
        many, as the end of a sentence. Empty where no element-wise operator does it.
        """
        if 8 * width >= VECTOR_BITS:
            return f"a thread accesses at most {VECTOR_BITS // 8} bytes at once"
        for op, context in self.operators.get(site, ()):
            nest = nest_of(op, context)
            if any(access.buffer.name == name for access in nest.memory):
                return _Limits(nest, name, width, context).first()
        return ""


class _Limits:
    """Reasons why vectors cannot be twice as wide."""

    def __init__(self, nest: Nest, name: str, width: int, context: ThreadContext) -> None:
        self.nest, self.context, self.ranges = nest, context, context.ranges
        self.box = step_box(nest.shape or (None,) * len(nest.op.vars))
        self.mine = [a for a in nest.memory if a.buffer.name == name]
        self.others = [a for a in nest.memory if a.buffer.name != name]
        self.wanted = max(2 * 8 * width // self.mine[0].buffer.dtype.bits, 2)
        self.dim = plan_vector(nest, LayoutMap({}), context)[0]

    def first(self) -> str:
        """The first reason: of the access itself, then of the other accesses of its loop."""
        reasons = (
            self.asked(),
            *map(self.access, self.mine),
            self.extent(),
            *map(self.access, self.others),
            *map(self.size, self.others),
            self.threads(),
            self.fragments(),
        )
        return next(filter(None, reasons), "")

    def asked(self) -> str:
        asked = self.nest.op.coalesced_width
        return f"'coalesced_width={asked}' asks for it" if asked and asked < self.wanted else ""

    def access(self, access: MemoryAccess) -> str:
        moved = motions(access.indices, self.nest.op.vars, self.box, self.ranges)
        if access not in self.mine and not self.moves(moved):
            return ""
        hindrance = obstacle(
            access.buffer, access.buffer.layout, access.indices, moved, self.dim, self.wanted,
            self.ranges,
        )  # fmt: skip
        if hindrance is Obstacle.APART:
            return self.apart(access, moved)
        return "" if hindrance is None else self.text(hindrance, access)

    def moves(self, moved: tuple[Motion, ...]) -> bool:
        return any(motion.moves(self.dim, self.box[self.dim] + 1) for motion in moved)

    def apart(self, access: MemoryAccess, moved: tuple[Motion, ...]) -> str:
        name, wanted = access.buffer.name, self.wanted
        if any(self.dim in motion.opaque for motion in moved):
            return f"the index of '{name}' is not known to step from neighbour to neighbour"
        if not self.moves(moved):
            return f"neighbouring iterations take the same element of '{name}'"
        return f"no {wanted} neighbours of '{name}' are taken from a multiple of {wanted} on"

    def text(self, hindrance: Obstacle, access: MemoryAccess) -> str:
        name, wanted = access.buffer.name, self.wanted
        match hindrance:
            case Obstacle.LAYOUT:
                return f"the layout of '{name}' keeps no {wanted} neighbours together"
            case Obstacle.STRIDED:
                return f"neighbours in a row of '{name}' are not next to each other in memory"
            case Obstacle.END:
                return f"rows of '{name}' end after {_not(access.buffer.shape[-1], wanted)}"
        strides = strides_of(access.buffer)[:-1]
        bad = next(each for each in strides if not self.ranges.divides(wanted, each))
        return f"rows of '{name}' begin every {_not(bad, wanted)}"

    def extent(self) -> str:
        extent = self.nest.op.extents[self.dim]
        if self.ranges.divides(self.wanted, extent):
            return ""
        return f"the loop along it takes {_not(extent, self.wanted, 'iterations')}"

    def size(self, access: MemoryAccess) -> str:
        bits = max(access.buffer.dtype.bits, 1)
        if bits * self.wanted <= VECTOR_BITS:
            return ""
        count = VECTOR_BITS // bits
        return f"'{access.buffer.name}', which goes with it, has {count} elements in 16 bytes"

    def fragments(self) -> str:
        if not self.nest.fragments:
            return ""
        name = self.nest.fragments[0].buffer.name
        return f"the layout of '{name}' gives a thread no {self.wanted} neighbours in a row"

    def threads(self) -> str:
        if self.nest.shape is None:
            return ""
        busy = prod(self.nest.shape) // self.wanted
        if busy >= self.context.threads:
            return ""
        return f"then only {busy} of the {self.context.threads} threads would have work"


def _not(count: Expr, wanted: int, unit: str = "elements") -> str:
    number = const_int(count)
    if number is not None:
        return f"{number} {unit}, which is no multiple of {wanted}"
    return f"'{print_expr(count)}' {unit}, not known to be a multiple of {wanted}"
