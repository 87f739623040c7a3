"""Functions and blocks of torch as kernels (`tw.tile`) against torch itself, eager and compiled.

    python benchmarks/torch_functions.py [--quick]

The compiled one is torch.compile with its default backend, which needs a C++ compiler. See
README.md.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch._inductor.config
import torch.nn.functional as F
from common import environment, markdown_table, write_results

import tileworkbench as tw

ROUNDS = 40
WIDTH = 1024
CLASSES = torch.arange(64) * 499


@dataclass(frozen=True)
class Case:
    """A function or module and what it is called with."""

    name: str
    make: Callable[[], Callable[..., torch.Tensor]]
    data: Callable[[], tuple[torch.Tensor, ...]]


class Perceptron(torch.nn.Module):
    """A transformer's gated feed-forward block with its norm and residual."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(512))
        self.gate, self.up = (torch.nn.Linear(512, 1376, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(1376, 512, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.rms_norm(x, (512,), self.weight, 1e-6)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Attention(torch.nn.Module):
    """Causal attention with its projections."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(512)
        self.inside, self.out = torch.nn.Linear(512, 1536), torch.nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.inside(self.norm(x)).view(batch, length, 3, 8, 64).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Convolutions(torch.nn.Module):
    """A residual block of images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.second(F.relu(self.first(x))))


def rows(count: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: tuple(torch.randn(512, WIDTH) for _ in range(count))


def function(call: Callable[..., torch.Tensor]) -> Callable[[], Callable[..., torch.Tensor]]:
    return lambda: call


CASES = (
    Case("gelu(x) * y", function(lambda x, y: F.gelu(x) * y), rows(2)),
    Case("silu(x) * y + z", function(lambda x, y, z: F.silu(x) * y + z), rows(3)),
    Case(
        "layer_norm(x + y)",
        function(lambda x, y: F.layer_norm(x + y, (WIDTH,))),
        rows(2),
    ),
    Case(
        "rms norm by hand",
        function(lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)),
        rows(1),
    ),
    Case(
        "softmax(scores / 8 + mask)",
        function(lambda s, m: torch.softmax(s * 0.125 + m, -1)),
        lambda: (torch.randn(8, 256, 256), torch.randn(256, 256)),
    ),
    Case("x // y", function(lambda x, y: x // y), rows(2)),
    Case(
        "(x * 2).t().contiguous() + y, 1024 x 1024",
        function(lambda x, y: (x * 2).t().contiguous() + y),
        lambda: (torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)),
    ),
    Case(
        "relu(x * w) by pixels, 8 x 64 x 28 x 28",
        function(lambda x, w: F.relu(x.permute(0, 2, 3, 1).contiguous() * w)),
        lambda: (torch.randn(8, 64, 28, 28), torch.randn(64)),
    ),
    Case(
        "relu(batch_norm(x)), 8 x 64 x 28 x 28",
        function(lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True))),
        lambda: (torch.randn(8, 64, 28, 28), torch.randn(64), torch.randn(64)),
    ),
    Case(
        "softmax(logits * 0.7), 8 x 128256",
        function(lambda logits: torch.softmax(logits * 0.7, -1)),
        lambda: (torch.randn(8, 128256),),
    ),
    Case(
        "cross entropy, 64 x 32000",
        function(lambda logits: F.cross_entropy(logits, CLASSES)),
        lambda: (torch.randn(64, 32000),),
    ),
    Case(
        "gelu(layer_norm(x)), 8 x 128256",
        function(lambda x: F.gelu(F.layer_norm(x, x.shape[-1:]))),
        lambda: (torch.randn(8, 128256),),
    ),
    Case(
        "gelu(linear(x))",
        lambda: torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU()),
        lambda: (torch.randn(256, 512),),
    ),
    Case("feed-forward, 256 rows", Perceptron, lambda: (torch.randn(1, 256, 512),)),
    Case("feed-forward, 1 row", Perceptron, lambda: (torch.randn(1, 1, 512),)),
    Case("attention, 256 rows", Attention, lambda: (torch.randn(1, 256, 512),)),
    Case("convolutions, 32 x 56 x 56", Convolutions, lambda: (torch.randn(1, 32, 56, 56),)),
)
DTYPES = (torch.float32, torch.bfloat16)


def main() -> None:
    rounds = 3 if "--quick" in sys.argv else ROUNDS
    tw.set_num_threads(1)
    torch.set_num_threads(1)
    torch._inductor.config.force_disable_caches = True  # first calls are first calls
    facts = environment(("tileworkbench", "llvmlite", "torch"))
    found = []
    for dtype in DTYPES:
        for case in CASES:
            found.append(measure(case, dtype, rounds))
            print({key: value for key, value in found[-1].items() if key != "report"})
    table = markdown_table(
        ("function", "dtype", "ours", "eager/ours", "compiled/ours", "first call", "compiled"),
        [
            (
                row["function"],
                row["dtype"],
                f"{1e6 * row['ours']:.0f} us",
                f"{row['eager'] / row['ours']:.2f}",
                f"{row['compiled'] / row['ours']:.2f}",
                *(f"{row[kind]:.2f} s" for kind in ("first_ours", "first_compiled")),
            )
            for row in found
        ],
    )
    ratios = [min(row["eager"], row["compiled"]) / row["ours"] for row in found]
    table += (
        f"\n\nGeometric mean over the better of the two: {statistics.geometric_mean(ratios):.2f}, "
        f"worst {min(ratios):.2f}. One thread, no gradients; medians of {rounds} rounds, in which "
        "each is called once.\n"
    )
    print(table)
    if rounds == ROUNDS:
        print(f"\nwritten to {write_results('torch_functions', facts, found, table)}")


def measure(case: Case, dtype: torch.dtype, rounds: int) -> dict[str, Any]:
    """Median times of a call of the three, and of the first calls, in seconds."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    eager = case.make()
    if isinstance(eager, torch.nn.Module):
        eager = eager.to(dtype)
    data = tuple(each.to(dtype) for each in case.data())
    tiled, compiled = tw.tile(eager), torch.compile(eager, dynamic=False)
    calls = {"ours": tiled, "compiled": compiled, "eager": eager}
    firsts, times = {}, {name: [] for name in calls}
    with torch.no_grad():
        for name, call in calls.items():
            start = time.perf_counter()
            call(*data)
            firsts[f"first_{name}"] = time.perf_counter() - start
        for round_ in range(-3, rounds):
            for name, call in calls.items() if round_ % 2 else reversed(calls.items()):
                start = time.perf_counter()
                call(*data)
                if round_ >= 0:
                    times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    kind = str(dtype).removeprefix("torch.")
    report = str(tiled.report)
    return {"function": case.name, "dtype": kind, **medians, **firsts, "report": report}


if __name__ == "__main__":
    main()
