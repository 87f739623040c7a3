"""The card of a function of torch operations: its data and its still form."""

from __future__ import annotations

from tests.viz.sanitiser import problems
from tileworkbench.viz.model.function import (
    FunctionView,
    KernelRow,
    OperationRow,
    function_html,
    function_line,
    function_model,
)

OPERATIONS = (
    OperationRow("aten.mm.default", 3, "h = F.gelu(x @ w)", "mm_gelu", "", False),
    OperationRow("aten.gelu.default", 3, "h = F.gelu(x @ w)", "mm_gelu", "", False),
    OperationRow("aten.sort.default", 4, "return h.sort(<b>)", "", "no rule for it", False),
    OperationRow("aten.mm.default", 0, "", "", "alone, it is as fast in torch", True),
)
KERNELS = (KernelRow("mm_gelu", "def mm_gelu(): ...\n", "cpu", "%%tile mm_gelu\n..."),)
VIEW = FunctionView(
    "layer", "2 of 4 operations run in 1 kernel", OPERATIONS, KERNELS, ("line 9: no",), "", ""
)


def test_operations_stand_by_the_line_that_they_come_from() -> None:
    model = function_model(VIEW)
    assert [(each["line"], len(each["operations"])) for each in model["groups"]] == [
        (3, 2),
        (4, 1),
        (0, 1),
    ]
    assert model["kernels"][0]["cell"] == "%%tile mm_gelu\n..."


def test_the_still_form() -> None:
    text = function_html(VIEW)
    assert problems(text) == []
    assert "return h.sort(&lt;b&gt;)" in text and "aten.mm.default (gradient)" in text
    assert "Python runs between graphs: line 9: no" in text
    assert "Kernel mm_gelu" in text and "def mm_gelu(): ..." in text
    assert function_line(VIEW) == "<tw.tile layer: 2 of 4 operations run in 1 kernel>"


def test_a_program_without_room_is_named() -> None:
    long = (KERNELS[0], KernelRow("long", "x = 1\n" * 20_000, "cpu", ""))
    text = function_html(FunctionView("f", "", OPERATIONS, long, (), "", ""))
    assert len(text) < 70_000 and "run the cell" in text and "def mm_gelu" in text
