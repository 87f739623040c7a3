"""The kernels that this session's cells have made, version by version."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from IPython.core.interactiveshell import InteractiveShell

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.viz.model.trail import KEPT, change_between
from tileworkbench.workbench.kernel import Kernel

VERSIONS = KEPT  # of each name
NAMES = 64  # kept in all; the longest unused goes first
_LEDGER = "_tile_ledger"


@dataclass(frozen=True, slots=True)
class Version:
    """One run of a cell: the magic's line, its text and the kernel; `number` counts from 1."""

    number: int
    line: str
    cell: str
    kernel: Kernel


class Ledger:
    """Versions by name, the oldest first. Running a cell again without a change adds none."""

    def __init__(self) -> None:
        self._versions: dict[str, deque[Version]] = {}

    def add(self, name: str, line: str, cell: str, kernel: Kernel) -> Version:
        """Keep a version; the same text again replaces its kernel."""
        versions = self._versions.pop(name, deque(maxlen=VERSIONS))
        self._versions[name] = versions  # the last one used
        number = versions[-1].number + 1 if versions else 1
        if versions and (versions[-1].line, versions[-1].cell) == (line, cell):
            number = versions.pop().number
        versions.append(Version(number, line, cell, kernel))
        while len(self._versions) > NAMES:
            del self._versions[next(iter(self._versions))]
        return versions[-1]

    def versions(self, name: str) -> tuple[Version, ...]:
        """The versions of a name that are kept."""
        return tuple(self._versions.get(name, ()))

    def names(self) -> tuple[str, ...]:
        """The names, the longest unused first."""
        return tuple(self._versions)


def follow_versions(versions: Sequence[Version]) -> None:
    """Put the last version on the trail of the one before it."""
    *before, last = versions
    if not before:
        last.kernel.follow(None)
        return
    old = before[-1]
    last.kernel.follow(old.kernel, change_between((old.line, old.cell), (last.line, last.cell)))


def ledger_of(shell: InteractiveShell) -> Ledger:
    """The ledger of a session."""
    ledger = getattr(shell, _LEDGER, None)
    if not isinstance(ledger, Ledger):
        ledger = Ledger()
        setattr(shell, _LEDGER, ledger)
    return ledger
