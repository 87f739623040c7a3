"""Vector instruction sets, as the CPU code generators see them.

An `Isa` says what emitted code may use. It is derived from the feature set LLVM reports for a
host, never from a processor's name, so that an intrinsic is only ever emitted for a machine
that has it: LLVM aborts the process when it cannot select an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.compiler.fast_dataclass import dataclass

_AVX512_REQUIRED = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c")
_TILES = ("amx-tile", "amx-bf16", "amx-int8")
_AVX2_REQUIRED = ("avx2", "fma", "f16c")


@dataclass(frozen=True, slots=True)
class Isa:
    """What emitted vector code may use on one kind of processor.

    Args:
        name: 'avx512', 'avx512_vnni', 'avx512_amx', 'avx2', 'avx2_vnni', 'neon' or 'generic'.
        vector_bits: width of a vector register.
        registers: number of vector registers.
        fma: a fused multiply-add exists in hardware; `llvm.fma` without it is a library call
            per lane.
        native_half: conversions between float16 and float32 exist in hardware.
        dot_int8: unsigned by signed byte dot products (VPDPBUSD) exist at `vector_bits`.
        dot_bfloat16: bfloat16 dot products (VDPBF16PS) exist at `vector_bits`. They take denormals
            for zero; see `bfloat16_guard`.
        scalef: the AVX-512 power-of-two scaling instruction exists.
        tiles: AMX multiplies tiles of bfloat16 and of bytes.
    """

    name: str
    vector_bits: int
    registers: int
    fma: bool
    native_half: bool
    dot_int8: bool
    dot_bfloat16: bool
    scalef: bool
    tiles: bool = False

    @property
    def near_rows(self) -> bool:
        """Whether rows that are fetched ahead go to the first cache, which has room for 12 lines of
        a place on these processors: measured on an Intel Xeon with AMX, see DECISIONS.
        """
        return self.tiles

    @property
    def level(self) -> str:
        """The instruction-set level, which is what passes and register blocks depend on."""
        return self.name.split("_")[0]

    def lanes(self, dtype_bytes: int) -> int:
        """Return how many elements of `dtype_bytes` bytes one vector register holds."""
        return self.vector_bits // (8 * dtype_bytes)


GENERIC = Isa("generic", 128, 16, False, False, False, False, False)
"""128-bit vectors and nothing else: baseline x86-64 and any processor not known here."""


def isa_from_features(features: Mapping[str, bool]) -> Isa:
    """Return the strongest `Isa` that a feature set allows.

    Args:
        features: LLVM feature names to presence, as `llvmlite.binding.get_host_cpu_features()`
            returns them.
    """

    def has(*names: str) -> bool:
        return all(features.get(name, False) for name in names)

    if has(*_AVX512_REQUIRED):
        vnni, bfloat16 = has("avx512vnni"), has("avx512bf16")
        tiles = vnni and bfloat16 and has(*_TILES)
        name = "avx512_amx" if tiles else "avx512_vnni" if vnni else "avx512"
        return Isa(name, 512, 32, True, True, vnni, bfloat16, True, tiles)
    if has(*_AVX2_REQUIRED):
        vnni = has("avxvnni")
        return Isa("avx2_vnni" if vnni else "avx2", 256, 16, True, True, vnni, False, False)
    if has("neon"):
        return Isa("neon", 128, 32, True, True, False, False, False)
    return GENERIC
