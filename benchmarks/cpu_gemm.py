"""Our matrix product against torch's, and TileLang's CPU target where it is installed.

    python benchmarks/cpu_gemm.py [--processes N] [--rounds N] [--quick]

See README.md for what the columns mean.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from common import (
    FOLDER,
    environment,
    make_matmul,
    markdown_table,
    print_json,
    run_child,
    write_results,
)

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench.timing import measure

TILELANG_PYTHON = "TILEWORKBENCH_TILELANG_PYTHON"
OURS, TORCH = "tileworkbench", "torch"
# A case gets fewer rounds than asked for where torch alone would take longer than this.
CASE_SECONDS, FEWEST_ROUNDS = 10, 3

# dtype of the operands, accumulator, output; shapes (M, N, K).
SQUARES = {1024: (1024, 1024, 1024), 2048: (2048, 2048, 2048)}
CASES: list[tuple[str, str, str, list[tuple[int, int, int]]]] = [
    (
        *("float32", "float32", "float32"),
        [(512, 512, 512), *SQUARES.values(), (1000, 1000, 1000), (517, 1031, 773)],
    ),
    ("float64", "float64", "float64", [*SQUARES.values()]),
    ("bfloat16", "float32", "bfloat16", [*SQUARES.values()]),
    # torch takes seconds for larger ones where the processor has no float16 arithmetic.
    ("float16", "float32", "float16", [SQUARES[1024]]),
    ("int8", "int32", "int32", [*SQUARES.values()]),
]
QUICK = [("float32", "float32", "float32", [SQUARES[1024]])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=3, help="processes to take medians over")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds in each process")
    parser.add_argument("--quick", action="store_true", help="float32 1024 only, one process")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print_json(measure_all(options.rounds, QUICK if options.quick else CASES))
        return
    facts = environment(("tileworkbench", "torch", "llvmlite", "numpy"))
    arguments = ["--child", "--rounds", str(options.rounds), *(["--quick"] * options.quick)]
    runs = []
    for number in range(1 if options.quick else options.processes):
        print(f"process {number + 1}", file=sys.stderr, flush=True)
        runs.append(run_child(Path(__file__), arguments))
    tilelang = run_tilelang()
    table = report(runs, tilelang)
    print(table)
    if not options.quick:
        data = {"processes": runs, "tilelang": tilelang}
        print(f"\nwritten to {write_results('cpu_gemm', facts, data, table)}")


def measure_all(rounds: int, cases: list[Any]) -> dict[str, Any]:
    """Every case with one thread and with all, and the overhead of a call."""
    rows = []
    for threads in sorted({1, os.cpu_count() or 1}):
        torch.set_num_threads(threads)
        tw.set_num_threads(threads)
        for dtype, accumulator, output, shapes in cases:
            kernel = make_matmul(dtype, accumulator, output)
            rows += [measure_case(kernel, dtype, shape, rounds, threads) for shape in shapes]
    return {"gemm": rows, "overhead": measure_overhead()}


def measure_case(
    kernel: Any, dtype: str, shape: tuple[int, int, int], rounds: int, threads: int
) -> dict[str, Any]:
    """One shape: times of both in milliseconds, and the largest difference of their results."""
    m, n, k = shape
    a, b = operand(m, k, dtype), operand(k, n, dtype)
    reference: Callable[..., torch.Tensor] = torch._int_mm if dtype == "int8" else torch.matmul
    found = kernel(a, b)
    start = time.perf_counter()
    error = relative_error(found, reference(a, b))
    slow = time.perf_counter() - start
    rounds = max(FEWEST_ROUNDS, min(rounds, int(CASE_SECONDS / slow)))
    print(f"  {dtype} {m} x {n} x {k}, {threads}: {rounds} rounds", file=sys.stderr, flush=True)
    fns = {OURS: lambda: kernel(a, b), TORCH: lambda: reference(a, b)}
    results = measure(fns, rounds)
    row = {"dtype": dtype, "shape": shape, "threads": threads, "error": error}
    row["clock"] = results[OURS].clock_note
    return row | {name: result.times for name, result in results.items()}


def operand(rows: int, columns: int, dtype: str) -> torch.Tensor:
    """Numbers from a fixed seed."""
    generator = torch.Generator().manual_seed(rows * columns)
    if dtype == "int8":
        return torch.randint(-128, 128, (rows, columns), dtype=torch.int8, generator=generator)
    values = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    return values.to(getattr(torch, dtype))


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference over the largest element."""
    wide = expected.double()
    return float((found.double() - wide).abs().max() / wide.abs().max())


@tw.jit(target="cpu")
def add(A, B):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(1) as _:
        for i in T.Parallel(16):
            C[i] = A[i] + B[i]
    return C


@tw.jit(target="cpu")
def add_into(A, B, C):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B: T.Tensor[[N], T.float32]
    C: T.Tensor[[N], T.float32]
    with T.Kernel(1) as _:
        for i in T.Parallel(16):
            C[i] = A[i] + B[i]


def measure_overhead() -> dict[str, list[float]]:
    """Times of calls that do next to nothing, in milliseconds."""
    a, b, c = torch.ones(16), torch.ones(16), torch.empty(16)
    kernel = add_into.compile(a, b, c)
    fns = {
        "kernel(a, b, c)": lambda: kernel(a, b, c),
        "jit(a, b, c)": lambda: add_into(a, b, c),
        "jit(a, b), output allocated": lambda: add(a, b),
        "torch.add(a, b, out=c)": lambda: torch.add(a, b, out=c),
    }
    return {name: list(result.times) for name, result in measure(fns, 200).items()}


def run_tilelang() -> dict[str, Any]:
    """TileLang's results from its own interpreter, or why there are none."""
    interpreter = os.environ.get(TILELANG_PYTHON)
    if not interpreter:
        return {"missing": f"not installed ({TILELANG_PYTHON} names no interpreter that has it)"}
    try:
        found: dict[str, Any] = run_child(FOLDER / "tilelang_cpu.py", interpreter=interpreter)
    except (OSError, RuntimeError) as error:
        return {"missing": f"failed: {str(error).splitlines()[-1]}"}
    return found


def report(runs: list[dict[str, Any]], tilelang: dict[str, Any]) -> str:
    """The table, one row per case; rates are GFLOP/s."""
    peers = {(row["threads"], *row["shape"]): row for row in tilelang.get("rows", ())}
    rows = [list(table_row(cases, peers)) for cases in zip(*(r["gemm"] for r in runs), strict=True)]
    columns = ("operands, M x N x K, threads", "ours", "quartiles", "torch", "quartiles")
    columns = (*columns, "ours/torch", "over processes", "TileLang", "error")
    name = tilelang.get("missing") or f"{tilelang['version']}, {tilelang['how']}"
    overhead = [
        (name, f"{1e3 * pooled_median([run['overhead'][name] for run in runs]):.2f}")
        for name in runs[0]["overhead"]
    ]
    return (
        markdown_table(columns, rows)
        + f"\n\nRates in GFLOP/s (GOP/s for int8): medians over {len(runs)} processes, quartiles "
        f"over all their rounds. Tiles 128x128x32 throughout. TileLang: {name}.\n\n"
        + markdown_table(("a call with three tensors of 16 elements", "us"), overhead)
    )


def table_row(cases: tuple[dict[str, Any], ...], peers: dict[Any, Any]) -> Iterator[str]:
    """The cells of one case, measured by each process."""
    first = cases[0]
    m, n, k = first["shape"]
    operations = 2 * m * n * k
    yield f"{first['dtype']} {m} x {n} x {k}, {first['threads']}"
    for name in (OURS, TORCH):
        yield f"{operations / pooled_median([case[name] for case in cases]) / 1e6:.0f}"
        times = [value for case in cases for value in case[name]]
        low, _, high = statistics.quantiles(times, n=4)
        yield f"{operations / high / 1e6:.0f} to {operations / low / 1e6:.0f}"
    ratios = [statistics.median(c[TORCH]) / statistics.median(c[OURS]) for c in cases]
    yield f"{statistics.median(ratios):.2f}"
    yield f"{min(ratios):.2f} to {max(ratios):.2f}"
    peer = peers.get((first["threads"], m, n, k)) if first["dtype"] == "float32" else None
    yield f"{operations / statistics.median(peer['times']) / 1e6:.1f}" if peer else "-"
    yield f"{max(case['error'] for case in cases):.0e}"


def pooled_median(times: list[list[float]]) -> float:
    """The median over processes of each one's median."""
    return statistics.median(statistics.median(found) for found in times)


if __name__ == "__main__":
    main()
