"""A kernel of symbolic sizes in a few configurations: a call takes the one for its sizes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import log, prod, sqrt
from types import MappingProxyType
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.tuning.trials import Config
from tileworkbench.workbench.kernel import Kernel

Sizes = tuple[int, ...]
"""A size for each symbol."""

TOLERANCE = 1.05  # a configuration this close to the best one does as well
MOST_CONFIGS = 4  # of one kernel


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sizes with one configuration: those around `samples`, of which the last is where `latency`
    (milliseconds) was measured and `predicted` holds.
    """

    samples: tuple[Sizes, ...]
    config: Config
    latency: float
    predicted: float


def cover(times: Mapping[Sizes, Sequence[float]]) -> dict[Sizes, int]:
    """The configuration for each sample, from predicted times by configuration: as few different
    ones as are within `TOLERANCE` of the best everywhere, `MOST_CONFIGS` at most; a sample keeps
    that of the one before where it is as close.

    Greedy: the next one is that which lowers the sum of the logarithms of all times most.
    """
    chosen: list[int] = []

    def time(sizes: Sizes, places: Sequence[int]) -> float:
        return min(times[sizes][place] for place in places)

    everything = range(len(next(iter(times.values()))))
    while len(chosen) < MOST_CONFIGS:
        if chosen and all(
            time(sizes, chosen) <= TOLERANCE * time(sizes, everything) for sizes in times
        ):
            break
        chosen.append(
            min(everything, key=lambda at: sum(log(time(s, [*chosen, at])) for s in times))
        )
    choice: dict[Sizes, int] = {}
    last = chosen[0]
    for sizes in sorted(times, key=_rank):
        if times[sizes][last] > TOLERANCE * time(sizes, chosen):
            last = min(chosen, key=times[sizes].__getitem__)
        choice[sizes] = last
    return choice


def _rank(sizes: Sizes) -> tuple[int, Sizes]:
    """What brings samples into an order."""
    return prod(sizes), sizes


def grouped(choice: Mapping[Sizes, int]) -> list[tuple[int, tuple[Sizes, ...]]]:
    """Buckets as (configuration, samples in ascending order): neighbours of one symbol that have
    the same configuration; of several symbols all that have it.
    """
    groups: list[tuple[int, list[Sizes]]] = []
    for sizes in sorted(choice, key=_rank):
        place = choice[sizes]
        candidates = groups[-1:] if len(sizes) == 1 else groups
        group = next((samples for at, samples in candidates if at == place), None)
        if group is None:
            groups.append((place, [sizes]))
        else:
            group.append(sizes)
    return [(place, tuple(samples)) for place, samples in groups]


def border(low: int, high: int) -> int:
    """The first size that belongs to the sample `high` and no longer to `low`: above their
    geometric mean.
    """
    return int(sqrt(low * high)) + 1


Borders = Mapping[tuple[int, int], int]
"""By two samples of a symbol, the first size that belongs to the second one."""


class DispatchedKernel:
    """A kernel in the configurations that were found for its sizes; a call takes one by the sizes
    of its arguments. Between two samples the border is that of `borders`, else their geometric
    mean.

    `kernels` are the compiled ones, `buckets` say which sizes they are for.
    """

    def __init__(
        self,
        symbols: Sequence[str],
        sizes: Mapping[str, Sequence[int]],
        buckets: Sequence[Bucket],
        kernels: Sequence[Kernel],
        borders: Borders = MappingProxyType({}),
    ) -> None:
        self.symbols, self.buckets, self.kernels = tuple(symbols), tuple(buckets), tuple(kernels)
        samples = [sorted(set(sizes[name])) for name in symbols]
        self._borders = [
            [borders.get((low, high), border(low, high)) for low, high in pairwise(each)]
            for each in samples
        ]
        at = {s: number for number, bucket in enumerate(buckets) for s in bucket.samples}
        self._at = at
        self._samples = samples
        self._pick = self._picker(kernels[0].program)

    def __call__(self, *args: Any) -> Any:
        """Run the kernel for these arguments; its errors are those of any kernel."""
        return self._pick(args)(*args)

    def kernel_of(self, args: Sequence[Any]) -> Kernel:
        """The kernel that a call with these arguments takes."""
        return self._pick(tuple(args))

    def kernel_for(self, **sizes: int) -> Kernel:
        """The kernel that calls of these sizes take. Raises `ArgumentError` for other names than
        `symbols`, and for what is no size.
        """
        if sorted(sizes) != sorted(self.symbols):
            given, names = ", ".join(sizes) or "nothing", ", ".join(self.symbols)
            raise ArgumentError(f"kernel_for takes {names}, not {given}")
        for name, size in sizes.items():
            if not is_size(size):
                raise ArgumentError(f"'{name}' is a positive integer, not {size!r}")
        cell = tuple(
            samples[bisect_right(borders, sizes[name])]
            for name, samples, borders in zip(
                self.symbols, self._samples, self._borders, strict=True
            )
        )
        return self.kernels[self._at[cell]]

    def _picker(self, program: Program) -> Callable[[tuple[Any, ...]], Kernel]:
        """A function from arguments to the kernel, that does little: it is part of each call."""
        steps = [
            (*place_of(program, name), borders)
            for name, borders in zip(self.symbols, self._borders, strict=True)
        ]
        table, first = self._table(()), self.kernels[0]

        def pick(args: tuple[Any, ...]) -> Kernel:
            row = table
            try:
                for argument, axis, borders in steps:
                    row = row[bisect_right(borders, args[argument].shape[axis])]
            except (IndexError, AttributeError, TypeError):
                return first  # which says what is wrong
            kernel: Kernel = row
            return kernel

        return pick

    def _table(self, cell: Sizes) -> Any:
        """The kernels for sizes that begin with `cell`: a list for each further symbol."""
        if len(cell) == len(self.symbols):
            return self.kernels[self._at[cell]]
        return [self._table((*cell, size)) for size in self._samples[len(cell)]]

    def __str__(self) -> str:
        lines = []
        for bucket in self.buckets:
            columns = list(zip(*bucket.samples, strict=True))
            sizes = [
                f"{name}={','.join(map(str, dict.fromkeys(column)))}"
                for name, column in zip(self.symbols, columns, strict=True)
            ]
            config = " ".join(f"{name}={value}" for name, value in bucket.config.items())
            lines.append(f"{' '.join(sizes)}: {config}, {bucket.latency:.4g} ms at the largest")
        return "\n".join(lines)

    def __repr__(self) -> str:
        name = self.kernels[0].name
        return f"<{name} in {len(self.buckets)} buckets of {', '.join(self.symbols)}>"


def is_size(value: Any) -> bool:
    """Whether it is an extent of a tensor with elements."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def place_of(program: Program, symbol: str) -> tuple[int, int]:
    """Where a call's arguments show the value of a symbol: (argument, dimension)."""
    given = [param.value for param in program.params if not param.output]
    for at, value in enumerate(given):
        if isinstance(value, Buffer):
            for axis, extent in enumerate(value.shape):
                if getattr(extent, "name", "") == symbol:
                    return at, axis
    raise UnsupportedError(
        f"no argument of '{program.name}' has the symbol '{symbol}' as an extent",
        hint="what depends on a size is chosen by the shapes of arguments",
    )
