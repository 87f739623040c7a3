"""Everything that a machine with a CUDA device is asked for, in one result file: what it is,
whether tests/gpu passes, and the tables of gpu_ceilings.py, gpu_library.py, gpu_matmul.py and
gpu_attention.py.

    make gpu-report            with the Python that it is given: PYTHON=python3
    python benchmarks/gpu_report.py [--rounds N] [--seconds N]

No network and no environment of its own: torch with CUDA, numpy and NVRTC are enough; Triton is
measured, and pytest used, where they are installed. Each step is a process with a time limit, so
that a crash or a hang is a line of the report. About eight minutes at most. Without a device
nothing is written, and the status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Any

from common import FOLDER, RESULTS, write_results
from gpu_common import facts, missing

ROOT = FOLDER.parent
TABLES = ("gpu_ceilings", "gpu_library", "gpu_matmul", "gpu_attention")
SECONDS = 480.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="times each kernel is called")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of all steps")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(f"There is nothing to report: {reason}.")
        return 1
    about = {**facts(), **device_facts()}
    end = time.monotonic() + options.seconds
    steps = [tests(end)]
    steps += [table(name, options.rounds, end) for name in TABLES]
    text = "\n\n".join([described(about), *(step["text"] for step in steps)])
    print(text)
    results = {step["name"]: step["result"] for step in steps}
    print(f"\nwritten to {write_results('gpu_report', about, results, text)}")
    return 0 if all(step["passed"] for step in steps) else 1


def device_facts() -> dict[str, Any]:
    """What the driver and torch say of the device."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
        "driver": driver(),
    }


def driver() -> str:
    """The driver's version, as nvidia-smi has it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.splitlines()[0].strip()


def described(about: dict[str, Any]) -> str:
    return (
        f"{about['machine']}: compute capability {about['capability']}, "
        f"{about['multiprocessors']} multiprocessors, {about['memory_gib']} GiB, driver "
        f"{about['driver']}, CUDA {about['cuda']}."
    )


def tests(end: float) -> dict[str, Any]:
    """tests/gpu: the last line of pytest, and what failed."""
    if find_spec("pytest") is None:
        said = "not run: pytest is not installed"
        return {
            "name": "tests",
            "passed": False,
            "result": said,
            "text": f"## tests/gpu\n\n{said}.",
        }
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "tests/gpu"]
    status, output = limited(command, end)
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    last = lines[-1] if lines else f"status {status}"
    text = "\n".join(["## tests/gpu", "", last.strip("= "), *failed[:40]])
    result = {"status": status, "last": last, "failed": failed}
    return {"name": "tests", "passed": status == 0, "result": result, "text": text}


def table(name: str, rounds: int, end: float) -> dict[str, Any]:
    """The table of another script, whose result file it leaves as well."""
    before = time.time()
    status, output = limited(
        [sys.executable, str(FOLDER / f"{name}.py"), "--rounds", str(rounds)], end
    )
    written = [path for path in RESULTS.glob(f"{name}-*.md") if path.stat().st_mtime >= before]
    if status or not written:
        tail = "\n".join(output.splitlines()[-20:])
        text = f"## {name}\n\nfailed with status {status}:\n\n```\n{tail}\n```"
        return {"name": name, "passed": False, "result": {"status": status}, "text": text}
    (path,) = written
    rows = json.loads(path.with_suffix(".json").read_text())["results"]
    body = path.read_text().split("\n\n", 2)[2].strip()
    passed = not any("failed" in row for row in rows)
    return {"name": name, "passed": passed, "result": rows, "text": f"## {name}\n\n{body}"}


def limited(command: list[str], end: float) -> tuple[int, str]:
    """Run a step until `end` (of the monotonic clock): its status, -1 when it ran over, and what it
    said.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FOLDER)])}
    left = max(end - time.monotonic(), 1.0)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=left,
            check=False,
        )
    except subprocess.TimeoutExpired as over:
        said = over.stdout or ""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        return -1, f"{text}\nstopped after {left:.0f} s"
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
