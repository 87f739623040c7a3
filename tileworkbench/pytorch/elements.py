"""One element of a value, as a term of the elements of the tensors that it follows from.

Where a value is needed inside of a tile, and not as a tensor of its own, its element at some index
is computed there: views, transpositions and broadcasts become index arithmetic. An index is a list
of axes for each dimension. Axes are parts of the coordinates of the loop, as fine as the shapes on
the way need them: (rows, columns) seen as (rows, groups, 32) cuts the columns in two axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileworkbench.pytorch import aten, formulas
from tileworkbench.pytorch.axes import (
    Axis,
    Index,
    broadcast,
    flat_axes,
    regrouped,
    split,
    text_of_axes,
    turned,
    turns,
)
from tileworkbench.pytorch.body import Definition, Names
from tileworkbench.pytorch.dtypes import named
from tileworkbench.pytorch.maps import element_of
from tileworkbench.pytorch.nodes import (
    Node,
    assigned_names,
    changes,
    constant_of,
    name_in_kernel,
    name_of,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.terms import NoRuleError, Term, bitwise, number, select, text_of

_SHORT = 40  # characters of a value that needs no name
_NUMBERS = (int, float, bool)
_JOINED = ("aten.stack.default", "aten.cat.default")
_PAD = "aten.constant_pad_nd.default"
_SUM = "aten.sum.dim_IntList"
_MOST_ADDED = 8  # elements of a sum that is written out
_PICK = "aten.index.Tensor"
_AS_IT_IS = ("aten.clone.default", "aten.contiguous.default", _PAD, *aten.VIEWS)


def is_element(node: Node, with_rows: bool = False) -> bool:
    """Whether an element of a value follows from elements of its operands. `with_rows` says that
    sums of few elements are wanted too, and rows that an index names (`Elements.places`).
    """
    name = name_of(node)
    if changes(node):
        return False
    if name == aten.COUNT:
        return all(isinstance(each, int) for each in node.args) and node.args[1] < 1 << 31
    if name == _PAD:
        return not any(node.args[1])  # a copy
    if name == _SUM:
        return with_rows and _summed_dim(node) is not None
    if name == _PICK:
        return with_rows and _picks_rows(node)
    ways = (*_AS_IT_IS, *aten.TRANSPOSITIONS, *_JOINED, aten.EXPANSION, aten.CONVERSION)
    return name in aten.MAPS or name in ways


class Elements:
    """The elements of the values of `members` at indices of coordinates.

    `read` writes an element of a tensor that they are loaded from; `given` are values that the
    loop has already, each with the index that they are at. What is the same for all
    rows of a column is in `columns`, computed once in front of the loop, if `keeps_columns` is the
    name of that coordinate.
    """

    def __init__(
        self,
        members: Sequence[Node],
        names: Names,
        read: Callable[[Node, Index], str],
        given: Mapping[Node, tuple[Term, Index]] | None = None,
        keeps_columns: str = "",
    ) -> None:
        self.members, self.names, self.read = set(members), names, read
        self.given = dict(given or {})
        self.called = assigned_names(members)
        self.definitions: list[Definition] = []
        self.columns: list[Definition] = []
        self.keeps_columns = keeps_columns
        self.places: dict[str, tuple[str, int]] = {}  # (name, rows of the table) by the row's text
        self._of: dict[tuple[Node, Index], Term] = {}

    def at(self, node: Any, index: Index) -> Any:
        """The element of a value. Raises `NoRuleError`, and `CutError` for a finer index."""
        if isinstance(node, _NUMBERS) or node is None or isinstance(node, str):
            return node
        if node in self.given:
            term, place = self.given[node]
            if flat_axes(index) != flat_axes(place):
                raise NoRuleError("a value that is read at another place than its own")
            return term
        key = (node, index)
        if key not in self._of:
            self._of[key] = self._made(node, index)
        return self._of[key]

    def _made(self, node: Node, index: Index) -> Term:
        name = name_of(node)
        filled = constant_of(node)
        if filled is not None:
            return number(filled, value_of(node).dtype)
        if node not in self.members:
            term = Term("element", (self.read(node, index),), value_of(node).dtype, "full")
            return term.to(value_of(node).dtype)
        if name in _JOINED:
            return self._joined(node, index)
        made: Term
        if name == aten.COUNT:
            return self._counted(node, index)
        if name == _SUM:
            return self._summed(node, index)
        if name == _PICK:
            return self._picked(node, index)
        operand = node.args[0]
        if name in _AS_IT_IS:
            made = self.at(operand, regrouped(index, shape_of(operand)))
        elif name in aten.TRANSPOSITIONS:
            made = self.at(operand, turned(node, index))
        elif name == aten.EXPANSION:
            made = self.at(operand, broadcast(index, shape_of(operand)))
        elif name == aten.CONVERSION:
            made = self._kept(node, self.at(operand, index).rounded(value_of(node).dtype))
        elif name == aten.BATCH_NORM:
            made = self._kept(node, self._normalised(node, index).wrapped(value_of(node).dtype))
        else:
            made = self._mapped(node, index)
        return made

    def _mapped(self, node: Node, index: Index) -> Term:
        """An element of an element-wise operation, whose operands are broadcast."""

        def operand(each: Any) -> Any:
            is_node = hasattr(each, "op")
            return self.at(each, broadcast(index, shape_of(each))) if is_node else each

        return self._kept(node, element_of(node, operand, self.keep))

    def _counted(self, node: Node, index: Index) -> Term:
        """An element of a range of integers."""
        start, _, step = (*node.args, 1)[:3]
        text = text_of_axes(index[0])
        if step != 1:
            text = f"({text}) * {step}" if "+" in text else f"{text} * {step}"
        text = f"({text})" if start == 0 else f"({text} + {start})"
        bounds = sorted((start, start + (shape_of(node)[0] - 1) * step))
        return Term("element", (text, *bounds), named("int32"), "full").to(value_of(node).dtype)

    def _normalised(self, node: Node, index: Index) -> Term:
        """An element of a batch normalisation, whose parameters have one for each channel."""
        x = self.at(node.args[0], index)
        weight, bias, mean, variance = (self.at(each, index[1:2]) for each in node.args[1:5])
        is_column = text_of_axes(index[1]) == self.keeps_columns
        scale = formulas.scale_of(weight, variance, node.args[7])
        scale = self._column("scale", scale) if is_column else scale
        shift = formulas.shift_of(bias, mean, scale)
        made: Term = x * scale + (self._column("shift", shift) if is_column else shift)
        return made

    def _column(self, name: str, term: Term) -> Term:
        made = Definition(name, term, "full", 0)
        self.columns.append(made)
        return Term("value", (made,), term.dtype, "full")

    def _summed(self, node: Node, index: Index) -> Term:
        """The sum of few elements, one after the other."""
        dim, operand = _summed_dim(node), node.args[0]
        assert dim is not None
        extent = shape_of(operand)[dim]
        keeps = len(node.args) > 2 and bool(node.args[2])
        outer, inner = index[:dim], index[dim + keeps :]
        terms = []
        for at in range(extent):
            place = (Axis(str(at), extent, 1, extent),)
            terms.append(self.at(operand, (*outer, place, *inner)))
        return self._kept(node, sum(terms[1:], terms[0]))

    def _picked(self, node: Node, index: Index) -> Term:
        """An element of a row that an index names; the row gets a name in front of all others."""
        table, (indices,) = node.args
        rank = len(shape_of(indices))
        term: Term = self.at(indices, index[:rank])
        if term.op != "element":
            raise NoRuleError("an index that is computed")
        rows = shape_of(table)[0]
        wrapped = select(term < 0, term + rows, term)
        key = text_of(wrapped, _leaf)
        if key not in self.places:
            self.places[key] = (self.names.name("picked"), rows)
        place = (Axis(self.places[key][0], rows, 1, rows),)
        made: Term = self.at(table, (place, *index[rank:]))
        return made

    def _kept(self, node: Node, term: Term) -> Term:
        return self.keep(name_in_kernel(node, self.called), term)

    def keep(self, name: str, term: Term) -> Term:
        """A term under a name, which it has in the text if that is worth it."""
        if term.op in ("value", "element", "number"):
            return term
        made = Definition(name, term, "full", 0)
        self.definitions.append(made)
        return Term("value", (made,), term.dtype, "full")

    def _joined(self, node: Node, index: Index) -> Term:
        """An element of tensors beside each other: which of them, by the index."""
        parts, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
        dim %= len(index)
        if name_of(node) == "aten.stack.default":
            (which, inner) = index[dim], (*index[:dim], *index[dim + 1 :])
        else:
            if len({shape_of(each) for each in parts}) > 1:
                raise NoRuleError("parts of several sizes")
            which, rest = split(index[dim], len(parts))
            inner = (*index[:dim], rest, *index[dim + 1 :])
        place = text_of_axes(which)
        codes = packed_codes(parts)
        if codes is not None:
            packed, bits = codes
            by = f"(({place}) * {bits})" if "+" in place else f"({place} * {bits})"
            shift = Term("element", (by, 0, (len(parts) - 1) * bits), named("int32"), "full")
            base = self.at(packed, broadcast(inner, shape_of(packed)))
            code = bitwise("&", bitwise(">>", base, shift), (1 << bits) - 1)
            return self._kept(node, code.to(value_of(node).dtype))
        at = Term("element", (f"({place})", 0, len(parts) - 1), named("int32"), "full")
        made = self.at(parts[-1], inner)
        for count, each in reversed(list(enumerate(parts[:-1]))):
            made = select(at.equals(count), self.at(each, inner), made)
        return self._kept(node, made)

    def lines_of_columns(self) -> list[str]:
        """The lines that compute `columns`, once `lines` has named them."""
        return [f"{each.name} = {text_of(each.term, _leaf)}" for each in self.columns]

    def lines(self, results: Sequence[Term]) -> tuple[list[str], list[str]]:
        """(definitions as lines, the texts of `results`), in which what is used once is inside."""
        for term in results:
            _count(term)
        for each in self.columns:
            each.name = f"{self.names.name(each.name)}[{self.keeps_columns}]"
        for each in self.definitions:
            each.is_inline = each.uses == 1 and len(text_of(each.term, _leaf)) <= _SHORT
        made = []
        for each in self.definitions:
            if each.uses and not each.is_inline:
                each.name = self.names.name(each.name)
                made.append(f"{each.name} = {text_of(each.term, _leaf)}")
        return made, [text_of(term, _leaf) for term in results]


def _count(term: Term) -> None:
    """Count how often definitions are used, each one's own operands once."""
    if term.op == "value":
        (made,) = term.args
        made.used_in[(0, "full")] += 1
        if made.uses > 1:
            return
        term = made.term
    for each in term.args:
        if isinstance(each, Term):
            _count(each)


def _leaf(term: Term) -> str:
    return str(term.args[0].name)


def packed_codes(parts: Sequence[Node]) -> tuple[Node, int] | None:
    """(the packed tensor, bits of a code) where parts are its codes, the lowest bits first: for
    example `w & 15` and `w >> 4`. None for other parts.
    """
    codes = [_code(each) for each in parts]
    base, bits = codes[0][0], codes[0][2].bit_length()
    width = value_of(base).dtype.itemsize * 8
    if not bits or value_of(base).dtype.is_floating_point:
        return None
    for count, (tensor, shift, mask) in enumerate(codes):
        is_last = shift + bits == width and not value_of(base).dtype.is_signed
        fits = mask == (1 << bits) - 1 or (mask == 0 and is_last)
        if tensor is not base or shift != count * bits or not fits:
            return None
    return base, bits


def _code(node: Node) -> tuple[Node, int, int]:
    """(tensor, shift, mask) of ``tensor >> shift & mask``, a mask of 0 for none."""
    shift = mask = 0
    if name_of(node) == "aten.bitwise_and.Scalar":
        node, mask = node.args
    if name_of(node) in aten.RIGHT_SHIFTS and isinstance(node.args[1], int):
        node, shift = node.args
    return node, shift, mask


def _summed_dim(node: Node) -> int | None:
    """The dimension of a sum of few elements, None for other sums: those over last dimensions are
    for kernels of rows.
    """
    dims, shape = node.args[1], shape_of(node.args[0])
    if not dims or len(dims) != 1 or node.kwargs or len(node.args) > 3:
        return None
    dim = dims[0] % len(shape)
    is_float = value_of(node).dtype.is_floating_point
    few = 1 < shape[dim] <= _MOST_ADDED
    return dim if few and is_float and dim != len(shape) - 1 else None


def _picks_rows(node: Node) -> bool:
    """Whether elements are those of the rows that one index of integers names."""
    indices = node.args[1]
    if len(indices) != 1 or indices[0] is None or len(shape_of(node.args[0])) < 2:
        return False
    return str(value_of(indices[0]).dtype) in ("torch.int64", "torch.int32")


def followed(node: Node, user: Node, index: Index) -> Index:
    """The index in `user`, which has an element for each of `node`, of the one that follows from
    the element of `node` at `index`.
    """
    if name_of(user) in aten.TRANSPOSITIONS:
        return tuple(index[dim] for dim in turns(user, len(index)))
    if name_of(user) in _AS_IT_IS:
        return regrouped(index, shape_of(user))
    return ((),) * (len(shape_of(user)) - len(index)) + index
