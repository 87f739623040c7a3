"""What it gives that each worker gets the same blocks in each launch, on this processor.

    python benchmarks/same_workers.py [--quick]

Kernels are called with all cores: as they are, and with workers that take turns, so that what a
worker finds in its core's caches is what another one had. Calls are made in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import math
from collections.abc import Iterator
from typing import Any

from common import environment, markdown_table, write_results
from cost_model import inputs_of
from in_turn import in_turn, usual

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.compiler.device.host import processor, threads
from tileworkbench.compiler.device.host.llvm import compile_object, load_object, native_target
from tileworkbench.kernels import elementwise

# The number of a worker, which changes places with the others as `shift` says.
_NUMBERS = """
@own = global ptr null
@shift = global i32 0
@workers = global i32 1
define i32 @number() {
  %own = load ptr, ptr @own
  %mine = call i32 %own()
  %shift = load i32, ptr @shift
  %workers = load i32, ptr @workers
  %sum = add i32 %mine, %shift
  %number = urem i32 %sum, %workers
  ret i32 %number
}
"""


def programs() -> Iterator[tuple[str, Any]]:
    """Kernels whose tensors fit in the second caches of a few cores, and some that do not."""
    for rows in (256, 1024, 4096):
        for dtype in ("float32", "bfloat16"):
            yield f"add {rows}x1024, {dtype}", elementwise.add(rows, 1024, dtype)
            yield f"softmax {rows}x1024, {dtype}", kernels.softmax(rows, 1024, dtype)
            yield f"rmsnorm {rows}x1024, {dtype}", kernels.rmsnorm(rows, 1024, dtype)
    for size in (256, 512, 1024):
        for dtype in ("float32", "bfloat16"):
            yield f"matmul {size}, {dtype}", kernels.matmul(size, size, size, dtype)
    for length in (256, 1024):
        for dtype in ("float32", "bfloat16"):
            attention = kernels.flash_attention(1, 8, length, length, 64, dtype)
            yield f"attention {length}, 8 heads of 64, {dtype}", attention
    for columns in (1024, 4096):
        yield f"gemv 1024x{columns}", kernels.gemv(1024, columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "torch"))
    count = processor.core_count()
    tw.set_num_threads(count)
    shift = team_that_shifts(count)
    data = [compared(*each, shift, 0.3 if options.quick else 1.5) for each in programs()]
    rows = [
        (row["kernel"], *(f"{ms:.4f}" for ms in row["ms"]), f"{row['ms'][1] / row['ms'][0]:.2f}")
        for row in data
    ]
    heads = f"kernel, {count} threads", "same workers, ms", "others, ms", "times as fast"
    gains = [math.log(row["ms"][1] / row["ms"][0]) for row in data]
    mean = math.exp(sum(gains) / len(gains))
    text = f"{markdown_table(heads, rows)}\n\nGeometric mean: {mean:.2f} times as fast."
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results('same_workers', facts, data, text)}")


def team_that_shifts(count: int) -> Any:
    """Make launches use workers whose numbers are shifted by the integer that is returned."""
    openmp = threads.find_openmp()
    if openmp is None:
        raise SystemExit("this needs an OpenMP runtime, as torch brings one")
    parallel, own = openmp
    code = compile_object(_NUMBERS, native_target("generic"), ())
    symbols = load_object(code, ("own", "shift", "workers", "number"), permanent=True)
    address = {name: symbol.address for name, symbol in symbols.items()}
    ctypes.c_int64.from_address(address["own"]).value = own
    ctypes.c_int32.from_address(address["workers"]).value = count
    threads._team = threads.OpenMPTeam((parallel, address["number"]))
    return ctypes.c_int32.from_address(address["shift"])


def compared(name: str, program: Any, shift: Any, seconds: float) -> dict[str, Any]:
    """Milliseconds of a call by the same workers as the last time, and by others."""
    kernel = tw.compile(program, target="cpu")
    args = inputs_of(kernel)

    def same() -> None:
        shift.value = 0
        kernel(*args)

    def others() -> None:
        shift.value += 1
        kernel(*args)

    times = usual(in_turn((same, others), 100, seconds))
    return {"kernel": name, "ms": [float(ms) for ms in times]}


if __name__ == "__main__":
    main()
