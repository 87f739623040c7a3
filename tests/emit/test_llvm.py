"""Hand-written CPU-stage programs: native code at every level against the simulator."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest

from tileworkbench.compiler.device.host.launch import Launcher
from tileworkbench.compiler.device.host.llvm import native_target
from tileworkbench.compiler.device.host.native import build_native
from tileworkbench.compiler.diagnostics import DeviceAssertError, UnsupportedError
from tileworkbench.compiler.emit.llvm.isa import isa_from_features
from tileworkbench.compiler.emit.llvm.program import generate
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.sim.simulate import simulate
from tileworkbench.language.dtypes import SCALARS


def host_levels() -> list[str]:
    found = []
    for level in ("native", "avx2", "generic"):
        try:
            native_target(level)
        except UnsupportedError:
            continue
        found.append(level)
    return found


def run(program: Program, arguments: dict[str, np.ndarray | int | float], level: str) -> None:
    """Execute in place, natively."""
    target = native_target(level)
    module = generate(program, isa_from_features(dict.fromkeys(target.features, True)))
    slots = []
    for param in program.params:
        value = arguments[param.name]
        if isinstance(param.value, Buffer):
            slots.append(value.ctypes.data)
        elif param.value.dtype == "float32":
            slots.append(struct.unpack("<I", struct.pack("<f", value))[0])
        else:
            slots.append(int(value))
    messages = [message for message, _ in module.assertions]
    built = build_native(module.text, [launch.entry for launch in module.launches], target)
    for launch in module.launches:
        function = built.functions[launch.entry]
        launcher = Launcher(
            function, program.name, len(slots), module.scratch_bytes, assertions=messages
        )
        launcher(slots, launch.blocks.value)


def agree(text: str, level: str, **arguments: np.ndarray | int | float) -> dict[str, np.ndarray]:
    """Run natively and in the simulator; every array must come out equal, bit by bit."""
    program = parse(text)
    verify(program)
    mine = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    run(program, mine, level)
    expected = simulate(program, arguments).arrays
    for name, array in expected.items():
        np.testing.assert_array_equal(mine[name], array, err_msg=f"{name} at {level}")
    return mine


def kernel(params: str, body: str, blocks: int = 1, header: str = "") -> str:
    indented = "\n".join("        " + line for line in body.strip("\n").splitlines())
    return (
        f'@T.program(stage="cpu"{header})\ndef f(\n{params}\n):\n'
        f"    for block in T.blocks({blocks}):\n{indented}\n"
    )


LEVELS = pytest.mark.parametrize("level", host_levels())
RNG = np.random.default_rng(0)


def floats(size: int) -> np.ndarray:
    return RNG.standard_normal(size).astype(np.float32)


X_Y = '    X: T.Tensor((64,), "float32"),\n    Y: T.Tensor((64,), "float32"),'


@LEVELS
def test_masked_vector_loads_and_stores(level: str) -> None:
    body = """
for v in T.vectorized(16):
    at = block * 16 + v
    T.store(Y[at], T.load(X[at], at < 50, 7.0), at >= 3)
"""
    agree(kernel(X_Y, body, 4), level, X=floats(64), Y=floats(64))


@LEVELS
def test_scalar_predicates_guard_memory(level: str) -> None:
    body = """
for i in T.serial(-4, 80):
    T.store(Y[i], T.load(X[i + 2], i + 2 < 64 and i + 2 >= 0) * 2.0, i >= 0 and i < 64)
"""
    agree(kernel(X_Y, body), level, X=floats(64), Y=floats(64))


@LEVELS
@pytest.mark.parametrize("lanes", [2, 8, 16, 32, 64])
def test_gather_scatter_reverse_and_broadcast(level: str, lanes: int) -> None:
    body = f"""
for v in T.vectorized({lanes}):
    Y[63 - v] = X[v * 17 % 64] + X[3]
"""
    agree(kernel(X_Y, body), level, X=floats(64), Y=floats(64))


@LEVELS
def test_lazy_selects_read_only_the_chosen_side(level: str) -> None:
    body = """
own = T.alloc_local((8,), "float32")
for i in T.serial(8):
    own[i] = X[i]
for i_1 in T.serial(64):
    Y[i_1] = own[i_1] if i_1 < 8 else -1.0
for v in T.vectorized(16):
    X[v] = T.load(own[v], v < 8, 3.0) if v < 8 else X[v + 16]
"""
    agree(kernel(X_Y, body), level, X=floats(64), Y=floats(64))


@LEVELS
def test_loops_that_end_early(level: str) -> None:
    body = """
n = T.alloc_var("int32", 0)
for i in T.serial(64):
    if X[i] > 1.5:
        break
    if X[i] < 0.0:
        continue
    n[()] = n[()] + 1
while n[()] > 3 and n[()] < 100:
    n[()] = n[()] - 2
Y[0] = T.float32(n[()])
for i_1 in T.serial(10, 0, -3):
    Y[i_1] = T.float32(i_1)
for i_2 in T.unroll(4):
    Y[20 + i_2] = X[i_2] * T.float32(i_2)
for i_3 in T.serial(5, 5):
    Y[40] = 99.0
"""
    agree(kernel(X_Y, body), level, X=floats(64), Y=floats(64))


@LEVELS
def test_values_are_hoisted_but_loads_are_not(level: str) -> None:
    body = """
for i in T.serial(8):
    first = X[0]
    X[0] = first + T.float32(block * 3 + 1)
    for j in T.serial(4):
        Y[i * 4 + j] = X[0] + T.float32((block + 1) * 5) + T.float32(i * 7)
    X[0] = X[0] * 0.5
"""
    agree(kernel(X_Y, body), level, X=floats(64), Y=floats(64))


@LEVELS
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_integer_arithmetic_wraps_and_divides(level: str, dtype: str) -> None:
    params = f'    A: T.Tensor((16,), "{dtype}"),\n    B: T.Tensor((16,), "{dtype}"),\n'
    params += f'    C: T.Tensor((160,), "{dtype}"),'
    operations = [
        "{a} + {b}",
        "{a} - {b}",
        "{a} * {b}",
        "{a} // {b}",
        "{a} % {b}",
        "T.truncdiv({a}, {b})",
        "T.truncmod({a}, {b})",
        "T.min({a}, {b})",
        "{a} & {b} | {a} ^ {b}",
        "~{a}",
    ]
    body = "for v in T.vectorized(16):\n"
    for row, operation in enumerate(operations):
        body += f"    C[{16 * row} + v] = {operation.format(a='A[v]', b='B[v]')}\n"
    info = np.iinfo(dtype)
    a = RNG.integers(info.min, info.max, 16, dtype=dtype, endpoint=True)
    b = RNG.integers(info.min, info.max, 16, dtype=dtype, endpoint=True)
    b[b == 0] = 3
    b[:4] = [1, 2, 3, 7]
    agree(kernel(params, body), level, A=a, B=b, C=np.zeros(160, dtype))
    scalar = body.replace("T.vectorized(16)", "T.serial(16)")
    agree(kernel(params, scalar), level, A=a, B=b, C=np.zeros(160, dtype))


@LEVELS
def test_no_division_traps(level: str) -> None:
    params = '    A: T.Tensor((4,), "int32"),\n    B: T.Tensor((4,), "int32"),'
    body = "for i in T.serial(4):\n    A[i] = A[i] // B[i] + A[i] % B[i] + T.truncdiv(A[i], B[i])\n"
    least = np.iinfo(np.int32).min
    a = np.array([5, least, 0, least], np.int32)
    b = np.array([0, -1, 0, 0], np.int32)
    run(parse(kernel(params, body)), {"A": a, "B": b}, level)
    body = "for i in T.serial(4):\n    A[i] = (i + 4) // (B[i] & 3)\n"  # from 0 on
    run(parse(kernel(params, body)), {"A": a, "B": b}, level)


@LEVELS
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize(
    ("number", "natural"),
    [
        ("block * 16 + i", True),
        ("i - 8", False),  # below zero
        ("A[i]", False),  # any
        ("A[i] % 40", True),  # rounded down, so from 0 to 39
    ],
)
def test_natural_numbers_are_divided_without_rounding_down(
    level: str, kind: str, number: str, natural: bool
) -> None:
    params = '    A: T.Tensor((64,), "int32"),\n    C: T.Tensor((256,), "int32"),'
    body = f"""
for i in T.{kind}(16):
    C[block * 16 + i] = ({number}) // 7 * 100 + ({number}) % 28
"""
    text = kernel(params, body, 2)
    numbers = RNG.integers(-1000, 1000, 64, dtype=np.int32)
    agree(text, level, A=numbers, C=np.zeros(256, np.int32))
    written = generate(parse(text), isa_from_features({"avx2": True})).text
    assert (" udiv " in written) == natural
    assert (" sdiv " in written) != natural


@LEVELS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_round_after_every_operation(level: str, dtype: str) -> None:
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    params = f'    A: T.Tensor((16,), "{dtype}"),\n    B: T.Tensor((16,), "{dtype}"),\n'
    params += f'    C: T.Tensor((32,), "{dtype}"),\n    D: T.Tensor((16,), "float32"),'
    body = f"""
for v in T.vectorized(16):
    C[v] = (A[v] + B[v]) * A[v] - B[v]
    C[16 + v] = T.{dtype}(T.float32(A[v]) + T.float32(B[v])) / B[v]
    D[v] = T.float32(T.max(A[v], B[v]))
"""
    a, b = floats(16).astype(kind), floats(16).astype(kind)
    arrays = {"A": a, "B": b, "C": np.zeros(32, kind), "D": np.zeros(16, np.float32)}
    agree(kernel(params, body), level, **arrays)


CASTS = [
    ("float32", "int32"),
    ("float32", "uint8"),
    ("float64", "float32"),
    ("int32", "float32"),
    ("int64", "int8"),
    ("uint8", "int16"),
    ("int8", "uint32"),
    ("bool", "float32"),
    ("int32", "bool"),
    ("float32", "bool"),
    ("bfloat16", "float64"),
    ("float32", "float16"),
]


@LEVELS
@pytest.mark.parametrize(("source", "target"), CASTS)
def test_casts(level: str, source: str, target: str) -> None:
    params = f'    A: T.Tensor((16,), "{source}"),\n    C: T.Tensor((17,), "{target}"),'
    body = f"for v in T.vectorized(16):\n    C[v] = T.{target}(A[v])\nC[16] = T.{target}(A[3])\n"

    def numpy(name: str) -> np.dtype:
        return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)

    values = np.array([0, 1, -1, 2, 3.7, -3.7, 100, -100, 0.5, 0, 1, 5, 6, 7, 8, 9])
    if target.startswith("u"):
        values = np.abs(values)
    array = values.astype(numpy(source))
    agree(kernel(params, body), level, A=array, C=np.zeros(17, numpy(target)))


@LEVELS
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize(
    "target", [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
def test_float_to_int_saturates(level: str, source: str, target: str) -> None:
    least, most = (int(limit) for limit in (np.iinfo(target).min, np.iinfo(target).max))
    inside = [0.0, -0.0, 0.9, -0.9, 2.9, 100.5, float(np.nextafter(np.dtype(source).type(most), 0))]
    beyond = [most + 1.0, 2.0 * most, 1e20, np.inf, 1e30, least - 1e19, -1e20, -np.inf, np.nan]
    values = np.array([*inside, *beyond], source)
    expected = [int(value) for value in values[: len(inside)]] + [most] * 5 + [least] * 3 + [0]
    params = f'    A: T.Tensor((16,), "{source}"),\n    C: T.Tensor((17,), "{target}"),'
    body = f"for v in T.vectorized(16):\n    C[v] = T.{target}(A[v])\nC[16] = T.{target}(A[10])\n"
    c = np.zeros(17, target)
    run(parse(kernel(params, body)), {"A": values, "C": c}, level)
    assert c.tolist() == [*expected, most]


@LEVELS
def test_rounding_of_ties(level: str) -> None:
    body = """
for v in T.vectorized(16):
    Y[v] = T.round(X[v])
    Y[16 + v] = T.nearbyint(X[v])
    Y[32 + v] = T.floor(X[v]) + T.ceil(X[v]) * 8.0 + T.trunc(X[v]) * 64.0
"""
    ties = np.arange(-4, 4, 0.5, dtype=np.float32)
    agree(kernel(X_Y, body), level, X=np.resize(ties, 64), Y=floats(64))


@LEVELS
@pytest.mark.parametrize("name", ["sum", "max", "min", "max_nan", "min_nan"])
def test_float_lanes_combine(level: str, name: str) -> None:
    body = f"Y[0] = T.lanes_{name}(X[T.Ramp(0, 1, 32)])\n"
    values = np.arange(64, dtype=np.float32)
    agree(kernel(X_Y, body), level, X=values, Y=floats(64))
    values[5] = np.nan
    agree(kernel(X_Y, body), level, X=values, Y=floats(64))


@LEVELS
@pytest.mark.parametrize("name", ["sum", "max", "min", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_integer_lanes_combine(level: str, name: str, dtype: str) -> None:
    params = f'    X: T.Tensor((32,), "{dtype}"),\n    Y: T.Tensor((1,), "{dtype}"),'
    body = f"Y[0] = T.lanes_{name}(X[T.Ramp(0, 1, 32)])\n"
    info = np.iinfo(dtype)
    values = RNG.integers(info.min, info.max, 32, dtype=dtype)
    agree(kernel(params, body), level, X=values, Y=np.zeros(1, dtype))


@LEVELS
def test_reinterpret_reads_the_same_bits(level: str) -> None:
    params = '    X: T.Tensor((8,), "float32"),\n    Y: T.Tensor((8,), "int32"),'
    body = 'for v in T.vectorized(8):\n    Y[v] = T.reinterpret(X[v], "int32") >> 23\n'
    agree(kernel(params, body), level, X=floats(8), Y=np.zeros(8, np.int32))


@LEVELS
def test_scalar_arguments_and_scratch(level: str) -> None:
    params = X_Y + "\n    s: T.float32,\n    n: T.int32,"
    body = """
tile = T.alloc_shared((16,), "float32", offset=64)
for v in T.vectorized(16):
    tile[v] = X[block * 16 + v] * s
for v_1 in T.vectorized(16):
    T.store(Y[block * 16 + v_1], tile[15 - v_1], block * 16 + v_1 < n)
"""
    text = kernel(params, body, 4, ", scratch_bytes=128")
    agree(text, level, X=floats(64), Y=floats(64), s=-1.5, n=-3)
    agree(text, level, X=floats(64), Y=floats(64), s=0.25, n=37)


@LEVELS
def test_packed_product(level: str) -> None:
    params = '    A: T.Tensor((15,), "float32"),\n    B: T.Tensor((20,), "float32"),\n'
    params += '    C: T.Tensor((12,), "float32"),'
    nr = {"avx512": 16, "avx2": 8}.get(isa_name(level), 4)
    body = f"""
a = T.alloc_shared((15,), "float32", offset=0)
b = T.alloc_shared(({5 * nr},), "float32", offset=64)
T.pack_a(T.address_of(A[0]), T.address_of(a[0]), rows=3, cols=5, row_stride=5, col_stride=1, \
valid_rows=3, valid_cols=4, width=1, group=1)
T.pack_b(T.address_of(B[0]), T.address_of(b[0]), rows=4, cols=5, row_stride=1, col_stride=4, \
valid_rows=4, valid_cols=5, width={nr}, group=1)
T.micro_gemm(T.address_of(a[0]), T.address_of(b[0]), T.address_of(C[0]), lda=5, columns=False, \
ldc=4, m=3, n=4, k=5, mr=3, nr={nr}, group=1, clear=block == 1, isa="{isa_name(level)}")
"""
    text = kernel(params, body, 1, ", scratch_bytes=1024")
    a = np.arange(15, dtype=np.float32)
    b = np.arange(20, dtype=np.float32) - 7
    out = agree(text, level, A=a, B=b, C=np.ones(12, np.float32))
    cut = a.reshape(3, 5).copy()
    cut[:, 4:] = 0
    np.testing.assert_array_equal(out["C"].reshape(3, 4), cut @ b.reshape(5, 4) + 1)


def isa_name(level: str) -> str:
    return isa_from_features(dict.fromkeys(native_target(level).features, True)).level


@LEVELS
def test_several_launches_run_in_order(level: str) -> None:
    text = (
        f'@T.program(stage="cpu")\ndef f(\n{X_Y}\n):\n'
        "    for block in T.blocks(4):\n        Y[block] = X[block] + 1.0\n"
        "    for block_1 in T.blocks(4):\n        X[block_1] = Y[3 - block_1] * 2.0\n"
    )
    agree(text, level, X=floats(64), Y=floats(64))


@LEVELS
def test_a_failed_assertion_stops_the_launch(level: str) -> None:
    body = """
for i in T.serial(8):
    T.device_assert(X[i] > 0.0, "positive please")
    Y[i] = X[i]
"""
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    x[3] = -1
    with pytest.raises(DeviceAssertError, match="'f': device assertion failed: positive please"):
        run(parse(kernel(X_Y, body)), {"X": x, "Y": y}, level)
    assert y[:5].tolist() == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("name", SCALARS)
def test_every_dtype_has_native_code(name: str) -> None:
    params = f'    X: T.Tensor((8,), "{name}"),\n    Y: T.Tensor((8,), "{name}"),'
    generate(parse(kernel(params, "Y[1] = X[0]\n")), isa_from_features({}))


def test_generation_is_deterministic() -> None:
    body = "for v in T.vectorized(16):\n    Y[v] = T.exp(X[v]) + T.exp(X[v + 16])\n"
    program, isa = parse(kernel(X_Y, body)), isa_from_features({})
    assert generate(program, isa).text == generate(program, isa).text


def test_an_index_bound_by_a_let_stays_contiguous() -> None:
    body = "for v in T.vectorized(16):\n    at = block * 16 + v\n    Y[at] = X[at + 1]\n"
    text = generate(parse(kernel(X_Y, body)), isa_from_features({})).text
    assert "gather" not in text and "scatter" not in text


@LEVELS
def test_a_single_column_is_packed_row_by_row(level: str) -> None:
    """Both strides are 1, and only one of them says how the rows lie."""
    params = '    A: T.Tensor((3,), "float16"),\n    C: T.Tensor((3,), "float32"),'
    body = (
        "T.pack_a(T.address_of(A[0]), T.address_of(C[0]), rows=3, cols=1, row_stride=1, "
        "col_stride=1, valid_rows=3, valid_cols=1, width=1, group=1)\n"
    )
    a = np.array([1, 2, 3], np.float16)
    out = agree(kernel(params, body), level, A=a, C=np.zeros(3, np.float32))
    assert out["C"].tolist() == [1, 2, 3]


def test_rows_of_columns_have_no_packing() -> None:
    params = '    A: T.Tensor((15,), "float32"),\n    C: T.Tensor((15,), "float32"),'
    body = (
        "T.pack_a(T.address_of(A[0]), T.address_of(C[0]), rows=3, cols=5, row_stride=1, "
        "col_stride=3, valid_rows=3, valid_cols=5, width=1, group=1)\n"
    )
    with pytest.raises(TypeError, match="a compact copy of rows needs columns of unit stride"):
        generate(parse(kernel(params, body)), isa_from_features({}))
