"""Names in front of the outermost running loop, for what none of its iterations changes."""

from __future__ import annotations

from collections.abc import Collection

from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.stmt import For


class LoopFront:
    """The place in front of the outermost loop that is not written out, while its body is written.

    `declared` gathers what only exists within the loop; `facts` is a dialect's to keep what it
    knows about the loop.
    """

    def __init__(self, lines: list[str]) -> None:
        self.loop: For | None = None
        self.declared: set[Var | Buffer] = set()
        self.facts: dict[str, int] = {}
        self._lines = lines
        self._place, self._depth = 0, 0
        self._names: dict[str, str] = {}  # of texts, in front of this loop
        self._used: set[str] = set()  # in front of any loop

    def enter(self, loop: For, depth: int) -> None:
        """`loop` is written from here on; inner ones change nothing."""
        if self.loop is None:
            self.loop, self._place, self._depth = loop, len(self._lines), depth
            self.declared.clear()
            self.facts.clear()

    def leave(self, loop: For) -> None:
        if self.loop is loop:
            self.loop = None
            self._names.clear()

    def hoisted(self, text: str, used: Collection[Var | Buffer], name: str, definition: str) -> str:
        """A name like `name` for `text`, defined by `definition`, which has "{name}" and "{text}".
        `text` itself where there is no loop, or where something `used` in it is declared within.
        """
        if self.loop is None or not self.declared.isdisjoint(used):
            return text
        if text not in self._names:
            taken = name if name not in self._used else f"{name}_{len(self._used)}"
            self._used.add(taken)
            line = "  " * self._depth + definition.format(name=taken, text=text)
            self._lines.insert(self._place, line)
            self._place += 1
            self._names[text] = taken
        return self._names[text]
