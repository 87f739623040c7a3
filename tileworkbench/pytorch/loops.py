"""Operations on few elements as loops of one kernel that has one block.

Each value has a place in memory: an argument, a result, or fast memory of the block. A view only
says where elements are. A value that one operation reads, element by element, is computed where it
is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import compute_dtype, is_known
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.indices import (
    Index,
    position,
    row_major,
    unravelled,
    variable,
)
from tileworkbench.pytorch.lines import indented, shape_text
from tileworkbench.pytorch.maps import element_of
from tileworkbench.pytorch.nodes import (
    Node,
    assigned_names,
    base_of,
    changes,
    constant_of,
    is_for_channels,
    is_view,
    name_in_kernel,
    name_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.terms import Kind, NoRuleError, Term, number, text_of
from tileworkbench.pytorch.written import Tensor, base_name

LETTERS = "ijkdefg"
COPIES = ("aten.clone.default", "aten.copy.default")
INDEX_COPY = "aten.index_copy_.default"
_WIDEST_FILTER = 8  # places of a filter that is written out


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a value's elements are: a name of the kernel, and strides in elements."""

    name: str
    strides: Extents
    dtype: Any


class Loops(Names):
    """The loops of a kernel, in order, and what it takes and returns. `inlined` are the members
    that have no memory, `kept` those that are results.
    """

    def __init__(
        self,
        members: Sequence[Node],
        inlined: Collection[Node],
        kept: Sequence[Node],
        names: Mapping[Node, str],
    ) -> None:
        super().__init__(*LETTERS, "w", "bx")
        self.members, self.inlined, self.kept = frozenset(members), inlined, frozenset(kept)
        self.called = {**assigned_names(members), **names}
        self.memory: dict[Node, Memory] = {}
        self.arguments: list[tuple[Tensor, Memory]] = []
        self.results: list[tuple[Tensor, Memory]] = []
        self.lines: list[str] = []
        self.inner = ""  # the variable that runs along a row, if one does
        self._lets: list[str] = []
        self._known: dict[tuple[Node, tuple[Index, ...]], Term] = {}

    # Memory

    def argument(self, node: Node) -> Memory:
        """The memory of a tensor that comes from outside."""
        if node not in self.memory:
            order, strides = _dense(value_of(node))
            name = self.name(base_name(node, self.called))
            made = Memory(name, strides, value_of(node).dtype)
            self.arguments.append((Tensor(node, (value_of(node).numel(),), order), made))
            self.memory[node] = made
        return self.memory[node]

    def made(self, node: Node) -> Memory:
        """New memory for a member."""
        value = value_of(node)
        order, strides = _dense(value)
        wanted = name_in_kernel(node, self.called)
        if node in self.kept:
            made = Memory(self.name(f"{wanted}_out"), strides, value.dtype)
            self.results.append((Tensor(node, (value.numel(),), order), made))
        else:
            made = Memory(self.name(wanted), strides, compute_dtype(value.dtype))
            self.reserve(made.name, (value.numel(),), made.dtype)
        self.memory[node] = made
        return made

    def reserve(self, name: str, shape: Extents, dtype: Any, kind: str = "shared") -> None:
        """Add the line that makes room for `shape` elements."""
        self.lines.append(f"{name} = T.alloc_{kind}({shape_text(shape)}, T.{dtype_name(dtype)})")

    def element(self, memory: Memory, place: Index) -> Term:
        """What is at a place of memory."""
        return self.read(f"{memory.name}[{place.text}]", memory.dtype, place.text)

    def read(self, text: str, dtype: Any, places: str) -> Term:
        """What `text` reads; it is one for each element of a row where `places` says so."""
        varies = bool(self.inner) and re.search(rf"\b{self.inner}\b", places) is not None
        kind: Kind = "full" if varies or not self.inner else "row"
        return Term("element", (text,), dtype, kind).to(dtype)

    # Values

    def value(self, node: Any, indices: Sequence[Index]) -> Any:
        """The element of a value at these indices of its dimensions; numbers are themselves."""
        if not hasattr(node, "op"):
            return node
        value = value_of(node)
        if (filled := constant_of(node)) is not None:
            return number(filled, value.dtype)
        if node in self.inlined:
            return self._inline(node, indices)
        if node in self.memory:
            memory = self.memory[node]
            return self.element(memory, position(indices, memory.strides))
        if node in self.members:
            raise NoRuleError("a value that is not there yet")
        if not is_view(node):
            memory = self.argument(node)
            return self.element(memory, position(indices, memory.strides))
        return self._viewed(node, indices)

    def _viewed(self, node: Node, indices: Sequence[Index]) -> Any:
        base = base_of(node)
        value, whole = value_of(node), value_of(base)
        if isinstance(whole, tuple | list):
            raise NoRuleError("a part of what torch returns")
        if value.untyped_storage()._cdata != whole.untyped_storage()._cdata:
            before = value_of(node.args[0])
            if name_of(node) not in aten.VIEWS or before.numel() != value.numel():
                raise NoRuleError("a view that torch copies")
            place = position(indices, row_major(tuple(value.shape)))
            shape = tuple(before.shape)
            return self.value(node.args[0], unravelled(place, shape, row_major(shape)))
        place = position(indices, value.stride(), value.storage_offset() - whole.storage_offset())
        if constant_of(base) is None and base not in self.inlined:
            return self.element(self.memory.get(base) or self.argument(base), place)
        shape = tuple(whole.shape)
        return self.value(base, unravelled(place, shape, _dense(whole)[1]))

    def aligned(self, node: Any, indices: Sequence[Index]) -> Any:
        """The element of an operand of an element-wise operation, broadcast."""
        if not hasattr(node, "op"):
            return node
        shape = value_of(node).shape
        own = indices[len(indices) - len(shape) :]
        return self.value(
            node, [Index() if n == 1 else at for n, at in zip(shape, own, strict=True)]
        )

    def _inline(self, node: Node, indices: Sequence[Index]) -> Term:
        key = (node, tuple(indices))
        if key not in self._known:
            name = name_in_kernel(node, self.called)
            self._known[key] = self.keep(name, self.computed(node, indices))
        return self._known[key]

    def keep(self, wanted: str, term: Term) -> Term:
        """A term under a name of its own, in the loop that is being written."""
        plain = term
        while plain.op == "cast":
            plain = plain.args[0]
        if plain.op in ("element", "number"):
            return term
        name = self.name(wanted)
        self._lets.append(f"{name} = {text(term)}")
        return Term("element", (name,), term.dtype, term.kind)

    def computed(self, node: Node, indices: Sequence[Index]) -> Term:
        """An element of an element-wise operation, of its operands."""
        name, dtype = name_of(node), value_of(node).dtype
        if changes(node):
            raise NoRuleError("a number that is another in each call")
        if name in COPIES:
            source = node.args[name == "aten.copy.default"]
            made: Term = self.aligned(source, indices).to(dtype)
            return made
        if name == aten.CONVERSION:
            made = self.aligned(node.args[0], indices)
            return made.rounded(dtype)
        if name == aten.CONVOLUTION:
            return self._filtered(node, indices).wrapped(dtype)

        def operand(each: Any) -> Any:
            return self.aligned(each, indices[1:2] if is_for_channels(node, each) else indices)

        return element_of(node, operand, self.keep)

    def _filtered(self, node: Node, indices: Sequence[Index]) -> Term:
        """An element of a convolution along one dimension, of each channel by itself."""
        data, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
        width = value_of(weight).shape[-1]
        channels = value_of(data).shape[1]
        plain = (list(padding), bool(transposed)) == ([0], False) and groups == channels
        if len(indices) != 3 or value_of(weight).shape[:2] != (channels, 1) or not plain:
            raise NoRuleError("a convolution that is no filter of channels")
        if width > _WIDEST_FILTER:
            raise NoRuleError("a filter of many places")
        batch, channel, at = indices
        total: Term | None = None if bias is None else self.value(bias, [channel])
        for place in range(width):
            taken = at * stride[0] + Index((), place * dilation[0])
            x = self.value(data, [batch, channel, taken])
            product = x * self.value(weight, [channel, Index(), Index((), place)])
            total = product if total is None else total + product
        assert total is not None
        return total

    # Loops

    def loop(
        self, variables: Sequence[tuple[str, int]], body: Callable[[], Iterable[str]]
    ) -> list[str]:
        """The lines of a loop over these variables, whose last lines `body` gives; what it computes
        on the way gets lines before them.
        """
        self._lets, self._known = [], {}
        last = list(body())
        names = ", ".join(name for name, _ in variables)
        extents = ", ".join(str(extent) for _, extent in variables)
        inner = [*self._lets, *last]
        self._lets, self._known = [], {}
        return [f"for {names} in T.Parallel({extents}):", *indented(iter(inner), 1)]

    def over(self, shape: Extents, strides: Extents) -> tuple[list[tuple[str, int]], list[Index]]:
        """(variables of a loop over a shape, outer first as it lies in memory, the indices)."""
        places = [at for at in range(len(shape)) if shape[at] > 1]
        places.sort(key=lambda at: -strides[at])
        if len(places) > len(LETTERS):
            raise NoRuleError("more dimensions than loops")
        indices = [Index()] * len(shape)
        variables = []
        for name, at in zip(LETTERS, places, strict=False):
            indices[at] = variable(name, shape[at])
            variables.append((name, shape[at]))
        return variables or [(LETTERS[0], 1)], indices

    def store(
        self,
        memory: Memory,
        shape: Extents,
        strides: Extents,
        term: Callable[[list[Index]], Term],
        offset: int = 0,
    ) -> None:
        """Add the loop that stores `term` of all indices of `shape` at these strides of memory."""
        if 0 in shape:
            return
        variables, indices = self.over(shape, strides)
        place = position(indices, strides, offset).text

        def body() -> Iterable[str]:
            return [f"{memory.name}[{place}] = {text(term(indices))}"]

        self.lines += self.loop(variables, body)


def text(term: Term) -> str:
    """The text of a term, whose leaves are elements."""
    return text_of(term, lambda leaf: str(leaf.args[0]))


def _dense(value: Any) -> tuple[tuple[int, ...], Extents]:
    """(the order of dimensions in memory, empty for torch's own, strides) of a tensor that fills
    its memory. Raises `NoRuleError` for others.
    """
    shape, strides = tuple(value.shape), tuple(value.stride())
    if not is_known(value.dtype) or prod(shape) == 0:
        raise NoRuleError("a tensor that no kernel has")
    order = sorted(range(len(shape)), key=lambda at: (-strides[at] if shape[at] > 1 else 0, at))
    long = [at for at in order if shape[at] > 1]
    expected = 1
    for at in reversed(long):
        if strides[at] != expected:
            raise NoRuleError("a tensor with gaps")
        expected *= shape[at]
    if long == sorted(long):
        return (), tuple(
            stride if extent > 1 else own
            for stride, extent, own in zip(strides, shape, row_major(shape), strict=True)
        )
    return tuple(order), strides
