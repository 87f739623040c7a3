"""A group of operations that is one kernel, and the form of that kernel: rows and columns that all
its values fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import prod
from typing import TypeGuard

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten, shapes
from tileworkbench.pytorch.body import Form
from tileworkbench.pytorch.convolutions import window_of
from tileworkbench.pytorch.dtypes import name_of as name_of_dtype
from tileworkbench.pytorch.gathers import gather_of
from tileworkbench.pytorch.nodes import (
    Node,
    constant_of,
    is_for_channels,
    is_part,
    is_tuple,
    name_of,
    operands,
    seen_through,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.tiles import (
    DEPTH,
    LONGEST_KEPT,
    LONGEST_ROW,
    depth_of_product,
    piece_of,
    tile_of,
    tile_of_any,
    tile_of_product,
)

_WEIGHT_ALONE = 2  # of what is worth a kernel alone
LEAST_TRIED = 1e7  # operations of a group that is measured: a tenth of a millisecond


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that are one kernel.

    `domain` are the finest extents of its values; `inner` is the product of the dimensions that
    its reductions go over, 0 without any; `product` is the matrix product that it begins with, and
    `prologue` what makes an operand of that, inside of the tile.
    """

    members: tuple[Node, ...]
    domain: Extents
    inner: int = 0
    product: Node | None = None
    prologue: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All operations of the kernel, in order."""
        return (*self.prologue, *self.members)

    def inputs(self) -> list[Node]:
        """What it reads of other operations, once each; a product's matrices are not among them."""
        outside: dict[Node, None] = {}
        for node in self.members:
            for each in self.read_by(node):
                if each not in self.members:
                    outside[each] = None
        return list(outside)

    def read_by(self, node: Node) -> list[Node]:
        """What a member reads element by element."""
        gather = gather_of(node)
        if gather is not None:
            read = [gather.indices]
        elif self.product is not None and node is self.product:
            added = added_to(node)
            read = [] if added is None else [added]
        else:
            read = operands(node)
        through = map(seen_through, read)
        return [each for each in through if constant_of(each) is None]

    def outputs(self) -> list[Node]:
        """The members that other operations read, or read views of: torch makes the views."""
        return [
            node
            for node in self.members
            if not is_tuple(node) and not self.is_remade(node) and self._is_read(node)
        ]

    def is_remade(self, node: Node) -> bool:
        """Whether torch makes a member again where others read it: a view of fixed sizes."""
        return name_of(node) in aten.VIEWS and len(node.all_input_nodes) == 1

    def _is_read(self, node: Node) -> bool:
        return any(
            user not in self.members or (self.is_remade(user) and self._is_read(user))
            for user in node.users
        )

    @property
    def dequantises(self) -> bool:
        """Whether its prologue makes the second operand of its product."""
        if self.product is None or not self.prologue:
            return False
        return self.product.args[_places(self.product)[1]] in self.prologue

    @property
    def has_long_rows(self) -> bool:
        """Whether the rows that it reduces are read in pieces."""
        return self.inner > LONGEST_ROW

    @property
    def weight(self) -> int:
        """How many element-wise operations it stands for."""
        return sum(weight_of(node) for node in self.nodes)


def is_of_elements(group: object) -> TypeGuard[Group]:
    """Whether a group is one of operations on single elements, and of nothing else."""
    names = (*aten.MAPS, *aten.VIEWS, aten.CONVERSION)
    return type(group) is Group and all(name_of(node) in names for node in group.nodes)


def weight_of(node: Node) -> int:
    """How much work an operation is, in element-wise ones."""
    name = name_of(node)
    if name in ROWS:
        return ROWS[name].weight
    if name in aten.PRODUCTS:
        gains = name_of_dtype(value_of(node).dtype) != "float32" or is_tried(node)  # else torch's
        return 1 + gains + (added_to(node) is not None)
    if name == aten.BATCH_NORM or _is_slow(node):
        return _WEIGHT_ALONE
    return int(name in aten.MAPS or name in aten.GATHERS or name == aten.CONVERSION)


def _is_slow(node: Node) -> bool:
    """Whether torch computes an operation one element after the other."""
    name = name_of(node)
    if name not in aten.REMAINDERS and name not in aten.POWERS:
        return False
    if not value_of(node).dtype.is_floating_point:
        return True
    return name in aten.REMAINDERS and node.kwargs.get("rounding_mode", "floor") == "floor"


def operations_of(product: Node) -> float:
    """Multiplications and additions of a product, of the sizes that the graph was captured with."""
    hint = product.meta["sizes"].hint
    elements, depth = hint(prod(shape_of(product))), hint(depth_of(product))
    return 2.0 * float(elements) * float(depth)


def depth_of(product: Node) -> int:
    """What one element of a product sums, but for convolutions."""
    return shape_of(product.args[_places(product)[0]])[-1]


def _places(product: Node) -> tuple[int, int, int | None]:
    return aten.PRODUCTS[name_of(product)]


def is_tried(product: Node) -> bool:
    """Whether a product of matrices has so much work that its kernel is timed beside torch's."""
    return not is_convolution(product) and operations_of(product) >= LEAST_TRIED


def added_to(product: Node) -> Node | None:
    """What is added to a product, by the operation itself."""
    place = _places(product)[2]
    return None if place is None else product.args[place]


# Forms


@dataclass(frozen=True, slots=True)
class Plan:
    """The form of a group's kernel, and for each input along which of its rows it varies, whether
    along its columns, and along which part of them if not along all."""

    form: Form
    patterns: dict[Node, tuple[shapes.Pattern, bool, int | None]] = field(default_factory=dict)

    def counts_columns(self, node: Node) -> bool:
        """Whether each element of an input is its own column, which no kernel has to read."""
        rows, columns, part = self.patterns[node]
        is_count = name_of(node) == aten.COUNT and node.args[0] == 0
        is_along = columns and part is None and not any(rows)
        return is_count and is_along and node.args[2:] in ((), (1,))


def plan(group: Group, threads: int = 0) -> Plan:
    """The form of a group's kernel, for so many threads of a processor; 0 for any target. Raises
    `NoRuleError` where it has none.
    """
    fine = group.domain
    patterns: dict[Node, shapes.Pattern] = {}
    for node in group.members:
        for each in group.read_by(node):
            if each in group.members:
                continue
            pattern = _pattern(group, node, each)
            if patterns.setdefault(each, pattern) != pattern:
                raise NoRuleError("an input that is broadcast in two ways")
    split = _split(group, list(patterns.values()))
    parts, along = shapes.merged(fine[split:], [each[split:] for each in patterns.values()])
    if len(parts) > (1 if group.product is not None else 2):
        raise NoRuleError("an input that varies along a part of a row")
    outer, merged, batches = _rows(
        group, fine[:split], [each[:split] for each in patterns.values()]
    )
    columns = prod(fine[split:])
    if (group.inner or group.product is not None) and not outer:  # one row
        outer, merged = (1,), [(False,) for _ in merged]
    for pattern in merged:
        _check_rows(outer[:batches], pattern[:batches])
        _check_rows(outer[batches:], pattern[batches:])
    tile, depth = _tile(group, prod(outer[batches:]), columns, prod(outer[:batches]), threads)
    varies = {
        node: (rows, any(own), own.index(True) if any(own) and not all(own) else None)
        for node, rows, own in zip(patterns, merged, along, strict=True)
    }
    several = parts if len(parts) > 1 else ()
    if group.has_long_rows and several:
        tile = (1, piece_of(several[1]))  # in one part, where its input has one number
        if several[1] % tile[1]:
            raise NoRuleError(f"rows of {columns} elements whose parts have no even pieces")
    keeps = bool(threads) and group.has_long_rows and columns <= LONGEST_KEPT
    form = Form(outer, columns, tile, batches, depth, several, group.has_long_rows, keeps)
    return Plan(form, varies)


def _tile(
    group: Group, rows: int, columns: int, batch: int, threads: int
) -> tuple[tuple[int, int], int]:
    """(rows and columns of a block, the depth of a product's tiles)."""
    now, wide, count = map(group.members[0].meta["sizes"].hint, (rows, columns, batch))
    product = group.product
    if product is None:
        return tile_of(now, wide, bool(group.inner)), 0
    if is_convolution(product):
        return window_of(product).tile(), 0
    depth = depth_of(product)
    if not threads or group.dequantises:
        return tile_of_any(now, wide), DEPTH
    if is_open(rows):
        return tile_of_any(now, wide), depth_of_product(depth)
    return tile_of_product(now, wide, -(-threads // count)), depth_of_product(depth)


def _rows(
    group: Group, fine: Extents, patterns: Sequence[shapes.Pattern]
) -> tuple[Extents, list[shapes.Pattern], int]:
    """(extents of rows, along which of them inputs vary, how many number a batch's products)."""
    at = 0
    if group.product is not None and prod(fine) != _matrix_of(group.product)[0]:
        at = place(fine, _matrix_of(group.product)[0])
    outer, before = shapes.merged(fine[:at], [each[:at] for each in patterns])
    inner, behind = shapes.merged(fine[at:], [each[at:] for each in patterns])
    both = zip(before, behind, strict=True)
    return (*outer, *inner), [(*a, *b) for a, b in both], len(outer)


def _check_rows(rows: Extents, varies: shapes.Pattern) -> None:
    """Raise `OpenSizeError` where the row of an input is found by dividing by an open size: a
    division for each element, which would be slower than torch.
    """
    if all(varies):
        return
    for at, has in enumerate(varies):
        divisors = (prod(rows[at + 1 :]), rows[at] if at else 1)
        for size in divisors:
            if has and is_open(size):
                raise OpenSizeError(size)


def _pattern(group: Group, node: Node, operand: Node) -> shapes.Pattern:
    """Along which of the group's extents an input of a member varies."""
    shape, domain = shape_of(operand), domain_of(node)
    if name_of(node) in ROWS:
        shape = ROWS[name_of(node)].seen(shape, *node.args)
    gather = gather_of(node)
    if is_convolution(node) or is_for_channels(node, operand):
        shape = (*shape, *(1 for _ in domain[2:]))
    if gather is not None:  # an index for each row
        shape = (*shape, *(1 for _ in shape_of(gather.table)[1:]))
    is_row = group.inner and prod(domain) * group.inner == prod(group.domain)
    fine = group.domain
    if is_row:
        fine = fine[: place(fine, group.inner)]
    pattern = shapes.pattern_of(shape, domain, fine)
    if pattern is None:
        raise NoRuleError("an input whose shape cuts across those of the others")
    return pattern + (False,) * (len(group.domain) - len(fine))


def domain_of(node: Node) -> Extents:
    """The extents that a member is computed over: a reduction's are those of what it reduces."""
    whole = node.args[0] if is_part(node) else node
    if name_of(whole) in ROWS:
        return ROWS[name_of(whole)].seen(shape_of(whole.args[0]), *whole.args)
    return shape_of(node if whole is node else whole.args[0])


def _split(group: Group, patterns: Sequence[shapes.Pattern]) -> int:
    """How many of the domain's extents are rows."""
    fine = group.domain
    if group.product is not None:
        return place(fine, _matrix_of(group.product)[1])
    if group.inner:
        return place(fine, group.inner)
    at = len(fine) - 1
    while at > 0 and all(pattern[at - 1] == pattern[-1] for pattern in patterns):
        at -= 1
    return max(at, 0)


def is_convolution(node: Node | None) -> bool:
    """Whether the product of a group is that of filters with windows of an image."""
    return node is not None and name_of(node) == aten.CONVOLUTION


def _matrix_of(product: Node) -> tuple[int, int]:
    """The rows and columns of a product, of one in a batch."""
    shape = shape_of(product)
    if is_convolution(product):
        return window_of(product).filters, prod(shape[2:])
    return shape[-2], shape[-1]


def place(fine: Extents, inner: int) -> int:
    """Where the innermost extents begin whose product is `inner`."""
    size, at = 1, len(fine)
    while size < inner and at:
        at -= 1
        size *= fine[at]
    if size != inner:
        raise NoRuleError("rows that other shapes cut across")
    return at
