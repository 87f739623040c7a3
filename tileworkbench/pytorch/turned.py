"""Operations on single elements of which some are read down the columns of the result, as one
kernel: copies of transposed tensors, with what is computed before and behind them.

Two coordinates trade places: along its columns the result lies together, along its rows what is
read. A block copies a tile of that as it lies in memory and reads the tile down its columns, so
that neither side takes a line of memory for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.axes import Axis, Extended, Index, regrouped, text_of_axes, whole
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.elements import Elements
from tileworkbench.pytorch.groups import Group
from tileworkbench.pytorch.in_torch import OTHER_ORDER
from tileworkbench.pytorch.leaves import dense_order, memory_of
from tileworkbench.pytorch.lines import indented, shape_text
from tileworkbench.pytorch.mapped import Mapped, check_tensors, ends, members_of, work_of
from tileworkbench.pytorch.nodes import (
    Node,
    cited,
    is_work,
    label_of,
    name_of,
    offset_of,
    operands,
    shape_of,
    strides_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.terms import NoRuleError, Term
from tileworkbench.pytorch.tiles import power_of_two
from tileworkbench.pytorch.written import (
    Tensor,
    Written,
    base_name,
    finished,
    free_name,
    text_of_kernel,
)

_SIDE = 64  # of a tile: two of them, of float32, fit a core's first cache
_FEWEST = 4  # elements that lie together, in the result and in what is read


@dataclass(frozen=True, slots=True)
class Turned(Mapped):
    """Operations on elements; the last one is the result, and only that is read by others."""

    @property
    def weight(self) -> int:
        """How many element-wise operations it stands for. What it turns is one, too."""
        return 1 + work_of(self.members)

    @property
    def copies(self) -> tuple[Node, ...]:
        """The operations that torch copies tensors for."""
        return tuple(each for each in self.members if name_of(each) == aten.CLONE)


# What is written


def written(group: Turned, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel; see `mapped.written`."""
    return _Writer(group, names).written(taken)


@dataclass(frozen=True, slots=True)
class _Part:
    """Neighbouring dimensions of the result, outer first, that are one in all tensors: `steps` has
    for each how far two neighbours are apart."""

    extents: Extents
    steps: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.extents)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The sides of a block of the result, and where in the result an element of it is."""

    rows: int
    columns: int

    @property
    def row(self) -> str:
        return f"(by * {self.rows} + i)"

    @property
    def column(self) -> str:
        return f"(bx * {self.columns} + j)"

    def block(self, coordinate: str) -> tuple[str, int]:
        """(the block of a coordinate, how many elements are in one)."""
        return ("by", self.rows) if coordinate == self.row else ("bx", self.columns)


class _Writer:
    def __init__(self, group: Turned, names: Mapping[Node, str]) -> None:
        self.group, self.called = group, names
        (self.root,) = group.outputs()
        shape = shape_of(self.root)
        self.order = dense_order(shape, strides_of(self.root))
        self.ordered = tuple(shape[at] for at in self.order)
        self.parts = self._parts()
        self.at = _row_of(self.parts)
        rows, columns = self.parts[self.at].size, self.parts[-1].size
        if min(rows, columns) < _FEWEST:
            raise NoRuleError("few elements that lie together")
        self.tile = _Tile(min(_SIDE, rows), min(_SIDE, power_of_two(columns)))

    def _parts(self) -> list[_Part]:
        """The dimensions that all tensors have in common."""
        cuts = Extended({"flat": [prod(self.ordered)]})
        steps: list[dict[int, int]] = cuts.until_fine(self._steps)
        parts: list[_Part] = []
        for axis in whole("flat", cuts.extents["flat"]):
            own = tuple(each.get(axis.inner, 0) for each in steps)
            if parts and parts[-1].steps == tuple(step * axis.extent for step in own):
                parts[-1] = _Part((*parts[-1].extents, axis.extent), own)
            elif axis.extent != 1:
                parts.append(_Part((axis.extent,), own))
        return parts

    def _steps(self, extents: Mapping[str, Sequence[int]]) -> list[dict[int, int]]:
        """For each tensor that is read, and each axis of the result, how far neighbours are
        apart."""
        made: list[dict[int, int]] = []

        def read(node: Node, index: Index) -> str:
            memory_of(node)
            steps = _steps_of(node, index)
            made.append({axis.inner: step for axis, step in steps if axis.coordinate == "flat"})
            return ""

        self._element(whole("flat", extents["flat"]), Names(), read)
        return made

    def _element(
        self, flat: tuple[Axis, ...], names: Names, read: Callable[[Node, Index], str]
    ) -> tuple[Elements, Term]:
        """The element of the result at the axes of its memory."""
        index: list[tuple[Axis, ...]] = [()] * len(self.order)
        for at, axes in zip(self.order, regrouped((flat,), self.ordered), strict=True):
            index[at] = axes
        elements = Elements(self.group.members, names, read)
        term = elements.at(self.root, tuple(index))
        if elements.places:
            raise NoRuleError("rows that an index picks, in another order")
        return elements, term

    def written(self, taken: Collection[str]) -> Written:
        names = Names("out", "bx", "by", "bz", "i", "j")
        leaves = _Leaves(names, self.called, self.tile)
        axes = self._axes()
        flat = tuple(axis for each in axes for axis in each)
        elements, term = self._element(flat, names, leaves.read)
        lines, (element,) = elements.lines([term])
        place = ", ".join(map(_text, axes))
        body = self._block(leaves, [*lines, f"out[{place}] = {element}"])
        labels = [label_of(each) for each in self.group.members if is_work(each)]
        name = free_name("_".join(dict.fromkeys((*labels[:2], labels[-1]))), taken)
        rows, columns = self.tile.rows, self.tile.columns
        about = f"A block has {rows} x {columns} elements; tiles turn what lies in another order."
        comments = [", ".join(labels), *cited(self.group.members), about]
        result = Tensor(self.root, tuple(each.size for each in self.parts), self.order)
        text = text_of_kernel(name, comments, leaves.labels(), leaves.arguments(), result, body)
        return finished(name, text, leaves.arguments(), [result], {}, names)

    def _axes(self) -> list[tuple[Axis, ...]]:
        """The axes of each part: those of the tile, and of blocks for all others."""
        inside = (self.at, len(self.parts) - 1)
        others = [each for at, each in enumerate(self.parts) if at not in inside]
        blocks = iter(whole("bz", [extent for each in others for extent in each.extents]))
        made = []
        for at, part in enumerate(self.parts):
            if at in inside:
                coordinate = self.tile.row if at == self.at else self.tile.column
                made.append(whole(coordinate, part.extents))
            else:
                made.append(tuple(next(blocks) for _ in part.extents))
        return made

    def _block(self, leaves: _Leaves, lines: Sequence[str]) -> Iterator[str]:
        rows, columns = self.parts[self.at].size, self.parts[-1].size
        blocks = [f"T.ceildiv({columns}, {self.tile.columns})"]
        blocks.append(f"T.ceildiv({rows}, {self.tile.rows})")
        others = prod(each.size for each in self.parts) // (rows * columns)
        blocks += [str(others)] * (others > 1)
        indices = ", ".join(("bx", "by", "bz")[: len(blocks)])
        yield f"with T.Kernel({', '.join(blocks)}, threads=128) as ({indices}):"
        yield from indented(leaves.copies(), 1)
        yield f"    for i, j in T.Parallel({self.tile.rows}, {self.tile.columns}):"
        yield from indented(iter(lines), 2)


def _row_of(parts: Sequence[_Part]) -> int:
    """The part along which lies together what does not along the last one. Raises `NoRuleError`
    where that is not one for all tensors.
    """
    tensors = zip(*(each.steps for each in parts), strict=True)
    rows = {steps.index(1) if 1 in steps else -1 for steps in tensors if steps[-1] > 1}
    if len(rows) != 1 or -1 in rows:
        raise NoRuleError(OTHER_ORDER)
    return rows.pop()


class _Leaves:
    """The parameters of a kernel, each with dimensions as coordinates go through its memory, and
    the tiles that are copied from some."""

    def __init__(self, names: Names, called: Mapping[Node, str], tile: _Tile) -> None:
        self._names, self._called, self._tile = names, called, tile
        self._of: dict[Node, tuple[str, Tensor]] = {}
        self._tiles: dict[str, tuple[str, str]] = {}  # (name, dtype) of each by what it is of

    def labels(self) -> list[str]:
        """What the parameters are called."""
        return [name for name, _ in self._of.values()]

    def arguments(self) -> list[Tensor]:
        """The parameters."""
        return [each for _, each in self._of.values()]

    def copies(self) -> Iterator[str]:
        """The lines that fill the tiles."""
        shape = shape_text((self._tile.columns, self._tile.rows))
        for source, (name, dtype) in self._tiles.items():
            yield f"{name} = T.alloc_shared({shape}, T.{dtype})"
            yield f"T.copy({source}, {name})"

    def read(self, node: Node, index: Index) -> str:
        """The element of a tensor that is no member."""
        base, own = memory_of(node)
        runs = _runs(_steps_of(node, index))
        shape, starts = [], []
        around, offset = prod(own.shape), offset_of(node) - offset_of(base)
        for run, step in (*runs, ((), 1)):
            start, offset = divmod(offset, step)
            reach = start + prod([axis.extent for axis in run])
            if around % step or reach > around // step:
                raise NoRuleError("a view that joins dimensions")
            shape.append(around // step)
            starts.append(start)
            around = step
        places = [_text(run) for run, _ in runs] + ["0"]
        if shape[-1] == 1 and len(shape) > 1:
            del shape[-1], starts[-1], places[-1]
        name = self._name(Tensor(base, tuple(shape), own.order))
        if places[-1] == self._tile.row[1:-1] and self._tile.column[1:-1] in places:
            return f"{self._turned(node, name, places, starts)}[j, i]"
        return f"{name}[{', '.join(map(_shifted, places, starts))}]"

    def _name(self, tensor: Tensor) -> str:
        if tensor.node not in self._of:
            name = self._names.name(base_name(tensor.node, self._called))
            self._of[tensor.node] = name, tensor
        name, known = self._of[tensor.node]
        if known != tensor:
            raise NoRuleError("a tensor that is read in two shapes")
        return name

    def _turned(self, node: Node, name: str, places: Sequence[str], starts: Sequence[int]) -> str:
        """The tile of a place in a parameter."""
        sides = {}
        for coordinate in (self._tile.row, self._tile.column):
            block, side = self._tile.block(coordinate)
            sides[coordinate[1:-1]] = f"{block} * {side}", side
        is_last = places[-2] in sides
        made = []
        for place, start in zip(places, starts, strict=True):
            first, side = sides.get(place, (place, 0))
            first = _shifted(first, start)
            made.append(first if is_last or not side else f"{first} : {first} + {side}")
        source = f"{name}[{', '.join(made)}]"
        if source not in self._tiles:
            self._tiles[source] = self._names.name(f"{name}_tile"), dtype_name(value_of(node).dtype)
        return self._tiles[source][0]


def _steps_of(node: Node, index: Index) -> Iterator[tuple[Axis, int]]:
    """The axes of an element's index, each with how far neighbours along it are apart in memory."""
    for axes, step in zip(index, strides_of(node), strict=True):
        behind = step
        for axis in reversed(axes):
            if behind and axis.extent != 1:
                yield axis, behind
            behind *= axis.extent


def _runs(steps: Iterator[tuple[Axis, int]]) -> list[tuple[tuple[Axis, ...], int]]:
    """Axes in the order of memory, outer first; those that one coordinate goes through evenly are
    together."""
    runs: list[tuple[tuple[Axis, ...], int]] = []
    for axis, step in sorted(steps, key=lambda each: -each[1]):
        before, apart = runs[-1] if runs else ((), 0)
        follows = before and before[-1].coordinate == axis.coordinate
        if follows and before[-1].inner == axis.inner * axis.extent and apart == step * axis.extent:
            runs[-1] = (*before, axis), step
        else:
            runs.append(((axis,), step))
    return runs


def _text(axes: tuple[Axis, ...]) -> str:
    """The index along one dimension, without brackets around all of it."""
    text = text_of_axes(axes)
    return text[1:-1] if text == f"({text[1:-1]})" and text.count("(") == 1 else text


def _shifted(place: str, start: int) -> str:
    if not start:
        return place
    return str(start) if place == "0" else f"{place} + {start}"


# Which operations


def turned_groups(
    nodes: Sequence[Node],
    taken: Collection[Node],
    groups: Sequence[Group],
    reasons: dict[Node, str],
) -> Iterator[Turned]:
    """The groups of what is not `taken`; of other groups they have all operations or none. Why
    copies are in no group is added to `reasons`.
    """
    done: set[Node] = set()
    for node in reversed(nodes):
        if node in done or node in taken or not ends(node):
            continue
        group = Turned(_members_of(node, taken, groups))
        if not group.members:
            continue
        try:
            for each in group.members:
                check_tensors(each)
            _check_orders(group)
            written(group, {})
        except NoRuleError as error:
            reasons.update(dict.fromkeys(group.copies, str(error)))
            continue
        done.update(group.members)
        yield group


def _members_of(root: Node, taken: Collection[Node], groups: Sequence[Group]) -> tuple[Node, ...]:
    """What a kernel that ends with an operation has, of other groups all or nothing."""
    while True:
        members = members_of(root, taken)
        inside = set(members)
        parted = [each for each in groups if not inside.isdisjoint(each.members)]
        parted = [each for each in parted if not inside.issuperset(each.members)]
        if not parted or any(root in each.members for each in parted):
            return () if parted else members
        taken = {*taken, *(node for each in parted for node in each.members)}


def _check_orders(group: Turned) -> None:
    """Raise `NoRuleError` where all tensors lie in one order: nothing has to be written to see."""
    tensors = [each for node in group.members for each in (node, *operands(node))]
    if all(value_of(each).is_contiguous() for each in tensors):
        raise NoRuleError(OTHER_ORDER)
