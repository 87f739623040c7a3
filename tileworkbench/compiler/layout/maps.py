"""Index maps: an n-dimensional box to tuples of non-negative integers, as digits or as a table.

Both forms have one interface, and a table is only ever used where no digit form exists, so
comparing two maps compares the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass

from .digits import DigitSum, NotDigitsError, Shape
from .index import Index
from .recognise import recognise_sum

if TYPE_CHECKING:
    from .digits import Table

TABLE_LIMIT = 2**18
"""Most points a map without a digit form may have."""

Function = Callable[..., Any]
"""Takes one value per dimension and returns one value, or a tuple or list of values."""


@dataclass(frozen=True, slots=True)
class DigitMap:
    """One canonical digit sum per output coordinate."""

    shape: Shape
    sums: tuple[DigitSum, ...]

    @property
    def output_shape(self) -> Shape:
        return tuple(total.maximum + 1 for total in self.sums)

    def evaluate(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Outputs at `values`: integers, arrays, `Index` objects, or expressions."""
        return tuple(evaluate_sum(self.shape, total, values) for total in self.sums)

    def tabulate(self) -> Table:
        """All outputs, an int64 array of shape ``(*shape, outputs)``."""
        return _stack(self.shape, self.evaluate(_mesh(self.shape)))


@dataclass(frozen=True, slots=True)
class TableMap:
    """An exact table of a map that has no digit form: int64, ``(*shape, outputs)``, read-only."""

    shape: Shape
    output_shape: Shape
    values: Table = field(compare=False, repr=False)
    content: bytes = field(repr=False)

    @staticmethod
    def from_values(shape: Shape, values: Table) -> TableMap:
        values.flags.writeable = False
        reach = values.reshape(-1, values.shape[-1]).max(0)
        return TableMap(shape, tuple(int(top) + 1 for top in reach), values, values.tobytes())

    def evaluate(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Outputs at `values`: integers or integer arrays."""
        if any(isinstance(value, Index) for value in values):
            raise NotDigitsError
        if not all(isinstance(value, int) or hasattr(value, "dtype") for value in values):
            raise LayoutError("A tabulated layout has no formula to evaluate on expressions.")
        entries = self.values[tuple(values)]
        if entries.ndim == 1:
            return tuple(int(value) for value in entries)
        return tuple(entries[..., output] for output in range(entries.shape[-1]))

    def tabulate(self) -> Table:
        """The table itself."""
        return self.values


IndexMap = DigitMap | TableMap


def evaluate_sum(shape: Shape, total: DigitSum, values: Sequence[Any]) -> Any:
    """The value of a digit sum at `values`, by the operators of `values` alone."""
    result: Any = None
    for term in total.terms:
        factor: Any = None
        for digit in term.digits:
            value = values[digit.dim]
            if digit.divisor > 1:
                value = value // digit.divisor
            if digit.divisor * digit.extent < shape[digit.dim]:
                value = value % digit.extent
            factor = value if factor is None else factor ^ value
        if result is not None and term.stride < 0:  # an expression reads better so
            result = result - factor * -term.stride
            continue
        if term.stride != 1:
            factor = factor * term.stride
        result = factor if result is None else result + factor
    if result is None:
        return total.constant
    return result + total.constant if total.constant else result


def build_map(shape: Sequence[int], function: Function) -> IndexMap:
    """The map of `function` over the box `shape`.

    `function` is called on symbolic indices; where these do not suffice, on numpy index arrays,
    and last on integers, point by point.

    Raises:
        LayoutError: bad shape, results that are not non-negative integers, or more than
            `TABLE_LIMIT` points without a digit form.
    """
    box = check_shape(shape)
    try:
        return make_digit_map(box, _outputs(function(*Index.variables(box))))
    except LayoutError:
        raise
    except (NotDigitsError, TypeError, ValueError, AttributeError, LookupError):
        pass
    check_tabulable(box)
    try:
        return make_map(box, _tabulate_function(box, function))
    except ArithmeticError as error:
        raise LayoutError(f"The function of a layout failed: {error}.") from error


def _outputs(result: Any) -> tuple[Any, ...]:
    """What a layout's function returned: a tuple or a list of indices, or a single one."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def make_digit_map(shape: Shape, outputs: tuple[Any, ...]) -> DigitMap:
    """A digit map from traced outputs (`Index` objects or integers)."""
    sums = []
    for output in outputs:
        if isinstance(output, int):
            output = Index(shape, DigitSum(int(output), (), int(output), int(output)))
        if not isinstance(output, Index):
            raise NotDigitsError
        sums.append(output.sum)
    _check_outputs(shape, [total.minimum for total in sums])
    return DigitMap(shape, tuple(sums))


def make_map(shape: Shape, values: Table) -> IndexMap:
    """The map of a table ``(*shape, outputs)``: digits where they are recognised."""
    _check_outputs(shape, [int(low) for low in values.reshape(-1, values.shape[-1]).min(0)])
    try:
        outputs = range(values.shape[-1])
        return DigitMap(shape, tuple(recognise_sum(values[..., output]) for output in outputs))
    except NotDigitsError:
        return TableMap.from_values(shape, values)


def _tabulate_function(shape: Shape, function: Function) -> Table:
    import numpy as np

    try:
        with np.errstate(all="raise"):
            return _stack(shape, _outputs(function(*_mesh(shape))))
    except LayoutError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError):
        pass
    rows = []
    for point in np.ndindex(*shape):
        rows.append(_outputs(function(*point)))
    if len({len(row) for row in rows}) != 1:
        raise LayoutError("A layout's function must return equally many indices everywhere.")
    if not all(isinstance(output, int | np.integer) for row in rows for output in row):
        raise _not_integers()
    columns = (np.array(column).reshape(shape) for column in zip(*rows, strict=True))
    return _stack(shape, tuple(columns))


def _mesh(shape: Shape) -> list[Table]:
    import numpy as np

    axes = (np.arange(extent, dtype=np.int64) for extent in shape)
    return list(np.meshgrid(*axes, indexing="ij", sparse=True))


def _stack(shape: Shape, outputs: tuple[Any, ...]) -> Table:
    import numpy as np

    for output in outputs:
        if np.asarray(output).dtype.kind not in "iu":
            raise _not_integers()
    table = np.empty((*shape, len(outputs)), np.int64)
    for position, output in enumerate(outputs):
        table[..., position] = output
    return table


def _not_integers() -> LayoutError:
    return LayoutError(
        "A layout's function must return integers.", hint="Divide with '//', not '/'."
    )


def check_shape(shape: Sequence[int]) -> Shape:
    """`shape` as a tuple of positive integers."""
    try:
        box = tuple(extent.__index__() for extent in shape)
    except (AttributeError, TypeError):
        box = ()
    if not box or min(box) < 1:
        raise LayoutError(f"The shape of a layout must be positive integers, not '{shape}'.")
    return box


def check_tabulable(shape: Shape) -> None:
    """Refuse to tabulate a box of more than `TABLE_LIMIT` points."""
    if prod(shape) > TABLE_LIMIT:
        raise LayoutError(
            f"A layout over '{shape}' is not a map of digits, and its {prod(shape)} points are "
            f"too many for a table (at most {TABLE_LIMIT}).",
            hint="Write it with '+', '*', '//', '%' and '^' and divisors that divide one another.",
        )


def _check_outputs(shape: Shape, lowest: list[int]) -> None:
    if not lowest:
        raise LayoutError("A layout's function must return at least one index.")
    for position, low in enumerate(lowest):
        if low < 0:
            raise LayoutError(
                f"Output {position} of the layout over '{shape}' is negative: it reaches {low}."
            )


@lru_cache(maxsize=1024)
def compose(outer: IndexMap, inner: IndexMap) -> IndexMap:
    """``x -> outer(inner(x))``.

    Raises:
        LayoutError: `inner` reaches outside the box of `outer`.
    """
    reach = inner.output_shape
    if len(reach) != len(outer.shape) or any(
        extent > bound for extent, bound in zip(reach, outer.shape, strict=True)
    ):
        raise LayoutError(
            f"Cannot compose: the inner layout reaches '{reach}', outside the outer layout's "
            f"shape '{outer.shape}'."
        )
    return build_map(inner.shape, lambda *x: outer.evaluate(inner.evaluate(x)))


def flatten(shape: Shape, values: Sequence[Any]) -> Any:
    """The row-major position of `values` in the box `shape`, by the operators of `values`."""
    result: Any = 0
    for extent, value in zip(shape, values, strict=True):
        result = result * extent + value if extent > 1 else result
    return result


def unflatten(shape: Shape, position: Any) -> tuple[Any, ...]:
    """The indices of row-major `position` in the box `shape`."""
    indices = []
    for extent in reversed(shape):
        indices.append(position % extent)
        position = position // extent
    return tuple(reversed(indices))
