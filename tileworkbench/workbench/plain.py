"""What the views of a kernel show, as rows of plain data: for tables, files and tests.

Each row is a dict of numbers, texts and lists of them, with the same keys in all rows of a view;
its meaning is that of the attribute of `Kernel` that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import isnan
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.compiler.layout import Fragment
from tileworkbench.compiler.record import Count
from tileworkbench.workbench.counting import COUNTED, counted_lines

if TYPE_CHECKING:
    from tileworkbench.workbench.kernel import Kernel

Row = dict[str, Any]


def card(kernel: Kernel) -> list[Row]:
    """One row: name, target, grid, threads and what `kernel.stats` has."""
    stats = kernel.stats
    return [
        {
            "name": kernel.name,
            "target": kernel.target,
            "grid": list(kernel.grid),
            "threads": kernel.threads,
            "flops": _value(stats.flops),
            "bytes": _value(stats.bytes_),
            "shared_bytes": stats.shared_bytes,
            "scratch_bytes": stats.scratch_bytes,
            "warnings": [note.message for note in kernel.warnings],
        }
    ]


def source(kernel: Kernel) -> list[Row]:
    """A row per line of the kernel that costs something (`kernel.line_costs`), with what was
    counted of it (`kernel.count_traffic`): None where it was not. All ``counted_`` numbers
    together, those of line 0 too, are the kernel's: line 0 is what belongs to no line of its text.
    """
    from tileworkbench.workbench.annotation import LineCost

    costs = {cost.line: cost for cost in kernel.line_costs}
    counted = counted_lines(kernel)
    lines = sorted(costs.keys() | {line for line, own in counted.items() if any(own.values())})
    nothing = dict.fromkeys(COUNTED, 0.0 if counted else None)
    return [
        _plain((costs.get(line) or LineCost(line)).to_dict()) | counted.get(line, nothing)
        for line in lines
    ]


def passes(kernel: Kernel) -> list[Row]:
    """A row per pass (`kernel.passes`): name, first sentence, whether it changed anything, and how
    often it applied each of its rules; `kernel.passes[name].to_dict()` has the rewrites.
    """
    return [
        {
            "index": index,
            "name": snapshot.name,
            "doc": snapshot.doc,
            "changed": snapshot.changed,
            "disabled": snapshot.disabled,
            "time_us": snapshot.time_us,
            "rules": snapshot.rules,
        }
        for index, snapshot in enumerate(kernel.passes, 1)
    ]


def layouts(kernel: Kernel) -> list[Row]:
    """A row per tile (`kernel.layouts`): shape, text, threads and registers of a fragment."""
    rows = []
    for name, layout in kernel.layouts.items():
        fragment = layout if isinstance(layout, Fragment) else None
        rows.append(
            {
                "buffer": name,
                "kind": type(layout).__name__,
                "shape": list(layout.shape),
                "text": layout.to_text(),
                "threads": fragment and fragment.threads,
                "slots": fragment and fragment.slots,
                "copies": fragment.replicate if fragment else 1,
            }
        )
    return rows


def banks(kernel: Kernel) -> list[Row]:
    """A row per access of shared memory; on a CPU of a tile (`kernel.requests`)."""
    return _requests(kernel, shared=True)


def global_(kernel: Kernel) -> list[Row]:
    """A row per access of a tensor (`kernel.requests`)."""
    return _requests(kernel, shared=False)


def smem(kernel: Kernel) -> list[Row]:
    """A row per buffer in shared memory (`kernel.shared_memories`)."""
    return [
        {"launch": memory.launch, **asdict(buffer)}
        for memory in kernel.shared_memories
        for buffer in memory.buffers
    ]


def pipeline(kernel: Kernel) -> list[Row]:
    """A row per event of the predicted pipelines (`kernel.pipelines`)."""
    return [_plain(row) for each in kernel.pipelines for row in each.rows()]


def roofline(kernel: Kernel) -> list[Row]:
    """A row per point; predicted where nothing was measured. Ceilings of this machine are measured
    when they are first needed, which takes seconds.
    """
    names = ("name", "flops", "bytes_", "time_us", "dtype", "level", "threads", "predicted", "cold")
    points = kernel.view(roofline=True).points
    return [
        {
            **_plain({name: getattr(point, name) for name in names}),
            "model_bytes": dict(point.traffic),
            "counted_bytes": {} if point.counted is None else point.counted.by_level,
            "counted": "" if point.counted is None else point.counted.note,
        }
        for point in points
    ]


def errors(kernel: Kernel) -> list[Row]:
    """A row per wrong element of the last check, the first thousand (`kernel.error_map`)."""
    wrong = kernel.error_map
    return [] if wrong is None else [_plain(row) for row in wrong.rows()]


def footprint(kernel: Kernel) -> list[Row]:
    """A row per tensor (`kernel.footprint`); a call is simulated where none was recorded."""
    from tileworkbench.workbench.kernel_view import footprint_of

    recorded = footprint_of(kernel, None, kernel._footprint is None)
    return [] if recorded is None else recorded.rows()


def numerics(kernel: Kernel) -> list[Row]:
    """A row per executed statement and floating-point buffer that it wrote (`kernel.numerics`): of
    the last run, else of one on the kernel's inputs. None where there is no replay in float64.
    """
    if kernel.numerics_missing:
        return []
    return [_plain(row) for row in (kernel.last_numerics or kernel.numerics()).rows()]


def prints(kernel: Kernel) -> list[Row]:
    """A row per line that `T.print` makes (`kernel.prints`): of the last run, else of one on the
    kernel's inputs. None of a kernel that prints nothing.
    """
    return [] if kernel.prints_missing else (kernel.last_prints or kernel.prints()).rows()


def replay(kernel: Kernel) -> list[Row]:
    """A row per step of the last replay (`kernel.replay`), which is made where there is none."""
    return (kernel.last_replay or kernel.replay()).to_dict()


def code(kernel: Kernel) -> list[Row]:
    """A row per line of the generated text (`kernel.source`)."""
    return [
        {"number": number, "text": text}
        for number, text in enumerate(kernel.source.splitlines(), 1)
    ]


ROWS: Mapping[str, Callable[[Kernel], list[Row]]] = {
    "card": card,
    "source": source,
    "passes": passes,
    "layouts": layouts,
    "banks": banks,
    "global": global_,
    "smem": smem,
    "pipeline": pipeline,
    "roofline": roofline,
    "errors": errors,
    "footprint": footprint,
    "numerics": numerics,
    "prints": prints,
    "replay": replay,
    "code": code,
}
"""By the name of the view; `tests/api/test_plain.py` holds it against `viz.model.views.VIEWS`."""


def rows_of(kernel: Kernel, view: str) -> list[Row]:
    """The rows of one view, none where it has nothing to show.

    Raises:
        ArgumentError: there is no such view.
    """
    if view not in ROWS:
        raise ArgumentError(f"'{view}' is not a view", f"choose one of {', '.join(ROWS)}")
    return ROWS[view](kernel)


def frame_of(rows: list[Row]) -> Any:
    """A ``pandas.DataFrame`` with a row each. Raises `UnsupportedError` without pandas."""
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        message = "a DataFrame needs 'pandas', which is not installed"
        hint = "pip install pandas, or use 'to_dict()', which has the same rows"
        raise UnsupportedError(message, hint=hint) from None
    return DataFrame(rows)


def _requests(kernel: Kernel, shared: bool) -> list[Row]:
    """The accesses without their addresses, which `kernel.requests` has."""
    from tileworkbench.compiler.sim.threads.requests import WarpAccess

    rows = []
    for access in kernel.requests:
        if isinstance(access, WarpAccess):
            count = access.count
            if (count.scope == "shared") == shared:
                facts = asdict(count)
                span = facts.pop("span")
                del facts["site"]
                rows.append({"line": span["line"] if span else 0, **facts, "factor": count.factor})
        elif (access.scope != "global") == shared:
            rows.append(
                {
                    "line": access.span.line if access.span else 0,
                    "buffer": access.buffer,
                    "scope": access.scope,
                    "kind": access.kind,
                    "pattern": access.pattern,
                    "lanes": access.lanes,
                    "width": access.width,
                    "lines": access.lines,
                    "ideal": access.ideal,
                    "factor": access.factor,
                }
            )
    return rows


def _value(count: Count) -> float | None:
    return None if isnan(count.value) else count.value


def _plain(row: Row) -> Row:
    """JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and isnan(value) else value
        for name, value in row.items()
    }
