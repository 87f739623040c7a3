"""Products of one row with a matrix that lies row by row in memory, as one kernel each.

`vectors` has those whose matrix is the transpose of such a one: there a row of memory is a sum.
Here a row of memory is a part of each result: a block has some columns, and adds up row after row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.members import OneOperation
from tileworkbench.pytorch.nodes import Node, cited, name_of, shape_of, value_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.written import (
    Tensor,
    Written,
    base_name,
    finished,
    free_name,
    text_of_kernel,
)

_LEAST_WEIGHTS = 1 << 16  # fewer are as fast in torch
_WIDE, _NARROW = 1024, 64  # columns of a matrix with wide blocks, and of the narrowest block
_AT_ONCE = 8  # rows that are added at once, so that sums are read and written less often


@dataclass(frozen=True, slots=True)
class RowProduct(OneOperation):
    """A group that is one product."""

    @property
    def domain(self) -> Extents:
        """The extents of its matrix."""
        return shape_of(self.node.args[aten.PRODUCTS[name_of(self.node)][1]])

    def outputs(self) -> list[Node]:
        """What other operations read."""
        return list(self.members)


def row_product(node: Node) -> RowProduct | None:
    """The group of such a product; None for other products."""
    if name_of(node) not in aten.LAYERS or node.kwargs:
        return None
    first, second, added = aten.PRODUCTS[name_of(node)]
    read = [node.args[at] for at in (first, second, *(() if added is None else (added,)))]
    if any(is_open(size) for each in read for size in shape_of(each)):
        return None
    x, matrix, *bias = map(value_of, read)
    depth, columns = matrix.shape
    kinds = {dtype_name(each.dtype) for each in (x, matrix, *bias)}
    if len(kinds) > 1 or kinds.isdisjoint({"float32", "bfloat16", "float16"}):
        return None
    is_plain = matrix.is_contiguous() and all(each.shape == (columns,) for each in bias)
    if x.shape[0] != 1 or not is_plain or depth * columns < _LEAST_WEIGHTS:
        return None
    return RowProduct((node,)) if _block_of(columns) >= _NARROW else None


def _block_of(columns: int) -> int:
    """The columns of a block: as many as there can be without a rest, for two blocks and more."""
    block = 512 if columns >= _WIDE else 256
    while columns % block:
        block //= 2
    return block


def written(group: RowProduct, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a product; see `writing.written`."""
    node, called = group.node, Names("acc", "k")
    first, second, added = aten.PRODUCTS[name_of(node)]
    depth, columns = group.domain
    matrix, x = node.args[second], node.args[first]
    arguments = [Tensor(matrix, (depth, columns)), Tensor(x, (depth,))]
    if added is not None:
        arguments.append(Tensor(node.args[added], (columns,)))
    labels = [called.name(base_name(each.node, names)) for each in arguments]
    name = free_name("row_times_matrix", taken)
    count = next(n for n in (_AT_ONCE, 4, 2, 1) if depth % n == 0)
    block = _block_of(columns)
    about = f"A block has {block} columns and adds up {count} rows of the matrix at a time."
    result, body = Tensor(node, (columns,)), _lines(group, labels, block, count)
    text = text_of_kernel(name, [*cited([node]), about], labels, arguments, result, body)
    return finished(name, text, arguments, [result], {}, called)


def _lines(group: RowProduct, labels: list[str], block: int, count: int) -> Iterator[str]:
    depth, columns = group.domain
    dtype = dtype_name(value_of(group.node).dtype)
    matrix, x, *bias = labels
    yield f"with T.Kernel({columns // block}, threads=128) as bx:"
    yield f"    acc = T.alloc_fragment(({block},), T.float32)"
    yield "    T.clear(acc)"
    yield f"    for k in T.serial({depth // count}):"
    yield f"        for j in T.Parallel({block}):"
    yield f"            column = bx * {block} + j"
    for at in range(count):
        row = f"k * {count} + {at}"
        first, second = (f"{x}[{row}]", f"{matrix}[{row}, column]")
        if dtype != "float32":
            first, second = f"T.cast({first}, T.float32)", f"T.cast({second}, T.float32)"
        yield f"            p{at} = {first} * {second}"
    yield f"            acc[j] += {' + '.join(f'p{at}' for at in range(count))}"
    yield f"    for j in T.Parallel({block}):"
    yield f"        column = bx * {block} + j"
    yield f"        out[column] = acc[j]{f' + {bias[0]}[column]' if bias else ''}"
