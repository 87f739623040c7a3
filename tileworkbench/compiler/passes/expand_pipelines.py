"""Pipelined loops become ordinary ones: buffers in several versions, a prologue that fills them,
and waits for exactly the copies that are needed.

A statement of stage s works `last stage - s` iterations ahead of the loop variable, while there are
iterations left; nothing is peeled off at the end, so each operator is emitted once. Asynchronous
copies are committed in groups, one per run of copies in the schedule and empty ones too, so that
every wait count is a constant.

Before::

    for k in T.Pipelined(n, num_stages=3, order=(0, 1), stage=(0, 2)):
        T.async_copy(T.address_of(A_shared[tx, 0]), T.address_of(A[k, tx, 0]), elements=8)
        C_local[0] = C_local[0] + A_shared[tx, 3]

After::

    (the copies of iterations 0 and 1, each followed by a commit)
    for k in T.serial(n):
        version = k % 3
        version_1 = (k + 2) % 3
        T.wait_group(pending=1)
        if k + 2 < n:
            T.async_copy(T.address_of(A_shared[version_1, tx, 0]), ...A[k + 2, tx, 0]...)
        T.commit_group()
        C_local[0] = C_local[0] + A_shared[version, tx, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import ResourceError, TileValueError
from tileworkbench.compiler.ir.build import add, binary, const, int_const, sub
from tileworkbench.compiler.ir.expr import Address, Buffer, Const, Expr, Load, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    buffers_of,
    statements,
    substitute,
    variables,
    with_body,
)
from tileworkbench.compiler.ir.simt import CommitGroup, WaitGroup
from tileworkbench.compiler.ir.stmt import (
    Alias,
    Alloc,
    Atomic,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    items,
    seq,
)
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.schedule.pipelines import Item, Schedule

Index = Callable[[Buffer], Expr]
_MOST_STAGES = 128


def expand_pipelines(program: Program) -> Program:
    """Turn every pipelined loop into a prologue and a serial loop.

    Raises `ResourceError` for more stages than code or shared memory could hold.
    """
    names, ranges = Names(program), Ranges(program)
    versions: dict[Buffer, int] = {}
    for stmt in statements(program.body):
        if isinstance(stmt, Pipelined):
            _check_stages(stmt, program)
            for buffer, number in _versions(stmt, program).items():
                versions[buffer] = max(number, versions.get(buffer, 1))
    expanded: dict[Buffer, Buffer] = {}

    def own(loop: Pipelined) -> dict[Buffer, Buffer]:
        """The buffers whose version is the loop's iteration: not those of a loop inside."""
        needed = _versions(loop, program)
        inside = {
            buffer
            for stmt in statements(loop.body)
            if isinstance(stmt, Pipelined)
            for buffer in _versions(stmt, program)
        }
        for buffer in buffers_of(loop.body):
            if buffer in versions and buffer not in inside:
                needed[buffer] = versions[buffer]
        return {buffer: _versioned(buffer, number) for buffer, number in needed.items()}

    def expand(stmt: Stmt) -> Stmt:
        """Loops outside first: a loop inside is one item of their schedule."""
        if isinstance(stmt, Pipelined):
            versioned = own(stmt)
            expanded.update(versioned)
            stmt = _Expansion(stmt, versioned, names, ranges).run()
        made = stmt.map_children(lambda child: expand(child) if isinstance(child, Stmt) else child)
        return seq(made.stmts) if isinstance(made, Seq) and made is not stmt else made

    body = expand(program.body)
    if not expanded:
        return with_body(program, body)
    # A loop that is not pipelined uses one version for itself.
    return with_body(program, _with_versions(body, expanded, lambda buffer: int_const(0)))


def _check_stages(loop: Pipelined, program: Program) -> None:
    stages = max(loop.stage, default=0) + 1
    if stages > _MOST_STAGES:
        raise ResourceError(
            f"a pipeline of {stages} stages needs as many versions of its tiles, and at most "
            f"{_MOST_STAGES} are possible",
            program.span(loop.site),
            hint="use fewer stages in T.Pipelined: shared memory holds a few",
        )


def _versioned(buffer: Buffer, number: int) -> Buffer:
    layout = buffer.layout
    if layout is not None:
        if not isinstance(layout, Layout):
            raise TypeError(f"'{buffer.name}' is not in shared memory")
        layout = layout.expand((number,))
    return replace(buffer, shape=(int_const(number), *buffer.shape), layout=layout)


def _versions(loop: Pipelined, program: Program) -> dict[Buffer, int]:
    """How many iterations' worth of each shared buffer is alive at once, where it is more than one.

    Raises `TileValueError` when a register would have to be kept for several iterations.
    """
    versions: dict[Buffer, int] = {}
    for buffer, (stages, number) in Schedule(loop).lives().items():
        if not stages or buffer.scope == "global":
            continue
        if buffer.scope != "shared":
            raise TileValueError(
                f"the schedule keeps '{buffer.name}' for {stages + 1} iterations, which only "
                "a shared buffer can be",
                program.span(loop.site),
                hint="give the statements that write and read it the same stage",
            )
        if number > 1:
            versions[buffer] = number
    return versions


class _Expansion:
    def __init__(
        self, loop: Pipelined, versioned: Mapping[Buffer, Buffer], names: Names, ranges: Ranges
    ) -> None:
        self.loop = loop
        self.versioned = versioned
        self.names = names
        self.ranges = ranges
        self.schedule = Schedule(loop)
        self.depth = self.schedule.depth
        self.lets = [stmt for stmt in items(loop.body) if isinstance(stmt, Let)]
        self.bound: set[Var] = set()  # scalars of the loop's own iteration that are there already
        self.allocs = [stmt for stmt in items(loop.body) if isinstance(stmt, Alloc | Alias)]

    def run(self) -> Stmt:
        loop, var = self.loop, self.loop.var
        body: list[Stmt] = []
        shifts = self.version_lets(var, body)
        body += self.step(None, shifts)
        site = loop.site
        prologue: list[Stmt] = []
        for step in range(self.depth):
            prologue += self.step(step, {})
        serial = counting(var, loop.stop, seq(body), site, loop.start)
        tail: list[Stmt] = [] if self.schedule.all_consumed() else [WaitGroup(0, site=site)]
        return seq([*self.allocs, *prologue, serial, *tail])

    def version_lets(self, var: Var, body: list[Stmt]) -> dict[tuple[int, int], Expr]:
        """Names for the version index of each (distance ahead, number of versions) in the loop."""
        lets: dict[tuple[int, int], Expr] = {}
        for item in self.schedule.items:
            ahead = self.depth - item.stage
            for buffer in item.effects.reads | item.effects.writes:
                if buffer in self.versioned:
                    number = self.number(buffer)
                    if (ahead, number) not in lets:
                        value = self.version(add(var, const(ahead, var.dtype)), number)
                        name = self.names.var("version", value.dtype)
                        body.append(Let(name, value, site=self.loop.site))
                        lets[ahead, number] = name
        return dict(sorted(lets.items(), key=lambda entry: entry[0]))

    def number(self, buffer: Buffer) -> int:
        extent = self.versioned[buffer].shape[0]
        return int(extent.value) if isinstance(extent, Const) else 1

    def version(self, iteration: Expr, number: int) -> Expr:
        distance = sub(iteration, self.loop.start)
        return binary("floormod", distance, const(number, distance.dtype))

    # One step: every statement once, each on its own iteration

    def step(self, number: int | None, versions: dict[tuple[int, int], Expr]) -> list[Stmt]:
        """The statements of step `number` of the prologue, or of the loop for None."""
        stmts: list[Stmt] = []
        groups = self.schedule.groups
        self.bound = set()
        guaranteed = -self.schedule.group_count * (
            self.depth + 1
        )  # groups of this step count from 0
        pending = self.schedule.waits()
        top = self.top_wait(pending)
        if top is not None and number is None:
            stmts.append(WaitGroup(top, site=self.loop.site))
            guaranteed = -1 - top
        for at, item in enumerate(self.schedule.items):
            needed = pending.get(at)
            committed = self.schedule.committed_before(at)
            if needed is not None and needed > guaranteed and self.runs(item, number):
                stmts.append(WaitGroup(committed - 1 - needed, site=item.stmt.site))
                guaranteed = needed
            if self.runs(item, number):
                self.append(stmts, self.instance(item, number, versions))
            group = groups.get(at)
            if group is not None and groups.get(at + 1) != group:
                stmts.append(CommitGroup(site=item.stmt.site))
        return stmts

    @staticmethod
    def runs(item: Item, number: int | None) -> bool:
        """Whether the statement has an iteration to work on in that step of the prologue."""
        return number is None or item.stage <= number

    def top_wait(self, needed: dict[int, int]) -> int | None:
        """How many groups may be pending at the start of a step, for its first statement that
        waits: waiting before the step's own copies are issued lets one barrier serve both.
        """
        first = next((needed[at] for at in sorted(needed) if needed[at] < 0), None)
        return None if first is None else -1 - first

    @staticmethod
    def append(stmts: list[Stmt], made: list[Stmt]) -> None:
        """Add statements; one under the same condition as the last joins it."""
        last = stmts[-1] if stmts else None
        for stmt in made:
            if isinstance(stmt, If) and isinstance(last, If) and stmt.cond is last.cond:
                last = stmts[-1] = replace(last, then=seq([last.then, stmt.then]))
            else:
                stmts.append(stmt)
                last = stmt

    def instance(
        self, item: Item, number: int | None, versions: dict[tuple[int, int], Expr]
    ) -> list[Stmt]:
        """The statement on its iteration, under the condition that there is one."""
        loop = self.loop
        ahead = self.depth - item.stage if number is None else number - item.stage
        base = loop.var if number is None else loop.start
        iteration = add(base, const(ahead, base.dtype))
        current = number is None and not ahead
        lets = [let for let in self.replayed(item.stmt) if let.var not in self.bound]
        if current:
            self.bound.update(let.var for let in lets)
        body = substitute(seq([*lets, item.stmt]), {loop.var: iteration})
        if not current:
            body = with_new_names(body, self.names.fresh)  # it occurs a second time
        body = self.in_version(body, iteration, ahead, versions if number is None else {})
        if current:
            return list(items(body))
        inside = binary("lt", iteration, loop.stop)
        if self.ranges.proves(inside) and number is not None:
            return list(items(body))
        return [If(inside, body, site=item.stmt.site)]

    def replayed(self, stmt: Stmt) -> list[Let]:
        """The scalars of the body that the statement needs, in order."""
        wanted = set(variables(stmt))
        lets: list[Let] = []
        for let in reversed(self.lets):
            if let.var in wanted:
                wanted.update(variables(let.value))
                lets.append(let)
        return lets[::-1]

    def in_version(
        self, body: Stmt, iteration: Expr, ahead: int, versions: dict[tuple[int, int], Expr]
    ) -> Stmt:
        """`body` with the version of its iteration as the first index of versioned buffers."""

        def index(buffer: Buffer) -> Expr:
            number = self.number(buffer)
            known = versions.get((ahead, number))
            return self.version(iteration, number) if known is None else known

        return _with_versions(body, self.versioned, index)


def _with_versions(body: Stmt, versioned: Mapping[Buffer, Buffer], index: Index) -> Stmt:
    """`body` with versioned buffers, accessed at the version `index` of each."""

    def change(node: object) -> object:
        if isinstance(node, Load | Address) and node.buffer in versioned:
            indices = (index(node.buffer), *node.indices)
            buffer = versioned[node.buffer]
            if isinstance(node, Address):
                return Address(buffer, indices)
            return Load(buffer, indices, node.predicate, node.safe)
        return node

    def change_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Atomic) and stmt.buffer in versioned:
            indices = (index(stmt.buffer), *stmt.indices)
            return replace(stmt, buffer=versioned[stmt.buffer], indices=indices)
        if isinstance(stmt, Alloc) and stmt.buffer in versioned:
            return replace(stmt, buffer=versioned[stmt.buffer])
        return stmt

    return Rewriter(change, change_stmt)(body)  # type: ignore[no-any-return]
