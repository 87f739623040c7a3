"""What bounds a kernel, as the one sentence of its card, with the line to look at."""

from __future__ import annotations

import math
from typing import Any

from tileworkbench.bench.points import Machine, Point, judge
from tileworkbench.bench.units import format_time
from tileworkbench.viz.model.roofline_view import unplaced
from tileworkbench.viz.model.view import KernelView

_MEASURE = "not known yet: the ceilings of this machine must be measured, which takes some seconds"


def bound_model(point: Point, machine: Machine) -> dict[str, Any]:
    """``text`` says what bounds the kernel, and whether that is predicted or measured; ``line`` is
    the line of the user's text to look at, 0 for none.
    """
    verdict = judge(point, machine)
    if point.causes is None or verdict.wrong or not point.causes.total_us > 0:
        known = "not known" if verdict.wrong or verdict.bound == "unknown" else verdict.bound
        return {"text": f"{known}. {verdict.sentence}", "line": verdict.line}
    cause, time_us = next(iter(point.causes.by_cause().items()))
    share = f"{time_us / point.causes.total_us * 100:.0f} % of the predicted "
    if point.predicted:
        measured_us, how = math.nan, f"predicted; {share}time"
    else:
        measured_us = point.time_us
        expected, measured = format_time(point.causes.total_us), format_time(measured_us)
        how = f"{share}{expected}; measured {measured}"
    diagnosis = point.causes.diagnose(measured_us, verdict.fraction * point.time_us)
    text = f"{cause} ({how})"
    if diagnosis.cause not in ("", cause) and diagnosis.saved_us:  # what can be mended comes next
        told = point.causes.by_cause().get(diagnosis.cause, 0.0) / point.causes.total_us
        text += f", then {diagnosis.cause} ({told * 100:.0f} %)"
    return {"text": f"{text}. {diagnosis.sentence}", "line": diagnosis.line}


def bound_of(view: KernelView) -> dict[str, Any]:
    """The same for a view that knows its place under the roofs, else nothing."""
    if view.machine is None or not view.points:
        return {}
    return bound_model(view.points[0], view.machine)


def bound_answer(placed: KernelView) -> dict[str, Any]:
    """The same in answer to the browser, of a view that was placed where it could be. ``measure``
    says that this machine would have to be measured for it.
    """
    if known := bound_of(placed):
        return known
    if placed.machine is None and placed.target_kind == "cpu":
        return {"text": _MEASURE, "line": 0, "measure": True}
    return {"text": f"not known: {unplaced(placed)}", "line": 0}
