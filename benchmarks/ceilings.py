"""`tw.machine()` against a C program that measures the same, on one thread.

    python benchmarks/ceilings.py

The program is compiled by `cc` with -O3 -march=native; without a compiler there is nothing to
compare with. See README.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import FOLDER, environment, markdown_table, write_results

import tileworkbench as tw
from tileworkbench.bench.ceiling_samples import working_sets
from tileworkbench.compiler.device.host import processor

AGREEMENT = 0.1
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast")


def main() -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("no C compiler: nothing to compare with")
    facts = environment(("tileworkbench", "llvmlite"))
    sets = working_sets(processor.cache_sizes(), 1)
    theirs = measure_in_c(compiler, sets)
    machine = tw.machine(measure=True)
    ours = {c.name: (c.value, c.shown_unit) for c in machine.ceilings if c.threads == 1}
    rows = [
        (
            name,
            f"{ours[name][0]:.1f} {ours[name][1]}",
            f"{value:.1f}",
            f"{ours[name][0] / value:.3f}",
        )
        for name, value in theirs.items()
        if name in ours
    ]
    apart = [name for name, value in theirs.items() if abs(ours[name][0] / value - 1) > AGREEMENT]
    table = markdown_table(("ceiling, one thread", "tw.machine()", "C", "ratio"), rows)
    table += f"\n\nC: {' '.join(FLAGS)}. More than 10 % apart: {', '.join(apart) or 'none'}.\n"
    said = (machine.doubt or "quiet", machine.caveat)
    table += f"tw.machine(): {'; '.join(filter(None, said))}; {machine.note}."
    print(table)
    data = {"ours": {name: value for name, (value, _) in ours.items()}, "c": theirs}
    print(f"\nwritten to {write_results('ceilings', facts, data, table)}")


def measure_in_c(compiler: str, sets: dict[str, int]) -> dict[str, float]:
    """GB/s per level and GFLOP/s per type, as the C program has them."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ceilings"
        source = str(FOLDER / "ceilings.c")
        subprocess.run([compiler, *FLAGS, source, "-o", str(program)], check=True)
        sizes = [str(size) for size in sets.values()]
        done = subprocess.run([program, *sizes], capture_output=True, text=True, check=True)
    names = {str(size): level for level, size in sets.items()}
    found = (line.split() for line in done.stdout.splitlines())
    return {names.get(name, name): float(value) for name, value in found}


if __name__ == "__main__":
    main()
