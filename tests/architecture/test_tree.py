"""The shape of the tree: where things lie and how long a file may be."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"tileworkbench", "notebooks", "extensions", "tests", "benchmarks", "docs"}
LINES = 700  # the aim is 400
LONG_FUNCTIONS = 17


def tracked_files() -> list[str]:
    """Paths of the files in the repository; skips where the tests run without one."""
    if not (ROOT / ".git").exists():
        pytest.skip("the tests run outside a git checkout, so there is no list of files")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listing.stdout.split("\0") if name]


def test_top_level_holds_only_the_agreed_folders() -> None:
    folders = {name.split("/")[0] for name in tracked_files() if "/" in name}
    assert sorted(f for f in folders - FOLDERS if not f.startswith(".")) == []


def test_no_source_file_is_too_long() -> None:
    sources = [p for p in map(ROOT.joinpath, tracked_files()) if p.suffix in {".py", ".js", ".css"}]
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in sources if p.exists()}
    long = {str(p.relative_to(ROOT)): count for p, count in lengths.items() if count > LINES}
    assert long == {}


def test_passes_are_pages() -> None:
    """Of 250 lines at most."""
    folder = ROOT / "tileworkbench" / "compiler" / "passes"
    lengths = {p.stem: len(p.read_text(encoding="utf-8").splitlines()) for p in folder.glob("*.py")}
    long = {name: count for name, count in lengths.items() if count > 250}
    assert long == {}


def test_functions_are_short() -> None:
    """Of 50 lines at most; there may only be fewer that are longer. A kernel is one function."""
    long = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in sorted((ROOT / "tileworkbench").rglob("*.py"))
        if "kernels" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 50  # type: ignore[operator]
    ]
    assert len(long) <= LONG_FUNCTIONS, long


def test_each_decision_has_its_line_and_its_reason() -> None:
    folder = ROOT / "tileworkbench" / "compiler"
    page = (folder / "DECISIONS.md").read_text(encoding="utf-8")
    listed = [int(number) for number in re.findall(r"^- \*\*(\d+)\*\* \S", page, re.M)]
    texts = [path.read_text(encoding="utf-8") for path in (folder / "decisions").glob("*.md")]
    told = [int(n) for text in texts for n in re.findall(r"^## (\d+)\. [^\n]+\n\n\S", text, re.M)]
    assert sorted(listed) == sorted(told) == list(range(1, len(listed) + 1))


def test_a_decision_is_one_whole_line_in_its_place() -> None:
    page = (ROOT / "tileworkbench" / "compiler" / "DECISIONS.md").read_text(encoding="utf-8")
    for topic in page.split("\n## ")[1:]:
        lines = [line for line in topic.splitlines() if line.startswith("- ")]
        numbers = [int(re.findall(r"\d+", line)[0]) for line in lines]
        assert numbers == sorted(numbers)
        assert [line for line in lines if not line.endswith((".", ")"))] == []
        assert [line for line in lines if line.endswith(("...", "…")) or len(line) > 220] == []


def test_the_files_that_the_architecture_names_exist() -> None:
    folder = ROOT / "tileworkbench" / "compiler"
    page = (folder / "ARCHITECTURE.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]+) \|", page, re.M)
    named = [name for cell in cells for name in re.findall(r"`([\w./]+(?:/|\.py))`", cell)]
    assert len(named) > 20
    assert [name for name in named if not (folder / name).exists()] == []


def test_every_file_that_the_architecture_mentions_exists() -> None:
    """By the end of its path: prose names files without the folder that a row has named."""
    page = (ROOT / "tileworkbench" / "compiler" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    mentioned = set(re.findall(r"`(?:\.\./)?([\w*./-]+\.(?:py|js|ts|h|css|txt|cu))`", page))
    files = ["/" + name for name in tracked_files()]
    assert len(mentioned) > 60
    gone = [m for m in mentioned if "*" not in m and not any(f.endswith("/" + m) for f in files)]
    assert gone == []
