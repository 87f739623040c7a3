"""What becomes of an operand of a product before it is multiplied, inside of the tile.

A weight in few bits, its scales and zero points follow it: the tile of floats is computed from
them where it is multiplied, so that the weight in floats is never in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.elements import Elements, Extended, is_element, whole
from tileworkbench.pytorch.nodes import (
    Node,
    assigned_names,
    constant_of,
    name_of,
    operands,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.written import base_name

COORDINATES = ("depth", "column")  # what the lines of a tile call its place
_CODES = ("int8", "uint8", "int32")
_FEWEST = 4096  # elements of an operand that is worth it


@dataclass(frozen=True, slots=True)
class TileLines:
    """How the tile of an operand is computed: its name, the lines of a loop over its elements, the
    element, and the tensors that these read, by name."""

    name: str
    lines: tuple[str, ...]
    element: str
    leaves: Mapping[Node, str]


def prologue_of(product: Node) -> tuple[Node, ...]:
    """The operations that make the second operand of a product from codes, in order; none for what
    is no such operand. Everything that they make is used by them and the product only.
    """
    places = aten.PRODUCTS[name_of(product)]
    root = product.args[places[1]]
    if len(shape_of(root)) != 2 or any(map(is_open, shape_of(root))):
        return ()
    members: set[Node] = set()
    chain: list[Node] = []
    node = root
    while node.op not in ("placeholder", "root"):  # backwards: users come first
        used = any(user is product or user in members for user in node.users)
        inside = all(user is product or user in members for user in node.users)
        if used and inside and is_element(node):
            members.add(node)
            chain.insert(0, node)
        elif node is root:
            return ()
        node = node.prev
    computes = any(name_of(each) in (*aten.MAPS, aten.CONVERSION) for each in chain)
    codes = [each for each in _leaves(chain) if dtype_name(value_of(each).dtype) in _CODES]
    elements = value_of(root).numel()
    if not computes or elements < _FEWEST:
        return ()
    # Codes, not only indices or zero points: an eighth of the elements at least.
    return tuple(chain) if any(value_of(each).numel() * 8 >= elements for each in codes) else ()


def _leaves(members: Sequence[Node]) -> list[Node]:
    inside = set(members)
    read = (each for node in members for each in operands(node))
    return [
        each for each in dict.fromkeys(read) if each not in inside and constant_of(each) is None
    ]


def tile_lines(
    root: Node, members: Sequence[Node], body: Names, called: Mapping[Node, str]
) -> TileLines:
    """The tile of `root`, (depth, columns) of a product; `called` are the user's names for tensors.
    Raises `NoRuleError` where it has no expression.
    """
    cuts = Extended(dict(zip(COORDINATES, ([size] for size in shape_of(root)), strict=True)))
    made: TileLines = cuts.until_fine(
        lambda extents: _tile_lines(root, members, extents, body, called)
    )
    return made


def _tile_lines(
    root: Node,
    members: Sequence[Node],
    extents: Mapping[str, Sequence[int]],
    body: Names,
    called: Mapping[Node, str],
) -> TileLines:
    trial = body.copy()
    leaves: dict[Node, str] = {}

    def leaf(node: Node) -> str:
        if node not in leaves:
            leaves[node] = trial.name(base_name(node, called))
        return leaves[node]

    index = tuple(whole(name, cut) for name, cut in extents.items())
    elements = Elements(members, trial, leaf)
    term = elements.at(root, index)
    lines, (element,) = elements.lines([term])
    own = assigned_names(members)
    base = next(
        (own[each] for each in reversed(members) if own.get(each, "return") != "return"), ""
    )
    name = trial.name(f"{base or 'weight'}_tile")
    body.take(trial)
    return TileLines(name, tuple(lines), element, leaves)


def leaf_shape(node: Node) -> Extents:
    """The extents of what a tile reads, as the kernel takes it."""
    return shape_of(node) or (1,)
