"""The passes of a compilation, by position or by name, each with its program."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.record import Snapshot


class PassSnapshot:
    """The program after one pass: `.name`, `.ir` (text), `.changed`, `.time_us`, `.program`.

    `.lost` is what a kernel lacks where the pass is switched off (`tw.compile(..., disable=...)`),
    empty for a pass that must run; `.disabled` whether it is switched off.
    """

    __slots__ = ("changed", "disabled", "doc", "lost", "name", "program", "time_us")

    def __init__(self, snapshot: Snapshot) -> None:
        self.name, self.doc = snapshot.name, snapshot.doc
        self.program, self.changed = snapshot.program, snapshot.changed
        self.time_us, self.lost, self.disabled = snapshot.time_us, snapshot.lost, snapshot.disabled

    @property
    def ir(self) -> str:
        """The program as text."""
        return print_program(self.program)

    def __repr__(self) -> str:
        state = "changed" if self.changed else "no change"
        return f"<pass {self.name}: {'switched off' if self.disabled else state}>"


class Passes(Sequence[PassSnapshot]):
    """The snapshots of a compilation, by position or by name."""

    def __init__(self, program: Program, snapshots: tuple[Snapshot, ...]) -> None:
        self._program = program
        self._snapshots = [PassSnapshot(snapshot) for snapshot in snapshots]

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
