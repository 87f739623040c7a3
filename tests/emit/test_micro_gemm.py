"""The micro-kernel and packing against numpy in float64, at every level this processor has."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.emit.emitters import emit_pack_a, emit_pack_b
from tests.emit.jit import Jit, Level, export, host_levels
from tests.emit.tiles import NUMPY, GuardedTile, gemm_bound, poison, random_tile
from tileworkbench.compiler.analysis.micro_tile import LINE_OF_LEAST, choose_micro_tile
from tileworkbench.compiler.emit.llvm.gemm_spec import MicroGemmSpec
from tileworkbench.compiler.emit.llvm.isa import GENERIC, Isa, isa_from_features
from tileworkbench.compiler.emit.llvm.micro_gemm import emit_micro_gemm
from tileworkbench.compiler.emit.llvm.program import filled_by_packing
from tileworkbench.compiler.emit.llvm.register_blocks import split_evenly
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.target import Target

AVX512_BFLOAT16 = (
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"),
    *("avx512vnni", "avx512bf16"),
)
POINTER, INT, BOOL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool
PACK = (POINTER, INT, POINTER, INT, INT)
MULTIPLY = (POINTER, INT, POINTER, INT, POINTER, INT, BOOL)
LEVELS = host_levels()
DTYPES = [
    ("float64", "float64"),
    ("float32", "float32"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("float32", "float64"),
    ("int8", "int32"),
    ("uint8", "int32"),
]
# m, n, k, A stored transposed, B stored transposed
TILES = [
    (16, 8, 4, False, False),
    (5, 7, 3, True, False),
    (1, 1, 1, False, True),
    (13, 33, 9, False, False),
    (7, 130, 18, True, True),
    (64, 80, 32, False, True),
]
CASES = pytest.mark.parametrize("dtypes", DTYPES, ids="-".join)
EVERY_LEVEL = pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.isa.name)


def register_block(m: int, n: int, k: int, in_dtype: str, acc: str, isa: Isa) -> tuple[int, int]:
    """The block that the passes would choose."""
    target = Target(
        "cpu",
        isa.level,
        vector_bits=isa.vector_bits,
        dot_int8=isa.dot_int8,
        dot_bfloat16=isa.dot_bfloat16,
    )
    tile = choose_micro_tile(m, n, k, DType(in_dtype), DType(acc), target)
    assert tile is not None
    return tile.mr, tile.nr


def make_spec(
    tile: tuple[int, int, int, bool, bool], dtypes: tuple[str, str], level: Level
) -> MicroGemmSpec:
    m, n, k, a_transposed, _ = tile
    mr, nr = register_block(m, n, k, *dtypes, level.isa)
    layout = "columns" if a_transposed else "rows"
    spec = MicroGemmSpec(m, n, k, *dtypes, level.isa, mr, nr, a_layout=layout)
    return replace(spec, b_least=spec.asks and k % 4 != 0)


def check(
    spec: MicroGemmSpec, a: np.ndarray, b: np.ndarray, c: np.ndarray, got: np.ndarray
) -> None:
    """Compare one product with its float64 reference; integers must be exact."""
    a, b, c = (operand.astype(np.float64) for operand in (a, b, c))
    reference = c + a @ b
    if spec.acc_dtype == "int32":
        np.testing.assert_array_equal(got, reference.astype(np.int32))
        return
    eps_sum = float(np.finfo(NUMPY[spec.compute_dtype]).eps)
    eps_out = float(ml_dtypes.finfo(NUMPY[spec.acc_dtype]).eps)
    bound = gemm_bound(a, b, c, eps_sum, eps_out)
    assert (np.abs(got.astype(np.float64) - reference) <= bound).all()


@pytest.mark.covering(1)
@EVERY_LEVEL
@CASES
def test_packed_product(level: Level, dtypes: tuple[str, str]) -> None:
    specs = [make_spec(tile, dtypes, level) for tile in TILES]
    functions = []
    for at, (spec, tile) in enumerate(zip(specs, TILES, strict=True)):
        functions += [
            export(emit_micro_gemm(spec, f"multiply{at}")),
            export(emit_pack_a(spec, f"pack_a{at}", transposed=tile[3], ragged=True)),
            export(emit_pack_b(spec, f"pack_b{at}", transposed=tile[4], ragged=True)),
        ]
    jit = Jit(functions, level)
    rng = np.random.default_rng(7)
    for at, (spec, tile) in enumerate(zip(specs, TILES, strict=True)):
        whole = (spec.m, spec.n, spec.k)
        cut = (spec.m - spec.m // 3, spec.n - spec.n // 3, spec.k - spec.k // 4)
        for m, n, k in (whole, cut, (spec.m, spec.n, 0)):
            a, b = random_tile(rng, (m, k), dtypes[0]), random_tile(rng, (k, n), dtypes[0])
            guarded_a = GuardedTile(a.T if tile[3] else a, dtypes[0])
            guarded_b = GuardedTile(b.T if tile[4] else b, dtypes[0])
            packed_a = poison((spec.a_elements,), spec.panel_dtype)
            packed_b = poison((spec.b_elements + LINE_OF_LEAST,), spec.panel_dtype)
            pack_a = jit.function(f"pack_a{at}", *PACK)
            pack_a(guarded_a.address, guarded_a.ld, packed_a.ctypes.data, m, k)
            pack_b = jit.function(f"pack_b{at}", *PACK)
            pack_b(guarded_b.address, guarded_b.ld, packed_b.ctypes.data, k, n)
            full_a, full_b = np.zeros((spec.m, spec.k)), np.zeros((spec.k, spec.n))
            full_a[:m, :k], full_b[:k, :n] = a, b
            multiply = jit.function(f"multiply{at}", *MULTIPLY)
            for accumulate in (False, True):
                memory = poison((spec.m, spec.n + 5), dtypes[1])
                memory[:, : spec.n] = random_tile(rng, (spec.m, spec.n), dtypes[1])
                c = memory[:, : spec.n].copy()
                if dtypes[1] == "int32":
                    c //= 4
                    memory[:, : spec.n] = c
                untouched = memory[:, spec.n :].copy()
                arguments = (packed_a.ctypes.data, spec.a_stride, packed_b.ctypes.data, 0)
                multiply(*arguments, memory.ctypes.data, spec.n + 5, accumulate)
                check(spec, full_a, full_b, c * accumulate, memory[:, : spec.n])
                assert memory[:, spec.n :].tobytes() == untouched.tobytes()


@EVERY_LEVEL
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("a_layout", ["rows", "columns"])
def test_operands_in_place(level: Level, dtype: str, a_layout: str) -> None:
    m, n, k = 11, 37, 6
    mr, nr = register_block(m, n, k, dtype, dtype, level.isa)
    ahead = k if a_layout == "rows" else 0
    spec = MicroGemmSpec(m, n, k, dtype, dtype, level.isa, mr, nr, a_layout, "rows", ahead)
    jit = Jit([export(emit_micro_gemm(spec, "multiply"))], level)
    rng = np.random.default_rng(3)
    a, b = random_tile(rng, (m, k), dtype), random_tile(rng, (k, n), dtype)
    in_a, in_b = GuardedTile(a.T if a_layout == "columns" else a, dtype), GuardedTile(b, dtype)
    c = poison((m, n), dtype)
    multiply = jit.function("multiply", *MULTIPLY)
    multiply(in_a.address, in_a.ld, in_b.address, in_b.ld, c.ctypes.data, n, False)
    check(spec, a, b, np.zeros((m, n)), c)


@pytest.mark.parametrize(
    "level", [level for level in LEVELS if level.isa.dot_int8], ids=lambda level: level.isa.name
)
def test_int8_rows_in_place_with_incomplete_group(level: Level) -> None:
    spec = make_spec((9, 17, 7, False, False), ("int8", "int32"), level)
    pack = export(emit_pack_b(spec, "pack", transposed=False, ragged=False))
    jit = Jit([export(emit_micro_gemm(spec, "multiply")), pack], level)
    rng = np.random.default_rng(5)
    lowest = np.full((9, 7), -128, np.int8), np.full((7, 17), -128, np.int8)
    mixed = random_tile(rng, (9, 7), "int8"), random_tile(rng, (7, 17), "int8")
    for a, b in (lowest, mixed):
        in_a = GuardedTile(a, "int8")
        packed = poison((spec.b_elements,), "int8")
        jit.function("pack", *PACK)(b.ctypes.data, 17, packed.ctypes.data, 0, 0)
        c = poison((9, 17), "int32")
        multiply = jit.function("multiply", *MULTIPLY)
        multiply(in_a.address, in_a.ld, packed.ctypes.data, 0, c.ctypes.data, 17, False)
        check(spec, a, b, np.zeros((9, 17)), c)


@EVERY_LEVEL
def test_limits_past_the_tile_mean_all_of_it(level: Level) -> None:
    spec = make_spec((4, 6, 5, False, False), ("float32", "float32"), level)
    jit = Jit([export(emit_pack_b(spec, "pack", transposed=False, ragged=True))], level)
    b = random_tile(np.random.default_rng(0), (5, 6), "float32")
    guarded = GuardedTile(b, "float32")
    for k, n, rows, columns in ((99, 2**40, 5, 6), (-3, 6, 0, 6), (2, -1, 2, 0), (99, 4, 5, 4)):
        packed = poison((spec.b_elements,), "float32")
        arguments = (guarded.address, guarded.ld, packed.ctypes.data, k, n)
        jit.function("pack", *PACK)(*arguments)
        expected = np.zeros((5, spec.nr), np.float32)
        expected[:rows, :columns] = b[:rows, :columns]
        np.testing.assert_array_equal(packed.reshape(5, spec.nr), expected)


def test_rows_are_split_evenly() -> None:
    assert split_evenly(128, 6) == [(18, 6), (4, 5)]
    assert split_evenly(12, 6) == [(2, 6)]
    assert split_evenly(5, 6) == [(1, 5)]
    for extent in range(1, 60):
        sizes = [size for count, size in split_evenly(extent, 6) for _ in range(count)]
        assert sum(sizes) == extent and max(sizes) <= 6 and max(sizes) - min(sizes) <= 1


def test_columns_divide_evenly_into_blocks() -> None:
    assert register_block(64, 24, 8, "float32", "float32", GENERIC)[1] == 12
    assert register_block(64, 3, 8, "float64", "float64", GENERIC) == (4, 4)
    assert register_block(2, 3, 8, "float32", "float32", GENERIC) == (2, 4)


def test_unsupported_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="no product of 'int8' with accumulator 'float32'"):
        MicroGemmSpec(4, 4, 4, "int8", "float32", GENERIC, 4, 4)
    with pytest.raises(ValueError, match="nr a multiple of 4"):
        MicroGemmSpec(4, 4, 4, "float32", "float32", GENERIC, 4, 6)
    with pytest.raises(ValueError, match="'int8' operands need packed panels of B"):
        MicroGemmSpec(4, 4, 4, "int8", "int32", GENERIC, 4, 4, b_layout="rows")
    with pytest.raises(ValueError, match="unknown operand layout: 'diagonal', 'panels'"):
        MicroGemmSpec(4, 4, 4, "float32", "float32", GENERIC, 4, 4, a_layout="diagonal")
    with pytest.raises(ValueError, match="only rows of A are prefetched"):
        MicroGemmSpec(4, 4, 4, "float32", "float32", GENERIC, 4, 4, "columns", prefetch_a=4)
    spec = MicroGemmSpec(4, 4, 4, "float32", "float32", GENERIC, 4, 4)
    with pytest.raises(ValueError, match="layout 'rows' does not suit a transposed A"):
        emit_pack_a(spec, "pack", transposed=True, ragged=False)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.isa.name)
@pytest.mark.parametrize("a_transposed", [False, True])
def test_bfloat16_products_keep_denormals(level: Level, a_transposed: bool) -> None:
    """Operands on both sides of what dot product instructions compute exactly, and a C that is
    denormal: sums of powers of two are exact in any order."""
    tile = (5, 20, 34, a_transposed, False)
    spec = make_spec(tile, ("bfloat16", "float32"), level)
    packs = (
        export(emit_pack_a(spec, "pack_a", transposed=a_transposed, ragged=False)),
        export(emit_pack_b(spec, "pack_b", transposed=False, ragged=False)),
    )
    jit = Jit([export(emit_micro_gemm(spec, "multiply")), *packs], level)
    rng = np.random.default_rng(11)
    for least_a, least_b in ((-133, 0), (0, -130), (-60, -60), (-56, -56), (-56, -57), (-75, -74)):
        exponents = rng.integers(0, 8, (5, 34)), rng.integers(0, 8, (34, 20))
        a, b = (
            (sign * 2.0 ** (found + least)).astype(NUMPY["bfloat16"])
            for sign, found, least in (
                (rng.integers(-1, 2, (5, 34)), exponents[0], least_a),
                (rng.integers(-1, 2, (34, 20)), exponents[1], least_b),
            )
        )
        stored = np.ascontiguousarray(a.T if a_transposed else a)
        packed_a = poison((spec.a_elements,), spec.panel_dtype)
        packed_b = poison((spec.b_elements,), spec.panel_dtype)
        ld = stored.shape[1]
        jit.function("pack_a", *PACK)(stored.ctypes.data, ld, packed_a.ctypes.data, 0, 0)
        jit.function("pack_b", *PACK)(b.ctypes.data, 20, packed_b.ctypes.data, 0, 0)
        start = (rng.integers(-4, 5, (5, 20)) * 2.0**-149).astype(np.float32)
        c = start.copy()
        multiply = jit.function("multiply", *MULTIPLY)
        operands = (packed_a.ctypes.data, spec.a_stride, packed_b.ctypes.data, 0)
        multiply(*operands, c.ctypes.data, 20, True)
        exact = start.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
        scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) + np.abs(start)
        bound = 2.0**-20 * scale + 34 * 2.0**-150  # denormals have a spacing of 2^-149
        assert (np.abs(c - exact) <= bound).all(), (least_a, least_b)


def test_exponents_are_told_where_there_is_room_for_them() -> None:
    """Programs that were written by hand may have none behind their panels, or change elements."""
    text = """@T.program(stage="cpu", scratch_bytes=32768)
def kernel(
    A: T.Tensor((4096,), "bfloat16"),
    B: T.Tensor((8192,), "bfloat16"),
    C: T.Tensor((8192,), "float32"),
):
    for block in T.blocks(1):
        panels = T.alloc_shared((SIZE,), "bfloat16", offset=0)
        T.pack_b(T.address_of(B[0]), T.address_of(panels[0]), rows=128, cols=64, row_stride=1, col_stride=128, valid_rows=128, valid_cols=64, width=64, group=2)
        T.micro_gemm(T.address_of(A[0]), T.address_of(panels[0]), T.address_of(C[0]), lda=64, columns=False, ldc=128, m=64, n=128, k=64, mr=6, nr=64, group=2, clear=True, isa="avx512")
"""  # noqa: E501
    isa = isa_from_features(dict.fromkeys(AVX512_BFLOAT16, True))
    told = [
        len(filled_by_packing(parse(text.replace("SIZE", str(size))).body, isa))
        for size in (8192, 8192 + LINE_OF_LEAST, 3 * (8192 + LINE_OF_LEAST))
    ]
    assert told == [0, 1, 1]
    room = text.replace("SIZE", str(8192 + LINE_OF_LEAST))
    changed = room.replace("        T.micro_gemm", "        panels[0] = B[0]\n        T.micro_gemm")
    assert changed != room and not filled_by_packing(parse(changed).body, isa)
