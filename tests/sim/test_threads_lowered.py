"""Kernels lowered for sm_80: what they cost without a run, and what validation says of them."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from dataclasses import replace

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.sim.simt_matmul import Matmul
from tests.sim.threads import threads
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Seq, Stmt
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.sim.threads.listing import list_requests

SIZE = 128


def matmul(dtype: str, accumulator: str, transpose_a: bool, transpose_b: bool):
    shape_a, shape_b = (32, 64) if transpose_a else (64, 32), (64, 32) if transpose_b else (32, 64)

    @T.prim_func
    def kernel(
        A: T.Tensor((SIZE, SIZE), dtype),
        B: T.Tensor((SIZE, SIZE), dtype),
        C: T.Tensor((SIZE, SIZE), accumulator),
    ):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            A_shared = T.alloc_shared(shape_a, dtype)
            B_shared = T.alloc_shared(shape_b, dtype)
            C_local = T.alloc_fragment((64, 64), accumulator)
            T.clear(C_local)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k * 32, by * 64] if transpose_a else A[by * 64, k * 32], A_shared)
                T.copy(B[bx * 64, k * 32] if transpose_b else B[k * 32, bx * 64], B_shared)
                T.gemm(
                    A_shared, B_shared, C_local, transpose_A=transpose_a, transpose_B=transpose_b
                )
            T.copy(C_local, C[by * 64, bx * 64])

    return kernel


def factors(found):
    return {(access.buffer, access.kind): access.factor for access in found}


def by_cost(found):
    return sorted(
        (a.buffer, a.kind, a.width, a.count, a.wavefronts, a.ideal, a.sectors, a.ideal_sectors)
        for a in found
    )


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_shared_accesses_of_a_matmul_have_no_conflicts(dtype, transpose_a, transpose_b):
    kernel = matmul(dtype, "float32", transpose_a, transpose_b)
    listed = tw.compile(kernel, target="sim:sm_80").accesses
    assert {str(a).partition(" (/")[0] for a in listed if a.scope == "shared"} == {
        "A_shared: store (cp.async) 1.00x",
        "B_shared: store (cp.async) 1.00x",
        f"A_shared: load (ldmatrix.x4{'.trans' if transpose_a else ''}) 1.00x",
        f"B_shared: load (ldmatrix.x4{'' if transpose_b else '.trans'}) 1.00x",
    }


def test_what_is_listed_is_what_is_simulated():
    kind = Matmul()
    a = np.zeros((kind.m, kind.k), np.float16)
    simulated = simulate(kind.program(), {"A": a, "B": a.reshape(kind.k, kind.n)}).report.accesses
    assert factors([access.count for access in list_requests(kind.program())]) == factors(simulated)
    # One iteration of each loop, and the statement that a guard skips in others.
    one = replace(kind, k=32, stages=2, pending=0)
    short = one.program()
    listed = {(a.count.buffer, a.count.kind): a.count.count for a in list_requests(short)}
    assert listed["A_shared", "ldmatrix.x4"] == 2 * 2 * 4
    assert listed["A_shared", "cp.async"] == 2 * 2 * 4  # the prologue's and the loop's


def test_accesses_that_depend_on_memory_are_not_listed():
    body = """
    S = T.alloc_shared((64,), "float32", offset=0)
    i = B[tx]
    S[tx * 2] = A[i]
    for k in T.unroll(2):
        A[tx * 2 + k] = S[i]
    """
    requests = list_requests(threads("A: (64,) float32; B: (32,) int32", body))
    found = [access.count for access in requests]
    assert by_cost(found) == [
        ("A", "store", 4, 2, 0, 0, 16, 8),
        ("B", "load", 4, 1, 0, 0, 4, 4),
        ("S", "store", 4, 1, 2, 1, 0, 0),
    ]


def test_a_kernel_that_is_right_is_right_after_every_pass():
    kernel = tw.compile(matmul("float16", "float32", False, False), target="sim:sm_80")
    a, b = torch.randn(SIZE, SIZE).half(), torch.randn(SIZE, SIZE).half()
    c = torch.zeros(SIZE, SIZE)
    assert kernel.simulate(a, b, c).report.ok
    validation = kernel.validate(a, b, c)
    assert validation.ok, str(validation)
    assert len(validation.stages) == 1 + sum(found.changed for found in kernel.passes)


def test_validation_names_the_pass_that_forgot_a_barrier(monkeypatch):
    kernel = tw.compile(matmul("float16", "float32", False, False), target="sim:sm_80")
    snapshot = kernel.passes["insert_barriers"]
    monkeypatch.setattr(snapshot, "program", without(snapshot.program, simt.Barrier))
    monkeypatch.setattr(type(kernel.passes), "__iter__", lambda self: iter([snapshot]))
    a = torch.ones(SIZE, SIZE).half()
    validation = kernel.validate(a, a, torch.zeros(SIZE, SIZE))
    assert str(validation).startswith("wrong after pass 'insert_barriers': race: 'A_shared[")


def without(program: Program, kind: type[Stmt], which: int = 0, **change: int) -> Program:
    """`program` without its `which`-th statement of a kind, or with its fields changed."""
    seen = -1

    def drop(stmt: Stmt) -> Stmt:
        nonlocal seen
        if isinstance(stmt, kind):
            seen += 1
            if seen == which:
                return replace(stmt, **change) if change else Seq(())
        return stmt

    return with_body(program, Rewriter(rewrite_stmt=drop)(program.body))


@pytest.mark.parametrize(
    "kind",
    [simt.Barrier, simt.WaitGroup, simt.CommitGroup, simt.AsyncCopy, simt.LoadMatrix],
    ids=lambda kind: kind.__name__,
)
def test_each_statement_that_synchronises_or_moves_is_needed(kind):
    kernel = matmul("float16", "float32", False, False).program
    last = lower_program(kernel, resolve_target("cuda:sm_80"))[-1].program
    count = sum(isinstance(found, kind) for found in statements(last.body))
    random = np.random.default_rng(5)
    a, b = (random.standard_normal((SIZE, SIZE)).astype(np.float16) for _ in range(2))
    arguments = {"A": a, "B": b, "C": np.zeros((SIZE, SIZE), np.float32)}
    assert simulate(last, arguments, signature=kernel).report.ok
    assert count > 0
    for which in range(count):
        made = without(last, kind, which)
        assert not simulate(made, arguments, signature=kernel).report.ok
    if kind is simt.WaitGroup:
        late = without(last, kind, 0, pending=2)
        assert simulate(late, arguments, signature=kernel).report.uninitialised
