"""A measurement as a view: numbers for the live view, and what is saved, the same every time."""

from __future__ import annotations

from statistics import median, quantiles
from typing import Any

from tileworkbench.bench.points import format_rate
from tileworkbench.bench.units import format_time, rate_unit
from tileworkbench.compiler.record import RunRecord
from tileworkbench.viz.model import html


def bench_model(run: RunRecord) -> dict[str, Any]:
    """Median, quartiles and rates of a measurement, as text."""
    times = sorted(run.times_us)
    middle = median(times)
    low, high = (middle, middle)
    if len(times) > 1:
        low, _, high = quantiles(times, n=4, method="inclusive")
    unit = rate_unit([run.dtype])
    return {
        "median": format_time(middle),
        "quartiles": f"{format_time(low)} – {format_time(high)}",
        "count": len(times),
        "threads": run.threads,
        "caches": caches_of(run.cold),
        "flops": format_rate(run.flops / middle / 1e3, unit) if run.flops else "",
        "bytes": format_rate(run.bytes_ / middle / 1e3, "GB/s") if run.bytes_ else "",
        "comparison": run.comparison,
        "note": run.clock_note,
        "extra": [[name, f"{value:.3g}"] for name, value in run.extra],
    }


def caches_of(cold: bool) -> str:
    """``cold caches`` or ``warm caches``."""
    return f"{'cold' if cold else 'warm'} caches"


def bench_line(run: RunRecord) -> str:
    """One line of plain text."""
    return f"<measurement of {run.name}>"


def bench_html(run: RunRecord) -> str:
    """What is left of a measurement in a saved notebook."""
    name = html.tag("b", f"{html.MONO};margin-right:8px", html.text(run.name))
    note = "measured; the times are shown live, and printed by print(...)"
    return html.panel(html.tag("div", "", name, " ", html.tag("span", html.FAINT, note)))
