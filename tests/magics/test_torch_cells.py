"""`%%tile torch`: plain torch code becomes kernels to read, check and open as cells."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.magics.notebook import Notebook
from tileworkbench.pytorch import trials

SETUP = (
    "import torch, torch.nn.functional as F\n"
    "torch._dynamo.reset(); torch.manual_seed(0)\n"
    "x, w = torch.randn(128, 128), torch.randn(256, 128)"
)
# What a busy machine measures decides nothing here.
CELL = """%%tile torch --keep-slower --args x,w
def layer(x, w):
    h = F.gelu(F.linear(x, w))
    return torch.softmax(h, -1).sort(-1).values
"""


@pytest.fixture
def ready(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Any:
    # What is measured when a graph is compiled decides nothing here: kernels are taken to win.
    monkeypatch.setattr(trials, "_times", lambda calls, sets: [0.0, 1.0])
    notebook.run(SETUP)
    yield notebook
    torch._dynamo.reset()


def test_a_function_becomes_kernels_that_agree_with_torch(ready: Notebook) -> None:
    done = ready.run(CELL)
    assert done.error is None
    layer = ready.value("layer")
    assert done.value is layer
    assert [(each.name, each.line, each.kernel) for each in layer.report.operations] == [
        ("aten.mm.default", 3, "mm_gelu"),
        ("aten.gelu.default", 3, "mm_gelu"),
        ("aten._softmax.default", 4, "softmax"),
        ("aten.sort.default", 4, ""),
    ]
    assert layer.report.summary == "3 of 4 operations run in 2 kernels"
    assert str(layer.agreement).startswith("agrees with torch in 1 result: largest error ")
    x, w = ready.value("x"), ready.value("w")
    torch.testing.assert_close(layer(x, w), layer.fn(x, w), rtol=1e-4, atol=1e-4)


def test_a_kernel_opens_as_a_cell_with_its_check(ready: Notebook) -> None:
    ready.run(CELL)
    cell = ready.value('layer["mm_gelu"].cell("layer")')
    assert cell.startswith('%%tile mm_gelu --check layer["mm_gelu"].reference\n# mm, gelu\n')
    done = ready.run(cell)
    assert done.error is None and done.value._check.ok
    wrong = ready.run(cell.replace("h_out[row, column] = 0.5", "h_out[row, column] = 0.4"))
    assert "disagrees with the reference" in str(wrong.error)


def test_a_module_keeps_its_parameters(ready: Notebook) -> None:
    done = ready.run(
        "%%tile torch --args x\n"
        "net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU())"
    )
    assert done.error is None
    net = ready.value("net")
    assert len(list(net.parameters())) == 2 and net.name == "net"
    assert " and 2 gradients: " in str(net.agreement)


def test_another_name_and_target_and_nothing_shown(ready: Notebook) -> None:
    options = "torch layer --keep-slower --args x,w -o fast -t sim:sm_80 -q"
    cell = CELL.replace("torch --keep-slower --args x,w", options)
    done = ready.run(cell)
    assert done.error is None and done.value is None
    assert ready.value("fast").kernels["softmax"].target == "sim:sm_80"
    assert not hasattr(ready.value("layer"), "report")  # it is the plain function


def test_what_torch_cannot_capture_is_said_and_right(ready: Notebook) -> None:
    done = ready.run(
        "%%tile torch --args x\n"
        "def branch(x):\n"
        "    y = torch.relu(x) * 2 + 1\n"
        "    if y.sum() > 0:\n"
        "        y = torch.exp(y) - 1\n"
        "    return F.dropout(y * 2 + 1, 0.5)\n"
    )
    assert done.error is None
    branch = ready.value("branch")
    assert branch.report.breaks == ["line 4, 'if y.sum() > 0:': Data-dependent branching"]
    assert str(branch.agreement).startswith("agrees with torch in 1 result")
    assert str(branch.report).endswith(
        "Python runs between graphs:\n  line 4, 'if y.sum() > 0:': Data-dependent branching"
    )


def test_measured_beside_torch(ready: Notebook) -> None:
    ready.run(CELL.replace("--args", "--bench 5 --args"))
    assert ready.value("layer").times.n == 5
    assert " times as fast as torch (" in str(ready.value("layer").times)
    error = ready.run(CELL.replace("--args", "--bench 5 -t sim:sm_80 --args")).error
    assert str(error).startswith("'mm_gelu' is simulated on 'sim:sm_80'")


def test_a_function_that_differs_is_an_error(ready: Notebook) -> None:
    cell = "%%tile torch --args x\ncalls = []\ndef odd(x):\n    return x * 2 + len(calls)\n"
    assert ready.run(cell).error is None
    ready.run("calls.append(1); odd.fn = lambda x: x * 3 + 1")
    error = ready.run("odd.check(x)").error
    assert "'odd' in kernels disagrees with torch in " in str(error)
    assert "odd['NAME'] is a kernel of it" in str(error)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (
            "%%tile torch\ndef f(x): return x",
            "for which inputs? '%%tile torch --args x,w' names them, or makes them: "
            "'--args torch.randn(64,64)'",
        ),
        ("%%tile torch --args x\ny = 3", "the cell defines no function, and makes no module"),
        (
            "%%tile torch g --args x\ndef f(x): return x",
            "'g' is no function of this cell; one of f",
        ),
        (
            "%%tile torch --args nothing\ndef f(x): return x",
            "'--args nothing' has no value: name 'nothing' is not defined",
        ),
        (
            "%%tile torch --args x\n ",
            "the cell is empty: write a function of torch operations below the line",
        ),
        (
            "%%tile torch --args x --slide K=1,2\ndef f(x): return x",
            "'--slide' is a flag of '%%tile', '%%tile torch' has --args, -t, --target, --rtol, "
            "--atol, --bench, --keep-slower, -o, --output, -q, --quiet, -h, --help",
        ),
    ],
)
def test_bad_input(ready: Notebook, cell: str, expected: str) -> None:
    assert str(ready.run(cell).error) == expected


def test_an_error_of_the_function_is_its_own(ready: Notebook) -> None:
    error = ready.run("%%tile torch --args x,x\ndef f(x, y):\n    return x.view(3) @ y\n").error
    assert type(error).__name__ == "RuntimeError" and "shape '[3]' is invalid" in str(error)


def test_an_unknown_kernel(ready: Notebook) -> None:
    ready.run(CELL)
    error = ready.run("layer['gelu']").error
    assert str(error) == "'gelu' is no kernel of 'layer'\nhint: one of mm_gelu, softmax"
