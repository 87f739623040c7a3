"""The values of a generated kernel, in the order in which they are made, and its form."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.terms import Kind, NoRuleError, Term

if TYPE_CHECKING:
    from tileworkbench.pytorch.convolutions import Window
    from tileworkbench.pytorch.prologues import TileLines

_RESERVED = {"T", "i", "j", "at", "bx", "by", "bz", "row", "column", "depth", "k", *keyword.kwlist}
_LONGEST_SCAN = 512  # elements of a row whose running sum is worth a kernel
_BEHIND = 1 << 20  # a stage that no loop has


@dataclass(frozen=True, slots=True)
class Form:
    """The rows and columns of a kernel. `rows` are the extents along which some input does not
    vary, outer first; there are none where all values have one shape. `tile` are the rows and
    columns of a block. The first `batches` of the rows number the products of a batch: a block
    has rows of one of them. `depth` is that of the tiles of a product's operands. `parts` are the
    two extents of the columns where some input varies along one of them only.
    """

    rows: tuple[int, ...]
    columns: int
    tile: tuple[int, int]
    batches: int = 0
    depth: int = 0
    parts: tuple[int, ...] = ()

    @property
    def row_count(self) -> int:
        """The rows of one product, or all."""
        return prod(self.rows[self.batches :])

    @property
    def batch_count(self) -> int:
        """The products, 1 for what is no batch."""
        return prod(self.rows[: self.batches])

    @property
    def united(self) -> tuple[int, ...]:
        """The extents in front of the columns of what varies along all rows."""
        if not self.rows:
            return ()
        return (self.batch_count, self.row_count) if self.batches else (self.row_count,)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor that the kernel loads: its name, dtype, which of the form's `rows` it varies along,
    and whether along the columns: along all of them, or `part`, one of the form's."""

    name: str
    dtype: Any
    rows: tuple[bool, ...]
    columns: bool
    part: int | None = None

    def shape(self, form: Form) -> tuple[int, ...]:
        """Its extents as the kernel takes it."""
        width = form.columns if self.part is None else form.parts[self.part]
        sizes = form.united if all(self.rows) else ()
        if not all(self.rows):
            sizes = tuple(n for n, has in zip(form.rows, self.rows, strict=True) if has)
        return (*sizes, *((width,) if self.columns else ())) or (1,)

    def index(self, form: Form, row: str, column: str) -> str:
        """Where an element of `row` and `column` is, `k` and `j` in the form's parts."""
        column = column if self.part is None else "kj"[self.part]
        parts = [column] if self.columns else []
        if form.rows and all(self.rows):
            return ", ".join([*(["bz"] if form.batches else []), row, *parts])
        places, stride = [], 1
        for at in reversed(range(len(form.rows))):
            if at == form.batches - 1:
                stride = 1
            if self.rows[at]:
                whole = row if at >= form.batches else "bz"
                place = whole if stride == 1 else f"{whole} // {stride}"
                places.append(place if at in (0, form.batches) else f"{place} % {form.rows[at]}")
            stride *= form.rows[at]
        return ", ".join([*reversed(places), *parts]) or "0"


Loop = tuple[int, str]
"""A loop of a kernel: its stage, and whether it is over rows or over all elements."""


@dataclass(eq=False, slots=True)
class Definition:
    """A named value. `reduce` is "sum", "prod", "max" or "min" where it is that of `term` over each
    row, and "cumsum" where it is the sum up to each element.
    """

    name: str
    term: Term
    kind: str
    stage: int
    reduce: str = ""
    used_in: set[Loop] = field(default_factory=set)
    uses: int = 0
    is_inline: bool = False  # it is written where it is used
    below: int = 0  # it is an index, which must be less than this and not negative

    @property
    def is_kept(self) -> bool:
        """Whether it is in a fragment: others than its own loop use it."""
        return bool(self.reduce or self.below) or self.used_in - {(self.stage, self.kind)} != set()


@dataclass(frozen=True, slots=True)
class Product:
    """The product whose accumulator the kernel begins with: the names and dtypes of its operands,
    whether they are transposed, and its depth."""

    a: str
    b: str
    dtype: Any
    transposed: tuple[bool, bool]
    depth: int
    tiles: tuple[TileLines | None, TileLines | None] = (None, None)  # of operands that are computed
    window: Window | None = None  # that of a convolution, of which a are filters and b is the image

    @property
    def leaves(self) -> dict[Any, tuple[str, tuple[int, ...]]]:
        """The names and extents of what its operands are computed from."""
        return {node: leaf for each in self.tiles if each for node, leaf in each.leaves.items()}


@dataclass(frozen=True, slots=True)
class Output:
    """What the kernel returns: a name, a dtype, the value that is stored in it, and whether that is
    one for each element, not one for each row."""

    name: str
    dtype: Any
    term: Term
    is_full: bool

    def shape(self, form: Form) -> tuple[int, ...]:
        """Its extents as the kernel returns it."""
        return (*form.united, form.columns) if self.is_full else form.united


class Names:
    """The names of a kernel's text: what it says itself, and `reserved`, are taken."""

    def __init__(self, *reserved: str) -> None:
        self._taken = {*_RESERVED, *reserved}

    def copy(self) -> Names:
        """The same names, to try more of them."""
        return Names(*self._taken)

    def take(self, other: Names) -> None:
        """Reserve what another has."""
        self._taken |= other._taken

    def name(self, wanted: str) -> str:
        """A name that nothing else has, close to `wanted`."""
        plain = re.sub(r"\W", "_", wanted).strip("_") or "value"
        if plain[0].isdigit():  # of a module without a name, by its place
            plain = f"layer_{plain}"
        number, free = 2, plain
        while free in self._taken:
            number, free = number + 1, f"{plain}_{number}"
        self._taken.add(free)
        return free


class Body(Names):
    """The values of a kernel, in the order in which they are made; `Rows` of the table."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.columns = form.columns
        self.definitions: list[Definition] = []
        self._has_rows = bool(form.rows)

    def load(self, parameter: Parameter) -> Term:
        """An element of an input, in the dtype that it is computed in."""
        kind: Kind = "row" if self._has_rows and not parameter.columns else "full"
        return Term("load", (parameter,), parameter.dtype, kind).to(parameter.dtype)

    def product(self, name: str, dtype: Any) -> Term:
        """The accumulator of the kernel's product."""
        made = Definition(name, Term("number", (0,), dtype), "full", -1)
        return Term("value", (made,), dtype, "full", 0)

    def keep(self, name: str, x: Term) -> Term:
        """`x`, computed once and called `name`."""
        if x.op in ("value", "load", "number"):
            return x
        made = Definition(self.name(name), x, x.kind, x.stage)
        self.definitions.append(made)
        return Term("value", (made,), x.dtype, x.kind, x.stage)

    def sum(self, x: Term) -> Term:
        return self._reduce("sum", x)

    def max(self, x: Term) -> Term:
        return self._reduce("max", x)

    def min(self, x: Term) -> Term:
        return self._reduce("min", x)

    def prod(self, x: Term) -> Term:
        return self._reduce("prod", x)

    def running_sum(self, x: Term) -> Term:
        if x.kind != "full":
            raise NoRuleError("a running sum of what is the same along a row")
        if self.columns > _LONGEST_SCAN:
            raise NoRuleError(f"a running sum of {self.columns} elements is as fast in torch")
        operand = x if x.op == "value" and x.args[0].stage >= 0 else self._own(x)
        made = Definition(self.name("running"), operand, "full", operand.stage, "cumsum")
        self.definitions.append(made)
        return Term("value", (made,), x.dtype, "full", operand.stage + 1)

    def gather(self, table: Parameter, index: Term, rows: int) -> Term:
        """The element of a table of so many rows in row `index`."""
        made = Definition(self.name("index"), index, index.kind, index.stage, below=rows)
        self.definitions.append(made)
        place = Term("value", (made,), index.dtype, index.kind, index.stage)
        return Term("gather", (table, place), table.dtype, "full", index.stage).to(table.dtype)

    def _reduce(self, how: str, x: Term) -> Term:
        if x.kind != "full":
            raise NoRuleError("a reduction of what is the same along a row")
        operand = x if x.op == "value" and x.args[0].stage >= 0 else self._own(x)
        made = Definition(self.name(f"row_{how}"), operand, "row", operand.stage, how)
        self.definitions.append(made)
        return Term("value", (made,), x.dtype, "row", operand.stage + 1)

    def _own(self, x: Term) -> Term:
        """A full definition of `x`, which a reduction reads from its fragment."""
        wanted = f"{x.args[0].name}_tile" if x.op == "load" else "terms"
        made = Definition(self.name(wanted), x, "full", x.stage)
        self.definitions.append(made)
        return Term("value", (made,), x.dtype, "full", x.stage)


def find_uses(body: Body, outputs: Sequence[Output]) -> list[Definition]:
    """The definitions that outputs follow from, with the loops that use each."""
    used: list[Definition] = []

    def visit(term: Term, loop: Loop) -> None:
        if term.op == "value":
            (definition,) = term.args
            definition.used_in.add(loop)
            definition.uses += 1
            return
        for each in term.args:
            if isinstance(each, Term):
                visit(each, loop)

    for output in outputs:
        visit(output.term, (output.term.stage, "full" if output.is_full else "row"))
    for definition in reversed(body.definitions):
        if definition.used_in:
            used.append(definition)
            # A reduction reads the fragment of its operand behind the loop that writes it.
            stage = _BEHIND if definition.reduce else definition.stage
            visit(definition.term, (stage, definition.kind))
    return used[::-1]
