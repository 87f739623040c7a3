"""CUDA C++ from programs: the text, and what it computes when its PTX is executed."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.small_floats import code_of
from tileworkbench.compiler.ir.float_formats import FORMATS
from tileworkbench.compiler.ir.types import DType
from tileworkbench.kernels import flash_attention, matmul

HERE = Path(__file__).parent
pytestmark = pytest.mark.nvrtc


def functions(kernel: tw.Kernel) -> str:
    """The text without its helpers."""
    return kernel.source[kernel.source.index('extern "C"') :]


def test_the_text_of_a_matmul_is_a_page():
    kernel = tw.compile(matmul(256, 256, 256, "float16", num_stages=3), target="sim:sm_80")
    text = "\n".join(line for line in functions(kernel).splitlines() if "// line" not in line)
    assert text + "\n" == (HERE / "cuda" / "matmul.cu").read_text()
    assert len(text.splitlines()) < 100


def test_every_statement_names_the_line_it_came_from():
    kernel = tw.compile(matmul(256, 256, 256, "float16", num_stages=3), target="sim:sm_80")
    for words in ("T.clear(", "T.copy(A", "T.copy(B", "T.gemm("):
        assert any("// line" in line and words in line for line in kernel.source.splitlines())


def test_nothing_is_included_and_nothing_is_a_template():
    for page in (matmul(256, 256, 256, "bfloat16"), flash_attention(1, 1, 64, 64, 64, "float16")):
        source = tw.compile(page, target="sim:sm_80").source
        assert "#include" not in source and "template" not in source


def test_registers_and_spills_are_read_back():
    kernel = tw.compile(matmul(256, 256, 256, "float16", num_stages=3), target="ptx:sm_80")
    (found,) = kernel.stats.resources
    assert found.name == "matmul" and 100 < found.registers <= 255
    assert found.spill_store_bytes == found.spill_load_bytes == 0
    assert kernel.stats.shared_bytes == 3 * 2 * 128 * 32 * 2
    assert "mma.sync" in kernel.asm


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_every_architecture_is_compiled(arch):
    kernel = tw.compile(matmul(128, 128, 64, "float16"), target=f"cuda:{arch}")
    assert kernel._compiled.compiled().arch == arch


SMALL = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("dtype", [*FORMATS, "float16", "bfloat16"])
def test_constants_are_written_as_their_codes(dtype):
    kind = DType(dtype)
    storage = np.uint16 if kind.bits == 16 else np.uint8
    codes = np.arange(1 << kind.bits, dtype=np.uint32).astype(storage)
    with np.errstate(invalid="ignore"):  # NaN of bfloat16
        values = codes.view(getattr(ml_dtypes, dtype, dtype)).astype(np.float64)
    step = 7 if kind.bits == 16 else 1
    for code, value in zip(codes[::step], values[::step], strict=True):
        found = code_of(float(value), kind)
        if np.isnan(value):
            assert np.isnan(np.array(found, storage).view(getattr(ml_dtypes, dtype, dtype)))
        else:
            assert found == code


@pytest.mark.parametrize("dtype", SMALL)
def test_small_floats_widen_exactly(dtype):
    @T.prim_func
    def widen(A: T.Tensor((256,), dtype), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(256):
                B[i] = T.cast(A[i], "float32")

    codes = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, dtype))
    found = np.zeros(256, np.float32)
    tw.compile(widen, target="ptx:sm_80")(codes, found)
    np.testing.assert_array_equal(found, codes.astype(np.float32))


@pytest.mark.parametrize("dtype", SMALL[:4])
def test_small_floats_round_to_nearest_even_and_saturate(dtype):
    kind = getattr(ml_dtypes, dtype)
    limit = float(ml_dtypes.finfo(kind).max)

    @T.prim_func
    def narrow(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(1024):
                B[i] = T.cast(A[i], dtype)

    random = np.random.default_rng(0)
    values = random.standard_normal(1024) * 2.0 ** random.integers(-20, 18, 1024)
    values[:4] = (0.0, limit, -limit * 4, 1e-30)
    values = values.astype(np.float32)
    found = np.zeros(1024, kind)
    tw.compile(narrow, target="ptx:sm_80")(values, found)
    expected = np.clip(values, -limit, limit).astype(kind)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": T.min,
    "max": T.max,
    "less": lambda a, b: T.if_then_else(a < b, a, b + b),
}


INTEGERS = ("int8", "int32", "uint8", "int64")
OPERATORS = [
    (name, dtype)
    for name in BINARY
    for dtype in (*INTEGERS, *(() if name.startswith("floor") else ("float16", "float32")))
]


@pytest.mark.parametrize(("name", "dtype"), OPERATORS)
def test_operators(name, dtype):
    function = BINARY[name]

    @T.prim_func
    def apply(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype), C: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                C[i] = function(A[i], B[i])

    generator = torch.Generator().manual_seed(0)
    low = 1 if dtype == "uint8" else -9
    a = torch.randint(low, 10, (64,), generator=generator)
    b = torch.randint(low, 10, (64,), generator=generator)
    b[b == 0] = 3
    kind = getattr(torch, dtype)
    results = []
    for target in ("cpu", "sim:sm_80", "ptx:sm_80"):
        out = torch.zeros(64, dtype=kind)
        tw.compile(apply, target=target)(a.to(kind), b.to(kind), out)
        results.append(out)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def small(values, dtype):
    return values.astype(getattr(ml_dtypes, dtype))


BYTES = np.arange(-128, 128, dtype=np.int8)
E4M3, E8M0 = "float8_e4m3fn", "float8_e8m0fnu"
SCALES = np.resize(np.float32([3, 1.5, 1.4999, 1e-40, 7e-39, np.nan, np.inf, 3e38, -5, 0]), 256)
# What C++ computes in int, or reads as something else: by name, the function, what it is given, and
# the dtype of its result.
SCALAR = {
    "inverted_unsigned_byte": (lambda a: ~a, BYTES.view(np.uint8), "int32"),
    "negated_byte": (lambda a: -a, BYTES, "int32"),
    "magnitude_of_a_byte": (lambda a: T.abs(a), BYTES, "int32"),
    "set_bits_of_a_byte": (lambda a: T.popcount(a), BYTES, "int32"),
    "bits_of_a_double": (lambda a: T.reinterpret(a, "uint64"), BYTES.astype("f8"), "uint64"),
    "double_of_bits": (
        lambda a: T.reinterpret(a, "float64"),
        BYTES.astype("f8").view("u8"),
        "float64",
    ),
    "constant_of_a_byte": (lambda a: a + T.cast(1.5, E4M3), small(BYTES % 16, E4M3), E4M3),
    "constant_scale": (lambda a: T.cast(4.0, E8M0), SCALES, E8M0),
    "rounded_scale": (lambda a: T.cast(a, E8M0), SCALES, E8M0),
}


@pytest.mark.parametrize("name", SCALAR)
def test_scalars_are_those_of_the_cpu(name):
    function, values, dtype = SCALAR[name]

    @T.prim_func
    def apply(A: T.Tensor((256,), str(values.dtype)), B: T.Tensor((256,), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(256):
                B[i] = T.cast(function(A[i]), dtype)

    kind = getattr(ml_dtypes, dtype, dtype)
    found = [np.zeros(256, kind) for _ in range(2)]
    for target, out in zip(("cpu", "ptx:sm_80"), found, strict=True):
        tw.compile(apply, target=target)(values, out)
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("dtype", ["float6_e2m3fn", "float6_e3m2fn"])
def test_six_bits_take_a_byte(dtype):
    @T.prim_func
    def there_and_back(A: T.Tensor((16, 64), dtype), B: T.Tensor((16, 64), dtype)):
        with T.Kernel(1, threads=64):
            narrow = T.alloc_fragment((16, 64), dtype)
            T.copy(A, narrow)
            for i, j in T.Parallel(16, 64):
                narrow[i, j] = T.cast(T.cast(narrow[i, j], "float32") * 0.5, dtype)
            T.copy(narrow, B)

    codes = np.resize(np.arange(64, dtype=np.uint8), (16, 64)).view(getattr(ml_dtypes, dtype))
    found = np.zeros_like(codes)
    tw.compile(there_and_back, target="ptx:sm_80")(codes, found)
    halved = (codes.astype(np.float32) * 0.5).astype(codes.dtype)
    np.testing.assert_array_equal(found.astype(np.float32), halved.astype(np.float32))


ATOMICS = [
    *((kind, dtype) for kind in ("max", "min") for dtype in ("float64", "float16", "int64")),
    *(("or", dtype) for dtype in ("int64", "uint64", "int32")),
]


@pytest.mark.parametrize(("kind", "dtype"), ATOMICS)
def test_atomic_updates(kind, dtype):
    update = getattr(T, f"atomic_{kind}")

    @T.prim_func
    def gather(A: T.Tensor((64,), dtype), B: T.Tensor((1,), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                update(B[0], A[i])

    values = np.random.default_rng(0).permutation(np.arange(1, 65)).astype(dtype)
    found = np.array([40], dtype)
    tw.compile(gather, target="ptx:sm_80")(values, found)
    expected = {"max": 64, "min": 1, "or": 127}[kind]
    assert found[0] == expected


def test_doubles_keep_nan_in_reductions():
    @T.prim_func
    def largest(A: T.Tensor((4, 64), "float64"), B: T.Tensor((4,), "float64")):
        with T.Kernel(1, threads=64):
            rows = T.alloc_fragment((4, 64), "float64")
            result = T.alloc_fragment((4,), "float64")
            T.copy(A, rows)
            T.reduce_max(rows, result, dim=1, nan_propagate=True)
            T.copy(result, B)

    values = np.arange(256.0).reshape(4, 64)
    values[2, 5] = np.nan
    found = np.zeros(4)
    tw.compile(largest, target="ptx:sm_80")(values, found)
    np.testing.assert_array_equal(found, [63, 127, np.nan, 255])


def test_a_failed_assertion_prints_its_message_as_it_is():
    @T.prim_func
    def check(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                T.device_assert(A[i] < 5.0, "more than 50%s")

    source = tw.compile(check, target="sim:sm_80").source
    assert r'printf("device assert failed: more than 50%%s\n")' in source


def test_names_that_cuda_has_other_uses_for():
    @T.prim_func
    def exp(new: T.Tensor((128,), "float16"), unsigned: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=32):
            v1 = T.alloc_shared((128,), "float32")
            f16 = T.alloc_fragment((128,), "float32")
            for threadIdx in T.Parallel(128):
                v1[threadIdx] = T.exp(T.cast(new[threadIdx], "float32"))
            T.copy(v1, f16)
            T.copy(f16, unsigned)

    values, found = np.arange(128).astype(np.float16) / 64, np.zeros(128, np.float32)
    kernel = tw.compile(exp, target="ptx:sm_80")
    kernel(values, found)
    np.testing.assert_allclose(found, np.exp(values.astype(np.float32)), rtol=1e-6)
    assert "exp_1(const f16* __restrict__ new_1, float* __restrict__ unsigned_1)" in kernel.source


def test_what_needs_a_later_architecture_says_so():
    with pytest.raises(UnsupportedError) as caught:
        tw.compile(matmul(128, 128, 64, "bfloat16", out_dtype="bfloat16"), target="cuda:sm_75")
    assert "sm_75" in str(caught.value)


def test_a_shared_tile_that_nothing_uses() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            unused = T.alloc_shared((64,), "int32")
            for i in T.Parallel(64):
                A[i] = i

    found = np.zeros(64, np.int32)
    tw.compile(kernel, target="ptx:sm_80")(found)
    np.testing.assert_array_equal(found, np.arange(64))
