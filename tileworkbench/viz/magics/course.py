"""`%tile course`: the chapters, and one of them put beside the user's notebook."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tileworkbench.viz.magics.grammar import near
from tileworkbench.viz.model.chapters import CHAPTERS, INDEX, Chapter, chapter_of

_PACKAGE = Path(__file__).parents[2]
FOLDER = "course"  # in the working directory, which in Jupyter is that of the notebook


def contents() -> str:
    """The chapters, one a line, and how to open one."""
    width = max(len(chapter.title) for chapter in CHAPTERS)
    rows = [f"{each.number:>2}  {each.title:<{width}}  {each.about}" for each in CHAPTERS]
    return "\n".join([*rows, "'%tile course 7' puts chapter 7 beside your notebook"])


def find_chapter(word: str) -> Chapter:
    """The chapter of that number, name or view. Raises `UsageError`."""
    named = chapter_of(word)
    for chapter in CHAPTERS:
        if word in (chapter.name, chapter.file, chapter.name[3:], str(chapter.number)):
            named = chapter
    if named is None:
        names = (name for each in CHAPTERS for name in (each.name[3:], *each.views))
        known = list(dict.fromkeys(names))  # a chapter may be called like a view
        raise UsageError(f"there is no chapter '{word}'{near(word, known)}")
    return named


def notebooks() -> Path:
    """The folder of the committed chapters: of the installed package, or of the checkout."""
    for folder in (_PACKAGE / "notebooks", _PACKAGE.parent / "notebooks"):
        if (folder / INDEX).is_file():
            return folder
    raise UsageError(f"the course is not in '{_PACKAGE}': install tileworkbench again")


def put_course(folder: Path) -> Path:
    """The course in `folder`: where the notebooks are that one may write into.

    Chapters link to each other, so all are copied. Those that are there stay as the reader left
    them; one who works in the checkout has them already. Raises `UsageError`.
    """
    source = notebooks()
    if folder.resolve() == source.resolve() or (folder / INDEX).is_file():
        return folder
    target = folder / FOLDER
    try:
        target.mkdir(exist_ok=True)
        for file in sorted(source.glob("*.ipynb")):
            if not (target / file.name).exists():
                shutil.copyfile(file, target / file.name)
    except OSError as error:
        raise UsageError(
            f"the course cannot be copied to '{target}' ({error.strerror}): "
            "'%cd' to a folder that you may write to"
        ) from None
    return target


class Opened:
    """Where a chapter is now, as a link."""

    def __init__(self, chapter: Chapter, folder: Path) -> None:
        self.chapter, self.folder = chapter, folder

    @property
    def path(self) -> str:
        """Of the chapter's file, relative to the working directory where it is below."""
        file = self.folder / self.chapter.file
        here = Path.cwd()
        return file.relative_to(here).as_posix() if file.is_relative_to(here) else str(file)

    def __repr__(self) -> str:
        return f"chapter {self.chapter.number}, '{self.chapter.title}': {self.path}"

    def _repr_html_(self) -> str:
        link = f'<a href="{escape(self.path)}">{escape(self.chapter.title)}</a>'
        return f"<div>Chapter {self.chapter.number}, {link}: {escape(self.chapter.about)}</div>"


def open_chapter(words: list[str]) -> Any:
    """What `%tile course WORDS` shows. Raises `UsageError`."""
    if not words:
        print(contents())
        return None
    if len(words) > 1:
        raise UsageError(f"one chapter at a time, not '{' '.join(words)}'")
    return Opened(find_chapter(words[0]), put_course(Path.cwd()))
