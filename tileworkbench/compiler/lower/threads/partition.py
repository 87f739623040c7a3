"""Which iterations of a nest a thread executes: the inverse of the loop's fragment, with holes.

The digits of the loop's index are read back from the thread's number; those that no thread digit
holds are loops of every thread. Threads without an iteration, and iterations outside a box that
does not fill its digits, become guards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.layout.digits import Digit, DigitSum, NotDigitsError, Term, make_sum
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.maps import DigitMap
from tileworkbench.compiler.layout.solve import Equation, System, refine


@dataclass(frozen=True, slots=True)
class ThreadGuard:
    """`(thread - base) // divisor % capacity < extent`; without `% capacity` where it is 0."""

    divisor: int
    capacity: int
    extent: int


@dataclass(frozen=True, slots=True)
class Step:
    """A loop of every thread: `extent` values of a digit of dimension `dim`, `divisor` apart (dim
    None where the digit is mixed with others).
    """

    extent: int
    dim: int | None
    divisor: int


@dataclass(frozen=True, slots=True)
class Partition:
    """The index of a thread's iterations.

    `sums` give ``(*index, replica)`` over the box `box`: one dimension per step, then the thread
    less `base`. `bounded` are the dimensions whose index may lie outside the loop's shape.
    """

    box: tuple[int, ...]
    sums: tuple[DigitSum, ...]
    steps: tuple[Step, ...]
    base: int
    guards: tuple[ThreadGuard, ...]
    bounded: tuple[int, ...]


@lru_cache(maxsize=1024)
def partition(loop: Fragment, threads: int) -> Partition:
    """How `threads` threads share the iterations of `loop`.

    Raises:
        LayoutError: the loop is given as a table, or two iterations share a thread and slot.
    """
    if not isinstance(loop.mapping, DigitMap):
        raise LayoutError(
            "the threads of this loop cannot be told by a formula: its layout is a table",
            hint="index fragments by variables of T.Parallel, and write annotated layouts with "
            "+, *, //, % and ^",
        )
    try:
        return _partition(loop.mapping, threads)
    except NotDigitsError as error:
        raise LayoutError(f"the threads cannot share a loop with the layout '{loop}'") from error


def _partition(mapping: DigitMap, threads: int) -> Partition:
    system = refine(mapping)
    outer = tuple(e for e in system.equations if e.place.dim == 0)
    fixed = System(system.atoms, outer).solve()
    inner = [
        e
        for e in system.equations
        if e.place.dim == 1 and not all(number in fixed for number in _bits(e.atoms))
    ]
    inner.sort(key=lambda e: -abs(e.place.divisor))
    system = System(system.atoms, (*outer, *inner))
    solution = system.solve()
    live = [n for n, atom in enumerate(system.atoms) if atom.extent > 1]
    if any(number not in solution for number in live):
        raise NotDigitsError
    box = (*(e.place.extent for e in inner), threads)
    base, guards, digits = _thread_digits(outer, mapping.sums[0].constant, len(inner), threads)
    for position, equation in enumerate(inner):
        digits[equation.place] = (Digit(position, 1, equation.place.extent), False)
    terms: list[list[Term]] = [[] for _ in mapping.shape]
    constants = [0] * len(mapping.shape)
    for number in live:
        atom = system.atoms[number]
        sources = [system.equations[n].place for n in _bits(solution[number])]
        read = [digits[place] for place in sources]
        if any(reverse for _, reverse in read):
            if len(read) > 1:
                raise NotDigitsError
            constants[atom.dim] += (atom.extent - 1) * atom.divisor
            terms[atom.dim].append(Term((read[0][0],), -atom.divisor))
        else:
            terms[atom.dim].append(Term(tuple(digit for digit, _ in read), atom.divisor))
    sums = tuple(make_sum(box, constants[d], parts) for d, parts in enumerate(terms))
    steps = tuple(_step(equation, system) for equation in inner)
    return Partition(box, sums, steps, base, guards, _bounded(mapping, system, live))


def _thread_digits(
    equations: tuple[Equation, ...], constant: int, dim: int, threads: int
) -> tuple[int, tuple[ThreadGuard, ...], dict[Digit, tuple[Digit, bool]]]:
    """Where each place of the thread is read from (and whether backwards), the least thread and the
    guards.
    """
    base = constant
    places = sorted((abs(e.place.divisor), e.place.extent, e.place) for e in equations)
    digits: dict[Digit, tuple[Digit, bool]] = {}
    guards: list[ThreadGuard] = []
    reach = 1
    for number, (stride, extent, place) in enumerate(places):
        if place.divisor < 0:
            base += place.divisor * (extent - 1)
        if stride < reach or stride % reach:
            raise NotDigitsError
        if stride > reach:
            guards.append(ThreadGuard(reach, stride // reach, 1))
        last = number + 1 == len(places)
        top = -(-threads // stride) * stride if last else places[number + 1][0]
        capacity = top // stride
        if not last and top % stride:
            raise NotDigitsError
        if capacity < extent:
            raise LayoutError(f"a loop over more threads than the {threads} of the block")
        if not last and capacity > extent and places[number + 1][0] == stride * extent:
            raise NotDigitsError
        if capacity > extent:
            guards.append(ThreadGuard(stride, 0 if last else capacity, extent))
        digits[place] = (Digit(dim, stride, capacity), place.divisor < 0)
        reach = stride * capacity
    if not places and threads > 1:
        guards.append(ThreadGuard(1, 0, 1))
    return base, tuple(guards), digits


def _step(equation: Equation, system: System) -> Step:
    """The loop of one place among the slots."""
    place = equation.place
    atoms = list(_bits(equation.atoms))
    alone = len(atoms) == 1 and place.divisor > 0
    if alone and sum(e.atoms >> atoms[0] & 1 for e in system.equations) == 1:
        atom = system.atoms[atoms[0]]
        return Step(place.extent, atom.dim, atom.divisor)
    return Step(place.extent, None, 0)


def _bounded(mapping: DigitMap, system: System, live: list[int]) -> tuple[int, ...]:
    """The dimensions whose digits reach beyond the extent."""
    dims = []
    for dim, extent in enumerate(mapping.shape):
        reach = 1
        for number in live:
            atom = system.atoms[number]
            if atom.dim == dim:
                reach *= atom.extent
        if reach > extent:
            dims.append(dim)
    return tuple(dims)


def halved(shared: Partition, number: int) -> Partition:
    """The same with step `number` as two steps, the inner one of extent 2."""
    step = shared.steps[number]
    parts = (Step(step.extent // 2, step.dim, step.divisor * 2), Step(2, step.dim, step.divisor))
    steps = (*shared.steps[:number], *parts, *shared.steps[number + 1 :])
    box = (*(part.extent for part in steps), shared.box[-1])
    variables = list(Index.variables(box))
    inner = variables.pop(number + 1)
    variables[number] = variables[number] * 2 + inner
    sums = as_sums(box, DigitMap(shared.box, shared.sums).evaluate(variables))
    return replace(shared, box=box, sums=sums, steps=steps)


def as_sums(box: tuple[int, ...], totals: Iterable[Any]) -> tuple[DigitSum, ...]:
    """What a map gave for symbolic indices, as sums of digits over `box`."""
    return tuple(
        total.sum if isinstance(total, Index) else make_sum(box, total, ()) for total in totals
    )


def _bits(mask: int) -> list[int]:
    return [n for n in range(mask.bit_length()) if mask >> n & 1]
