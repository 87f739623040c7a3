"""`parse(print(p)) == p`: every node, every stage, and random expressions."""

from __future__ import annotations

import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tileworkbench.compiler.diagnostics import TileSyntaxError
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_expr, print_lines, print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.stmt import Let
from tileworkbench.compiler.ir.types import DType

EVERY_SIMT_NODE = """\
@T.program(stage="simt", target="cuda:sm_80", scratch_bytes=24576)
def warp_code(
    A: T.Tensor((4096,), "float16"),
):
    with T.Kernel(8, threads=128, thread_vars=["tx"], cluster=(2,), blocks=3) as bx:
        bars = T.alloc_barrier((2,), "uint64", offset=0)
        A_shared = T.alloc_shared((4096,), "float16", offset=16)
        a = T.alloc_local((8,), "float16")
        b = T.alloc_local((4,), "float16")
        c = T.alloc_local((4,), "float32")
        T.barrier_init(T.address_of(bars[0]), 1)
        T.sync_threads()
        T.async_copy(T.address_of(A_shared[tx * 8]), T.address_of(A[bx * 1024 + tx * 8]), \
elements=8, predicate=tx < 64)
        T.commit_group()
        T.wait_group(pending=0)
        T.sync_threads(id=1, count=64, wait=False)
        T.load_matrix(T.address_of(a[0]), T.address_of(A_shared[tx % 32 * 8]), \
count=4, transpose=False)
        T.mma(T.address_of(a[0]), T.address_of(b[0]), T.address_of(c[0]), \
m=16, n=8, k=16)
        with T.threads(0, 64):
            T.barrier_arrive(T.address_of(bars[0]))
            T.barrier_expect(T.address_of(bars[0]), 1024)
        T.barrier_wait(T.address_of(bars[0]), 0)
        x = T.shfl_xor(c[0], 1)
        y = T.shfl_down(c[0], 1, width=8, mask=T.uint32(255))
        n = T.activemask()
        T.sync_warp(T.uint32(255))
        T.sync_grid()
        T.cluster_sync()
        A_peer = T.peer(A_shared, bx % 2 ^ 1)
        bars_peer = T.peer(bars, 0)
        T.barrier_signal(T.address_of(bars_peer[0]), arrivals=1, bytes_=-64)
        T.fence(kind='block')
        T.store_matrix(T.address_of(A_shared[0]), T.address_of(a[0]), \
count=1, transpose=True)
"""

EVERY_TILE_NODE = """\
@T.program(stage="tile", symbols={"m": "int32"}, outputs=["C"], returns=["C"], \
safe_values={"A": -1.0})
def everything(
    A: T.Tensor((m, 1024), "float32"),
    S: T.StridedTensor((m, 8), (16, 1), "int8"),
    n: T.int32,
    C: T.Tensor((m * 4 + 1, 1024), "float16"),
):
    with T.Kernel(8, (m + 127) // 128, threads=(32, 4), swizzle=(4, "row")) as (bx, by):
        A_shared = T.alloc_shared((128, 32), "float32")
        acc = T.alloc_fragment((128, 128), "float32")
        row = T.alloc_fragment((128,), "float32")
        pieces = T.view(A_shared, (32, 256), "float16")
        own = T.alloc_local((4,), "bool")
        count = T.alloc_var("int64", T.int64(-3))
        T.assume(m % 8 == 0)
        T.fill(acc, 0.0)
        offset = bx * 128 + n
        for k in T.Pipelined(n, num_stages=3, order=(0, 1), stage=(0, 0)):
            T.copy(A[by * 128:by * 128 + 128, k * 32:k * 32 + 32], A_shared, coalesced_width=4)
            T.gemm(A_shared, A_shared, acc, transpose_B=True, policy="full_row", clear_accum=k == 0)
        T.reduce_max(acc, row, dim=1, clear=False, nan_propagate=True)
        T.scan_sum(acc, acc, dim=0, reverse=True)
        bars = T.alloc_barrier((1,), "uint64")
        T.barrier_init(T.address_of(bars[0]), 1)
        with T.started("tma", T.address_of(bars[0])):
            T.copy(A[by * 128:by * 128 + 128, 0:32], A_shared)
        T.barrier_arrive(T.address_of(bars[0]), engine='cp.async')
        with T.started("wgmma"):
            T.gemm(A_shared, A_shared, acc, transpose_B=True)
        T.commit_group(engine='wgmma')
        T.wait_group(pending=0, engine='wgmma', sources=True)
        for i, j in T.Parallel(128, n, coalesced_width=8):
            acc[i, j] = T.exp2(acc[i, j] - row[i]) if i < n and not j == 3 else T.float32("-inf")
            T.store(C[i, j], T.float16(acc[i, j]), i + offset < m)
        for i_1 in T.serial(10, 0, -1):
            while count[()] < T.int64(3):
                count[()] = count[()] + T.int64(1)
                if own[0] and own[1] or own[2]:
                    break
                else:
                    continue
        T.print('n is "', n, '" and\\n', bx, '')
        T.print('here')
        T.call_extern("void", "note", bx)
        noted = T.call_extern("int32", "noted", bx, 1)
        before = T.atomic_add(A[bx, 0], 1.0, bx < n, -1.0)
        T.atomic_max(A[bx, 1], before)
        for i_2 in T.unroll(4):
            T.device_assert(i_2 < 4, 'it\\'s "large"')
"""

EVERY_CPU_NODE = """\
@T.program(stage="cpu", target="cpu:avx512", scratch_bytes=1024)
def lowered(
    A: T.Tensor((1024,), "float32"),
    C: T.Tensor((1024,), "float16"),
):
    for block in T.blocks(8):
        panel = T.alloc_shared((64,), "float32", offset=64)
        bits = T.view(panel, (64,), "int32")
        part = T.alloc_local((16,), "float32")
        T.pack_a(T.address_of(A[block * 4]), T.address_of(panel[0]), rows=4, cols=8, row_stride=8, \
col_stride=1, valid_rows=4, valid_cols=T.min(8, block), width=1, group=1)
        T.micro_gemm(T.address_of(panel[0]), T.address_of(panel[32]), T.address_of(A[0]), lda=8, \
columns=False, ldc=4, m=4, n=4, k=8, mr=4, nr=4, group=1, clear=block == 0, isa="avx2")
        for lane in T.vectorized(16):
            part[lane] = T.load(A[block * 16 + lane], block * 16 + lane < 100, 1.0)
        C[block] = T.float16(T.lanes_sum(part[T.Ramp(0, 1, 16)] * T.Broadcast(2.0, 16)))
        C[T.int64(block)] = T.float16(1.5)
"""


EVERY_NODE = [EVERY_TILE_NODE, EVERY_SIMT_NODE, EVERY_CPU_NODE]


@pytest.mark.parametrize("text", EVERY_NODE, ids=["tile", "simt", "cpu"])
def test_text_survives_a_round_trip(text: str) -> None:
    program = parse(text)
    assert print_program(program) == text
    assert parse(print_program(program)) == program


@pytest.mark.parametrize("text", EVERY_NODE, ids=["tile", "simt", "cpu"])
def test_no_call_has_what_nobody_reads(text: str) -> None:
    tree = ast.parse(text)
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    assert len(calls) > 10
    for call in calls:
        name = ast.unparse(call.func)
        if not name.startswith("T."):
            continue
        call.keywords.append(ast.keyword("unread", ast.Constant(1)))
        with pytest.raises(TileSyntaxError) as caught:
            parse(ast.unparse(ast.fix_missing_locations(tree)))
        call.keywords.pop()
        assert caught.value.message == f"'{name}' has no keyword 'unread'"


def test_lines_carry_the_sites_of_their_statements() -> None:
    lines = print_lines(parse(EVERY_CPU_NODE))
    assert [line.text for line in lines] == EVERY_CPU_NODE.splitlines()


# Random expressions

_INT, _FLOAT, _BOOL = DType("int32"), DType("float32"), DType("bool")
_X, _Y, _Z = Var("x", _INT), Var("y", _INT), Var("z", _FLOAT)


def _expressions(dtype: DType) -> some.SearchStrategy[Expr]:
    return {_INT: _ints, _FLOAT: _floats, _BOOL: _bools}[dtype]


def _binary(ops: tuple[str, ...], operands: some.SearchStrategy[Expr], dtype: DType | None = None):
    def make(op: str, a: Expr, b: Expr) -> Expr:
        return ir.Binary(op, a, b, dtype or a.dtype)

    return some.builds(make, some.sampled_from(ops), operands, operands)


_int_leaves = some.one_of(
    some.sampled_from([_X, _Y]),
    some.integers(-(2**31), 2**31 - 1).map(lambda n: build.const(n, _INT)),
)
_float_leaves = some.one_of(
    some.just(_Z), some.floats(width=32).map(lambda number: build.const(number, _FLOAT))
)
_INT_OPS = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "min", "and", "xor", "shl")
_ints: some.SearchStrategy[Expr] = some.recursive(
    _int_leaves,
    lambda inner: some.one_of(
        _binary(_INT_OPS, inner),
        some.builds(lambda a: ir.Unary("neg", a, _INT), inner),
        some.builds(
            lambda a, b, c: ir.Select(ir.Binary("lt", a, b, _BOOL), b, c, True, _INT),
            *(inner, inner, inner),
        ),
        some.builds(lambda a: ir.Cast(ir.Cast(a, DType("int64")), _INT), inner),
    ),
    max_leaves=12,
)
_floats: some.SearchStrategy[Expr] = some.recursive(
    _float_leaves,
    lambda inner: some.one_of(
        _binary(("add", "sub", "mul", "div", "max", "pow"), inner),
        some.builds(lambda a: ir.Call("exp", (a,), _FLOAT), inner),
        some.builds(lambda a: ir.Unary("abs", a, _FLOAT), inner),
    ),
    max_leaves=12,
)
_bools: some.SearchStrategy[Expr] = some.recursive(
    some.one_of(_binary(("lt", "eq", "ge"), _ints, _BOOL), some.just(build.TRUE)),
    lambda inner: some.one_of(
        _binary(("logical_and", "logical_or"), inner, _BOOL),
        some.builds(lambda a: ir.Unary("not", a, _BOOL), inner),
    ),
    max_leaves=6,
)


@given(some.one_of(_ints, _floats, _bools))
def test_any_expression_reads_back_as_itself(value: Expr) -> None:
    params = tuple(build_param(var) for var in (_X, _Y, _Z))
    program = Program("f", params, (), Let(Var("result", value.dtype), value))
    again = parse(print_program(program))
    assert isinstance(again.body, Let)
    assert again.body.value is value, print_expr(value)


def build_param(var: Var):
    from tileworkbench.compiler.ir.program import Param

    return Param(var)


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (0.1, "float32", "0.1"),
        (1e30, "float32", "1e+30"),
        (-0.0, "float32", "-0.0"),
        (math.inf, "float32", 'T.float32("inf")'),
        (0.1, "float64", "T.float64(0.1)"),
        (1.5, "bfloat16", "T.bfloat16(1.5)"),
        (7, "int64", "T.int64(7)"),
        (True, "bool", "True"),
    ],
)
def test_constants_print_as_short_as_they_can(number, dtype: str, text: str) -> None:
    assert print_expr(build.const(number, dtype)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 +", "the IR text is not valid: invalid syntax"),
        ("x = 1", "the IR text is not one function"),
        (
            "def f():\n    pass",
            "'def f():\n    pass' is not a function decorated with '@T.program(...)'",
        ),
        ('@T.program(stage="tile")\ndef f():\n    import os', "'import os' is not a statement"),
        ('@T.program(stage="tile")\ndef f():\n    x = q', "'q' is not a known variable"),
        (
            '@T.program(stage="tile")\ndef f():\n    x = open("p")',
            "'open('p')' is not an expression",
        ),
        ('@T.program(stage="tile")\ndef f():\n    T.copy(A, A)', "'A' is not a known buffer"),
        (
            '@T.program(stage="tile")\ndef f():\n    T.print("x", loops=3)',
            "'3' is not the loops by name, {'k': k}",
        ),
        (
            '@T.program(stage="tile")\ndef f():\n    T.assume(1 > 0, sure=True)',
            "'T.assume' has no keyword 'sure'",
        ),
        (
            '@T.program(stage="tile")\ndef f():\n    T.assume(1 > 0, 2 > 1)',
            "'T.assume' takes 1 argument, not 2",
        ),
        (
            '@T.program(stage="tile")\ndef f():\n    T.commit_group(1)',
            "'T.commit_group' takes no arguments, not 1",
        ),
        (
            '@T.program(stage="tile")\ndef f():\n    x = T.peer(A, 0, **{})',
            "'T.peer' has no keyword '**'",
        ),
        (
            '@T.program(stage="tile")\ndef f():\n    while 1:\n     break\n    else:\n     pass',
            "'while 1:\n    break\nelse:\n    pass' is not a statement",
        ),
        (
            '@T.program(stage="tile")\ndef f():\n    T.reduce(1)',
            "'T.reduce(1)' is not a statement",
        ),
    ],
)
def test_other_text_is_refused_and_never_run(text: str, message: str) -> None:
    with pytest.raises(TileSyntaxError) as caught:
        parse(text)
    assert caught.value.message == message
