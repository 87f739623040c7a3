"""Kernels that are shipped, and folders to ship them to."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_numbers = itertools.count()


@pytest.fixture
def import_folder() -> Iterator[Callable[[Path], Any]]:
    """Import a shipped folder into this process, as a package with a name of its own."""
    names: list[str] = []

    def load(folder: Path) -> Any:
        name = f"shipped_{next(_numbers)}"
        spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in [each for each in sys.modules if each.split(".")[0] in names]:
        del sys.modules[name]
