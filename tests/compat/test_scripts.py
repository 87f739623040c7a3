"""Scripts written for TileLang run unchanged; each compares its kernels with torch itself."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tileworkbench import compat
from tileworkbench.compiler.device.nvidia.driver import missing_device

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TILEWORKBENCH_DISABLE_CACHE", "")  # scripts set it; put back afterwards
    torch.manual_seed(0)
    compat.install()
    yield
    compat.uninstall()


@pytest.mark.parametrize(
    "script",
    [path for path in sorted(SCRIPTS.glob("*.py")) if path.name != "suite.py"],
    ids=lambda path: path.stem,
)
def test_a_script_runs_unchanged(script: Path) -> None:
    runpy.run_path(str(script), run_name="__main__")


def test_a_test_file_runs_its_tests_and_skips_what_needs_a_gpu() -> None:
    code = (
        "import runpy; from tileworkbench import compat; compat.install(); "
        f"runpy.run_path({str(SCRIPTS / 'suite.py')!r}, run_name='__main__')"
    )
    root = Path(__file__).parents[2]
    # What this run requires of its own tests is nothing to a user's.
    environ = {k: v for k, v in os.environ.items() if k != "TILEWORKBENCH_REQUIRE"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, env=environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    missing = missing_device()
    if missing:
        assert "2 passed, 3 skipped" in done.stdout
        assert missing in done.stdout


def test_scripts_can_fail() -> None:
    """The comparisons inside the scripts are not empty: a wrong reference is found."""
    script = runpy.run_path(str(SCRIPTS / "flash_attention.py"))
    profiler = script["flashattn"](1, 1, 64, 32, False).get_profiler()
    with pytest.raises(AssertionError, match="disagrees with the reference in"):
        profiler.assert_allclose(script["reference"](True), rtol=0.01, atol=0.01)
