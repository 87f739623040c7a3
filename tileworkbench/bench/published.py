"""Published ceilings of GPUs, for the roofline of a kernel that no GPU has run.

Each architecture stands for one product, named in the drawing. Numbers are those of NVIDIA's data
sheets and architecture white papers: memory bandwidth, and peaks without sparsity; those of 16-bit
floats, tf32, fp8 and int8 are tensor cores' with accumulators of 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tileworkbench.bench.kernel import arithmetic_dtype
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.viz.model.roofline import BANDWIDTH, PEAK, Ceiling, Machine, Point

_NOTE = "published numbers, nothing was measured"

# Product, GB/s of its memory, and TFLOP/s (int8: TOP/s) by what is multiplied.
_PRODUCTS: Mapping[str, tuple[str, float, Mapping[str, float]]] = {
    "sm_75": ("Tesla T4", 320, {"float16": 65, "float32": 8.1, "int8": 130}),
    "sm_80": (
        "A100 SXM 40 GB",
        1555,
        {"float16": 312, "bfloat16": 312, "tfloat32": 156, "float32": 19.5, "float64": 19.5}
        | {"int8": 624},
    ),
    "sm_86": (
        "A40",
        696,
        {"float16": 149.7, "bfloat16": 149.7, "tfloat32": 74.8, "float32": 37.4, "int8": 299.3},
    ),
    "sm_89": (
        "L40S",
        864,
        {"float16": 362, "bfloat16": 362, "tfloat32": 183, "float32": 91.6, "int8": 733}
        | {"float8": 733},
    ),
    "sm_90": (
        "H100 SXM",
        3350,
        {"float16": 989, "bfloat16": 989, "tfloat32": 494, "float32": 67, "float64": 67}
        | {"int8": 1979, "float8": 1979},
    ),
}
_SAME = {"sm_90a": "sm_90"}


def published(arch: str) -> Machine | None:
    """The published ceilings of an architecture's product, None where none are listed here."""
    found = _PRODUCTS.get(_SAME.get(arch, arch))
    if found is None:
        return None
    product, bandwidth, peaks = found
    ceilings = [Ceiling("DRAM", bandwidth, "GB/s", 0)]
    ceilings += [Ceiling(name, 1e3 * rate, "GFLOP/s", 0) for name, rate in peaks.items()]
    return Machine(f"{product} ({arch})", tuple(ceilings), _NOTE)


def predicted_point(
    name: str, program: Program, flops: float, bytes_: float, machine: Machine
) -> Point | None:
    """The fastest that the machine's roofs allow for this much work, None where they do not say.

    `flops` and `bytes_` are those of one launch of `program`. Products of float32 are held against
    the peak of tf32, in which tensor cores multiply them; work without a T.gemm against that of
    float32 (or float64), which is what the other units compute.
    """
    kind = _peak(program, machine)
    bandwidth, peak = machine.find("DRAM", BANDWIDTH), machine.find(kind, PEAK)
    if bandwidth is None or (flops and peak is None) or math.isnan(flops + bytes_):
        return None
    times = [bytes_ / bandwidth.value / 1e3]
    if peak is not None:
        times.append(flops / peak.value / 1e3)
    time_us = max(times)
    if not time_us > 0:
        return None
    return Point(name, flops, bytes_, time_us, kind, "DRAM", predicted=True)


def _peak(program: Program, machine: Machine) -> str:
    """The name of the peak that bounds a program."""
    dtype = arithmetic_dtype(program)
    if not any(isinstance(stmt, Gemm) for stmt in statements(program.body)):
        return "float64" if dtype == "float64" else "float32"
    if dtype.startswith("float8"):
        return "float8"
    if dtype == "float32" and machine.find("tfloat32", PEAK) is not None:
        return "tfloat32"
    return dtype
