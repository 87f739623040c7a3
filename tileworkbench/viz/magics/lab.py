"""What the JupyterLab extension asks a kernel: the state of the machine, the session's kernels,
two of them compared, a copy of the course. Each answer is JSON, in an output that no cell shows.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython

from tileworkbench.api import targets
from tileworkbench.bench.ceilings import known_machine
from tileworkbench.bench.points import judge
from tileworkbench.bench.units import format_percent, format_time
from tileworkbench.compiler.device.host.processor import machine_name
from tileworkbench.viz.magics.course import put_course
from tileworkbench.viz.magics.ledger import Version, ledger_of
from tileworkbench.viz.model.compared import comparison_html
from tileworkbench.viz.model.trail import change_between
from tileworkbench.workbench.kernel import Kernel
from tileworkbench.workbench.kernel_view import roofline_of


class Answer:
    """Data on its way to the extension."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, Any]:
        return {"application/json": {"answer": self.data}, "text/plain": ""}


def state() -> Answer:
    """The machine: its name, cores and load (processes that want to run, in the last minute; -1
    where the system does not say), the targets that work, whether its ceilings are known.
    """
    try:
        number = version("tileworkbench")
    except PackageNotFoundError:
        number = "unknown"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0
    known = known_machine()
    data = {
        "version": number,
        "machine": machine_name(),
        "cores": os.cpu_count() or 1,
        "load": round(load, 1),
        "targets": ["auto", *(each.name for each in targets() if each.usable)],
        "measured": known is not None,
        "doubt": "" if known is None else known.remarks,
    }
    return Answer(data)


def kernels() -> Answer:
    """The versions of the session's kernels, the last used name first, its last version first."""
    ledger = ledger_of(get_ipython())  # type: ignore[arg-type]
    rows = [
        _row(name, each)
        for name in reversed(ledger.names())
        for each in reversed(ledger.versions(name))
    ]
    return Answer(rows)


def _row(name: str, each: Version) -> dict[str, Any]:
    time, share = _measured(each.kernel)
    check = each.kernel.view().check
    return {
        "name": name,
        "number": each.number,
        "flags": each.line.strip(),
        "target": each.kernel.target,
        "time": time,
        "share": share,
        "check": "" if check is None else "ok" if check.ok else "failed",
    }


def _measured(kernel: Kernel) -> tuple[str, str]:
    """The median time and the share of what is attainable, empty where they are not known."""
    if kernel._bench is None:
        return "", ""
    time = format_time(1e3 * kernel._bench.median)
    machine, points = roofline_of(kernel, known_machine() is not None)
    verdict = judge(points[0], machine) if machine is not None and points else None
    known = verdict is not None and verdict.attainable
    return time, format_percent(verdict.fraction) if verdict is not None and known else ""


def compared(*chosen: tuple[str, int]) -> Answer:
    """Two versions, by name and number: what was changed in their cells, and all that differs."""
    ledger = ledger_of(get_ipython())  # type: ignore[arg-type]
    pair = [
        each for name, number in chosen for each in ledger.versions(name) if each.number == number
    ]
    if len(pair) != 2:
        return Answer({"changes": [], "html": "", "error": "a version is gone: run its cell again"})
    old, new = pair
    views = [each.kernel.view() for each in pair]
    names = [f"{name} #{number}" for name, number in chosen]
    changes = change_between((old.line, old.cell), (new.line, new.cell))
    return Answer({"changes": list(changes), "html": comparison_html(views, names), "error": ""})


def course() -> Answer:
    """A copy of the course in the working directory: its folder, or why there is none."""
    try:
        folder = put_course(Path.cwd())
    except UsageError as error:
        return Answer({"folder": "", "error": str(error)})
    here = Path.cwd()
    inside = folder.relative_to(here).as_posix() if folder.is_relative_to(here) else str(folder)
    return Answer({"folder": "" if inside == "." else inside, "error": ""})
