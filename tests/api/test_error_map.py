"""What a failed check says of where the error is: kernels with one planted bug each; bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.api import wrong_kernels, wrong_synchronisation
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    CheckError,
    DeadlockError,
    Interrupted,
    RunError,
    interrupted,
)
from tileworkbench.kernels import flash_attention
from tileworkbench.workbench import checking, observed

CASES = wrong_kernels.cases() | wrong_synchronisation.cases()

SAID = {
    "off_by_one": "everywhere; last written at line",
    "swapped_index": "nearly everywhere; last written at line",
    "wrong_mask": "all in columns 60-63, by lanes 15 and 31; all are 0; last written at line",
    "wrong_scale": "everywhere; each is 0.25 times what is expected; last written at line",
    "overflow": "all are infinite; last written at line",
    "stale_accumulator": "all in rows 32-63; last written at line",
    "skipped_rows": "all in rows 30-31 and 62-63; all are NaN; never written, others at line",
    "wrong_warp": "all in elements 48-63, by lanes 16-31 of warp 1; each is 1 too large; last",
    "wrong_stage": "everywhere; last written at line",
    "wrong_axis": "nearly everywhere; last written at line",
    "integer_overflow": "everywhere; last written at line",
    "ragged_edge": "all in rows 48-49, by block 3; last written at line",
    "truncated": "nearly everywhere; last written at line",
    "wrong_stride": "all in rows 32-63, by block 1; last written at line",
}


def line_of_bug(name: str) -> int:
    program = CASES[name][0].with_target("cpu").compile().program
    lines = Path(program.span(program.body.site).file).read_text().split("\n")
    first = lines.index(next(line for line in lines if line.startswith(f"def {name}(")))
    return next(at + 1 for at in range(first, len(lines)) if lines[at].endswith("# BUG"))


def failed(name: str, target: str) -> tuple[Any, RunError]:
    kernel, reference, inputs = CASES[name]
    made = kernel.with_target(target).compile()
    with pytest.raises(RunError) as found:
        made.check(reference, *inputs)
    return made, found.value


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_a_planted_bug_is_found_on_its_line(name: str, target: str) -> None:
    kernel, error = failed(name, target)
    if not isinstance(error, CheckError):
        if isinstance(error, DeadlockError):  # two lines wait for each other
            assert f"line {line_of_bug(name)})" in error.message
        else:
            assert error.span is not None and error.span.line == line_of_bug(name)
        assert kernel.error_map is None
        return
    found = error.map
    named = {*found.writing_lines, *found.lines[found.lines > 0].tolist()}
    for line in found.writing_lines:
        named.update(at for _, lines in found.feeding(line) for at in lines)
    assert line_of_bug(name) in named and len(named) <= 3
    assert found is kernel.error_map and found.why_not == ""
    assert any(note.message == f"the wrong elements: {found.pattern}" for note in error.notes)
    if target != "cpu" and name in SAID:
        assert SAID[name] in found.pattern


def test_a_tile_that_is_stored_is_followed_to_the_lines_that_write_it() -> None:
    _, error = failed("wrong_scale", "sim:sm_80")
    bug = line_of_bug("wrong_scale")
    assert error.notes[-3].message.endswith(f"last written at line {bug + 1}")
    assert error.notes[-2].message == (
        f"line {bug + 1} stores 'tile', which is written at lines {bug - 2}, {bug}"
    )


def test_every_element_has_its_writer_as_plain_data() -> None:
    kernel, _ = failed("wrong_warp", "sim:sm_80")
    rows = kernel.error_map.rows()
    assert [row["lane"] for row in rows] == list(range(16, 32))
    assert rows[0] == {
        "element": [48],
        "got": 50.0,
        "expected": 49.0,
        "error": 1.0,
        "line": line_of_bug("wrong_warp"),
        "block": [0],
        "warp": 1,
        "lane": 16,
        "register": None,
    }
    data = kernel.error_map.to_dict()
    assert (data["wrong"], data["shape"], data["recorded"]) == (16, [64], "1 block simulated")
    assert data["lines"] == {str(line_of_bug("wrong_warp")): 16}


def test_registers_are_known_where_threads_store_fragments() -> None:
    kernel, _ = failed("stale_accumulator", "sim:sm_80")
    found = kernel.error_map
    assert set(np.unique(found.registers)) == set(range(32))
    assert found.threads.max() == 63


def test_a_check_that_passes_forgets_the_map_before() -> None:
    kernel, _ = failed("wrong_scale", "cpu")
    kernel.check(lambda a: a * 0.5, CASES["wrong_scale"][2][0])
    assert kernel.error_map is None
    with pytest.raises(tw.ArgumentError) as found:
        kernel.locate()
    assert str(found.value) == (
        "no check of 'wrong_scale' has failed\nhint: call .check(reference, ...) first"
    )


def test_a_kernel_too_large_to_simulate_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checking, "STATEMENTS", 0)
    kernel, error = failed("wrong_stride", "cpu")
    found = kernel.error_map
    limited = "only 0 blocks were simulated within 0 statements"
    assert found.why_not == limited
    assert kernel.locate(seconds=-1).why_not == "only 0 blocks were simulated in -1 s"
    assert error.notes[-2].message == (
        f"who wrote them last is not known of all: {limited}; "
        "kernel.locate(blocks=[0]) looks at one block, kernel.locate() at all"
    )
    assert kernel.locate().writers.startswith("last written at line")
    assert kernel.locate(blocks=[1]).why_not == "only 1 block simulated, which were asked for"
    assert kernel.error_map.writers.startswith("last written at line")
    assert set(np.unique(kernel.error_map.blocks)) == {-1, 1}


def test_what_was_recorded_before_an_interrupt_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*_: Any) -> None:
        raise interrupted("kernel")

    monkeypatch.setattr(observed, "run_program", stops)
    kernel, error = failed("wrong_scale", "cpu")
    assert not isinstance(error, Interrupted)
    assert kernel.error_map.why_not == "the simulation was interrupted"
    assert kernel.error_map.count == 64 * 64


def test_a_reference_with_nan_is_said() -> None:
    kernel = CASES["wrong_scale"][0].with_target("cpu").compile()
    with pytest.raises(CheckError) as found:
        kernel.check(lambda a: np.where(a > 1.5, np.nan, a * 0.5), CASES["wrong_scale"][2][0])
    count = found.value.map.count
    assert f"the reference is NaN in {count} of them" in found.value.map.pattern


def test_nan_in_both_is_right_and_said() -> None:
    kernel = CASES["wrong_scale"][0].with_target("cpu").compile()
    given = CASES["wrong_scale"][2][0].copy()
    given[0, :3] = np.nan
    found = kernel.check(lambda a: kernel(a), given)
    assert found.ok and found.nans == 3
    text = "3 elements are NaN in both, which is not compared further"
    assert f"check ok ({text})" in repr(kernel)
    assert kernel.view().check.nan_text == text
    assert kernel.check(lambda a: kernel(a), CASES["wrong_scale"][2][0]).nan_text == ""


def test_another_shape_or_a_reference_that_raises_has_no_map() -> None:
    kernel = CASES["wrong_scale"][0].with_target("cpu").compile()
    given = CASES["wrong_scale"][2][0]
    with pytest.raises(CheckError) as found:
        kernel.check(lambda a: a[:3], given)
    assert found.value.map is None
    assert f"{found.value.message}\nhint: {found.value.hint}" == (
        "output 'B' of 'wrong_scale' has shape (64, 64), the reference (3, 64)\n"
        "hint: no element was compared: let the reference return an array of the same shape"
    )

    def halved(a: Any) -> Any:
        return a / 0 if isinstance(a, int) else 1 // 0

    with pytest.raises(ZeroDivisionError) as raised:
        kernel.check(halved, given)
    assert raised.value.__notes__ == [
        "'halved' raised this, the reference of a check of 'wrong_scale', on the kernel's 1 input: "
        "nothing was compared"
    ]
    assert kernel.error_map is None
    with pytest.raises(ArgumentError) as caught:
        kernel.check(lambda a: {"B": a}, given)
    assert str(caught.value) == (
        "the reference returns dict for the output 'B' of 'wrong_scale', which is no array of "
        "numbers\n"
        "hint: return an array or a tensor for each output, in order"
    )


def test_the_pass_that_broke_it_joins_the_map() -> None:
    kernel, error = failed("wrong_warp", "sim:sm_80")
    args = kernel._failed[1]
    assert kernel.error_map.bisected == ""
    kernel.validate(np.zeros_like(args[0]))  # another call says nothing about these elements
    assert kernel.error_map.bisected == ""
    found = kernel.validate(*args)
    said = f"wrong as written: all {len(found.stages)} stages agree"
    assert kernel.error_map.pattern == f"{error.map.pattern}; {said}"
    assert kernel.locate().pattern.endswith(said)


def broken_after(right: Any, after: str, buffer: str) -> Any:
    """The kernel with what is stored to `buffer` doubled in its IR after a pass."""
    from dataclasses import replace

    from tileworkbench.compiler.ir.build import binary
    from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
    from tileworkbench.compiler.ir.stmt import Store
    from tileworkbench.editing.ir import edit_ir

    def doubled(stmt: Any) -> Any:
        into = isinstance(stmt, Store) and stmt.buffer.name == buffer
        return replace(stmt, value=binary("add", stmt.value, stmt.value)) if into else stmt

    name = next(each.name for each in right.passes if each.name == after)
    program = right.passes[name].program
    changed = with_body(program, Rewriter(rewrite_stmt=doubled)(program.body))
    return edit_ir(right, str(changed), name)


def test_a_pass_that_breaks_a_result_is_named_in_the_map() -> None:
    right = CASES["wrong_warp"][0].with_target("sim:sm_80").compile()
    wrong = broken_after(right, "expand_pipelines", "B")
    args = CASES["wrong_warp"][2]
    with pytest.raises(CheckError):
        wrong.check(lambda *given: right(*given), *args)
    found = wrong.validate(*wrong._failed[1])
    assert found.first_wrong == "edited"
    assert wrong.error_map.pattern.endswith("; first wrong after pass edited")


@pytest.mark.slow
def test_a_pass_that_breaks_attention_on_sm_90a_is_named() -> None:
    """Roles, copies by the engine and products of warpgroups before and after the wrong pass."""
    page = flash_attention(1, 1, 64, 128, 64, "float16", block_M=64, threads=128)
    right = tw.compile(page, target="sim:sm_90a")
    wrong = broken_after(right, "specialize_warps", "Output_tile_pairs")  # results leave by a tile
    random = np.random.default_rng(0)
    args = [random.standard_normal((1, n, 1, 64)).astype(np.float16) for n in (64, 128, 128)]
    with pytest.raises(CheckError, match="elements of 'Output'"):
        wrong.check(lambda *given: right(*given), *args)
    found = wrong.validate(*wrong._failed[1])
    assert found.first_wrong == "edited"
    assert wrong.error_map.pattern.endswith("; first wrong after pass edited")


@tw.jit
def data_dependent(A: T.Tensor((64,), "float32"), N: T.Tensor((1,), "int32")):
    with T.Kernel(2, threads=32) as bx:
        for i in T.Parallel(32):
            if bx * 32 + i < N[0]:
                A[bx * 32 + i] = A[bx * 32 + i] + 1.0


def test_a_kernel_that_changes_its_input_is_located_on_what_it_was_given() -> None:
    kernel = data_dependent.with_target("sim:sm_80").compile()
    count = np.array([40], np.int32)
    with pytest.raises(CheckError) as found:
        kernel.check(lambda a, n: a + 1, np.zeros(64, np.float32), count)
    assert "all in elements 40-63" in found.value.map.pattern
    assert "never written, others at line" in found.value.map.pattern


def test_without_a_log_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    from tileworkbench.compiler.sim.writes import WriteLog

    def never(*_: Any) -> None:
        raise AssertionError("recorded though nobody asked")

    monkeypatch.setattr(WriteLog, "wrote", never)
    kernel = CASES["wrong_scale"][0].with_target("sim:sm_80").compile()
    kernel.simulate(*CASES["wrong_scale"][2])
    with pytest.raises(AssertionError, match="nobody asked"):
        kernel.check(lambda a: a, *CASES["wrong_scale"][2])


def test_tensors_above_the_limit_have_no_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    from tileworkbench.compiler.sim import writes

    monkeypatch.setattr(writes, "MOST_ELEMENTS", 100)
    kernel, _ = failed("wrong_scale", "cpu")
    assert kernel.error_map.why_not == "writers are recorded of tensors of at most 100 elements"
    assert kernel.error_map.places == "everywhere"


def test_a_call_that_executes_ptx_has_the_same_map() -> None:
    require("nvrtc", missing_nvrtc())
    _, error = failed("wrong_warp", "ptx:sm_80")
    assert isinstance(error, CheckError)
    assert SAID["wrong_warp"] in error.map.pattern
    assert list(error.map.writing_lines) == [line_of_bug("wrong_warp")]
