"""`tw.compare`: kernels side by side, fact by fact and view by view; what differs is loud."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.record import CompileRecord, names_of
from tileworkbench.viz.display import comparison_mimebundle
from tileworkbench.viz.model.bundle import Bundle
from tileworkbench.viz.model.compared import (
    Compared,
    Fact,
    compare_views,
)
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.view import KernelView
from tileworkbench.workbench.kernel import Kernel

_CHARACTERS = 70  # of a value that is printed


@dataclass(frozen=True)
class Comparison:
    """Kernels side by side; `print` shows it as a table followed by the source's differences.

    Attributes:
        names: the kernels with their constants; with target, version of the cell or a number where
            that is needed to tell them apart.
        kernels: the data of their views.
    """

    names: tuple[str, ...]
    kernels: tuple[KernelView, ...]

    @cached_property
    def views(self) -> dict[str, Compared]:
        """The card and each view that one of the kernels has, by name."""
        return {part.name: part for part in compare_views(self.kernels, live=True)}

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The rows of all views."""
        return tuple(fact for view in self.views.values() for fact in view.facts)

    @property
    def differences(self) -> tuple[Fact, ...]:
        """The rows in which the kernels differ."""
        return tuple(fact for fact in self.facts if fact.differs)

    @property
    def source_diff(self) -> str:
        """Unified diff of the users' texts of two kernels, empty where they are the same."""
        return self._diff(lambda record: record.source)

    @property
    def code_diff(self) -> str:
        """The same of the generated texts of two kernels for GPUs."""
        kinds = {view.target_kind for view in self.kernels}
        return self._diff(lambda record: record.code) if kinds == {"gpu"} else ""

    def to_dict(self) -> dict[str, dict[str, dict[str, str | None]]]:
        """Plain data: view to label to kernel to text."""
        return {
            name: {fact.label: dict(zip(self.names, fact.values, strict=True)) for fact in v.facts}
            for name, v in self.views.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """A row per fact, for a DataFrame: ``pandas.DataFrame(comparison.rows())``."""
        return [
            {
                "view": fact.view,
                "fact": fact.label,
                "differs": fact.differs,
                **dict(zip(self.names, fact.values, strict=True)),
            }
            for fact in self.facts
        ]

    def __str__(self) -> str:
        rows = [("", *self.names)]
        for name, view in self.views.items():
            told = view.facts if name == "card" else view.differences
            label = "" if name == "card" else f"{name}: "
            for fact in told:
                values = (clip(each or "", _CHARACTERS) for each in fact.values)
                rows.append((f"{label}{fact.label}", *values))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *(("", self.source_diff) if self.source_diff else ())])

    def __repr__(self) -> str:
        parts = compare_views(self.kernels, live=False)
        count = sum(len(part.differences) for part in parts)
        same = len({view.record.source for view in self.kernels}) == 1
        source = "same source" if same else "source differs"
        facts = f"{count} fact{'' if count == 1 else 's'} differ{'s' if count == 1 else ''}"
        return f"<compare {' | '.join(self.names)} | {facts}, {source}>"

    def _repr_mimebundle_(self, **_options: Any) -> Bundle:
        return comparison_mimebundle(self.kernels, self.names, repr(self))

    def _diff(self, text: Callable[[CompileRecord], str]) -> str:
        """The unified difference of two texts; of more kernels none is made."""
        if len(self.kernels) != 2:
            return ""
        one, other = (text(view.record).splitlines() for view in self.kernels)
        first, second = self.names
        return "\n".join(difflib.unified_diff(one, other, first, second, lineterm=""))


def compare(*kernels: Any) -> Comparison:
    """Two or more `Kernel`s side by side: versions of one, or one on several targets.

    Raises `ArgumentError` for fewer than two, or for what is no compiled kernel.
    """
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            message = f"a comparison takes compiled kernels, not '{type(kernel).__name__}'"
            raise ArgumentError(message, "tw.compile(...), or .kernel of what tw.jit decorates")
    if len(kernels) < 2:
        raise ArgumentError(f"a comparison takes two kernels or more, not {len(kernels)}")
    views = tuple(kernel.view() for kernel in kernels)
    return Comparison(names_of([view.record for view in views], versions_of(kernels)), views)


def versions_of(kernels: Sequence[Kernel]) -> list[int]:
    """The version of the cell that made each kernel, 0 where nobody counts them."""
    return [kernel.trail.number for kernel in kernels]
