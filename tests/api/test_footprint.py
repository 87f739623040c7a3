"""What blocks and threads touch, against counts by hand; how far a recording came; bad input."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import ArgumentError, interrupted
from tileworkbench.compiler.sim.footprint import recorder as recording
from tileworkbench.compiler.sim.footprint.result import Footprint

M, N, K, BLOCK, STEP = 100, 72, 40, 64, 32
BLOCKS_M, BLOCKS_N, STEPS = 2, 2, 2


@tw.jit
def product(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16")):
    C = T.empty((M, N), "float32")
    with T.Kernel(BLOCKS_N, BLOCKS_M, threads=128) as (bx, by):
        left = T.alloc_shared((BLOCK, STEP), "float16")
        right = T.alloc_shared((STEP, BLOCK), "float16")
        total = T.alloc_fragment((BLOCK, BLOCK), "float32")
        T.clear(total)
        for k in T.Pipelined(STEPS, num_stages=2):
            T.copy(A[by * BLOCK, k * STEP], left)
            T.copy(B[k * STEP, bx * BLOCK], right)
            T.gemm(left, right, total)
        T.copy(total, C[by * BLOCK, bx * BLOCK])
    return C


@pytest.fixture(scope="module", params=["cpu", "sim:sm_80", "cuda:sm_80"])
def found(request: pytest.FixtureRequest) -> Footprint:
    return product.with_target(request.param).compile().footprint()


def test_each_operand_is_loaded_once_for_every_block_along_the_other_side(found: Any) -> None:
    a, b, c = (found.tensor(name) for name in "ABC")
    assert (a.loads.times == BLOCKS_N).all() and (a.loads.blocks == BLOCKS_N).all()
    assert (b.loads.times == BLOCKS_M).all() and (b.loads.blocks == BLOCKS_M).all()
    assert (a.reuse, a.untouched, a.stored) == (BLOCKS_N, 0, 0)
    assert (c.stores.times == 1).all() and c.loaded == 0
    rows, columns = np.indices((M, N)) // BLOCK
    np.testing.assert_array_equal(c.stores.block.reshape(M, N), rows * BLOCKS_N + columns)
    np.testing.assert_array_equal(a.loads.block.reshape(M, K), np.indices((M, K))[0] // BLOCK * 2)
    assert (found.recorded, found.launches) == ("all 4 blocks", ((BLOCKS_N, BLOCKS_M),))


def test_the_share_of_masked_lanes_is_what_is_outside(found: Any) -> None:
    blocks = BLOCKS_M * BLOCKS_N
    lanes = {
        "A": (M * K * BLOCKS_N, blocks * STEPS * BLOCK * STEP),
        "B": (K * N * BLOCKS_M, blocks * STEPS * BLOCK * STEP),
        "C": (M * N, blocks * BLOCK * BLOCK),
    }
    assert {line.tensor: (line.active, line.lanes) for line in found.lines} == lanes
    assert [line.masked for line in found.lines] == [1 - few / all for few, all in lanes.values()]
    first = found.lines[0].line
    assert [(line.line - first, line.access) for line in found.lines] == [
        (0, "load"), (1, "load"), (3, "store")
    ]  # fmt: skip


def test_tiles_are_loaded_and_stored(found: Any) -> None:
    tiles = {tile.name: tile for tile in found.tiles}
    assert set(tiles) == {"left", "right"}
    assert tiles["left"].loads >= 4 * STEPS * BLOCK * STEP
    assert tiles["left"].stores == tiles["right"].stores == 4 * STEPS * BLOCK * STEP
    assert tiles["left"].reuse in (1, 2)  # two of the four warps need each half


def test_what_products_of_a_warpgroup_read_is_counted() -> None:
    made = product.with_target("sim:sm_90a").compile().footprint()
    assert {tile.name: tile.reuse for tile in made.tiles} == {"left": 1, "right": 1}


def test_everything_is_plain_data(found: Any) -> None:
    import json

    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_dict()["tensors"][0] == {
        "tensor": "A", "shape": [M, K], "run": 1, "loaded": M * K, "stored": 0, "untouched": 0,
        "loads": 2 * M * K, "stores": 0, "reuse": 2.0, "most_loads": 2,
        "loaded_by_several_blocks": M * K, "stored_by_several_blocks": 0,
    }  # fmt: skip
    assert str(found).splitlines()[:2] == [
        "product: recorded all 4 blocks",
        "  A: 4000 elements loaded 2 times each, 0 stored, 0 never touched",
    ]
    with pytest.raises(ArgumentError) as caught:
        found.tensor("D")
    assert str(caught.value) == "'D' is no tensor of 'product'\nhint: its tensors: A, B, C"


def test_a_kernel_that_executes_ptx_has_the_same() -> None:
    require("nvrtc", missing_nvrtc())
    made = product.with_target("ptx:sm_80").compile().footprint()
    assert made.to_dict() == product.with_target("sim:sm_80").compile().footprint().to_dict()


def test_one_block_is_recorded_with_its_threads() -> None:
    one = product.with_target("sim:sm_80").compile().footprint(blocks=[3])
    a = one.tensor("A")
    rows, columns = np.divmod(np.flatnonzero(a.loads.times), K)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (64, 99, 0, 39)
    # Eight neighbours each, four threads a row of 32 elements, 32 rows at once.
    expected = (rows - BLOCK) % 32 * 4 + columns % STEP // 8
    np.testing.assert_array_equal(a.loads.thread[a.loads.times > 0], expected)
    assert (a.loads.threads[a.loads.times > 0] == 1).all()
    assert (one.block, one.block_at(3)) == (3, (1, 1))
    assert one.recorded == "1 of 4 blocks because only these were asked for"


@tw.jit
def ragged(A: T.Tensor((100,), "float32"), S: T.Tensor((8,), "float32")):
    B = T.empty((200,), "float32")
    with T.Kernel(2, threads=64) as bx:
        tx = T.get_thread_binding()
        at = bx * 64 + tx
        if at < 100:
            B[2 * at] = A[at] + S[3] + S[3]
            A[at] = 0.0
        T.atomic_add(S[bx], 1.0)
    return B


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_what_is_never_touched_is_counted_and_who_shares(target: str) -> None:
    found = ragged.with_target(target).compile().footprint()
    a, s, b = found.tensors
    assert (a.loaded, a.stored, a.untouched) == (100, 100, 0)
    assert (b.stored, b.untouched) == (100, 100)
    np.testing.assert_array_equal(b.stores.times > 0, np.arange(200) % 2 == 0)
    assert s.loads.times[3] == 2 * 100 and s.loads.blocks[3] == 2
    assert s.stores.times.tolist() == [64, 64, 0, 0, 0, 0, 0, 0]
    assert s.untouched == 5


def test_threads_that_a_branch_masks_are_masked_lanes() -> None:
    found = ragged.with_target("sim:sm_80").compile().footprint()
    lanes = {(line.tensor, line.access): (line.active, line.lanes) for line in found.lines}
    assert lanes["A", "load"] == (100, 128) == lanes["A", "store"] == lanes["B", "store"]
    assert lanes["S", "atomic"] == (128, 128)
    masked = next(line for line in found.lines if line.tensor == "B").masked
    assert masked == pytest.approx(28 / 128)


# Which blocks


@tw.jit(target="sim:sm_80")
def fill(n: T.int32, B: T.Tensor((1024,), "float32")):
    with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
        tx = T.get_thread_binding()
        B[bx * 32 + tx] = 1.0


@pytest.mark.parametrize(("n", "blocks"), [(1024, 32), (40, 2)])
def test_a_grid_that_depends_on_an_argument(n: int, blocks: int) -> None:
    found = fill.compile().footprint(n, np.zeros(1024, np.float32))
    assert (found.launches, found.recorded) == (((blocks,),), f"all {blocks} blocks")
    assert found.tensor("B").stored == 32 * blocks


def test_where_time_is_over_it_says_how_much_there_would_be() -> None:
    made = fill.compile().footprint(1024, np.zeros(1024, np.float32), seconds=0.0)
    assert made.recorded == "0 blocks because 0 s were over before the first"


def test_a_huge_grid_is_recorded_as_far_as_it_comes() -> None:
    @tw.jit
    def huge(A: T.Tensor((64,), "float32")):
        with T.Kernel(2_147_483_647, threads=32) as bx:
            tx = T.get_thread_binding()
            A[tx] = 1.0

    for target in ("sim:sm_80", "cpu"):
        kernel = huge.with_target(target).compile()
        found = kernel.footprint(seconds=0.1)
        assert found.total == 2_147_483_647
        assert " of 2147483647 blocks because 0.1 s were over in the last" in found.recorded
        assert "of them; all take about" in found.recorded
        one = kernel.footprint(blocks=[2_147_483_646])
        assert (one.block, one.tensor("A").stored) == (2_147_483_646, 32)


def test_what_was_recorded_before_an_interrupt_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = recording.FootprintRecorder.wrote

    def stops(self: Any, frame: Any, storage: Any, *rest: Any) -> None:
        wrote(self, frame, storage, *rest)
        if storage.name == "B" and frame.block == (1,):
            raise interrupted("fill")

    monkeypatch.setattr(recording.FootprintRecorder, "wrote", stops)
    found = fill.compile().footprint(1024, np.zeros(1024, np.float32))
    assert found.recorded == "2 of 32 blocks because the simulation was interrupted"
    assert found.tensor("B").stored == 64


def test_what_was_recorded_before_an_error_stays() -> None:
    @tw.jit(target="sim:sm_80")
    def stuck(A: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=64) as bx:
            tx = T.get_thread_binding()
            A[tx] = 1.0
            T.device_assert(bx == 0)

    found = stuck.compile().footprint()
    assert found.recorded.startswith("2 of 2 blocks because the simulation ended: device assert")
    assert (found.tensor("A").stores.blocks == 2).all()


def test_large_tensors_are_counted_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_CELLS", 1000)
    found = product.with_target("cpu").compile().footprint()
    a = found.tensor("A")
    assert (a.cell, len(a.loads.times)) == (4, 1000)
    assert (a.loads.times == 4 * BLOCKS_N).all() and (a.loads.blocks == BLOCKS_N).all()
    assert (a.reuse, a.loaded) == (BLOCKS_N, 1000)


@tw.jit(target="sim:sm_80")
def meeting(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
    with T.Kernel(4, threads=32) as bx:
        tx = T.get_thread_binding()
        A[bx, tx] = B[0, tx]
        T.sync_grid()
        B[bx, tx] = A[(bx + 1) % 4, tx] + A[bx, tx]


def test_blocks_that_run_side_by_side_are_told_apart() -> None:
    found = meeting.compile().footprint()
    a, b = found.tensors
    assert (a.loads.times == 2).all() and (a.loads.blocks == 2).all()
    assert (b.loads.blocks.reshape(4, 32) == [[4], [0], [0], [0]]).all()
    one = meeting.compile().footprint(blocks=[2])
    assert np.flatnonzero(one.tensor("A").loads.times).tolist() == list(range(64, 128))
    assert (one.block, one.blocks) == (2, 1)


def test_too_much_at_once_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_KEPT", 40)
    monkeypatch.setattr(recording, "_BATCH", 1)
    found = meeting.compile().footprint()
    assert found.why_not == (
        "the simulation ended: blocks that run side by side touch more than 40 elements"
    )


def test_blocks_of_a_cluster_and_of_several_launches_have_numbers_of_their_own() -> None:
    @tw.jit(target="cpu")
    def twice(A: T.Tensor((128,), "float32")):
        with T.ClusterKernel(4, cluster_dims=2, threads=32) as bx:
            tx = T.get_thread_binding()
            T.cluster_sync()
            A[bx * 32 + tx] = 1.0
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            A[bx * 32 + tx] = 2.0

    found = twice.compile().footprint()
    assert found.launches == ((4,), (2,))
    np.testing.assert_array_equal(found.tensor("A").stores.block, np.arange(128) // 32)
    assert found.tensor("A").stores.blocks.reshape(4, 32)[:, 0].tolist() == [2, 2, 1, 1]
    assert (found.block_at(3), found.block_at(5), found.block_at(6)) == ((3,), (1,), ())


def test_a_block_that_the_grid_does_not_have() -> None:
    with pytest.raises(ArgumentError) as caught:
        product.with_target("cpu").compile().footprint(blocks=[4])
    assert str(caught.value) == (
        "block 4 of 'product' does not exist, or touches no tensor\n"
        "hint: blocks are numbered from 0, x fastest"
    )


def test_arguments_that_cannot_be_made_up_are_asked_for() -> None:
    with pytest.raises(ArgumentError, match="no inputs can be made up for 'n' of 'fill'"):
        fill.compile().footprint()


def test_views_of_a_tensor_count_for_it() -> None:
    @tw.jit(target="sim:sm_80")
    def viewed(A: T.Tensor((4, 32), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            flat = T.reshape(A, (128,))
            flat[tx + 64] = 1.0

    for target in ("sim:sm_80", "cpu"):
        found = viewed.with_target(target).compile().footprint()
        assert np.flatnonzero(found.tensor("A").stores.times).tolist() == list(range(64, 96))


def test_inputs_are_those_of_the_last_failed_check() -> None:
    @tw.jit(target="cpu")
    def gather(A: T.Tensor((64,), "float32"), index: T.Tensor((4,), "int32")):
        B = T.empty((4,), "float32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                B[i] = A[index[i]]
        return B

    kernel = gather.compile()
    places = np.array([5, 9, 9, 60], np.int32)
    with pytest.raises(tw.CheckError):
        kernel.check(lambda a, i: a[i] + 1, np.zeros(64, np.float32), places)
    assert np.flatnonzero(kernel.footprint().tensor("A").loads.times).tolist() == [5, 9, 60]
