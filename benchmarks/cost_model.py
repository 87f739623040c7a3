"""The time models against what can be measured: do they rank configurations, how far are they off?

    python benchmarks/cost_model.py [--quick] [--only NAME ...] [--threads 1 2]

On this processor every configuration of a kernel is measured and predicted. A GPU's model is
compared with the instructions of cubins (`cost_model_gpu.py`), for which no GPU is needed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from common import environment, markdown_table, write_results
from cost_cases import CASES, SEEN, Case

import tileworkbench as tw

ROUNDS = 6
THREADS = [1, 2]
HEADS = (
    *("configurations", "rank correlation", "repeated", "median error", "chosen first", "spread"),
    "best",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of kernels")
    parser.add_argument("--threads", nargs="*", type=int, default=THREADS)
    options = parser.parse_args()
    facts = environment(("tileworkbench", "torch"))
    rounds = 2 if options.quick else ROUNDS
    chosen = [c for c in CASES if not options.only or any(n in c.name for n in options.only)]
    data: dict[str, Any] = {}
    tables = []
    for threads in options.threads:
        tw.set_num_threads(threads)
        tables.append(one_table(chosen, threads, rounds, data))
    text = "\n\n".join((*tables, NOTES))
    print(text)
    if not options.only:
        print(f"\nwritten to {write_results('cost_model', facts, data, text)}")


NOTES = (
    "Rank correlation is Spearman's. Repeated: that of two halves of the rounds, more than which "
    "no prediction can have. Configurations that become the same code are one; where all do, "
    "there is no order. Spread: the slowest configuration over the fastest. Chosen first: the "
    "time of the configuration that the model ranks first, over the fastest. Configurations whose "
    "spread is within the noise have no order to be predicted. The model's constants were chosen "
    "with the kernels marked (seen) in view."
)


def one_table(cases: Sequence[Case], threads: int, rounds: int, data: dict[str, Any]) -> str:
    """Measure all cases on so many threads, add the points to `data`, and tell."""
    rows, errors, ranked = [], list[float](), list[float]()
    for case in cases:
        points = list(measure(case, rounds))
        data[f"{case.name}, {threads} T"] = [
            {**config, "predicted_ms": p, "ms": m, "rounds_ms": r} for config, p, m, r in points
        ]
        rows.append(row(case, points))
        print("  ".join(map(str, rows[-1])), flush=True)
        if case not in SEEN:
            errors += [off(p, m) for _, p, m, _ in points]
            if repeated(points) >= 0.9:
                ranked.append(correlation([p for _, p, _, _ in points], [m for *_, m, _ in points]))
    who = f"kernel, {threads} threads" if threads > 1 else "kernel, one thread"
    text = markdown_table((who, *HEADS), rows)
    if errors:
        text += "\n\nKernels that the model was not fitted to: median error "
        text += f"{statistics.median(errors):.0%} (goal 20 %)"
    if ranked:
        good = sum(value >= 0.9 for value in ranked)
        text += f"; of those {len(ranked)} whose order measurements repeat (0.9 or more), {good} "
        text += f"are ranked with 0.9 or more, the median is {statistics.median(ranked):.2f}"
    return f"{text}."


Point = tuple[dict[str, Any], float, float, list[float]]
"""A configuration, predicted and measured milliseconds, and those of each round."""


def measure(case: Case, rounds: int) -> Iterator[Point]:
    """Each configuration, its predicted milliseconds, and the least that were measured.

    All configurations are measured in turn, `rounds` times; of a round the fastest tenth counts,
    since other guests of the host slow the rest of it. Those that become the same code are one.
    """
    compiled: list[tuple[dict[str, Any], Any, list[torch.Tensor]]] = []
    for values in itertools.product(*case.axes.values()):
        config = dict(zip(case.axes, values, strict=True))
        kernel = tw.compile(case.make(**case.constants, **config), target="cpu")
        if any(kernel.source == other.source for _, other, _ in compiled):
            continue
        # One set of tensors: memory that was not touched for a while is not what is compared.
        args = compiled[0][2] if compiled else inputs_of(kernel)
        compiled.append((config, kernel, args))
    times: list[list[float]] = [[] for _ in compiled]
    for _ in range(rounds):
        for slot, (_, kernel, args) in zip(times, compiled, strict=True):
            (fast,) = tw.do_bench(lambda k=kernel, a=args: k(*a), 10, 40, quantiles=(0.1,))
            slot.append(fast)
    for (config, kernel, _), slot in zip(compiled, times, strict=True):
        yield config, tw.predict(kernel).total_ms, min(slot), slot


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
        shown(correlation(predicted, measured)),
        shown(repeated(points)),
        f"{error:.0%}",
        f"{first / min(measured):.2f}",
        f"{max(measured) / min(measured):.2f}",
        " ".join(f"{key}={value}" for key, value in best.items()),
    )


def shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def repeated(points: list[Point]) -> float:
    """The rank correlation of every other round with the rest."""
    rounds = [slot for *_, slot in points]
    return correlation([min(slot[::2]) for slot in rounds], [min(slot[1::2]) for slot in rounds])


def off(predicted: float, measured: float) -> float:
    return abs(predicted - measured) / measured


def correlation(a: list[float], b: list[float]) -> float:
    """Spearman's, with mean ranks for equal values; NaN where all values of one are equal."""
    first, second = ranks(a), ranks(b)
    if min(np.ptp(first), np.ptp(second)) == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def ranks(values: list[float]) -> np.ndarray[Any, Any]:
    array = np.array(values)
    return np.array([(array < v).sum() + ((array == v).sum() - 1) / 2 for v in array])


if __name__ == "__main__":
    main()
