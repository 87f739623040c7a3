"""`tw.compare`: kernels side by side, fact by fact and view by view; what differs is loud."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tileworkbench.bench.units import format_time
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.viz.model import html
from tileworkbench.viz.model.bench import bench_model
from tileworkbench.viz.model.card import facts
from tileworkbench.viz.model.layout import badges, layout_figure
from tileworkbench.viz.model.text import clip, title
from tileworkbench.viz.model.view import KernelView
from tileworkbench.workbench.kernel import Kernel

_CODE_LINES = 400  # of a difference between generated texts, in a saved notebook


@dataclass(frozen=True, slots=True)
class Fact:
    """One row: what it says of each kernel ("" where it has none)."""

    label: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the kernels differ in it."""
        return len(set(self.values)) > 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Kernels side by side; `print` shows it as a table followed by the source's differences.

    Attributes:
        names: the kernels with their constants; with their targets where those differ.
        facts: launch, memory, work, occupancy, layouts and accesses, then the passes that did not
            change all of the programs.
        measured: times and rates of the last `.bench(...)` of each, empty if none has one.
        source_diff: unified diff of the users' texts of two kernels, empty where they are the same.
        code_diff: the same of the generated texts, for two kernels of one kind of target.
    """

    names: tuple[str, ...]
    facts: tuple[Fact, ...]
    measured: tuple[Fact, ...]
    source_diff: str
    code_diff: str = ""
    views: tuple[KernelView, ...] = field(default=(), repr=False, compare=False)

    @property
    def differences(self) -> tuple[Fact, ...]:
        """The facts in which the kernels differ, measurements left out."""
        return tuple(fact for fact in self.facts if fact.differs)

    def to_dict(self) -> dict[str, dict[str, str]]:
        """The facts and measurements as plain data: label to kernel to value."""
        rows = (*self.facts, *self.measured)
        return {fact.label: dict(zip(self.names, fact.values, strict=True)) for fact in rows}

    def __str__(self) -> str:
        rows = [("", *self.names)]
        rows += [(fact.label, *fact.values) for fact in (*self.facts, *self.measured)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *(("", self.source_diff) if self.source_diff else ())])

    def __repr__(self) -> str:
        count = len(self.differences)
        source = "source differs" if self.source_diff else "same source"
        facts_ = f"{count} fact{'' if count == 1 else 's'} differ{'s' if count == 1 else ''}"
        return f"<compare {' | '.join(self.names)} | {facts_}, {source}>"

    def _repr_html_(self) -> str:
        """The same table without what was measured, so that a saved notebook does not change; what
        all kernels share is folded, layouts stand beside each other.
        """
        same = [fact for fact in self.facts if not fact.differs]
        parts = [html.table(map(_row, self.differences), ["", *self.names])]
        if same:
            table = html.table(map(_row, same), ["", *self.names])
            parts.append(html.details("The same", table, note=f"{len(same)} facts"))
        if any(view.portable_layouts and view.layouts for view in self.views):
            parts.append(html.details("Layouts", self._layouts()))
        for label, diff in (("Source", self.source_diff), ("Code", self.code_diff)):
            if diff:
                lines = diff.splitlines()
                shown = (html.text(clip(line, 300)) for line in lines[:_CODE_LINES])
                parts.append(html.details(label, html.code_block(shown), note="differences"))
        return html.panel(*parts)

    def _layouts(self) -> str:
        """A row per buffer, its picture in each kernel."""
        shown = [view.layouts if view.portable_layouts else () for view in self.views]
        names = dict.fromkeys(buffer.name for layouts in shown for buffer in layouts)
        rows = []
        for name in list(names)[:8]:
            found = [next((b for b in layouts if b.name == name), None) for layouts in shown]
            rows.append(["–" if buffer is None else layout_figure(buffer) for buffer in found])
        return html.table(rows, self.names)


def _row(fact: Fact) -> list[str]:
    return [html.text(fact.label), *(_cell(fact, value) for value in fact.values)]


def _cell(fact: Fact, value: str) -> str:
    shown = html.text(value or "–")
    return html.tag("b", html.tone(html.ACCENT), shown) if fact.differs else shown


def compare(*kernels: Any) -> Comparison:
    """Two or more `Kernel`s side by side: versions of one, or one on several targets.

    Raises `ArgumentError` for fewer than two, or for what is no compiled kernel.
    """
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            message = f"a comparison takes compiled kernels, not '{type(kernel).__name__}'"
            raise ArgumentError(message, "tw.compile(...), or .kernel of what tw.jit decorates")
    if len(kernels) < 2:
        raise ArgumentError(f"a comparison takes two kernels or more, not {len(kernels)}")
    views = tuple(kernel.view() for kernel in kernels)
    records = [view.record for view in views]
    return Comparison(
        names=_names(records),
        facts=(*_paired(map(_facts, views)), *_lone_passes(records)),
        measured=tuple(_paired(map(_bench, views))),
        source_diff=_diff(records, lambda record: record.source),
        code_diff=_code_diff(views),
        views=views,
    )


def _names(records: Sequence[CompileRecord]) -> tuple[str, ...]:
    names = [title(record) for record in records]
    if len({record.target for record in records}) > 1:
        names = [f"{name} {record.target}" for name, record in zip(names, records, strict=True)]
    return tuple(names)


def _facts(view: KernelView) -> dict[str, str]:
    found = {"target": view.record.target}
    found |= {label: value for label, value, _ in facts(view, live=False)}
    if view.occupancy is not None:
        occupancy = view.occupancy
        held = f"{occupancy.warps} of {occupancy.warps_most} warps, by {occupancy.limited_by}"
        found["occupancy"] = held
    for point in view.points[:1]:
        if point.predicted and point.causes is not None:  # a measured one is not of the kernel
            cause = next(iter(point.causes.by_cause()), "nothing")
            found["bound by"] = f"{cause}, {format_time(point.time_us)} (predicted)"
    if view.portable_layouts:
        for buffer in view.layouts:
            found[f"layout {buffer.name}"] = ", ".join(badges(buffer.layout))
    for line in view.accesses:
        name, _, kinds = line.partition(": ")
        found[f"access {name}"] = kinds
    return found


def _bench(view: KernelView) -> dict[str, str]:
    if view.bench is None:
        return {}
    found: dict[str, Any] = bench_model(view.bench)
    labels = {"median": "time", "quartiles": "quartiles", "flops": "compute", "bytes": "bandwidth"}
    return {label: found[key] for key, label in labels.items() if found[key]}


def _lone_passes(records: Sequence[CompileRecord]) -> list[Fact]:
    """The passes that changed some of the programs and not all; for one kind of target."""
    changed = [{each.name: each.changed for each in record.snapshots} for record in records]
    if len({tuple(names) for names in changed}) > 1:
        return []  # other targets have other passes
    words = {True: "changed", False: "no change"}
    rows = (Fact(f"pass {name}", tuple(words[c[name]] for c in changed)) for name in changed[0])
    return [fact for fact in rows if fact.differs]


def _paired(sides: Iterable[dict[str, str]]) -> list[Fact]:
    found = list(sides)
    labels = dict.fromkeys(label for side in found for label in side)
    return [Fact(label, tuple(side.get(label, "") for side in found)) for label in labels]


def _code_diff(views: Sequence[KernelView]) -> str:
    kinds = {view.target_kind for view in views}
    if kinds != {"gpu"}:
        return ""  # a CPU's code depends on the host
    return _diff([view.record for view in views], lambda record: record.code)


def _diff(records: Sequence[CompileRecord], text: Any) -> str:
    """The unified difference of two texts; of more kernels none is made."""
    if len(records) != 2:
        return ""
    first, second = records
    one, other = text(first).splitlines(), text(second).splitlines()
    return "\n".join(difflib.unified_diff(one, other, title(first), title(second), lineterm=""))
