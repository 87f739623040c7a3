"""The rules that passes applied, as the view of passes shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tileworkbench.compiler.ir.printer import print_head
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.rules import Rewrite
from tileworkbench.compiler.ir.stmt import Seq
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.compiler.rewrites import RewriteText, counts_of, rewrites_of, texts_of
from tileworkbench.viz.model import html
from tileworkbench.viz.model.pass_changes import changes_of, rows_of, told, whole
from tileworkbench.viz.model.text import clip, first_sentence

MOST = 2000  # rewrites of one pass that are sent
TEXT_LIMIT = 600  # characters of what was rewritten
STATIC_REWRITES = 3  # of each rule, for readers without a kernel


Side = tuple[Program, list[str]]
"""A program and its printed lines."""


def rules(record: CompileRecord, index: int, before: Side, after: Side) -> dict[str, Any]:
    """What snapshot `index` did to the program `before`: rules with counts, and the rewrites in
    order, each with its place among the lines of `before` or, of what was added, of `after` (from 1
    on, 0 for none). Of a pass without rules the same for statements, and in `whole` a sentence.
    """
    rewrites = rewrites_of(record, index)
    if not rewrites:
        return _whole(record, index, before, after)
    numbers = _line_numbers(*before)
    docs = {each.rule: first_sentence(each.doc) for each in rewrites}
    places = [("before", numbers.get(id(each.stmt), 0)) for each in rewrites]
    return _table(texts_of(record, rewrites[:MOST]), places) | {
        "rules": _counts(rewrites, docs),
        "total": len(rewrites),
        "whole": "",
    }


def _whole(record: CompileRecord, index: int, before: Side, after: Side) -> dict[str, Any]:
    rows = rows_of(record, index)
    changes = told(record, rows)
    old, new = _line_numbers(*before), _line_numbers(*after)
    places = [
        ("before", old.get(id(row.before), 0))
        if row.before is not None
        else ("after", new.get(id(row.after), 0))
        for row in rows
    ]
    changed = 0 <= index < len(record.snapshots) and record.snapshots[index].changed
    return _table(changes[:MOST], places) | {
        "rules": _counts(changes, {}),
        "total": len(changes),
        "whole": whole(changes) if changed else "",
    }


def _counts(rewrites: Sequence[Rewrite | RewriteText], docs: dict[str, str]) -> list[Any]:
    return [
        {"name": name, "doc": docs.get(name, ""), "count": count}
        for name, count in counts_of(rewrites).items()
    ]


def _table(texts: Sequence[RewriteText], places: Sequence[tuple[str, int]]) -> dict[str, Any]:
    return {
        "rewrites": [
            {
                "rule": text.rule,
                "source": text.line,
                "side": side,
                "number": number,
                "statement": clip(text.statement, TEXT_LIMIT),
                "before": clip(text.before, TEXT_LIMIT),
                "after": clip(text.after, TEXT_LIMIT),
            }
            for text, (side, number) in zip(texts, places, strict=False)
        ]
    }


def _line_numbers(program: Program, lines: list[str]) -> dict[int, int]:
    """The printed line that each statement begins in, by its identity."""
    numbers: dict[int, int] = {}
    at = 0
    for stmt in statements(program.body):
        if isinstance(stmt, Seq):
            continue
        head = print_head(stmt).strip()
        place = next((n for n in range(at, len(lines)) if lines[n].strip() == head), None)
        if place is not None:
            numbers[id(stmt)] = place + 1
            at = place + 1
    return numbers


def static_rules(record: CompileRecord, index: int) -> str:
    """The rules of one pass for readers without a kernel: counts, and the first rewrites of each;
    of a pass without rules the same of statements. Empty where nothing was changed.
    """
    texts = texts_of(record, rewrites_of(record, index))
    said, head = "", "rule"
    if not texts:
        texts, head = changes_of(record, index), "change"
        said = html.tag("div", html.FAINT, html.text(whole(texts))) if texts else ""
    rows = []
    for name, count in counts_of(texts).items():
        mine = [text for text in texts if text.rule == name]
        shown = "".join(_shown(text) for text in mine[:STATIC_REWRITES])
        if count > STATIC_REWRITES:
            shown += html.tag("div", html.FAINT, f"and {count - STATIC_REWRITES} more")
        about = html.tag("div", html.FAINT, html.text(first_sentence(mine[0].doc)))
        rows.append([html.tag("code", "", html.text(name)), str(count), about + shown])
    return said + html.table(rows, (head, "times", "what it did")) if rows else ""


def _shown(text: RewriteText) -> str:
    line = f"line {text.line}: " if text.line else ""
    before, after = (_first_line(side) for side in (text.before, text.after))
    told = " → ".join(side for side in (before, after) if side)
    return html.tag("div", html.MONO, html.text(f"{line}{told}"))


def _first_line(text: str) -> str:
    """The first line of what may be a statement with others in it."""
    first, _, more = text.partition("\n")
    return clip(first + (" ..." if more else ""), TEXT_LIMIT // 4)
