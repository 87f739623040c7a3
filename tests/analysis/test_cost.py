"""Operations and bytes of kernels against counts made by hand."""

from __future__ import annotations

import math

from tests.sim.pipelines import roles
from tileworkbench.compiler.analysis.cost import Count, count_work
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.kernels import flash_attention


def test_a_matmul_is_two_operations_per_product_and_touches_each_tensor_once() -> None:
    work = count_work(
        parse("""
@T.program(stage="tile")
def matmul(
    A: T.Tensor((256, 64), "float16"),
    B: T.Tensor((64, 512), "float16"),
    C: T.Tensor((256, 512), "float32"),
):
    with T.Kernel(4, 2, threads=128) as (bx, by):
        A_shared = T.alloc_shared((128, 32), "float16")
        B_shared = T.alloc_shared((32, 128), "float16")
        C_local = T.alloc_fragment((128, 128), "float32")
        T.fill(C_local, 0.0)
        for k in T.Pipelined(2, num_stages=3):
            T.copy(A[by * 128:by * 128 + 128, k * 32:k * 32 + 32], A_shared)
            T.copy(B[k * 32:k * 32 + 32, bx * 128:bx * 128 + 128], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * 128:by * 128 + 128, bx * 128:bx * 128 + 128])
""")
    )
    assert work.flops == Count(2.0 * 256 * 512 * 64, "2*128*128*32*2*4*2")
    assert work.bytes_.value == 2 * 256 * 64 + 2 * 64 * 512 + 4 * 256 * 512
    assert work.bytes_.formula == "2*256*64 + 2*64*512 + 4*256*512"
    # Each of 4 columns of blocks reads A again, each of 2 rows B.
    assert work.moved_bytes.value == 4 * 2 * 256 * 64 + 2 * 2 * 64 * 512 + 4 * 256 * 512
    assert [tensor.name for tensor in work.tensors] == ["A", "B", "C"]
    assert work.tensors[2].read.value == 0
    assert work.transcendentals == Count(0, "0")
    assert work.intensity == work.flops.value / work.bytes_.value


SOFTMAX = """
@T.program(stage="tile", symbols={"m": "int32"})
def softmax(
    A: T.Tensor((m, 100), "float32"),
    B: T.Tensor((m, 100), "float32"),
):
    with T.Kernel((m + 7) // 8, threads=128) as bx:
        X = T.alloc_fragment((8, 100), "float32")
        top = T.alloc_fragment((8,), "float32")
        T.copy(A[bx * 8:bx * 8 + 8, 0:100], X)
        T.reduce_max(X, top, dim=1)
        for i, j in T.Parallel(8, 100):
            X[i, j] = T.exp(X[i, j] - top[i])
        T.copy(X, B[bx * 8:bx * 8 + 8, 0:100])
"""


def test_symbols_stay_in_the_formula() -> None:
    work = count_work(parse(SOFTMAX))
    assert math.isnan(work.flops.value)
    assert work.flops.formula == "3*8*100*ceildiv(m, 8)"
    assert work.transcendentals.formula == "8*100*ceildiv(m, 8)"
    assert work.bytes_.formula == "8*m*100"
    assert work.moved_bytes.formula == "8*8*100*ceildiv(m, 8)"


def test_a_value_for_the_symbol_gives_a_number() -> None:
    text = SOFTMAX.replace("(m,", "(13,").replace("(m + 7)", "(13 + 7)")
    work = count_work(parse(text.replace(', symbols={"m": "int32"}', "")))
    assert work.flops.value == 3 * 8 * 100 * 2
    assert work.bytes_.value == 2 * 4 * 13 * 100


def test_a_triangular_loop_counts_with_its_mean_length() -> None:
    work = count_work(
        parse("""
@T.program(stage="tile")
def causal(
    A: T.Tensor((64, 64), "float32"),
):
    with T.Kernel(8, threads=128) as bx:
        for k in T.serial(bx + 1):
            for i in T.Parallel(16):
                A[bx, k] = A[bx, k] * 2.0
""")
    )
    assert work.flops.value == 16 * sum(range(1, 9))


def test_a_bound_that_has_a_name_is_its_value() -> None:
    """Blocks of causal attention see one, two, ... tiles of keys: 2.5 of four in the mean."""
    whole, causal = (
        count_work(flash_attention(1, 2, 256, 256, 64, dtype="float16", causal=each).program)
        for each in (False, True)
    )
    products = 4 * 64 * 64 * 64 * 4 * 2  # two of 64 x 64 x 64 for a tile of keys
    assert math.isfinite(causal.flops.value)
    assert 1.5 * products < whole.flops.value - causal.flops.value < 1.6 * products
    assert causal.bytes_.value == whole.bytes_.value  # the last block sees all keys


def test_of_a_branch_the_larger_side_counts_and_indices_are_free() -> None:
    work = count_work(
        parse("""
@T.program(stage="tile")
def branch(
    A: T.Tensor((64,), "float32"),
):
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(64):
            if i * 3 + 1 < 40:
                A[i] = A[63 - i]
            else:
                A[i] = T.fma(A[i], A[i], T.sqrt(A[i * 2 - 64]))
""")
    )
    assert work.flops.value == 64 * 3
    assert work.transcendentals.value == 0


def test_what_threads_do_differently_counts_for_each_of_them() -> None:
    work = count_work(
        parse("""
@T.program(stage="tile")
def threads(
    A: T.Tensor((4, 64), "float32"),
):
    with T.Kernel(4, threads=(32, 2), thread_vars=["tx", "ty"]) as bx:
        A[bx, ty * 32 + tx] = A[bx, ty * 32 + tx] * 2.0
        A[bx, 0] = 1.0
        for i in T.Parallel(64):
            A[bx, i] = A[bx, i] + 1.0
""")
    )
    assert work.flops.value == 4 * (64 + 64)
    assert work.moved_bytes.value == 4 * 4 * (64 * 2 + 1 + 64 * 2)
    assert work.bytes_.value == 2 * 4 * 4 * 64


def test_a_quotient_of_a_name_touches_the_whole_extent() -> None:
    work = count_work(
        parse("""
@T.program(stage="tile")
def unpack(
    B: T.Tensor((4, 32), "uint8"),
    Y: T.Tensor((4, 64), "int32"),
):
    with T.Kernel(4, threads=128) as bx:
        for j in T.Parallel(64):
            k = j + 0 * bx
            Y[bx, j] = T.int32(B[bx, k // 2])
""")
    )
    assert work.bytes_.value == 4 * 32 + 4 * 4 * 64


def test_what_roles_do_counts():
    work = count_work(roles().program)
    assert work.flops.value == 2 * 64 * 64 * 256
    assert {each.name: each.moved.value for each in work.tensors} == {
        "A": 64 * 256 * 2,
        "B": 256 * 64 * 2,
        "C": 64 * 64 * 4,
    }


def test_what_lanes_exchange_is_read() -> None:
    work = count_work(
        parse("""
@T.program(stage="tile")
def total(
    A: T.Tensor((64,), "float32"),
    B: T.Tensor((64,), "float32"),
):
    with T.Kernel(1, threads=64, thread_vars=["tx"]) as bx:
        t = T.warp_sum(A[tx] * 2.0)
        u = T.shfl_down(t, 1)
        B[tx] = t + u
""")
    )
    assert work.flops.value == 64 * (1 + 1 + 1)
    assert {each.name: each.read.value for each in work.tensors} == {"A": 64 * 4, "B": 0}


def test_what_is_printed_is_read() -> None:
    work = count_work(
        parse("""
@T.program(stage="tile")
def printed(
    A: T.Tensor((64,), "float32"),
    B: T.Tensor((64,), "float32"),
):
    with T.Kernel(1, threads=32) as bx:
        for i in T.Parallel(64):
            A[i] = 1.0
            T.print("A = ", A[i] + B[i], "")
""")
    )
    assert [tensor.read.value for tensor in work.tensors] == [256, 256]
    assert work.flops.value == 0  # it is not the kernel's work
