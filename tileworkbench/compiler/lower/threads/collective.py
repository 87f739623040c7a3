"""Values combined across the threads that hold parts of one result: butterflies of shuffles within
a warp, a workspace in shared memory between warps.
"""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, conjunction, int_const, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.simt import Exchange
from tileworkbench.compiler.ir.stmt import LoopKind, Stmt, Store, seq
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.maps import DigitMap
from tileworkbench.compiler.layout.solve import refine
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.loops import scale, unrolled

_UNROLLED = 8  # partners of a thread in a workspace that are read without a loop


@dataclass(frozen=True, slots=True)
class Place:
    """A digit of the thread's number, ``thread // stride % capacity``; values from `extent` on hold
    no part.
    """

    stride: int
    extent: int
    capacity: int


def thread_places(fragment: Fragment, dim: int, threads: int) -> tuple[Place, ...] | None:
    """The digits of the thread that hold digits of dimension `dim` (its rank: the replica), None
    where they are mixed with others.
    """
    mapping = fragment.mapping
    if not isinstance(mapping, DigitMap):
        return None
    system = refine(mapping)
    outer = [e for e in system.equations if e.place.dim == 0 and e.place.extent > 1]
    outer.sort(key=lambda e: abs(e.place.divisor))
    if mapping.sums[0].constant or any(e.place.divisor < 0 for e in outer):
        return None
    places = []
    for number, equation in enumerate(outer):
        atoms = [n for n in range(len(system.atoms)) if equation.atoms >> n & 1]
        if all(system.atoms[n].dim != dim for n in atoms):
            continue
        stride = equation.place.divisor
        last = number + 1 == len(outer)
        top = -(-threads // stride) * stride if last else outer[number + 1].place.divisor
        if len(atoms) > 1 or top % stride or top // stride < equation.place.extent:
            return None
        places.append(Place(stride, equation.place.extent, top // stride))
    return tuple(places)


@dataclass(frozen=True, slots=True)
class Route:
    """How partial results are combined: first by shuffles between lanes whose numbers differ by a
    power of two of `offsets`, then through a workspace, over the digits `places` of the thread.
    """

    offsets: tuple[int, ...]
    places: tuple[Place, ...]


def route(places: tuple[Place, ...], context: ThreadContext) -> Route:
    """Shuffles for the digits within a warp, the workspace for all others."""
    warp = context.lanes
    offsets: list[int] = []
    rest: list[Place] = []
    whole = context.threads % warp == 0 and context.start % warp == 0
    for place in places:
        reach = 1 << (place.extent - 1).bit_length()
        # Flipping a bit of the lane's number flips it in the digit only where that begins aligned.
        last = place.stride * place.capacity >= context.threads
        aligned = reach <= place.capacity and (last or place.capacity % reach == 0)
        binary_place = place.stride & (place.stride - 1) == 0 and aligned
        if not whole or not binary_place or place.stride >= warp:
            rest.append(place)
            continue
        inside = min(reach, warp // place.stride)
        offsets += [place.stride << bit for bit in range(inside.bit_length() - 1)]
        if inside < reach:
            outside = Place(warp, -(-place.extent // inside), place.capacity // inside)
            rest.append(outside)
    return Route(tuple(offsets), tuple(rest))


@dataclass(frozen=True, slots=True)
class Combining:
    """Two values become one; `neutral` changes no other value."""

    combine: Callable[[Expr, Expr], Expr]
    neutral: Expr


def combine_across(
    values: Buffer, count: int, route: Route, how: Combining, context: ThreadContext, site: int
) -> list[Stmt]:
    """Statements after which each thread has in ``values[0 .. count - 1]`` the results over all
    threads that differ from it in the digits of the route. Threads without a part hold neutral
    values.
    """
    stmts: list[Stmt] = []
    if route.offsets:
        stmts.append(_shuffle(values, count, route.offsets, how, context, site))
    if route.places:
        stmts += _combine_in_memory(values, count, route, how, context, site)
    return stmts


def _shuffle(
    values: Buffer, count: int, offsets: tuple[int, ...], how: Combining,
    context: ThreadContext, site: int,
) -> Stmt:  # fmt: skip
    """A butterfly for each value."""

    def body(s: Expr) -> Stmt:
        stmts: list[Stmt] = []
        for offset in offsets:
            own = Load(values, (s,))
            other = context.names.var("other", values.dtype)
            stmts += [
                Exchange(other, "shfl_xor", (own, int_const(offset)), context.lanes, site=site),
                Store(values, (s,), how.combine(own, other), site=site),
            ]
        return seq(stmts)

    return unrolled(context, "s", count, body, site)


def _combine_in_memory(
    values: Buffer, count: int, route: Route, how: Combining, context: ThreadContext, site: int
) -> list[Stmt]:
    """Every thread writes its partial results to shared memory and reads those of its partners.

    Lanes that a butterfly has made equal write one copy, where they are neighbours.
    """
    copies = 1 << len(route.offsets)
    if sum(route.offsets) != copies - 1 or any(p.stride % copies for p in route.places):
        copies = 1
    slots = -(-context.threads // copies)
    name, own = f"{values.name}_workspace", context.thread
    workspace = context.temporary(name, values.dtype, slots * count, "shared")
    if copies > 1:
        own = context.named("group", binary("floordiv", own, int_const(copies)))
    first = _first_partner(own, copies, route, context)
    leader = binary("eq", binary("floormod", context.thread, int_const(copies)), int_const(0))

    def write(s: Expr) -> Stmt:
        index = (add(scale(s, slots), own),)
        return Store(workspace, index, Load(values, (s,)), conjunction([leader]), site=site)

    beyond = any(context.threads % (place.stride * place.capacity) for place in route.places)

    def read(s: Expr) -> Stmt:
        def read_partner(index: Expr) -> Expr:
            """The last threads may have no partners."""
            if not beyond:
                return Load(workspace, (index,))
            inside = binary("lt", index, scale(add(s, int_const(1)), slots))
            return Load(workspace, (index,), inside, how.neutral)

        def partner(index: Expr, places: tuple[Place, ...], fresh: bool) -> Stmt:
            if not places:
                value = read_partner(index)
                total = value if fresh else how.combine(Load(values, (s,)), value)
                return Store(values, (s,), total, site=site)
            place, rest = places[0], places[1:]
            step = place.stride // copies
            begin = [partner(index, rest, True)] if fresh else []
            if place.extent == len(begin):
                return seq(begin)

            def body(p: Expr) -> Stmt:
                return partner(add(index, scale(p, step)), rest, False)

            loop = _each_partner(context, len(begin), place.extent, body, site)
            return seq([*begin, loop])

        return partner(add(scale(s, slots), first), route.places, True)

    return [unrolled(context, "s", count, part, site) for part in (write, read)]


def _first_partner(own: Expr, copies: int, route: Route, context: ThreadContext) -> Expr:
    """The place of the partner that is 0 along all places of `route`, from a thread's `own` one."""
    first = own
    for place in route.places:
        digit = binary("floordiv", context.thread, int_const(place.stride))
        digit = binary("floormod", digit, int_const(place.capacity))
        first = sub(first, scale(digit, place.stride // copies))
    return context.named("partner", first)


def _each_partner(
    context: ThreadContext, start: int, stop: int, body: Callable[[Expr], Stmt], site: int
) -> Stmt:
    if stop - start == 1:
        return body(int_const(start))
    var = context.loop_var("p")
    kind = LoopKind.UNROLLED if stop - start <= _UNROLLED else LoopKind.SERIAL
    return counting(var, stop, body(var), site, start, kind)
