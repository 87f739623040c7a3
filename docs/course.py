"""The course as pages: the notebooks with their saved outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs import markdown
from tileworkbench.viz.model.chapters import CHAPTERS, INDEX

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LINK = re.compile(r"\[([^\]\n]*)\]\((\w+\.ipynb)\)")


def course_pages() -> Iterator[tuple[str, str]]:
    present = [each for each in CHAPTERS if (NOTEBOOKS / each.file).exists()]
    for chapter in present:
        yield f"course/{chapter.file}", notebook(NOTEBOOKS / chapter.file)
    yield (
        "course/index.md",
        markdown.page(
            "# The course",
            "Tile kernels from zero, in notebooks: these pages show them with their outputs. To "
            "run one, `make lab` in a checkout, or `%tile course` in a notebook of your own. Each "
            "has a question, a cell that fails until you have changed one line.",
            markdown.table(
                ("", "chapter", "what it is about"),
                [(str(e.number), f"[{e.title}]({e.file})", e.about) for e in present],
            ),
            markdown.contents(each.name for each in present),
        ),
    )


def _kept(link: re.Match[str]) -> str:
    """A link to a chapter that is not written yet is its text; the contents are a page here."""
    if link[2] == INDEX:
        return f"[{link[1]}](index.md)"
    return link[0] if (NOTEBOOKS / link[2]).exists() else link[1]


def notebook(path: Path) -> str:
    """A notebook as a page: folded sources stay folded; what only a kernel gives is left out."""
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    made["metadata"].pop("widgets", None)
    for cell in made["cells"]:
        source = LINK.sub(_kept, "".join(cell["source"]))
        # The course's questions follow the title directly in some chapters.
        cell["source"] = source.replace("### Your turn", "## Your turn", 1)
        tags = cell["metadata"].setdefault("tags", [])
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            tags.append("hide-input")
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    return json.dumps(made, indent=1, ensure_ascii=False)
