"""Which digits a map determines: injectivity, bijectivity, inverses and unused digits.

A digit map is refined to atoms, the finest digits of each input dimension that any term mentions.
Every term then is a set of equations ``place = XOR of atoms``, a place being a digit of an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd, prod
from typing import TYPE_CHECKING

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass

from .digits import Digit, NotDigitsError, Shape, Term, check_chain, make_sum
from .index import Index
from .maps import DigitMap, IndexMap, check_tabulable, flatten, make_map

if TYPE_CHECKING:
    from .digits import Table


@dataclass(frozen=True, slots=True)
class Equation:
    """A place (a digit of an output) that holds the XOR of the atoms in the bit mask `atoms`."""

    place: Digit
    atoms: int


@dataclass(frozen=True, slots=True)
class System:
    """Atoms of a digit map and its equations."""

    atoms: tuple[Digit, ...]
    equations: tuple[Equation, ...]

    @property
    def used(self) -> int:
        """Bit mask of the atoms that some equation mentions."""
        mask = 0
        for equation in self.equations:
            mask |= equation.atoms
        return mask

    def is_super_increasing(self) -> bool:
        """Whether every place can be read back from its output."""
        reach: dict[int, int] = {}
        for equation in sorted(self.equations, key=lambda e: (e.place.dim, abs(e.place.divisor))):
            place = equation.place
            if abs(place.divisor) <= reach.get(place.dim, 0):
                return False
            reach[place.dim] = reach.get(place.dim, 0) + abs(place.divisor) * (place.extent - 1)
        return True

    def solve(self) -> dict[int, int]:
        """Atom number -> bit mask of the equations whose XOR is the atom (Gauss-Jordan)."""
        rows = [(equation.atoms, 1 << n) for n, equation in enumerate(self.equations)]
        if all(atoms & (atoms - 1) == 0 for atoms, _ in rows):
            return {atoms.bit_length() - 1: source for atoms, source in rows}
        free = list(range(len(rows)))
        for number in range(len(self.atoms)):
            pivot = next((n for n in free if rows[n][0] >> number & 1), None)
            if pivot is None:
                continue
            free.remove(pivot)
            atoms, source = rows[pivot]
            for n, row in enumerate(rows):
                if n != pivot and row[0] >> number & 1:
                    rows[n] = (row[0] ^ atoms, row[1] ^ source)
        return {
            atoms.bit_length() - 1: source
            for atoms, source in rows
            if atoms and atoms & (atoms - 1) == 0
        }


def refine(mapping: DigitMap) -> System:
    """The system of a digit map.

    Raises:
        NotDigitsError: the digits of its outputs have no common refinement.
    """
    bounds: list[set[int]] = [{1} for _ in mapping.shape]
    for total in mapping.sums:
        for term in total.terms:
            for digit in term.digits:
                bounds[digit.dim] |= {digit.divisor, digit.divisor * digit.extent}
                if len(term.digits) > 1:
                    places = range(digit.extent.bit_length())
                    bounds[digit.dim] |= {digit.divisor << place for place in places}
    atoms: list[Digit] = []
    for dim, extent in enumerate(mapping.shape):
        ordered = sorted(bound for bound in bounds[dim] if bound < extent)
        check_chain(ordered)
        for low, high in zip(ordered, [*ordered[1:], extent], strict=False):
            atoms.append(Digit(dim, low, -(-high // low)))
    numbers = {(atom.dim, atom.divisor): n for n, atom in enumerate(atoms)}
    equations: list[Equation] = []
    for output, total in enumerate(mapping.sums):
        for term in total.terms:
            equations += _term_equations(output, term, atoms, numbers)
    return System(tuple(atoms), tuple(equations))


def _term_equations(
    output: int, term: Term, atoms: list[Digit], numbers: dict[tuple[int, int], int]
) -> list[Equation]:
    if len(term.digits) > 1:
        return [
            Equation(
                Digit(output, term.stride << place, 2),
                sum(1 << numbers[d.dim, d.divisor << place] for d in term.digits),
            )
            for place in range(term.extent.bit_length() - 1)
        ]
    digit = term.digits[0]
    return [
        Equation(Digit(output, term.stride * (atom.divisor // digit.divisor), atom.extent), 1 << n)
        for n, atom in enumerate(atoms)
        if atom.dim == digit.dim and digit.divisor <= atom.divisor < digit.divisor * digit.extent
    ]


@lru_cache(maxsize=1024)
def is_injective(mapping: IndexMap) -> bool:
    """Whether no two indices share an image; proved on digits where possible, else enumerated.

    Raises:
        LayoutError: more than `TABLE_LIMIT` points, and the digits do not decide.
    """
    if isinstance(mapping, DigitMap):
        try:
            system = refine(mapping)
            if system.used != (1 << len(system.atoms)) - 1:
                return False
            if system.is_super_increasing():
                return len(system.solve()) == len(system.atoms)
        except NotDigitsError:
            pass
    check_tabulable(mapping.shape)
    import numpy as np

    return bool(np.unique(linear_table(mapping)).size == prod(mapping.shape))


def is_bijective(mapping: IndexMap) -> bool:
    """Whether the map is one-to-one onto its output box."""
    return prod(mapping.shape) == prod(mapping.output_shape) and is_injective(mapping)


@lru_cache(maxsize=1024)
def invert(mapping: IndexMap) -> IndexMap:
    """The inverse of a bijection onto the output box: a permutation of digits, else a table.

    Raises:
        LayoutError: the map is not a bijection.
    """
    if isinstance(mapping, DigitMap):
        try:
            return _invert_digits(mapping)
        except NotDigitsError:
            pass
    if not is_bijective(mapping):
        raise LayoutError(
            f"The layout from '{mapping.shape}' to '{mapping.output_shape}' is not a bijection, so "
            "it has no inverse.",
            hint="Padding leaves holes, and replication or dropped digits repeat elements.",
        )
    check_tabulable(mapping.shape)
    import numpy as np

    order = np.argsort(linear_table(mapping).reshape(-1))
    columns = np.unravel_index(order, mapping.shape)
    values = np.stack(columns, -1).astype(np.int64)
    return make_map(mapping.output_shape, values.reshape(*mapping.output_shape, len(mapping.shape)))


def _invert_digits(mapping: DigitMap) -> DigitMap:
    """Read every atom back from the places it was written to."""
    system = refine(mapping)
    output_shape = mapping.output_shape
    _check_places(system, output_shape)
    if any(mapping.shape[a.dim] % (a.divisor * a.extent) for a in system.atoms):
        raise NotDigitsError
    solution = system.solve()
    if not len(solution) == len(system.atoms) == len(system.equations):
        raise NotDigitsError
    terms: list[list[Term]] = [[] for _ in mapping.shape]
    for number, atom in enumerate(system.atoms):
        sources = solution[number]
        digits = tuple(
            equation.place for n, equation in enumerate(system.equations) if sources >> n & 1
        )
        terms[atom.dim].append(Term(digits, atom.divisor))
    sums = tuple(make_sum(output_shape, 0, dimension) for dimension in terms)
    return DigitMap(output_shape, sums)


def _check_places(system: System, output_shape: Shape) -> None:
    """The places of each output must be exactly its mixed-radix digits."""
    reached = [1] * len(output_shape)
    for equation in sorted(system.equations, key=lambda e: e.place):
        place = equation.place
        if place.divisor != reached[place.dim]:
            raise NotDigitsError
        reached[place.dim] *= place.extent
    if tuple(reached) != output_shape:
        raise NotDigitsError


def unused_position(mapping: IndexMap, dims: Sequence[int]) -> IndexMap:
    """``x -> position of x`` among the digits of `dims` that the map ignores, row-major.

    Where digits do not decide, the rank of ``x`` among the points with the image of ``x``, for
    index 0 in all other dimensions.
    """
    if isinstance(mapping, DigitMap):
        try:
            return _unused_digits(mapping, dims)
        except NotDigitsError:
            pass
    check_tabulable(mapping.shape)
    import numpy as np

    chosen = tuple(slice(None) if d in dims else slice(1) for d in range(len(mapping.shape)))
    images = linear_table(mapping)[chosen].reshape(-1)
    order = np.argsort(images, kind="stable")
    ordered = images[order]
    first = np.searchsorted(ordered, ordered)
    ranks = np.empty_like(images)
    ranks[order] = np.arange(images.size) - first
    shape = tuple(extent if d in dims else 1 for d, extent in enumerate(mapping.shape))
    values = np.broadcast_to(ranks.reshape(shape), mapping.shape)
    return make_map(mapping.shape, np.ascontiguousarray(values)[..., None])


def _unused_digits(mapping: DigitMap, dims: Sequence[int]) -> DigitMap:
    system = refine(mapping)
    used = system.used
    if not system.is_super_increasing() or len(system.solve()) != used.bit_count():
        raise NotDigitsError
    terms = []
    stride = 1
    for dim in reversed(dims):
        for number, atom in enumerate(system.atoms):
            if atom.dim == dim and not used >> number & 1 and mapping.shape[dim] > 1:
                terms.append(Term((atom,), stride))
                stride *= atom.extent
    return DigitMap(mapping.shape, (make_sum(mapping.shape, 0, terms),))


def linear_table(mapping: IndexMap) -> Table:
    """Row-major positions of the outputs in the output box, an int64 array of the input shape."""
    import numpy as np

    values = mapping.tabulate()
    total = np.zeros(mapping.shape, np.int64)
    for output, extent in enumerate(mapping.output_shape):
        total = total * extent + values[..., output]
    return total


@lru_cache(maxsize=1024)
def contiguous_run(mapping: IndexMap) -> tuple[int, int]:
    """Contiguity of flat positions along the last dimension.

    Returns the largest ``n`` so that aligned groups of ``n`` are contiguous, and the common divisor
    of the positions where these groups start, not counting multiples of ``n`` inside a longer run.
    """
    try:
        return _digit_run(mapping)
    except NotDigitsError:
        import numpy as np

        flat = linear_table(mapping).reshape(-1, mapping.shape[-1])
        breaks = np.flatnonzero((np.diff(flat) != 1).any(0)) + 1
        run = int(np.gcd.reduce(breaks, initial=0)) or mapping.shape[-1]
        return run, int(np.gcd.reduce(flat[:, ::run], axis=None))


def _digit_run(mapping: IndexMap) -> tuple[int, int]:
    variables = Index.variables(mapping.shape)
    linear = variables[0] * 0 + flatten(mapping.output_shape, mapping.evaluate(variables))
    last = len(mapping.shape) - 1
    run, rest = 1, list(linear.sum.terms)
    for term in linear.sum.terms:
        digit = term.digits[0]
        if term.stride == 1 and term.digits == (Digit(last, 1, digit.extent),):
            run = digit.extent
            rest.remove(term)
    crossing = [digit.divisor for term in rest for digit in term.digits if digit.dim == last]
    starts = [linear.sum.constant, *(abs(term.stride) for term in rest)]
    return min([run, *crossing]), gcd(*starts)
