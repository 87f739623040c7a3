"""Operations that are started and waited for: which mistakes the simulator finds.

Each kernel is right as it stands; each row changes a few of its lines and says what is found, at
which line. A row without a finding is a mistake that this execution cannot show.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.capability import require
from tests.differential.harness import (
    check_everywhere,
    check_executors,
    check_on_threads,
    equals,
    run_native,
)
from tests.frontend.golden import program_of
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import DeadlockError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.simt import ASYNCHRONOUS, AsyncCopy, Start, WaitGroup
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.sim import SimOptions, simulate

COPIES = """\
@T.prim_func
def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
    with T.Kernel(1, threads=64) as bx:
        S = T.alloc_shared((2, 64), "float32")
        T.async_copy(A[0, :], S[0, :])
        T.ptx_commit_group()
        T.async_copy(A[1, :], S[1, :])
        T.ptx_commit_group()
        T.ptx_wait_group(1)
        T.copy(S[0, :], B[0, :])
        T.ptx_wait_group(0)
        T.copy(S[1, :], B[1, :])
"""
BY_ADDRESS = """\
@T.prim_func
def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
    with T.Kernel(1, threads=32) as bx:
        S = T.alloc_shared((2, 64), "float32")
        tx = T.get_thread_binding()
        for k in T.serial(2):
            T.ptx_cp_async(T.access_ptr(S[k, tx * 2], "w", 2), T.access_ptr(A[k, tx * 2], "r"), 2)
            T.ptx_commit_group()
        T.ptx_wait_group(0)
        T.sync_threads()
        for k in T.serial(2):
            B[k, 31 - tx] = S[k, 31 - tx]
            B[k, 63 - tx] = S[k, 63 - tx]
"""
BULK = """\
@T.prim_func
def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
    with T.Kernel(1, threads=256) as bx:
        S = T.alloc_shared((64,), "float32")
        full = T.alloc_barrier(128)
        free = T.alloc_barrier(128)
        with T.ws(0):
            for k in T.serial(2):
                T.mbarrier_wait_parity(free, k % 2 ^ 1)
                T.tma_copy(A[k, :], S, barrier=full)
                T.mbarrier_arrive(full)
        with T.ws(1):
            for k in T.serial(2):
                T.mbarrier_wait_parity(full, k % 2)
                T.copy(S, B[k, :])
                T.mbarrier_arrive(free)
"""
STORES = """\
@T.prim_func
def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
    with T.Kernel(1, threads=64) as bx:
        S = T.alloc_shared((64,), "float32")
        for k in T.serial(2):
            T.copy(A[k, :], S)
            T.tma_copy(S, B[k, :])
            T.tma_store_arrive()
            T.tma_store_wait(0)
"""
PRODUCTS = """\
@T.prim_func
def kernel(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128) as bx:
        P = T.alloc_shared((64, 64), "float16")
        Q = T.alloc_shared((64, 64), "float16")
        R = T.alloc_shared((64, 64), "float16")
        C = T.alloc_fragment((64, 64), "float32")
        T.copy(A, P)
        T.copy(A, Q)
        T.copy(A, R)
        T.clear(C)
        T.wgmma_gemm(P, Q, C)
        T.wgmma_gemm(R, Q, C)
        T.wait_wgmma(1)
        T.clear(P)
        T.wait_wgmma(0)
        T.copy(C, B)
"""
CLUSTER = """\
@T.prim_func
def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
    with T.ClusterKernel(2, cluster_dims=2, threads=64) as bx:
        S = T.alloc_shared((64,), "float32")
        D = T.alloc_shared((64,), "float32")
        full = T.alloc_cluster_barrier([1])
        T.copy(A[bx, :], S)
        T.cluster_sync()
        T.copy_cluster(S, D, dst_block=1 - bx, remote_barrier=full[0])
        T.mbarrier_wait_parity(full[0], 0)
        T.copy(D, B[bx, :])
        T.cluster_sync()
"""
ARRIVALS = """\
@T.prim_func
def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
    with T.Kernel(1, threads=64) as bx:
        S = T.alloc_shared((64,), "float32")
        bar = T.alloc_barrier(64)
        tx = T.get_thread_binding()
        T.mbarrier_arrive(bar)
        T.mbarrier_wait_parity(bar, 0)
        S[tx] = A[0, tx]
        T.mbarrier_arrive(bar)
        T.mbarrier_wait_parity(bar, 1)
        B[0, tx] = S[63 - tx]
"""

LANDED = "read before the wait for the asynchronous copy that writes it"
FORMED = "read before the wait for the asynchronous product that writes it"
OVERTAKEN = "written while an asynchronous copy to it is under way"
OPERAND = "written while an asynchronous product still reads it"
EMPTIED = "written while T.tma_copy still reads it"

# Lines of a kernel and what stands in their place, "=" being the line itself.
Changes = dict[str, list[str]]
# What is found: the line and a sentence; a deadlock with a part of its message; or nothing.
Found = tuple[str, str]
NOTHING, DEADLOCK = ("", ""), "deadlock"

FIRST, SECOND = "T.copy(S[0, :], B[0, :])", "T.copy(S[1, :], B[1, :])"
START = "T.async_copy(A[1, :], S[1, :])"
WAIT, COMMIT = "T.ptx_wait_group(0)", "T.ptx_commit_group()"
READ = "B[k, 31 - tx] = S[k, 31 - tx]"
LOADED, FREED = "T.mbarrier_wait_parity(full, k % 2)", "T.mbarrier_wait_parity(free, k % 2 ^ 1)"
STORED, LOAD = "T.tma_store_wait(0)", "T.tma_copy(A[k, :], S, barrier=full)"
FULL, LOOP = "full = T.alloc_barrier(128)", "for k in T.serial(2):"
SEND = "T.copy_cluster(S, D, dst_block=1 - bx, remote_barrier=full[0])"
SENT, RECEIVED = "full = T.alloc_cluster_barrier([1])", "T.copy(D, B[bx, :])"
MORE = "arrived at more often in one phase than it was made for"
UNFENCED = "read by the copy engine or tensor cores, with no fence behind the write of a thread"
PEER = "T.mbarrier_wait_parity(full[0], 0)"

TABLE: list[tuple[str, str, str, Changes, Found]] = [
    # cp.async, tiles
    ("cp.async", "no wait", COPIES, {WAIT: []}, (SECOND, LANDED)),
    ("cp.async", "early", COPIES, {WAIT: [], START: [WAIT, "="]}, (SECOND, LANDED)),
    ("cp.async", "late", COPIES, {WAIT: [], SECOND: ["=", WAIT]}, (SECOND, LANDED)),
    ("cp.async", "one too many left", COPIES, {WAIT: ["T.ptx_wait_group(1)"]}, (SECOND, LANDED)),
    ("cp.async", "one too few left", COPIES, {"T.ptx_wait_group(1)": [WAIT]}, NOTHING),
    ("cp.async", "no commit", COPIES, {COMMIT: []}, (FIRST, LANDED)),
    ("cp.async", "another engine", COPIES, {WAIT: ["T.wait_wgmma(0)"]}, (SECOND, LANDED)),
    ("cp.async", "overwritten", COPIES, {WAIT: ["T.clear(S)", "="]}, ("T.clear(S)", OVERTAKEN)),
    # cp.async, threads
    ("addresses", "no wait", BY_ADDRESS, {WAIT: []}, (READ, LANDED)),
    ("addresses", "early", BY_ADDRESS, {WAIT: [], COMMIT: [WAIT, "="]}, (READ, LANDED)),
    ("addresses", "late", BY_ADDRESS, {WAIT: [], READ: ["=", WAIT]}, (READ, LANDED)),
    ("addresses", "one too many left", BY_ADDRESS, {WAIT: ["T.ptx_wait_group(1)"]}, (READ, LANDED)),
    ("addresses", "no commit", BY_ADDRESS, {COMMIT: []}, (READ, LANDED)),
    # TMA into shared memory
    ("TMA", "no wait", BULK, {LOADED: []}, ("T.copy(S, B[k, :])", LANDED)),
    ("TMA", "early", BULK, {LOADED: [], FREED: ["T.mbarrier_wait_parity(full, k % 2)", "="]},
     (DEADLOCK, "for parity 0 of 'full[0]', which lacks 128 of 128 arrivals")),
    ("TMA", "late", BULK, {LOADED: [], "T.copy(S, B[k, :])": ["=", LOADED]},
     ("T.copy(S, B[k, :])", LANDED)),
    ("TMA", "wrong phase", BULK, {LOADED: ["T.mbarrier_wait_parity(full, k % 2 ^ 1)"]},
     ("T.copy(S, B[k, :])", LANDED)),
    ("TMA", "one arrival too few", BULK, {FULL: ["full = T.alloc_barrier(129)"]},
     (DEADLOCK, "which lacks 1 of 129 arrivals")),
    ("TMA", "one arrival too many", BULK, {FULL: ["full = T.alloc_barrier(127)"]},
     ("T.mbarrier_arrive(full)", f"{MORE}: count 127")),
    ("TMA", "no room", BULK, {FREED: []}, (LOAD, OVERTAKEN)),
    ("TMA", "another barrier", BULK, {LOAD: ["T.tma_copy(A[k, :], S, barrier=free)"]},
     ("T.copy(S, B[k, :])", LANDED)),
    # TMA out of shared memory
    ("TMA store", "no wait", STORES, {STORED: []}, ("T.copy(A[k, :], S)", EMPTIED)),
    ("TMA store", "early", STORES, {STORED: [], "T.tma_store_arrive()": [STORED, "="]},
     ("T.copy(A[k, :], S)", EMPTIED)),
    ("TMA store", "late", STORES, {STORED: [], "T.copy(A[k, :], S)": ["=", STORED]},
     ("T.copy(A[k, :], S)", EMPTIED)),
    ("TMA store", "one too many left", STORES, {STORED: ["T.tma_store_wait(1)"]},
     ("T.copy(A[k, :], S)", EMPTIED)),
    ("TMA store", "no commit", STORES, {"T.tma_store_arrive()": []},
     ("T.copy(A[k, :], S)", EMPTIED)),
    ("TMA store", "no wait at the end", STORES, {STORED: [], LOOP: ["for k in T.serial(1):"]},
     ("T.tma_copy(S, B[k, :])", "still read by T.tma_copy when the block ends")),
    ("TMA store", "read back too early", STORES, {STORED: ["=", "T.copy(B[k, :], S)"]},
     ("T.copy(B[k, :], S)", "read before the wait for the T.tma_copy that writes it")),
    ("TMA store", "read back", STORES,
     {STORED: ["T.tma_store_wait(0, read=False)", "T.copy(B[k, :], S)"]},
     NOTHING),
    # wgmma
    ("wgmma", "no wait", PRODUCTS, {"T.wait_wgmma(0)": []}, ("T.copy(C, B)", FORMED)),
    ("wgmma", "early", PRODUCTS,
     {"T.wait_wgmma(0)": [], "T.wgmma_gemm(R, Q, C)": ["T.wait_wgmma(0)", "="]},
     ("T.copy(C, B)", FORMED)),
    ("wgmma", "late", PRODUCTS, {"T.wait_wgmma(0)": [], "T.copy(C, B)": ["=", "T.wait_wgmma(0)"]},
     ("T.copy(C, B)", FORMED)),
    ("wgmma", "one too many left", PRODUCTS, {"T.wait_wgmma(0)": ["T.wait_wgmma(1)"]},
     ("T.copy(C, B)", FORMED)),
    ("wgmma", "operand overwritten", PRODUCTS, {"T.wait_wgmma(1)": []}, ("T.clear(P)", OPERAND)),
    ("wgmma", "accumulator overwritten", PRODUCTS, {"T.wait_wgmma(0)": ["T.clear(C)", "="]},
     ("T.clear(C)", "written while an asynchronous product into it is under way")),
    # memory of another block
    ("cluster", "no wait", CLUSTER, {PEER: []}, (RECEIVED, LANDED)),
    ("cluster", "early", CLUSTER, {PEER: [], SEND: [PEER, "="]},
     (DEADLOCK, "for parity 0 of 'full[0]', which lacks 1 of 1 arrivals")),
    ("cluster", "late", CLUSTER, {PEER: [], RECEIVED: ["=", PEER]}, (RECEIVED, LANDED)),
    ("cluster", "wrong phase", CLUSTER, {PEER: ["T.mbarrier_wait_parity(full[0], 1)"]},
     (RECEIVED, LANDED)),
    ("cluster", "one arrival too few", CLUSTER, {SENT: ["full = T.alloc_cluster_barrier([2])"]},
     (DEADLOCK, "which lacks 1 of 2 arrivals")),
    ("cluster", "one arrival too many", CLUSTER, {PEER: ["T.mbarrier_arrive(full[0])", "="]},
     ("T.mbarrier_arrive(full[0])", f"{MORE}: count 1")),
    ("cluster", "overwritten", CLUSTER, {SEND: ["=", "T.clear(S)"]},
     ("T.clear(S)", "written while an asynchronous copy still reads it")),
]  # fmt: skip
CASES = [pytest.param(*rest, id=f"{engine}-{mistake}") for engine, mistake, *rest in TABLE]


def changed(source: str, changes: Changes) -> str:
    """The kernel with the mistake."""
    lines = []
    for line in source.splitlines():
        words = line.lstrip()
        indent = line[: len(line) - len(words)]
        new = changes.get(words, ["="])
        lines += [indent + (words if each == "=" else each) for each in new]
    assert changes.keys() <= {line.strip() for line in source.splitlines()}
    return "\n".join(lines) + "\n"


def arguments_of(program: Program) -> dict[str, np.ndarray]:
    """A of small whole numbers, whose sums and products are exact, and B of zeros."""
    made = {}
    for param in program.params:
        shape = tuple(const_int(extent) for extent in param.value.shape)
        values = np.arange(np.prod(shape)) * (param.name == "A") % 7
        made[param.name] = values.reshape(shape).astype(str(param.value.dtype))
    return made


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize(("source", "changes", "found"), CASES)
def test_which_mistakes_are_found(source, changes, found, seed):
    source = changed(source, changes)
    program = program_of(source)
    try:
        report = simulate(program, arguments_of(program), options=SimOptions(seed=seed)).report
    except DeadlockError as error:
        text = "\n".join([f"{DEADLOCK}: {error.message}", *getattr(error, "__notes__", ())])
    else:
        assert report.ok == (found == NOTHING)
        text = str(report)
    line, sentence = found
    lines = [at for at, words in enumerate(source.splitlines(), 1) if words.strip() == line]
    if line == DEADLOCK:
        assert text.startswith(DEADLOCK) and sentence in text
    elif line:
        assert any(f": {sentence} (kernel.py, line {at}" in text for at in lines)


def copied(a: np.ndarray) -> np.ndarray:
    return a


def multiplied(a: np.ndarray) -> np.ndarray:
    return 2 * (a.astype(np.float32) @ a.astype(np.float32))


def check_on_sm_90a(program, arguments, check):
    """As `check_executors`, by the threads of the GPU that has warpgroups."""
    check_everywhere(program, arguments, check, ("native",))
    check_on_threads(program, arguments, check, "sim:sm_90a")


@pytest.mark.parametrize(
    ("source", "reference", "check"),
    [
        (COPIES, copied, check_executors),
        (BY_ADDRESS, copied, check_executors),
        (BULK, copied, check_executors),
        (STORES, copied, check_executors),
        (PRODUCTS, multiplied, check_on_sm_90a),
        (CLUSTER, lambda a: a[::-1].copy(), check_everywhere),  # no GPU has code for clusters
    ],
    ids=["cp.async", "addresses", "TMA", "TMA store", "wgmma", "cluster"],
)
def test_right_kernels_run_everywhere(source, reference, check):
    program = program_of(source)
    assert parse(print_program(program)) == program
    arguments = arguments_of(program)
    check(program, arguments, equals(B=reference(arguments["A"])))


@pytest.mark.parametrize(("pending", "ok"), [(0, True), (1, True), (2, False)])
def test_counters_of_amd_are_groups_of_one(pending, ok):
    """s_waitcnt vmcnt(n): each copy is a group, and all but the latest n are done."""
    program = parse(
        f"""\
@T.program(stage="tile")
def kernel(
    A: T.Tensor((2, 64), "float32"),
    B: T.Tensor((2, 64), "float32"),
):
    with T.Kernel(1, threads=64) as bx:
        S = T.alloc_shared((2, 64), "float32")
        with T.started("vmcnt"):
            T.copy(A[0:1, 0:64], S[0:1, 0:64])
        T.commit_group(engine='vmcnt')
        with T.started("vmcnt"):
            T.copy(A[1:2, 0:64], S[1:2, 0:64])
        T.commit_group(engine='vmcnt')
        T.wait_group(pending={pending}, engine='vmcnt')
        T.copy(S[0:1, 0:64], B[0:1, 0:64])
"""
    )
    assert simulate(program, arguments_of(program)).report.ok == ok


@pytest.mark.parametrize("seed", [None, 0])
def test_a_block_that_ends_while_a_copy_reads_its_memory(seed):
    """The copy to the other block goes on: what it brings is there for who waits."""
    program = program_of(CLUSTER.rpartition("        T.cluster_sync()\n")[0])
    arguments = arguments_of(program)
    simulated = simulate(program, arguments, options=SimOptions(seed=seed))
    assert re.search(
        r"'S' in block \([01]\): still read by a copy to another block when its own block ends "
        r"\(kernel.py, line 9\)",
        str(simulated.report),
    )
    assert simulated.report.uninitialised == ()
    np.testing.assert_array_equal(simulated.arrays["B"], arguments["A"][::-1])


def test_a_copy_to_another_block_outlives_its_own():
    source = CLUSTER.rpartition("        T.cluster_sync()\n")[0].replace(f"        {PEER}\n", "")
    program = program_of(source)
    report = simulate(program, arguments_of(program)).report
    assert f"'D[0]' in block (1): {LANDED} (kernel.py, line 10" in str(report)


def test_an_arrival_that_may_count_for_the_phase_before():
    """In lock step all threads arrive at once; as hardware runs them one may be a phase ahead."""
    for changes, ok in ({}, True), ({"T.mbarrier_wait_parity(bar, 0)": []}, False):
        source = changed(ARRIVALS, changes)
        program = program_of(source)
        for snapshot in lower_program(program, resolve_target("sim:sm_80")):
            report = simulate(snapshot.program, arguments_of(program), signature=program).report
            assert report.ok == (ok or snapshot.program.stage is not Stage.SIMT)
        if not ok:
            line = source.splitlines().index("        S[tx] = A[0, tx]") + 2
            assert (
                "arrived at by a thread that no wait orders behind the phase before "
                f"(kernel.py, line {line}" in str(report)
            )


FENCE = "T.fence_proxy_async()"
FILL, CLEAR = "T.copy(A[k, :], S)", "T.clear(C)"
FENCES: list[tuple[str, str, str, Changes, Found]] = [
    ("TMA store", "no fence", STORES, {}, ("T.tma_copy(S, B[k, :])", UNFENCED)),
    ("TMA store", "a fence", STORES, {FILL: ["=", FENCE]}, NOTHING),
    ("TMA store", "early", STORES, {FILL: [FENCE, "="]}, ("T.tma_copy(S, B[k, :])", UNFENCED)),
    ("wgmma", "no fence", PRODUCTS, {}, ("T.wgmma_gemm(P, Q, C)", UNFENCED)),
    ("wgmma", "a fence", PRODUCTS, {CLEAR: ["=", FENCE]}, NOTHING),
    ("wgmma", "early", PRODUCTS, {"T.copy(A, R)": [FENCE, "="]},
     ("T.wgmma_gemm(R, Q, C)", UNFENCED)),
    ("cluster", "no fence", CLUSTER, {}, (SEND, UNFENCED)),
    ("cluster", "a fence", CLUSTER, {"T.copy(A[bx, :], S)": ["=", FENCE]}, NOTHING),
    # threads go the same way as cp.async, and read what the copy engine writes behind its barrier
    ("cp.async", "no fence", COPIES, {}, NOTHING),
    ("TMA", "no fence", BULK, {}, NOTHING),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "changes", "found"),
    [pytest.param(*rest, id=f"{engine}-{mistake}") for engine, mistake, *rest in FENCES],
)
def test_which_fences_are_missed(source, changes, found):
    """As code for sm_90 must have them; of a kernel, lowering puts them in."""
    source = changed(source, changes)
    program = program_of(source)
    assert simulate(program, arguments_of(program)).report.ok
    options = SimOptions(fences=True)
    report = simulate(program, arguments_of(program), options=options).report
    line, sentence = found
    lines = [at for at, words in enumerate(source.splitlines(), 1) if words.strip() == line]
    assert report.ok == (not line)
    assert not line or any(f": {sentence} (kernel.py, line {at} and" in str(report) for at in lines)


@pytest.mark.parametrize(
    ("writers", "reader", "ok"),
    [
        ("", "", False),
        ("T.fence(kind='async')", "", True),
        ("", "T.fence(kind='async')", True),
        # by one thread, which does not know yet what the others wrote
        ("if tx == 0:\n            T.fence(kind='async')", "", False),
    ],
    ids=["none", "of all writers", "of the reader", "too early"],
)
def test_lowered_code_needs_its_fences(writers, reader, ok):
    """From stage SIMT on: by all threads that wrote, or by the one that starts the copy."""
    program = parse(
        f"""\
@T.program(stage="simt")
def kernel(
    A: T.Tensor((2, 64), "float32"),
    B: T.Tensor((2, 64), "float32"),
):
    with T.Kernel(1, threads=64, thread_vars=["tx"]) as bx:
        S = T.alloc_shared((64,), "float32", offset=0)
        S[tx] = A[0, tx]
        {writers}
        T.sync_threads()
        if tx == 0:
            {reader}
            with T.started("tma_store"):
                for i in T.serial(64):
                    B[0, i] = S[i]
            T.commit_group(engine='tma_store')
            T.wait_group(pending=0, engine='tma_store', sources=True)
"""
    )
    assert simulate(program, arguments_of(program)).report.ok == ok


WIDE = COPIES.replace("(2, 64)", "(2, 512)")


def test_copies_of_threads_stay_asynchronous_on_a_gpu():
    """The same mistakes are found after each pass; in lock step copies are done at once."""
    program = program_of(WIDE)
    arguments = arguments_of(program)
    check_on_threads(program, arguments, equals(B=arguments["A"]))
    found = {}
    for snapshot in lower_program(program, resolve_target("sim:sm_80")):
        below = list(statements(snapshot.program.body))
        assert sum(isinstance(stmt, WaitGroup) for stmt in below) == 2
        made = with_body(snapshot.program, Rewriter(rewrite_stmt=_one_more)(snapshot.program.body))
        report = simulate(made, arguments, signature=program).report
        met = {finding.detail for finding in report.findings} == {LANDED}
        assert met or report.ok
        lock_step = snapshot.program.stage is Stage.PLANNED
        started = any(isinstance(stmt, Start) for stmt in below)
        assert met == (started or not lock_step)
        found[snapshot.program.stage] = any(isinstance(stmt, AsyncCopy) for stmt in below)
    assert found == {Stage.TILE: False, Stage.PLANNED: True, Stage.SIMT: True}


@pytest.mark.nvrtc
def test_copies_of_threads_from_their_ptx():
    require("nvrtc", missing_nvrtc())
    program = program_of(WIDE)
    arguments = arguments_of(program)
    equals(B=arguments["A"])(run_native(program, arguments, "ptx:sm_80"))


def _one_more(stmt: Stmt) -> Stmt:
    """A wait that leaves one group too many."""
    return replace(stmt, pending=stmt.pending + 1) if isinstance(stmt, WaitGroup) else stmt


@pytest.mark.parametrize(("source", "changes", "found"), CASES)
def test_compiled_code_does_everything_at_once(source, changes, found):
    """On a CPU no pass after the first has anything to wait for, whatever waits are missing."""
    program = program_of(changed(source, changes))
    first, *_ = lower_program(program, resolve_target("cpu"))
    assert first.name == "complete_operations"
    left = [stmt for stmt in statements(first.program.body) if isinstance(stmt, ASYNCHRONOUS)]
    assert not left
