"""What cpu_suite.py measures beside kernels of the library: TileLang, compiling, calling."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from common import FOLDER, make_matmul
from compile_latency import measure_once, run_peer
from cpu_gemm import add_into, run_tilelang

from tileworkbench.bench.timing import measure

PROCESSES = 3
Line = dict[str, Any]


def line(what: str, value: float, goal: float, aim: float, *, at_least: bool, note: str) -> Line:
    """A figure with its goal; `at_least` says on which side of it the figure should be."""
    met = value >= goal if at_least else value <= goal
    return {"what": what, "value": value, "goal": goal, "aim": aim, "met": met, "note": note}


def compare_tilelang() -> list[Line]:
    """Speed against TileLang's CPU target on one thread, by size."""
    tilelang = run_tilelang()
    if "missing" in tilelang:
        return [line(tilelang["missing"], float("nan"), 4, 5, at_least=True, note="not measured")]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    lines = []
    for row in tilelang["rows"]:
        m, n, k = row["shape"]
        a, b = torch.randn(m, k), torch.randn(k, n)
        kernel = make_matmul().compile(a, b)
        times = measure({"ours": lambda kernel=kernel, a=a, b=b: kernel(a, b)}, 25)["ours"].times
        ratio = statistics.median(row["times"]) / statistics.median(times)
        what = f"float32 {m} x {n} x {k}, speed over {tilelang['version']}"
        lines.append(line(what, ratio, 4, 5, at_least=True, note="no"))
    torch.set_num_threads(threads)
    return lines


def compare_compilation() -> list[Line]:
    """Time of a cold compilation over numba's."""
    ours = [measure_once(FOLDER.parent)["compile, cold"] for _ in range(PROCESSES)]
    numba = [run_peer("numba") for _ in range(PROCESSES)]
    name = "numba: compile, first in the process"
    if name not in numba[0]:
        return [line(numba[0]["version"], float("nan"), 0.5, 0.3, at_least=False, note="no numba")]
    own, other = statistics.median(ours), statistics.median(found[name] for found in numba)
    what = f"{own:.3g} ms, time over numba's {other:.3g} ms"
    return [line(what, own / other, 0.5, 0.3, at_least=False, note="no")]


def measure_call() -> list[Line]:
    """Microseconds of a call with three small tensors, all checks on."""
    a, b, c = torch.ones(16), torch.ones(16), torch.empty(16)
    kernel = add_into.compile(a, b, c)
    times = measure({"call": lambda: kernel(a, b, c)}, 400)["call"].times
    value = 1e3 * statistics.median(times)
    return [line("us, three tensors of 16 elements", value, 5, 2, at_least=False, note="no")]


EXTRAS: dict[str, Callable[[], list[Line]]] = {
    "TileLang": compare_tilelang,
    "compilation": compare_compilation,
    "call": measure_call,
}
