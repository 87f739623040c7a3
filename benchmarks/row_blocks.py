"""What few rows a block give tiles of many rows on a processor: with the pass `split_rows` and
without it, one thread.

    python benchmarks/row_blocks.py [--quick]

Both are called in turn, and how they compare in a round counts (`in_turn.py`).
"""

from __future__ import annotations

import argparse

from common import environment, markdown_table, write_results
from cost import CASES
from cost.case import text_of
from two_ways import milliseconds

import tileworkbench as tw

SECONDS = 3.0  # of measuring, for each kernel
TILES = (  # how a case's name begins, and rows and columns as kernels for GPUs have them
    ("softmax 2048", {"block_M": 32}),
    ("layernorm 1024", {"block_M": 32}),
    ("online softmax", {"block_M": 16, "block_N": 512}),
    ("rank-one", {"block_M": 64, "block_N": 16}),
    ("rank-one", {"block_M": 64, "block_N": 256}),
    ("cosines", {"block_M": 16, "block_N": 64}),
    ("polynomial", {"block_M": 64, "block_N": 64}),
    ("masked error", {"block_M": 16, "block_N": 64}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "torch"))
    tw.set_num_threads(1)
    rows, data = [], []
    for name, tile in TILES:
        case = next(each for each in CASES if each.name.startswith(name))
        program = case.make(**case.constants, **tile)
        kernels = [tw.compile(program, target="cpu", disable=off) for off in ((), ("split_rows",))]
        seconds = SECONDS / 10 if options.quick else SECONDS
        few, all_ = milliseconds(kernels, 200, seconds)
        kernel_name = case.name.partition(",")[0]
        rows.append(
            (f"{kernel_name}, {text_of(tile)}", f"{few:.3f}", f"{all_:.3f}", f"{all_ / few:.2f}")
        )
        data.append({"kernel": case.name, **tile, "few_ms": few, "all_ms": all_})
    columns = ("kernel, one thread", "few rows, ms", "all rows, ms", "times as fast")
    text = markdown_table(columns, rows)
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results('row_blocks', facts, data, text)}")


if __name__ == "__main__":
    main()
