"""Rows of a table that an index picks: embeddings, `table[indices]`."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.nodes import Node, name_of, shape_of, value_of
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError


@dataclass(frozen=True, slots=True)
class Gather:
    """The rows of `table` at `indices`; where it `wraps`, -1 is the last row."""

    table: Node
    indices: Node
    wraps: bool

    @property
    def columns(self) -> int:
        """The elements of one row."""
        count = 1
        for extent in shape_of(self.table)[1:]:
            count *= extent
        return count

    @property
    def rows(self) -> int:
        """The rows of the table."""
        return shape_of(self.table)[0]


def hold_rows(graph: Any) -> None:
    """Hold on to it that there is an index for each row, where elements of rows are picked and both
    numbers of rows are open: torch compiles again for others.
    """
    for node in graph.nodes:
        if name_of(node) == aten.PICK:
            rows, places = (value_of(node.args[at]).shape for at in (0, 2))
            if places[-1:] == (1,):
                bool(rows[:-1] == places[:-1])  # asking is what holds on to it


def gather_of(node: Node, narrowest: int = 2) -> Gather | None:
    """What an operation gathers, None for other operations. Raises `NoRuleError` for one that does
    not take whole rows, or rows of fewer than `narrowest` elements.
    """
    name = name_of(node)
    if name not in aten.GATHERS:
        return None
    first, second = aten.GATHERS[name]
    indices: Any = node.args[second]
    if name == "aten.index.Tensor":
        if len(indices) != 1 or indices[0] is None:
            raise NoRuleError("indices of another dimension than the first")
        (indices,) = indices
    if name == "aten.index_select.default" and node.args[1] != 0:
        raise NoRuleError("indices of another dimension than the first")
    if dtype_name(value_of(indices).dtype) not in ("int32", "int64"):
        raise NoRuleError("indices that are no integers")
    made = Gather(node.args[first], indices, name == "aten.index.Tensor")
    if is_open(made.columns):
        raise OpenSizeError(made.columns)
    if made.columns < narrowest:
        raise NoRuleError("rows of one element")
    return made
