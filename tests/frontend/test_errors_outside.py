"""Mistakes in annotations happen before any trace, and still point at the user's line."""

from __future__ import annotations

import pytest

import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import TileTypeError


def test_an_unknown_dtype_in_an_annotation_has_a_place() -> None:
    with pytest.raises(TileTypeError) as caught:
        T.Tensor((8,), "float33")
    lines = caught.value.render().splitlines()
    assert lines[0] == "TileTypeError: 'float33' is not a dtype; did you mean 'float32'?"
    assert lines[2].endswith('| T.Tensor((8,), "float33")')
    assert lines[3].endswith("^^^^^^^^^^^^^^^^^^^^^^^^^")
