"""Loads that run through large tensors."""

import pytest

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.streaming import Ahead, fetched_loads
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.rewrite import parameters


@pytest.mark.parametrize(
    ("dtype", "trips", "step", "found"),
    [
        ("float32", 128, 16, True),  # 8 KiB
        ("float32", 127, 16, False),
        ("bfloat16", 128, 32, True),
        ("bfloat16", 128, 16, False),
        ("float32", 1024, 128, False),  # most of what is fetched is not used
    ],
)
def test_runs_of_8_kib_are_fetched_ahead(dtype: str, trips: int, step: int, found: bool) -> None:
    program = parse(
        f"""
@T.program(stage="cpu")
def kernel(A: T.Tensor(({1 << 24},), "{dtype}"), B: T.Tensor((64,), "{dtype}")):
    for block in T.blocks(16):
        for i in T.serial({trips}):
            for lane in T.vectorized(16):
                B[lane] = A[block * 524288 + i * {step} + lane]
"""
    )
    constant = frozenset(parameters(program)[:1])
    assert bool(fetched_loads(program, constant, Ranges(program))) == found


@pytest.mark.parametrize(
    ("rows", "pitch", "vectors", "ahead"),
    [
        (64, 4096, 2, 16),  # a quarter of the rows
        (256, 4096, 2, 64),  # 8 KiB in runs of 128 bytes
        (256, 4096, 64, 2),
        (256, 4096, 65, 0),  # a page is foreseen
        (15, 4096, 2, 0),  # too few rows
        (256, 511, 2, 0),  # too near
        (256, 2047, 64, 0),  # half of what lies between is used
    ],
)
def test_rows_are_fetched_ahead(rows: int, pitch: int, vectors: int, ahead: int) -> None:
    """Of a loop down rows of short runs, in parts that another loop joins."""
    part = 1 if rows % 2 else 2
    index = f"block * 2048 + (k * {part} + i) * {pitch} + j * 16 + lane"
    program = parse(
        f"""
@T.program(stage="cpu")
def kernel(A: T.Tensor(({1 << 24},), "float32"), B: T.Tensor((64,), "float32")):
    for block in T.blocks(2):
        for k in T.serial({rows // part}):
            for i in T.serial({part}):
                for j in T.serial({vectors}):
                    for lane in T.vectorized(16):
                        B[lane] = A[{index}]
"""
    )
    constant = frozenset(parameters(program)[:1])
    fetched = fetched_loads(program, constant, Ranges(program))
    assert list(fetched.values()) == ([Ahead(ahead * pitch * 4)] if ahead else [])


def test_rows_go_on_below_the_strips_of_a_tile() -> None:
    """Eight rows strip by strip, then the next eight: 32 rows of 256 bytes ahead."""
    program = parse(
        f"""
@T.program(stage="cpu")
def kernel(A: T.Tensor(({1 << 24},), "float32"), B: T.Tensor((64,), "float32")):
    for block in T.blocks(2):
        for k in T.serial(64):
            for strip in T.serial(3):
                for i in T.serial(8):
                    for j in T.serial(4):
                        for lane in T.vectorized(16):
                            B[lane] = A[(k * 8 + i) * 2048 + strip * 64 + j * 16 + lane]
"""
    )
    constant = frozenset(parameters(program)[:1])
    fetched = fetched_loads(program, constant, Ranges(program))
    assert list(fetched.values()) == [Ahead(32 * 2048 * 4)]
    near = fetched_loads(program, constant, Ranges(program), near_rows=True)
    assert list(near.values()) == [Ahead(16 * 2048 * 4, cache=1)]


def test_what_several_tensors_have_ahead_is_shared() -> None:
    loads = " + ".join(f"{name}[block * 4096 + i * 16 + lane]" for name in "ABCD")
    params = ", ".join(f'{name}: T.Tensor(({1 << 24},), "float32")' for name in "ABCD")
    program = parse(
        f"""
@T.program(stage="cpu")
def kernel({params}, E: T.Tensor((64,), "float32")):
    for block in T.blocks(16):
        for i in T.serial(256):
            for lane in T.vectorized(16):
                E[lane] = {loads}
"""
    )
    constant = frozenset(parameters(program)[:4])
    for near_rows in (False, True):  # it goes through all of them in a row
        fetched = fetched_loads(program, constant, Ranges(program), near_rows)
        assert set(fetched.values()) == {Ahead(2048)}


@pytest.mark.parametrize(
    ("dtype", "elements", "pitch", "found"),
    [
        ("float32", 1 << 22, 4096, True),  # rows of 16 MiB
        ("float32", (1 << 22) - 1, 4096, False),
        ("float32", 1 << 22, 16, False),  # in a row: not from 16 MiB on,
        ("float32", 3 << 21, 16, True),  # but from 24
        ("int4", 1 << 26, 4096, False),  # two elements a byte
    ],
)
def test_what_is_large_enough(dtype: str, elements: int, pitch: int, found: bool) -> None:
    program = parse(
        f"""
@T.program(stage="cpu")
def kernel(A: T.Tensor(({elements},), "{dtype}"), B: T.Tensor((64,), "{dtype}")):
    for block in T.blocks(4):
        for i in T.serial(256):
            for lane in T.vectorized(16):
                B[lane] = A[block * 16 + i * {pitch} + lane]
"""
    )
    constant = frozenset(parameters(program)[:1])
    assert bool(fetched_loads(program, constant, Ranges(program))) == found
