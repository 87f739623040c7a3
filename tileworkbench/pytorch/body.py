"""The values of a generated kernel, in the order in which they are made, and its form."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.dtypes import named
from tileworkbench.pytorch.terms import NEUTRAL, Kind, NoRuleError, Term, select

if TYPE_CHECKING:
    from tileworkbench.pytorch.convolutions import Window
    from tileworkbench.pytorch.prologues import TileLines

_RESERVED = {"T", "i", "j", "at", "bx", "by", "bz", "row", "column", "depth", "k", *keyword.kwlist}
_LONGEST_SCAN = 512  # elements of a row whose running sum is worth a kernel


@dataclass(frozen=True, slots=True)
class Form:
    """The rows and columns of a kernel. `rows` are the extents along which some input does not
    vary, outer first; there are none where all values have one shape. `tile` are the rows and
    columns of a block. The first `batches` of the rows number the products of a batch: a block
    has rows of one of them. `depth` is that of the tiles of a product's operands. `parts` are the
    two extents of the columns where some input varies along one of them only. A block `has_pieces`
    where its rows are too long to be kept: it reads them in pieces of the tile's columns, and
    `keeps_costly` values of a whole row.
    """

    rows: tuple[int, ...]
    columns: int
    tile: tuple[int, int]
    batches: int = 0
    depth: int = 0
    parts: tuple[int, ...] = ()
    has_pieces: bool = False
    keeps_costly: bool = False

    @property
    def row_count(self) -> int:
        """The rows of one product, or all."""
        return prod(self.rows[self.batches :])

    @property
    def batch_count(self) -> int:
        """The products, 1 for what is no batch."""
        return prod(self.rows[: self.batches])

    def place_in(self, part: int) -> str:
        """The index of a column in one of the parts: loops over both have `k` and `j`, of which a
        piece has a part of one row, or all."""
        each = self.parts[1] // self.tile[1] if self.has_pieces else 1
        if each == 1:
            return "kj"[part]
        return (f"k // {each}", f"k % {each} * {self.tile[1]} + j")[part]

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
        column = column if self.part is None else form.place_in(self.part)
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
"""A loop of a kernel: its stage, and whether it is over rows ("row"), over all elements ("full") or
reduces tiles ("reduce")."""


@dataclass(eq=False, slots=True)
class Definition:
    """A named value. `reduce` is "sum", "prod", "max" or "min" where it is that of `term` over each
    row, and "cumsum" where it is the sum up to each element. `made_in` are the loops that compute
    it: one, but for what each loop over the pieces of a row computes again. `used_in` counts the
    uses of each loop. `whole` names the fragment that has all its elements of a row, if one has.
    """

    name: str
    term: Term
    kind: str
    stage: int
    reduce: str = ""
    made_in: set[Loop] = field(default_factory=set)
    used_in: Counter[Loop] = field(default_factory=Counter)
    is_inline: bool = False  # it is written where it is used
    whole: str = ""
    below: int = 0  # it is an index, which must be less than this and not negative

    @property
    def uses(self) -> int:
        """How often it is used."""
        return sum(self.used_in.values())

    @property
    def is_kept(self) -> bool:
        """Whether it is in a fragment: others than its own loops use it."""
        others = self.used_in.keys() - self.made_in
        if self.whole:  # which later loops read
            others = {loop for loop in others if loop[1] == "reduce"}
        return bool(self.reduce or self.below or others)


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
        self.form, self.columns = form, form.columns
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
        single = _single(x)
        return self._reduce("sum", x) if single is None else self.keep("row_sum", single)

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

    @property
    def column(self) -> Term:
        """Where an element is in its row."""
        return Term("column", (), named("int32"), "full")

    def is_at(self, index: Term) -> Term:
        """Whether an element is in the column that a number of its row names, if there is one."""
        inside = select(index < 0, -1, select(index < self.columns, index, -1))
        return self.keep("place", inside.to(self.column.dtype)).equals(self.column)

    def gather(self, table: Parameter, index: Term, rows: int) -> Term:
        """The element of a table of so many rows in row `index`."""
        place = self._index(index, rows)
        return Term("gather", (table, place), table.dtype, "full", index.stage).to(table.dtype)

    def pick(self, x: Term, column: Term) -> Term:
        """The element of each row in its own column, computed for itself."""
        if x.kind != "full" or column.kind == "full" or self.form.parts:
            raise NoRuleError("an index for each element is torch's own")
        place = self._index(column, self.columns)
        return Term("pick", (_of_inputs(x), place), x.dtype, "row", max(x.stage, place.stage))

    def _index(self, x: Term, count: int) -> Term:
        """An index that must be one of `count`."""
        made = Definition(self.name("index"), x, x.kind, x.stage, below=count)
        self.definitions.append(made)
        return Term("value", (made,), x.dtype, x.kind, x.stage)

    def _reduce(self, how: str, x: Term) -> Term:
        if x.kind != "full":
            raise NoRuleError("a reduction of what is the same along a row")
        is_tile = x.op == "value" and x.args[0].stage >= 0
        operand = x if is_tile and not self._has_rest else self._own(x, how)
        made = Definition(self.name(f"row_{how}"), operand, "row", operand.stage, how)
        self.definitions.append(made)
        return Term("value", (made,), x.dtype, "row", operand.stage + 1)

    @property
    def _has_rest(self) -> bool:
        """Whether the last piece of a row has columns behind its end."""
        return self.form.has_pieces and self.columns % self.form.tile[1] > 0

    def _own(self, x: Term, how: str = "sum") -> Term:
        """A full definition of `x`, which a reduction reads from its fragment."""
        wanted = f"{x.args[0].name}_tile" if x.op == "load" else "terms"
        if self._has_rest:
            x = select(self.column < self.columns, x, NEUTRAL[how])
        made = Definition(self.name(wanted), x, "full", x.stage)
        self.definitions.append(made)
        return Term("value", (made,), x.dtype, "full", x.stage)


_CHEAP = {"if_then_else", "max", "min", "abs", "isnan", "isinf", "Not", "And", "Or"}  # functions


def _is_costly(term: Term) -> bool:
    """Whether computing a value of others takes longer than reading it: it has an exponential, or
    the like."""
    if term.op == "value":
        return False
    own = term.op == "call" and term.args[0] not in _CHEAP
    return own or any(_is_costly(each) for each in term.args if isinstance(each, Term))


def _single(x: Term) -> Term | None:
    """The sum of a row that is zero but where its elements are `is_at`; None for others."""
    x = _defined(x)
    if x.op != "call" or x.args[0] != "if_then_else":
        return None
    condition, value, other = map(_defined, x.args[1:])
    is_else_zero = other.op == "number" and other.args[0] == 0
    if condition.op != "==" or condition.args[1].op != "column" or not is_else_zero:
        return None
    return None if value.kind == "full" else select(condition.args[0] < 0, 0, value)


def _defined(term: Term) -> Term:
    """What a name of an element stands for."""
    while term.op == "value" and term.args[0].kind == "full" and not term.args[0].reduce:
        term = term.args[0].term
    return term


def _of_inputs(term: Term) -> Term:
    """An element as what follows from inputs and from values of its row alone."""
    if term.op == "gather":
        raise NoRuleError("an element of a row that is gathered itself")
    if term.op == "value" and term.args[0].kind == "full":
        if term.args[0].reduce or term.args[0].stage < 0:
            raise NoRuleError("an element that does not follow from inputs alone")
        return _of_inputs(term.args[0].term)
    args = tuple(_of_inputs(each) if isinstance(each, Term) else each for each in term.args)
    return Term(term.op, args, term.dtype, term.kind, term.stage)


def find_uses(body: Body, outputs: Sequence[Output]) -> list[Definition]:
    """The definitions that outputs follow from, with the loops that make and use each."""
    used: list[Definition] = []

    def visit(term: Term, loop: Loop) -> None:
        if term.op == "value":
            term.args[0].used_in[loop] += 1
            return
        for each in term.args:
            if isinstance(each, Term):
                visit(each, loop)

    for output in outputs:
        visit(output.term, (output.term.stage, "full" if output.is_full else "row"))
    for definition in reversed(body.definitions):
        if not definition.used_in:
            continue
        used.append(definition)
        definition.made_in = {(definition.stage, definition.kind)}
        if body.form.has_pieces and definition.kind == "full":
            # There is room for a piece of it: whoever needs it computes it again.
            stages = sorted({stage for stage, _ in definition.used_in})
            if len(stages) > 1 and body.form.keeps_costly and _is_costly(definition.term):
                definition.whole = body.name(f"{definition.name}_row")
                del stages[1:]
            definition.made_in = {(stage, "full") for stage in stages}
        # A reduction reads the fragment of its operand behind the loop that writes it.
        readers = {(definition.stage, "reduce")} if definition.reduce else definition.made_in
        for loop in readers:
            visit(definition.term, loop)
    return used[::-1]
