"""How threads use memory: what is found wrong, each beside a program that is right, and what an
access costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.kernels import program
from tests.sim.threads import report, run, threads
from tileworkbench.compiler.diagnostics import OutOfBoundsError
from tileworkbench.compiler.layout import Layout
from tileworkbench.compiler.sim import FindingKind, SimOptions, simulate
from tileworkbench.compiler.sim.threads.counters import Service, sectors, wavefronts

Array = np.ndarray[Any, Any]
A = np.arange(64, dtype=np.float32)
B = np.zeros(64, np.float32)
TENSORS = "A: (64,) float32; B: (64,) float32"
SHARED = 'S = T.alloc_shared((64,), "float32", offset=0)\n'

# (name, body by 64 threads, the kind of finding and the buffer, or None)
CASES = [
    ("its own element", SHARED + "S[tx] = A[tx]\nB[tx] = S[tx]", None),
    (
        "another's element",
        SHARED + "S[tx] = A[tx]\nB[tx] = S[tx ^ 1]",
        (FindingKind.RACE, "S"),
    ),
    (
        "another's element after a barrier",
        SHARED + "S[tx] = A[tx]\nT.sync_threads()\nB[tx] = S[tx ^ 1]",
        None,
    ),
    (
        "overwritten while others may read",
        SHARED + "S[tx] = A[tx]\nT.sync_threads()\nB[tx] = S[tx ^ 1]\nS[tx] = 0.0",
        (FindingKind.RACE, "S"),
    ),
    (
        "overwritten by its only reader",
        SHARED + "S[tx] = A[tx]\nT.sync_threads()\nB[tx] = S[tx ^ 1]\nS[tx ^ 1] = 0.0",
        None,
    ),
    (
        "the hazard of the next iteration",
        SHARED
        + "for k in T.serial(2):\n    S[tx] = A[tx]\n    T.sync_threads()\n    B[tx] = S[tx ^ 1]",
        (FindingKind.RACE, "S"),
    ),
    (
        "a barrier at the end of each iteration",
        SHARED
        + "for k in T.serial(2):\n    S[tx] = A[tx]\n    T.sync_threads()\n    B[tx] = S[tx ^ 1]\n"
        + "    T.sync_threads()",
        None,
    ),
    ("all write one element, and again", "B[0] = 1.0\nB[0] = 2.0\nB[0] = 3.0", None),
    (
        "all write one element, and read it",
        "B[0] = 1.0\nx = B[0]\nT.sync_threads()\nB[tx] = x",
        None,
    ),
    (
        "all write one element again, and read it",
        "B[0] = 1.0\nB[0] = 2.0\nx = B[0]\nT.sync_threads()\nB[tx] = x",
        (FindingKind.RACE, "B"),
    ),
    (
        "all write one element, one writes it again",
        "B[0] = 1.0\nif tx == 3:\n    B[0] = 2.0",
        (FindingKind.RACE, "B"),
    ),
    ("never written", SHARED + "B[tx] = S[tx]", (FindingKind.UNINITIALISED, "S")),
    (
        "half of it written",
        SHARED + "if tx < 32:\n    S[tx] = A[tx]\nT.sync_threads()\nB[tx] = S[tx]",
        (FindingKind.UNINITIALISED, "S"),
    ),
    (
        "a register never written",
        'r = T.alloc_local((2,), "float32")\nr[0] = A[tx]\nB[tx] = r[1]',
        (FindingKind.UNINITIALISED, "r"),
    ),
    (
        "a register written",
        'r = T.alloc_local((2,), "float32")\nr[1] = A[tx]\nB[tx] = r[1]',
        None,
    ),
    (
        "a register that some threads wrote",
        'r = T.alloc_local((2,), "float32")\nif tx < 8:\n    r[0] = 1.0\nB[tx] = r[0]',
        (FindingKind.UNINITIALISED, "r"),
    ),
    (
        "atomics meet",
        SHARED + "S[tx] = 0.0\nT.sync_threads()\nT.atomic_add(S[0], 1.0)\n"
        "T.atomic_add(S[0], 1.0)\nT.sync_threads()\nB[tx] = S[0]",
        None,
    ),
    (
        "an atomic and a read",
        SHARED + "S[tx] = 0.0\nT.sync_threads()\nT.atomic_add(S[0], 1.0)\nB[tx] = S[0]",
        (FindingKind.RACE, "S"),
    ),
    (
        "an atomic and a write",
        SHARED + "S[tx] = 0.0\nT.atomic_add(S[0], 1.0)",
        (FindingKind.RACE, "S"),
    ),
    ("global memory within a block", "B[tx] = A[tx]\nB[tx ^ 1] = 1.0", (FindingKind.RACE, "B")),
    (
        "global memory read by another thread",
        "B[tx] = A[tx]\nx = B[tx ^ 1]\nT.sync_threads()\nB[tx] = x",
        (FindingKind.RACE, "B"),
    ),
    (
        "global memory behind a barrier",
        "B[tx] = A[tx]\nT.sync_threads()\nx = B[tx ^ 1]\nT.sync_threads()\nB[tx] = x",
        None,
    ),
    (
        "aligned vectors",
        "if tx < 16:\n    B[T.Ramp(tx * 4, 1, 4)] = A[T.Ramp(tx * 4, 1, 4)]",
        None,
    ),
    (
        "vectors at odd addresses",
        "if tx < 15:\n    B[T.Ramp(tx * 4, 1, 4)] = A[T.Ramp(tx * 4 + 2, 1, 4)]",
        (FindingKind.MISALIGNED, "A"),
    ),
    (
        "shared vectors at odd addresses",
        SHARED + "if tx < 15:\n    S[T.Ramp(tx * 4 + 2, 1, 4)] = A[T.Ramp(tx * 4, 1, 4)]",
        (FindingKind.MISALIGNED, "S"),
    ),
    (
        "shared buffers that overlap in one phase",
        SHARED + 'U = T.alloc_shared((64,), "int32", offset=128)\n'
        "S[tx] = A[tx]\nU[tx] = tx\nT.sync_threads()\nB[tx] = S[tx]",
        (FindingKind.RACE, "U"),
    ),
    (
        "shared buffers that overlap one after the other",
        SHARED + 'U = T.alloc_shared((64,), "int32", offset=128)\n'
        "S[tx] = A[tx]\nT.sync_threads()\nB[tx] = S[tx]\nT.sync_threads()\nU[tx] = tx\n"
        "B[tx] = T.float32(U[tx])",
        None,
    ),
]


@pytest.mark.parametrize(("body", "found"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_findings(body: str, found: tuple[FindingKind, str] | None) -> None:
    made = report(TENSORS, body, 64, A=A, B=B)
    seen = {(finding.kind, finding.buffer) for finding in made.findings}
    assert seen == ({found} if found else set()), str(made)


def test_each_detector_can_be_switched_off() -> None:
    body = SHARED + 'r = T.alloc_local((2,), "float32")\nB[tx] = r[0] + S[tx]\nS[tx] = A[tx]\n'
    body += (
        "B[tx ^ 1] = S[tx ^ 1]\nif tx < 15:\n    S[T.Ramp(tx * 4 + 2, 1, 4)] = T.Broadcast(0.0, 4)"
    )
    body += "\nif tx < 32:\n    T.sync_threads()\nelse:\n    T.sync_threads()"
    made = threads(TENSORS, body, 64)

    def kinds(**switches: bool) -> set[FindingKind]:
        found = simulate(made, {"A": A, "B": B}, options=SimOptions(**switches)).report
        return {finding.kind for finding in found.findings}

    everything = {
        "races": FindingKind.RACE,
        "uninitialised": FindingKind.UNINITIALISED,
        "misaligned": FindingKind.MISALIGNED,
        "divergence": FindingKind.DIVERGENT,
    }
    assert kinds() == set(everything.values())
    for name, kind in everything.items():
        assert kinds(**{name: False}) == set(everything.values()) - {kind}


def test_a_race_names_both_lines_and_both_threads() -> None:
    body = SHARED + "S[tx] = A[tx]\nB[tx] = S[tx ^ 1]"
    (race,) = report(TENSORS, body, 64, A=A, B=B).races
    assert str(race) == (
        "'S[1]' in block (0), threads 0 and 1: one thread reads what another one writes, unordered "
        "by a barrier (k.py, line 3 and k.py, line 2), 64 times"
    )


def test_blocks_race_too() -> None:
    for index, races in (("bx * 32 + tx", False), ("tx", True)):
        found = report("B: (64,) float32", f"B[{index}] = 1.0", 32, grid=2, B=B)
        assert bool(found.races) == races


COPY = """
S = T.alloc_shared((64,), "float32", offset=0)
S[tx] = 7.0
T.sync_threads()
if tx < 16:
    T.async_copy(T.address_of(S[tx * 4]), T.address_of(A[tx * 4]), elements=4{predicate})
{after}
B[tx] = S[{read}]
"""
# (name, what comes after the copies, the element read, what is found in S)
COPIES = [
    (
        "waited for and a barrier",
        "T.commit_group()\nT.wait_group(pending=0)\nT.sync_threads()",
        None,
    ),
    ("no barrier", "T.commit_group()\nT.wait_group(pending=0)", FindingKind.RACE),
    (
        "a barrier before the wait",
        "T.commit_group()\nT.sync_threads()\nT.wait_group(pending=0)",
        FindingKind.RACE,
    ),
    ("no wait", "T.commit_group()\nT.sync_threads()", FindingKind.UNINITIALISED),
    ("no commit", "T.wait_group(pending=0)\nT.sync_threads()", FindingKind.UNINITIALISED),
    (
        "a group too many may be pending",
        "T.commit_group()\nT.wait_group(pending=1)\nT.sync_threads()",
        FindingKind.UNINITIALISED,
    ),
    (
        "another group is pending",
        "T.commit_group()\nT.commit_group()\nT.wait_group(pending=1)\nT.sync_threads()",
        None,
    ),
]


@pytest.mark.parametrize(("after", "kind"), [c[1:] for c in COPIES], ids=[c[0] for c in COPIES])
def test_asynchronous_copies_land_at_the_wait(after: str, kind: FindingKind | None) -> None:
    body = COPY.format(after=after, read="tx ^ 7", predicate="")
    made = run(TENSORS, body, 64, A=A, B=B)
    assert {finding.kind for finding in made.report.findings} == ({kind} if kind else set())
    if kind is None:
        assert made.arrays["B"].tolist() == A[np.arange(64) ^ 7].tolist()
    if kind is FindingKind.UNINITIALISED:
        assert np.isnan(made.arrays["B"]).all()
    early = run(TENSORS, body, 64, stage="planned", A=A, B=B)
    assert early.report.ok
    assert early.arrays["B"].tolist() == A[np.arange(64) ^ 7].tolist()


def test_the_issuing_thread_needs_no_barrier() -> None:
    after = "T.commit_group()\nT.wait_group(pending=0)"
    body = COPY.format(after=after, read="tx", predicate="").replace(
        "B[tx]", "if tx < 16:\n    B[tx]"
    )
    assert report(TENSORS, body.replace("S[tx]\n", "S[tx * 4]\n"), 64, A=A, B=B).ok


def test_a_false_predicate_copies_zeros_and_reads_nothing() -> None:
    after = "T.commit_group()\nT.wait_group(pending=0)\nT.sync_threads()"
    body = COPY.format(after=after, read="tx", predicate=", predicate=tx < 4").replace(
        "A[tx * 4]", "A[tx * 16]"
    )
    found = run(TENSORS, body, 64, A=A, B=B)
    assert found.report.ok
    expected = [A[t // 4 * 16 + t % 4] if t < 16 else 0.0 for t in range(64)]
    assert found.arrays["B"].tolist() == expected
    with pytest.raises(OutOfBoundsError, match=r"'A\[64\]' is outside 'A' .*, thread 4"):
        run(TENSORS, body.replace("tx < 4", "tx < 5"), 64, A=A, B=B)


def test_writing_where_a_copy_is_under_way_is_a_race() -> None:
    body = COPY.format(after="S[tx] = 0.0", read="tx", predicate="")
    details = {finding.detail for finding in report(TENSORS, body, 64, A=A, B=B).races}
    assert "written while an asynchronous copy to it is under way" in details


# What accesses cost ----------------------------------------------------------

LANES = np.arange(32)
ALL = np.ones(32, np.bool_)
# (name, byte address of each thread, width, threads of a phase, wavefronts, ideal)
PATTERNS = [
    ("consecutive words", LANES * 4, 4, 32, 1, 1),
    ("one word for all", LANES * 0, 4, 32, 1, 1),
    ("stride of two words", LANES * 8, 4, 32, 2, 1),
    ("a column of 32 words", LANES * 128, 4, 32, 32, 1),
    ("a column of a padded tile", LANES * 132, 4, 32, 1, 1),
    ("consecutive halves", LANES * 2, 2, 32, 1, 1),
    ("halves of one word in pairs", LANES // 2 * 4 + LANES % 2 * 2, 2, 32, 1, 1),
    ("consecutive pairs of words", LANES * 8, 8, 16, 2, 2),
    ("consecutive 16 bytes", LANES * 16, 16, 8, 4, 4),
    ("16 bytes of rows 64 bytes apart", LANES * 64, 16, 8, 16, 4),
    ("16 bytes of rows 128 bytes apart", LANES * 128, 16, 8, 32, 4),
    ("16 bytes of rows 144 bytes apart", LANES * 144, 16, 8, 4, 4),
]


def service(width: int, group: int) -> Service:
    """Lanes in their order, `group` of them at once."""
    phases = tuple(tuple(range(at, at + group)) for at in range(0, 32, group))
    return Service(phases, width, banks=32, word=4)


@pytest.mark.parametrize(
    ("addresses", "width", "group", "used", "ideal"),
    [pattern[1:] for pattern in PATTERNS],
    ids=[pattern[0] for pattern in PATTERNS],
)
def test_wavefronts(addresses: Array, width: int, group: int, used: int, ideal: int) -> None:
    assert wavefronts(addresses, ALL, service(width, group)) == (used, ideal)


def test_threads_that_are_not_active_cost_nothing() -> None:
    assert wavefronts(LANES * 128, LANES < 2, service(4, 32)) == (2, 1)
    assert wavefronts(LANES * 128, LANES < 0, service(4, 32)) == (0, 0)
    assert sectors(LANES * 4, LANES < 8, 4, 32) == (1, 1)


@pytest.mark.parametrize(
    ("addresses", "width", "used", "ideal"),
    [
        (LANES * 4, 4, 4, 4),
        (LANES * 4 + 4, 4, 5, 4),
        (LANES * 128, 4, 32, 4),
        (LANES * 16, 16, 16, 16),
        (LANES * 0, 4, 1, 1),
        (LANES * 2, 2, 2, 2),
    ],
)
def test_sectors(addresses: Array, width: int, used: int, ideal: int) -> None:
    assert sectors(addresses, ALL, width, 32) == (used, ideal)


def test_atomics_are_counted() -> None:
    body = (
        SHARED + "S[tx] = 0.0\nT.sync_threads()\nT.atomic_add(S[0], 1.0)\nT.atomic_add(B[tx], 1.0)"
    )
    made = report(TENSORS, body, 64, A=A, B=B)
    counts = {a.buffer: (a.count, a.factor) for a in made.accesses if a.kind == "atomic"}
    assert counts == {"S": (2, 1.0), "B": (2, 1.0)}
    assert dict(made.instructions)["global atomic"] == 2


def test_a_layout_says_where_elements_are() -> None:
    tile = 'with T.Kernel(1, threads=32, thread_vars=["tx"]) as bx:\n'
    tile += '    S = T.alloc_shared((32, 32), "float32"{}, offset=0)\n'
    tile += "    for i in T.serial(32):\n        S[i, tx] = A[i, tx]\n    T.sync_threads()\n"
    tile += "    for j in T.serial(32):\n        B[tx, j] = S[tx, j]"
    a = np.arange(1024, dtype=np.float32).reshape(32, 32)
    text = "A: (32, 32) float32; B: (32, 32) float32"
    for layout, factor in (("", 32.0), (", layout=" + Layout.padded((32, 32), 33).to_text(), 1.0)):
        made = program(text, tile.format(layout), stage="simt")
        found = simulate(made, {"A": a, "B": np.zeros_like(a)})
        assert (found.arrays["B"] == a).all()
        assert found.report.ok
        counts = {
            access.kind: access.factor for access in found.report.accesses if access.buffer == "S"
        }
        assert counts == {"store": 1.0, "load": factor}


def test_elements_of_four_bits_share_a_byte() -> None:
    body = """
    S = T.alloc_shared((64,), "int4", offset=0)
    {}
    T.sync_threads()
    B[tx] = T.int32(S[tx])
    """
    values = (np.arange(64) % 16 - 8).astype(np.int8)
    packed = (values[::2] & 15 | values[1::2] << 4).astype(np.int8)
    text = "A: (64,) int4; B: (64,) int32"
    pairs = "if tx < 32:\n    S[T.Ramp(tx * 2, 1, 2)] = A[T.Ramp(tx * 2, 1, 2)]"
    found = run(
        text, body.format(pairs.replace("\n", "\n    ")), 64, A=packed, B=np.zeros(64, np.int32)
    )
    assert found.report.ok, str(found.report)
    assert found.arrays["B"].tolist() == values.tolist()
    single = report(text, body.format("S[tx] = A[tx]"), 64, A=packed, B=np.zeros(64, np.int32))
    assert {finding.kind for finding in single.findings} == {FindingKind.RACE}
