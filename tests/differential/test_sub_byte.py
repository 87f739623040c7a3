"""Elements of less than a byte, and scale factors: packed in global memory, converted, computed."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import ml_dtypes
import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tests.differential.harness import check_everywhere, equals, random_array, run_native
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import ArgumentError, RunError, TileValueError
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alias
from tileworkbench.compiler.sim import simulate

CARRIER = {"int4": np.int8, "uint4": np.uint8, "float4_e2m1fn": np.uint8}
SMALL = ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"]


def unpack(packed, name):
    """One element per place, the low half of each byte first."""
    halves = packed.view(np.uint8)
    halves = np.stack([halves & 15, halves >> 4], -1).reshape(*packed.shape[:-1], -1)
    if name == "int4":
        return ((halves ^ 8).astype(np.int8) - 8).astype(np.int8)
    return halves if name == "uint4" else halves.view(ml_dtypes.float4_e2m1fn)


def pack(elements, name):
    """Two elements per byte."""
    halves = np.ascontiguousarray(elements).view(np.uint8) & 15
    return (halves[..., 0::2] | halves[..., 1::2] << 4).view(CARRIER[name])


def random_packed(shape, name, seed=0):
    return random_array(shape, "uint8", seed).view(CARRIER[name])


@pytest.mark.parametrize("name", CARRIER)
def test_copies_between_all_scopes(name):
    a = random_packed((40, 24), name)

    @T.prim_func
    def kernel(A: T.Tensor((40, 48), name)):
        B = T.empty((40, 48), name)
        C = T.empty((48, 40), name)
        D = T.empty((40, 48), "float32")
        with T.Kernel(3, 2, threads=64) as (bx, by):
            S = T.alloc_shared((32, 16), name)
            F = T.alloc_fragment((32, 16), name)
            T.copy(A[by * 32, bx * 16], S)
            T.copy(S, F)
            T.copy(F, B[by * 32, bx * 16])
            for i, j in T.Parallel(32, 16):
                C[bx * 16 + j, by * 32 + i] = S[i, j]
            T.copy(A[by * 32, bx * 16], D[by * 32 : by * 32 + 32, bx * 16 : bx * 16 + 16])
        return B, C, D

    elements = unpack(a, name)
    expected = equals(B=elements, C=elements.T, D=elements.astype(np.float32))
    packed = equals(B=a, C=pack(elements.T, name), D=elements.astype(np.float32))

    def check(arrays):
        (expected if arrays["B"].shape == (40, 48) else packed)(arrays)

    check_everywhere(kernel, {"A": a}, check)


@pytest.mark.parametrize("name", CARRIER)
def test_elements_at_odd_places(name):
    a = random_packed((3, 16), name)

    @T.prim_func
    def kernel(A: T.Tensor((3, 32), name), B: T.Tensor((3, 32), name), n: T.int32):
        with T.Kernel(3, threads=32) as bx:
            for i in T.Parallel(21):
                B[bx, i + 3] = A[bx, i + 2]
            for i in T.Parallel(8):
                if i < n:
                    B[bx, 31 - i] = A[bx, i * 3 % 32]
            B[bx, n - 5] = A[bx, n]

    old, elements = unpack(np.zeros((3, 16), CARRIER[name]), name), unpack(a, name)
    new = old.copy()
    new[:, 3:24] = elements[:, 2:23]
    new[:, 31:26:-1] = elements[:, 0:15:3]
    new[:, 0] = elements[:, 5]
    arguments = {"A": a, "B": pack(old, name), "n": 5}
    check_everywhere(kernel, arguments, equals(B=pack(new, name)))


def test_four_bit_integers_wrap():
    pairs = np.array([[(x, y) for y in range(16)] for x in range(16)], np.uint8).reshape(256, 2)
    a, b = pack(pairs[:, 0], "int4"), pack(pairs[:, 1], "int4")
    operations = 12

    @T.prim_func
    def kernel(A: T.Tensor((256,), "int4"), B: T.Tensor((256,), "int4")):
        S = T.empty((operations, 256), "int8")
        U = T.empty((operations, 256), "uint8")
        with T.Kernel(1, threads=64):
            for i in T.Parallel(256):
                x, y = A[i], B[i]
                S[0, i] = x + y
                S[1, i] = x - y
                S[2, i] = x * y
                S[3, i] = T.max(x, y)
                S[4, i] = x & y
                S[5, i] = -x
                S[6, i] = ~x
                S[7, i] = T.abs(x)
                S[8, i] = T.if_then_else(y != T.int4(0), x // T.max(y, T.int4(1)), x)
                S[9, i] = x >> (y & T.int4(3))
                S[10, i] = T.cast(x, "float32") * 1.5
                S[11, i] = T.cast(T.cast(x, "float32") * 1.5, "int4")
                p, q = T.reinterpret(x, "uint4"), T.reinterpret(y, "uint4")
                U[0, i] = p + q
                U[1, i] = p - q
                U[2, i] = p * q
                U[3, i] = T.max(p, q)
                U[4, i] = p | q
                U[5, i] = p ^ q
                U[6, i] = ~p
                U[7, i] = T.cast(x, "uint4")
                U[8, i] = p // T.max(q, T.uint4(1))
                U[9, i] = p << (q & T.uint4(3))
                U[10, i] = T.cast(T.cast(p, "float32") * 1.5, "uint4")
                U[11, i] = T.cast(x + y, "uint8")
        return S, U

    x, y = (unpack(v, "int4").astype(np.int64) for v in (a, b))
    p, q = x & 15, y & 15

    def signed(values):
        return ((np.asarray(values, np.int64) + 8) & 15) - 8

    half = np.trunc(x * 1.5)
    floor = signed(np.where(y == 0, x, x // np.maximum(y, 1)))
    i = [signed(x + y), signed(x - y), signed(x * y), np.maximum(x, y), x & y, signed(-x), ~x]
    i += [signed(abs(x)), floor, x >> (y & 3), half, np.clip(half, -8, 7)]
    u = [p + q, p - q, p * q, np.maximum(p, q), p | q, p ^ q, ~p, p, p // np.maximum(q, 1)]
    u = [np.asarray(row) & 15 for row in [*u, p << (q & 3)]]
    u += [np.clip(np.trunc(p * 1.5), 0, 15), signed(x + y)]
    expected = equals(S=np.array(i).astype(np.int8), U=np.array(u, np.int64).astype(np.uint8))
    check_on_all(kernel, {"A": a, "B": b}, expected)


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_product_of_four_bit_integers(name):
    a, b = (random_packed((64, 32), name, seed) for seed in (1, 2))

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), name), B: T.Tensor((64, 64), name)):
        C = T.empty((64, 64), "int32")
        with T.Kernel(2, 2, threads=64) as (bx, by):
            X = T.alloc_shared((32, 32), name)
            Y = T.alloc_shared((32, 32), name)
            acc = T.alloc_fragment((32, 32), "int32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[by * 32, k * 32], X)
                T.copy(B[bx * 32, k * 32], Y)
                T.gemm(X, Y, acc, transpose_B=True)
            T.copy(acc, C[by * 32, bx * 32])
        return C

    left, right = (unpack(v, name).astype(np.int32) for v in (a, b))
    check_everywhere(kernel, {"A": a, "B": b}, equals(C=left @ right.T))


def saturated(values, dtype):
    limit = float(ml_dtypes.finfo(dtype).max)
    return np.clip(np.nan_to_num(values.astype(np.float32), nan=limit), -limit, limit).astype(dtype)


@pytest.mark.parametrize("name", SMALL)
def test_every_code_and_every_rounding(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    count = 1 << T.dtype(name).bits
    codes = np.resize(np.arange(count, dtype=np.uint8), 64).view(dtype)
    exact = np.sort(np.unique(codes.astype(np.float32)))
    middles = (exact[1:] + exact[:-1]) / 2
    near = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    extremes = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30], np.float32)
    values = np.resize(np.concatenate([exact, middles, *near, extremes]).astype(np.float32), 512)

    @T.prim_func
    def kernel(C: T.Tensor((64,), name), A: T.Tensor((512,), "float32")):
        W = T.empty((64,), "float32")
        N = T.empty((512,), "float32")
        with T.Kernel(1, threads=128):
            small = T.alloc_shared((512,), name)
            T.copy(C, W)
            T.copy(A, small)
            T.copy(small, N)
        return W, N

    stored = pack(codes, "uint4") if T.dtype(name).bits == 4 else codes
    narrow = saturated(values, dtype).astype(np.float32)
    expected = equals(W=codes.astype(np.float32), N=narrow)
    check_on_all(kernel, {"C": stored, "A": values}, expected)


def test_scale_factors_are_powers_of_two():
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    values = np.array(
        [0.0, 1.0, 1.4, 1.5, 1.6, 3.0, -6.0, 1e-40, 2.0**-127, 3e38, np.inf, np.nan], np.float32
    )
    nearest = [2.0**-127, 1, 1, 2, 2, 4, 8, 2.0**-127, 2.0**-127, 2.0**127, 2.0**127, np.nan]

    @T.prim_func
    def kernel(C: T.Tensor((256,), "float8_e8m0fnu"), A: T.Tensor((12,), "float32")):
        W = T.empty((256,), "float32")
        N = T.empty((12,), "float8_e8m0fnu")
        P = T.empty((16,), "float32")
        with T.Kernel(1, threads=128):
            T.copy(C, W)
            T.copy(A, N)
            for i in T.Parallel(16):  # an element outside is the least one
                P[i] = T.cast(C[i + 250], "float32") + T.cast(T.float8_e8m0fnu(3.0), "float32")
        return W, N, P

    wide = codes.astype(np.float32)
    outside = np.append(wide[250:], np.full(10, 2.0**-127, np.float32)) + np.float32(4)
    expected = equals(
        W=wide, N=np.array(nearest).astype(ml_dtypes.float8_e8m0fnu), P=outside.astype(np.float32)
    )
    check_everywhere(kernel, {"C": codes, "A": values}, expected)


@pytest.mark.parametrize("name", CARRIER)
def test_dynamic_extents_and_torch_tensors(name):
    M, N = T.dynamic("M, N")

    @T.prim_func
    def kernel(A: T.Tensor((M, N), name)):
        B = T.empty((M, N), name)
        with T.Kernel(T.ceildiv(N, 32), M, threads=32) as (bx, by):
            for i in T.Parallel(32):
                B[by, bx * 32 + i] = A[by, bx * 32 + i]
        return B

    run = tw.compile(kernel, target="cpu")
    for shape in ((3, 25), (1, 1), (2, 16)):
        packed = random_packed(shape, name)
        tensor = torch.from_numpy(packed.copy())
        if name.startswith("float"):
            tensor = tensor.view(torch.float4_e2m1fn_x2)
        found = run(tensor)
        assert found.dtype == tensor.dtype
        np.testing.assert_array_equal(found.view(torch.uint8).numpy(), packed.view(np.uint8))
        simulated = simulate(kernel.program, {"A": tensor}).arrays["B"]
        np.testing.assert_array_equal(pack(simulated, name), packed)


def test_arguments_that_do_not_hold_packed_elements():
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "int4")):
        with T.Kernel(1, threads=32):
            T.clear(A)

    run = tw.compile(kernel, target="cpu")
    with pytest.raises(ArgumentError) as wrong:
        run(np.zeros((4, 8), np.int32))
    assert wrong.value.message == "'kernel': 'A' has dtype 'int32', expected 'int8'"
    with pytest.raises(ArgumentError) as wrong:
        run(np.zeros((4, 8), np.int8))
    assert wrong.value.message == "'kernel': dimension 1 of 'A' is 16, expected 8"

    N = T.dynamic("N")

    @T.prim_func
    def halves(A: T.Tensor((N,), "int8")):
        B = T.empty((N,), "int4")
        with T.Kernel(1, threads=32):
            T.clear(B)
        return B

    with pytest.raises(ArgumentError) as wrong:
        tw.compile(halves, target="cpu")(np.zeros(3, np.int8))
    assert wrong.value.message == (
        "'halves': 'B' would have 3 elements of 'int4' in a row, and two of them share a byte"
    )
    with pytest.raises(TileValueError) as wrong:

        @T.prim_func
        def odd(A: T.Tensor((4, 7), "uint4")):
            with T.Kernel(1):
                T.clear(A)

    assert wrong.value.message == (
        "the last extent of 'A' is 7, and two elements of 'uint4' share a byte"
    )


def check_on_all(kernel, arguments, check):
    """On processors, on simulated threads and from PTX."""
    check_everywhere(kernel, arguments, check)
    check(run_native(kernel.program, arguments, "sim:sm_80"))
    require("nvrtc", missing_nvrtc())
    check(run_native(kernel.program, arguments, "ptx:sm_80"))


@pytest.mark.parametrize("name", CARRIER)
def test_parameters_seen_as_bytes_and_bytes_as_elements(name):
    a = random_packed((8, 16), name)

    @T.prim_func
    def kernel(A: T.Tensor((8, 16), "uint8"), P: T.Tensor((8, 32), name)):
        B = T.empty((8, 32), "float32")
        C = T.empty((8, 16), "uint8")
        with T.Kernel(2, threads=32) as bx:
            V, W = T.view(A, dtype=name), T.view(P, (8, 16), "uint8")
            for i, j in T.Parallel(4, 32):
                B[bx * 4 + i, j] = T.cast(V[bx * 4 + i, j], "float32")
            for i, j in T.Parallel(4, 16):
                C[bx * 4 + i, j] = W[bx * 4 + i, j] ^ 1
        return B, C

    bytes_ = a.view(np.uint8)
    check = equals(B=unpack(a, name).astype(np.float32), C=bytes_ ^ 1)
    check_on_all(kernel, {"A": bytes_, "P": a}, check)


@pytest.mark.parametrize("alloc", [T.alloc_shared, T.alloc_fragment])
@pytest.mark.parametrize("name", CARRIER)
def test_tiles_seen_as_bytes_and_bytes_as_elements(name, alloc):
    a = random_packed((8, 16), name)

    @T.prim_func
    def kernel(A: T.Tensor((8, 16), "uint8"), P: T.Tensor((8, 32), name)):
        B = T.empty((8, 32), "float32")
        C = T.empty((8, 16), "uint8")
        D = T.empty((8, 4), "uint32")
        with T.Kernel(2, threads=32) as bx:
            S, R = alloc((4, 16), "uint8"), alloc((4, 32), name)
            T.copy(A[bx * 4, 0], S)
            T.copy(P[bx * 4, 0], R)
            T.copy(T.view(S, dtype=name), B[bx * 4, 0])
            T.copy(T.view(R, (4, 16), "uint8"), C[bx * 4, 0])
            T.copy(T.view(R, dtype="uint32"), D[bx * 4, 0])
        return B, C, D

    bytes_ = a.view(np.uint8)
    check = equals(B=unpack(a, name).astype(np.float32), C=bytes_, D=bytes_.view(np.uint32))
    check_on_all(kernel, {"A": bytes_, "P": a}, check)


@pytest.mark.parametrize("alloc", [T.alloc_shared, T.alloc_fragment])
@pytest.mark.parametrize("name", CARRIER)
def test_views_of_tiles_are_written(name, alloc):
    a = (np.arange(256).reshape(8, 32) % 5).astype(np.float32)
    h = random_packed((8, 16), name)

    @T.prim_func
    def kernel(A: T.Tensor((8, 32), "float32"), H: T.Tensor((8, 16), "uint8")):
        B = T.empty((8, 16), "uint8")
        D = T.empty((8, 32), "float32")
        with T.Kernel(2, threads=32) as bx:
            S, R = alloc((4, 16), "uint8"), alloc((4, 32), name)
            V, W = T.view(S, dtype=name), T.view(R, (4, 16), "uint8")
            for i, j in T.Parallel(4, 32):
                V[i, j] = T.cast(A[bx * 4 + i, j], name)
            T.copy(S, B[bx * 4, 0])
            T.copy(H[bx * 4, 0], W)
            T.copy(R, D[bx * 4, 0])
        return B, D

    stored = a.astype(ml_dtypes.float4_e2m1fn if "float" in name else np.int8)
    bytes_ = pack(stored, name).view(np.uint8)
    check = equals(B=bytes_, D=unpack(h, name).astype(np.float32))
    check_on_all(kernel, {"A": a, "H": h.view(np.uint8)}, check)


def test_four_bits_of_another_kind_and_views_of_views():
    a = random_packed((8, 16), "int4")

    @T.prim_func
    def kernel(A: T.Tensor((8, 32), "int4")):
        B = T.empty((8, 32), "float32")
        C = T.empty((8, 32), "float32")
        D = T.empty((32, 8), "int32")
        with T.Kernel(2, threads=32) as bx:
            G = T.view(A, dtype="float4_e2m1fn")
            S = T.alloc_shared((4, 32), "int4")
            V = T.view(S, dtype="uint4")
            W = T.view(V, dtype="int8")
            rows = slice(bx * 4, bx * 4 + 4)
            T.copy(A[bx * 4, 0], S)
            T.copy(G[rows, :], B[rows, :])
            T.copy(V, C[bx * 4, 0])
            for i, j in T.Parallel(4, 16):
                W[i, j] = W[i, j] ^ T.int8(17)
            for i, j in T.Parallel(4, 32):
                D[j, bx * 4 + i] = S[i, j]
        return B, C, D

    changed = unpack((a.view(np.uint8) ^ 17).view(np.int8), "int4")
    check = equals(
        B=unpack(a, "float4_e2m1fn").astype(np.float32),
        C=unpack(a, "uint4").astype(np.float32),
        D=changed.T.astype(np.int32),
    )
    check_on_all(kernel, {"A": a}, check)


def test_bytes_seen_as_elements_are_operands_of_a_product():
    a, b = (random_packed((32, 32), "int4", seed).view(np.int8) for seed in (1, 2))

    @T.prim_func
    def kernel(A: T.Tensor((32, 32), "int8"), B: T.Tensor((32, 32), "int8")):
        C = T.empty((32, 32), "int32")
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((32, 32), "int8")
            R = T.alloc_shared((32, 32), "int8")
            acc = T.alloc_fragment((32, 32), "int32")
            T.copy(A, S)
            T.copy(B, R)
            left, right = T.view(S, dtype="int4"), T.view(R, dtype="int4")
            T.gemm(left, right, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)
        return C

    left, right = (unpack(v, "int4").astype(np.int32) for v in (a, b))
    check_on_all(kernel, {"A": a, "B": b}, equals(C=left @ right.T))


def test_elements_of_an_array_that_each_thread_has():
    a = random_packed((8, 8), "uint4")

    @T.prim_func
    def kernel(A: T.Tensor((8, 8), "uint8")):
        B = T.empty((8, 16), "float32")
        C = T.empty((8, 2), "uint32")
        with T.Kernel(2, threads=32) as bx:
            own = T.alloc_local((8,), "uint8")
            halves, words = T.view(own, dtype="uint4"), T.view(own, dtype="uint32")
            for i in T.Parallel(4):
                for j in T.serial(8):
                    own[j] = A[bx * 4 + i, j]
                for j in T.serial(16):
                    B[bx * 4 + i, j] = halves[j]
                for j in T.serial(8):
                    halves[2 * j] = T.uint4(5)
                for j in T.serial(2):
                    C[bx * 4 + i, j] = words[j]
        return B, C

    changed = (a & 0xF0 | 5).view(np.uint32)
    check = equals(B=unpack(a, "uint4").astype(np.float32), C=changed)
    check_on_all(kernel, {"A": a}, check)


def test_bytes_of_elements_have_no_address_in_the_simulator():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "uint4"), B: T.Tensor((4,), "uint8")):
        with T.Kernel(1, threads=1):
            bytes_ = T.view(A, dtype="uint8")
            B[0] = T.make_tensor(T.address_of(bytes_[1]), (2,), "uint8")[1]

    a = np.array([1, 2, 3, 4], np.uint8)
    arguments = {"A": a, "B": np.zeros(4, np.uint8)}
    assert run_native(kernel.program, arguments, "cpu")["B"][0] == 3
    with pytest.raises(RunError) as error:
        simulate(kernel.program, arguments)
    name = next(stmt.buffer.name for stmt in statements(kernel.program.body) if type(stmt) is Alias)
    assert error.value.message.splitlines()[0] == (
        f"'{name}' has no address in the simulator, where each 4-bit element of its memory has a "
        "byte"
    )
