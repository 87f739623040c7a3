"""What a machine has is said in its table: code that lowers asks for it, and knows no machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.layers import ROOT
from tileworkbench.compiler.machine.tables import ARCHITECTURES

COMPILER = Path(__file__).parents[2] / ROOT / "compiler"
FOLDERS = ("frontend", "analysis", "lower/shared", "lower/threads", "schedule", "passes")
MODULES = [path for folder in FOLDERS for path in sorted((COMPILER / folder).glob("*.py"))]
_OF_THREADS = ("lane", "thread", "warp")


def facts(text: str) -> Iterator[str]:
    """Names of architectures, and threads that are counted in warps by a number."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Constant(str() as name) if name in ARCHITECTURES:
                yield f"line {node.lineno}: {name}"
            case ast.BinOp(left, ast.Mod() | ast.FloorDiv(), ast.Constant(int() as number)):
                counted = ast.unparse(left).lower()
                of_threads = "bits" not in counted and any(w in counted for w in _OF_THREADS)
                if number > 2 and of_threads:
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def test_lowering_knows_no_machine() -> None:
    assert len(MODULES) > 100
    found = {path.name: list(facts(path.read_text(encoding="utf-8"))) for path in MODULES}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize("text", ["lane % 4", "threads // 32", "target.arch == 'sm_90'"])
def test_the_check_sees_facts_of_a_machine(text: str) -> None:
    assert list(facts(text))
