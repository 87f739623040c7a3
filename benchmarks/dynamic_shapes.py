"""Kernels with symbolic extents against the same ones compiled for constant extents.

    python benchmarks/dynamic_shapes.py

One compiled kernel serves every size; this is what that costs. See README.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from common import environment, markdown_table, write_results

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.kernels import elementwise, flash_attention, layernorm, matmul, rmsnorm, softmax

ROUNDS = 60
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A kernel of some extents, and tensors for it."""

    name: str
    make: Callable[..., Any]
    sizes: Sequence[Sizes]  # the first divides the tiles, the others do not
    data: Callable[..., tuple[torch.Tensor, ...]]
    torch: Callable[..., torch.Tensor]


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*heads_first)


def matrix(dtype: torch.dtype) -> Case:
    name = str(dtype).removeprefix("torch.")
    return Case(
        f"matmul {name}, K = 512",
        lambda m, n: matmul(m, n, 512, name),
        [(512, 512), (500, 511)],
        lambda m, n: (normal(m, 512, dtype=dtype), normal(512, n, dtype=dtype)),
        torch.matmul,
    )


def add(dtype: torch.dtype) -> Case:
    name = str(dtype).removeprefix("torch.")
    return Case(
        f"add {name}",
        lambda m, n: elementwise.add(m, n, name),
        [(1024, 1024), (1000, 1001)],
        lambda m, n: (normal(m, n, dtype=dtype), normal(m, n, dtype=dtype)),
        torch.add,
    )


def rows(name: str, make: Callable[..., Any], weights: int, reference: Any) -> Case:
    return Case(
        f"{name}, rows of 1024",
        lambda m: make(m, 1024, "float32"),
        [(1024,), (1001,)],
        lambda m: (normal(m, 1024), *(normal(1024) for _ in range(weights))),
        reference,
    )


CASES = (
    add(torch.float32),
    add(torch.bfloat16),
    matrix(torch.float32),
    matrix(torch.bfloat16),
    rows("softmax", softmax, 0, lambda x: torch.softmax(x, -1)),
    rows("rmsnorm", rmsnorm, 1, lambda x, w: torch.nn.functional.rms_norm(x, (1024,), w)),
    rows(
        "layernorm", layernorm, 2, lambda x, w, b: torch.nn.functional.layer_norm(x, (1024,), w, b)
    ),
    Case(
        "attention, 4 heads of 64",
        lambda q, k: flash_attention(1, 4, q, k, 64, "float32"),
        [(512, 512), (500, 333)],
        lambda q, k: (normal(1, q, 4, 64), normal(1, k, 4, 64), normal(1, k, 4, 64)),
        attention,
    ),
)


def main() -> None:
    tw.set_num_threads(1)
    torch.set_num_threads(1)
    facts = environment(("tileworkbench", "llvmlite", "torch"))
    found = [row for case in CASES for row in measure(case)]
    table = markdown_table(
        ("kernel", "extents", "constant", "symbolic", "symbolic/constant", "torch/symbolic"),
        [
            (
                row["kernel"],
                " x ".join(map(str, row["extents"])),
                *(f"{1e3 * row[kind]:.3f} ms" for kind in ("constant", "symbolic")),
                f"{row['symbolic'] / row['constant']:.2f}",
                f"{row['torch'] / row['symbolic']:.2f}",
            )
            for row in found
        ],
    )
    table += f"\n\nOne thread; medians of {ROUNDS} rounds, in which each is called once.\n"
    print(table)
    print(f"\nwritten to {write_results('dynamic_shapes', facts, found, table)}")


def measure(case: Case) -> list[dict[str, Any]]:
    """The median times of the three for each size of a case, in seconds."""
    names = [f"n{at}" for at in range(len(case.sizes[0]))]
    symbolic = tw.compile(case.make(*map(T.dynamic, names)), target="cpu")
    made = []
    for size in case.sizes:
        constant = tw.compile(case.make(*size), target="cpu")
        data = case.data(*size)
        calls = {"constant": constant, "symbolic": symbolic, "torch": case.torch}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for round_ in range(-3, ROUNDS):
            for name, call in calls.items() if round_ % 2 else reversed(calls.items()):
                start = time.perf_counter()
                call(*data)
                if round_ >= 0:
                    times[name].append(time.perf_counter() - start)
        medians = {name: statistics.median(found) for name, found in times.items()}
        made.append({"kernel": case.name, "extents": size, **medians})
        print(case.name, size, {name: f"{1e3 * t:.3f} ms" for name, t in medians.items()})
    return made


if __name__ == "__main__":
    main()
