"""`tw.compare`: the facts of two kernels side by side, and what differs in their source."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from tileworkbench.compiler.record import CompileRecord
from tileworkbench.kernel import Kernel
from tileworkbench.viz.model import html
from tileworkbench.viz.model.card import bench_summary, facts
from tileworkbench.viz.model.text import title
from tileworkbench.viz.model.view import KernelView


@dataclass(frozen=True, slots=True)
class Fact:
    """One row: what it says of the first and of the second kernel ("" where it has none)."""

    label: str
    first: str
    second: str

    @property
    def differs(self) -> bool:
        """Whether the kernels differ in it."""
        return self.first != self.second


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two kernels side by side; `print` shows it as a table followed by the source's differences.

    Attributes:
        names: the kernels with their constants.
        facts: launch, memory and work, then the passes that changed only one of the two programs.
        measured: times and rates of the last `.bench(...)` of each, empty if neither has one.
        source_diff: unified diff of the users' texts, empty where they are the same.
    """

    names: tuple[str, str]
    facts: tuple[Fact, ...]
    measured: tuple[Fact, ...]
    source_diff: str

    @property
    def differences(self) -> tuple[Fact, ...]:
        """The facts in which the kernels differ, measurements left out."""
        return tuple(fact for fact in self.facts if fact.differs)

    def __str__(self) -> str:
        rows = [("", *self.names)]
        rows += [(fact.label, fact.first, fact.second) for fact in (*self.facts, *self.measured)]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *(("", self.source_diff) if self.source_diff else ())])

    def __repr__(self) -> str:
        count = len(self.differences)
        source = "source differs" if self.source_diff else "same source"
        facts_ = f"{count} fact{'' if count == 1 else 's'} differ{'s' if count == 1 else ''}"
        return f"<compare {self.names[0]} | {self.names[1]} | {facts_}, {source}>"

    def _repr_html_(self) -> str:
        """The same table without what was measured, so that a saved notebook does not change."""
        rows = [
            [html.text(fact.label), *(_cell(fact, value) for value in (fact.first, fact.second))]
            for fact in self.facts
        ]
        parts = [html.table(rows, ["", *self.names])]
        if self.source_diff:
            lines = (html.text(line) for line in self.source_diff.splitlines())
            parts.append(html.details("Source", html.code_block(lines), note="differences"))
        return html.panel(*parts)


def _cell(fact: Fact, value: str) -> str:
    shown = html.text(value or "–")
    return html.tag("b", f"color:{html.ACCENT}", shown) if fact.differs else shown


def compare(first: Kernel, second: Kernel) -> Comparison:
    """The facts of two kernels side by side: see `Comparison`."""
    views = (first.view(), second.view())
    records = (views[0].record, views[1].record)
    labels = _facts(views[0]), _facts(views[1])
    return Comparison(
        names=(title(records[0]), title(records[1])),
        facts=(*_paired(*labels), *_paired(*_lone_passes(*records))),
        measured=tuple(_paired(_bench(views[0]), _bench(views[1]))),
        source_diff=_diff(*records),
    )


def _facts(view: KernelView) -> dict[str, str]:
    found = {"target": view.record.target}
    return found | {label: value for label, value, _ in facts(view, live=False)}


def _bench(view: KernelView) -> dict[str, str]:
    if view.bench is None:
        return {}
    found: dict[str, Any] = bench_summary(view.bench)
    labels = {"median": "time", "quartiles": "quartiles", "flops": "compute", "bytes": "bandwidth"}
    return {label: found[key] for key, label in labels.items() if found[key]}


def _lone_passes(
    first: CompileRecord, second: CompileRecord
) -> tuple[dict[str, str], dict[str, str]]:
    """The passes that changed one program and not the other."""
    changed = [
        {found.name: found.changed for found in record.snapshots} for record in (first, second)
    ]
    names = [
        name
        for name in dict.fromkeys((*changed[0], *changed[1]))
        if changed[0].get(name) != changed[1].get(name)
    ]
    words = {True: "changed", False: "no change", None: ""}
    one, other = ({f"pass {name}": words[side.get(name)] for name in names} for side in changed)
    return one, other


def _paired(first: dict[str, str], second: dict[str, str]) -> list[Fact]:
    labels = dict.fromkeys((*first, *second))
    return [Fact(label, first.get(label, ""), second.get(label, "")) for label in labels]


def _diff(first: CompileRecord, second: CompileRecord) -> str:
    lines = difflib.unified_diff(
        first.source.splitlines(),
        second.source.splitlines(),
        title(first),
        title(second),
        lineterm="",
    )
    return "\n".join(lines)
