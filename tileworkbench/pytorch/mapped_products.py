"""Batches of products whose operands are computed where they are multiplied, as one kernel: heads
that are turned, repeated or scaled, masks and scales of the result, the order that is read next.

A block has a tile of one product. The tiles of its operands are filled element by element, found by
arithmetic as in `mapped`, so that no copy into another order is made; so is what follows from the
product.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.around import Around, gathered
from tileworkbench.pytorch.axes import Axis, Extended, text_of_axes, whole
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import compute_dtype
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.elements import Elements
from tileworkbench.pytorch.leaves import Leaves, dense_order
from tileworkbench.pytorch.lines import indented, shape_text
from tileworkbench.pytorch.nodes import (
    Node,
    cited,
    is_work,
    label_of,
    name_of,
    shape_of,
    strides_of,
    value_of,
)
from tileworkbench.pytorch.terms import NoRuleError, Term
from tileworkbench.pytorch.written import Tensor, Written, finished, free_name, text_of_kernel

_PRODUCT = "aten.bmm.default"
_SMALL = 16  # rows, columns or depth of a product that is not worth a kernel
_TILE = 128  # rows, columns and depth of a block at most
_AGAIN = 2  # times that a block's operand may be computed, if that is more than a copy


class MappedProduct(Around):
    """A product of a batch of matrices, and what is computed around it."""


def mapped_product(product: Node, taken: Collection[Node]) -> MappedProduct | None:
    """The group of a product, without what is `taken` by others; None where there is none, or where
    nothing is computed of its operands. Whether a kernel can be written is not known yet.
    """
    if name_of(product) != _PRODUCT or product.kwargs or not product.users:
        return None
    try:
        rows, columns, _ = tile_of(product)
        blocks = max(shape_of(product)[1] // rows, shape_of(product)[2] // columns)
        group = MappedProduct(*gathered(product, taken, is_cheap=blocks > _AGAIN))
    except NoRuleError:
        return None
    return group if group.operands_work() else None


def tile_of(product: Node) -> tuple[int, int, int]:
    """Rows, columns and depth of a block: what divides those of the product. Raises `NoRuleError`
    where nothing large enough does.
    """
    depth = shape_of(product.args[0])[2]
    sizes = (*shape_of(product)[1:], depth)
    made = [next(n for n in range(min(size, _TILE), 0, -1) if size % n == 0) for size in sizes]
    if min(made) < _SMALL:
        raise NoRuleError("a product of few rows or columns, or that no tile divides")
    return made[0], made[1], made[2]


# The kernel


def written(group: Around, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a group; see `mapped.written`."""
    return _Writer(group, names).written(taken)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tile of an operand: its name, the loop's coordinates (outer, inner), the lines of the loop,
    and whether it is turned."""

    name: str
    order: tuple[str, str]
    lines: tuple[str, ...]
    is_turned: bool


_VARIABLES = {"row": ("i", "by"), "column": ("j", "bx"), "depth": ("d", "k")}


class _Writer:
    def __init__(self, group: Around, names: Mapping[Node, str]) -> None:
        self.group, self.called = group, names
        (self.root,) = group.outputs()
        product = group.centre
        self.batch, rows, columns = shape_of(product)
        depth = shape_of(product.args[0])[2]
        self.sizes = {"row": rows, "column": columns, "depth": depth}
        self.tile = dict(zip(self.sizes, tile_of(product), strict=True))

    def written(self, taken: Collection[str]) -> Written:
        sizes = {name: [size] for name, size in {"bz": self.batch, **self.sizes}.items()}
        body: list[str] = Extended(sizes).until_fine(self._body)
        labels = [label_of(each) for each in self.group.members if is_work(each)]
        short = dict.fromkeys((*labels[:1], "bmm", labels[-1]))
        name = free_name("_".join(short), taken)
        rows, columns = self.tile["row"], self.tile["column"]
        about = f"A block computes {rows} x {columns} of a product, and its operands in tiles."
        comments = [", ".join(labels), *cited(self.group.members), about]
        arguments, result = self.leaves.arguments(), Tensor(self.root, self.ordered, self.order)
        blocks = f"{self.sizes['column'] // columns}, {self.sizes['row'] // rows}, {self.batch}"
        lines = [f"with T.Kernel({blocks}, threads=128) as (bx, by, bz):", *indented(iter(body), 1)]
        text = text_of_kernel(name, comments, self.leaves.labels(), arguments, result, lines)
        return finished(name, text, arguments, [result], {}, self.names)

    def _body(self, extents: Mapping[str, Sequence[int]]) -> list[str]:
        """The lines of a block, with coordinates cut like this."""
        self.names = Names("out", "d", "product", "a_shared", "b_shared")
        self.leaves = Leaves(self.names, self.called)
        axes = {name: whole(name, own) for name, own in extents.items()}
        a = self._operand("a_shared", self.group.centre.args[0], axes, ("row", "depth"))
        b = self._operand("b_shared", self.group.centre.args[1], axes, ("depth", "column"))
        return [*self._multiplied(a, b), *self._stored(axes)]

    def _operand(
        self, name: str, node: Node, axes: Mapping[str, tuple[Axis, ...]], plain: tuple[str, str]
    ) -> _Operand:
        leaves = Leaves(self.names.copy(), self.called)  # what lies together, by a trial
        index = (axes["bz"], *(axes[each] for each in plain))
        Elements(self.group.members, self.names.copy(), leaves.read).at(node, index)
        is_turned = leaves.jumps(plain[1]) > leaves.jumps(plain[0])
        order = plain[::-1] if is_turned else plain
        elements = Elements(self.group.members, self.names, self.leaves.read)
        lines, (element,) = elements.lines([elements.at(node, index)])
        outer, inner = (_VARIABLES[each][0] for each in order)
        return _Operand(
            name, (order[0], order[1]), (*lines, f"{name}[{outer}, {inner}] = {element}"), is_turned
        )

    def _loop(self, order: tuple[str, str], lines: Sequence[str]) -> Iterator[str]:
        """A loop over a tile."""
        variables = ", ".join(_VARIABLES[each][0] for each in order)
        yield f"for {variables} in T.Parallel({', '.join(str(self.tile[n]) for n in order)}):"
        for each in order:
            own, block = _VARIABLES[each]
            yield f"    {each} = {block} * {self.tile[each]} + {own}"
        yield from indented(iter(lines), 1)

    def _multiplied(self, a: _Operand, b: _Operand) -> Iterator[str]:
        dtype = dtype_name(value_of(self.group.centre).dtype)
        for each in (a, b):
            shape = shape_text(tuple(self.tile[n] for n in each.order))
            yield f"{each.name} = T.alloc_shared({shape}, T.{dtype})"
        shape = shape_text((self.tile["row"], self.tile["column"]))
        yield f"product = T.alloc_fragment({shape}, T.float32)"
        yield "T.clear(product)"
        yield f"for k in T.serial({self.sizes['depth'] // self.tile['depth']}):"
        for each in (a, b):
            yield from indented(self._loop(each.order, each.lines), 1)
        turned = "".join(
            f", transpose_{letter}=True" for letter, each in (("A", a), ("B", b)) if each.is_turned
        )
        yield f"    T.gemm(a_shared, b_shared, product{turned})"

    def _stored(self, axes: Mapping[str, tuple[Axis, ...]]) -> Iterator[str]:
        """The lines that store what follows from the product."""
        product = self.group.centre
        at = tuple(axes[each] for each in ("bz", "row", "column"))
        made = Term("element", ("product[i, j]",), compute_dtype(value_of(product).dtype), "full")
        elements = Elements(self.group.members, self.names, self.leaves.read, {product: (made, at)})
        index = self.group.followed_to_result(at)
        lines, (element,) = elements.lines([elements.at(self.root, index)])
        shape = shape_of(self.root)
        self.order = dense_order(shape, strides_of(self.root))
        self.ordered = tuple(shape[n] for n in self.order)
        places = [index[n] for n in self.order]
        last = next(each for each in reversed(places) if each)[-1].coordinate
        order = ("column", "row") if last == "row" else ("row", "column")
        place = ", ".join(map(text_of_axes, places))
        yield from self._loop(order, [*lines, f"out[{place}] = {element}"])
