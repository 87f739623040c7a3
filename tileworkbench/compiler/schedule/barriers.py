"""Where barriers go so that no hazard is left: in front of the first statement that has one.

A barrier in front of a loop is dropped again where those inside it serve. Where no barrier can be,
the kernel is refused, or (with `strict` false) the barrier is one of the threads that are there.
"""

from __future__ import annotations

from collections.abc import Iterable

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import BarrierArrive, BarrierWait, Role
from tileworkbench.compiler.ir.stmt import For, If, Kernel, Seq, Stmt, While
from tileworkbench.compiler.schedule.hazards import Hazard, Hazards


class BarrierPlaces:
    """The statements of a kernel that need a barrier in front, by `id`: `needed`, and those of them
    that not all threads reach: `divergent`. `strict` is as in `ThreadOrder`.
    """

    def __init__(
        self, kernel: Kernel, program: Program, ranges: Ranges, lanes: int, strict: bool
    ) -> None:
        self.kernel, self.program, self.strict = kernel, program, strict
        self.hazards = Hazards(kernel, ranges, lanes, strict, self._place)
        self.divergent: set[int] = set()
        self._free: set[int] = set()  # loops that get no barrier in front

    @property
    def needed(self) -> set[int]:
        """The statements with a barrier in front."""
        return self.hazards.barriers

    def find(self) -> None:
        """Fill `needed` and `divergent`. Raises `UnsupportedError` where no barrier can be."""
        self.hazards.find()
        self._drop_entries()
        if self.strict:
            self._check_turns()

    def decides_late(self, stmt: Stmt) -> bool:
        """Whether a condition or bound of `stmt` reads what other threads write in its body."""
        between = self.hazards.between
        own = between.accesses.own(stmt) if between.places else ()
        return bool(own) and between.conflict(list(own), between.of(stmt)[len(own) :]) is not None

    def _place(self, hazard: Hazard) -> bool:
        if hazard.branch is None:
            return id(hazard.stmt) not in self._free
        if self.strict:
            self._refuse(hazard.branch)
        self.divergent.add(id(hazard.stmt))
        return True

    def _drop_entries(self) -> None:
        """A barrier in front of a loop is not needed where the loop's own barriers serve."""
        hazards = self.hazards
        for loop in [s for s in statements(self.kernel.body) if isinstance(s, For | While)]:
            before = hazards.barriers
            if id(loop) not in before or not hazards.exchanges(loop, hazards.between.of(loop)):
                continue  # what is in a loop without barriers is only checked in front of it
            others = before - {id(loop)}
            hazards.barriers = set(others)
            self._free.add(id(loop))
            hazards.find()
            if hazards.barriers != others:
                hazards.barriers = before
                self._free.remove(id(loop))

    def _refuse(self, stmt: Stmt) -> None:
        raise UnsupportedError(
            "threads exchange data through memory under a condition that is not the same for all "
            "of them, where no barrier can be",
            self.program.span(stmt.site),
            hint="end the `if` before the data are read, or let its condition name whole warps in "
            "a row"
            if isinstance(stmt, If)
            else "end the loop before the data are read, or let all threads leave it at once",
        )

    def _check_turns(self) -> None:
        """Refuse a barrier of all threads behind a role that waits for arrivals in front of which
        the barrier stands: nobody would ever pass it.
        """
        for body in statements(self.kernel.body):
            stmts = body.stmts if isinstance(body, Seq) else ()
            for at, stmt in enumerate(stmts):
                if id(stmt) in self.needed:
                    late = _barriers(stmts[at:], BarrierArrive)
                    late -= _barriers(stmts[:at], BarrierArrive)
                    roles = [role for role in stmts[:at] if isinstance(role, Role)]
                    if _barriers(roles, BarrierWait) & late:
                        self._refuse_turns(stmt)

    def _refuse_turns(self, stmt: Stmt) -> None:
        raise UnsupportedError(
            "this uses memory that a role in front of it uses too, and cannot wait for that role, "
            "which waits for one behind this",
            self.program.span(stmt.site),
            hint="let both roles end before it, or order it behind the role with a memory barrier",
        )


def _barriers(stmts: Iterable[Stmt], kind: type[BarrierArrive] | type[BarrierWait]) -> set[Buffer]:
    """The memory barriers at which somebody arrives, or waits, below `stmts`."""
    below = (each for stmt in stmts for each in statements(stmt))
    return {each.barrier.buffer for each in below if isinstance(each, kind)}
