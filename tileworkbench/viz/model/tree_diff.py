"""Differences of two programs as trees: which statements a pass kept, rewrote, added and removed.

Statements are matched from the top down: first those that are equal with all below them, then, in
the gaps between, those of one kind that declare or write the same name, and last those that came
from one place of the kernel, such as a copy and the loop it was lowered to. What was removed in one
place and is found in another was moved.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field
from difflib import SequenceMatcher
from typing import Any, Literal

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer, Region, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.printer import print_node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.stmt import Alloc, Seq, Stmt

Kind = Literal["same", "inside", "changed", "removed", "added", "moved"]

_LONG = 2000  # statements of one sequence from which on difflib may guess


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One statement of the tree, or `count` equal ones in a row (with all below them).

    `kind` is ``inside`` for a statement that is itself the same while something below it is not.
    `fields` are what a rewritten statement has otherwise: name, before, after.
    """

    kind: Kind
    depth: int
    before: Stmt | None
    after: Stmt | None
    count: int = 1
    fields: tuple[tuple[str, str, str], ...] = ()


@dataclass(slots=True)
class TreeDiff:
    """The rows, and how many statements each kind has, those below folded rows counted."""

    rows: list[TreeRow] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def count_nodes(program: Program) -> int:
    """The nodes of a program's body; what the expressions of one statement share counts once."""
    return sum(1 for _ in walk(program.body))


def count_statements(program: Program) -> int:
    """The statements of a program's body, sequences aside."""
    return sum(not isinstance(stmt, Seq) for stmt in statements(program.body))


def diff_trees(before: Program, after: Program) -> TreeDiff:
    """What a pass did to the statements of a program."""
    return _Differ(before, after).diff()


def _blocks(stmt: Stmt) -> list[tuple[Stmt, ...]]:
    """The sequences of statements that a statement holds."""
    children = [child for child in stmt.children() if isinstance(child, Stmt)]
    return [child.stmts if isinstance(child, Seq) else (child,) for child in children]


def _own(stmt: Stmt) -> list[tuple[str, Any]]:
    """The fields of a statement that are no statements, its site aside."""
    fields = []
    for each in dataclasses.fields(stmt):  # type: ignore[arg-type]
        value = getattr(stmt, each.name)
        if each.name != "site" and not isinstance(value, Stmt):
            fields.append((each.name, value))
    return fields


def _named(stmt: Stmt) -> Hashable:
    """The kind of a statement and the name that it declares or writes."""
    for each in ("buffer", "var", "vars", "dst", "c"):
        value = getattr(stmt, each, None)
        if isinstance(value, Region):
            value = value.buffer
        if isinstance(value, Buffer | Var):
            return type(stmt), value.name
        if isinstance(value, tuple) and value:
            return type(stmt), tuple(var.name for var in value)
    return type(stmt), ""


class _Differ:
    """Numbers subtrees, so that equal ones have one number, and matches them."""

    def __init__(self, before: Program, after: Program) -> None:
        self._before, self._after = before, after
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[int, int] = {}  # by identity: both programs live as long as this
        self._sizes: dict[int, int] = {}
        self._gone: Counter[int] = Counter()  # subtrees that were removed, by number
        self._came: Counter[int] = Counter()
        self._rows: list[TreeRow] = []

    def diff(self) -> TreeDiff:
        top = [
            program.body.stmts if isinstance(program.body, Seq) else (program.body,)
            for program in (self._before, self._after)
        ]
        self._sequence(top[0], top[1], 0)
        return self._finished()

    # Equal subtrees

    def _key(self, stmt: Stmt) -> int:
        known = self._keys.get(id(stmt))
        if known is None:
            below = tuple(tuple(map(self._key, block)) for block in _blocks(stmt))
            content = (type(stmt), tuple(value for _, value in _own(stmt)), below)
            known = self._keys[id(stmt)] = self._numbers.setdefault(content, len(self._numbers))
            inside = sum(self._sizes[id(child)] for block in _blocks(stmt) for child in block)
            self._sizes[id(stmt)] = 1 + inside
        return known

    def _size(self, stmt: Stmt) -> int:
        self._key(stmt)
        return self._sizes[id(stmt)]

    # Matching

    def _sequence(self, before: Sequence[Stmt], after: Sequence[Stmt], depth: int) -> None:
        ways: tuple[Callable[[Stmt], Hashable], ...] = (
            self._key,
            lambda stmt: (*_pair(_named(stmt)), stmt.site),
            _named,
            lambda stmt: stmt.site or _named(stmt),
        )
        self._match(before, after, ways, depth)

    def _match(
        self,
        before: Sequence[Stmt],
        after: Sequence[Stmt],
        ways: tuple[Callable[[Stmt], Hashable], ...],
        depth: int,
    ) -> None:
        """Rows for two runs of statements: pairs by the first way, the gaps by the others."""
        if not ways or not before or not after:
            for stmt in before:
                self._subtree(stmt, "removed", depth)
            for stmt in after:
                self._subtree(stmt, "added", depth)
            return
        way, *rest = ways
        for equal, old, new in _runs(list(map(way, before)), list(map(way, after))):
            if not equal:
                self._match(before[old], after[new], tuple(rest), depth)
                continue
            for one, other in zip(before[old], after[new], strict=True):
                self._pair(one, other, depth)

    def _pair(self, one: Stmt, other: Stmt, depth: int) -> None:
        if self._key(one) == self._key(other):
            self._add(TreeRow("same", depth, one, other))
            return
        fields = _changes(one, other)
        self._add(TreeRow("changed" if fields else "inside", depth, one, other, fields=fields))
        old, new = _blocks(one), _blocks(other)
        for at in range(max(len(old), len(new))):
            left = old[at] if at < len(old) else ()
            self._sequence(left, new[at] if at < len(new) else (), depth + 1)

    def _subtree(self, stmt: Stmt, kind: Literal["removed", "added"], depth: int) -> None:
        counted = self._gone if kind == "removed" else self._came
        counted[self._key(stmt)] += 1
        sides = (stmt, None) if kind == "removed" else (None, stmt)
        self._add(TreeRow(kind, depth, *sides))
        for block in _blocks(stmt):
            for child in block:
                self._subtree(child, kind, depth + 1)

    def _add(self, row: TreeRow) -> None:
        self._rows.append(row)

    # Moved subtrees, equal ones in a row, counts

    def _finished(self) -> TreeDiff:
        made = TreeDiff()
        moved = {"removed": self._gone & self._came, "added": self._gone & self._came}
        below: int | None = None  # the depth of a moved subtree whose rows are left out
        for row in self._rows:
            if below is not None and row.depth > below:
                continue
            below = None
            stmt = row.before or row.after
            assert stmt is not None
            left = moved.get(row.kind)
            if left is not None and left[self._key(stmt)]:
                left[self._key(stmt)] -= 1
                below = row.depth
                if row.kind == "added":  # shown and counted where it is now
                    made.rows.append(dataclasses.replace(row, kind="moved"))
                    made.counts["moved"] += self._size(stmt)
                continue
            made.counts[row.kind] += self._size(stmt) if row.kind == "same" else 1
            last = made.rows[-1] if made.rows else None
            if row.kind == "same" and last and last.kind == "same" and last.depth == row.depth:
                made.rows[-1] = dataclasses.replace(last, count=last.count + 1)
            else:
                made.rows.append(row)
        return made


def _pair(value: Hashable) -> tuple[Hashable, ...]:
    return value if isinstance(value, tuple) else (value,)


def _changes(one: Stmt, other: Stmt) -> tuple[tuple[str, str, str], ...]:
    """What reads differently in two statements, field by field; the kind, where that is another.

    A buffer that was only defined differently (laid out, flattened) reads the same in its uses.
    """
    if type(one) is not type(other):
        return (("", type(one).__name__, type(other).__name__),)
    define = isinstance(one, Alloc)
    changed = [
        (name, _text(value, define), _text(new, define))
        for (name, value), (_, new) in zip(_own(one), _own(other), strict=True)
        if value is not new and value != new
    ]
    return tuple((name, was, now) for name, was, now in changed if was != now)


def _text(value: Any, define: bool = False) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, Buffer) and define:
        layout = "" if value.layout is None else f", layout={value.layout.to_text()}"
        shape = ", ".join(print_node(extent) for extent in value.shape)
        return f"{value.scope} {value.dtype} ({shape}){layout}"
    if isinstance(value, Node):
        return print_node(value)
    return "" if value is None else str(value)


def _runs(before: list[Hashable], after: list[Hashable]) -> Iterator[tuple[bool, slice, slice]]:
    """Runs of keys that are equal, and the gaps between; common ends are taken off first."""
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if before[-1 - i] != after[-1 - i]), rest)
    if head:
        yield True, slice(0, head), slice(0, head)
    inner = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = SequenceMatcher(None, *inner, autojunk=max(map(len, inner)) > _LONG)
    for tag, low, high, start, stop in matcher.get_opcodes():
        old, new = slice(low + head, high + head), slice(start + head, stop + head)
        yield tag == "equal", old, new
    if tail:
        ends = slice(len(before) - tail, len(before)), slice(len(after) - tail, len(after))
        yield True, *ends
