"""Element-wise nests: what their bodies touch, as maps from the loop variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from tileworkbench.compiler.analysis.access import element_accesses, has_loads
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.traces import UntraceableError
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables, walk
from tileworkbench.compiler.ir.tile import Copy, Fill, Parallel
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads import copy, fill
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.formulas import index_map
from tileworkbench.compiler.target import Target

MEMORY = ("global", "shared")
_OTHERS_LIMIT = 4096  # values of a variable from outside the nest that an index is traced over


class AccessKind(StrEnum):
    """What an access does to its element."""

    LOAD = "load"
    STORE = "store"
    UPDATE = "update"
    """A contribution to a reducer, from which each thread's copy may differ."""


@dataclass(frozen=True, slots=True)
class FragmentAccess:
    """An access to a fragment: `map` takes the loop variables and then `others`, values from
    outside the nest or of serial loops inside it. It is None where the index depends on memory.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    kind: AccessKind
    map: Layout | None
    others: tuple[Expr, ...] = ()
    rank: int = 0

    @property
    def is_constant(self) -> bool:
        """Whether it is always the same element."""
        return all(const_int(index) is not None for index in self.indices)


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """An access to global or shared memory, with lets of the body inlined."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    kind: AccessKind


@dataclass(frozen=True, slots=True)
class Nest:
    """A `T.Parallel` nest, or another operator written as one; `shape` is None where some extent is
    symbolic.
    """

    op: Parallel
    shape: tuple[int, ...] | None
    fragments: tuple[FragmentAccess, ...]
    memory: tuple[MemoryAccess, ...]

    @property
    def stores_memory(self) -> bool:
        """Whether other threads or blocks can see what it does."""
        return any(access.kind is not AccessKind.LOAD for access in self.memory)

    @property
    def runs_once(self) -> bool:
        """Whether no iteration may be repeated: it uses what an atomic access returned."""
        return any(
            isinstance(stmt, st.Atomic) and stmt.previous is not None
            for stmt in statements(self.op.body)
        )

    @property
    def writes_fragment(self) -> bool:
        return any(access.kind is not AccessKind.LOAD for access in self.fragments)


def nest_of(op: Parallel | Copy | Fill, context: ThreadContext) -> Nest:
    """An operator as an element-wise nest, the same one each time."""
    known = context.nests.get(id(op))
    if known is None:
        match op:
            case Copy():
                nest = copy.as_nest(op, context)
            case Fill():
                nest = fill.as_nest(op, context)
            case _:
                nest = op
        known = context.nests[id(op)] = (op, analyse(nest, context.ranges))
    return known[1]


def analyse(op: Parallel, ranges: Ranges) -> Nest:
    """The accesses of a nest, each place once."""
    sizes = [const_int(extent) for extent in op.extents]
    constant = tuple(size for size in sizes if size is not None)
    shape = constant if len(constant) == len(sizes) else None
    lets = pure_lets(op.body)
    fragments: dict[tuple[object, ...], FragmentAccess] = {}
    memory: dict[tuple[object, ...], MemoryAccess] = {}
    for buffer, indices, kind in accesses(op.body):
        inlined = tuple(substitute(index, lets) for index in indices) if lets else indices
        key = (buffer, inlined, kind)
        if buffer.scope == "local.fragment" and key not in fragments:
            fragments[key] = _fragment_access(op, shape, buffer, inlined, kind, ranges)
        elif buffer.scope in MEMORY and key not in memory:
            memory[key] = MemoryAccess(buffer, inlined, kind)
    return Nest(op, shape, tuple(fragments.values()), tuple(memory.values()))


def accesses(body: st.Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...], AccessKind]]:
    """Every access below `body`."""
    for access in element_accesses(body):
        kind = AccessKind.LOAD
        if access.writes:
            kind = AccessKind.UPDATE if access.atomic else AccessKind.STORE
        yield access.buffer, access.indices, kind


def update_lanes(body: st.Stmt, buffer: Buffer, target: Target) -> int:
    """How many neighbouring elements of `buffer` the nest may add to at once: all that it does with
    the buffer must be additions whose results nobody asks for.
    """
    nodes = [node for node in walk(body) if getattr(node, "buffer", None) is buffer]
    alike = all(
        isinstance(node, st.Atomic) and node.kind is st.AtomicKind.ADD and node.previous is None
        for node in nodes
    )
    return target.machine.atomic_lanes(str(buffer.dtype), buffer.scope) if alike else 1


def pure_lets(body: st.Stmt) -> dict[Var, Expr]:
    """The values of lets in `body` that read no memory, in terms of other variables."""
    values: dict[Var, Expr] = {}
    for stmt in walk(body):
        if isinstance(stmt, st.Let) and stmt.var.dtype.is_int and not has_loads(stmt.value):
            values[stmt.var] = substitute(stmt.value, values)
    return values


def _fragment_access(
    op: Parallel,
    shape: tuple[int, ...] | None,
    buffer: Buffer,
    indices: tuple[Expr, ...],
    kind: AccessKind,
    ranges: Ranges,
) -> FragmentAccess:
    if shape is None:
        return FragmentAccess(buffer, indices, kind, None)
    try:
        traced, others = trace_access(indices, op.vars, shape, ranges)
    except (UntraceableError, LayoutError):
        return FragmentAccess(buffer, indices, kind, None)
    return FragmentAccess(buffer, indices, kind, traced, others, len(shape))


def trace_access(
    indices: tuple[Expr, ...], loop: Sequence[Var], shape: Sequence[int], ranges: Ranges
) -> tuple[Layout, tuple[Expr, ...]]:
    """The map of `indices` over the loop variables and what else they use: variables with few
    values, or expressions like `k % 2` of other ones.

    Raises `UntraceableError` or `LayoutError` where there is none.
    """
    others: dict[Expr, Var] = {}

    def cut(node: Any) -> Any:
        used = variables(node)
        if not used or node in loop:
            return node
        if any(var in loop for var in used):
            return node.map_children(cut)
        whole = isinstance(node, Var) or not all(_is_small(var, ranges) for var in used)
        if whole and _is_small(node, ranges) and not has_loads(node):
            return others.setdefault(node, Var(f"other {len(others)}", node.dtype))
        if isinstance(node, Var):
            raise UntraceableError
        return node.map_children(cut)

    traced = tuple(cut(index) for index in indices)
    bounds = [ranges.bounds(other) for other in others]
    lows = [0] * len(loop) + [each.low or 0 for each in bounds]
    extents = list(shape) + [(f.high or 0) - (f.low or 0) + 1 for f in bounds]
    return index_map(traced, (*loop, *others.values()), extents, lows), tuple(others)


def _is_small(value: Expr, ranges: Ranges) -> bool:
    """Whether a value is known to be one of a few."""
    bounds = ranges.bounds(value)
    if bounds.low is None or bounds.high is None:
        return False
    return bounds.high - bounds.low < _OTHERS_LIMIT
