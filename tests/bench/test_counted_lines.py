"""Bytes of each line of a kernel's text, counted: exact numbers of kernels whose traffic is known,
and sums that are the kernel's.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.sanitiser import problems
from tileworkbench.bench import instrumented
from tileworkbench.bench.counted import CountedTraffic
from tileworkbench.bench.instrumented import instrument
from tileworkbench.bench.located import CALLER, lines_of, located
from tileworkbench.compiler.device.host.llvm import optimized_text
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.kernels import flash_attention, matmul, rmsnorm
from tileworkbench.viz.model import counted_lines
from tileworkbench.viz.model.views import view_html, view_model
from tileworkbench.workbench import counted_sectors, counting

pytestmark = pytest.mark.usefixtures("same_machine")
LEVELS = ("L1", "L2", "L3", "DRAM")


@tw.jit
def twice(A: Any, B: Any, block: int = 4096) -> Any:
    """A copy in two steps: one line reads and keeps, the other writes."""
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    D = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i]  # copies
        for i in T.Parallel(block):
            D[bx * block + i] = A[bx * block + i] + B[bx * block + i]  # adds
    return C, D


@tw.jit
def product(A: Any, B: Any, M: int = 8, N: int = 16, K: int = 32) -> Any:
    """Each row of B is read once for each row of A."""
    A: T.Tensor[[M, K], T.float32]
    B: T.Tensor[[K, N], T.float32]
    C = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=32) as row:
        total = T.alloc_shared((N,), T.float32)
        for j in T.Parallel(N):
            total[j] = 0.0  # clears
        for k in T.serial(K):
            for j in T.Parallel(N):
                total[j] += A[row, k] * B[k, j]  # adds
        for j in T.Parallel(N):
            C[row, j] = total[j]  # writes
    return C


def line_of(kernel: tw.Kernel, text: str) -> int:
    """The number of the line that has `text`."""
    lines = kernel.record.source.splitlines()
    return kernel.record.first_line + next(i for i, each in enumerate(lines) if text in each)


def numbers(found: CountedTraffic, line: int) -> dict[str, tuple[float, float, float]]:
    return {each.name: (each.read, each.allocated, each.written) for each in found.lines[line]}


def together(found: CountedTraffic) -> list[tuple[str, float, float, float]]:
    """The sums of the lines, in the form of `levels`."""
    return [
        (
            name,
            sum(own[at].read for own in found.lines.values()),
            sum(own[at].allocated for own in found.lines.values()),
            sum(own[at].written for own in found.lines.values()),
        )
        for at, name in enumerate(level.name for level in found.levels)
    ]


def aligned(count: int) -> np.ndarray[Any, Any]:
    """Ones, from the beginning of a cache line on."""
    room = np.ones(count + 16, np.float32)
    skip = (-room.ctypes.data % 64) // 4
    return room[skip : skip + count]


def test_the_lines_of_a_copy_have_their_own_bytes() -> None:
    """4 MiB each of A, B, C, D, which pass all caches. The loops become one, so A is read once, for
    the line that copies it.
    """
    size, bytes_ = 1 << 20, float(4 << 20)
    kernel = twice.compile(N=size)
    found = kernel.count_traffic(aligned(size), aligned(size), seconds=60)
    copies, adds = (line_of(kernel, text) for text in ("# copies", "# adds"))
    for line in (copies, adds):
        assert numbers(found, line)["L1"] == (bytes_, 0, bytes_)
        for level in LEVELS[1:]:
            # Outputs that begin inside a cache line have one more in each block.
            assert numbers(found, line)[level] == pytest.approx((bytes_,) * 3, abs=256 * 64.0)
    assert sum(numbers(found, 0)["L1"]) < 64 * found.all_blocks


def test_a_product_with_known_reuse_is_exact() -> None:
    """In L1: A as a number for each k, B and the sums as rows, for each of M rows; from L2 nothing
    once all is near.
    """
    m, n, k = 8, 16, 32
    kernel = product.compile()
    found = kernel.count_traffic(np.ones((m, k), np.float32), np.ones((k, n), np.float32))
    clears, adds, writes = (line_of(kernel, f"# {text}") for text in ("clears", "adds", "writes"))
    row = 4.0 * n
    assert numbers(found, clears)["L1"] == (0, 0, m * row)
    read, _, written = numbers(found, adds)["L1"]
    assert read == m * k * (4 + row + row) and written == m * k * row
    assert numbers(found, writes)["L1"] == (m * row, 0, m * row)
    for line in (clears, adds, writes):
        assert all(sum(numbers(found, line)[level]) == 0 for level in LEVELS[1:])


@pytest.mark.parametrize(
    "make",
    [
        lambda: tw.compile(matmul(256, 256, 256, "float32"), target="cpu"),
        lambda: tw.compile(flash_attention(1, 2, 128, 128, 64), target="cpu"),
        lambda: tw.compile(rmsnorm(64, 512), target="cpu"),
        lambda: product.compile(),
        lambda: product.with_target("sim:sm_80").compile(),
        lambda: tw.compile(matmul(128, 128, 64, "float16"), target="ptx:sm_80"),
    ],
)
def test_lines_have_what_the_kernel_has(make: Any) -> None:
    kernel = make()
    found = kernel.count_traffic(seconds=60)
    whole = [(each.name, each.read, each.allocated, each.written) for each in found.levels]
    assert together(found) == whole
    rows = kernel.to_dict("source")
    assert [row["line"] for row in rows] == sorted(row["line"] for row in rows)
    for level in found.levels:
        total = sum(row[f"counted_{level.name.lower()}_bytes"] for row in rows)
        assert total == pytest.approx(level.bytes_)
    outside = sum(each.bytes_ for each in found.lines[0])
    assert outside <= 0.02 * sum(level.bytes_ for level in found.levels) + 4096


@pytest.mark.parametrize("level", ["cpu", "cpu:avx2", "cpu:generic"])
def test_lines_change_no_code(level: str) -> None:
    """Behind LLVM's passes the located text has the instructions that the plain one has."""
    for program in (matmul(256, 256, 256, "float32"), flash_attention(1, 2, 128, 128, 64)):
        compiled = tw.compile(program, target=level).compiled
        plain = optimized_text(compiled.module.text, compiled.native)
        made = optimized_text(located(compiled.module.text), compiled.native)
        assert bare(made) == bare(plain)
        own = lines_of(made)
        assert len(own) == len(made.splitlines()) and CALLER in own and max(own) > 0


def bare(text: str) -> list[str]:
    """The instructions of a module, without what is said of lines."""
    text = re.sub(r"^(!|;|source_filename).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\d+|#\d+", "N", re.sub(r",? !dbg !\d+", "", text))
    return [row.rstrip() for row in text.splitlines() if row.strip()]


def test_a_routine_works_for_the_line_that_calls_it() -> None:
    text = """define internal void @helper(ptr %p) nounwind {
entry:
  %v = load float, ptr %p, align 4
  ret void
}

define internal i32 @block(ptr %p) nounwind {
entry:
  ; line 7
  call void @helper(ptr %p)
  ; line 9
  store float 0x0000000000000000, ptr %p, align 4
  ret i32 0
}

define i32 @entry(ptr %p) {
entry:
  %q = load ptr, ptr %p, align 8
  %code = call i32 @block(ptr %q)
  ret i32 %code
}
"""
    told = instrument(optimized_text(located(text), passes=()))
    assert told.lines == (0, 7, 9)
    made = [row.strip() for row in told.text.splitlines()]
    before = {row: made[at - 1] for at, row in enumerate(made)}
    assert before["%v = load float, ptr %p, align 4"].endswith("i64 0, i64 -1)")
    assert before["call void @helper(ptr %p)"] == "call void @at(i64 1)"
    store = next(row for row in made if row.startswith("store float"))
    assert before[store] == "call void @touch(ptr %p, i64 4, i64 3, i64 2)"
    assert before["%q = load ptr, ptr %p, align 8"].endswith("i64 8, i64 0, i64 0)")
    assert not before["%code = call i32 @block(ptr %q)"].startswith("call void @at")


def test_more_lines_than_can_be_told_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instrumented, "MOST_SITES", 3)
    compiled: Any = product.compile().compiled
    text = optimized_text(located(compiled.module.text), compiled.native)
    count = len({line for line in lines_of(text) if line > 0}) + 1
    with pytest.raises(UnsupportedError) as caught:
        instrument(text)
    assert str(caught.value) == f"accesses of {count} lines cannot be told apart"


def test_a_gpu_has_sectors_and_wavefronts_of_each_line() -> None:
    """A transpose of 32 x 32: its reads are whole rows, its column takes 32 wavefronts."""

    @tw.jit
    def transpose(A: Any) -> Any:
        A: T.Tensor[[32, 32], T.float32]
        B = T.empty((32, 32), T.float32)
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32, 32), T.float32)
            T.annotate_layout({tile: T.Layout((32, 32), lambda i, j: i * 32 + j)})
            tx = T.get_thread_binding()
            for i in T.serial(32):
                tile[i, tx] = A[i, tx]  # reads
            for i in T.serial(32):
                B[i, tx] = tile[tx, i]  # turns
        return B

    kernel = transpose.with_target("sim:sm_80").compile()
    found = kernel.count_traffic(np.ones((32, 32), np.float32))
    reads, turns = line_of(kernel, "# reads"), line_of(kernel, "# turns")
    assert found.requests[reads] == (32, 32, 128, 128)
    assert found.requests[turns] == (32 * 32, 32, 128, 128)
    assert numbers(found, reads) == {"L2": (4096.0, 0, 0), "DRAM": (4096.0, 0, 0)}
    assert numbers(found, turns) == {"L2": (0, 0, 4096.0), "DRAM": (0, 0, 4096.0)}
    row = next(each for each in kernel.to_dict("source") if each["line"] == turns)
    assert (row["counted_wavefronts"], row["counted_ideal"]) == (1024, 32)
    assert row["counted_l1_bytes"] == 0


def test_the_view_has_model_and_count_beside_each_other() -> None:
    kernel = product.compile().with_costs(counted=True)
    table = view_model(kernel.view(), "source")["counted"]
    assert table["groups"] == [(level, ("counted", "model")) for level in LEVELS]
    rows = {row["name"]: row["cells"] for row in table["rows"]}
    adds = next(cells for name, cells in rows.items() if "# adds" in name)
    cost = next(c for c in kernel.line_costs if c.line == line_of(kernel, "# adds"))
    assert adds[0] == "49.0 KiB" and adds[1].split()[0] == f"{cost.l1_bytes / 1024:.1f}"
    assert table["note"].startswith("Counted by simulating the caches, warm at first, 1 thread. ")
    page = view_html(kernel.view(), "source")
    assert problems(page) == []
    above, heads, *lines = static_table(page)
    assert above.split() == list(LEVELS)
    assert heads.split() == ["line", *("counted", "model") * 4]
    line = next(line for line in lines if "# adds" in line)
    assert line.split("# adds")[1].split() == " ".join(adds).split()
    assert "counted" not in view_html(kernel.with_costs().view(), "source")


def static_table(page: str) -> list[str]:
    """The lines of the table in a page."""
    block = page.rpartition("<pre")[2].partition(">")[2].partition("</pre>")[0]
    return unescape(re.sub("<[^>]*>", "", block)).splitlines()


def test_no_line_of_a_gpu_moves_nothing() -> None:
    """Sizes of fragments and what is done in registers stand in no row; numbers stand under their
    heads.
    """
    kernel = tw.compile(matmul(128, 128, 64, "float16"), target="sim:sm_80")
    page = view_html(kernel.with_costs(counted=True).view(), "source")
    above, heads, *lines = static_table(page)
    assert above.split("  ")[-1] == "global memory" and len({len(x) for x in (above, heads)}) == 1
    for line in lines:
        assert len(line) == len(heads) and any(cell != "0" for cell in line.split()[-7:])
    named = [line.split()[1] for line in lines if line.split()[0].isdigit()]
    assert len(named) > 3 and not any("alloc" in name for name in named)


def test_what_cannot_be_counted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_BYTES_PER_S", 1e1)
    kernel = product.compile().with_inputs(
        np.ones((8, 32), np.float32), np.ones((32, 16), np.float32)
    )
    page = view_html(kernel.with_costs(counted=True).view(), "source")
    assert "Not counted, as it takes about " in page
    table = counted_lines.model(kernel.view())
    assert table is not None and not table["rows"]
    assert {row["counted_l1_bytes"] for row in kernel.to_dict("source")} == {None}
    monkeypatch.setattr(counted_sectors, "product_of", lambda arch: None)
    there = product.with_target("sim:sm_80").compile().with_costs(counted=True)
    made = counted_lines.model(there.view())
    assert made is not None
    assert made["note"] == "Not counted: the size of the L2 of 'sim:sm_80' is not published."
