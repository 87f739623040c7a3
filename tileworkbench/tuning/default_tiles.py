"""Writes the library's default tile sizes, `kernels/tiles.json`, from what the time model says.

    python -m tileworkbench.tuning.default_tiles [KERNEL ...]

Nothing is run, and nothing depends on the machine this runs on: the processor is a description of
one (`reference_cpu.json`). With names of kernels the others' rows stay. Seconds a kernel.

Nobody can tell a percent apart, so of all configurations that are predicted within 1 % of the
fastest, the one in the middle of what is tried is taken. `EXCEPTIONS` has what a measurement knows
better. `gpu_tiles` chooses for GPUs.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isclose, log2, prod, sqrt
from pathlib import Path
from typing import Any

from tileworkbench import kernels
from tileworkbench.bench.described import DescribedCpu
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.kernels.tiles import CLASSES, FILE, Tiles, table
from tileworkbench.tuning.gpu_tiles import gpu_row

NEAR = 1.01
REFERENCE_CPU = Path(__file__).with_name("reference_cpu.json")

Config = tuple[int, ...]
Ratios = dict[Config, float]


@dataclass(frozen=True, slots=True)
class Family:
    """A kernel at sizes that people call it with, and the tile sizes that are tried."""

    sizes: Mapping[str, Any]
    axes: Mapping[str, Sequence[int]]
    has_dtype: bool = True


def _family(sizes: str, axes: Mapping[str, Sequence[int]], has_dtype: bool = True) -> Family:
    pairs = (each.split("=") for each in sizes.split())
    return Family({name: int(value) for name, value in pairs}, axes, has_dtype)


_PRODUCT = {"block_M": (64, 128, 256), "block_N": (64, 128, 256), "block_K": (16, 32, 64)}
_SMALLER = {"block_M": (32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 64)}
_PACKED = {"block_M": (32, 64, 128), "block_N": (64, 128, 256), "block_K": (32, 64, 128)}
_ATTENTION = {"block_M": (32, 64, 128), "block_N": (32, 64, 128)}
_ROWS = {"block_M": (1, 2, 4, 8)}
_PIECES = {"block_M": (1, 2, 4), "block_N": (512, 1024, 2048)}
_SHARES = {"block_M": (32, 64, 128), "block_N": (128, 256, 512)}
_CHUNKS = "batch=1 chunks=8 chunk_size=256 heads=16 headdim=64 dstate=128"

FAMILIES: Mapping[str, Family] = {
    "add": _family("M=4096 N=4096", _ATTENTION),
    "gelu": _family("M=4096 N=4096", _ATTENTION),
    "softmax": _family("M=4096 N=1024", _ROWS),
    "online_softmax": _family("M=1024 N=16384", _PIECES),
    "layernorm": _family("M=4096 N=1024", _ROWS),
    "add_layernorm": _family("M=4096 N=1024", _ROWS),
    "rmsnorm": _family("M=4096 N=1024", _ROWS),
    "add_rmsnorm": _family("M=4096 N=1024", _ROWS),
    "cross_entropy": _family("M=1024 N=16384", _PIECES),
    "rmsnorm_backward": _family("M=4096 N=1024", _SHARES),
    "layernorm_backward": _family("M=4096 N=1024", _SHARES),
    "rope": _family("batch=2 seq_len=2048 heads=16 dim=64", {"block_S": (4, 8, 16)}),
    "histogram": _family("N=1048576 bins=256", {"block_N": (2048, 4096, 8192)}, False),
    "topk": _family("M=1024 N=128 k=8", _ROWS),
    "matmul": _family("M=2048 N=2048 K=2048", _PRODUCT),
    "linear": _family("M=2048 N=2048 K=2048", _PRODUCT),
    "split_k_matmul": _family("M=64 N=256 K=8192", _SMALLER),
    "gemv": _family("N=4096 K=4096", {"block_N": (4, 8, 16), "block_K": (128, 256, 512)}),
    "dequant_matmul": _family("M=64 N=4096 K=4096", _PACKED),
    "integer_dequant_matmul": _family(
        "M=64 N=4096 K=4096", {**_PACKED, "block_N": (32, 64, 128)}, False
    ),
    # A larger block_K would divide fewer sizes.
    "dequant_gemv": _family("N=4096 K=4096", {"block_N": (4, 8, 16), "block_K": (64, 128)}),
    "convolution": _family("batch=8 height=56 width=56 channels=64 filters=64 pad=1", _SMALLER),
    "flash_attention": _family("batch=2 heads=16 seq_q=2048 seq_kv=2048 dim=64", _ATTENTION),
    "flash_attention_backward": _family(
        "batch=1 heads=16 seq_q=1024 seq_kv=1024 dim=64", _ATTENTION
    ),
    "flash_attention_varlen": _family(
        "batch=2 total_q=2048 total_kv=2048 heads=16 dim=64", _ATTENTION
    ),
    "flash_decoding": _family("batch=8 heads=32 seq_kv=4096 dim=128", {"block_N": (32, 64, 128)}),
    "mla_decode": _family(
        "batch=8 heads=128 seqlen_kv=2048",
        {"block_N": (32, 64), "block_H": (16, 32, 64), "threads": (128, 256)},
    ),
    "chunk_state": _family(_CHUNKS, _SMALLER),
    "chunk_scan": _family(_CHUNKS, _SMALLER),
}

EXCEPTIONS: Mapping[str, tuple[Config, str]] = {
    "cross_entropy": (
        (1, 1024),
        "measured 2026-11-30, AMD Zen 4, 1 and 2 threads: pieces of 2048, the model's first, take "
        "1.36 to 1.42 of the time in float32, and 0.97 in bfloat16",
    ),
    "linear": (
        (128, 64, 16),
        "measured 2026-12-01, Intel Xeon with AMX, 1 thread, sizes of 512 to 2048: blocks of 128 x "
        "128, the model's first, take 1.00 to 1.09 of the time in float32, 0.89 to 1.08 in "
        "bfloat16",
    ),
    "matmul": (
        (128, 128, 32),
        "measured 2026-11-29, AMD Zen 5: blocks 16 deep, the model's first, are the same code; "
        "programs that are no processor's want more",
    ),
    "flash_attention": (
        (64, 64),
        "measured 2026-11-28, AMD Zen 4, 1 thread: blocks of 128 x 128, the model's first, take "
        "0.96 to 0.98 of the time, but 1.05 where causal",
    ),
    "flash_attention_varlen": ((64, 64), "chosen by hand: lengths are data, unknown to the model"),
    "flash_decoding": ((64,), "chosen by hand: lengths are data, unknown to the model"),
    "topk": (
        (8,),
        "measured 2026-11-28, AMD Zen 4, 1 thread: blocks of 1 row, the model's first, take 0.70 "
        "to 0.92 of the time where rows are long (1024, 4096), but 2.6 where they have 64 elements",
    ),
}
"""Where the processor has not the model's choice: the tile sizes, and the reason with its date and
numbers."""


def main(names: Sequence[str]) -> None:
    """Write the rows of these kernels, of all without names."""
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        sys.exit(f"'{unknown[0]}' is no kernel of {', '.join(FAMILIES)}")
    kept = [row for row in table().values() if row.kernel in FAMILIES and row.target in CLASSES]
    for name in names or FAMILIES:
        made = rows_of(name)
        print(*made, sep="\n", flush=True)
        kept = [row for row in kept if row.kernel != name] + made
        write(kept)


def write(rows: Sequence[Tiles]) -> None:
    """The file, a row a line."""
    order = {key: i for i, key in enumerate(itertools.product(FAMILIES, CLASSES))}
    lines = sorted(rows, key=lambda row: order[row.kernel, row.target])
    text = ",\n".join(json.dumps(asdict(row)) for row in lines)
    FILE.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def rows_of(name: str) -> list[Tiles]:
    """The rows of a kernel."""
    family, ranked = FAMILIES[name], ratios(name)
    config, exception = EXCEPTIONS.get(name, (choose(name, ranked), ""))
    sizes = dict(zip(family.axes, config, strict=True))
    ratio = round(ranked[config], 3)
    return [
        Tiles(name, "cpu", sizes, exception, ratio, len(ranked)),
        *(gpu_row(name, target, family.axes) for target in CLASSES if target != "cpu"),
    ]


def choose(name: str, ranked: Ratios) -> Config:
    """Of those that the model does not tell from the fastest, the one in the middle of what is
    tried, since what lies beyond its edges was not; of equal ones the smaller. A larger tile that
    takes as long to the last digit becomes the same code, and is no other choice.
    """
    axes = FAMILIES[name].axes.values()
    middles = [sorted(values)[len(values) // 2] for values in axes]

    def off(config: Config) -> float:
        pairs = zip(config, middles, strict=True)
        return sum(abs(log2(size / middle)) for size, middle in pairs)

    def has_smaller(config: Config) -> bool:
        return any(
            isclose(ranked[other], ranked[config], rel_tol=1e-12)
            for other in ranked
            if other != config and all(a <= b for a, b in zip(other, config, strict=True))
        )

    near = [c for c, ratio in ranked.items() if ratio <= NEAR and not has_smaller(c)]
    return min(near, key=lambda config: (off(config), config))


def ratios(name: str) -> Ratios:
    """Predicted times on the processor over the least; means of float32 and bfloat16."""
    family, cpu = FAMILIES[name], reference_cpu()
    threads = max(each.threads for each in cpu.machine.ceilings)
    times: Ratios = {}
    for config in itertools.product(*family.axes.values()):
        each_us = [
            cpu.predict(_made(name, config, dtype).program, threads).total_us
            for dtype in ("float32", "bfloat16")
        ]
        times[config] = sqrt(prod(each_us))
    return {config: time / min(times.values()) for config, time in times.items()}


def reference_cpu() -> DescribedCpu:
    """The processor that stands for all."""
    return DescribedCpu.from_json(REFERENCE_CPU.read_text(encoding="utf-8"))


def _made(name: str, config: Config, dtype: str) -> Any:
    family = FAMILIES[name]
    sizes = dict(zip(family.axes, config, strict=True))
    return getattr(kernels, name)(**family.sizes, **_dtype(family, dtype), **sizes)


def _dtype(family: Family, dtype: str) -> dict[str, str]:
    return {"dtype": dtype} if family.has_dtype else {}


if __name__ == "__main__":
    main(sys.argv[1:])
