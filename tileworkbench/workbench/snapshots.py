"""The passes of a compilation, by position or by name, each with its program."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.compiler.rewrites import RewriteText, counts_of, rewrites_of, texts_of


class PassSnapshot:
    """The program after one pass: `.name`, `.ir` (text), `.changed`, `.time_us`, `.program`.

    `.lost` is what a kernel lacks where the pass is switched off (`tw.compile(..., disable=...)`),
    empty for a pass that must run; `.disabled` whether it is switched off. What it rewrote by which
    rule is in `.rules` and `.rewrites`; the pass runs once more when they are first asked for.
    `.changes` are those of statements.
    """

    def __init__(self, record: CompileRecord, index: int) -> None:
        snapshot = record.snapshots[index]
        self._record, self._index = record, index
        self.name, self.doc = snapshot.name, snapshot.doc
        self.program, self.changed = snapshot.program, snapshot.changed
        self.time_us, self.lost, self.disabled = snapshot.time_us, snapshot.lost, snapshot.disabled

    @property
    def ir(self) -> str:
        """The program as text."""
        return print_program(self.program)

    @cached_property
    def rewrites(self) -> tuple[RewriteText, ...]:
        """What its rules rewrote, in order: rule, line of the source, before and after. Empty for a
        pass that does not work by rules.
        """
        return tuple(texts_of(self._record, rewrites_of(self._record, self._index)))

    @property
    def rules(self) -> dict[str, int]:
        """How often it applied each of its rules, the most frequent first."""
        return counts_of(self.rewrites)

    @cached_property
    def changes(self) -> tuple[RewriteText, ...]:
        """What it did to statements, in their order: each row's `rule` is ``add Barrier``, ``remove
        Let``, ``rewrite Alloc``, ``move For`` or, of another kind than before, ``Copy to For``. All
        there is to say of a pass that works on the whole kernel, without rules.
        """
        from tileworkbench.viz.model.pass_changes import changes_of

        return tuple(changes_of(self._record, self._index))

    def to_dict(self) -> list[dict[str, Any]]:
        """`rewrites` as plain data, a row each; `changes` of a pass without rules."""
        return [asdict(each) for each in self.rewrites or self.changes]

    def to_frame(self) -> Any:
        """The same as a ``pandas.DataFrame``. Raises `UnsupportedError` without pandas."""
        from tileworkbench.workbench.plain import frame_of

        return frame_of(self.to_dict())

    def __repr__(self) -> str:
        state = "changed" if self.changed else "no change"
        return f"<pass {self.name}: {'switched off' if self.disabled else state}>"


class Passes(Sequence[PassSnapshot]):
    """The snapshots of a compilation, by position or by name."""

    def __init__(self, record: CompileRecord) -> None:
        self._program = record.program
        self._snapshots = [PassSnapshot(record, at) for at in range(len(record.snapshots))]

    def __len__(self) -> int:
        return len(self._snapshots)

    def __iter__(self) -> Iterator[PassSnapshot]:
        return iter(self._snapshots)

    def __getitem__(self, key: Any) -> Any:
        return self._snapshots[self.index(key) if isinstance(key, str) else key]

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The position of a snapshot or of the pass of that name. Raises `ArgumentError`."""
        names = [snapshot.name for snapshot in self._snapshots]
        if not isinstance(value, str):
            return self._snapshots.index(value, start, len(names) if stop is None else stop)
        if value not in names:
            near = difflib.get_close_matches(value, names, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(names)}"
            raise ArgumentError(f"there is no pass '{value}'", hint)
        return names.index(value)

    def diff(self, key: str | int) -> str:
        """What the pass changed, as a unified diff of the IR text (empty when nothing)."""
        at = self.index(key) if isinstance(key, str) else key
        after = self._snapshots[at]
        first = at in (0, -len(self))
        before = self._program if first else self._snapshots[at - 1].program
        lines = difflib.unified_diff(
            print_program(before).splitlines(),
            after.ir.splitlines(),
            "before",
            f"after {after.name}",
            lineterm="",
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        changed = sum(snapshot.changed for snapshot in self._snapshots)
        return f"<{len(self)} passes, {changed} changed>"
