"""Pipelined loops become ordinary ones: buffers in several versions, a prologue that fills them,
and waits for exactly the copies that are needed.

A statement of stage s works `last stage - s` iterations ahead of the loop variable, while there are
iterations left; nothing is peeled off at the end, so each operator is emitted once. What completes
asynchronous copies, and where statements wait for them, comes from `schedule/completion`.

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import int_const, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import (
    buffers_of,
    statements,
    substitute,
    variables,
    with_body,
)
from tileworkbench.compiler.ir.simt import TensorMap
from tileworkbench.compiler.ir.stmt import (
    Alias,
    Alloc,
    For,
    If,
    Kernel,
    Let,
    Seq,
    Stmt,
    While,
    items,
    seq,
)
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.completion import completions_of
from tileworkbench.compiler.schedule.phases import Filling, fillings_of
from tileworkbench.compiler.schedule.pipelines import Item, Schedule, Step
from tileworkbench.compiler.schedule.versions import (
    in_versions,
    needed_versions,
    version_count,
    version_of,
    with_versions,
)


def expand_pipelines(program: Program) -> Program:
    """Turn every pipelined loop into a prologue and a serial loop.

    Raises `ResourceError` for more stages than code or shared memory could hold.
    """
    names, ranges = Names(program), Ranges(program)
    versions: dict[Buffer, int] = {}
    loops = [stmt for stmt in statements(program.body) if isinstance(stmt, Pipelined)]
    for buffer, number in (pair for s in loops for pair in needed_versions(s, program).items()):
        versions[buffer] = max(number, versions.get(buffer, 1))
    expanded: dict[Buffer, Buffer] = {}
    fillings: list[Filling] = []  # of the kernel at hand
    maps = {s.buffer: s for s in statements(program.body) if isinstance(s, TensorMap)}

    def expand(stmt: Stmt, repeated: bool = False) -> Stmt:
        """Loops outside first: a loop inside is one item of their schedule."""
        if isinstance(stmt, Pipelined):
            rings = _own(stmt, versions, program)
            own = fillings_of(Schedule(stmt), rings, maps, repeated, names.fresh)
            stmt = _Expansion(stmt, rings, own, names, ranges).run()
            expanded.update(rings)
            fillings.extend(own)
        repeated = repeated or isinstance(stmt, For | While)
        made = stmt.map_children(
            lambda child: expand(child, repeated) if isinstance(child, Stmt) else child
        )
        if isinstance(made, Kernel):
            first = [stmt for each in fillings for stmt in each.initialised()]
            fillings.clear()
            return replace(made, body=seq([*first, made.body])) if first else made
        return seq(made.stmts) if isinstance(made, Seq) and made is not stmt else made

    body = expand(program.body)
    if not expanded:
        return with_body(program, body)
    # A loop that is not pipelined uses one version for itself.
    return with_body(program, with_versions(body, expanded, lambda buffer: int_const(0)))


def _own(loop: Pipelined, versions: Mapping[Buffer, int], program: Program) -> dict[Buffer, Buffer]:
    """The buffers whose version is the loop's iteration: not those of a loop inside."""
    needed = needed_versions(loop, program)
    inside = {
        buffer
        for stmt in statements(loop.body)
        if isinstance(stmt, Pipelined)
        for buffer in needed_versions(stmt, program)
    }
    for buffer in buffers_of(loop.body):
        if buffer in versions and buffer not in inside:
            needed[buffer] = versions[buffer]
    return {buffer: in_versions(buffer, number) for buffer, number in needed.items()}


class _Expansion:
    def __init__(
        self,
        loop: Pipelined,
        rings: Mapping[Buffer, Buffer],
        fillings: Sequence[Filling],
        names: Names,
        ranges: Ranges,
    ) -> None:
        self.loop, self.rings, self.fillings = loop, rings, fillings
        self.names, self.ranges = names, ranges
        self.schedule = Schedule(loop)
        self.completions = completions_of(loop, self.schedule, fillings)
        self.lets = [stmt for stmt in items(loop.body) if isinstance(stmt, Let)]
        self.bound: set[Var] = set()  # scalars of the loop's own iteration that are there already

    def run(self) -> Stmt:
        loop, depth = self.loop, self.schedule.depth
        step = Step(loop, depth, None, self.ranges)
        lets, versions = self.version_lets(step)
        body = seq([*lets, *self.step(step, versions)])
        stmts: list[Stmt] = [s for s in items(loop.body) if isinstance(s, Alloc | Alias)]
        for completion in self.completions:
            stmts += completion.prepare()
        for number in range(depth):
            stmts += self.step(Step(loop, depth, number, self.ranges), {})
        stmts.append(counting(loop.var, loop.stop, body, loop.site, loop.start))
        for completion in self.completions:
            stmts += completion.finish()
        return seq(stmts)

    def version_lets(self, step: Step) -> tuple[list[Stmt], dict[tuple[int, int], Expr]]:
        """Names for the version of each (iterations ahead, number of versions) in the loop."""
        lets: list[Stmt] = []
        versions: dict[tuple[int, int], Expr] = {}
        for item in self.schedule.items:
            used = item.effects.reads | item.effects.writes
            for buffer in sorted(used, key=lambda each: each.name):
                if buffer in self.rings:
                    number = version_count(self.rings[buffer])
                    if (step.ahead(item), number) not in versions:
                        value = version_of(step.iteration(item), self.loop, number)
                        name = self.names.var("version", value.dtype)
                        lets.append(Let(name, value, site=self.loop.site))
                        versions[step.ahead(item), number] = name
        return lets, versions

    def step(self, step: Step, versions: dict[tuple[int, int], Expr]) -> list[Stmt]:
        """Every statement once, each on its own iteration, and what completes operations."""
        stmts: list[Stmt] = []
        self.bound = set()
        for completion in self.completions:
            _append(stmts, completion.begin(step))
        for at, item in enumerate(self.schedule.items):
            for completion in self.completions:
                _append(stmts, completion.before(at, step))
            if step.runs(item):
                _append(stmts, self.instance(item, step, versions))
            for completion in self.completions:
                _append(stmts, completion.behind(at, step))
        return stmts

    def instance(
        self, item: Item, step: Step, versions: dict[tuple[int, int], Expr]
    ) -> Iterable[Stmt]:
        """The statement on its iteration, under the condition that there is one."""
        iteration = step.iteration(item)
        lets = [let for let in self.replayed(item.stmt) if let.var not in self.bound]
        if step.is_current(item):
            self.bound.update(let.var for let in lets)
        stmt = item.stmt
        for filling in self.fillings:
            if self.schedule.items[filling.at] is item:
                stmt = filling.started(stmt, sub(self.loop.var, self.loop.start))
        body = substitute(seq([*lets, stmt]), {self.loop.var: iteration})
        if not step.is_current(item):
            body = with_new_names(body, self.names.fresh)  # it occurs a second time

        def version(buffer: Buffer) -> Expr:
            number = version_count(self.rings[buffer])
            known = versions.get((step.ahead(item), number))
            return version_of(iteration, self.loop, number) if known is None else known

        body = with_versions(body, self.rings, version)
        condition = step.condition(item)
        return items(body) if condition is None else [If(condition, body, site=item.stmt.site)]

    def replayed(self, stmt: Stmt) -> list[Let]:
        """The scalars of the body that the statement needs, in order."""
        wanted = set(variables(stmt))
        lets: list[Let] = []
        for let in reversed(self.lets):
            if let.var in wanted:
                wanted.update(variables(let.value))
                lets.append(let)
        return lets[::-1]


def _append(stmts: list[Stmt], made: Iterable[Stmt]) -> None:
    """Add statements; one under the same condition as the last joins it."""
    last = stmts[-1] if stmts else None
    for stmt in made:
        if isinstance(stmt, If) and isinstance(last, If) and stmt.cond is last.cond:
            last = stmts[-1] = replace(last, then=seq([last.then, stmt.then]))
        else:
            stmts.append(stmt)
            last = stmt
