"""The time model of GPUs against cubins: what a warp does in one step of the main loop, as the
model counts it and as ptxas wrote it. No GPU is needed, and no time is measured.

    python benchmarks/cost_model_gpu.py [--rows TEXT]
"""

from __future__ import annotations

import argparse
from typing import Any

from common import environment, markdown_table, write_results
from gpu_static import ROWS, loop_of

import tileworkbench as tw
from tileworkbench.bench.gpu_counts import KINDS, WarpCounts, cubin_counts, model_counts

NOTES = """Model / cubin, instructions of a warp in one iteration of the main loop; of
kernels without a loop with matrix products, in all. Matrix instructions are compared by their
operations. Arithmetic is that on numbers, conversions too; instructions on indices, jumps and
barriers are not the model's. What wgmma and the copy engine do is no instruction of a warp.

Where they differ:

- Loops that copy by cp.async: ptxas adds three LDS.
- causal: the cubin's loop holds a mask (64 selections), which the model's step, in the middle of
  the grid, jumps over as most steps do.
- rmsnorm, softmax: words of a workspace next to each other are loaded together. In rmsnorm a square
  becomes part of the sum of the statement behind it.
- int4 through shared memory: a number becomes a float16 in one and a half instructions, not one.
- chunk scan: the cubin has up to 3.4 times the global loads; not explained yet."""


def count(name: str, arch: str) -> tuple[WarpCounts, WarpCounts]:
    """What the model counts, and what the cubin has."""
    row = ROWS[name]
    kernel: Any = tw.compile(row.make(), target=f"cuda:{arch}", fast_math=row.fast_math)
    lowered = kernel.record.snapshots[-1].program
    model = model_counts(lowered, kernel.requests, row.fast_math)
    return model, cubin_counts(loop_of(kernel.sass))


def cell(model: float, cubin: float) -> str:
    return f"{model:.0f} / {cubin:.0f}" if model or cubin else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name has this text")
    options = parser.parse_args()
    cells, data = [], {}
    for name in (each for each in ROWS if options.rows in each):
        for arch in ROWS[name].archs:
            model, cubin = count(name, arch)
            found = {kind: (model.instructions[kind], cubin.instructions[kind]) for kind in KINDS}
            product = cell(model.flops / 1024, cubin.flops / 1024)
            cells.append([name, arch, product, *(cell(*found[kind]) for kind in KINDS)])
            data[f"{name} | {arch}"] = {"flops": (model.flops, cubin.flops), **found}
    text = markdown_table(["kernel", "arch", "KFLOP of matrices", *KINDS], cells)
    text += f"\n\n{NOTES}"
    print(text)
    if not options.rows:
        facts = environment(("tileworkbench", "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm"))
        print(f"\nwritten to {write_results('cost_model_gpu', facts, data, text)}")


if __name__ == "__main__":
    main()
