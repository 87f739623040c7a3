"""What became of a function of torch operations: kernels, and what torch runs itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.workbench.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a graph: torch's name, the line of the user's code that it comes from (0 and
    "" where torch kept none), and the kernel that does it, or why torch does.
    """

    name: str
    line: int
    text: str
    kernel: str = ""
    reason: str = ""
    in_backward: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel of a compiled function.

    `source` is its T program. `operations` are those that it does, in short. `reference` does the
    same operations in torch: it takes the kernel's inputs and returns what the kernel returns.
    `note` says why it does not do more, "" where that is no choice.
    """

    name: str
    source: str
    operations: tuple[str, ...]
    kernel: Kernel
    reference: Callable[..., Any]
    note: str = ""

    def __repr__(self) -> str:
        note = f". {self.note.removesuffix('.')}" if self.note else ""
        return f"{self.name}: {', '.join(self.operations)}{note}"

    def cell(self, owner: str) -> str:
        """The text of a `%%tile` cell with the program, checked against torch; `owner` is the
        notebook's name for the function.
        """
        return f'%%tile {self.name} --check {owner}["{self.name}"].reference\n{self.source}'


@dataclass(slots=True)
class Report:
    """What became of the operations of a function.

    `parts` are the kernels, `operations` all operations in order, `breaks` say where torch could
    not capture the function and runs Python between its graphs. `forms` are the kernels by what
    they are but for names (see `forms.form_of`).
    """

    parts: list[Part] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    forms: dict[str, Part] = field(default_factory=dict, repr=False)

    def withdraw(self, operations: Iterable[Operation], reason: str) -> None:
        """Say of these operations of the report that torch runs them, and why. Kernels that no
        other operation needs are gone.
        """
        gone = set(map(id, operations))
        self.operations[:] = [
            replace(each, kernel="", reason=reason) if each.kernel and id(each) in gone else each
            for each in self.operations
        ]
        needed = {each.kernel for each in self.operations}
        self.parts[:] = [part for part in self.parts if part.name in needed]
        self.forms = {form: part for form, part in self.forms.items() if part.name in needed}

    @property
    def in_torch(self) -> list[tuple[str, str]]:
        """The operations that torch runs, each with the reason."""
        return [(each.name, each.reason) for each in self.operations if not each.kernel]

    @property
    def source(self) -> str:
        """The kernels as text that runs by itself."""
        head = "import tileworkbench.language as T\n"
        return "\n\n".join([head, *(part.source for part in self.parts)])

    @property
    def summary(self) -> str:
        """``5 of 6 operations run in 2 kernels``."""
        inside = sum(bool(each.kernel) for each in self.operations)
        kernels = f"{len(self.parts)} kernel{'s' * (len(self.parts) != 1)}"
        return f"{inside} of {len(self.operations)} operations run in {kernels}"

    def __str__(self) -> str:
        text = [self.summary]
        text += [f"  {part!r}" for part in self.parts]
        if self.in_torch:
            text.append(f"{len(self.in_torch)} run in torch:")
            for (name, reason), count in Counter(self.in_torch).items():
                times = f" ({count} times)" if count > 1 else ""
                text.append(f"  {name}{times}: {reason}")
        if self.breaks:
            text.append("Python runs between graphs:")
            text += [f"  {each}" for each in self.breaks]
        return "\n".join(text)
