"""What passes did to statements, by kind: all there is of those that have no rules."""

from __future__ import annotations

from collections.abc import Iterable

from tileworkbench.compiler.diagnostics import line_in
from tileworkbench.compiler.ir.printer import print_head
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.compiler.rewrites import RewriteText, counts_of
from tileworkbench.viz.model.tree_diff import TreeRow, diff_trees

_VERBS = {"added": "add", "removed": "remove", "moved": "move"}
_DID = {"add": "adds", "remove": "removes", "move": "moves", "rewrite": "rewrites"}
_FEW = 5  # kinds of changes that the sentence names


def rows_of(record: CompileRecord, index: int) -> list[TreeRow]:
    """The statements that snapshot `index` added, removed, moved and rewrote; none where it did not
    run to its end.
    """
    if not 0 <= index < len(record.snapshots) or not record.snapshots[index].changed:
        return []
    before = record.snapshots[index - 1].program if index else record.program
    rows = diff_trees(before, record.snapshots[index].program).rows
    return [row for row in rows if row.kind not in ("same", "inside")]


def changes_of(record: CompileRecord, index: int) -> list[RewriteText]:
    """`rows_of` as text."""
    return told(record, rows_of(record, index))


def told(record: CompileRecord, rows: Iterable[TreeRow]) -> list[RewriteText]:
    """These rows of a pass as text, numbered from 1 on."""
    return [_text(record, row, number) for number, row in enumerate(rows, 1)]


def _text(record: CompileRecord, row: TreeRow, number: int) -> RewriteText:
    stmt = row.before or row.after
    assert stmt is not None
    line = line_in(record.source_file, record.program.span(stmt.site))
    before = print_head(row.before) if row.before is not None else ""
    after = print_head(row.after) if row.after is not None else ""
    if row.kind == "changed" and before == after:  # only its buffer is another
        before = ", ".join(was for _, was, _ in row.fields)
        after = ", ".join(now for _, _, now in row.fields)
    return RewriteText(number, _name(row), "", line, print_head(stmt), before, after)


def _name(row: TreeRow) -> str:
    one, other = (type(stmt).__name__ for stmt in (row.before or row.after, row.after))
    if row.kind in _VERBS:
        return f"{_VERBS[row.kind]} {one}"
    return f"rewrite {one}" if one == other else f"{one} to {other}"


def whole(changes: Iterable[RewriteText]) -> str:
    """What a pass that has no rules did, in a sentence: ``works on the whole kernel: adds 2
    Barrier, moves 1 For``.
    """
    counts = counts_of(changes)
    start = "This pass works on the whole kernel"
    if not counts:
        return f"{start}; it changed no statement, and its notes say more."
    told = [_counted(name, count) for name, count in list(counts.items())[:_FEW]]
    more = sum(list(counts.values())[_FEW:])
    rest = f" and does {more} more" if more else ""
    return f"{start}: it {', '.join(told)}{rest}."


def _counted(name: str, count: int) -> str:
    if " to " in name:
        before, after = name.split(" to ")
        return f"turns {count} {before} into {after}"
    verb, kind = name.split()
    return f"{_DID[verb]} {count} {kind}"
