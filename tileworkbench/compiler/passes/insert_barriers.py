"""Put a barrier wherever one thread must not go on before others have written or read.

`schedule/barriers.py` finds these places. A condition that reads what its branches write is
evaluated into a scalar first. From here on threads run on their own: the program enters the SIMT
stage.

Before::

    T.wait_group(pending=0)
    T.load_matrix(T.address_of(a[0]), T.address_of(A_shared[...]), count=4, transpose=False)

After::

    T.wait_group(pending=0)
    T.sync_threads()
    T.load_matrix(T.address_of(a[0]), T.address_of(A_shared[...]), count=4, transpose=False)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import all_lanes, binary, int_const
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import Rewriter, statements
from tileworkbench.compiler.ir.simt import (
    LANGUAGE_WARP,
    Barrier,
    BarrierInit,
    Fence,
    Role,
    Start,
    WarpBarrier,
)
from tileworkbench.compiler.ir.stmt import Alloc, If, Kernel, Seq, Stmt, seq
from tileworkbench.compiler.lower.thread_loops.decisions import with_decisions_apart
from tileworkbench.compiler.machine.machine import Machine
from tileworkbench.compiler.schedule.barriers import BarrierPlaces
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class InsertBarriers:
    """Place the barriers of every launch; the program is in the SIMT stage from here on."""

    target: Target

    def __call__(self, program: Program) -> Program:
        ranges, names = Ranges(program), Names(program)

        def change(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel):
                return stmt
            return _placed(stmt, program, ranges, names, self.target.machine)

        body = Rewriter(rewrite_stmt=change)(program.body)
        return replace(program, body=body, stage=Stage.SIMT)


def with_barriers(kernel: Kernel, program: Program, names: Names) -> Kernel:
    """`kernel`, of a program in any stage, with the barriers that its single threads need.

    All threads wait for each other at tile operators. In code that only some threads execute, a
    barrier is one of their warps: loops over threads need no more.
    """
    ranges = Ranges(replace(program, body=kernel))
    return _placed(kernel, program, ranges, names, None)


def _placed(
    kernel: Kernel, program: Program, ranges: Ranges, names: Names, machine: Machine | None
) -> Kernel:
    lanes, strict = (LANGUAGE_WARP, False) if machine is None else (machine.lanes, True)
    places = BarrierPlaces(kernel, program, ranges, lanes, strict)
    body = with_decisions_apart(kernel.body, places.decides_late, names)
    if body is not kernel.body:
        kernel = replace(kernel, body=body)
        ranges = Ranges(replace(program, body=kernel))
        places = BarrierPlaces(kernel, program, ranges, lanes, strict)
    places.find()
    return replace(kernel, body=_Placement(kernel, program, places, machine).run())


class _Placement:
    """Writes the barriers down: those of a `machine`, else of loops over threads."""

    def __init__(
        self, kernel: Kernel, program: Program, places: BarrierPlaces, machine: Machine | None
    ) -> None:
        self.kernel, self.program, self.machine = kernel, program, machine
        self.needed, self.divergent = places.needed, places.divergent
        self.numbers: dict[tuple[int, int], int] = {}  # barriers of roles, by start and extent

    def run(self) -> Stmt:
        """The kernel's body with its barriers."""
        return self.rebuild(self.kernel.body, None)

    def rebuild(self, stmt: Stmt, role: Role | None) -> Stmt:
        own = stmt if isinstance(stmt, Role) else role
        if isinstance(stmt, Seq):
            made = seq(self.initialised([self.rebuild(child, own) for child in stmt.stmts]))
        else:
            made = stmt.map_children(
                lambda child: self.rebuild(child, own) if isinstance(child, Stmt) else child
            )
        if id(stmt) not in self.needed:
            return made
        return seq([self.barrier(stmt, role), made])

    def initialised(self, stmts: list[Stmt]) -> list[Stmt]:
        """One thread initialises the memory barriers, and all others wait until it has."""
        if self.machine is None or not any(isinstance(stmt, BarrierInit) for stmt in stmts):
            return stmts
        first = next(at for at, stmt in enumerate(stmts) if isinstance(stmt, BarrierInit))
        inits: list[Stmt] = [stmt for stmt in stmts if isinstance(stmt, BarrierInit)]
        others = [stmt for stmt in stmts[first:] if not isinstance(stmt, BarrierInit)]
        alone = binary("eq", self.kernel.thread_vars[0], int_const(0))
        site = inits[0].site
        barrier = Barrier(site=site)
        if any(isinstance(stmt, Start) and stmt.barrier for stmt in statements(self.kernel.body)):
            inits.append(Fence("async", site=site))  # engines see the barriers, too
        allocs = [stmt for stmt in others if isinstance(stmt, Alloc)]
        rest = [stmt for stmt in others if not isinstance(stmt, Alloc)]
        return [*stmts[:first], *allocs, If(alone, seq(inits), site=site), barrier, *rest]

    def barrier(self, stmt: Stmt, role: Role | None) -> Stmt:
        """All threads of the block, or of the role under a number of its own."""
        if self.machine is None and (role is not None or id(stmt) in self.divergent):
            return WarpBarrier(all_lanes(LANGUAGE_WARP), site=stmt.site)
        if role is None or self.machine is None:
            return Barrier(site=stmt.site)
        lanes = self.machine.lanes
        if role.start % lanes or role.extent % lanes:
            raise UnsupportedError(
                f"threads {role.start} to {role.start + role.extent - 1} exchange data, for which "
                "they would have to wait for each other, and only whole warps can do that",
                self.program.span(stmt.site),
                hint=f"let the groups of threads begin at multiples of {lanes}",
            )
        return Barrier(self.number(role, stmt, self.machine), role.extent, site=stmt.site)

    def number(self, role: Role, stmt: Stmt, machine: Machine) -> int:
        """The barrier of the role's threads: one that nobody else uses; the block has barrier 0."""
        threads = (role.start, role.extent)
        if threads not in self.numbers:
            barriers = [s for s in statements(self.kernel.body) if isinstance(s, Barrier)]
            used = {*(barrier.id for barrier in barriers), *self.numbers.values()}
            count = machine.block_barriers
            free = [number for number in range(count - 1, 0, -1) if number not in used]
            if not free:
                raise UnsupportedError(
                    f"a block has {count} barriers, which its groups of threads need more of",
                    self.program.span(stmt.site),
                    hint="use fewer groups that exchange data at once",
                )
            self.numbers[threads] = free[0]
        return self.numbers[threads]
