"""Control flow as Python closures, by masks where lanes may disagree.

`Frame.mask` are the lanes that execute a statement, `Frame.broke` those that have left the loop
around it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.sim.expressions import Evaluate
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.values import Value, mask_and, mask_or, mask_without

Execute = Callable[[Frame], None]


def in_sequence(stmts: list[Execute]) -> Execute:
    """One after another, as long as some lane goes on."""

    def sequence(frame: Frame) -> None:
        for stmt in stmts:
            stmt(frame)
            if frame.mask is False:
                return

    return sequence


def branch(cond: Evaluate, then: Execute, orelse: Execute | None) -> Execute:
    """Where lanes disagree, both sides one after the other, each by its lanes."""

    def choose(frame: Frame) -> None:
        chosen = cond(frame)
        if type(chosen) is not np.ndarray:
            if chosen:
                then(frame)
            elif orelse is not None:
                orelse(frame)
            return
        outer = frame.mask
        frame.mask = mask_and(outer, chosen)
        if frame.mask is not False:
            then(frame)
        after, frame.mask = frame.mask, mask_without(outer, chosen)
        if frame.mask is not False and orelse is not None:
            orelse(frame)
        frame.mask = mask_or(after, frame.mask)

    return choose


def counted_loop(slot: int, bounds: tuple[Evaluate, ...], body: Execute, name: str) -> Execute:
    """The closure of a serial loop over the variable `name` in `slot`."""

    def loop(frame: Frame) -> None:
        start, stop, step = [bound(frame) for bound in bounds]
        outer, outer_broke, frame.broke = frame.mask, frame.broke, False
        if any(type(bound) is np.ndarray for bound in (start, stop, step)):
            _loop_by_lanes(frame, slot, (start, stop, step), body)
        else:
            if step == 0:
                raise located(
                    RunError, "the step of a loop is zero", frame.recorder.program.span(frame.site)
                )
            active, edges, numbers = outer, frame.edges, range(start, stop, step)
            for number in numbers:
                frame.values[slot], frame.mask = number, active
                if len(numbers) > 1:
                    edge = (name, number, number == start, number == numbers[-1])
                    frame.edges = (*edges, edge)
                body(frame)
                active = mask_without(active, frame.broke)
                if active is False:
                    break
            frame.edges = edges
        frame.mask, frame.broke = outer, outer_broke

    return loop


def _loop_by_lanes(frame: Frame, slot: int, bounds: tuple[Value, ...], body: Execute) -> None:
    """A loop whose bounds differ from lane to lane: it runs until the last lane has ended."""
    start, stop, step = [np.asarray(bound, np.int64) for bound in bounds]
    dtype = np.result_type(*[bound for bound in bounds if type(bound) is np.ndarray])
    if np.any(step == 0):
        raise located(
            RunError, "the step of a loop is zero", frame.recorder.program.span(frame.site)
        )
    trips = np.maximum(-((start - stop) // step), 0)
    active = frame.mask
    for trip in range(int(trips.max(initial=0))):
        active = mask_and(active, trip < trips)
        if active is False:
            return
        frame.values[slot], frame.mask = (start + trip * step).astype(dtype), active
        body(frame)
        active = mask_without(active, frame.broke)


def while_loop(cond: Evaluate, body: Execute) -> Execute:
    """Repeated until no lane goes on. Raises `RunError` beyond the limit of the options."""

    def loop(frame: Frame) -> None:
        outer, outer_broke, frame.broke = frame.mask, frame.broke, False
        active, site = outer, frame.site
        while active is not False:
            frame.mask, frame.site = active, site
            active = mask_and(active, cond(frame))
            if active is False:
                break
            frame.while_iterations += 1
            if frame.while_iterations > frame.options.loop_limit:
                raise located(
                    RunError,
                    f"'while' loops ran more than {frame.options.loop_limit} iterations",
                    frame.recorder.program.span(site),
                    "check that the loop ends, or raise SimOptions.loop_limit",
                )
            frame.mask = active
            body(frame)
            active = mask_without(active, frame.broke)
        frame.mask, frame.broke = outer, outer_broke

    return loop


def leave_loop(frame: Frame) -> None:
    """`break`, by the lanes that execute it."""
    frame.broke, frame.mask = mask_or(frame.broke, frame.mask), False


def next_iteration(frame: Frame) -> None:
    """`continue`: until the next iteration no lane that executes it does anything."""
    frame.mask = False
