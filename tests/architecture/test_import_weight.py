"""Importing the package stays light. Milliseconds belong to the benchmarks."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOTEBOOK = {"IPython", "anywidget", "ipykernel", "ipywidgets", "jupyter_client", "traitlets"}
HEAVY = {"matplotlib", "torch"}


def loaded_by(statement: str, forbidden: set[str]) -> list[str]:
    """Which of `forbidden` a fresh process has loaded after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sorted({forbidden!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "statement",
    [
        "import tileworkbench",
        "import tileworkbench; tileworkbench.__version__",
        "import tileworkbench.language as T",
    ],
)
def test_package_loads_neither_torch_nor_jupyter_nor_matplotlib(statement: str) -> None:
    assert loaded_by(statement, NOTEBOOK | HEAVY) == []


def test_loading_the_extension_loads_neither_torch_nor_matplotlib() -> None:
    statement = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "InteractiveShell.instance().extension_manager.load_extension('tileworkbench')"
    )
    assert loaded_by(statement, HEAVY) == []


def test_the_check_sees_what_is_loaded() -> None:
    assert loaded_by("import traitlets", NOTEBOOK) == ["traitlets"]


GPU = {
    *("tileworkbench.compiler.device.gpu", "tileworkbench.compiler.emit.cuda.dialect"),
    *("tileworkbench.compiler.device.nvidia.nvrtc", "tileworkbench.compiler.device.nvidia.driver"),
    "tileworkbench.compiler.lower.threads.solver",
    "tileworkbench.compiler.lower.thread_loops.split",
}
COMPILE = """
import tileworkbench as tw
from tileworkbench.kernels import softmax
tw.compile(softmax(8, 32), target={target!r})"""


def test_a_kernel_for_a_cpu_loads_nothing_of_a_gpus() -> None:
    assert loaded_by(COMPILE.format(target="cpu"), GPU) == []


def test_a_kernel_for_a_gpu_loads_nothing_of_a_cpus() -> None:
    cpu = {
        *("llvmlite", "tileworkbench.compiler.emit.llvm.program"),
        "tileworkbench.compiler.device.host.kernel",
    }
    found = loaded_by(COMPILE.format(target="sim:sm_80"), GPU | cpu)
    assert not cpu & set(found) and "tileworkbench.compiler.device.gpu" in found
