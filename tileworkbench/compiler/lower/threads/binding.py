"""Thread binding of element-wise nests: the fragment of the loop, and those of what it touches
(paper, section 4.2 and Figure 7).

The loop follows a fragment it writes, else one it reads, else a plan of its own. Every thread must
own what its iterations read, and all owners of an element must execute the iteration that writes
it. A fragment without a layout gets the one the loop needs: digits of the loop that its index does
not use become replicas where they are spread over threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.layout.contain import contains
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.layout.maps import DigitMap, build_map
from tileworkbench.compiler.lower.threads import copies_in_line
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import (
    NOTHING,
    LayoutConflict,
    LayoutMap,
    LayoutUpdate,
    Level,
    Proposal,
)
from tileworkbench.compiler.lower.threads.nests import AccessKind, FragmentAccess, Nest
from tileworkbench.compiler.lower.threads.plan import plan_nest

_REASONS = {
    AccessKind.LOAD: "is read by every thread that needs an element",
    AccessKind.STORE: "is written by the threads that hold an element",
    AccessKind.UPDATE: "collects the contributions of each thread",
}


def infer_nest(
    nest: Nest, layouts: LayoutMap, level: Level, context: ThreadContext
) -> LayoutUpdate:
    """The layouts that an element-wise nest wants for its fragments, and the fragment of the loop.

    Raises `LayoutConflict` where no binding of threads suits the known layouts.
    """
    if level is Level.STRICT:
        return LayoutUpdate((*_strict(nest, context), *_demanded(nest, layouts, context)))
    if nest.shape is None:
        _refuse_symbolic(nest)
        return NOTHING
    if nest.op.loop_layout is not None:
        return _complete(nest, _given_loop(nest.op.loop_layout, context), layouts, context)
    if not nest.fragments:
        if level is Level.COMMON:
            return NOTHING
        in_line = copies_in_line.plan(nest, layouts, context)
        return LayoutUpdate((), in_line or plan_nest(nest, layouts, context))
    conflict: LayoutConflict | None = None
    for access in _sources(nest, layouts, level):
        try:
            update = _complete(nest, _loop_of(access, layouts), layouts, context)
        except LayoutConflict as error:
            conflict = conflict or error
            continue
        return update if level is Level.COMMON else _better(nest, update, layouts, context)
    if level is Level.FREE:
        try:
            return _complete(nest, plan_nest(nest, layouts, context), layouts, context)
        except LayoutConflict as error:
            raise (conflict or error) from None
    if conflict is not None:
        raise conflict
    return NOTHING


def _strict(nest: Nest, context: ThreadContext) -> Iterator[Proposal]:
    """Single elements that are read or written as scalars belong to every thread."""
    for buffer in dict.fromkeys(access.buffer for access in nest.fragments):
        uses = [access for access in nest.fragments if access.buffer is buffer]
        shape = const_shape(buffer)
        if shape is not None and all(access.is_constant for access in uses):
            layout = Fragment.fully_replicated(shape, context.threads)
            yield Proposal(buffer, layout, "is used as a scalar, which every thread holds")


def _demanded(nest: Nest, layouts: LayoutMap, context: ThreadContext) -> tuple[Proposal, ...]:
    """What the user's choice of threads says of the fragments that the nest writes."""
    if nest.op.loop_layout is None:
        return ()
    update = _complete(nest, _given_loop(nest.op.loop_layout, context), layouts, context)
    written = {a.buffer for a in nest.fragments if a.kind is AccessKind.STORE}
    return tuple(
        replace(proposal, reason="is written as 'loop_layout' says")
        for proposal in update.proposals
        if proposal.buffer in written
    )


def _given_loop(loop: Fragment, context: ThreadContext) -> Fragment:
    """The user's layout of a loop, for the threads that take part."""
    if loop.threads > context.threads:
        raise LayoutConflict(
            f"'loop_layout' is for {loop.threads} threads, and {context.threads} take part"
        )
    return loop.bind_thread_range(context.start, context.threads) if context.start else loop


def _refuse_symbolic(nest: Nest) -> None:
    for access in nest.fragments:
        raise LayoutConflict(
            f"a nest with a symbolic extent cannot index '{access.buffer.name}', whose threads "
            "are fixed when the kernel is compiled",
            access.buffer,
            hint="use a constant extent and a condition in the body",
        )


def _sources(nest: Nest, layouts: LayoutMap, level: Level) -> Iterator[FragmentAccess]:
    """The accesses that the loop may follow, the best first."""
    known = [a for a in nest.fragments if layouts.fragment(a.buffer) and a.map is not None]
    yield from (a for a in known if a.kind is AccessKind.STORE)
    loads = [a for a in known if a.kind is not AccessKind.STORE]
    single = [a for a in loads if _copies(a, layouts) == 1 and _uses_whole_loop(a)]
    yield from single
    if level is Level.FREE:
        rest = [a for a in loads if a not in single]
        yield from sorted(rest, key=lambda a: (-len(a.indices), _copies(a, layouts)))


def _copies(access: FragmentAccess, layouts: LayoutMap) -> int:
    fragment = layouts.fragment(access.buffer)
    return fragment.replicate if fragment is not None else 1


def _uses_whole_loop(access: FragmentAccess) -> bool:
    """Whether the iterations touch different elements."""
    try:
        return access.map is not None and _loop_map(access).is_injective
    except LayoutError:
        return False


@lru_cache(maxsize=1024)
def _loop_map(access: FragmentAccess) -> Layout:
    """The map of the loop variables alone, other variables at their least values."""
    assert access.map is not None  # callers have asked
    if not access.others:
        return access.map
    zeros = (0,) * len(access.others)
    shape, full = access.map.shape[: access.rank], access.map
    return Layout(shape, lambda *x: full.evaluate(*x, *zeros))


def _loop_of(access: FragmentAccess, layouts: LayoutMap) -> Fragment:
    """The loop whose iterations run where their element is.

    Raises `LayoutConflict` where the thread depends on a variable that is not the loop's.
    """
    fragment = layouts.fragment(access.buffer)
    assert fragment is not None and access.map is not None  # callers have asked
    if access.others and _moves_thread(fragment @ access.map, access):
        name = print_expr(access.others[0])
        raise LayoutConflict(
            f"'{name}' is no variable of the nest, and the thread that holds an element of "
            f"'{access.buffer.name}' depends on it",
            access.buffer,
            hint=f"'{access.buffer.name}' is a thread-distributed fragment: make '{name}' a "
            "variable of T.Parallel, sum with T.reduce_sum, or keep it in shared memory",
        )
    return _follow(fragment, _loop_map(access))


@lru_cache(maxsize=1024)
def _follow(fragment: Fragment, access: Layout) -> Fragment:
    if access == Layout.identity(access.shape) and access.shape == fragment.shape:
        return fragment
    composed = fragment @ access
    threads = Layout.from_map(composed.mapping)
    replicas = composed.replicate
    loop = Fragment.from_function(
        access.shape,
        (lambda *x: threads.evaluate(*x)[0])
        if replicas > 1
        else (lambda *x: threads.evaluate(*x, 0)[0]),
        replicate=replicas,
    )
    return Fragment.from_map(loop.mapping, fragment.thread_range)


def _moves_thread(composed: Fragment, access: FragmentAccess) -> bool:
    if not isinstance(composed.mapping, DigitMap):
        return True
    others = range(access.rank, access.rank + len(access.others))
    thread = composed.mapping.sums[0]
    return any(digit.dim in others for term in thread.terms for digit in term.digits)


def _complete(
    nest: Nest, loop: Fragment, layouts: LayoutMap, context: ThreadContext
) -> LayoutUpdate:
    """Check the known fragments against `loop`, and propose layouts for the others."""
    wanted: dict[Buffer, Proposal] = {}
    if not isinstance(loop.mapping, DigitMap):
        raise LayoutConflict(
            "which thread executes an iteration has no formula",
            hint="index fragments with +, *, // and % of the variables of T.Parallel",
        )
    if nest.runs_once and _replicas(loop) > 1:
        raise LayoutConflict(
            "several threads would repeat an iteration that uses what an atomic update returned",
            hint="read fragments that other nests share from shared memory instead",
        )
    for access in nest.fragments:
        known = layouts.fragment(access.buffer)
        if access.kind is AccessKind.STORE and not _is_local(access, loop):
            raise _scattered(access)
        if known is not None and _agrees(access, loop, known, context):
            continue
        needed = _needed(access, loop, context)
        if access.kind is AccessKind.STORE and needed is not None and known is not None:
            needed = None
        if needed is None or (known is not None and not contains(known, needed)):
            raise _disagreement(access, loop, known, needed)
        before = wanted.get(access.buffer)
        if before is not None and isinstance(before.layout, Fragment):
            needed = _wider(before.layout, needed, context)
        wanted[access.buffer] = Proposal(access.buffer, needed, _REASONS[access.kind])
    return LayoutUpdate(tuple(wanted.values()), loop)


def _is_local(access: FragmentAccess, loop: Fragment) -> bool:
    """Whether all iterations that may write an element run in the same threads: a condition can
    choose any one of them.
    """
    shape = const_shape(access.buffer)
    if access.map is None or shape is None:
        return access.map is None  # `_agrees` asks for every thread then
    try:
        return _project(loop, access.map, access.rank, shape).replicate == _replicas(loop)
    except LayoutError:
        return True


@lru_cache(maxsize=1024)
def _replicas(loop: Fragment) -> int:
    """How many threads execute each iteration."""
    return loop.condense().replicate


def _scattered(access: FragmentAccess) -> LayoutConflict:
    name = access.buffer.name
    return LayoutConflict(
        f"iterations of different threads would write one element of '{name}'",
        access.buffer,
        hint=f"write '{name}' in a nest with one iteration per element, or keep it in shared "
        "memory",
    )


def _wider(first: Fragment, second: Fragment, context: ThreadContext) -> Fragment:
    """The one that holds all copies of the other, or copies everywhere."""
    if contains(second, first):
        return first
    if contains(first, second):
        return second
    return Fragment.fully_replicated(first.shape, context.threads)


def _agrees(
    access: FragmentAccess, loop: Fragment, fragment: Fragment, context: ThreadContext
) -> bool:
    """Whether the threads of each iteration own its element; for a store also that no other thread
    does.
    """
    if fragment.is_fully_replicated and fragment.threads == context.threads:
        return access.kind is not AccessKind.STORE or _runs_everywhere(loop, context)
    if access.map is None:
        return False
    spread = _spread(loop, access.map.shape)
    try:
        inside = contains(spread, fragment, None, access.map)
        if not inside or access.kind is not AccessKind.STORE:
            return inside
        return contains(fragment, spread, access.map, None)
    except LayoutError:
        return False


def _runs_everywhere(loop: Fragment, context: ThreadContext) -> bool:
    """Whether every thread executes every iteration."""
    everywhere = Fragment.fully_replicated(loop.shape, context.threads)
    return loop.replicate >= context.threads and contains(everywhere, loop)


@lru_cache(maxsize=1024)
def _spread(loop: Fragment, shape: tuple[int, ...]) -> Fragment:
    """The loop's threads over a box with further dimensions, which they do not depend on."""
    if len(shape) == loop.rank:
        return loop
    return loop @ Layout(shape, lambda *x: x[: loop.rank])


def _needed(access: FragmentAccess, loop: Fragment, context: ThreadContext) -> Fragment | None:
    """The fragment that gives each iteration's threads its element; None where there is none."""
    shape = const_shape(access.buffer)
    if shape is None:
        return None
    if access.map is not None:
        try:
            fragment = _project(loop, access.map, access.rank, shape)
            if isinstance(fragment.mapping, DigitMap):
                return fragment
        except LayoutError:
            pass
    if access.kind is AccessKind.STORE and not _runs_everywhere(loop, context):
        return None
    return Fragment.fully_replicated(shape, context.threads)


@lru_cache(maxsize=1024)
def _project(loop: Fragment, access: Layout, rank: int, shape: tuple[int, ...]) -> Fragment:
    """`Fragment.project` for an access that may reach a part of the buffer only: the pattern is
    repeated then.
    """
    inner = loop
    if access.rank > rank:
        box, lead = access.shape, prod(access.shape[rank:])

        def place(*x: object) -> tuple[object, object]:
            thread, slot = loop.evaluate(*x[:rank], x[-1])
            rest: object = 0
            for extent, value in zip(box[rank:], x[rank:-1], strict=True):
                rest = rest * extent + value  # type: ignore[operator]
            return thread, slot * lead + rest

        inner = Fragment.from_map(build_map((*box, loop.replicate), place), loop.thread_range)
    lows, highs = _reach(access)
    sizes = tuple(high - low + 1 for low, high in zip(lows, highs, strict=True))
    if any(
        extent % size or low % size for extent, size, low in zip(shape, sizes, lows, strict=True)
    ):
        raise LayoutError("the part of a tile that a nest touches does not divide the tile")
    moved = access
    if any(lows):
        moved = Layout(
            access.shape,
            lambda *x: tuple(
                value - low for value, low in zip(access.evaluate(*x), lows, strict=True)
            ),
        )
    fragment = inner.project(moved)
    if sizes != shape:
        fragment = fragment.repeat(
            [extent // size for extent, size in zip(shape, sizes, strict=True)]
        )
    return fragment


def _reach(access: Layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The least and the largest of each index."""
    if isinstance(access.mapping, DigitMap):
        sums = access.mapping.sums
        return tuple(s.minimum for s in sums), tuple(s.maximum for s in sums)
    table = access.table(linear=False).reshape(-1, len(access.output_shape))
    return tuple(map(int, table.min(0))), tuple(map(int, table.max(0)))


def _disagreement(
    access: FragmentAccess, loop: Fragment, known: Fragment | None, needed: Fragment | None
) -> LayoutConflict:
    name = access.buffer.name
    if known is None:
        return LayoutConflict(
            f"no layout of '{name}' lets every thread write the elements it holds",
            access.buffer,
            hint=f"write '{name}' at indices that differ between iterations, or keep it in shared "
            "memory",
        )
    verb = "read" if access.kind is AccessKind.LOAD else "write"
    return LayoutConflict(
        f"some threads would {verb} elements of '{name}' that they do not hold",
        access.buffer,
        needed if needed is not None else loop,
        hint=f"copy '{name}' to shared memory and read it from there",
    )


def _better(
    nest: Nest, update: LayoutUpdate, layouts: LayoutMap, context: ThreadContext
) -> LayoutUpdate:
    """`update`, which follows a fragment, or a plan of the nest's own where that serves memory
    better: the loop repeats iterations, or spreads them over few threads.
    """
    loop = update.loop
    assert loop is not None  # a completed nest has one
    if nest.writes_fragment or not nest.stores_memory or loop.replicate == 1:
        return update
    try:
        planned = _complete(nest, plan_nest(nest, layouts, context), layouts, context)
    except LayoutConflict:
        return update
    return update if planned.proposals else planned
