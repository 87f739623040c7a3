"""What a run prints, by block and thread, as plain data."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP
from tileworkbench.compiler.sim.observers import Observer

if TYPE_CHECKING:
    from tileworkbench.compiler.ir.stmt import Print
    from tileworkbench.compiler.sim.frame import Frame

MOST_LINES = 10_000
"""How many lines of a run are kept, about 5 MiB; further ones are counted."""

_PARTS = re.compile(r"msg='(.*)' BlockIdx=\([^()]*\)(?:, ThreadIdx=\([^()]*\))?(?:: (.*))?", re.S)


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """A line that `T.print` has made.

    Attributes:
        block: the indices of the block, x first.
        thread: its number in the block, x fastest; lowered for a GPU, the one that writes what all
            would. -1 where all threads print the line once, or an iteration of a parallel loop does
            whose thread is not known.
        loops: the variables of the loops around it, as the kernel calls them, with their values.
        line: of the user's text; 0 where that is not known.
        message: what the kernel says with `msg`.
        value: the rest of the text, without the place: dtype, index and value.
        text: the whole line, as it is written to the standard output.
    """

    block: tuple[int, ...]
    thread: int
    loops: tuple[tuple[str, int], ...]
    line: int
    message: str
    value: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, with the warp and the lane of the thread."""
        row = asdict(self)
        row["block"], row["loops"] = list(self.block), dict(self.loops)
        known = self.thread >= 0
        row["thread"] = self.thread if known else None
        row["warp"] = self.thread // LANGUAGE_WARP if known else None
        row["lane"] = self.thread % LANGUAGE_WARP if known else None
        return row


@dataclass(frozen=True, slots=True)
class Prints:
    """What a simulated run printed, in the order of the run.

    Attributes:
        kernel: its name.
        lines: the first of them.
        dropped: how many came after those.
        inputs: on which inputs it ran, in a few words.
        stopped: why the run did not come to its end; empty where it did.
    """

    kernel: str
    lines: tuple[PrintedLine, ...]
    dropped: int = 0
    inputs: str = ""
    stopped: str = ""

    def by_thread(self) -> dict[tuple[int, ...], dict[int, tuple[PrintedLine, ...]]]:
        """The lines by block and, in it, by thread, both in order; -1 is of no single thread."""
        groups: dict[tuple[int, ...], dict[int, list[PrintedLine]]] = {}
        for line in self.lines:
            groups.setdefault(line.block, {}).setdefault(line.thread, []).append(line)
        return {
            block: {thread: tuple(groups[block][thread]) for thread in sorted(groups[block])}
            for block in sorted(groups, key=lambda block: block[::-1])
        }

    def select(
        self,
        block: tuple[int, ...] | None = None,
        thread: int | None = None,
        line: int | None = None,
        text: str = "",
    ) -> Prints:
        """Those of one block, one thread, one line of the kernel, and with `text` in them."""
        kept = tuple(
            each
            for each in self.lines
            if (block is None or each.block == tuple(block))
            and (thread is None or each.thread == thread)
            and (line is None or each.line == line)
            and text in each.text
        )
        return Prints(self.kernel, kept, self.dropped, self.inputs, self.stopped)

    def rows(self) -> list[dict[str, Any]]:
        """A row per line."""
        return [line.to_dict() for line in self.lines]

    def to_dict(self) -> dict[str, Any]:
        """The prints as plain data."""
        names = ("kernel", "dropped", "inputs", "stopped")
        return {name: getattr(self, name) for name in names} | {"lines": self.rows()}

    def __str__(self) -> str:
        rest = f"... and {self.dropped} lines more" if self.dropped else ""
        return "\n".join(filter(None, [*(line.text for line in self.lines), rest, self.stopped]))


class PrintLog(Observer):
    """Keeps what a run of `program` prints."""

    __slots__ = ("_program", "dropped", "lines")

    def __init__(self, program: Program) -> None:
        self._program, self.dropped = program, 0
        self.lines: list[PrintedLine] = []

    def printed(
        self, frame: Frame, stmt: Print, thread: int, loops: dict[str, int], text: str
    ) -> None:
        if len(self.lines) >= MOST_LINES:
            self.dropped += 1
            return
        span = self._program.span(stmt.site)
        match = _PARTS.fullmatch(text)
        message, value = match.groups() if match else ("", text)
        self.lines.append(
            PrintedLine(
                frame.block,
                thread,
                tuple(loops.items()),
                0 if span is None else span.line,
                message,
                value or "",
                text,
            )
        )
