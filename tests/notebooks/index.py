"""The contents of the course's index, from the table of chapters.

``python -m tests.notebooks.index`` writes them into ``notebooks/00_index.ipynb``.
"""

from __future__ import annotations

from pathlib import Path

import nbformat

from tileworkbench.viz.model.chapters import CHAPTERS, INDEX

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
HEAD = "## Contents\n\nEach chapter is one idea, ten to fifteen cells, and needs no GPU.\n"


def contents() -> str:
    """The markdown of the index's list: a line per chapter that is there."""
    rows = (
        f"{each.number}. [{each.title}]({each.file}): {each.about}"
        for each in CHAPTERS
        if (NOTEBOOKS / each.file).exists()
    )
    return "\n".join([HEAD, *rows])


def main() -> None:
    index = nbformat.read(NOTEBOOKS / INDEX, as_version=4)
    (cell,) = [cell for cell in index.cells if cell.source.startswith(HEAD.strip())]
    cell.source = contents()
    nbformat.write(index, NOTEBOOKS / INDEX)


if __name__ == "__main__":
    main()
