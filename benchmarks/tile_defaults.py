"""The default tile sizes of the library's kernels beside what `tw.suggest` ranks first.

    python benchmarks/tile_defaults.py

Nothing is run: times are those of the model, for GPUs from published numbers ("simulated only"),
for the processor from its measured ceilings. Each tile size is halved and doubled; stages and
threads stay. `tests/kernels/test_tile_defaults.py` holds the written table against the library and
asks for a reason where a default is predicted to be much slower than the first. See README.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from common import environment, markdown_table, write_results

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.kernels import elementwise

TARGETS = ("cpu", "sm_80", "sm_90a", "gfx942")


@dataclass(frozen=True)
class Family:
    """A kernel of the library at sizes that fill a machine."""

    name: str
    make: Any
    sizes: Mapping[str, Any]
    tiles: Sequence[str]


FAMILIES = (
    Family(
        "matmul",
        kernels.matmul,
        {"M": 2048, "N": 2048, "K": 2048},
        ("block_M", "block_N", "block_K"),
    ),
    Family(
        "flash_attention",
        kernels.flash_attention,
        {"batch": 2, "heads": 16, "seq_q": 2048, "seq_kv": 2048, "dim": 64},
        ("block_M", "block_N"),
    ),
    Family("elementwise.add", elementwise.add, {"M": 4096, "N": 4096}, ("block_M", "block_N")),
    Family("softmax", kernels.softmax, {"M": 4096, "N": 1024}, ("block_M",)),
    Family("rmsnorm", kernels.rmsnorm, {"M": 4096, "N": 1024}, ("block_M",)),
    Family("layernorm", kernels.layernorm, {"M": 4096, "N": 1024}, ("block_M",)),
)


def main() -> None:
    facts = environment(("tileworkbench", "llvmlite"))
    rows = [row for family in FAMILIES for target in TARGETS if (row := compare(family, target))]
    table = markdown_table(
        ("kernel", "target", "default", "first by the model", "default / first"),
        [
            (
                *(row[key] for key in ("kernel", "target")),
                said(row["default"]),
                said(row["first"]),
                f"{row['ratio']:.2f}",
            )
            for row in rows
        ],
    )
    print(table)
    print(f"\nwritten to {write_results('tile_defaults', facts, rows, table)}")


def compare(family: Family, target: str) -> dict[str, Any]:
    """The default and the first configuration, with predicted times."""
    default = defaults_of(family)
    sizes = {"dtype": "float32" if target == "cpu" else "float16", **family.sizes}
    axes = {name: [size // 2, size, 2 * size] for name, size in default.items() if size > 1}
    axes |= {name: [1, 2, 4] for name, size in default.items() if size == 1}
    found = tw.suggest(family.make, target, axes, constants=sizes)
    times = {tuple(each.config.values()): each.predicted_ms for each in found.ranked}
    mine = times.get(tuple(default[name] for name in axes), inf)
    first = dict(found.ranked[0].config)
    print(family.name, target, default, first, mine / found.ranked[0].predicted_ms, flush=True)
    return {
        "kernel": family.name,
        "target": target,
        "default": default,
        "first": first,
        "ratio": mine / found.ranked[0].predicted_ms,
    }


def defaults_of(family: Family) -> dict[str, int]:
    """The tile sizes that the kernel has when nobody says any."""
    parameters = inspect.signature(family.make).parameters
    return {name: parameters[name].default for name in family.tiles}


def said(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


if __name__ == "__main__":
    main()
