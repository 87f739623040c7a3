"""Schedules that the user gives a pipelined loop, with `order` and `stage`: are they possible?"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.pipelines import Item, schedule_of, scheduled


def checked_schedule(
    loop: Pipelined, views: dict[Buffer, Buffer], outside: set[Buffer], program: Program
) -> Pipelined:
    """The loop with the schedule that the user gave it, its stages from 0 on.

    `views` maps each view to the buffer whose memory it is; buffers of `outside` are used outside
    the loop too. Raises `TileValueError` where entries are missing or wrong, or where the schedule
    breaks a dependence.
    """
    span = program.span(loop.site)
    count = len(scheduled(loop.body))
    order = loop.order or tuple(range(count))
    stage = loop.stage or (0,) * count
    for name, values in (("order", order), ("stage", stage)):
        if len(values) != count:
            raise TileValueError(
                f"'{name}' has {len(values)} entries for {count} statements of the loop",
                span,
                hint="assignments of scalars and allocations take no entry",
            )
    if len(set(order)) != len(order):
        raise TileValueError(f"'order' has an entry twice: {order}", span)
    if min(stage) < 0:
        raise TileValueError(f"'stage' has a negative entry: {stage}", span)
    _check_dependences(loop, schedule_of(loop, views), outside, program)
    base = min(stage)
    return replace(loop, order=tuple(order), stage=tuple(value - base for value in stage))


def _check_dependences(
    loop: Pipelined, schedule: list[Item], outside: set[Buffer], program: Program
) -> None:
    for at, first in enumerate(schedule):
        for later, second in enumerate(schedule[at + 1 :], at + 1):
            shared = first.effects.conflicts(second.effects)
            if shared is not None and not first.comes_before(second):
                lines = _lines(program, first.stmt, second.stmt)
                raise TileValueError(
                    f"the schedule runs statement {later} before statement {at}, which it depends "
                    f"on through '{shared.name}'{lines}",
                    program.span(loop.site),
                    hint="a statement needs a later stage than what it reads, or the same stage "
                    "and a later order",
                )
            kept_longer = shared in outside and first.stage < second.stage
            if shared is not None and shared.scope == "shared" and kept_longer:
                raise TileValueError(
                    f"the schedule keeps '{shared.name}' for several iterations, and it is used "
                    "outside the loop or through a view",
                    program.span(loop.site),
                    hint="give the statements that write and read it the same stage",
                )


def _lines(program: Program, *stmts: Stmt) -> str:
    spans = [program.span(stmt.site) for stmt in stmts]
    if any(span is None for span in spans):
        return ""
    return f" (lines {', '.join(str(span.line) for span in spans if span is not None)})"
