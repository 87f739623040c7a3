"""What waiting costs: imports, compiling the matmul of the quickstart, its caches and its card.

    python benchmarks/compile_latency.py [--processes N] [--against CHECKOUT]

Each figure is the median over fresh processes. See README.md for what the rows mean.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import (
    FOLDER,
    environment,
    make_matmul,
    markdown_table,
    print_json,
    run_child,
    write_results,
)

# Peer -> the variable that names an interpreter which has it, the script, processes at most.
PEERS = {
    "numba": ("TILEWORKBENCH_NUMBA_PYTHON", "numba_matmul.py", 7),
    "TileLang": ("TILEWORKBENCH_TILELANG_PYTHON", "tilelang_cuda.py", 3),
    "Triton": ("TILEWORKBENCH_TRITON_PYTHON", "triton_cuda.py", 3),
}
GPU_GROUPS = (("gpu_matmul",), ("gpu_attention",), ("hopper_matmul",), ("hopper_attention",))
GPU_IMPORT = "sm_80: import of its passes and code generator"
SIZE = 1024

# Row -> unit and limit of the project, None where it has none.
LIMITS: dict[str, tuple[str, float | None]] = {
    "import tileworkbench": ("ms", 150),
    "import tileworkbench and its language, @tw.jit": ("ms", None),
    "%load_ext tileworkbench": ("ms", 300),
    "%%tile cell, first in the process": ("ms", None),
    "%%tile cell, run again": ("ms", None),
    "compile, cold": ("ms", 150),
    "first call after it": ("ms", None),
    "compile, from the disk cache": ("ms", None),
    "compile, cell run again": ("ms", 2),
    "compile, same object again": ("ms", 2),
    "memory added by compiling": ("MB", 150),
    "messages of a displayed card": ("kB", 1000),
    GPU_IMPORT: ("ms", None),
    "sm_80: matmul to CUDA text, cold": ("ms", 100),
    "sm_80: matmul, NVRTC to cubin": ("ms", None),
    "sm_80: attention to CUDA text, cold": ("ms", 150),
    "sm_80: attention, NVRTC to cubin": ("ms", None),
    "sm_90a: matmul to CUDA text, cold": ("ms", 150),
    "sm_90a: matmul, NVRTC to cubin": ("ms", None),
    "sm_90a: attention to CUDA text, cold": ("ms", 300),
    "sm_90a: attention, NVRTC to cubin": ("ms", None),
    "TileLang: import": ("ms", None),
    "TileLang, sm_80: matmul to CUDA text, first in the process": ("ms", None),
    "TileLang, sm_80: matmul to CUDA text, again": ("ms", None),
    "TileLang, sm_80: attention to CUDA text": ("ms", None),
    "TileLang, sm_90a: matmul to CUDA text": ("ms", None),
    "TileLang, sm_90a: attention to CUDA text": ("ms", None),
    "Triton: import": ("ms", None),
    "Triton, sm_80: matmul to cubin, first in the process": ("ms", None),
    "Triton, sm_80: matmul to cubin, again": ("ms", None),
    "Triton, sm_80: attention to cubin": ("ms", None),
    "Triton, sm_90a: matmul to cubin": ("ms", None),
    "Triton, sm_90a: attention to cubin": ("ms", None),
    "numba: import": ("ms", None),
    "numba: compile, first in the process": ("ms", None),
    "numba: compile, another function compiled before": ("ms", None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=7, help="processes to take medians over")
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print_json(CHILDREN[options.child]())
        return
    facts = environment(("tileworkbench", "llvmlite", "numpy", "ipywidgets"))
    # Imports read byte code, as those of an installed package do: a first round writes it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    checkouts = [FOLDER.parent, *([options.against.resolve()] if options.against else [])]
    for checkout in checkouts:
        measure_once(checkout)
    rounds = [[measure_once(each) for each in checkouts] for _ in range(options.processes)]
    values, *others = (
        {name: [run[name] for run in runs] for name in runs[0]}
        for runs in zip(*rounds, strict=True)
    )
    for name, (_, _, most) in PEERS.items():
        found = [run_peer(name) for _ in range(min(most, options.processes))]
        values |= {row: [run[row] for run in found] for row in found[0] if row in LIMITS}
        facts["versions"][name] = found[0]["version"]
    table = report(values, *others)
    print(table)
    print(f"\nwritten to {write_results('compile_latency', facts, values, table)}")


def measure_once(checkout: Path) -> dict[str, float]:
    """Every figure of a checkout from a set of fresh processes, each group with an empty cache."""
    script = checkout / "benchmarks" / Path(__file__).name
    found: dict[str, float] = {}
    for group in (("import",), ("extension",), ("cold", "disk"), ("card",), *GPU_GROUPS):
        with tempfile.TemporaryDirectory() as cache:
            for child in group:
                arguments = ["--child", child]
                places = {"PYTHONPATH": str(checkout), "TILEWORKBENCH_CACHE_DIR": cache}
                found |= run_child(script, arguments, **places)
    return found


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and what the action returned."""
    start = time.perf_counter()
    result = action()
    return 1e3 * (time.perf_counter() - start), result


# Run as they stand, in processes that have imported nothing of ours yet.
_IMPORT = """
import time
start = time.perf_counter()
import tileworkbench as tw
alone = time.perf_counter()
import tileworkbench.language as T
tw.jit
print(1e3 * (alone - start), 1e3 * (time.perf_counter() - start))
"""
_EXTENSION = """
import sys, time
from ipykernel.zmqshell import ZMQInteractiveShell
shell = ZMQInteractiveShell.instance()
times = [time.perf_counter()]
shell.run_line_magic("load_ext", "tileworkbench")
times.append(time.perf_counter())
for _ in range(2):
    shell.run_cell_magic("tile", sys.argv[1], sys.argv[2])
    times.append(time.perf_counter())
assert "matmul" in shell.user_ns
print(*(1e3 * (b - a) for a, b in zip(times, times[1:])))
"""


def run_clean(code: str, *arguments: str) -> list[float]:
    """The numbers that `code` prints on its last line."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [float(number) for number in done.stdout.splitlines()[-1].split()]


def measure_import() -> dict[str, float]:
    alone, language = run_clean(_IMPORT)
    return {
        "import tileworkbench": alone,
        "import tileworkbench and its language, @tw.jit": language,
    }


def measure_extension() -> dict[str, float]:
    """`%load_ext` and a cell with the matmul, in the shell that a notebook's kernel has."""
    flags = " ".join(f"-D {name}={SIZE}" for name in "MNK")
    load, first, again = run_clean(_EXTENSION, f"matmul -q {flags}", cell_source())
    return {
        "%load_ext tileworkbench": load,
        "%%tile cell, first in the process": first,
        "%%tile cell, run again": again,
    }


def cell_source() -> str:
    """The matmul of `common.make_matmul` for float32, as a cell has it."""
    lines = (FOLDER / "common.py").read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.strip().startswith("@tw.jit"))
    end = next(at for at, line in enumerate(lines) if line.strip() == "return C") + 1
    text = textwrap.dedent("\n".join(lines[start:end])) + "\n"
    return re.sub(r"\b(dtype|accumulator|output)\b", "T.float32", text)


def measure_cold() -> dict[str, float]:
    """The first compilation of a process whose caches are empty, and those after it."""
    import numpy as np

    initialize_llvm()
    first, again = make_matmul(), make_matmul()
    shape = {"M": SIZE, "N": SIZE, "K": SIZE}
    before = resident_megabytes()
    cold, kernel = timed(lambda: first.compile(**shape))
    added = resident_megabytes() - before
    cached = kernel.record.cached
    if cached:
        raise RuntimeError(f"the compilation came from the {cached} cache")
    a = np.ones((SIZE, SIZE), np.float32)
    call, _ = timed(lambda: kernel(a, a))
    rerun, found = timed(lambda: again.compile(**shape))
    if found.record.cached != "memory":
        raise RuntimeError("a cell run again was compiled again")
    same, _ = timed(lambda: again.compile(**shape))
    return {
        "compile, cold": cold,
        "memory added by compiling": added,
        "first call after it": call,
        "compile, cell run again": rerun,
        "compile, same object again": same,
    }


def measure_disk() -> dict[str, float]:
    """The first compilation of a process, with the machine code of an earlier one on disk."""
    initialize_llvm()
    matmul = make_matmul()
    taken, kernel = timed(lambda: matmul.compile(M=SIZE, N=SIZE, K=SIZE))
    if kernel.record.cached != "disk":
        raise RuntimeError("the machine code was not found on disk")
    return {"compile, from the disk cache": taken}


def measure_gpu(arch: str, name: str, program: Any) -> dict[str, float]:
    """The first compilation for a GPU in a process, in memory and without a device."""
    import tileworkbench as tw

    imported, missing_nvrtc = timed(lambda: import_gpu(arch))
    text, kernel = timed(lambda: tw.compile(program, target=f"sim:{arch}"))
    found = {f"{arch}: {name} to CUDA text, cold": text}
    if arch == "sm_80":
        found[GPU_IMPORT] = imported
    if missing_nvrtc() is None:
        found[f"{arch}: {name}, NVRTC to cubin"], _ = timed(lambda: kernel.asm)
    return found


def import_gpu(arch: str) -> Callable[[], str | None]:
    """Import what compiles for a GPU; returns what says whether NVRTC is missing."""
    from tileworkbench import compile  # noqa: F401
    from tileworkbench.compiler.device import sim  # noqa: F401
    from tileworkbench.compiler.device.nvidia.kernel import missing_nvrtc
    from tileworkbench.compiler.passes.pipeline import pipeline
    from tileworkbench.compiler.target import parse_target

    pipeline(parse_target(f"sim:{arch}"))
    return missing_nvrtc


def measure_gpu_matmul(arch: str) -> dict[str, float]:
    from tileworkbench.kernels import matmul

    return measure_gpu(arch, "matmul", matmul(SIZE, SIZE, SIZE, "float16", num_stages=3))


def measure_gpu_attention(arch: str) -> dict[str, float]:
    from tileworkbench.kernels import flash_attention

    return measure_gpu(arch, "attention", flash_attention(1, 8, SIZE, SIZE, 64, "float16"))


def initialize_llvm() -> None:
    """What the process has done before a cold compilation begins."""
    from tileworkbench.compiler.device.host import kernel

    kernel.native_target()


def resident_megabytes() -> float:
    """Memory of this process in MB (10^6 bytes); 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_card() -> dict[str, float]:
    """Kilobytes (1000 bytes) that displaying a kernel's card sends to the browser: the output and
    messages of widgets, of which an output has none until it is looked at."""
    import comm

    sent: list[int] = []

    class Recorder(comm.base_comm.BaseComm):
        def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
            sent.append(len(json.dumps([data, metadata, keys], default=str)))
            sent.extend(memoryview(buffer).nbytes for buffer in buffers or ())

    comm.create_comm = lambda *args, **keys: Recorder(*args, **keys)
    from tileworkbench.viz.display import show

    kernel = make_matmul().compile(M=SIZE, N=SIZE, K=SIZE)
    bundle = show(kernel.view(), "card")._repr_mimebundle_()
    return {"messages of a displayed card": (sum(sent) + len(json.dumps(bundle))) / 1e3}


def run_peer(name: str) -> dict[str, Any]:
    """A peer's figures from the interpreter that has it; its version says if there is none."""
    variable, script, _ = PEERS[name]
    interpreter = os.environ.get(variable)
    if interpreter is None and find_spec(name.lower()) is not None:
        interpreter = sys.executable
    if interpreter is None:
        return {"version": f"not installed ({variable} names no interpreter that has it)"}
    found: dict[str, Any] = run_child(FOLDER / script, interpreter=interpreter)
    return found


def report(values: dict[str, list[float]], against: dict[str, list[float]] | None = None) -> str:
    """One row per figure, with the median of the other checkout where there is one."""
    rows = []
    for name, (unit, limit) in LIMITS.items():
        if name not in values:
            continue
        found = values[name]
        row = [
            name,
            f"{statistics.median(found):.3g} {unit}",
            f"{min(found):.3g} to {max(found):.3g}",
            f"{limit:.0f} {unit}" if limit is not None else "",
        ]
        if against is not None:
            other = against.get(name)
            row.insert(1, f"{statistics.median(other):.3g} {unit}" if other else "")
        rows.append(tuple(row))
    heads = ("what", *(("other checkout",) if against is not None else ()))
    return markdown_table((*heads, "median", "over processes", "limit"), rows)


CHILDREN: dict[str, Callable[[], dict[str, float]]] = {
    "import": measure_import,
    "extension": measure_extension,
    "cold": measure_cold,
    "disk": measure_disk,
    "card": measure_card,
    "gpu_matmul": partial(measure_gpu_matmul, "sm_80"),
    "gpu_attention": partial(measure_gpu_attention, "sm_80"),
    "hopper_matmul": partial(measure_gpu_matmul, "sm_90a"),
    "hopper_attention": partial(measure_gpu_attention, "sm_90a"),
}

if __name__ == "__main__":
    main()
