"""The passes of a compilation, and what each did to the program.

A notebook receives the list of passes at once and one difference at a time, on request, so that a
card stays small whatever the size of the IR.
"""

from __future__ import annotations

from difflib import unified_diff
from typing import Any

from tileworkbench.bench.units import format_time
from tileworkbench.compiler.diagnostics import line_in
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.printer import print_head, print_lines
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Seq, Stmt
from tileworkbench.compiler.record import CompileRecord, Snapshot
from tileworkbench.viz.model.diff import Row, diff_lines
from tileworkbench.viz.model.names import Names
from tileworkbench.viz.model.pass_rules import rules
from tileworkbench.viz.model.text import clip, first_sentence
from tileworkbench.viz.model.tree_diff import (
    TreeDiff,
    TreeRow,
    count_nodes,
    diff_trees,
)

FRONT_END = "front end"
CONTEXT = 3  # unchanged lines kept around a change when a difference is too long to send whole
ROW_LIMIT = 3000  # rows of one difference; further unchanged ones are folded, the rest dropped
FIELD_LIMIT = 400  # characters of a field that a row of the tree shows
HIT_LIMIT = 200  # lines listed for one search


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """A line of IR and the line of the user's source that it came from, 0 for none."""

    text: str
    source: int


class PassBrowser:
    """The programs of a compilation by index: 0 is the front end's, i the one after pass i.

    Of a compilation that did not end, the last index is the pass that failed, with the program that
    it was given. Printed text and differences are made on first use and kept.
    """

    def __init__(self, record: CompileRecord) -> None:
        self.record = record
        self.steps = _steps(record)
        self._lines: dict[int, list[PrintedLine]] = {}
        self._diffs: dict[int, dict[str, Any]] = {}
        self._nodes: dict[int, int] = {}
        self._trees: dict[int, TreeDiff] = {}
        self._names: dict[int, Names] = {}
        self._rules: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self.steps) + 1

    def program(self, index: int) -> Program:
        """The program after pass `index`."""
        return self.steps[index - 1].program if index else self.record.program

    def _origin(self, index: int) -> int:
        """The first index with the same program as `index`."""
        while index and not self.steps[index - 1].changed:
            index -= 1
        return index

    def _count(self, index: int) -> int:
        """The nodes of program `index`, counted once."""
        index = self._origin(index)
        if index not in self._nodes:
            self._nodes[index] = count_nodes(self.program(index))
        return self._nodes[index]

    def lines(self, index: int) -> list[PrintedLine]:
        """The printed lines of program `index`; unchanged programs share one list."""
        index = self._origin(index)
        if index not in self._lines:
            self._lines[index] = printed(self.program(index), self.record.source_file)
        return self._lines[index]

    def find(self, name: str) -> int:
        """The index of the first pass called `name`.

        Raises:
            ValueError: there is none.
        """
        names = [step.name for step in self.steps]
        if name not in names:
            raise ValueError(f"'{name}' is not a pass; the passes are {', '.join(names)}")
        return names.index(name) + 1

    def first_shown(self) -> int:
        """The pass that failed, else the first one that changed something, else the front end."""
        if self.record.stop is not None:
            return len(self.steps)
        changed = (i for i, step in enumerate(self.steps, 1) if step.changed)
        return next(changed, 0)

    def overview(self, live: bool) -> dict[str, Any]:
        """The list of passes; `live` adds their times, nodes and what can be switched off."""
        entries: list[dict[str, Any]] = [
            {"name": FRONT_END, "doc": "The program as the kernel was read.", "changed": True}
        ]
        for step in self.steps:
            entries.append(
                {"name": step.name, "doc": first_sentence(step.doc), "changed": step.changed}
            )
            if live and not self._failed(len(entries) - 1):
                entries[-1]["time"] = format_time(step.time_us)
            if step.disabled:
                entries[-1]["disabled"] = True
            if live and step.lost:
                entries[-1]["lost"] = step.lost
        if self.record.stop is not None:
            entries[-1]["failed"] = True
        if live:
            for index, entry in enumerate(entries):
                entry["nodes"] = self._count(index)
        return {"name": self.record.name, "entries": entries}

    def _failed(self, index: int) -> bool:
        return self.record.stop is not None and index == len(self.steps)

    def _checked(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(f"there is no pass {index}: the record has {len(self) - 1}")
        return index

    def diff(self, index: int) -> dict[str, Any]:
        """What pass `index` did, as rows for a side-by-side or unified view.

        Raises:
            IndexError: there is no such pass.
        """
        if self._checked(index) not in self._diffs:
            after = self.lines(index)
            made = diff_of_lines(self.lines(index - 1) if index else after, after)
            made |= {"index": index, "notes": self.notes(index), "rewrites": self._rewrites(index)}
            if self._failed(index):
                made["problem"] = self._problem(index)
            self._diffs[index] = made
        return self._diffs[index]

    def _tree(self, index: int) -> TreeDiff:
        """The difference of trees; a program is its own where nothing changed."""
        if index not in self._trees:
            before = self.program(index - 1 if index else 0)
            self._trees[index] = diff_trees(before, self.program(index))
        return self._trees[index]

    def _rewrites(self, index: int) -> dict[str, int]:
        """How many statements pass `index` kept, rewrote, added, removed and moved, and the nodes
        before and after it.
        """
        counts = self._tree(index).counts
        return {
            "kept": counts["same"] + counts["inside"],
            "rewritten": counts["changed"],
            **{kind: counts[kind] for kind in ("added", "removed", "moved")},
            "nodes_before": self._count(index - 1 if index else 0),
            "nodes_after": self._count(index),
        }

    def tree(self, index: int) -> dict[str, Any]:
        """What pass `index` did to the tree of statements, row by row.

        Raises:
            IndexError: there is no such pass.
        """
        rows = self._tree(self._checked(index)).rows
        programs = self.program(index - 1 if index else 0), self.program(index)
        return {
            "index": index,
            "dropped": max(0, len(rows) - ROW_LIMIT),
            "rows": [self._tree_row(row, *programs) for row in rows[:ROW_LIMIT]],
        }

    def _tree_row(self, row: TreeRow, before: Program, after: Program) -> dict[str, Any]:
        made: dict[str, Any] = {"kind": row.kind, "depth": row.depth}
        if row.count > 1:
            return made | {"count": row.count}
        both = row.kind in ("changed", "removed")
        if row.before is not None and both:
            made["before"] = self._branch(before, row.before)
        if row.after is not None:
            made["after"] = self._branch(after, row.after)
        if row.kind == "same" and row.after is not None:
            inside = sum(not isinstance(stmt, Seq) for stmt in statements(row.after)) - 1
            if inside:
                made["inside"] = inside
        if row.fields:
            made["fields"] = [[clip(text, FIELD_LIMIT) for text in each] for each in row.fields]
        return made

    def _branch(self, program: Program, stmt: Stmt) -> dict[str, Any]:
        line = source_line(program, stmt.site, self.record.source_file)
        return {"type": type(stmt).__name__, "text": print_head(stmt), "source": line}

    def describe(self, index: int, name: str) -> dict[str, Any]:
        """What `name` is in program `index`; empty for a word that names nothing.

        Raises:
            IndexError: there is no such pass.
        """
        index = self._origin(self._checked(index))
        if index not in self._names:
            texts = [line.text for line in self.lines(index)]
            self._names[index] = Names(self.program(index), texts)
        return self._names[index].describe(name)

    def _problem(self, index: int) -> dict[str, Any]:
        """What the pass said, and the number of the line of IR that it is about, 0 for none."""
        stop = self.record.stop
        assert stop is not None
        span = stop.span
        here = span is not None and span.file == self.record.source_file
        source = span.line if span is not None and here else 0
        numbers = (at for at, line in enumerate(self.lines(index), 1) if line.source == source)
        return {"text": stop.message, "source": source, "number": next(numbers, 0) if source else 0}

    def rules(self, index: int) -> dict[str, Any]:
        """The rules that pass `index` applied, and what to: see `pass_rules`. The pass runs once
        more for it.

        Raises:
            IndexError: there is no such pass.
        """
        if self._checked(index) not in self._rules:
            sides = (
                (self.program(at), [line.text for line in self.lines(at)])
                for at in (max(index - 1, 0), index)
            )
            self._rules[index] = rules(self.record, index - 1, *sides)
        return self._rules[index] | {"index": index}

    def notes(self, index: int) -> list[str]:
        """Why pass `index` chose what it chose, in its own words."""
        before = self.program(index - 1).notes if index else ()
        return [note for note in self.program(index).notes if note not in before]

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


def _steps(record: CompileRecord) -> tuple[Snapshot, ...]:
    """The snapshots, and the pass that failed as one that changed nothing."""
    stop = record.stop
    if stop is None:
        return record.snapshots
    last = record.snapshots[-1].program if record.snapshots else record.program
    return (*record.snapshots, Snapshot(stop.name, stop.doc, last, False, 0.0))


def source_line(program: Program, site: int, file: str) -> int:
    """The line of the user's source that operation `site` came from, 0 for none."""
    return line_in(file, program.span(site))


def printed(program: Program, file: str) -> list[PrintedLine]:
    """The lines of a program, with those of the user's source `file`."""
    return [
        PrintedLine(line.text, source_line(program, line.site, file))
        for line in print_lines(program)
    ]


def diff_of_lines(before: list[PrintedLine], after: list[PrintedLine]) -> dict[str, Any]:
    """Two texts as rows, how many lines each lacks of the other, and how many rows were dropped."""
    rows = diff_lines([line.text for line in before], [line.text for line in after])
    counts = {
        "removed": sum(row.kind in ("removed", "changed") for row in rows),
        "added": sum(row.kind in ("added", "changed") for row in rows),
    }
    shown: list[Row | int] = list(rows)
    if len(rows) > ROW_LIMIT:
        shown = fold_rows(rows) if counts["removed"] or counts["added"] else shown
    return {
        **counts,
        "dropped": max(0, len(shown) - ROW_LIMIT),
        "rows": [_row(row, before, after) for row in shown[:ROW_LIMIT]],
    }


def _row(row: Row | int, before: list[PrintedLine], after: list[PrintedLine]) -> dict[str, Any]:
    if isinstance(row, int):
        return {"kind": "fold", "count": row}
    sides: dict[str, Any] = {"kind": row.kind}
    if row.kind == "same" and row.before is not None and row.after is not None:
        sides["before"] = {"number": row.before + 1}
        sides["after"] = _side(after, row.after, ())
        return sides
    if row.before is not None:
        sides["before"] = _side(before, row.before, row.before_words)
    if row.after is not None:
        sides["after"] = _side(after, row.after, row.after_words)
    return sides


def _side(
    lines: list[PrintedLine], position: int, words: tuple[tuple[int, int], ...]
) -> dict[str, Any]:
    line = lines[position]
    side: dict[str, Any] = {"number": position + 1, "text": line.text, "source": line.source}
    if words:
        side["words"] = [list(word) for word in words]
    return side


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
