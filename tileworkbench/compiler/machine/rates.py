"""What one multiprocessor does in a cycle, of one product for each architecture.

Sources: NVIDIA's architecture white papers and data sheets (multiprocessors, boost clock,
operations of tensor cores per multiprocessor and cycle, bandwidth of memory); CUDA C++ Programming
Guide, "Multiprocessor Level" (warp schedulers). Latencies and the bytes from the cache are round
numbers of published micro-benchmarks, the same for all.
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
    """Of 16-bit floats, and half as much of tf32."""
    return {"float16": rate, "bfloat16": rate, "tfloat32": rate // 2, **others}


_RATES = {
    "sm_75": Rates("Tesla T4", 40, 1590, 5.0, {"float16": 1024, "int8": 2048, "uint8": 2048}),
    "sm_80": Rates(
        "A100 SXM 40 GB", 108, 1410, 10.2, _floats(2048, int8=4096, uint8=4096, float64=128)
    ),
    "sm_86": Rates("A40", 84, 1740, 4.8, _floats(1024, int8=2048, uint8=2048)),
    "sm_89": Rates("L40S", 142, 2520, 2.4, _floats(1024, int8=2048, uint8=2048, float8=2048)),
    "sm_90": Rates(
        "H100 SXM",
        132,
        1830,
        13.9,
        _floats(4096, int8=8192, uint8=8192, float8=8192, float64=256),
    ),
    "sm_120": Rates(
        "GeForce RTX 5090", 170, 2407, 4.4, _floats(512, int8=2048, uint8=2048, float8=1024)
    ),
}
_SAME = {"sm_90a": "sm_90"}


def rates_of(arch: str) -> Rates | None:
    """The rates of an architecture's product, None where none are listed here."""
    return _RATES.get(_SAME.get(arch, arch))
