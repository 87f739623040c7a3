"""What each line costs: work by hand, conflicts, barriers and registers of the lowered code."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.kernels.test_gpu import CASES
from tileworkbench.bench import causes
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.kernels.page import PrimFunc
from tileworkbench.workbench.annotation import LEVEL_BYTES, LineCost
from tileworkbench.workbench.kernel import Kernel

N = 64


def matmul() -> PrimFunc:
    @T.prim_func
    def product(A: T.Tensor((N, N), "float16"), B: T.Tensor((N, N), "float16"),
                C: T.Tensor((N, N), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((N, 32), "float16")
            b = T.alloc_shared((32, N), "float16")
            c = T.alloc_fragment((N, N), "float32")
            T.clear(c)
            for k in T.serial(2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return product


def costs_of(kernel: Kernel) -> dict[str, LineCost]:
    """The costs by the text of their line."""
    lines = kernel.record.source.splitlines()
    first = kernel.record.first_line
    return {lines[cost.line - first].strip(): cost for cost in kernel.line_costs}


def test_work_of_each_line() -> None:
    costs = costs_of(tw.compile(matmul(), target="sim:sm_80"))
    copy, gemm, out = (costs[line] for line in (
        "T.copy(A[0, k * 32], a)", "T.gemm(a, b, c)", "T.copy(c, C)",
    ))  # fmt: skip
    assert copy.global_bytes == copy.shared_bytes == N * N * 2
    assert (copy.flops, gemm.flops) == (0, 2 * N**3)
    assert gemm.shared_bytes == 2 * N * N * 2  # both operands, once
    assert out.global_bytes == N * N * 4
    assert copy.accesses[0].startswith("A: load")
    assert sum(cost.barriers for cost in costs.values()) == 2  # filled, and free again
    assert gemm.registers >= out.registers == N * N // 128  # the accumulator
    assert gemm.l1_bytes == copy.dram_bytes == 0  # levels of a CPU


def test_conflicts_stand_at_their_line() -> None:
    @T.prim_func
    def transpose(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32, 32), "float32")
            tx = T.get_thread_binding()
            for i in T.serial(32):
                tile[i, tx] = A[i, tx]
            for i in T.serial(32):
                B[i, tx] = tile[tx, i]

    costs = costs_of(tw.compile(transpose, target="sim:sm_80"))
    row, column = costs["tile[i, tx] = A[i, tx]"], costs["B[i, tx] = tile[tx, i]"]
    assert row.wavefronts == row.ideal > 0
    assert column.wavefronts == 32 * column.ideal


def test_on_a_cpu_the_share_of_vectors() -> None:
    @T.prim_func
    def gather(A: T.Tensor((1024,), "float32"), at: T.Tensor((1024,), "int32"),
               B: T.Tensor((1024,), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            for i in T.Parallel(1024):
                B[i] = A[at[i]]

    cost = costs_of(tw.compile(gather, target="cpu"))["B[i] = A[at[i]]"]
    assert 0 < cost.vector_share < 1  # the indices and the result are vectors, A is gathered
    assert cost.registers == cost.barriers == 0


def test_on_a_cpu_the_bytes_of_each_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: tensors of 2 MiB, which an L2 of 4 MiB does not hold both; rows of 4 KiB."""

    @T.prim_func
    def twice(A: T.Tensor((512, 1024), "float32"), B: T.Tensor((512, 1024), "float32")):
        with T.Kernel(512, threads=128) as row:
            tile = T.alloc_shared((1024,), "float32")
            T.copy(A[row, 0], tile)
            for i in T.Parallel(1024):
                B[row, i] = tile[i] + A[row, i]

    sizes = CacheSizes(l1=32 << 10, l2=4 << 20, l3=64 << 20)
    monkeypatch.setattr(processor, "cache_sizes", lambda: sizes)
    monkeypatch.setattr(causes, "get_num_threads", lambda: 1)
    kernel = tw.compile(twice, target="cpu")
    costs, tensor = costs_of(kernel), 512 * 1024 * 4
    levels = {
        line: [getattr(costs[line], name) / tensor for name in LEVEL_BYTES.values()]
        for line in ("T.copy(A[row, 0], tile)", "B[row, i] = tile[i] + A[row, i]")
    }
    # The tile becomes a register. A is read twice, B written once. Both together are in L3; the row
    # that is read again was read just before, and L1 has it still.
    assert levels == {
        "T.copy(A[row, 0], tile)": [1, 1, 1, 0],
        "B[row, i] = tile[i] + A[row, i]": [2, 1, 1, 0],
    }
    assert kernel.traffic == {"L1": 3 * tensor, "L2": 2 * tensor, "L3": 2 * tensor}


@pytest.mark.parametrize("name", CASES)
def test_lines_together_move_what_the_kernel_moves(name: str) -> None:
    """In every kernel of the library."""
    kernel = tw.compile(CASES[name]()[0], target="cpu")
    lowered, traffic = kernel.passes[-1].program, kernel.traffic
    if not traffic:  # the grid depends on data
        assert name == "flash_attention_varlen"
        assert any(math.isnan(cost.l1_bytes) for cost in kernel.line_costs)
        return
    # Lines of a macro of another file are not lines of this kernel's text.
    elsewhere = {
        site: levels
        for site, levels in causes.cpu_traffic_of(kernel).items()
        if lowered.sites[site].file != kernel.record.source_file
    }
    assert bool(elsewhere) == (name in ("block_sparse_attention", "flash_decoding"))
    for level, amount in LEVEL_BYTES.items():
        lines = sum(getattr(cost, amount) for cost in kernel.line_costs)
        lines += sum(levels.get(level, 0.0) for levels in elsewhere.values())
        assert lines == pytest.approx(traffic.get(level, 0.0), rel=1e-9)
    inner_first = [traffic[level] for level in LEVEL_BYTES if level in traffic]
    assert inner_first == sorted(inner_first, reverse=True)
    assert inner_first[-1] > 0


def test_symbolic_work_has_no_number() -> None:
    @tw.jit
    def double(A):
        n = T.dynamic("n")
        A: T.Tensor[[n], T.float32]
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            for i in T.Parallel(128):
                A[bx * 128 + i] = A[bx * 128 + i] * 2.0

    kernel: Any = double.compile()
    [cost] = costs_of(kernel).values()
    assert math.isnan(cost.flops) and math.isnan(cost.global_bytes)
    assert math.isnan(cost.l1_bytes) and math.isnan(cost.dram_bytes)


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_all_work_is_some_lines(target: str) -> None:
    kernel = tw.compile(matmul(), target=target)
    assert sum(cost.flops for cost in kernel.line_costs) == kernel.stats.flops.value
    assert all(cost.to_dict()["line"] == cost.line for cost in kernel.line_costs)
