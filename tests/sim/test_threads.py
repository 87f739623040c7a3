"""What each thread of a block does: indices, divergence, exchanges, roles and barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.kernels import program
from tests.sim.threads import report, run, threads
from tileworkbench.compiler.diagnostics import DeadlockError, OutOfBoundsError, RunError
from tileworkbench.compiler.sim import SimOptions, simulate
from tileworkbench.compiler.sim.threads import marks

Array = np.ndarray[Any, Any]
X = np.arange(64, dtype=np.int32)
RANDOM = np.random.default_rng(11)
STAGES = pytest.mark.parametrize("stage", ["tile", "planned", "simt"])


def zeros(count: int = 64) -> Array:
    return np.zeros(count, np.int32)


@STAGES
def test_every_thread_has_its_index(stage: str) -> None:
    made = run("B: (64,) int32", "B[bx * 32 + tx] = bx * 100 + tx", grid=2, stage=stage, B=zeros())
    assert made.arrays["B"].tolist() == [*range(32), *range(100, 132)]
    assert made.report.ok


def test_threads_of_two_dimensions_count_x_first() -> None:
    text = (
        'with T.Kernel(1, threads=(4, 3), thread_vars=["x", "y"]) as bx:\n    B[y, x] = x * 10 + y'
    )
    made = program("B: (3, 4) int32", text)
    found = simulate(made, {"B": np.zeros((3, 4), np.int32)}).arrays["B"]
    assert found.tolist() == [[x * 10 + y for x in range(4)] for y in range(3)]


@STAGES
def test_a_scalar_atomic_counts_every_thread(stage: str) -> None:
    found = run("B: (2,) int32", "T.atomic_add(B[bx], 1)", 96, stage=stage, grid=2, B=zeros(2))
    assert found.arrays["B"].tolist() == [96, 96]


@STAGES
@pytest.mark.parametrize(("value", "races"), [("5", False), ("tx", True), ("tx // 32", True)])
def test_threads_may_store_the_same_value_but_not_two(stage: str, value: str, races: bool) -> None:
    found = report("B: (1,) int32", f"B[0] = {value}", 64, stage=stage, B=zeros(1))
    assert bool(found.races) == races


def test_lanes_diverge_and_meet_again() -> None:
    body = """
    n = T.alloc_var("int32", 0)
    for i in T.serial(tx % 5):
        if i == 3:
            continue
        n[()] = n[()] + i + 1
    while n[()] < 2:
        n[()] = n[()] + 7
        if tx == 5:
            break
    if tx < 16:
        B[tx] = n[()]
    else:
        B[tx] = -n[()]
    """

    def expected(tx: int) -> int:
        n = sum(i + 1 for i in range(tx % 5) if i != 3)
        return (n + 7 if n < 2 else n) * (1 if tx < 16 else -1)

    found = run("B: (32,) int32", body, B=zeros(32))
    assert found.arrays["B"].tolist() == [expected(tx) for tx in range(32)]


def test_each_thread_has_its_own_registers() -> None:
    body = """
    r = T.alloc_local((4,), "int32")
    for i in T.unroll(4):
        r[i] = tx * 10 + i
    B[tx] = r[tx % 4]
    """
    found = run("B: (32,) int32", body, B=zeros(32))
    assert found.arrays["B"].tolist() == [tx * 10 + tx % 4 for tx in range(32)]
    assert found.report.ok


# Exchanges ----------------------------------------------------------

V = RANDOM.integers(-9, 9, 64).astype(np.int32)
L = np.arange(64)
SHUFFLES = [
    ("T.shfl(x, 3)", lambda v: v[L // 32 * 32 + 3]),
    ("T.shfl(x, tx + 1)", lambda v: v[L // 32 * 32 + (L + 1) % 32]),
    ("T.shfl(x, 1, width=8)", lambda v: v[L // 8 * 8 + 1]),
    ("T.shfl_xor(x, 5)", lambda v: v[L ^ 5]),
    ("T.shfl_down(x, 4)", lambda v: v[np.where(L % 32 < 28, L + 4, L)]),
    ("T.shfl_up(x, 4)", lambda v: v[np.where(L % 32 >= 4, L - 4, L)]),
    ("T.shfl_down(x, 3, width=8)", lambda v: v[np.where(L % 8 < 5, L + 3, L)]),
    ("T.warp_sum(x)", lambda v: v.reshape(2, 32).sum(1)[L // 32]),
    ("T.warp_max(x)", lambda v: v.reshape(2, 32).max(1)[L // 32]),
    ("T.warp_min(x)", lambda v: v.reshape(2, 32).min(1)[L // 32]),
    ("T.warp_and(x)", lambda v: np.bitwise_and.reduce(v.reshape(2, 32), 1)[L // 32]),
    ("T.warp_or(x)", lambda v: np.bitwise_or.reduce(v.reshape(2, 32), 1)[L // 32]),
    ("T.warp_xor(x)", lambda v: np.bitwise_xor.reduce(v.reshape(2, 32), 1)[L // 32]),
    ("T.any_sync(x > 7)", lambda v: (v.reshape(2, 32) > 7).any(1)[L // 32]),
    ("T.all_sync(x > -9)", lambda v: (v.reshape(2, 32) > -9).all(1)[L // 32]),
    ("T.block_count(x > 0)", lambda v: np.full(64, (v > 0).sum())),
    ("T.block_any(x == v)", lambda v: np.ones(64)),
    ("T.block_all(x > 0)", lambda v: np.zeros(64)),
]


@pytest.mark.parametrize(("call", "expected"), SHUFFLES, ids=[call for call, _ in SHUFFLES])
def test_exchanges_of_values(call: str, expected: Any) -> None:
    body = f"x = A[tx]\ny = {call.replace('x == v', 'x < 100')}\nB[tx] = y"
    found = run("A: (64,) int32; B: (64,) int32", body, 64, A=V, B=zeros())
    assert found.arrays["B"].tolist() == expected(V).tolist()
    assert found.report.ok


@pytest.mark.parametrize(("target", "lanes"), [("", 32), ("sim:sm_80", 32), ("hip:gfx90a", 64)])
def test_exchanges_are_of_the_languages_warps_on_every_target(target: str, lanes: int) -> None:
    """A wave of 64 has two of them; it accesses memory as a whole."""
    text = "A: (128,) int32; B: (128,) int32; C: (128,) uint64"
    body = "x = A[tx]\ny = T.warp_sum(x)\nz = T.ballot(x > 0)\nB[tx] = y\nC[tx] = z"
    arrays = {"A": np.resize(V, 128), "B": zeros(128), "C": np.zeros(128, np.uint64)}
    found = simulate(threads(text, body, 128, target=target), arrays)
    warps = arrays["A"].reshape(-1, 32)
    assert found.arrays["B"].tolist() == warps.sum(1).repeat(32).tolist()
    assert found.arrays["C"].tolist() == [_bits(warp > 0) for warp in warps for _ in range(32)]
    assert [a.count for a in found.report.accesses if a.buffer == "A"] == [128 // lanes]


def _bits(chosen: Any) -> int:
    return sum(1 << lane for lane, on in enumerate(chosen) if on)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("T.ballot(x > 0)", lambda warp, lane: _bits(warp > 0)),
        ("T.activemask()", lambda warp, lane: 0xFFFFFFFF),
        ("T.match_any(x)", lambda warp, lane: _bits(warp == warp[lane])),
        ("T.match_all(x)", lambda warp, lane: 0),
        ("T.match_all(x * 0)", lambda warp, lane: 0xFFFFFFFF),
    ],
)
def test_exchanges_of_masks(call: str, expected: Any) -> None:
    text = "A: (64,) int32; B: (64,) uint64"
    found = run(text, f"x = A[tx]\ny = {call}\nB[tx] = y", 64, A=V, B=np.zeros(64, np.uint64))
    warps = V.reshape(2, 32)
    assert found.arrays["B"].tolist() == [expected(warps[t // 32], t % 32) for t in range(64)]


def test_an_exchange_under_a_mask_takes_the_lanes_it_names() -> None:
    body = """
    if tx % 32 < 8:
        y = T.shfl_xor(tx, 1, mask=T.uint32(255))
        n = T.activemask()
        B[tx] = y + T.int32(n)
    """
    found = run("B: (64,) int32", body, 64, B=zeros())
    assert found.arrays["B"].tolist() == [(t ^ 1) + 255 if t % 32 < 8 else 0 for t in range(64)]


def test_an_exchange_in_divergent_code_is_an_error() -> None:
    with pytest.raises(RunError) as caught:
        report(
            "B: (64,) int32", "if tx < 40:\n    y = T.shfl_xor(tx, 1)\n    B[tx] = y", 64, B=zeros()
        )
    assert caught.value.render() == (
        "DivergenceError: 'shfl_xor' is executed by 8 of the 32 threads of warp 1 that must take "
        "part in block (0)\n"
        "  --> k.py, line 1\n"
        "hint: let all threads of the warp take part, or exchange within the active ones only"
    )


def test_a_value_from_a_thread_that_does_not_take_part_is_found() -> None:
    body = "if tx < 16:\n    y = T.shfl(tx, {})\n    B[tx] = y"
    for lane, bad in (("tx + 8", True), ("tx ^ 8", False)):
        text = body.replace("y = T.shfl(tx, {})", f"y = T.shfl(tx, {lane}, mask=T.uint32(65535))")
        found = report("B: (64,) int32", text, B=zeros())
        assert [finding.buffer for finding in found.uninitialised] == (["y"] if bad else [])


# Barriers ----------------------------------------------------------

HAND_OVER = """
S = T.alloc_shared((64,), "int32", offset=0)
S[tx] = A[tx]
{barrier}
B[tx] = S[63 - tx]
"""


@pytest.mark.parametrize(
    ("stage", "barrier", "ok"),
    [
        ("simt", "T.sync_threads()", True),
        ("simt", "pass", False),
        ("simt", "T.sync_threads(id=2, count=64)", True),
        ("simt", "T.sync_warp(T.uint32(4294967295))", False),
        ("planned", "pass", True),
        ("tile", "pass", True),
    ],
)
def test_only_a_barrier_hands_shared_memory_over(stage: str, barrier: str, ok: bool) -> None:
    text = HAND_OVER.format(barrier=barrier)
    found = run("A: (64,) int32; B: (64,) int32", text, 64, stage=stage, A=X, B=zeros())
    assert found.report.ok == ok, str(found.report)
    assert found.arrays["B"].tolist() == X[::-1].tolist()


def test_a_warp_barrier_orders_a_warp() -> None:
    body = """
    S = T.alloc_shared((64,), "int32", offset=0)
    S[tx] = A[tx]
    {}
    B[tx] = S[tx ^ 1]
    """
    for barrier, ok in (
        ("T.sync_warp(T.uint32(4294967295))", True),
        ("T.fence(kind='block')", False),
    ):
        found = report("A: (64,) int32; B: (64,) int32", body.format(barrier), 64, A=X, B=zeros())
        assert found.ok == ok


def test_lanes_that_part_meet_at_a_warp_barrier() -> None:
    body = """
    S = T.alloc_shared((32,), "int32", offset=0)
    if tx < 8:
        S[tx] = tx
        T.sync_warp(T.uint32(4294967295))
    else:
        T.sync_warp(T.uint32(4294967295))
        B[tx] = S[tx % 8]
    """
    found = run("B: (32,) int32", body, B=zeros(32))
    assert found.report.ok, str(found.report)
    assert found.arrays["B"].tolist() == [0] * 8 + [t % 8 for t in range(8, 32)]


NAMED = """
S = T.alloc_shared((32,), "int32", offset=0)
with T.threads(0, 32):
    S[tx] = tx * 3
    T.sync_threads(id=1, count=64, wait={wait})
with T.threads(32, 32):
    T.sync_threads(id=1, count=64)
    B[tx] = S[tx % 32]
with T.threads(64, 32):
    B[tx] = -1
"""


@pytest.mark.parametrize("wait", ["True", "False"])
def test_a_named_barrier_joins_two_roles(wait: str) -> None:
    found = run("B: (96,) int32", NAMED.format(wait=wait), 96, B=zeros(96))
    assert found.report.ok, str(found.report)
    assert found.arrays["B"].tolist() == [0] * 32 + [3 * t for t in range(32)] + [-1] * 32


def test_arriving_orders_only_what_came_before() -> None:
    late = NAMED.format(wait="False").replace(
        "    T.sync_threads(id=1, count=64, wait=False)",
        "    T.sync_threads(id=1, count=64, wait=False)\n    S[tx] = 0",
    )
    found = report("B: (96,) int32", late, 96, B=zeros(96))
    assert {finding.buffer for finding in found.races} == {"S"}


PRODUCER = """
full = T.alloc_barrier((2,), "uint64", offset=0)
free = T.alloc_barrier((2,), "uint64", offset=16)
S = T.alloc_shared((2, 32), "int32", offset=128)
if tx == 0:
    for i in T.unroll(2):
        T.barrier_init(T.address_of(full[i]), 32)
        T.barrier_init(T.address_of(free[i]), 32)
T.sync_threads()
with T.threads(0, 32):
    for k in T.serial(6):
        T.barrier_wait(T.address_of(free[k % 2]), {free})
        S[k % 2, tx] = A[k * 32 + tx]
        T.barrier_arrive(T.address_of(full[k % 2]))
with T.threads(32, 32):
    n = T.alloc_var("int32", 0)
    for j in T.serial(6):
        T.barrier_wait(T.address_of(full[j % 2]), {full})
        n[()] = n[()] + S[j % 2, 63 - tx]
        T.barrier_arrive(T.address_of(free[j % 2]))
    B[tx - 32] = n[()]
"""
RIGHT = {"free": "k // 2 % 2 ^ 1", "full": "j // 2 % 2"}


@STAGES
def test_roles_hand_over_by_mbarriers(stage: str) -> None:
    a = np.arange(192, dtype=np.int32)
    text = PRODUCER.format(**RIGHT)
    found = run("A: (192,) int32; B: (32,) int32", text, 64, stage=stage, A=a, B=zeros(32))
    assert found.report.ok, str(found.report)
    assert found.arrays["B"].tolist() == a.reshape(6, 32).sum(0)[::-1].tolist()


@pytest.mark.parametrize("seed", range(6))
def test_groups_run_in_any_order(seed: int) -> None:
    a = np.arange(192, dtype=np.int32)
    made = run(
        "A: (192,) int32; B: (32,) int32",
        PRODUCER.format(**RIGHT),
        64,
        options=SimOptions(seed=seed),
        A=a,
        B=zeros(32),
    )
    assert made.report.ok
    assert made.arrays["B"].tolist() == a.reshape(6, 32).sum(0)[::-1].tolist()


@pytest.mark.parametrize("most", [0, 1 << 28])
def test_large_tensors_keep_fewer_times(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MOST_TIMES", most)
    a, parameters = np.arange(192, dtype=np.int32), "A: (192,) int32; B: (32,) int32"
    assert report(parameters, PRODUCER.format(**RIGHT), 64, A=a, B=zeros(32)).ok
    late = NAMED.format(wait="False").replace("wait=False)", "wait=False)\n    S[tx] = 0")
    assert report("B: (96,) int32", late, 96, B=zeros(96)).races
    read_before = """
    with T.threads(0, 32):
        x = B[tx]
        T.sync_threads(id=1, count=64, wait=False)
        C[tx] = x + B[tx]
    with T.threads(32, 32):
        T.sync_threads(id=1, count=64)
        B[tx - 32] = 1
    """
    text = "B: (32,) int32; C: (32,) int32"
    found = report(text, read_before, 64, B=zeros(32), C=zeros(32))
    assert {finding.buffer for finding in found.races} == {"B"}


@pytest.mark.parametrize("stage", ["tile", "simt"])
def test_a_wait_that_is_missing_is_found(stage: str) -> None:
    a = np.arange(192, dtype=np.int32)
    lines = PRODUCER.format(**RIGHT).splitlines()
    text = "\n".join(line for line in lines if "barrier_wait(T.address_of(free" not in line)
    with pytest.raises(DeadlockError, match="threads 0-31 have ended"):
        report("A: (192,) int32; B: (32,) int32", text, 64, stage=stage, A=a, B=zeros(32))


@pytest.mark.parametrize("stage", ["tile", "simt"])
def test_a_flipped_parity_is_found(stage: str) -> None:
    a = np.arange(192, dtype=np.int32)
    parameters = "A: (192,) int32; B: (32,) int32"
    text = PRODUCER.format(free=RIGHT["free"], full="j // 2 % 2 ^ 1")
    with pytest.raises(DeadlockError, match="for parity 1 of 'full"):
        report(parameters, text, 64, stage=stage, A=a, B=zeros(32))
    text = PRODUCER.format(free="k // 2 % 2", full=RIGHT["full"])
    with pytest.raises(DeadlockError) as caught:
        report(parameters, text, 64, stage=stage, A=a, B=zeros(32))
    assert caught.value.render().splitlines()[:2] == [
        "DeadlockError: block (0) waits for ever: threads 0-31 wait for parity 0 of 'free[0]', "
        "which lacks 32 of 32 arrivals (k.py, line 9); threads 32-63 wait for parity 0 of "
        "'full[0]', which lacks 32 of 32 arrivals (k.py, line 15)",
        "  --> k.py, line 9",
    ]


def test_an_mbarrier_must_be_initialised_where_all_can_see() -> None:
    text = PRODUCER.format(**RIGHT)
    parameters, a = "A: (192,) int32; B: (32,) int32", np.arange(192, dtype=np.int32)
    early = report(parameters, text.replace("T.sync_threads()", "pass"), 64, A=a, B=zeros(32))
    assert {finding.buffer for finding in early.races} == {"full", "free"}
    with pytest.raises(RunError, match=r"'full\[0\]' is used before it is initialised"):
        none = text.replace("T.barrier_init(T.address_of(full[i]), 32)", "pass")
        report(parameters, none, 64, A=a, B=zeros(32))


def test_bytes_that_never_come_are_waited_for() -> None:
    body = """
    bars = T.alloc_barrier((1,), "uint64", offset=0)
    T.barrier_init(T.address_of(bars[0]), 32)
    T.sync_threads()
    if tx == 0:
        T.barrier_expect(T.address_of(bars[0]), 64)
    T.barrier_arrive(T.address_of(bars[0]))
    T.barrier_wait(T.address_of(bars[0]), 0)
    """
    for stage in ("simt", "tile"):
        with pytest.raises(DeadlockError, match="lacks 64 bytes"):
            report("B: (1,) int32", body, stage=stage, B=zeros(1))


def test_a_barrier_that_some_threads_do_not_reach_is_a_deadlock() -> None:
    with pytest.raises(DeadlockError) as caught:
        report("B: (1,) int32", "if tx < 32:\n    T.sync_threads()\nB[0] = 1", 96, B=zeros(1))
    assert str(caught.value).splitlines()[0] == (
        "block (0) waits for ever: threads 0-31 wait at barrier 0, where 32 of 96 threads have "
        "arrived (k.py, line 1); threads 32-95 have ended"
    )


BRANCHES = "if tx < {}:\n    T.sync_threads()\nelse:\n    {}\nB[tx] = 1"


def test_a_barrier_in_divergent_code_is_found() -> None:
    found = report("B: (96,) int32", BRANCHES.format(32, "T.sync_threads()"), 96, B=zeros(96))
    assert [str(finding) for finding in found.divergent] == [
        "'barrier 0' in block (0), thread 32: the threads of a block meet at different statements "
        "(k.py, line 2)"
    ]
    half = report("B: (96,) int32", BRANCHES.format(16, "T.sync_threads()"), 96, B=zeros(96))
    assert "only some threads of a warp reach this barrier" in {f.detail for f in half.divergent}
    together = "if bx == 0:\n    T.sync_threads()\nB[tx] = 1"
    assert report("B: (96,) int32", together, 96, B=zeros(96)).ok


def test_a_barrier_in_a_loop_that_some_threads_leave() -> None:
    body = """
    for k in T.serial(3 if tx < 32 else 2):
        T.sync_threads()
        B[tx] = k
    """
    with pytest.raises(DeadlockError, match="threads 32-63 have ended"):
        report("B: (64,) int32", body, 64, B=zeros())
    even = body.replace("3 if tx < 32 else 2", "3 if tx < 64 else 2")
    assert run("B: (64,) int32", even, 64, B=zeros()).arrays["B"].tolist() == [2] * 64


GRID = """
B[bx] = bx + 1
{}
if tx == 0:
    C[bx] = B[(bx + 1) % 4]
"""


def test_a_barrier_of_the_grid_orders_blocks() -> None:
    text = "B: (4,) int32; C: (4,) int32"
    right = run(text, GRID.format("T.sync_grid()"), grid=4, B=zeros(4), C=zeros(4))
    assert right.report.ok, str(right.report)
    assert right.arrays["C"].tolist() == [2, 3, 4, 1]
    assert report(text, GRID.format("T.sync_threads()"), grid=4, B=zeros(4), C=zeros(4)).races


def test_a_barrier_of_the_grid_that_some_blocks_miss() -> None:
    with pytest.raises(DeadlockError, match="3 blocks wait at a barrier of the grid"):
        report("B: (4,) int32", "if bx > 0:\n    T.sync_grid()\nB[bx] = 1", grid=4, B=zeros(4))


# Operators of the whole block ----------------------------------------------------------


def test_tile_operators_run_once_for_the_threads_that_reach_them() -> None:
    body = """
    S = T.alloc_shared((64,), "int32")
    n = T.alloc_var("int32", 2)
    T.copy(A[0:64], S[0:64])
    if tx < 16:
        for i in T.Parallel(64):
            S[i] = S[i] * n[()]
    if tx > 100:
        T.fill(S, 0)
    T.sync_threads()
    T.atomic_add(B[tx], S[63 - tx])
    """
    found = run("A: (64,) int32; B: (64,) int32", body, 64, stage="tile", A=X, B=zeros())
    assert found.report.ok, str(found.report)
    assert found.arrays["B"].tolist() == (2 * X[::-1]).tolist()


ROLES = """
full = T.alloc_barrier((1,), "uint64")
S = T.alloc_shared((64,), "int32")
if tx == 0:
    T.barrier_init(T.address_of(full[0]), 32)
T.sync_threads()
with T.threads(0, 32):
    {produce}
    T.barrier_arrive(T.address_of(full[0]))
with T.threads(32, 32):
    {wait}
    {consume}
"""
COPY_IN = "T.copy(A[0:64], S[0:64])"
COPY_OUT = "T.copy(S[0:64], B[0:64])"
LOOP = "for i in T.Parallel(64):\n        {} = {} + 1"


@pytest.mark.parametrize("produce", [COPY_IN, LOOP.format("S[i]", "A[i]")])
@pytest.mark.parametrize("consume", [COPY_OUT, LOOP.format("B[i]", "S[i]")])
def test_tile_operators_of_roles_are_ordered_by_what_the_roles_wait_for(
    produce: str, consume: str
) -> None:
    parameters = "A: (64,) int32; B: (64,) int32"
    for wait, races in (
        ("T.barrier_wait(T.address_of(full[0]), 0)", set()),
        ("pass", {"S"}),
    ):
        text = ROLES.format(produce=produce, wait=wait, consume=consume)
        found = run(parameters, text, 64, stage="tile", A=X, B=zeros())
        assert {finding.buffer for finding in found.report.races} == races, str(found.report)
        if not races:
            added = (produce != COPY_IN) + (consume != COPY_OUT)
            assert found.arrays["B"].tolist() == (X + added).tolist()


def test_operators_after_roles_run_once_for_all_threads() -> None:
    wait, add = "T.barrier_wait(T.address_of(full[0]), 0)", "S[tx] = S[tx] + 1"
    text = ROLES.format(produce=COPY_IN, wait=wait, consume=add)
    text += "for i in T.Parallel(64):\n    S[i] = S[i] + 1\nT.copy(S[0:64], B[0:64])\n"
    text += "T.sync_threads()\nT.atomic_add(B[tx], 100)"
    found = run("A: (64,) int32; B: (64,) int32", text, 64, stage="tile", A=X, B=zeros())
    assert found.report.ok, str(found.report)
    assert found.arrays["B"].tolist() == [t + 101 + (t >= 32) for t in range(64)]
    never = text.replace(wait, wait.replace(", 0)", ", 1)"))
    with pytest.raises(DeadlockError) as caught:
        run("A: (64,) int32; B: (64,) int32", never, 64, stage="tile", A=X, B=zeros())
    assert (
        "threads 0-31 wait for the other threads of the block at an operator that takes them "
        in (caught.value.message)
    )


def test_a_view_of_registers_shares_their_bits() -> None:
    body = """
    r = T.alloc_local((2,), "float32")
    u = T.view(r, (2,), "int32")
    h = T.view(r, (4,), "int16")
    r[0] = 1.0
    r[1] = T.float32(tx)
    B[tx] = u[0] + T.int32(h[0]) + u[tx % 2]
    """
    found = run("B: (32,) int32", body, B=zeros(32))
    bits = np.arange(32, dtype=np.float32).view(np.int32)
    one = 0x3F800000
    expected = np.array([one + (int(bits[t]) if t % 2 else one) for t in range(32)])
    assert found.arrays["B"].tolist() == expected.astype(np.int32).tolist()


def test_a_tile_operator_takes_values_that_all_threads_share() -> None:
    body = 'S = T.alloc_shared((8,), "int32")\nT.copy(A[{0}:{0} + 8], S[0:8])'
    assert report("A: (64,) int32", body.format("bx"), stage="tile", A=X).ok
    with pytest.raises(RunError) as caught:
        report("A: (64,) int32", body.format("tx"), stage="tile", A=X)
    assert str(caught.value) == (
        "the threads of block (0) have different values of 'tx', which an operator of the whole "
        "block uses\n  --> k.py, line 2\n"
        "hint: let it depend on the block and on loops only, or write the operator as a loop of "
        "threads"
    )


def test_an_access_outside_names_the_thread() -> None:
    with pytest.raises(OutOfBoundsError) as caught:
        report("B: (64,) int32", "B[tx * 2] = tx", 64, B=zeros())
    assert caught.value.render().splitlines()[:2] == [
        "OutOfBoundsError: 'B[64]' is outside 'B' of shape (64) in block (0), thread 32",
        "  --> k.py, line 1",
    ]
    masked = run("B: (64,) int32", "B[tx * 2] = tx", 64, stage="tile", B=zeros())
    assert masked.report.masked[0].count == 32


def test_an_error_says_what_was_found_before() -> None:
    text = HAND_OVER.format(barrier="pass") + "B[tx + 1] = 0"
    with pytest.raises(OutOfBoundsError) as caught:
        report("A: (64,) int32; B: (64,) int32", text, 64, A=X, B=zeros())
    assert "found before this: not ok: 1 block simulated\nraces:" in caught.value.__notes__[0]
