"""Writes the pages that are made from the package: its docstrings, its magics, its notebooks, and
the texts of errors that tests compare.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from docs import api, errors, language, magics, operations
from docs.course import course_pages

FOLDERS = ("course", "errors", "language")  # written anew each time


def pages() -> Iterator[tuple[str, str]]:
    """Each page's place below `docs/`, and its text."""
    yield from language.pages()
    yield from api.pages()
    yield from magics.pages()
    yield from operations.pages()
    yield from errors.pages()
    yield from course_pages()


def write(folder: Path) -> None:
    """Write all pages into `folder`. A page that is as it was is left alone, which spares its
    being built again.
    """
    made = dict(pages())
    for name in FOLDERS:
        for old in (folder / name).rglob("*"):
            if old.is_file() and old.relative_to(folder).as_posix() not in made:
                old.unlink()
    for place, text in made.items():
        path = folder / place
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    shutil.copytree(
        folder.parent / "notebooks" / "images", folder / "course" / "images", dirs_exist_ok=True
    )
