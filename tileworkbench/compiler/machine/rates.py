"""What one multiprocessor does in a cycle, of one product for each architecture.

Sources: NVIDIA's white papers "NVIDIA Turing GPU Architecture", "NVIDIA A100 Tensor Core GPU
Architecture", "NVIDIA Ampere GA102 GPU Architecture", "NVIDIA Ada GPU Architecture", "NVIDIA H100
Tensor Core GPU Architecture", "NVIDIA RTX Blackwell GPU Architecture", and data sheets of the same
products (multiprocessors, boost clock, operations of tensor cores per multiprocessor and cycle,
bandwidth of memory); CUDA C++ Programming Guide, "Multiprocessor Level" (warp schedulers).
AMD: white papers "AMD CDNA 2/3/4 Architecture" and data sheets of the products (compute units,
peak engine clock, operations of matrix cores per unit and cycle, bandwidth of memory; one of the
two dies of an MI250X, which is a device of its own). Latencies and the bytes from the cache are
round numbers of published micro-benchmarks, the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.compiler.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Amounts per cycle of one multiprocessor.

    `flops` are of matrix instructions, by what is multiplied. `memory_bytes` is its share of the
    memory's bandwidth, `cache_bytes` what comes from the L2 cache at most, `shared_bytes` what
    shared memory serves, `warps` how many warps issue an instruction, `lanes` how many of their
    threads are computed. `latency` are the cycles until a copy from global memory lands.
    `matrix_units`, `units` and `warp` are the vendor's words for what executes matrix instructions,
    for multiprocessors, and for the threads that execute one instruction together.
    """

    product: str
    multiprocessors: int
    clock_mhz: int
    memory_bytes: float
    flops: Mapping[str, int]
    cache_bytes: int = 64
    shared_bytes: int = 128
    warps: int = 4
    latency: int = 500
    lanes: int = 128
    matrix_units: str = "tensor cores"
    units: str = "multiprocessors"
    warp: str = "warp"

    @property
    def unit(self) -> str:
        """The vendor's word for one multiprocessor."""
        return self.units.removesuffix("s")

    def copy_cycles(self, bytes_: float, fresh: float) -> float:
        """How long `bytes_` of global memory take, of which the part `fresh` is in no cache."""
        return bytes_ * max(fresh / self.memory_bytes, 1 / self.cache_bytes)


def _floats(rate: int, **others: int) -> dict[str, int]:
    """Rates of 16-bit floats, and half of that for tf32."""
    return {"float16": rate, "bfloat16": rate, "tfloat32": rate // 2, **others}


def _integers(rate: int, of_4_bits: bool = False) -> dict[str, int]:
    """Rates of 8-bit integers, and twice that for 4-bit ones where tensor cores have them."""
    rates = {"int8": rate, "uint8": rate}
    return rates | ({"int4": 2 * rate, "uint4": 2 * rate} if of_4_bits else {})


def _compute_units(
    product: str, units: int, clock_mhz: int, memory_bytes: float, flops: Mapping[str, int]
) -> Rates:
    """Compute units of AMD, four of whose waves take turns on 16 lanes each."""
    return Rates(
        *(product, units, clock_mhz, memory_bytes, flops),
        warps=1,
        lanes=64,
        matrix_units="matrix cores",
        units="compute units",
        warp="wave",
    )


def _matrix_cores(rate: int, **others: int) -> dict[str, int]:
    """Rates of 16-bit floats, and of float32."""
    return {"float16": rate, "bfloat16": rate, "float32": 256, **others}


_RATES = {
    "sm_75": Rates("Tesla T4", 40, 1590, 5.0, {"float16": 1024, **_integers(2048, True)}),
    "sm_80": Rates(
        *("A100 SXM 40 GB", 108, 1410, 10.2),
        _floats(2048, float64=128, **_integers(4096, True)),
    ),
    "sm_86": Rates("A40", 84, 1740, 4.8, _floats(1024, **_integers(2048, True))),
    "sm_89": Rates("L40S", 142, 2520, 2.4, _floats(1024, float8=2048, **_integers(2048, True))),
    "sm_90": Rates(
        *("H100 SXM", 132, 1830, 13.9),
        _floats(4096, float8=8192, float64=256, **_integers(8192)),
    ),
    "sm_120": Rates(
        *("GeForce RTX 5090", 170, 2407, 4.4), _floats(512, float8=1024, **_integers(2048))
    ),
    "gfx90a": _compute_units(
        *("Instinct MI250X, one die", 110, 1700, 8.8),
        _matrix_cores(1024, float64=256, **_integers(1024)),
    ),
    "gfx942": _compute_units(
        *("Instinct MI300X", 304, 2100, 8.3),
        _matrix_cores(2048, tfloat32=1024, float64=256, float8=4096, **_integers(4096)),
    ),
    "gfx950": _compute_units(
        *("Instinct MI355X", 256, 2400, 13.0),
        _matrix_cores(4096, float64=128, float8=8192, **_integers(8192)),
    ),
}
_SAME = {"sm_90a": "sm_90"}


def listed(arch: str) -> str:
    """The architecture whose numbers `arch` has."""
    return _SAME.get(arch, arch)


def rates_of(arch: str) -> Rates | None:
    """The rates of an architecture's product, None where none are listed here."""
    return _RATES.get(listed(arch))
