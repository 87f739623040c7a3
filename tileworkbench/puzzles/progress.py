"""Which puzzles are solved: one JSON file in the user's folder for data, readable and editable."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from datetime import date
from pathlib import Path
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass

VARIABLE = "TILEWORKBENCH_DATA_DIR"
"""Names another folder for the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of a puzzle: how often it was tried, the hints that were shown (1 to 3), whether
    the solution was, the day of the first right answer, and the last right answer.
    """

    attempts: int = 0
    hints: int = 0
    shown: bool = False
    solved: str = ""
    answer: str = ""


@dataclass
class Progress:
    """The entries by a puzzle's number. `trouble` says, in one line, why the file is not read or
    not written; then entries are kept in memory, for this session.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    trouble: str = ""

    def of(self, number: str) -> Entry:
        """The entry of a puzzle."""
        return self.entries.get(number, Entry())

    def note(self, number: str, **changes: Any) -> None:
        """Change an entry, and write the file."""
        entry = Entry(**(asdict(self.of(number)) | changes))
        self.entries[number] = _UNSAVED[number] = entry
        if self.trouble:
            return
        path = path_of_file()
        try:
            _write(path, self.entries)
            _UNSAVED.clear()
        except OSError as error:
            self.trouble = f"progress is not kept: '{path}' cannot be written: {error.strerror}"

    def note_attempt(self, number: str, answer: str, solved: bool) -> None:
        """Count an attempt; keep a right answer."""
        entry = self.of(number)
        changes: dict[str, Any] = {"attempts": entry.attempts + 1}
        if solved:
            changes |= {"solved": entry.solved or date.today().isoformat(), "answer": answer}
        self.note(number, **changes)


def path_of_file() -> Path:
    """Where progress is kept."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named) / "puzzles.json"
    import platformdirs

    return Path(platformdirs.user_data_dir("tileworkbench", appauthor=False)) / "puzzles.json"


_UNSAVED: dict[str, Entry] = {}  # of this session, where the file is not written


def load_progress() -> Progress:
    """What the file says now. A broken one is left as it is, and said to be broken."""
    path = path_of_file()
    kept: dict[str, Entry] = {}
    trouble = ""
    try:
        kept = _entries(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        pass
    except OSError as error:
        trouble = f"progress is not kept: '{path}' cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        trouble = f"progress is not kept: '{path}' is broken ({error}); mend or delete it"
    return Progress(kept | _UNSAVED, trouble)


def _entries(data: Any) -> dict[str, Entry]:
    """Raises `ValueError` for what is no progress."""
    if not isinstance(data, dict):
        raise ValueError("it holds no object")
    return {number: _entry(number, values) for number, values in data.items()}


def _entry(number: str, values: Any) -> Entry:
    known = {each.name: type(each.default) for each in fields(Entry)}
    if not isinstance(values, dict):
        raise ValueError(f"'{number}' is no object")
    for name, value in values.items():
        if type(value) is not known.get(name):
            raise ValueError(f"'{name}' of '{number}' is not understood")
    return Entry(**values)


def _write(path: Path, entries: Mapping[str, Entry]) -> None:
    """Replace the file at once: whoever reads it sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {number: asdict(entries[number]) for number in sorted(entries)}
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, ensure_ascii=False)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
