"""What becomes of an operand of a product before it is multiplied, inside of the tile.

A weight in few bits, its scales and zero points follow it: the tile of floats is computed from
them where it is multiplied, so that the weight in floats is never in memory. What makes the first
operand, element by element, can be in its tile, too: see `first_operands`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.axes import Extended, whole
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.elements import Elements, is_element
from tileworkbench.pytorch.leaves import United
from tileworkbench.pytorch.nodes import (
    Node,
    assigned_names,
    constant_of,
    name_of,
    operands,
    shape_of,
    unviewed,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.written import base_name

COORDINATES = (("row", "depth"), ("depth", "column"))  # what the lines of a tile call its place
_CODES = ("int8", "uint8", "int32")
_FEWEST = 4096  # elements of an operand that is worth it


@dataclass(frozen=True, slots=True)
class TileLines:
    """How the tile of an operand is computed: its name, the lines of a loop over its elements, the
    element, and the tensors that these read, each with its name and its extents in the kernel."""

    name: str
    lines: tuple[str, ...]
    element: str
    leaves: Mapping[Node, tuple[str, Extents]]


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
    root: Node, place: int, members: Sequence[Node], body: Names, called: Mapping[Node, str]
) -> TileLines:
    """The tile of `root`, the first or second operand of a product by its `place`; `called` are the
    user's names for tensors. Raises `NoRuleError` where it has no expression.
    """
    sizes = [[size] for size in shape_of(root)] if place else _cuts_of(root)
    cuts = Extended(dict(zip(COORDINATES[place], sizes, strict=True)))
    own = assigned_names(members)
    named = [own[each] for each in reversed(members) if own.get(each, "return") != "return"]
    plain = (base_name(root, called, "rows"), "weight")[place]
    wanted = f"{next(iter(named), plain)}_tile"
    trial: Names
    leaves: United

    def lines_of(extents: Mapping[str, Sequence[int]]) -> tuple[list[str], list[str]]:
        nonlocal trial, leaves
        trial = body.copy()
        leaves = United(trial, called)
        index = tuple(whole(name, cut) for name, cut in extents.items())
        elements = Elements(members, trial, leaves.read)
        return elements.lines([elements.at(root, index)])

    lines, (element,) = cuts.until_fine(lines_of)
    name = trial.name(wanted)
    body.take(trial)
    return TileLines(name, tuple(lines), element, leaves.of)


def _cuts_of(root: Node) -> list[list[int]]:
    """The extents of rows and depth, those that a view unites apart: open ones stay so."""
    rows, depth = shape_of(root)
    *outer, last = shape_of(unviewed(root))
    return [[n for n in outer if n != 1] or [1], [depth]] if last == depth else [[rows], [depth]]
