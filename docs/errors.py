"""Pages of errors: each message with a kernel that has it and its remedy, as tests compare them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import tileworkbench as tw
from docs import markdown
from docs.language import TITLES

TESTS = Path(__file__).parents[1] / "tests"
SUBJECTS = {
    "classes": "Classes of your own",
    "cpu": "Target cpu",
    "cuda": "CUDA",
    "names": "Names and scopes",
    "overruns": "Outside a tensor",
    "pointers": "Addresses",
    "races": "Races",
    "syntax": "Python in a kernel",
    "tiles": "Operators on tiles",
    "types": "Types",
    "uninitialised": "Reads of what nobody wrote",
    "views": "Views of memory",
    "workers": "Groups of threads",
}
FOLDERS = ("frontend/diagnostics", "messages/targets", "analysis/hazards")


def cases(path: Path) -> list[tuple[str, str]]:
    """The cases of a file: a kernel, and the error that it has."""
    found = []
    for block in path.read_text(encoding="utf-8").split("=== ")[1:]:
        source, _, text = block.partition("\n")[2].partition("---\n")
        if "Error: " in text.partition("\n")[0]:
            found.append((source.strip("\n"), text.strip("\n")))
    return found


def areas() -> dict[str, list[tuple[str, str]]]:
    """The cases by what they are about."""
    paths = sorted(path for folder in FOLDERS for path in (TESTS / folder).glob("*.txt"))
    made: dict[str, list[tuple[str, str]]] = {}
    for path in paths:
        made.setdefault(path.stem, []).extend(cases(path))
    return {area: found for area, found in sorted(made.items()) if found}


def kinds() -> list[type]:
    """The classes of errors that a user can catch, each after the one it is a kind of."""
    found = [getattr(tw, n) for n in tw._EXPORTS]
    found = [c for c in found if inspect.isclass(c) and issubclass(c, (tw.TileError, Warning))]
    return sorted(found, key=lambda c: [each.__name__ for each in reversed(c.__mro__)])


def pages() -> Iterator[tuple[str, str]]:
    made = areas()
    for area, found in made.items():
        entries = [_case(source, text) for source, text in found]
        yield f"errors/{area}.md", markdown.page(f"# {_title(area)}", *entries)
    rows = [
        (
            f"`tw.{kind.__name__}`",
            ", ".join(f"`{base.__name__}`" for base in kind.__bases__),
            " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()),
        )
        for kind in kinds()
    ]
    yield (
        "errors/index.md",
        markdown.page(
            "# Errors and remedies",
            "An error says what is wrong, where (the line, with carets), why, and after `hint:` "
            "what to do. Search these pages for words of the message: each stands with a kernel "
            "that has it.",
            "## By subject",
            markdown.table(
                ("subject", "errors"),
                [(f"[{_title(area)}]({area}.md)", str(len(found))) for area, found in made.items()],
            ),
            "## Classes",
            "Each can be caught by its own name or by that of any class it is a kind of.",
            markdown.table(("class", "is a", "when"), rows),
            markdown.contents(made),
        ),
    )


def _title(area: str) -> str:
    return SUBJECTS.get(area) or TITLES.get(area) or area.capitalize()


def _case(source: str, text: str) -> str:
    title = markdown.prose(text.partition("\n")[0].replace("`", "'"))
    return markdown.page(f"## {title}", markdown.fenced(source), markdown.fenced(text, "text"))
