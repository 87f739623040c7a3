"""Sizes that torch keeps open, so that one kernel serves them all.

While a graph is cut into kernels, each open size stands as a large prime of its own. What shapes
have in common is then found as for numbers, and a product of sizes can be taken apart again. In
the kernel's text names stand in their place (`spelled`), in a call the sizes of its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from math import prod
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.terms import NoRuleError

_FIRST = 1 << 40  # all sizes are smaller: no number of a user stands for an open size


class OpenSizeError(NoRuleError):
    """A kernel would have to know a size that is open."""

    def __init__(self, size: int) -> None:
        super().__init__("over a size that torch keeps open")
        self.size = size


class OpenSizes:
    """The open sizes of a graph, each with its prime."""

    def __init__(self) -> None:
        self._of: dict[Any, int] = {}
        self._symbols: dict[int, Any] = {}
        self._primes = _primes()

    def number(self, size: Any) -> int:
        """A size of torch as a number, which has a prime for each open size in it."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        factors = expression.args if expression.is_Mul else (expression,)
        return prod(self._factor(each, size) for each in factors)

    def _factor(self, factor: Any, size: Any) -> int:
        if factor.is_Integer:
            return int(factor)
        if factor.is_Pow and factor.exp.is_Integer and factor.exp > 0:
            return prod([self._factor(factor.base, size)] * int(factor.exp))
        if factor not in self._of:
            stand_in = next(self._primes)
            self._of[factor] = stand_in
            environment = size.node.shape_env
            # The newer name of what torch calls `size_hint` before 2.13.
            hint_of = getattr(environment, "guarding_hint_or_throw", environment.size_hint)
            self._symbols[stand_in] = environment.create_symintnode(
                factor, hint=int(hint_of(factor))
            )
        return self._of[factor]

    def count(self, tensor: Any) -> int:
        """The elements of a tensor. Asking torch would hold on to what the answer depends on."""
        return prod(map(self.number, tensor.shape))

    def is_contiguous(self, tensor: Any) -> bool:
        """Whether the elements of a tensor are one behind the other, for all sizes."""
        expected = 1
        for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            extent = self.number(size)
            if extent != 1 and self.number(stride) != expected:
                return False
            expected *= extent
        return True

    def hint(self, number: int) -> int:
        """The number with the sizes of the tensors that the graph was captured with."""
        for stand_in, symbol in self._symbols.items():
            while number % stand_in == 0:
                number = number // stand_in * symbol.node.hint
        return int(number)

    def settle(self, number: int) -> None:
        """Hold on to the open sizes of a number as they are now: torch compiles for others."""
        for stand_in, symbol in self._symbols.items():
            if number % stand_in == 0:
                int(symbol)


def _primes() -> Iterator[int]:
    """Primes, by Fermat's test with several bases; none of them is small."""
    candidate = _FIRST + 1
    while True:
        if all(pow(base, candidate - 1, candidate) == 1 for base in (2, 3, 5, 7, 11, 13)):
            yield candidate
        candidate += 2


def is_open(number: int) -> bool:
    """Whether open sizes are in a number."""
    return number >= _FIRST


# Numbers of others


@dataclass(frozen=True, slots=True)
class Formula:
    """How a size follows from known ones: ``constant * product of factors // divisor``."""

    constant: int
    factors: Extents = ()
    divisor: int = 1

    @property
    def sizes(self) -> Extents:
        """The known sizes that it follows from."""
        return (*self.factors, *([self.divisor] if is_open(self.divisor) else []))

    def value(self, known: Mapping[int, int]) -> int:
        """The size, for known ones."""
        value = self.constant * prod(known[each] for each in self.factors)
        return value // known.get(self.divisor, self.divisor)

    def text(self, names: Mapping[int, str]) -> str:
        """The size as an expression of names."""
        parts = [names[each] for each in self.factors]
        if self.constant != 1 or not parts:
            parts.append(str(self.constant))
        product = " * ".join(parts)
        if self.divisor == 1:
            return product if len(parts) == 1 else f"({product})"
        return f"({product} // {names.get(self.divisor, self.divisor)})"


def formula(size: int, known: Collection[int]) -> Formula:
    """How `size` follows from known ones. Raises `OpenSizeError` where it does not."""
    if not is_open(size):
        return Formula(size)
    rest = size
    factors: list[int] = []
    for each in sorted(known, reverse=True):  # the largest first: few factors
        while rest % each == 0:
            rest //= each
            factors.append(each)
    if not is_open(rest):
        return Formula(rest, tuple(factors))
    for whole, part in permutations(known, 2):
        if whole == size * part:
            return Formula(1, (whole,), part)
    for whole in known:
        if whole % size == 0 and not is_open(whole // size):
            return Formula(1, (whole,), whole // size)
    raise OpenSizeError(size)


def spelled(text: str, shapes: Sequence[Extents], wanted: Mapping[int, str], names: Names) -> str:
    """A kernel's text with names for open sizes. `shapes` are those of its parameters, which its
    sizes are taken from; `wanted` are names for some sizes. Raises `OpenSizeError` for a size
    that does not follow from those.
    """
    open_sizes = dict.fromkeys(size for shape in shapes for size in shape if is_open(size))
    called = {size: names.name(wanted.get(size, "size")) for size in open_sizes}

    def spell(match: re.Match[str]) -> str:
        number = int(match[0])
        return formula(number, called).text(called) if is_open(number) else match[0]

    declared = "".join(f'{name} = T.dynamic("{name}")\n' for name in called.values())
    text = text.replace("@T.prim_func\n", f"{declared}@T.prim_func\n", 1)
    return re.sub(r"(?<![\w.])\d{10,}(?![\w.])", spell, text)
