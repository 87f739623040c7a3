"""Instruction sets are derived from features."""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.isa import GENERIC, isa_from_features

AVX2 = {"sse2": True, "avx2": True, "fma": True, "f16c": True, "avxvnni": True}
AVX512 = AVX2 | dict.fromkeys(("avx512f", "avx512bw", "avx512dq", "avx512vl"), True)


def test_levels_from_features() -> None:
    assert isa_from_features({}) == GENERIC
    assert isa_from_features(AVX2).name == "avx2_vnni"
    assert isa_from_features(AVX2 | {"avxvnni": False}).name == "avx2"
    assert isa_from_features(AVX512).name == "avx512"
    assert isa_from_features(AVX512 | {"avx512vnni": True}).name == "avx512_vnni"
    tiles = dict.fromkeys(("avx512vnni", "avx512bf16", "amx-tile", "amx-bf16", "amx-int8"), True)
    assert isa_from_features(AVX512 | tiles).name == "avx512_amx"
    assert isa_from_features(AVX512 | tiles).near_rows and not isa_from_features(AVX512).near_rows
    assert isa_from_features(AVX512 | tiles | {"amx-int8": False}).name == "avx512_vnni"
    assert isa_from_features({"neon": True}).name == "neon"
    bfloat16 = AVX512 | {"avx512bf16": True}
    assert isa_from_features(bfloat16).dot_bfloat16
    assert not isa_from_features(AVX512).dot_bfloat16
    # AVX-512 without the parts the writers use counts as AVX2.
    assert isa_from_features(AVX512 | {"avx512vl": False}).name == "avx2_vnni"


def test_lanes_follow_the_vector_width() -> None:
    assert [GENERIC.lanes(size) for size in (1, 4, 8)] == [16, 4, 2]
