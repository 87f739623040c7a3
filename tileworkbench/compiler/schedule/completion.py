"""How the operations that a pipelined loop starts are completed, and who waits for them.

An engine completes its work in one of two ways: in groups that each thread counts
(`commit_groups`), or at memory barriers (`phases`). A way of completion adds statements to the
expanded loop at the places that `Completion` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.commit_groups import CommitGroups
from tileworkbench.compiler.schedule.phases import Filling, Phases
from tileworkbench.compiler.schedule.pipelines import Schedule, Step


class Completion(Protocol):
    """What one way of completion adds to one loop.

    Statements for an iteration that may not exist stand under `Step.condition`; neighbours under
    one condition are joined. `begin` opens each step; the loop's own step comes first, then those
    of the prologue.
    """

    def prepare(self) -> Sequence[Stmt]:
        """Statements to put in front of the prologue, once."""

    def begin(self, step: Step) -> Sequence[Stmt]:
        """Statements to put at the start of a step, in front of its copies."""

    def before(self, at: int, step: Step) -> Sequence[Stmt]:
        """Statements to put in front of statement `at` of the schedule."""

    def behind(self, at: int, step: Step) -> Sequence[Stmt]:
        """Statements to put behind statement `at` of the schedule."""

    def finish(self) -> Sequence[Stmt]:
        """Statements to put behind the loop."""


def completions_of(
    loop: Pipelined, schedule: Schedule, fillings: Sequence[Filling]
) -> list[Completion]:
    """The ways in which the loop's operations complete; `fillings` tell memory barriers."""
    phases = [Phases(loop, schedule, fillings)] if fillings else []
    return [CommitGroups(loop, schedule), *phases]
