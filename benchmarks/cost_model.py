"""The time models against what can be measured: do they rank configurations, how far are they off?

    python benchmarks/cost_model.py [--quick] [--only NAME ...] [--threads 1 2]

On this processor every configuration of a kernel is measured and predicted. A GPU's model is
compared with the instructions of cubins (`cost_model_gpu.py`), for which no GPU is needed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from common import environment, markdown_table, write_results
from cost import CASES, SEEN
from cost.case import Case, text_of
from in_turn import in_turn, usual
from numpy.typing import NDArray

import tileworkbench as tw
from tileworkbench.bench.memory_rates import LINE_BYTES, PAGE_BYTES

SECONDS = 6.0  # of measuring, for each kernel
THREADS = [1, 2]
APART = 1.1  # times of configurations that are told apart
SCATTER = 0.05  # of a model that would be right but for errors at random
TOLD = 0.75  # how often that model ranks kernels well whose configurations differ enough
HEADS = (
    *("configurations", "rank correlation", "repeated", "within 5 %", "pairs", "median error"),
    *("chosen first", "spread", "best"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a sixth of the rounds")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of kernels")
    parser.add_argument("--threads", nargs="*", type=int, default=THREADS)
    options = parser.parse_args()
    facts = environment(("tileworkbench", "torch"))
    seconds = SECONDS / 6 if options.quick else SECONDS
    chosen = [c for c in CASES if not options.only or any(n in c.name for n in options.only)]
    data: dict[str, Any] = {}
    tables = []
    for threads in options.threads:
        tw.set_num_threads(threads)
        tables.append(one_table(chosen, threads, seconds, data))
    text = "\n\n".join((*tables, NOTES))
    print(text)
    if not options.only:
        print(f"\nwritten to {write_results('cost_model', facts, data, text)}")


NOTES = (
    "All configurations of a kernel are called in turn, and how they compare in a round counts "
    "(`in_turn.py`), for what others on the machine do slows a whole round. Tensors lie somewhere "
    "else in each round: loads wait for stores a multiple of 4096 bytes away. Rank correlation is "
    "Spearman's. Repeated: that of every other round with the rest, more than which no prediction "
    "can have. Within 5 %: how often a model would have 0.9 or more that is right but for errors "
    "of 5 % at random. Pairs: of those that are 10 % or more apart, how many are predicted in "
    "their order. Configurations that become the same code are one; where all do, "
    "there is no order. Spread: the slowest configuration over the fastest. Chosen first: the "
    "time of the configuration that the model ranks first, over the fastest. Configurations whose "
    "spread is within the noise have no order to be predicted. The model's constants were chosen "
    "with the kernels marked (seen) in view."
)


def one_table(cases: Sequence[Case], threads: int, seconds: float, data: dict[str, Any]) -> str:
    """Measure all cases on so many threads, add the points to `data`, and tell."""
    measured: list[tuple[Case, list[Point]]] = []
    for case in cases:
        points = list(measure(case, seconds))
        data[f"{case.name}, {threads} T"] = [
            {**config, "predicted_ms": p, "ms": m, "other_rounds_ms": o}
            for config, p, m, o in points
        ]
        measured.append((case, points))
        print("  ".join(row(case, points)), flush=True)
    return told(measured, threads)


def told(measured: Sequence[tuple[Case, list[Point]]], threads: int) -> str:
    """The table of cases on so many threads, and what there is to say of it."""
    who = f"kernel, {threads} threads" if threads > 1 else "kernel, one thread"
    text = markdown_table((who, *HEADS), [row(case, points) for case, points in measured])
    new = [points for case, points in measured if case not in SEEN]
    groups = {"Kernels that the model was not fitted to": new, "All": [p for _, p in measured]}
    for name, kernels in groups.items():
        errors = [off(p, m) for points in kernels for _, p, m, _ in points]
        if errors:
            text += f"\n\n{name}: median error {statistics.median(errors):.0%} (goal 20 %)"
            text += f"{orders([points for points in kernels if repeated(points) >= 0.9])}."
    return text


def orders(kernels: Sequence[list[Point]]) -> str:
    """What to say of the order of kernels whose measurements repeat it."""
    if not kernels:
        return ""
    right, all_ = (sum(each) for each in zip(*map(pairs, kernels), strict=True))
    ranks, chances = [rank(points) for points in kernels], [within(points) for points in kernels]
    good, expected = sum(each >= 0.9 for each in ranks), sum(chances)
    text = (
        f"; of those {len(kernels)} whose order measurements repeat (0.9 or more), {good} are "
        f"ranked with 0.9 or more, where errors of 5 % at random would leave {expected:.0f}; the "
        f"median is {statistics.median(ranks):.2f}"
    )
    apart = [each for each, chance in zip(ranks, chances, strict=True) if chance >= TOLD]
    if apart:
        text += (
            f"; of the {len(apart)} whose configurations differ so much that these errors leave "
            f"0.9 in three of four cases, {sum(each >= 0.9 for each in apart)} are, the median is "
            f"{statistics.median(apart):.2f}"
        )
    return text + (
        f"; of {all_} pairs that are 10 % or more apart {right / all_:.0%} are predicted in their "
        "order"
        if all_
        else ""
    )


Point = tuple[dict[str, Any], float, float, tuple[float, float]]
"""A configuration, predicted and measured milliseconds, and those of every other round and of the
rest.
"""


def measure(case: Case, seconds: float) -> Iterator[Point]:
    """Each configuration with its milliseconds; those that become the same code are one."""
    compiled: list[tuple[dict[str, Any], Any]] = []
    inputs: list[torch.Tensor] = []
    for values in itertools.product(*case.axes.values()):
        config = dict(zip(case.axes, values, strict=True))
        kernel = tw.compile(case.make(**case.constants, **config), target="cpu")
        if any(kernel.source == other.source for _, other in compiled):
            continue
        # One memory for all: what was not touched for a while is not what is compared.
        inputs = inputs or inputs_of(kernel)
        compiled.append((config, kernel))
    args = Moving(inputs)
    calls = [lambda k=kernel: k(*args.tensors) for _, kernel in compiled]
    times = in_turn(calls, seconds=seconds, before=args.move)
    halves = usual(times[::2]), usual(times[1::2])
    for at, (config, kernel) in enumerate(compiled):
        half = float(halves[0][at]), float(halves[1][at])
        yield config, tw.predict(kernel).total_ms, float(usual(times)[at]), half


class Moving:
    """Tensors that can lie at any line of a page. Loads wait for stores whose addresses end in the
    same twelve bits (Agner Fog, microarchitecture, "memory intermediate aliases"), so that where
    the system has put tensors and tiles makes some kernels several times slower.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.values = tuple(tensors)
        sizes = [each.numel() * each.element_size() for each in tensors]
        self.rooms = [torch.empty(size + PAGE_BYTES, dtype=torch.uint8) for size in sizes]
        self.tensors = list(tensors)

    def move(self, number: int) -> None:
        """Put all somewhere else, the same for the same number."""
        place = random.Random(number)
        for at, (value, room) in enumerate(zip(self.values, self.rooms, strict=True)):
            first = place.randrange(0, PAGE_BYTES, LINE_BYTES)
            bytes_ = room[first : first + value.numel() * value.element_size()]
            self.tensors[at] = bytes_.view(value.dtype).view(value.shape).copy_(value)


def inputs_of(kernel: Any) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for param in kernel.program.params:
        if not param.output:
            shape = [int(str(extent)) for extent in param.value.shape]
            dtype = getattr(torch, str(param.value.dtype))
            if dtype.is_floating_point:
                made.append(torch.randn(shape, generator=generator).to(dtype))
            else:
                made.append(torch.randint(0, 16, shape, generator=generator).to(dtype))
    return made


def row(case: Case, points: list[Point]) -> tuple[str, ...]:
    predicted, measured = [p for _, p, _, _ in points], [m for _, _, m, _ in points]
    first = measured[int(np.argmin(predicted))]
    error = statistics.median(map(off, predicted, measured))
    name = f"{case.name} (seen)" if case in SEEN else case.name
    best = points[int(np.argmin(measured))][0]
    return (
        name,
        str(len(points)),
        shown(rank(points)),
        shown(repeated(points)),
        "-" if math.isnan(repeated(points)) else f"{within(points):.0%}",
        "{}/{}".format(*pairs(points)),
        f"{error:.0%}",
        f"{first / min(measured):.2f}",
        f"{max(measured) / min(measured):.2f}",
        text_of(best),
    )


def shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def rank(points: list[Point]) -> float:
    """The rank correlation of what was predicted and measured."""
    return correlation([p for _, p, _, _ in points], [m for _, _, m, _ in points])


def repeated(points: list[Point]) -> float:
    """The rank correlation of every other round with the rest."""
    return correlation([half for *_, (half, _) in points], [half for *_, (_, half) in points])


def pairs(points: list[Point]) -> tuple[int, int]:
    """How many pairs that are `APART` or more are in the measured order, and all of them."""
    apart = [
        faster[1] < slower[1]
        for faster, slower in itertools.permutations(points, 2)
        if slower[2] >= APART * faster[2]
    ]
    return sum(apart), len(apart)


def within(points: list[Point], times: int = 400) -> float:
    """How often a rank correlation is 0.9 or more if what was measured had errors at random, with a
    standard deviation of `SCATTER`.
    """
    measured = np.array([m for _, _, m, _ in points])
    noise = np.exp(SCATTER * np.random.default_rng(1).standard_normal((times, len(measured))))
    values = list(measured)
    return sum(correlation(values, list(row)) >= 0.9 for row in measured * noise) / times


def off(predicted: float, measured: float) -> float:
    return abs(predicted - measured) / measured


def correlation(a: list[float], b: list[float]) -> float:
    """Spearman's, with mean ranks for equal values; NaN where all values of one are equal."""
    first, second = ranks(a), ranks(b)
    if min(np.ptp(first), np.ptp(second)) == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def ranks(values: list[float]) -> NDArray[np.float64]:
    array = np.array(values)
    return np.array([(array < v).sum() + ((array == v).sum() - 1) / 2 for v in array])


if __name__ == "__main__":
    main()
