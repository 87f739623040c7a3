"""Products of warpgroups: numpy, the simulator at every stage and the PTX that is made agree, to
the bit, as all numbers are small integers.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from dataclasses import dataclass

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import Check, check_on_threads, equals, run_native, storage
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Mma, Wgmma

TARGET = "sim:sm_90a"


@dataclass(frozen=True)
class Row:
    """One kernel: a block of `m` x `n`, `k` in steps of `bk`."""

    a: str = "float16"
    b: str = ""
    acc: str = "float32"
    out: str = ""
    m: int = 64
    n: int = 64
    k: int = 128
    bk: int = 64
    threads: int = 128
    trans_a: bool = False
    trans_b: bool = False
    stages: int = 2
    registers: bool = False  # A in registers
    policy: object = T.GemmWarpPolicy.Square
    clear: bool = False

    def __str__(self) -> str:
        changed = [
            f"{name}={value}" for name, value in vars(self).items() if value != getattr(Row(), name)
        ]
        return ",".join(changed) or "plain"


def kernel_of(row: Row):
    a_type, b_type = row.a, row.b or row.a
    m, n, k, bk, acc, out = row.m, row.n, row.k, row.bk, row.acc, row.out or row.acc
    trans_a, trans_b = row.trans_a, row.trans_b

    @T.prim_func
    def kernel(
        A: T.Tensor((k, m) if trans_a else (m, k), a_type),
        B: T.Tensor((n, k) if trans_b else (k, n), b_type),
        C: T.Tensor((m, n), out),
    ):
        with T.Kernel(1, threads=row.threads):
            A_shared = T.alloc_shared((bk, m) if trans_a else (m, bk), a_type)
            B_shared = T.alloc_shared((n, bk) if trans_b else (bk, n), b_type)
            A_local = T.alloc_fragment((bk, m) if trans_a else (m, bk), a_type)
            C_local = T.alloc_fragment((m, n), acc)
            if not row.clear:
                T.clear(C_local)
            for ko in T.Pipelined(k // bk, num_stages=row.stages):
                if trans_a:
                    T.copy(A[ko * bk, 0], A_shared)
                else:
                    T.copy(A[0, ko * bk], A_shared)
                if trans_b:
                    T.copy(B[0, ko * bk], B_shared)
                else:
                    T.copy(B[ko * bk, 0], B_shared)
                if row.registers:
                    T.copy(A_shared, A_local)
                left = A_local if row.registers else A_shared
                T.gemm(
                    left, B_shared, C_local, trans_a, trans_b, row.policy,
                    clear_accum=ko == 0 if row.clear else False,
                )  # fmt: skip
            T.copy(C_local, C)

    return kernel


def data(row: Row) -> tuple[dict[str, np.ndarray], Check]:
    rng = np.random.default_rng(7)
    a = rng.integers(0 if row.a == "uint8" else -3, 4, (row.m, row.k))
    b = rng.integers(0 if row.a == "uint8" else -3, 4, (row.k, row.n))
    out = storage(row.out or row.acc)
    given = {
        "A": (a.T if row.trans_a else a).astype(storage(row.a)).copy(),
        "B": (b.T if row.trans_b else b).astype(storage(row.b or row.a)).copy(),
        "C": np.zeros((row.m, row.n), out),
    }
    return given, equals(C=(a @ b).astype(out))


FAST = [
    Row(),
    Row(registers=True, m=128, threads=256, trans_b=True),
    Row(a="float8_e4m3fn", b="float8_e5m2", trans_b=True, n=24),
]
SLOW = [
    Row(clear=True, stages=3),
    Row(m=128, n=256, threads=256),
    Row(m=128, n=128, bk=32, stages=1),  # two instructions along M
    Row(m=64, n=512, bk=32, threads=256),  # warpgroups along N
    Row(m=128, n=64, threads=256, policy=T.GemmWarpPolicy.FullCol),
    *(
        Row(trans_a=x, trans_b=y, n=n)
        for x in (False, True)
        for y in (False, True)
        for n in (96, 128)
    ),
    *(Row(trans_a=True, m=m, threads=m * 2) for m in (64, 128)),
    *(Row(bk=bk, trans_b=True) for bk in (16, 32, 128)),  # 32, 64 and 128 bytes of swizzle
    *(Row(n=n) for n in (8, 16, 24, 32, 40)),  # and none, across
    Row(a="bfloat16"),
    Row(a="bfloat16", trans_a=True, trans_b=True),
    Row(a="bfloat16", registers=True),
    Row(acc="float16"),
    Row(out="float16"),
    Row(a="float32", bk=32, trans_b=True),
    Row(a="float32", bk=8, trans_b=True, registers=True),
    *(
        Row(a=x, b=y, trans_b=True)
        for x in ("float8_e4m3fn", "float8_e5m2")
        for y in ("float8_e4m3fn", "float8_e5m2")
    ),
    Row(a="float8_e4m3fn", trans_b=True, registers=True),
    Row(a="int8", acc="int32", trans_b=True),
    Row(a="uint8", acc="int32", trans_b=True, bk=32),
    Row(a="int8", acc="int32", trans_b=True, registers=True, m=128, threads=256),
    Row(registers=True, trans_a=True),
    Row(registers=True, m=128, clear=True),
]


def check(row: Row) -> None:
    kernel = kernel_of(row)
    given, right = data(row)
    check_on_threads(kernel, given, right, TARGET)
    last = lower_program(kernel.program, resolve_target(TARGET))[-1].program
    found = {type(stmt) for stmt in statements(last.body)} & {Mma, Wgmma}
    assert found == {Wgmma}, last.notes


def check_ptx(row: Row) -> None:
    given, right = data(row)
    right(run_native(kernel_of(row).program, given, "ptx:sm_90a"))


@pytest.mark.parametrize("row", FAST, ids=str)
def test_products_of_warpgroups(row: Row):
    check(row)


@pytest.mark.nvrtc
@pytest.mark.parametrize("row", FAST[:2], ids=str)
def test_their_ptx(row: Row):
    check_ptx(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", SLOW, ids=str)
def test_every_form(row: Row):
    check(row)


@pytest.mark.slow
@pytest.mark.nvrtc
@pytest.mark.parametrize("row", [*FAST[2:], *SLOW], ids=str)
def test_the_ptx_of_every_form(row: Row):
    check_ptx(row)
