"""Layouts that contradict each other, told to the user: which operator wants which, what was tried,
what helps.
"""

from __future__ import annotations

from itertools import islice, product

from tileworkbench.compiler.diagnostics import LayoutError, Note
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.shared.names import operator_name
from tileworkbench.compiler.lower.threads.inference import Place
from tileworkbench.compiler.lower.threads.solver import Failure, Solver

_SAMPLE = 4  # elements shown of a layout


@dataclass(frozen=True, slots=True)
class LayoutDemand:
    """What one operator wants: `site` is its place (0: the user's annotation), `sample` the first
    elements of the layout as text.
    """

    operator: str
    site: int
    layout: Place | None
    reason: str
    sample: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LayoutExplanation:
    """A conflict as data: the tile, the demands that contradict each other, and the choices that
    were tried, each with the conflict that it led to.
    """

    buffer: str
    demands: tuple[LayoutDemand, ...]
    rejected: tuple[tuple[str, str], ...]


def describe_failure(failure: Failure, solver: Solver) -> LayoutError:
    """The error of a conflict; its `explanation` is a `LayoutExplanation`."""
    conflict, buffer = failure.conflict, failure.conflict.buffer
    if failure.operator < 0:
        return LayoutError(conflict.message, hint=conflict.hint)
    operator = solver.operators[failure.operator]
    span = operator.context.span(operator.stmt.site)
    name = operator_name(operator.stmt)
    demands: list[LayoutDemand] = []
    notes: list[Note] = []
    if conflict.wanted is not None:
        demands.append(
            LayoutDemand(
                name, operator.stmt.site, conflict.wanted, "needs", sample(conflict.wanted)
            )
        )
        of = f" '{buffer.name}'" if buffer is not None else ""
        notes.append(Note(f"'{name}' needs{of} as {_shown(conflict.wanted)}", span))
    if buffer is not None and buffer in solver.known:
        demand, note = _present(failure, solver)
        demands.append(demand)
        notes.append(note)
    rejected = []
    for attempt in failure.rejected:
        tried = solver.operators[attempt.operator]
        rejected.append((operator_name(tried.stmt), attempt.conflict.message))
        notes.append(
            Note(
                f"starting from '{operator_name(tried.stmt)}' fails: {attempt.conflict.message}",
                tried.context.span(tried.stmt.site),
            )
        )
    error = LayoutError(
        f"'{name}' cannot be spread over threads: {conflict.message}",
        span,
        conflict.hint,
        tuple(notes),
    )
    shown = buffer.name if buffer is not None else ""
    error.explanation = LayoutExplanation(shown, tuple(demands), tuple(rejected))
    return error


def _present(failure: Failure, solver: Solver) -> tuple[LayoutDemand, Note]:
    """The layout that is known, and who set it."""
    buffer = failure.conflict.buffer
    assert buffer is not None  # the caller has asked
    known, origin = solver.known[buffer], solver.origins[buffer]
    if origin.operator < 0:
        demand = LayoutDemand("", 0, known, origin.reason, sample(known))
        return demand, Note(f"'{buffer.name}' {origin.reason}, as {_shown(known)}")
    other = solver.operators[origin.operator]
    name = operator_name(other.stmt)
    demand = LayoutDemand(name, other.stmt.site, known, origin.reason, sample(known))
    span = other.context.span(other.stmt.site)
    text = f"'{buffer.name}' {origin.reason} in '{name}', as {_shown(known)}"
    return demand, Note(text, span)


def _shown(layout: Place) -> str:
    return f"{layout}: {'; '.join(sample(layout))}"


def sample(layout: Place) -> tuple[str, ...]:
    """Where the first elements are, as text: `(0, 1) in thread 0, slot 1`."""
    texts = []
    for index in islice(product(*map(range, layout.shape)), _SAMPLE):
        at = f"({', '.join(map(str, index))})"
        if isinstance(layout, Fragment):
            threads = sorted({layout.thread_of(*index, rep=r) for r in range(layout.replicate)})
            more = ["..."] if len(threads) > _SAMPLE else []
            held = ", ".join([*map(str, threads[:_SAMPLE]), *more])
            texts.append(f"{at} in thread {held}, slot {layout.slot_of(*index)}")
        else:
            texts.append(f"{at} at {layout.offset(*index)}")
    return tuple(texts)
