"""Every rule of the verifier rejects one program, and says why."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.ir.test_text import EVERY_NODE
from tileworkbench.compiler.diagnostics import VerifyError
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import TRUE, const, int_const
from tileworkbench.compiler.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Load,
    Region,
    Reinterpret,
    Select,
    Unary,
    Var,
)
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.program import Param, Program, Stage
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.ir.verify import LEGAL, verify
from tileworkbench.compiler.layout import Layout

I32, F32, BOOL = DType("int32"), DType("float32"), DType("bool")
X, Y = Var("x", I32), Var("y", F32)
ZERO, ONE = int_const(0), int_const(1)
A = Buffer("A", F32, (int_const(8),), "global")
L = Buffer("L", F32, (int_const(8),), "local")
S = Buffer("S", F32, (int_const(8),), "shared")


def program(*stmts: st.Stmt, stage: Stage = Stage.TILE) -> Program:
    return Program("f", (Param(A), Param(X), Param(Y)), (), st.seq(list(stmts)), stage)


@pytest.mark.parametrize("text", EVERY_NODE, ids=["tile", "simt", "cpu"])
def test_well_formed_programs_pass(text: str) -> None:
    verify(parse(text))


def let(value: object) -> st.Stmt:
    return st.Let(Var("r", value.dtype), value)  # type: ignore[attr-defined]


def loop(body: st.Stmt, kind: st.LoopKind = st.LoopKind.SERIAL, stop: int = 8) -> st.Stmt:
    return st.For(Var("i", I32), ZERO, int_const(stop), ONE, kind, body)


def launch(*stmts: st.Stmt, cluster: tuple[int, ...] = (2,)) -> st.Stmt:
    return st.Kernel((Var("bx", I32),), (int_const(4),), (32,), st.seq(stmts), cluster=cluster)


STORE = st.Store(A, (ZERO,), Y)
REJECTED = [
    ("'x' is not in scope", let(Var("z", I32)), "variable 'z' is not in scope in 'r = z'"),
    ("buffer out of scope", st.Store(S, (ZERO,), Y), "buffer 'S' is not in scope in 'S[0] = y'"),
    ("let dtype", st.Let(Var("r", F32), X), "'r' has dtype 'float32' but its value 'int32' in 'r = x'"),
    ("name twice", st.Let(Var("x", F32), Y), "the name 'x' is used twice in 'x = y'"),
    ("index count", st.Store(A, (ZERO, ZERO), Y), "'A' has 1 dimensions, not 2 in 'A[0, 0] = y'"),
    ("index dtype", st.Store(A, (Y,), Y), "index 'y' has dtype 'float32' in 'A[y] = y'"),
    ("store dtype", st.Store(A, (ZERO,), X), "a 'int32' is stored in 'A' of 'float32' in 'A[0] = x'"),
    ("predicate", st.Store(A, (ZERO,), Y, X), "condition 'x' has dtype 'int32' in 'T.store(A[0], y, x)'"),
    ("condition", st.If(X, STORE), "condition 'x' has dtype 'int32' in 'if x:'"),
    ("alias scope", st.seq([st.Alloc(L), st.Alias(S, L)]), "'S' cannot share the memory of 'L' in 'S = T.view(L, (8,), \"float32\")'"),
    ("alias source", st.Alias(S, replace(S, name="Q")), "buffer 'Q' is not in scope in 'S = T.view(Q, (8,), \"float32\")'"),
    ("peer source", launch(simt.Peer(replace(S, name="P"), S, ZERO)), "buffer 'S' is not in scope in 'P = T.peer(S, 0)'"),
    ("peer scope", launch(simt.Peer(replace(A, name="P"), A, ZERO)), "other blocks have no access to 'A' in 'P = T.peer(A, 0)'"),
    ("peer shape", launch(st.Alloc(S), simt.Peer(replace(S, name="P", dtype=I32), S, ZERO)), "'P' is not like 'S' in 'P = T.peer(S, 0)'"),
    ("peer rank", launch(st.Alloc(S), simt.Peer(replace(S, name="P"), S, Y)), "the rank 'y' has dtype 'float32' in 'P = T.peer(S, y)'"),
    ("peer of a peer", launch(st.Alloc(S), simt.Peer(replace(S, name="P"), S, ZERO), simt.Peer(replace(S, name="Q"), replace(S, name="P"), ZERO)), "'P' belongs to another block in 'Q = T.peer(P, 0)'"),
    ("peer alone", launch(st.Alloc(S), simt.Peer(replace(S, name="P"), S, ZERO), cluster=()), "a launch without clusters in 'P = T.peer(S, 0)'"),
    ("print", st.Print(("x", "y"), ()), "0 values between 2 texts in 'T.print('x')'"),
    ("atomic dtype", st.Atomic(st.AtomicKind.ADD, A, (ZERO,), X), "a 'int32' beside an element of 'float32' in 'T.atomic_add(A[0], x)'"),
    ("atomic scope", st.seq([st.Alloc(L), st.Atomic(st.AtomicKind.ADD, L, (ZERO,), Y)]), "'L' is in scope 'local' in 'T.atomic_add(L[0], y)'"),
    ("atomic name twice", st.Atomic(st.AtomicKind.ADD, A, (ZERO,), Y, Var("x", F32)), "the name 'x' is used twice in 'x = T.atomic_add(A[0], y)'"),
    ("break", st.Break(), "'Break' outside a loop in 'break'"),
    ("operands", let(Binary("add", X, Y, I32)), "'add' of 'int32' and 'float32' in 'r = x + y'"),
    ("result", let(Binary("lt", X, X, I32)), "'lt' of 'int32' typed as 'int32' in 'r = x < x'"),
    ("unary", let(Unary("neg", X, F32)), "'neg' of 'int32' typed as 'float32' in 'r = -x'"),
    ("select", let(Select(X, Y, Y, True, F32)), "select of 'int32', 'float32' and 'float32' in 'r = y if x else y'"),
    ("call", let(Call("exp", (Y, Y), F32)), "call of 'exp' with ['float32', 'float32'] in 'r = T.exp(y, y)'"),
    ("reinterpret", let(Reinterpret(X, DType("int64"))), "'int32' reinterpreted as 'int64' in 'r = T.reinterpret(x, \"int64\")'"),
    ("cast lanes", let(Cast(X, DType("int32x4"))), "'int32' cast to 'int32x4' in 'r = T.cast(x, \"int32x4\")'"),
    ("fill", tile.Fill(Region(A, (ZERO,), (ONE,)), X), "'A' of 'float32' is filled with a 'int32' in 'T.fill(A[0:1], x)'"),
    ("load", let(Load(S, (ZERO,))), "buffer 'S' is not in scope in 'r = S[0]'"),
    ("block loop", loop(STORE, st.LoopKind.BLOCKS), "a block loop in 'for i in T.blocks(8):'"),
    ("scalar shape", st.Alloc(Buffer("v", F32, (ONE,), "local.var")), "scalar variable 'v' has a shape in 'v = T.alloc_var(\"float32\")'"),
    ("scope", st.Alloc(Buffer("v", F32, (ONE,), "local")), None),
    ("size", st.Alloc(replace(S, name="v", shape=(int_const(2**40), int_const(2**40)))), "'v' has 4835703278458516698824704 bytes, more than 1152921504606846975 in 'v = T.alloc_shared((T.int64(1099511627776), T.int64(1099511627776)), \"float32\")'"),
    ("layout", st.Alloc(Buffer("v", F32, (ONE,), "shared")), None),
    ("collective", tile.Parallel((Var("i", I32),), (ONE,), tile.Fill(Region(A, (ZERO,), (ONE,)), Y)), "'Fill' inside a Parallel loop in 'for i in T.Parallel(1):'"),
    ("no extent", st.Alloc(replace(S, name="v", shape=(ZERO,))), "'v' has an extent below 1 in 'v = T.alloc_shared((0,), \"float32\")'"),
    ("reduce", st.seq([st.Alloc(S), tile.Reduce(tile.ReduceKind.SUM, S, S, 3, True)]), "dimension 3 of 'S' in 'T.reduce_sum(S, S, dim=3)'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stmt", "message"), [row[1:] for row in REJECTED], ids=[row[0] for row in REJECTED]
)
def test_malformed_programs_are_rejected(stmt: st.Stmt, message: str | None) -> None:
    if message is None:
        verify(program(stmt))
        return
    with pytest.raises(VerifyError) as caught:
        verify(program(stmt))
    assert caught.value.message == f"malformed IR at stage 'tile': {message}"


CPU_REJECTED = [
    ("lanes", loop(STORE, st.LoopKind.VECTORIZED, 3), "a vector loop runs from 0 to a power of two up to 64 in 'for i in T.vectorized(3):'"),
    ("vector body", loop(st.If(TRUE, STORE), st.LoopKind.VECTORIZED), "'If' inside a vector loop in 'if True:'"),
    ("tile operator", tile.Fill(Region(A, (ZERO,), (ONE,)), Y), "'Fill' is not legal here in 'T.fill(A[0:1], y)'"),
    ("launch", st.Kernel((), (), (1,), STORE), "'Kernel' is not legal here in 'with T.Kernel(threads=1):'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stmt", "message"), [row[1:] for row in CPU_REJECTED], ids=[row[0] for row in CPU_REJECTED]
)
def test_the_cpu_stage_has_its_own_rules(stmt: st.Stmt, message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(program(stmt, stage=Stage.CPU))
    assert caught.value.message == f"malformed IR at stage 'cpu': {message}"


def test_only_flat_buffers_reach_the_cpu_stage() -> None:
    flat = Buffer("B", F32, (ONE, ONE), "global")
    made = Program("f", (Param(flat), Param(Y)), (), st.Store(flat, (ZERO, ZERO), Y), Stage.CPU)
    with pytest.raises(VerifyError, match="buffer 'B' is not flat"):
        verify(made)


def test_only_tiles_have_layouts_in_the_first_stage() -> None:
    layout = Layout.row_major((8,))
    tiled = replace(S, layout=layout)
    verify(program(st.Alloc(tiled), st.Store(tiled, (ZERO,), Y)))
    local = Buffer("R", S.dtype, S.shape, "local", (), layout)
    made = program(st.Alloc(local), st.Store(local, (ZERO,), Y))
    with pytest.raises(VerifyError, match="buffer 'R' has a layout"):
        verify(made)
    verify(replace(made, stage=Stage.PLANNED))


def test_parameters_are_global_and_returns_are_outputs() -> None:
    with pytest.raises(VerifyError, match="parameter 'S' has scope 'shared'"):
        verify(Program("f", (Param(S),), (), const_let()))
    with pytest.raises(VerifyError, match="return 0 is not an output parameter"):
        verify(Program("f", (Param(A),), (), const_let(), returns=(0,)))


def const_let() -> st.Stmt:
    return st.Let(Var("one", F32), const(1.0, F32))


def test_names_in_a_loop_end_with_it() -> None:
    inside = st.Let(Var("a", I32), Var("i", I32))
    with pytest.raises(VerifyError, match="variable 'a' is not in scope"):
        verify(program(loop(st.seq([inside, STORE])), let(Var("a", I32))))


def test_every_stage_has_a_table() -> None:
    assert set(LEGAL) == set(Stage)


FITTING = """\
@T.program(stage="tile")
def f(G: T.Tensor((64, 32), "float16")):
    with T.Kernel(1, threads=32) as bx:
        A = T.alloc_shared((64, 32), "float16")
        B = T.alloc_shared((32, 128), "float16")
        C = T.alloc_fragment((64, 128), "float32")
        R = T.alloc_fragment((64,), "float32")
        T.copy(G[0:64, 0:32], A)
        T.fill(B, T.float16(0.0))
        T.gemm(A, B, C)
        T.scan_sum(C, C, dim=1, reverse=False)
        T.reduce_sum(C, R, dim=1)
"""


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("(A, B, C)", "(B, A, C)", "K is 128 and 64 in A and B in 'T.gemm(B, A, C)'"),
        ("(A, B, C)", "(A, B, C, transpose_A=True)", "K is 64 and 32 in A and B"),
        ("C, R, dim=1", "C, R, dim=0", "(64, 128) without dimension 0 does not fit (64)"),
        ("R = T.alloc_fragment((64,),", "R = T.alloc_fragment((1, 128),", "does not fit (1, 128)"),
        ("T.scan_sum(C, C", "T.scan_sum(C, R", "(64, 128) does not fit (64)"),
        ("C = T.alloc_fragment((64, 128)", "C = T.alloc_fragment((64,)", "'C' is no matrix"),
    ],
)
def test_operands_fit_each_other(old: str, new: str, rule: str) -> None:
    verify(parse(FITTING))
    with pytest.raises(VerifyError, match=re.escape(rule)):
        verify(parse(FITTING.replace(old, new)))


COUNTED = """\
@T.program(stage="planned")
def f(G: T.Tensor((64, 32), "float16")):
    with T.Kernel(4, 2, threads=32) as (bx, by):
        A = T.alloc_shared((64, 32), "float16")
        R = T.alloc_local((8,), "float16")
        for i, j in T.Parallel(64, 32):
            A[i, j] = G[i, j]
        for k in T.Pipelined(8, num_stages=2, order=(0, 1), stage=(0, 1)):
            T.async_copy(T.address_of(A[0, 0]), T.address_of(G[0, 0]), elements=8)
            T.load_matrix(T.address_of(R[0]), T.address_of(A[0, 0]), count=4, transpose=False)
"""


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("(4, 2, thr", "(4, thr", "2 indices of a block in a grid of 1 extents in 'with T.Ker"),
        ("threads=32", "threads=0", "a block of 0 threads"),
        ("order=(0, 1)", "order=(0, 1, 2)", "'order' has 3 entries for 2 statements"),
        ("stage=(0, 1)", "stage=(0,)", "'stage' has 1 entries for 2 statements"),
        ("T.Parallel(64, 32)", "T.Parallel(64)", "2 indices of a loop over 1 extents"),
        ("elements=8", "elements=3", "a thread copies 4, 8 or 16 bytes, not 6 in 'T.async_copy("),
        ("count=4", "count=3", "an instruction loads 1, 2 or 4 matrices, not 3"),
    ],
)
def test_numbers_fit_each_other(old: str, new: str, rule: str) -> None:
    verify(parse(COUNTED))
    with pytest.raises(VerifyError, match=re.escape(rule)):
        verify(parse(COUNTED.replace(old, new)))
