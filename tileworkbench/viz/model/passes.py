"""The passes of a compilation, and what each did to the program.

A notebook receives the list of passes at once and one difference at a time, on request, so that a
card stays small whatever the size of the IR.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from tileworkbench.compiler.ir.printer import print_lines
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.viz.model import html
from tileworkbench.viz.model.diff import Row, diff_lines
from tileworkbench.viz.model.text import first_sentence, format_time, passes_changed
from tileworkbench.viz.model.view import KernelView

FRONT_END = "front end"
CONTEXT = 3  # unchanged lines kept around a change when a difference is too long to send whole
ROW_LIMIT = 3000  # rows of one difference; further unchanged ones are folded, the rest dropped
HIT_LIMIT = 200  # lines listed for one search
STATIC_LINES = 300  # of a difference for readers without a kernel


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """A line of IR and the line of the user's source that it came from, 0 for none."""

    text: str
    source: int


class PassBrowser:
    """The programs of a compilation by index: 0 is the front end's, i the one after pass i.

    Printed text and differences are made on first use and kept.
    """

    def __init__(self, record: CompileRecord) -> None:
        self.record = record
        self._lines: dict[int, list[PrintedLine]] = {}
        self._diffs: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self.record.snapshots) + 1

    def program(self, index: int) -> Program:
        """The program after pass `index`."""
        return self.record.snapshots[index - 1].program if index else self.record.program

    def lines(self, index: int) -> list[PrintedLine]:
        """The printed lines of program `index`; unchanged programs share one list."""
        while index and not self.record.snapshots[index - 1].changed:
            index -= 1
        if index not in self._lines:
            program = self.program(index)
            self._lines[index] = [
                PrintedLine(line.text, self._source_line(program, line.site))
                for line in print_lines(program)
            ]
        return self._lines[index]

    def find(self, name: str) -> int:
        """The index of the first pass called `name`.

        Raises:
            ValueError: there is none.
        """
        names = [found.name for found in self.record.snapshots]
        if name not in names:
            raise ValueError(f"'{name}' is not a pass; the passes are {', '.join(names)}")
        return names.index(name) + 1

    def first_changed(self) -> int:
        """The first pass that changed something, else the front end."""
        changed = (i for i, found in enumerate(self.record.snapshots, 1) if found.changed)
        return next(changed, 0)

    def overview(self, live: bool) -> dict[str, Any]:
        """The list of passes; `live` adds their times."""
        entries: list[dict[str, Any]] = [
            {"name": FRONT_END, "doc": "The program as the kernel was read.", "changed": True}
        ]
        for snapshot in self.record.snapshots:
            entry: dict[str, Any] = {
                "name": snapshot.name,
                "doc": first_sentence(snapshot.doc),
                "changed": snapshot.changed,
            }
            if live:
                entry["time"] = format_time(snapshot.time_us)
            entries.append(entry)
        return {"entries": entries}

    def diff(self, index: int) -> dict[str, Any]:
        """What pass `index` did, as rows for a side-by-side or unified view.

        Raises:
            IndexError: there is no such pass.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"there is no pass {index}: the record has {len(self) - 1}")
        if index not in self._diffs:
            self._diffs[index] = self._make_diff(index)
        return self._diffs[index]

    def _make_diff(self, index: int) -> dict[str, Any]:
        after = self.lines(index)
        before = self.lines(index - 1) if index else after
        rows = diff_lines([line.text for line in before], [line.text for line in after])
        counts = {
            "removed": sum(row.kind in ("removed", "changed") for row in rows),
            "added": sum(row.kind in ("added", "changed") for row in rows),
        }
        dropped = 0
        shown: list[Row | int] = list(rows)
        if len(rows) > ROW_LIMIT:
            shown = fold_rows(rows) if counts["removed"] or counts["added"] else shown
            dropped = len(shown) - ROW_LIMIT
            shown = shown[:ROW_LIMIT]
        return {
            "index": index,
            **counts,
            "dropped": max(dropped, 0),
            "notes": self.notes(index),
            "rows": [self._row(row, before, after) for row in shown],
        }

    def _row(
        self, row: Row | int, before: list[PrintedLine], after: list[PrintedLine]
    ) -> dict[str, Any]:
        if isinstance(row, int):
            return {"kind": "fold", "count": row}
        sides: dict[str, Any] = {"kind": row.kind}
        if row.kind == "same" and row.before is not None and row.after is not None:
            sides["before"] = {"number": row.before + 1}
            sides["after"] = self._side(after, row.after, ())
            return sides
        if row.before is not None:
            sides["before"] = self._side(before, row.before, row.before_words)
        if row.after is not None:
            sides["after"] = self._side(after, row.after, row.after_words)
        return sides

    def _side(
        self, lines: list[PrintedLine], position: int, words: tuple[tuple[int, int], ...]
    ) -> dict[str, Any]:
        line = lines[position]
        side: dict[str, Any] = {
            "number": position + 1,
            "text": line.text,
            "source": line.source,
        }
        if words:
            side["words"] = [list(word) for word in words]
        return side

    def notes(self, index: int) -> list[str]:
        """Why pass `index` chose what it chose, in its own words."""
        before = self.program(index - 1).notes if index else ()
        return [note for note in self.program(index).notes if note not in before]

    def _source_line(self, program: Program, site: int) -> int:
        """The line of the user's source that operation `site` came from, 0 for none."""
        span = program.span(site)
        return span.line if span is not None and span.file == self.record.source_file else 0

    def search(self, query: str) -> dict[str, Any]:
        """Which programs hold `query` (case ignored), and in how many lines."""
        needle = query.casefold()
        hits: list[dict[str, int]] = []
        if needle:
            for index in range(len(self)):
                count = sum(needle in line.text.casefold() for line in self.lines(index))
                if count:
                    hits.append({"index": index, "count": count})
        return {"query": query, "hits": hits[:HIT_LIMIT]}

    def unified(self, index: int) -> str:
        """The change of pass `index` as a unified diff, empty when it changed nothing."""
        if not index:
            return ""
        before, after = self.lines(index - 1), self.lines(index)
        names = [entry["name"] for entry in self.overview(live=False)["entries"]]
        lines = unified_diff(
            [line.text for line in before],
            [line.text for line in after],
            f"after {names[index - 1]}",
            f"after {names[index]}",
            lineterm="",
        )
        return "".join(f"{line}\n" for line in lines)


def fold_rows(rows: list[Row], context: int = CONTEXT) -> list[Row | int]:
    """`rows` with long unchanged runs replaced by the number of rows left out."""
    keep = [False] * len(rows)
    for i, row in enumerate(rows):
        if row.kind != "same":
            for k in range(max(0, i - context), min(len(rows), i + context + 1)):
                keep[k] = True
    folded: list[Row | int] = []
    for row, kept in zip(rows, keep, strict=True):
        if kept:
            folded.append(row)
        elif folded and isinstance(folded[-1], int):
            folded[-1] += 1
        else:
            folded.append(1)
    return folded


def passes_section(view: KernelView, opened: bool = False) -> str:
    """The list of passes, without times."""
    rows = []
    for entry in _entries(view):
        colour = html.ACCENT if entry["changed"] else "#8a8a8a"
        badge = html.chip("changed" if entry["changed"] else "no-op", colour)
        name = html.tag("code", "", html.text(entry["name"]))
        rows.append([badge, name, html.tag("span", html.FAINT, html.text(entry["doc"]))])
    return html.details("Passes", html.table(rows), note=_count(view), opened=opened)


def passes_text(view: KernelView) -> str:
    """The list of passes as lines of text, without times."""
    entries = _entries(view)
    width = max((len(entry["name"]) for entry in entries), default=0)
    lines = (
        f"{'changed' if entry['changed'] else 'no-op':<9}{entry['name']:<{width}}  {entry['doc']}"
        for entry in entries
    )
    return "\n".join((_count(view), *(line.rstrip() for line in lines)))


def _entries(view: KernelView) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = PassBrowser(view.record).overview(live=False)["entries"]
    return entries[1:]


def _count(view: KernelView) -> str:
    changed, total = passes_changed(view.record)
    return f"{changed} of {total} changed something"


def diff_section(view: KernelView, index: int) -> str:
    """What pass `index` did to the IR, as lines taken away and added."""
    lines, dropped = _change(view, index)
    colours = {"-": html.BAD, "+": html.GOOD, "@": html.ACCENT}
    shown = (
        html.tag("span", f"color:{colours[line[0]]}" if line[0] in colours else "", html.text(line))
        for line in lines
    )
    note = f"{dropped} more lines" if dropped else ""
    return html.details(_change_title(view, index), html.code_block(shown), note=note, opened=True)


def diff_text(view: KernelView, index: int) -> str:
    """The same as text."""
    lines, dropped = _change(view, index)
    more = [f"... {dropped} more lines"] if dropped else []
    return "\n".join([_change_title(view, index), *lines, *more])


def _change_title(view: KernelView, index: int) -> str:
    if not index:
        return f"{FRONT_END}: no pass changed the program"
    snapshot = view.record.snapshots[index - 1]
    return f"{snapshot.name}: {'changed' if snapshot.changed else 'no change'}"


def _change(view: KernelView, index: int) -> tuple[list[str], int]:
    """The lines of a unified diff, without its head, and how many were left out."""
    browser = PassBrowser(view.record)
    lines = browser.unified(index).splitlines()[2:] or [line.text for line in browser.lines(index)]
    return lines[:STATIC_LINES], max(len(lines) - STATIC_LINES, 0)
