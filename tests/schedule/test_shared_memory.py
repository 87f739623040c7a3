"""Shared memory over time, and how many blocks fit on a multiprocessor."""

from __future__ import annotations

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.analysis.occupancy import occupancy
from tileworkbench.kernels import flash_attention, matmul
from tileworkbench.kernels.page import PrimFunc


def two_tiles() -> PrimFunc:
    """Two tiles of 4 KiB that are never in use at once."""

    @T.prim_func
    def two(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float32")):
        with T.Kernel(1, threads=32):
            first = T.alloc_shared((1024,), "float32")
            second = T.alloc_shared((1024,), "float32")
            held = T.alloc_fragment((1024,), "float32")
            T.copy(A, first)
            T.copy(first, held)
            T.copy(held, second)
            T.copy(second, B)

    return two


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_what_a_pipelined_loop_reads_again_lives_through_it(target: str) -> None:
    plan = tw.compile(flash_attention(1, 1, 128, 128, 64, "float16"), target=target).shared_memory
    assert plan is not None
    lives = {each.name: each for each in plan.buffers}
    query = lives["Q_shared"]
    assert any(start > query.first and end <= query.last for start, end in plan.loops)
    assert query.shares == ()
    assert lives["V_shared"].last <= query.last


def test_buffers_that_are_never_in_use_at_once_share_bytes() -> None:
    plan = tw.compile(two_tiles(), target="sim:sm_80").shared_memory
    assert plan is not None
    first, second = plan.buffers
    assert (first.name, second.name, plan.bytes_) == ("first", "second", 4096)
    assert first.offset == second.offset == 0
    assert (first.shares, second.shares) == (("second",), ("first",))
    assert first.last < second.first
    assert second.line == first.line + 1
    assert plan.stages == ()


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_other_numbers_of_stages_need_what_they_take_when_compiled(stages: int) -> None:
    made = {
        n: tw.compile(matmul(256, 256, 256, "float16", num_stages=n), target="sim:sm_80")
        for n in (stages, stages + 1)
    }
    plan, more = made[stages].shared_memory, made[stages + 1].shared_memory
    assert plan is not None and more is not None
    assert [buffer.versions for buffer in plan.buffers] == [stages, stages]
    assert dict(plan.stages)[stages] == plan.bytes_ == made[stages].stats.shared_bytes
    assert dict(plan.stages)[stages + 1] == more.bytes_
    assert plan.to_dict()["buffers"][0]["name"] == "A_shared"


def test_on_a_cpu_it_is_that_of_the_kernel_as_written() -> None:
    plan = tw.compile(two_tiles(), target="cpu").shared_memory
    assert plan is not None and {buffer.name for buffer in plan.buffers} == {"first", "second"}


def test_a_kernel_without_tiles_has_none() -> None:
    @T.prim_func
    def scale(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                A[i] = A[i] * 2

    kernel = tw.compile(scale, target="sim:sm_80")
    assert kernel.shared_memory is None
    assert kernel.occupancy is not None and kernel.occupancy.limited_by == "threads"


# (arch, threads, bytes of shared memory, registers): blocks, warps and the limit by the CUDA
# occupancy calculator's rules, worked out by hand.
OCCUPANCIES = [
    (("sm_80", 128, 48 * 1024, 128), (3, 12, "shared memory")),  # 49 KiB each of 164
    (("sm_80", 256, 0, 64), (4, 32, "registers")),  # 8 warps of 2048 registers, 65536 in all
    (("sm_80", 128, 0, 215), (2, 8, "registers")),  # 6912 a warp: 27648 a block
    (("sm_80", 1024, 0, 32), (2, 64, "threads")),
    (("sm_80", 32, 0, 16), (32, 32, "blocks")),
    (("sm_75", 256, 32 * 1024, 64), (2, 16, "shared memory")),  # nothing is kept by the system
    (("sm_86", 1024, 0, None), (1, 32, "threads")),  # 48 warps: half a second block is left
    (("sm_90a", 384, 200 * 1024, 168), (1, 12, "shared memory")),
]


@pytest.mark.parametrize(("asked", "expected"), OCCUPANCIES)
def test_occupancy(asked: tuple[str, int, int, int | None], expected: tuple[int, int, str]) -> None:
    found = occupancy(*asked)
    assert found is not None
    assert (found.blocks, found.warps, found.limited_by) == expected
    assert found.to_dict()["fraction"] == found.warps / found.warps_most


@pytest.mark.parametrize("asked", [row for row, _ in OCCUPANCIES if row[2] or row[3] == 215])
def test_what_the_advice_says_lets_one_block_more_in(
    asked: tuple[str, int, int, int | None],
) -> None:
    arch, threads, shared, _ = asked
    found = occupancy(*asked)
    assert found is not None
    number = int("".join(filter(str.isdigit, found.advice.split("at most")[1].split()[0])))
    if found.limited_by == "shared memory":
        better = occupancy(arch, threads, number, None)
        worse = occupancy(arch, threads, number + 128, None)
    else:
        better = occupancy(arch, threads, shared, number)
        worse = occupancy(arch, threads, shared, number + 8)
    assert better is not None and worse is not None
    assert better.blocks == found.blocks + 1 > worse.blocks


def test_a_cpu_has_no_occupancy() -> None:
    assert occupancy("avx512", 128, 0) is None
