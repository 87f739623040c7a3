"""Published ceilings of GPUs, for the roofline of a kernel that no GPU has run.

Each architecture stands for one product, named in the drawing, with the memory bandwidth and the
peaks without sparsity of the vendor's documents:

- T4: "NVIDIA T4 Tensor Core GPU" (data sheet), "NVIDIA Turing GPU Architecture" (white paper);
- A100: "NVIDIA A100 Tensor Core GPU Architecture" (white paper), table of peak rates;
- A40: "NVIDIA A40" (data sheet), "NVIDIA Ampere GA102 GPU Architecture" (white paper);
- L40S: "NVIDIA L40S" (data sheet), "NVIDIA Ada GPU Architecture" (white paper; 4-bit integers);
- H100: "NVIDIA H100 Tensor Core GPU" (data sheet) and "... Architecture" (white paper);
- RTX 5090: "NVIDIA RTX Blackwell GPU Architecture" (white paper), appendix A;
- MI250X: "AMD CDNA 2 Architecture" (white paper), one of its two dies, each a device of its own;
- MI300X: "AMD Instinct MI300X" (data sheet), "AMD CDNA 3 Architecture" (white paper);
- MI355X: "AMD Instinct MI355X" (data sheet), "AMD CDNA 4 Architecture" (white paper).

Peaks of 16-bit floats, tf32, fp8, int8 and int4 are matrix units' with accumulators of 32 bits;
float64 has one of the ordinary units and one of matrix units, and so has float32 of AMD, of which
the larger one stands here. Shared memory serves 32 banks of 4 bytes a clock on each multiprocessor
(CUDA C++ Programming Guide; of compute units AMD's white papers). The bandwidth of L2 is published
for the A100 alone (5120 bytes a clock); elsewhere the roof is what the multiprocessors can take,
64 bytes a clock each, which is higher than what a kernel sees.

Nothing is listed for sm_100: the published peaks of the B200 are those of tcgen05 instructions, and
code for it has mma.sync, whose rate there is not published.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tileworkbench.bench.kernel import arithmetic_dtype
from tileworkbench.bench.parts import Causes
from tileworkbench.bench.points import BANDWIDTH, PEAK, Ceiling, Machine, Point
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.compiler.machine.rates import Rates, listed, rates_of

_NOTE = "published numbers, nothing was measured"
FLOAT64_PRODUCTS = "float64 (products)"
"""The peak of products of float64, where matrix units have them."""
_BANK_BYTES, _PORT_BYTES = 128, 64  # a clock, of shared memory and from L2, on a multiprocessor


@dataclass(frozen=True, slots=True)
class Product:
    """One GPU beyond its `rates`: GB/s of its memory, TFLOP/s (int8: TOP/s) by what is multiplied,
    MiB of L2 and bytes a clock from it (0: not published).
    """

    rates: Rates
    memory: float
    peaks: Mapping[str, float]
    l2_mib: float
    l2_bytes: int = 0

    @property
    def multiprocessors(self) -> int:
        """How many there are."""
        return self.rates.multiprocessors

    @property
    def clock(self) -> float:
        """The boost clock in GHz."""
        return self.rates.clock_mhz / 1e3

    @property
    def shared_rate(self) -> float:
        """GB/s of the shared memory of all multiprocessors."""
        return self.multiprocessors * _BANK_BYTES * self.clock

    @property
    def l2_rate(self) -> float:
        """GB/s of L2, or more than that; see above."""
        return (self.l2_bytes or self.multiprocessors * _PORT_BYTES) * self.clock


# GB/s, peaks, L2
_PRODUCTS: Mapping[str, tuple[float, Mapping[str, float], float, int]] = {
    "sm_75": (320, {"float16": 65, "float32": 8.1, "int8": 130, "int4": 260}, 4, 0),
    "sm_80": (
        1555,
        {"float16": 312, "bfloat16": 312, "tfloat32": 156, "float32": 19.5, "float64": 9.7}
        | {FLOAT64_PRODUCTS: 19.5, "int8": 624, "int4": 1248},
        *(40, 5120),
    ),
    "sm_86": (
        696,
        {"float16": 149.7, "bfloat16": 149.7, "tfloat32": 74.8, "float32": 37.4, "int8": 299.3}
        | {"int4": 598.7},
        *(6, 0),
    ),
    "sm_89": (
        864,
        {"float16": 362, "bfloat16": 362, "tfloat32": 183, "float32": 91.6, "int8": 733}
        | {"float8": 733, "int4": 1466},
        *(96, 0),
    ),
    "sm_90": (
        3350,
        {"float16": 989, "bfloat16": 989, "tfloat32": 494, "float32": 67, "float64": 34}
        | {FLOAT64_PRODUCTS: 67, "int8": 1979, "float8": 1979},
        *(50, 0),
    ),
    "sm_120": (
        1792,
        {"float16": 209.5, "bfloat16": 209.5, "tfloat32": 104.8, "float32": 104.8, "int8": 838}
        | {"float8": 419},
        *(96, 0),
    ),
    "gfx90a": (
        1638,
        {"float16": 191.5, "bfloat16": 191.5, "float32": 47.9, "float64": 23.9}
        | {FLOAT64_PRODUCTS: 47.9, "int8": 191.5},
        *(8, 0),
    ),
    "gfx942": (
        5300,
        {"float16": 1307.4, "bfloat16": 1307.4, "xfloat32": 653.7, "float32": 163.4}
        | {"float64": 81.7, FLOAT64_PRODUCTS: 163.4, "int8": 2614.9, "float8": 2614.9},
        *(32, 0),
    ),
    "gfx950": (
        8000,
        {"float16": 2516.6, "bfloat16": 2516.6, "float32": 157.3, "float64": 78.6}
        | {FLOAT64_PRODUCTS: 78.6, "int8": 5033.2, "float8": 5033.2},
        *(32, 0),
    ),
}


def product_of(arch: str) -> Product | None:
    """The product that stands for an architecture, None where none is listed here."""
    rates, numbers = rates_of(arch), _PRODUCTS.get(listed(arch))
    return None if rates is None or numbers is None else Product(rates, *numbers)


def published(arch: str) -> Machine | None:
    """The published ceilings of an architecture's product, None where none are listed here."""
    product = product_of(arch)
    if product is None:
        return None
    rates = {"shared": product.shared_rate, "L2": product.l2_rate, "DRAM": product.memory}
    ceilings = [Ceiling(name, rate, "GB/s", 0) for name, rate in rates.items()]
    ceilings += [Ceiling(name, 1e3 * rate, "GFLOP/s", 0) for name, rate in product.peaks.items()]
    return Machine(f"{product.rates.product} ({arch})", tuple(ceilings), _NOTE)


def predicted_point(
    name: str,
    program: Program,
    flops: float,
    bytes_: float,
    machine: Machine,
    causes: Causes | None = None,
) -> Point | None:
    """What `causes` add up to, else the fastest that the machine's roofs allow for this much work;
    None where they do not say.

    `flops` and `bytes_` are those of one launch of `program`. Products are held against the peak of
    what multiplies them (`product_peak`), work without a T.gemm against that of float32 (or
    float64), which is what the other units compute.
    """
    kind = peak_name(program, machine)
    bandwidth, peak = machine.find("DRAM", BANDWIDTH), machine.find(kind, PEAK)
    if bandwidth is None or (flops and peak is None) or math.isnan(flops + bytes_):
        return None
    times = [bytes_ / bandwidth.value / 1e3]
    if peak is not None:
        times.append(flops / peak.value / 1e3)
    time_us = max(times)
    if not time_us > 0:
        return None
    if causes is not None:
        time_us = max(time_us, causes.total_us)
    return Point(name, flops, bytes_, time_us, kind, "DRAM", predicted=True, causes=causes)


def peak_name(program: Program, machine: Machine) -> str:
    """The name of the peak that bounds a program."""
    dtype = arithmetic_dtype(program)
    if not any(isinstance(stmt, Gemm) for stmt in statements(program.body)):
        return "float64" if dtype == "float64" else "float32"
    return product_peak(dtype, [each.name for each in machine.ceilings if each.unit == PEAK])


def product_peak(dtype: str, peaks: Collection[str]) -> str:
    """The name of the peak that bounds products of `dtype`, of those in `peaks`.

    NVIDIA's tensor cores take float32 as tf32. Matrix units take signed and unsigned integers at
    one rate, and all kinds of 8-bit floats at one. What they do not have is multiplied as the next
    larger type that holds it.
    """
    kinds = [dtype.replace("uint", "int")]
    if dtype == "float64":
        kinds = [FLOAT64_PRODUCTS, "float64"]
    elif dtype.startswith("float8"):
        kinds = ["float8", "float16"]
    elif dtype.startswith(("float4", "float6")):
        kinds = ["float16"]
    elif dtype in _AS:
        kinds = [*_AS[dtype]]
    return next((kind for kind in kinds if kind in peaks), kinds[0])


_AS = {
    "float32": ("tfloat32", "float32"),
    "tfloat32": ("tfloat32", "xfloat32", "float32"),  # AMD's is apart: float32 is not taken as it
    "bfloat16": ("bfloat16", "float32"),
    **dict.fromkeys(("int4", "uint4"), ("int4", "int8")),
}
