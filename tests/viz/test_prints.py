"""What kernels print, by block and thread: as data, as a view, and in its static page."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import json
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import ArgumentError, interrupted
from tileworkbench.compiler.sim import prints as log
from tileworkbench.viz.model import prints
from tileworkbench.viz.model.views import view_html, view_model
from tileworkbench.workbench import observed


@tw.jit
def printing(A: T.Tensor((4, 64), "float32")):
    B = T.empty((4, 64), "float32")
    with T.Kernel(2, threads=64) as bx:
        tx = T.get_thread_binding()
        for k in T.serial(2):
            B[bx * 2 + k, tx] = A[bx * 2 + k, tx] * 2.0
            if tx > 61:
                T.print(B[bx * 2 + k, tx], "last 'two'")
        if tx == 62:
            T.print(bx, msg="done")
    return B


@tw.jit
def by_iterations(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            B[i] = A[i] + 1.0
            if i > 61:
                T.print(B[i])
    return B


@tw.jit
def silent(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            B[i] = A[i]
    return B


ONES = np.arange(256, dtype=np.float32).reshape(4, 64)


def line_of(kernel: Any, text: str) -> int:
    record = kernel.record
    rows = record.source.splitlines()
    return record.first_line + next(at for at, row in enumerate(rows) if text in row)


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_lines_have_their_block_thread_and_iteration(
    target: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel = printing.with_target(target).compile()
    found = kernel.prints(ONES)
    assert capfd.readouterr().out == ""
    groups = found.by_thread()
    assert list(groups) == [(0,), (1,)] and list(groups[1,])[-2:] == [62, 63]
    first, second = groups[1,][63][:2]
    assert (first.loops, second.loops) == ((("k", 0),), (("k", 1),))
    assert (first.message, first.value) == ("last 'two'", "dtype=float32 value=382")
    assert first.line == line_of(kernel, "last 'two'") and first.block == (1,)
    done = found.select(text="done")
    assert {line.block for line in done.lines} == {(0,), (1,)}
    kernel(ONES)  # what a call prints is the same, in another order
    called = capfd.readouterr().out.splitlines()
    assert sorted(called) == sorted(line.text for line in found.lines)


def test_filters() -> None:
    kernel = printing.with_target("cpu").compile()
    found = kernel.prints(ONES)
    assert kernel.last_prints is found
    assert len(found.select(block=(0,), thread=62).lines) == 3  # two iterations, and "done"
    assert len(found.select(line=line_of(kernel, "last 'two'")).lines) == 8
    assert found.select(block=(5,)).lines == ()
    assert {each.thread for each in found.select(text="value=382").lines} == {63}
    row = found.select(text="value=382").rows()[0]
    assert (row["thread"], row["warp"], row["lane"], row["loops"]) == (63, 1, 31, {"k": 0})
    json.dumps(found.to_dict(), allow_nan=False)
    assert str(found.select(text="=382")) == (
        "msg='last 'two'' BlockIdx=(1, 0, 0), ThreadIdx=(63, 0, 0): dtype=float32 value=382"
    )


def test_iterations_of_a_parallel_loop() -> None:
    """As written they are no threads; lowered for a GPU they are."""
    ones = np.ones(64, np.float32)
    written = by_iterations.with_target("cpu").compile().prints(ones)
    loops = [{"i": 62}, {"i": 63}]
    assert [(line.thread, dict(line.loops)) for line in written.lines] == [(-1, at) for at in loops]
    lowered = by_iterations.with_target("sim:sm_80").compile().prints(ones)
    assert [(line.thread, dict(line.loops)) for line in lowered.lines] == [(31, at) for at in loops]
    row = written.rows()[0]
    assert (row["thread"], row["lane"], row["loops"]) == (None, None, {"i": 62})


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80", "sim:sm_90a"])
def test_loops_are_those_of_the_kernel_as_written(target: str) -> None:
    """Whatever a target makes of them: cut loops have other variables, one iteration has none."""

    @tw.jit
    def nest(A: T.Tensor((32, 128), "float32")):
        B = T.empty((32, 128), "float32")
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32, 32), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 32], tile)
                for i, j in T.Parallel(32, 32):
                    B[i, k * 32 + j] = tile[i, j]
                    if (i == 3) & (j > 29):
                        T.print(7, "cut")
            for k in T.serial(2, 5, 2):
                for one in T.unroll(1):
                    T.print(k + one, "again")
            T.print(tile, "tile")
        return B

    found = nest.with_target(target).compile().prints(np.ones((32, 128), np.float32))
    cut = [dict(line.loops) for line in found.select(text="cut").lines]
    assert cut == [{"k": k, "i": 3, "j": j} for k in range(4) for j in (30, 31)]
    again = [dict(line.loops) for line in found.select(text="again").lines]
    assert again == [{"k": 2, "one": 0}, {"k": 4, "one": 0}]
    assert {line.loops for line in found.select(text="tile").lines} == {()}


def test_chosen_blocks_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = printing.with_target("cpu").compile()
    assert {line.block for line in kernel.prints(ONES, blocks=[1]).lines} == {(1,)}
    whole = len(kernel.prints(ONES).lines)
    monkeypatch.setattr(log, "MOST_LINES", 5)
    found = kernel.prints(ONES)
    assert (len(found.lines), found.dropped) == (5, whole - 5)
    assert str(found).endswith(f"\n... and {whole - 5} lines more")
    with pytest.raises(ArgumentError, match="takes 1 argument, got 2"):
        kernel.prints(ONES, ONES)


def test_what_was_printed_before_the_end_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.jit
    def stuck(A: T.Tensor((64,), "float32")):
        B = T.empty((64,), "float32")
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            ready = T.alloc_barrier(64)
            if tx == 3:
                T.print(A[tx], "before")
            T.mbarrier_wait_parity(ready, 0)
            B[tx] = A[tx]
        return B

    found = stuck.with_target("cpu").compile().prints(np.ones(64, np.float32))
    (line,) = found.lines
    assert (line.thread, line.message) == (3, "before")
    assert found.stopped.startswith("the simulation ended: block (0) waits for ever")
    kernel = printing.with_target("cpu").compile()
    assert kernel.prints(ONES, seconds=-1).stopped == "the simulation was stopped after -1 s"

    def stops(*_: Any) -> Any:
        raise interrupted("printing")

    monkeypatch.setattr(observed, "run_program", stops)
    assert kernel.prints(ONES).stopped == "the simulation was interrupted"


def test_nothing_runs_until_it_is_asked_for() -> None:
    kernel = printing.with_target("cpu").compile().with_inputs(ONES)
    view = kernel.view()
    assert view_model(view, "prints")["ran"] is False and kernel.last_prints is None
    assert "last &#x27;two" not in kernel._repr_mimebundle_()[0]["text/html"].partition("Prints")[2]
    shown = prints.run_answer(view, {})
    json.dumps(shown, allow_nan=False)
    assert shown["total"] == len(shown["lines"]) == len(kernel.last_prints.lines)
    line = next(line for line in shown["lines"] if line["value"].endswith("value=382"))
    assert (line["who"], line["where"]) == ("thread 63 (warp 1, lane 31)", "k = 0")
    assert "on the inputs that were given" in view_model(view, "prints")["about"]


def test_the_static_page_groups_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prints, "_ROWS", 7)
    kernel = printing.with_target("cpu").compile().with_inputs(ONES)
    page = view_html(kernel.view(), "prints")  # standing alone, it runs
    assert "block (0)" in page and "block (1)" in page
    assert "thread 63 (warp 1, lane 31)" in page and "dtype=float32 value=382" in page
    assert "last &#x27;two&#x27;" in page and ">3 lines more</div>" in page


def test_a_kernel_that_prints_nothing_says_so() -> None:
    kernel = silent.with_target("cpu").compile()
    assert view_model(kernel.view(), "prints") == {"missing": "the kernel has no T.print"}
    assert kernel.to_dict("prints") == [] and kernel.prints(np.ones(64, np.float32)).lines == ()
