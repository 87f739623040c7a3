"""What one multiprocessor does in a cycle, of one product for each architecture.

Sources: NVIDIA's white papers "NVIDIA Turing GPU Architecture", "NVIDIA A100 Tensor Core GPU
Architecture", "NVIDIA Ampere GA102 GPU Architecture", "NVIDIA Ada GPU Architecture", "NVIDIA H100
Tensor Core GPU Architecture", "NVIDIA RTX Blackwell GPU Architecture", and data sheets of the same
products (multiprocessors, boost clock, operations of tensor cores per multiprocessor and cycle,
bandwidth of memory); CUDA C++ Programming Guide, "Multiprocessor Level" (warp schedulers).
Latencies and the bytes from the cache are round numbers of published micro-benchmarks, the same for
all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Amounts per cycle of one multiprocessor.

    `flops` are of matrix instructions, by what is multiplied. `memory_bytes` is its share of the
    memory's bandwidth, `cache_bytes` what comes from the L2 cache at most, `shared_bytes` what
    shared memory serves, `warps` how many warps issue an instruction. `latency` are the cycles
    until a copy from global memory lands.
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
}
_SAME = {"sm_90a": "sm_90"}


def listed(arch: str) -> str:
    """The architecture whose numbers `arch` has."""
    return _SAME.get(arch, arch)


def rates_of(arch: str) -> Rates | None:
    """The rates of an architecture's product, None where none are listed here."""
    return _RATES.get(listed(arch))
