"""A compilation that a pass ended: the passes so far, the program that the pass was given."""

from __future__ import annotations

import pytest

import tileworkbench as tw
from tileworkbench.compiler.diagnostics import ResourceError, TileTypeError
from tileworkbench.compiler.driver import record_of
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.kernels import matmul
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.passes_static import stopped_html, stopped_text

SAID = (
    "the block needs 196608 bytes of shared memory, 'sm_80' has 166912: "
    "'A_shared' 98304, 'B_shared' 98304"
)


def stopped() -> CompileRecord:
    page = matmul(256, 256, 256, "float16", block_K=64, num_stages=6)
    with pytest.raises(ResourceError) as caught:
        tw.compile(page, target="sim:sm_80")
    record = record_of(caught.value)
    assert record is not None
    return record


def test_the_record_of_an_error() -> None:
    record = stopped()
    assert record.stop is not None
    assert (record.stop.name, record.stop.message) == ("plan_shared_memory", SAID)
    assert [found.name for found in record.snapshots][-1] == "expand_pipelines"
    assert record.code == ""


def test_the_last_pass_has_failed_at_its_line() -> None:
    record = stopped()
    browser = PassBrowser(record)
    at = browser.first_shown()
    entry = browser.overview(live=True)["entries"][at]
    assert (entry["name"], entry["failed"], entry["changed"]) == ("plan_shared_memory", True, False)
    diff = browser.diff(at)
    assert diff["problem"]["text"] == SAID
    line = browser.lines(at)[diff["problem"]["number"] - 1]
    assert line.text.strip().startswith("with T.Kernel(")
    assert browser.lines(at) is browser.lines(at - 1)


def test_the_text_and_the_page() -> None:
    record = stopped()
    number = len(record.snapshots) + 1
    assert stopped_text(record) == (
        f"matmul for sim:sm_80: pass {number}, plan_shared_memory, failed"
    )
    page = stopped_html(record)
    assert "98304" in page
    assert page.index("with T.Kernel(") < page.index("the block needs")


def test_an_error_of_the_front_end_has_no_record() -> None:
    with pytest.raises(TileTypeError) as caught:
        tw.compile(3)  # type: ignore[arg-type]
    assert record_of(caught.value) is None
