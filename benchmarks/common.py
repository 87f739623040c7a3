"""What the benchmarks share: the kernel they measure, facts about the machine, files of results."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tileworkbench as tw
import tileworkbench.language as T

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"


def make_matmul(dtype: str = "float32", accumulator: str = "float32", output: str = "float32"):
    """The matrix product as one writes it for a GPU; a new `@tw.jit` object with each call."""

    @tw.jit(target="cpu")
    def matmul(A, B, block_M=128, block_N=128, block_K=32):
        M, N, K = T.const("M N K")
        A: T.Tensor[[M, K], dtype]
        B: T.Tensor[[K, N], dtype]
        C = T.empty((M, N), output)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accumulator)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])
        return C

    return matmul


def environment(packages: Iterable[str]) -> dict[str, Any]:
    """What a table needs to be read later: machine, date, versions, load."""
    return {
        "machine": f"{machine_name()} ({processor_name()})",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def machine_name() -> str:
    """Processor and cores, as roofline views name them."""
    from tileworkbench.compiler.device.host import processor

    return processor.machine_name()


def processor_name() -> str:
    """The processor's generation as LLVM names it, e.g. ``znver4``: what a cloud calls by one name
    may be several, at twice each other's speed.
    """
    from tileworkbench.compiler.device.host import processor

    return processor.cpu_name()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def run_child(
    script: Path, arguments: Sequence[str] = (), *, interpreter: str = sys.executable, **env: str
) -> Any:
    """The JSON that a script prints as its last line, run in a fresh process with `env` added.

    What it says on its standard error is seen as it comes. Raises `RuntimeError` when it fails.
    """
    done = subprocess.run(
        [interpreter, str(script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} failed with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def print_json(data: Any) -> None:
    """Print `data` on the last line, for `run_child`."""
    print(json.dumps(data))


def write_results(name: str, environment: dict[str, Any], data: Any, table: str) -> Path:
    """Write results/<name>-<machine>.json and .md; returns the path of the table."""
    RESULTS.mkdir(exist_ok=True)
    slug = re.sub(r"[^a-z0-9]+", "-", environment["machine"].lower()).strip("-")
    stem = RESULTS / f"{name}-{slug}"
    content = {"environment": environment, "results": data}
    stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    versions = ", ".join(f"{key} {value}" for key, value in environment["versions"].items())
    heading = (
        f"# {name} on {environment['machine']}\n\n"
        f"{environment['date']}, Python {environment['python']}, {versions}; "
        f"load average at the start {environment['load']}.\n"
    )
    path = stem.with_suffix(".md")
    path.write_text(f"{heading}\n{table}\n")
    return path


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others numbers."""
    lines = [
        "| " + " | ".join(columns) + " |",
        "|---|" + "---:|" * (len(columns) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines)
