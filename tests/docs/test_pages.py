"""The other pages: what they are made from is all there, and the built ones need no network."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tileworkbench as tw
from docs import api, course, errors, magics, operations
from docs.language import groups
from tests.notebooks.index import NOTEBOOKS
from tileworkbench.pytorch import aten, in_torch
from tileworkbench.viz.magics.grammar import COMMANDS, flags
from tileworkbench.viz.model.chapters import INDEX

ROOT = Path(__file__).parents[2]


def test_the_interface_is_whole() -> None:
    ((_, text),) = api.pages()
    for name in api.names():
        assert inspect.getdoc(getattr(tw, name)), name
        assert f"## `tw.{name}`" in text
    for cls in (tw.Kernel, tw.Jit):
        public = {name for name in dir(cls) if not name.startswith("_")}
        assert public - {name for name in public if f"### `{cls.__name__}.{name}`" in text} == set()


def test_flags_and_commands_are_those_of_the_grammar() -> None:
    ((_, text),) = magics.pages()
    for flag in flags():
        assert re.search(rf"`{flag}[ `]", text), flag
    assert "`-t`, `--target TARGET`" in text and "`--bench [N]`" in text
    for command in COMMANDS:
        assert f"`%tile {command}" in text


def test_every_operation_of_torch_is_in_a_group_or_has_a_reason() -> None:
    ((_, text),) = operations.pages()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    groups = {row[0].removeprefix("| "): row[-1] for row in rows}
    assert {aten.group_of(name) for name in aten.NAMES} == operations.GROUPS.keys()
    for name in (*aten.NAMES, *in_torch.REASONS):
        where = in_torch.REASONS.get(name, aten.group_of(name))
        assert f"`{name}`" in groups[where], name


def test_every_class_of_errors_and_every_case_is_there() -> None:
    made = dict(errors.pages())
    exported = {name for name in tw._EXPORTS if name.endswith(("Error", "Warning", "Interrupted"))}
    assert exported <= set(re.findall(r"`tw\.(\w+)`", made["errors/index.md"]))
    assert sum(map(len, errors.areas().values())) > 300
    for area, found in errors.areas().items():
        for source, text in found:
            assert source in made[f"errors/{area}.md"] and text in made[f"errors/{area}.md"]


def test_every_chapter_is_a_page() -> None:
    made = dict(course.course_pages())
    index = made.pop("course/index.md")
    chapters = {Path(place).name for place in made}
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} == {INDEX, *chapters}
    assert all(f"({chapter})" in index for chapter in chapters)


OUTSIDE = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"'](?:https?:)?//[^\"']+"
    r"|<link\b(?=[^>]*rel=[\"'](?:stylesheet|preload|icon|preconnect)[\"'])[^>]*href=[\"'](?:https?:)?//[^\"']+"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//|url\([\"']?(?:https?:)?//[^)]+"
)


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js">',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        '@import url("https://fonts.example/a.css")',
        "a { background: url(https://example.org/x.png) }",
    ],
)
def test_what_needs_a_network_is_found(text: str) -> None:
    assert OUTSIDE.search(text)
    assert not OUTSIDE.search('<a href="https://example.org">a link is no fetch</a>')


@pytest.mark.slow
def test_the_build_has_no_warning_and_needs_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-d", str(tmp_path / "doctrees"), "docs", str(tmp_path / "html")]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert made.returncode == 0, made.stderr
    pages = sorted((tmp_path / "html").rglob("*.html"))
    assert len(pages) > len(groups()) + len(errors.areas())
    for path in [*pages, *(tmp_path / "html").rglob("*.css")]:
        found = OUTSIDE.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path.name}: {found[0]}"
