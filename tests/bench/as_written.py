"""Programs with all rows of their tiles, whose size is what a test is about."""

from __future__ import annotations

from typing import Any

import tileworkbench as tw
from tileworkbench.compiler.ir.program import Program


def lowered_as_written(made: Any) -> Program:
    """The program of stage CPU, with as many rows in a block as it says."""
    return tw.compile(made, target="cpu", disable=("split_rows",)).stats.lowered
