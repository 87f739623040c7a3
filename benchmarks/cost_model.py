"""The time model against measurements: does it rank configurations, and how far is it off?

    python benchmarks/cost_model.py [--quick]

On this processor every configuration of a kernel is measured and predicted. For GPUs the prediction
is compared with nothing but the instructions of the cubin's main loop, since no GPU is here.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from common import environment, markdown_table, write_results

import tileworkbench as tw
from tileworkbench import kernels

ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """A kernel with what stays and what is varied; `seen` says that the model's constants were
    chosen with it in view.
    """

    name: str
    make: Callable[..., Any]
    constants: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    seen: bool = False


CASES = (
    Case(
        "matmul 512, float32",
        kernels.matmul,
        {"M": 512, "N": 512, "K": 512, "dtype": "float32"},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128), "block_K": (16, 64)},
        seen=True,
    ),
    Case(
        "matmul 384x768x256, bfloat16",
        kernels.matmul,
        {"M": 384, "N": 768, "K": 256, "dtype": "bfloat16"},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 64)},
    ),
    Case(
        "flash attention 512, D 64",
        kernels.flash_attention,
        {"batch": 1, "heads": 4, "seq_q": 512, "seq_kv": 512, "dim": 64},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "softmax 2048x1024",
        kernels.softmax,
        {"M": 2048, "N": 1024},
        {"block_M": (1, 2, 4, 8, 16, 32)},
    ),
    Case(
        "rmsnorm 2048x768",
        kernels.rmsnorm,
        {"M": 2048, "N": 768},
        {"block_M": (1, 2, 4, 8, 16, 32)},
    ),
    Case(
        "layernorm 1024x1536",
        kernels.layernorm,
        {"M": 1024, "N": 1536},
        {"block_M": (1, 2, 4, 8, 16, 32)},
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "torch"))
    tw.set_num_threads(1)
    rounds = 1 if options.quick else ROUNDS
    rows, data = [], {}
    for case in CASES:
        points = list(measure(case, rounds))
        data[case.name] = [{**config, "predicted_ms": p, "ms": m} for config, p, m in points]
        rows.append(row(case, points))
        print("  ".join(map(str, rows[-1])), flush=True)
    unseen = [each for case in CASES if not case.seen for each in data[case.name]]
    error = statistics.median(off(each["predicted_ms"], each["ms"]) for each in unseen)
    heads = ("kernel, one thread", "configurations", "rank correlation", "median error")
    table = markdown_table((*heads, "chosen first", "best"), rows)
    table += "\n\nRank correlation is Spearman's. Chosen first: the time of the configuration that "
    table += "the model ranks first, over the fastest.\n\n"
    table += f"Median error over kernels that the model was not fitted to: {error:.0%}. "
    table += "Goals: 0.9, and 20 %."
    print(table)
    print(f"\nwritten to {write_results('cost_model', facts, data, table)}")


def measure(case: Case, rounds: int) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Each configuration, its predicted milliseconds, and the least of medians that were measured.

    All configurations are measured in turn, `rounds` times.
    """
    compiled: list[tuple[dict[str, Any], Any, list[torch.Tensor]]] = []
    for values in itertools.product(*case.axes.values()):
        config = dict(zip(case.axes, values, strict=True))
        program = case.make(**case.constants, **config)
        kernel = tw.compile(program, target="cpu")
        # One set of tensors: memory that was not touched for a while is not what is compared.
        args = compiled[0][2] if compiled else inputs_of(kernel)
        compiled.append((config, kernel, args))
    times: list[list[float]] = [[] for _ in compiled]
    for _ in range(rounds):
        for slot, (_, kernel, args) in zip(times, compiled, strict=True):
            slot.append(tw.do_bench(lambda k=kernel, a=args: k(*a), warmup=10, rep=40))
    for (config, kernel, _), slot in zip(compiled, times, strict=True):
        yield config, tw.predict(kernel).total_ms, min(slot)


def inputs_of(kernel: Any) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for param in kernel.program.params:
        if not param.output:
            shape = [int(str(extent)) for extent in param.value.shape]
            values = torch.randn(shape, generator=generator)
            made.append(values.to(getattr(torch, str(param.value.dtype))))
    return made


def row(case: Case, points: list[tuple[dict[str, Any], float, float]]) -> tuple[str, ...]:
    predicted = [p for _, p, _ in points]
    measured = [m for _, _, m in points]
    first = measured[int(np.argmin(predicted))]
    error = statistics.median(map(off, predicted, measured))
    name = f"{case.name} (seen)" if case.seen else case.name
    best = points[int(np.argmin(measured))][0]
    return (
        name,
        str(len(points)),
        f"{correlation(predicted, measured):.2f}",
        f"{error:.0%}",
        f"{first / min(measured):.2f}",
        " ".join(f"{key}={value}" for key, value in best.items()),
    )


def off(predicted: float, measured: float) -> float:
    return abs(predicted - measured) / measured


def correlation(a: list[float], b: list[float]) -> float:
    """Spearman's, with mean ranks for equal values."""
    first, second = ranks(a), ranks(b)
    return float(np.corrcoef(first, second)[0, 1])


def ranks(values: list[float]) -> np.ndarray[Any, Any]:
    array = np.array(values)
    return np.array([(array < v).sum() + ((array == v).sum() - 1) / 2 for v in array])


if __name__ == "__main__":
    main()
