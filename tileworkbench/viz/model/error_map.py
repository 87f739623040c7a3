"""The wrong elements of an output: where they are, who wrote each last, and what they share."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP
from tileworkbench.viz.model.error_patterns import describe_places, describe_values

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ErrorMap:
    """One output of a failed check, element by element.

    Attributes:
        kernel, output: their names.
        got, expected: float64, of the output's shape.
        wrong: which elements differ by more than is allowed.
        lines: the line of the kernel's source that wrote each element last, int32; -1 where none
            is known, or none did.
        blocks: the number (x fastest) of the block that did; threads: the thread in it;
            registers: which element of the thread's own buffer it stored. int32, -1 where not
            known. A kernel for a CPU has no threads or registers.
        grid: blocks of the launch along each axis.
        sources: for a line that stores what stands in tiles: each tile, and the lines that write
            it.
        bisected: which pass made them wrong, where that was looked for (`%tile bisect`).
        recorded: how much of the call was simulated to find the writers.
        why_not: why writers are not known, or not of all elements; else empty.
    """

    kernel: str
    output: str
    got: Array
    expected: Array
    wrong: Array
    lines: Array
    blocks: Array
    threads: Array
    registers: Array
    grid: tuple[int, ...] = ()
    sources: tuple[tuple[int, tuple[tuple[str, tuple[int, ...]], ...]], ...] = ()
    bisected: str = ""
    recorded: str = ""
    why_not: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the output."""
        return tuple(self.wrong.shape)

    @property
    def count(self) -> int:
        """How many elements are wrong."""
        return int(np.count_nonzero(self.wrong))

    @cached_property
    def error(self) -> Array:
        """The absolute error of each element; NaN or infinite where one of the two is."""
        with np.errstate(invalid="ignore"):
            return np.where(self.wrong, np.abs(self.got - self.expected), 0.0)

    @cached_property
    def places(self) -> str:
        """Where the wrong elements are: ``all in lanes 16-31 of warp 1``."""
        owners = {"block": self.blocks, "thread": self.threads, "register": self.registers}
        return describe_places(self.wrong, owners, self.grid)

    @cached_property
    def values(self) -> str:
        """What the wrong values share: ``each is 0.5 times what is expected``; or empty."""
        return describe_values(self.got, self.expected, self.wrong)

    @cached_property
    def writing_lines(self) -> dict[int, int]:
        """The lines that wrote wrong elements last, each with how many; the most first."""
        lines, counts = np.unique(self.lines[self.wrong], return_counts=True)
        counted = zip(lines.tolist(), counts.tolist(), strict=True)
        return dict(sorted((each for each in counted if each[0] > 0), key=lambda each: -each[1]))

    @property
    def first_block(self) -> int:
        """The number of the block that wrote the first wrong element of which that is known; 0
        where it is not known of any.
        """
        known = self.blocks[self.wrong & (self.blocks >= 0)]
        return int(known[0]) if known.size else 0

    @property
    def pattern(self) -> str:
        """All of it in a sentence."""
        parts = [self.places, self.values, self.writers, self.bisected]
        return "; ".join(part for part in parts if part)

    @property
    def writers(self) -> str:
        """Which lines wrote the wrong elements last."""
        lines = list(self.writing_lines)
        known = sum(self.writing_lines.values())
        if not lines:
            if self.why_not:
                return ""
            others = [int(line) for line in np.unique(self.lines) if line > 0]
            also = f", others at line{'s' if len(others) > 1 else ''} " if others else ""
            return f"never written{also}{_numbers(others) if others else ''}"
        text = f"last written at line{'s' if len(lines) > 1 else ''} {_numbers(lines)}"
        rest = self.count - known
        return text if not rest or self.why_not else f"{text}, {rest} of them never"

    def feeding(self, line: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The tiles that `line` stores, each with the lines that write it."""
        return dict(self.sources).get(line, ())

    def rows(self, most: int = 1000) -> list[dict[str, Any]]:
        """The first `most` wrong elements, a row each."""
        listed = []
        for place in np.argwhere(self.wrong)[:most]:
            index = tuple(map(int, place))
            thread = int(self.threads[index])
            listed.append(
                {
                    "element": list(index),
                    "got": float(self.got[index]),
                    "expected": float(self.expected[index]),
                    "error": float(self.error[index]),
                    "line": _known(self.lines[index]),
                    "block": self.block_at(index),
                    "warp": _known(thread // LANGUAGE_WARP),
                    "lane": None if thread < 0 else thread % LANGUAGE_WARP,
                    "register": _known(self.registers[index]),
                }
            )
        return listed

    def block_at(self, index: tuple[int, ...]) -> list[int] | None:
        """The block (x first) that wrote an element last, None where it is not known."""
        number = int(self.blocks[index])
        if number < 0:
            return None
        indices = []
        for extent in self.grid:
            indices.append(number % extent)
            number //= extent
        return indices or [number]

    def worst_block(self) -> list[int] | None:
        """The block that wrote the element with the largest error, as `block_at` names it."""
        error = np.where(self.wrong, np.nan_to_num(self.error, nan=np.inf), -1.0)
        return self.block_at(tuple(map(int, np.unravel_index(int(error.argmax()), error.shape))))

    def to_dict(self) -> dict[str, Any]:
        """Counts, the pattern and the first wrong elements as plain data."""
        return {
            "kernel": self.kernel,
            "output": self.output,
            "shape": list(self.shape),
            "wrong": self.count,
            "pattern": self.pattern,
            "lines": {str(line): count for line, count in self.writing_lines.items()},
            "sources": {
                str(line): {name: list(lines) for name, lines in tiles}
                for line, tiles in self.sources
            },
            "recorded": self.recorded,
            "why_not": self.why_not,
            "elements": self.rows(),
        }

    def __str__(self) -> str:
        head = f"{self.count} of {self.wrong.size} elements of '{self.output}' are wrong"
        return f"{head}: {self.pattern}"


def _numbers(lines: list[int]) -> str:
    texts = [str(line) for line in sorted(lines)]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _known(value: Any) -> int | None:
    return None if value < 0 else int(value)
