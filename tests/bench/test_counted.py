"""Counted bytes of kernels whose traffic is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench import counted
from tileworkbench.bench.counted import CountedTraffic
from tileworkbench.bench.instrumented import instrument
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.kernels import matmul
from tileworkbench.workbench import counted_sectors, counting

pytestmark = pytest.mark.usefixtures("same_machine")
LINE = 64


@tw.jit
def add(A: Any, B: Any, block: int = 4096) -> Any:
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
    return C


@tw.jit
def again(A: Any, times: int = 8) -> Any:
    """The sum of an array, read `times` times."""
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    S = T.empty((8,), T.float32)
    with T.Kernel(1, threads=128):
        total = T.alloc_fragment((8,), T.float32)
        T.clear(total)
        for _ in T.serial(times):
            for part in T.serial(N // 8):
                for i in T.Parallel(8):
                    total[i] += A[part * 8 + i]
        T.copy(total, S)
    return S


@tw.jit
def column(A: Any, rows: int = 1 << 14, row: int = 32) -> Any:
    """One element of each row: a line each."""
    A: T.Tensor[[rows, row], T.float32]
    B = T.empty((rows,), T.float32)
    with T.Kernel(rows // 1024, threads=128) as bx:
        for i in T.Parallel(1024):
            B[bx * 1024 + i] = A[bx * 1024 + i, 3]
    return B


def levels(found: CountedTraffic) -> dict[str, tuple[float, float, float]]:
    return {each.name: (each.read, each.allocated, each.written) for each in found.levels}


def near(found: tuple[float, ...], expected: tuple[float, ...], slack: float = 0.01) -> bool:
    """Within one per cent of the largest: arguments and what lies beside are accessed too."""
    return all(
        abs(a - b) <= slack * max(*expected, 1) + 1024 for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize(
    ("size", "outermost"), [(1 << 16, "L2"), (1 << 19, "L3"), (1 << 21, "DRAM")]
)
def test_a_stream_passes_every_level_up_to_the_one_that_holds_it(size: int, outermost: str) -> None:
    """Read twice as much as is written; a store fetches its line first."""
    bytes_ = 4.0 * size
    values = [np.ones(size, np.float32) for _ in range(2)]
    found = levels(add.compile(N=size).count_traffic(*values, seconds=60))
    assert near(found["L1"], (2 * bytes_, 0, bytes_))
    passes = True
    for name in ("L2", "L3", "DRAM"):
        expected = (2 * bytes_, bytes_, bytes_) if passes else (0.0, 0.0, 0.0)
        assert near(found[name], expected), (name, found)
        passes = passes and name != outermost


def test_a_ragged_end_counts_the_lanes_that_there_are() -> None:
    size = 4096 + 37
    values = [np.ones(size, np.float32) for _ in range(2)]
    found = levels(add.compile(N=size).count_traffic(*values))["L1"]
    assert near(found, (8.0 * size, 0, 4.0 * size))


@pytest.mark.parametrize(("kib", "from_l2", "from_l3"), [(16, 0, 0), (256, 8, 0), (4096, 8, 8)])
def test_what_is_read_again_comes_from_the_level_that_holds_it(
    kib: int, from_l2: int, from_l3: int
) -> None:
    bytes_ = kib * 1024.0
    array = np.ones(kib * 256, np.float32)
    found = levels(again.compile(N=array.size).count_traffic(array, seconds=60))
    assert found["L1"][0] == pytest.approx(8 * bytes_, rel=0.01)
    assert near(found["L2"], (from_l2 * bytes_, 0, 0))
    assert near(found["L3"], (from_l3 * bytes_, 0, 0))
    assert near(found["DRAM"], (0, 0, 0))


def test_of_a_column_whole_lines_are_fetched() -> None:
    rows = 1 << 14
    array = np.ones((rows, 32), np.float32)
    found = levels(column.compile().count_traffic(array, seconds=60))
    assert near(found["L1"], (4.0 * rows, 0, 4.0 * rows))
    assert near(found["L2"], (float(LINE * rows), 4.0 * rows, 4.0 * rows))
    assert near(found["L3"], (float(LINE * rows), 4.0 * rows, 4.0 * rows), 0.1)  # 1 MiB of lines


def test_cold_caches_are_filled_once() -> None:
    array = np.ones(4096, np.float32)
    kernel = again.compile(N=array.size)
    cold, warm = (kernel.count_traffic(array, cold=is_cold) for is_cold in (True, False))
    assert near(levels(cold)["DRAM"], (4.0 * array.size, LINE, 0))
    assert near(levels(warm)["DRAM"], (0, 0, 0))
    assert (cold.cold, warm.cold) == (True, False)
    assert cold.note == "counted by simulating the caches, cold at first, 1 thread"


def test_a_blocked_product_reads_its_operands_once_for_each_block() -> None:
    """Of 512 x 512 x 512 in blocks of 128: whatever is packed, between the compulsory bytes and
    those of blocks that share nothing.
    """
    kernel = tw.compile(matmul(512, 512, 512, "float32"), target="cpu")
    values = [np.ones((512, 512), np.float32) for _ in range(2)]
    found = levels(kernel.count_traffic(*values, cold=True, seconds=60))
    once = 3 * 4.0 * 512 * 512
    shared_by_none = 4.0 * 512 * 512 * (4 + 4 + 1)
    memory = sum(found["DRAM"][:2])
    assert once <= memory + LINE and memory <= once + kernel.stats.scratch_bytes + 4096
    assert once <= sum(found["L2"][:2])
    assert sum(found["L3"][:2]) <= 2 * shared_by_none
    # Each of two float32 operands of a multiply-add comes from L1, 16 or more of them at once.
    assert found["L1"][0] < 2 * 4 * 512**3 / 4


def test_where_time_is_short_part_of_the_blocks_stands_for_all() -> None:
    size = 1 << 20
    values = [np.ones(size, np.float32) for _ in range(2)]
    found = add.compile(N=size).count_traffic(*values, seconds=0.0)
    assert 0 < found.blocks < found.all_blocks == 256
    assert found.note.endswith(f"1 thread, from {found.blocks} of 256 blocks")
    assert near(levels(found)["L1"], (8.0 * size, 0, 4.0 * size), 0.02)
    assert near(levels(found)["DRAM"][:2], (8.0 * size, 4.0 * size), 0.02)


def test_arguments_stay_as_they_are() -> None:
    @tw.jit
    def double(A: Any, N: int = 1024) -> Any:
        A: T.Tensor[[N], T.float32]
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                A[i] = A[i] * 2.0

    array = np.ones(1024, np.float32)
    found = levels(double.compile().count_traffic(array))
    assert (array == 1).all()
    assert near(found["L1"], (4096.0, 0, 4096.0))


def test_indices_from_data_are_followed() -> None:
    @tw.jit
    def gather(A: Any, at: Any, N: int = 1 << 14) -> Any:
        A: T.Tensor[[N * 16], T.float32]
        at: T.Tensor[[N], T.int32]
        B = T.empty((N,), T.float32)
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                B[i] = A[at[i]]
        return B

    size = 1 << 14
    array = np.ones(size * 16, np.float32)
    same, apart = np.zeros(size, np.int32), np.arange(size, dtype=np.int32) * 16
    kernel = gather.compile()
    one, many = (levels(kernel.count_traffic(array, each, cold=True)) for each in (same, apart))
    assert near(one["L1"], (8.0 * size, 0, 4.0 * size), 0.05) and near(one["L1"], many["L1"], 0.05)
    assert many["DRAM"][0] - one["DRAM"][0] == pytest.approx(LINE * size, rel=0.02)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%1 = load <16 x float>, ptr %p, align 4", ["%p, i64 64, i64 0"]),
        ("  store i8 %v, ptr %p, align 1", ["%p, i64 1, i64 3"]),
        ("  store <8 x bfloat> %v, ptr @b, align 16", ["@b, i64 16, i64 3"]),
        ("%2 = load atomic i32, ptr %flag monotonic, align 4", ["%flag, i64 4, i64 0"]),
        (
            "%1 = atomicrmw fadd ptr %p, float %x monotonic, align 4",
            ["%p, i64 4, i64 0", "%p, i64 4, i64 3"],
        ),
        (
            "  call void @llvm.memset.p0.i64(ptr align 4 %p, i8 0, i64 256, i1 false)",
            ["%p, i64 256, i64 3"],
        ),
        (
            "  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %d, ptr noundef align 4 %s, i64 %n, "
            "i1 false)",
            ["%s, i64 %n, i64 0", "%d, i64 %n, i64 3"],
        ),
    ],
)
def test_accesses_are_told_in_front(line: str, told: list[str]) -> None:
    text = instrument(f"define void @f() {{\n{line}\n}}").text.splitlines()
    calls = [f"  call void @touch(ptr {each}, i64 0)" for each in told]
    assert text[1 : 1 + len(told)] == calls and text[1 + len(told)] == line


def test_an_unknown_access_is_refused() -> None:
    line = "%t = call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, ptr %p, i64 64)"
    with pytest.raises(UnsupportedError) as caught:
        instrument(f"define void @f() {{\n{line}\n}}")
    assert str(caught.value) == (
        "the accesses of 'llvm.x86.tileloadd64.internal' cannot be counted\n"
        "hint: compile for another level, such as target 'cpu:avx2'"
    )


def test_a_type_of_unknown_size_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        instrument("  %1 = load x86_mmx, ptr %p, align 8")
    assert str(caught.value) == (
        "the size of what '%1 = load x86_mmx, ptr %p, align 8' accesses is not known"
    )


def test_a_kernel_that_stops_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = iter([(lambda *_slots: 2, 0, 1)])
    monkeypatch.setattr(counted._Run, "_chunks", lambda self: chunks)
    with pytest.raises(UnsupportedError) as caught:
        again.compile(N=4096).count_traffic(np.ones(4096, np.float32))
    assert str(caught.value) == "the kernel did not end as it should while it was counted"


def test_a_gpu_that_cannot_be_counted_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = again.with_target("sim:sm_80").compile(N=4096)
    array = np.ones(4096, np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(counted_sectors, "product_of", lambda arch: None)
        with pytest.raises(UnsupportedError) as caught:
            kernel.count_traffic(array)
    assert str(caught.value) == "the size of the L2 of 'sim:sm_80' is not published"
    monkeypatch.setattr(counted_sectors, "observe", lambda *given: (None, "the simulation ended"))
    with pytest.raises(UnsupportedError) as caught:
        kernel.count_traffic(array)
    assert str(caught.value) == "'again' cannot be counted: the simulation ended"
    kernel.show("roofline")
    (row,) = kernel.to_dict("roofline")
    assert row["counted"] == "not counted: 'again' cannot be counted: the simulation ended"


def test_the_roofline_has_model_and_count_beside_each_other() -> None:
    size = 1 << 16
    kernel = add.compile(N=size)
    kernel.bench(*(np.ones(size, np.float32) for _ in range(2)), rounds=3)
    shown = kernel.show("roofline")._html()
    (row,) = kernel.to_dict("roofline")
    assert row["counted"] == "counted by simulating the caches, warm at first, 1 thread"
    assert row["counted_bytes"]["L1"] == pytest.approx(12 * size, rel=0.01)
    assert row["model_bytes"]["L1"] == 12 * size
    for text in ("from the model", "count against model", "fetched for stores", row["counted"]):
        assert text in shown


@pytest.mark.parametrize("target", ["sim:sm_80", "ptx:sm_90"])
def test_a_gpu_asks_l2_for_sectors(target: str) -> None:
    """Of a stream whole sectors, of a column one for each element, from memory once."""
    size = 1 << 14
    values = [np.ones(size, np.float32) for _ in range(2)]
    stream = add.with_target(target).compile(N=size)
    found = stream.count_traffic(*values, seconds=60)
    assert levels(found) == {
        "L2": (8.0 * size, 0.0, 4.0 * size),
        "DRAM": (8.0 * size, 0.0, 4.0 * size),
    }
    assert found.how.startswith("counted by simulating threads and the L2 of ")
    rows = 1 << 12
    array = np.ones((rows, 32), np.float32)
    found = column.with_target(target).compile(rows=rows).count_traffic(array, seconds=60)
    assert levels(found)["L2"] == levels(found)["DRAM"] == (32.0 * rows, 0.0, 4.0 * rows)


def test_l2_of_a_gpu_holds_what_is_read_again() -> None:
    array = np.ones(4096, np.float32)
    kernel = again.with_target("sim:sm_80").compile(N=array.size, times=2)
    found = levels(kernel.count_traffic(array, seconds=60))
    assert found["DRAM"][0] == 4.0 * array.size
    assert found["L2"][0] == 2 * 4 * found["DRAM"][0]  # twice, by four warps with the same elements


def test_part_of_the_blocks_of_a_gpu_stands_for_all() -> None:
    size = 1 << 14
    kernel = add.with_target("sim:sm_80").compile(N=size, block=1024)
    found = kernel.count_traffic(*(np.ones(size, np.float32) for _ in range(2)), seconds=0.0)
    assert (found.blocks, found.all_blocks) == (1, 16) and "from 1 of 16 blocks" in found.note
    assert levels(found)["L2"] == (8.0 * size, 0.0, 4.0 * size)


def test_a_view_does_not_wait_for_a_block_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_BYTES_PER_S", 1e3)
    kernel = again.compile(N=4096).with_inputs(np.ones(4096, np.float32))  # forgets what it knew
    kernel.show("roofline")
    (row,) = kernel.to_dict("roofline")
    assert row["counted"].startswith("not counted, as it takes about ") and not row["counted_bytes"]
    given = again.with_target("sim:sm_80").compile(N=4096)
    with pytest.raises(UnsupportedError) as caught:
        given.count_traffic(np.ones(4096, np.float32), seconds=-0.5)
    assert str(caught.value) == (
        "'again' cannot be counted: a block is not done in time, 'count_traffic(seconds=...)' "
        "gives it more"
    )
