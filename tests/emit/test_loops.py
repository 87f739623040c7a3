"""Loops in LLVM IR: where they poll, what passes the caches by, how lanes combine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emit.test_llvm import LEVELS, run
from tileworkbench.compiler.emit.llvm.isa import GENERIC, isa_from_features
from tileworkbench.compiler.emit.llvm.program import generate
from tileworkbench.compiler.ir.parser import parse

AVX512 = isa_from_features(
    dict.fromkeys(("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"), True)
)
LARGE = 1 << 23  # float32 elements: 32 MiB


def doubled(count: int, header: str = "", extra: str = "") -> str:
    """B = 2 A in vectors of 16."""
    return f"""
@T.program(stage="cpu"{header})
def kernel(A: T.Tensor(({count},), "float32"), B: T.Tensor(({count},), "float32")):
    for block in T.blocks({count // 256}):
        for i in T.serial(16):
            for lane in T.vectorized(16):
                B[block * 256 + i * 16 + lane] = A[block * 256 + i * 16 + lane] * 2.0{extra}
"""


def text_of(source: str) -> str:
    return generate(parse(source), GENERIC).text


def aligned(count: int, offset: int) -> np.ndarray:
    """Zeros that start `offset` bytes after a cache line."""
    raw = np.zeros(4 * count + 128, dtype=np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + 4 * count].view(np.float32)


def test_large_outputs_pass_the_caches_by_and_are_fenced() -> None:
    text = text_of(doubled(LARGE))
    assert text.count("!nontemporal") == 1
    assert text.count("fence seq_cst") == 1


@pytest.mark.parametrize(
    ("count", "header", "extra"),
    [
        (LARGE // 2, "", ""),
        (LARGE, ', outputs=["B"], returns=["B"]', ""),
        (LARGE, "", " + B[block * 256 + i * 16 + lane]"),
    ],
    ids=["small", "allocated by the call", "read as well"],
)
def test_other_outputs_stay_in_the_caches(count: int, header: str, extra: str) -> None:
    text = text_of(doubled(count, header, extra))
    assert "!nontemporal" not in text
    assert "fence" not in text


def test_vectors_off_their_boundary_stay_in_the_caches() -> None:
    text = text_of(doubled(LARGE).replace("B[block * 256 + i", "B[block * 256 + 4 + i"))
    assert "!nontemporal" not in text


@pytest.mark.parametrize("offset", [0, 4])
@LEVELS
def test_streamed_outputs_may_have_any_alignment(level: str, offset: int) -> None:
    a, b = aligned(LARGE, 0), aligned(LARGE, offset)
    a[:] = np.arange(LARGE, dtype=np.float32)
    run(parse(doubled(LARGE)), {"A": a, "B": b}, level)
    assert b.ctypes.data % 64 == offset
    assert np.array_equal(b, a * 2)


def loops(outer: int, inner: int) -> str:
    return f"""
@T.program(stage="cpu")
def kernel(A: T.Tensor((64,), "float32")):
    for block in T.blocks(1):
        for i in T.serial({outer}):
            for j in T.serial({inner}):
                A[j] = A[i]
"""


@pytest.mark.parametrize(
    ("middle", "polls"), [("1024", 1), ("1073741824", 2), ("n", 2), ("T.min(n, 64)", 1)]
)
def test_long_loops_inside_others_poll(middle: str, polls: int) -> None:
    text = text_of(
        f"""
@T.program(stage="cpu", symbols={{"n": "int32"}})
def kernel(A: T.Tensor((n,), "float32")):
    for block in T.blocks(1):
        for p in T.serial(100000):
            for i in T.serial({middle}):
                for j in T.serial(4):
                    A[j] = A[i]
"""
    )
    assert text.count("load atomic i32, ptr %flag") == 1 + polls


@pytest.mark.parametrize(("outer", "inner", "polls"), [(8, 8, 0), (1 << 10, 1 << 10, 1)])
def test_only_long_loops_around_others_poll(outer: int, inner: int, polls: int) -> None:
    text = text_of(loops(outer, inner))
    # One more is the entry's, before each block.
    assert text.count("load atomic i32, ptr %flag") == 1 + polls


ACROSS = """
@T.program(stage="cpu")
def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((1,), "float32")):
    for block in T.blocks(1):
        B[0] = T.lanes_max(A[T.Ramp(0, 1, 16)])
"""
PARTS = """
@T.program(stage="cpu")
def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((1,), "float32")):
    for block in T.blocks(1):
        partial = T.alloc_local((16,), "float32")
        partial[T.Ramp(0, 1, 16)] = A[T.Ramp(0, 1, 16)]
        for k in T.serial(1, 4):
            partial[T.Ramp(0, 1, 16)] = T.max(partial[T.Ramp(0, 1, 16)], A[T.Ramp(k * 16, 1, 16)])
        B[0] = T.lanes_max(partial[T.Ramp(0, 1, 16)])
"""


def calls(text: str, name: str) -> int:
    """Calls of the intrinsics whose names begin so."""
    return sum("call" in line and f"@llvm.{name}" in line for line in text.splitlines())


def test_maxima_across_lanes_are_trees() -> None:
    text = text_of(ACROSS)
    assert "vector.reduce" not in text
    # Of the last two elements as lanes of a vector: a scalar maximum branches on the sign.
    assert [calls(text, f"maximumnum.v{lanes}f32(") for lanes in (8, 4, 2)] == [1, 2, 1]


@pytest.mark.parametrize(("source", "whole"), [(ACROSS, 1), (PARTS, 3)])
def test_avx512_orders_zeros_by_one_instruction(source: str, whole: int) -> None:
    """What memory holds is quieted first, partial maxima when they are stored first."""
    text = generate(parse(source), AVX512).text
    assert calls(text, "x86.avx512.mask.range.ps.512") == whole
    assert calls(text, "x86.avx512.mask.range.ps.256") == 1
    assert calls(text, "x86.avx512.mask.range.ps.128") == 3
    assert calls(text, "maximumnum") == 0


def test_addresses_advance_loop_by_loop() -> None:
    text = text_of(doubled(1024))
    before, _, inside = text.partition("loop")
    # The part of the block is added in front of the loop, that of the row inside it.
    assert before.count("getelementptr") == 2
    assert inside.partition("br i1")[0].count("getelementptr") == 2
