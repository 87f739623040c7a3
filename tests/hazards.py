"""Kernels that are right have no warnings; a folder's `conftest.py` imports the fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tileworkbench.compiler import compilation
from tileworkbench.compiler.analysis.hazards import find_hazards
from tileworkbench.compiler.diagnostics import Note
from tileworkbench.compiler.ir.program import Program


@pytest.fixture(autouse=True)
def no_false_alarm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test one of whose kernels is compiled with a warning."""
    found: list[Note] = []

    def listening(program: Program) -> tuple[Note, ...]:
        notes = find_hazards(program)
        found.extend(notes)
        return notes

    monkeypatch.setattr(compilation, "find_hazards", listening)
    yield
    assert not found, "\n".join(note.render("warning") for note in found)
