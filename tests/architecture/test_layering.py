"""The package's imports follow the layer table, and the check itself rejects what breaks it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.layers import ROOT, find_cycles, find_violations, module_name, read_modules

PACKAGE = Path(__file__).parents[2] / ROOT


def packages_in(folder: Path) -> frozenset[str]:
    return frozenset(module_name(path, folder) for path in folder.rglob("__init__.py"))


def violations(importer: str, source: str, *others: str) -> list[str]:
    modules = {name: ast.parse("") for name in (ROOT, *others)}
    modules[importer] = ast.parse(source)
    return find_violations(modules, frozenset({ROOT}))


def test_every_import_is_allowed_by_the_layer_table() -> None:
    assert not (found := find_violations(read_modules(PACKAGE), packages_in(PACKAGE))), "\n".join(
        ["", *found]
    )


def test_no_modules_import_each_other_while_loading() -> None:
    assert find_cycles(read_modules(PACKAGE), packages_in(PACKAGE)) == []


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert sorted(str(f) for f in folders if not (f / "__init__.py").exists()) == []


@pytest.mark.parametrize(
    ("importer", "source", "expected"),
    [
        (
            "tileworkbench.compiler.passes.split_loops",
            "from tileworkbench.compiler.emit import llvm",
            "tileworkbench.compiler.passes.split_loops:1: imports 'tileworkbench.compiler.emit':"
            " 'compiler.passes' may import ['compiler.ir', 'compiler.layout', 'compiler.machine', "
            "'compiler.diagnostics', 'compiler.fast_dataclass', 'compiler.target', "
            "'compiler.analysis', "
            "'compiler.schedule', 'compiler.lower'] of the package, not 'compiler.emit'",
        ),
        (
            "tileworkbench.compiler.emit.c_like.program",
            "from tileworkbench.compiler.emit.cuda import dialect",
            "tileworkbench.compiler.emit.c_like.program:1: imports "
            "'tileworkbench.compiler.emit.cuda': 'compiler.emit.c_like' may import "
            "['compiler.ir', 'compiler.layout', 'compiler.machine', 'compiler.diagnostics', "
            "'compiler.fast_dataclass', 'compiler.target', 'compiler.analysis', "
            "'compiler.emit.float_formats'] of the "
            "package, not 'compiler.emit.cuda'",
        ),
        (
            "tileworkbench.compiler.frontend.builder",
            "def f():\n    from ..passes import pipeline",
            "tileworkbench.compiler.frontend.builder:2: imports 'tileworkbench.compiler.passes': "
            "'compiler.frontend' may import ['compiler.ir', 'compiler.layout', 'compiler.machine', "
            "'compiler.diagnostics', 'compiler.fast_dataclass', 'compiler.target'] of the package, "
            "not 'compiler.passes'",
        ),
        (
            "tileworkbench.compiler.runtime.arrays",
            "import torch",
            "tileworkbench.compiler.runtime.arrays:1: imports 'torch': "
            "'compiler.runtime' may import 'torch' inside a function only",
        ),
        (
            "tileworkbench.compiler.driver",
            "def f():\n    import IPython.display",
            "tileworkbench.compiler.driver:2: imports 'IPython.display': "
            "'compiler.driver' may not import 'IPython'",
        ),
        (
            "tileworkbench.workbench.kernel",
            "def f():\n    import tileworkbench",
            "tileworkbench.workbench.kernel:2: imports 'tileworkbench': "
            "nothing inside the package imports its root",
        ),
        (
            "tileworkbench.compiler.helpers",
            "import os",
            "tileworkbench.compiler.helpers: is in no layer: add it to RULES in "
            "tests/architecture/layers.py",
        ),
    ],
)
def test_forbidden_import_is_named(importer: str, source: str, expected: str) -> None:
    assert violations(importer, source) == [expected]


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("tileworkbench.compiler.runtime.arrays", "def f():\n    import torch"),
        ("tileworkbench.compiler.passes.split_loops", "from . import pipeline"),
        ("tileworkbench.compiler.emit.llvm", "from ..analysis.ranges import bounds"),
        ("tileworkbench.viz.widgets.card", "import anywidget"),
        ("tileworkbench.api", "from tileworkbench.viz import magics"),
        (
            "tileworkbench.compiler.ir.stmt",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy as np",
        ),
    ],
)
def test_allowed_import_passes(importer: str, source: str) -> None:
    assert violations(importer, source) == []


def test_cycle_is_found_and_a_lazy_import_breaks_it() -> None:
    eager = {"p.a": ast.parse("import p.b"), "p.b": ast.parse("import p.c")}
    closed = {**eager, "p.c": ast.parse("from p.a import x")}
    opened = {**eager, "p.c": ast.parse("def f():\n    from p.a import x")}
    assert find_cycles(closed, frozenset()) == [["p.a", "p.b", "p.c"]]
    assert find_cycles(opened, frozenset()) == []
