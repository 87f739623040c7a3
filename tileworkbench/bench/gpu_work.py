"""What the threads of a block do, counted statement by statement for `gpu_time_model`.

The lowered program (stage SIMT) is walked once; loops count with their trips, a branch whose
condition is not known as taken. What memory does is in `Kernel.requests`, which take every loop
once that is not unrolled: `Work.repeats` tells how often each of them is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from math import prod

from tileworkbench.bench.cpu_block import Env
from tileworkbench.bench.cpu_terms import value_of
from tileworkbench.bench.gpu_terms import RECIPROCAL, Cost, cost_of, distinct, fused
from tileworkbench.compiler.analysis.access import depends_on, has_loads
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.sim.threads.requests import WarpAccess

_SHUFFLE = Cost("shuffle", 4.0)


@dataclass(slots=True)
class Spent:
    """Slots of threads that one site spends on one kind of work, the operations it does, and their
    instructions: of special-function units, and others.
    """

    slots: float = 0.0
    count: float = 0.0
    special: float = 0.0
    others: float = 0.0


@dataclass(frozen=True, slots=True)
class Wait:
    """A loop whose iterations each wait for memory, or for the sum of the one before.

    `kind` is ``load`` (a tile into shared memory, nothing ahead), ``ahead`` (copies issued `ahead`
    iterations before), ``element`` (a value for the threads themselves) or ``sum``. `sites` are
    those of its statements, without loops in it that wait themselves.
    """

    kind: str
    site: int
    trips: float
    ahead: int = 0
    sites: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Updates:
    """Atomic updates that a block makes of one element, which may be that of all blocks."""

    count: float
    of_all_blocks: bool


@dataclass(slots=True)
class BlockWork:
    """What a block does: slots by site and kind, operations of matrix instructions by site and
    type, barriers by site, loops that wait, how often each request for memory is made, and which
    elements of tensors all its threads update.
    """

    threads: int = 1
    blocks: int = 1
    site: int = 0
    spent: dict[tuple[int, str], Spent] = field(default_factory=dict)
    products: dict[tuple[int, str], float] = field(default_factory=dict)
    barriers: dict[int, float] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    made: dict[tuple[int, str], list[float]] = field(default_factory=dict)
    updates: dict[tuple[int, str], Updates] = field(default_factory=dict)

    def repeats(self, site: int, buffer: str) -> float:
        """How often the requests of a site for a buffer are made in all."""
        times, once = self.made.get((site, buffer), (1.0, 1.0))
        return times / once if once else 1.0


def blocks_of(body: st.Stmt, fast_math: bool = False) -> Iterator[BlockWork]:
    """The work of a block of each launch of a program: that in the middle of the grid."""
    for stmt in st.items(body):
        if isinstance(stmt, st.Kernel):
            yield _walked(stmt, fast_math)[0].work


def step_of(body: st.Stmt, fast_math: bool = False) -> BlockWork | None:
    """The work of one iteration of the last loop with matrix products that is not unrolled, by the
    threads that run it; None for a program without such a loop.
    """
    kernels = [stmt for stmt in st.items(body) if isinstance(stmt, st.Kernel)]
    for stmt in kernels:
        for threads, loop in _loops(stmt, 1):
            walker, env = _walked(stmt, fast_math)
            walker.threads = float(threads)
            walker.work = BlockWork(threads, walker.work.blocks, stmt.site)
            walker.trips(loop, env)
            walker.visit(loop.body, 1.0, 1.0, stmt.site, env)
            return walker.work
    return None


def merged(access: WarpAccess) -> float:
    """The part of the requests of an access that compilers leave: of loads from the same places,
    as unrolled loops make them, one.
    """
    made = sum(each.times for each in access.requests)
    return len(access.requests) / made if access.count.kind == "load" and made else 1.0


def _walked(kernel: st.Kernel, fast_math: bool) -> tuple[_Walker, Env]:
    """A walker behind its walk of a kernel, and what is known there."""
    extents = [int(value_of(extent, {}) or 1) for extent in kernel.grid]
    env: Env = {var.name: extent // 2 for var, extent in zip(kernel.vars, extents, strict=True)}
    work = BlockWork(prod(kernel.threads), prod(extents), kernel.site)
    walker = _Walker(work, {*kernel.vars}, {*kernel.thread_vars}, fast_math)
    walker.visit(kernel.body, 1.0, 1.0, kernel.site, env)
    return walker, env


def _loops(stmt: st.Stmt, threads: int) -> Iterator[tuple[int, st.For]]:
    """Loops with matrix products, the last one first, with the threads that run them."""
    if isinstance(stmt, st.Kernel):
        threads = prod(stmt.threads)
    elif isinstance(stmt, simt.Role):
        threads = stmt.extent
    below = [each for each in stmt.children() if isinstance(each, st.Stmt)]
    for each in reversed(below):
        yield from _loops(each, threads)
    multiplies = any(isinstance(each, simt.Mma | simt.Wgmma) for each in statements(stmt))
    if isinstance(stmt, st.For) and stmt.kind is not st.LoopKind.UNROLLED and multiplies:
        yield threads, stmt


@dataclass(slots=True)
class _Loop:
    loop: st.For
    trips: float
    site: int
    varying: set[Var]
    loads: str = ""  # of global memory that something in it waits for: to "shared" or "local"
    load_site: int = 0
    issues: bool = False  # cp.async
    pending: int = -1
    begun: dict[Buffer, int] = field(default_factory=dict)  # phases with bytes, in front of it
    phases: dict[Buffer, int] = field(default_factory=dict)  # and in it
    waited: list[Buffer] = field(default_factory=list)  # barriers that it waits for itself
    sums: int = 0
    meets: bool = False  # its threads wait for each other
    sites: set[int] = field(default_factory=set)


class _Walker:
    def __init__(
        self, work: BlockWork, blocks: set[Var], threads: set[Var], fast_math: bool
    ) -> None:
        self.work, self.threads, self.fast_math = work, float(work.threads), fast_math
        self.loops: list[_Loop] = []
        self.unrolled: list[tuple[st.For, range]] = []
        # Variables that are the same for all threads of a block; the thread's; values of others.
        self.blocks, self.thread_vars, self.named = blocks, threads, dict[Var, Expr]()
        self.conditions: list[tuple[Expr, bool]] = []
        self.tensors: dict[Buffer, Buffer] = {}  # of tensor maps
        self.phases: dict[Buffer, int] = {}  # of barriers, for which somebody says what they bring

    def visit(self, stmt: st.Stmt, times: float, once: float, site: int, env: Env) -> None:
        """Count `stmt`, executed `times` times, `once` where only unrolled loops repeat."""
        site = getattr(stmt, "site", 0) or site
        work = self.work
        for each in self.loops:
            each.sites.add(site)
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self.visit(child, times, once, site, env)
                return
            case st.For():
                self.loop(stmt, times, once, site, env)
                return
            case st.While(body=body):
                self.visit(body, times, once, site, env)
                return
            case st.If(cond, then, orelse):
                taken = value_of(cond, env)
                for part, chosen in ((then, True), (orelse, False)):
                    if part is not None and (taken is None or bool(taken) == chosen):
                        self.conditions.append((cond, chosen))
                        self.visit(part, times, once, site, env)
                        self.conditions.pop()
                return
            case simt.Role(_, extent, body):
                outer, self.threads = self.threads, float(extent)
                self.visit(body, times, once, site, env)
                self.threads = outer
                return
            case simt.Start(body):
                self.visit(body, times, once, site, env)
                return
            case simt.TensorMap(buffer, source):
                self.tensors[buffer] = source
                return
            case simt.BarrierSignal(barrier, bytes_=bytes_) if bytes_:
                self.phases[barrier.buffer] = self.phases.get(barrier.buffer, 0) + 1
            case simt.BarrierWait(barrier):
                for each in self.loops[-1:]:
                    each.waited.append(barrier.buffer)
            case simt.Wgmma():
                self.product(site, stmt.b.buffer, times * 2 * 16 * stmt.n * stmt.k)
            case simt.Barrier():
                work.barriers[site] = work.barriers.get(site, 0.0) + times
                for each in self.loops:
                    each.meets = True
            case simt.Exchange():
                self.spend(site, _SHUFFLE, times)
            case simt.WaitGroup(pending):
                for each in self.loops[-1:]:
                    each.pending = pending
            case simt.AsyncCopy():
                for each in self.loops:
                    each.issues = True
                    each.load_site = each.load_site or site
            case simt.Mma():
                self.product(site, stmt.a.buffer, times * 2 * stmt.m * stmt.n * stmt.k)
            case st.Atomic():
                self.update(stmt, times, site, env)
            case st.Let(var, value):
                self.named[var] = value
                if _variables(value) <= self.blocks and not has_loads(value):
                    self.blocks.add(var)
                for each in self.loops:
                    if depends_on(value, frozenset({each.loop.var, *each.varying})):
                        each.varying.add(var)
                number = value_of(value, env)
                if number is not None:
                    env[var.name] = number
        self.memory(stmt, times, once, site)
        if isinstance(stmt, st.Store | st.Atomic | st.Let):
            self.operations(stmt, times, site, env)

    def trips(self, loop: st.For, env: Env) -> range:
        """The iterations of a loop, one where its bounds are not known; `env` is in the middle."""
        bounds = [value_of(bound, env) for bound in (loop.start, loop.stop, loop.step)]
        start, stop, step = (1 if bound is None else int(bound) for bound in bounds)
        span = range(start, stop, step or 1) if None not in bounds else range(start, start + 1)
        if span:
            env[loop.var.name] = span[(len(span) - 1) // 2]
        return span

    def loop(self, loop: st.For, times: float, once: float, site: int, env: Env) -> None:
        span = self.trips(loop, env)
        trips = len(span)
        if not trips:
            return
        if loop.kind is st.LoopKind.UNROLLED:
            self.unrolled.append((loop, span))
            self.visit(loop.body, times * trips, once * trips, site, env)
            self.unrolled.pop()
            return
        made = _Loop(loop, times * trips, site, set(), begun=dict(self.phases))
        self.loops.append(made)
        self.visit(loop.body, times * trips, once, site, env)
        self.loops.pop()
        made.phases = self.phases
        waits = list(_waits(made))
        self.work.waits += waits
        if waits:
            for each in self.loops:
                each.sites -= made.sites

    def product(self, site: int, operand: Buffer, flops: float) -> None:
        """Matrix instructions do `flops` in each warp."""
        key = site, str(operand.dtype)
        done = self.work.products.get(key, 0.0)
        self.work.products[key] = done + flops * self.threads / 32

    def update(self, stmt: st.Atomic, times: float, site: int, env: Env) -> None:
        """Note updates of an element of a tensor that all threads of the block share."""
        used = {var for index in stmt.indices for var in _variables(index)}
        if stmt.buffer.scope != "global" or stmt.is_load or any(map(has_loads, stmt.indices)):
            return
        if used <= self.blocks:
            own = [(stmt.predicate, True)] if stmt.predicate is not None else []
            made = times * self.taking_part([*self.conditions, *own], env)
            key = site, stmt.buffer.name
            before = self.work.updates.get(key, Updates(0.0, True))
            self.work.updates[key] = Updates(before.count + made, before.of_all_blocks and not used)

    def taking_part(self, conditions: list[tuple[Expr, bool]], env: Env) -> float:
        """How many threads of the block meet conditions; one that is not known counts as met."""
        if not conditions:
            return self.threads
        taking = 0
        for thread in range(int(self.threads)):
            known = {**env, **{var.name: thread for var in self.thread_vars}}
            for var, value in self.named.items():
                if (number := value_of(value, known)) is not None:
                    known[var.name] = number
            values = [(value_of(each, known), wanted) for each, wanted in conditions]
            taking += all(value is None or bool(value) == wanted for value, wanted in values)
        return float(taking)

    def memory(self, stmt: st.Stmt, times: float, once: float, site: int) -> None:
        """Note whose memory a statement reads and writes, and what waits for it."""
        buffers = {node for node in walk(stmt) if isinstance(node, Buffer)}
        for buffer in {self.tensors.get(each, each) for each in buffers}:
            if buffer.scope in ("global", "shared"):
                sums = self.work.made.setdefault((site, buffer.name), [0.0, 0.0])
                sums[0] += times
                sums[1] += once
        if not self.loops or not isinstance(stmt, st.Store | st.Let):
            return
        inner = self.loops[-1]
        moving = frozenset({inner.loop.var, *inner.varying})
        for load in {each for each in walk(stmt) if isinstance(each, Load)}:
            if load.buffer.scope == "global" and depends_on(load, moving):
                shared = isinstance(stmt, st.Store) and stmt.buffer.scope == "shared"
                inner.loads = inner.loads or ("shared" if shared else "local")
                inner.load_site = inner.load_site or site

    def operations(
        self, stmt: st.Store | st.Atomic | st.Let, times: float, site: int, env: Env
    ) -> None:
        """The floating-point work of a statement; arithmetic on indices is free here."""
        lanes = max(stmt.value.dtype.lanes, 1)
        nodes = dict.fromkeys(each for each in walk(stmt.value) if isinstance(each, Expr))
        costs = {each: cost_of(each, self.fast_math) for each in nodes if each.dtype.is_float}
        parts = {each: distinct(each, self.unrolled, env) for each, cost in costs.items() if cost}
        free = fused(stmt.value, parts)
        for node in (each for each in parts if each not in free):
            cost = costs[node]
            if cost and cost.kind == "division" and self.fast_math and isinstance(node, Binary):
                part = distinct(node.b, self.unrolled, env)
                self.spend(site, RECIPROCAL, times * lanes * part)
                cost = Cost("arithmetic", 1.0)
            if cost:
                self.spend(site, cost, times * lanes * parts[node])
        if isinstance(stmt, st.Store) and self.loops and stmt.buffer.dtype.is_float:
            loop = self.loops[-1]
            same = any(
                isinstance(x, Load) and x.buffer is stmt.buffer and x.indices == stmt.indices
                for x in walk(stmt.value)
            )
            fixed = not any(depends_on(x, frozenset({loop.loop.var})) for x in stmt.indices)
            if same and fixed and times == loop.trips:  # else unrolled: several sums go on at once
                loop.sums = loop.sums or site

    def spend(self, site: int, cost: Cost, times: float) -> None:
        spent = self.work.spent.setdefault((site, cost.kind), Spent())
        made = times * self.threads
        spent.slots += made * cost.slots
        spent.count += made
        spent.special += made * cost.special
        spent.others += made * cost.others


def _variables(value: Expr) -> set[Var]:
    return {node for node in walk(value) if isinstance(node, Var)}


def _waits(loop: _Loop) -> Iterator[Wait]:
    """What each iteration of a loop waits for."""
    if loop.loads == "shared" and loop.meets:
        yield Wait("load", loop.site, loop.trips, sites=frozenset(loop.sites))
    elif loop.issues and loop.pending >= 0:
        yield Wait("ahead", loop.site, loop.trips, loop.pending + 1)
    elif ahead := [_ahead(loop, barrier) for barrier in loop.waited if barrier in loop.phases]:
        first = min(ahead)
        kind = "ahead" if first else "load"
        yield Wait(kind, loop.site, loop.trips, first, frozenset(loop.sites))
    elif loop.loads:
        yield Wait("element", loop.load_site, loop.trips)
    elif loop.sums:
        yield Wait("sum", loop.sums, loop.trips)


def _ahead(loop: _Loop, barrier: Buffer) -> int:
    """How many phases of `barrier` have been started when an iteration waits for one: those in
    front of a loop that starts one in each iteration. Where others start them, all but the one
    that is waited for.
    """
    before, after = loop.begun.get(barrier, 0), loop.phases.get(barrier, 0)
    if after > before:
        return before
    return (const_int(barrier.shape[0]) or 1) - 1
