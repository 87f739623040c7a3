"""A matmul's compilation record, built by hand: what the tests and pictures of the views show."""

from __future__ import annotations

import math
from dataclasses import replace

from tileworkbench.bench.points import Ceiling, Machine, Point
from tileworkbench.compiler.diagnostics import Note, Span
from tileworkbench.compiler.ir.build import add, const, int_const, mul
from tileworkbench.compiler.ir.expr import Buffer, Load, Region, Var
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.stmt import Alloc, For, Kernel, LoopKind, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Copy, Fill, Gemm, Pipelined
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.record import CompileRecord, Count, RunRecord, Snapshot, Timing
from tileworkbench.viz.model.view import KernelView
from tileworkbench.workbench.results import BufferLayout, CheckResult

FILE = "/tmp/ipykernel_1/1234.py"
SOURCE = """\
@tw.jit
def mm(A, B):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float32")
    B: T.Tensor((K, N), "float32")
    C = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
        A_shared = T.alloc_shared((64, 32), "float32")
        B_shared = T.alloc_shared((32, 64), "float32")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.clear(C_local)
        for k in T.Pipelined(K // 32, num_stages=2):
            T.copy(A[by * 64, k * 32], A_shared)
            T.copy(B[k * 32, bx * 64], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * 64, bx * 64])
    return C
"""
_LINES = SOURCE.splitlines()
F32 = DType("float32")
I32 = DType("int32")


def span_of(text: str) -> Span:
    """Where the first line of the source that holds `text` is."""
    line = next(number for number, found in enumerate(_LINES, 2) if text in found)
    start = len(_LINES[line - 2]) - len(_LINES[line - 2].lstrip())
    return Span(FILE, line, start, line, len(_LINES[line - 2]))


SITES = (
    None,
    *map(
        span_of,
        (
            "with T.Kernel",
            "A_shared = ",
            "B_shared = ",
            "C_local = ",
            "T.clear",
            "for k in",
            "T.copy(A[",
            "T.copy(B[",
            "T.gemm",
            "T.copy(C_local",
        ),
    ),
)


def _buffer(name: str, rows: int, cols: int, scope: str) -> Buffer:
    return Buffer(name, F32, (int_const(rows), int_const(cols)), scope)


def _region(buffer: Buffer, *mins_and_extents: tuple[object, int]) -> Region:
    mins = tuple(low for low, _ in mins_and_extents)
    extents = tuple(int_const(extent) for _, extent in mins_and_extents)
    return Region(buffer, mins, extents)  # type: ignore[arg-type]


def _whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple(int_const(0) for _ in buffer.shape), buffer.shape)


def tile_program() -> Program:
    """The front end's program."""
    a, b, c = (_buffer(name, 256, 256, "global") for name in "ABC")
    a_shared, b_shared = (
        _buffer("A_shared", 64, 32, "shared"),
        _buffer("B_shared", 32, 64, "shared"),
    )
    c_local = _buffer("C_local", 64, 64, "local.fragment")
    bx, by, k = Var("bx", I32), Var("by", I32), Var("k", I32)
    row, col, step = (mul(var, int_const(size)) for var, size in ((by, 64), (bx, 64), (k, 32)))
    loop = Pipelined(
        k,
        int_const(0),
        int_const(8),
        2,
        seq(
            [
                Copy(_region(a, (row, 64), (step, 32)), _whole(a_shared), site=7),
                Copy(_region(b, (step, 32), (col, 64)), _whole(b_shared), site=8),
                Gemm(
                    *map(_whole, (a_shared, b_shared, c_local)),
                    False,
                    False,
                    const(False, "bool"),
                    site=9,
                ),
            ]
        ),
        site=6,
    )
    body = seq(
        [
            Alloc(a_shared, site=2),
            Alloc(b_shared, site=3),
            Alloc(c_local, site=4),
            Fill(_whole(c_local), const(0.0, F32), site=5),
            loop,
            Copy(_whole(c_local), _region(c, (row, 64), (col, 64)), site=10),
        ]
    )
    kernel = Kernel((bx, by), (int_const(4), int_const(4)), (128,), body, site=1)
    params = (Param(a), Param(b), Param(c, output=True))
    return Program("mm", params, (), kernel, returns=(2,), sites=SITES)


def _element_loop(buffer: Buffer, value: object, site: int, kind: LoopKind) -> Stmt:
    i, j = Var("i", I32), Var("j", I32)
    store = Store(buffer, (i, j), value, site=site)  # type: ignore[arg-type]
    one, zero = int_const(1), int_const(0)
    inner = For(j, zero, buffer.shape[1], one, kind, store, site=site)
    return For(i, zero, buffer.shape[0], one, LoopKind.SERIAL, inner, site=site)


def lower_fill(program: Program) -> Program:
    """The fill as two loops."""
    kernel = program.body
    assert isinstance(kernel, Kernel)
    stmts = list(kernel.body.stmts)  # type: ignore[attr-defined]
    fill = stmts[3]
    stmts[3] = _element_loop(fill.dst.buffer, fill.value, 5, LoopKind.SERIAL)
    return replace(program, body=replace(kernel, body=seq(stmts)))


def lower_copies(program: Program) -> Program:
    """The copies of the pipelined loop as loops over elements, the pipeline as a serial loop."""
    kernel = program.body
    assert isinstance(kernel, Kernel)
    stmts = list(kernel.body.stmts)  # type: ignore[attr-defined]
    pipelined = stmts[4]
    assert isinstance(pipelined, Pipelined)
    i, j = Var("i", I32), Var("j", I32)
    body: list[Stmt] = []
    for child in pipelined.body.stmts:  # type: ignore[attr-defined]
        if isinstance(child, Copy):
            source = child.src
            element = Load(source.buffer, (add(source.mins[0], i), add(source.mins[1], j)))
            body.append(_element_loop(child.dst.buffer, element, child.site, LoopKind.SERIAL))
        else:
            body.append(child)
    stmts[4] = For(
        pipelined.var, int_const(0), int_const(8), int_const(1), LoopKind.SERIAL, seq(body), site=6
    )
    return replace(program, body=replace(kernel, body=seq(stmts)))


def vectorize(program: Program) -> Program:
    """Every innermost loop as a vectorized one."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and isinstance(stmt.body, Store):
            return replace(stmt, kind=LoopKind.VECTORIZED)
        return stmt.map_children(lambda child: visit(child) if isinstance(child, Stmt) else child)

    return replace(program, body=visit(program.body))


def compile_record(**changes: object) -> CompileRecord:
    """The record of compiling the sample: five passes, three of which changed something."""
    steps = (
        ("simplify_indices", "Fold constants and simplify index arithmetic.", None, 41.0),
        (
            "lower_fill",
            "Turn each fill into a loop over the elements of its region.",
            lower_fill,
            88.4,
        ),
        (
            "lower_copy",
            "Turn each copy into loops with explicit indices. More text.",
            lower_copies,
            410.0,
        ),
        ("hoist_invariants", "Move loads that do not change out of loops.", None, 12.7),
        ("vectorize_loops", "Give each innermost loop the lanes of the target.", vectorize, 1630.0),
    )
    program = front = tile_program()
    snapshots = []
    for name, doc, run, time_us in steps:
        after = program if run is None else run(program)
        snapshots.append(Snapshot(name, doc, after, after is not program, time_us))
        program = after
    record = CompileRecord(
        name="mm",
        target="cpu",
        level="avx512",
        source=SOURCE,
        source_file=FILE,
        first_line=2,
        program=front,
        snapshots=tuple(snapshots),
        code="define void @mm(ptr %0) {\nentry:\n  ret void\n}\n",
        entry="mm",
        constants=(("BK", "32"), ("BM", "64")),
        warnings=(Note("'num_stages=2' has no effect on the target 'cpu'", span_of("for k in")),),
        timings=(Timing("frontend", 1500.0), Timing("passes", 2182.1), Timing("codegen", 33000.0)),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def kernel_view(**changes: object) -> KernelView:
    """The facts of the sample kernel, checked and measured."""
    view = KernelView(
        record=compile_record(),
        grid="4x4",
        threads=128,
        shared_bytes=16384,
        scratch_bytes=40960,
        flops=Count(2.0 * 256**3, "2*M*N*K"),
        bytes_=Count(3.0 * 256 * 256 * 4, "4*(M*K + K*N + M*N)"),
        check=CheckResult(True, 3.4e-7, 1e-5, "torch.matmul"),
        bench=RunRecord("mm", (410.0, 402.0, 421.0, 405.0), 2, "", 2.0 * 256**3, 786432.0),
    )
    return replace(view, **changes)  # type: ignore[arg-type]


MACHINE = Machine(
    "a host with 2 cores",
    tuple(
        Ceiling(name, value * share, unit, threads)
        for share, threads in ((1.0, 1), (1.8, 2))
        for name, value, unit in (
            ("L1", 180.0, "GB/s"),
            ("L2", 90.0, "GB/s"),
            ("L3", 35.0, "GB/s"),
            ("DRAM", 14.0, "GB/s"),
            ("float32", 110.0, "GFLOP/s"),
            ("float64", 55.0, "GFLOP/s"),
        )
    ),
    "measured in 3 s",
)
POINT = Point("mm", 2.0 * 256**3, 786432.0, 408.0, "float32", "DRAM")


def block_fragment() -> Fragment:
    """A 64 x 64 accumulator: four warps in a column, an m16n8 atom repeated along both axes."""
    return Fragment(
        (64, 64),
        lambda i, j: (
            i // 16 * 32 + i % 8 * 4 + j % 8 // 2,
            j // 8 * 4 + i % 16 // 8 * 2 + j % 2,
        ),
    )


LAYOUTS = (
    BufferLayout("A_shared", Layout.swizzled((64, 32), 32, 128), "shared float32 64x32"),
    BufferLayout("C_local", block_fragment(), "fragment float32 64x64"),
    BufferLayout("versions", Layout.row_major((3, 16, 16)), "shared float32 3x16x16"),
    BufferLayout("row", Fragment((100,), lambda i: (i % 32, i // 32)), "fragment float32 100"),
)


def full_view() -> KernelView:
    """The sample with something to show in every view."""
    return kernel_view(
        layouts=LAYOUTS, machine=MACHINE, points=(POINT,), portable_code="line of code\n" * 99
    )


HOSTILE = (
    "</details></script><script>window.hacked=1</script>"
    """<img src=x onerror="window.hacked=1">'&"""
)
"""What no page may take for anything but a name."""


def hostile_view() -> KernelView:
    """The sample with hostile text wherever a user writes text."""
    record = compile_record(
        name=HOSTILE,
        source=f"def f():\n    {HOSTILE}\n",
        constants=((HOSTILE, HOSTILE),),
        warnings=(Note(HOSTILE, span_of("for k in")),),
        target=HOSTILE,
        code=f"define void @mm() {{ ; {HOSTILE}\n}}\n",
        entry=HOSTILE,
    )
    passes = tuple(replace(found, name=HOSTILE, doc=HOSTILE) for found in record.snapshots)
    return kernel_view(
        record=replace(record, snapshots=passes),
        grid=HOSTILE,
        flops=Count(math.nan, HOSTILE),
        layouts=(BufferLayout(HOSTILE, Layout.row_major((4, 4)), HOSTILE),),
        portable_code=HOSTILE,
        machine=replace(MACHINE, name=HOSTILE),
        points=(replace(POINT, name=HOSTILE),),
        variants=(HOSTILE,),
        accesses=(HOSTILE,),
        resources=(HOSTILE,),
        masked=((HOSTILE, True), (HOSTILE, False)),
    )
