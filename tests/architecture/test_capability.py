"""A run that requires a capability fails when its tests skip, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capability import VARIABLE

ROOT = Path(__file__).parents[2]
PLAIN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
SKIPPED_BY_HELPER = "from tests.capability import require\nrequire('browser', 'no Chromium here')"
SKIPPED_OTHERWISE = "pytest.importorskip('no_such_module')"


def run_pytest(
    folder: Path, body: str, required: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    """Run one test marked `browser` with `body` in a pytest of its own that shares our hooks."""
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = browser: a\n")
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    source = f"import pytest\n@pytest.mark.browser\ndef test_it():\n{lines}\n"
    (folder / "test_it.py").write_text(source)
    flags = ("-q", "-rs", "-p", "no:cacheprovider", *flags)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *flags, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: required, **PLAIN},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("body", "required", "status", "says"),
    [
        (SKIPPED_BY_HELPER, "", 0, "no Chromium here"),
        (SKIPPED_BY_HELPER, "browser", 1, f"{VARIABLE} asks for 'browser': no Chromium here"),
        (SKIPPED_OTHERWISE, "browser", 1, f"{VARIABLE} asks for 'browser', yet the test skipped"),
        ("pass", "browser", 0, "1 passed"),
        ("pass", "browser,gpu", 1, f"{VARIABLE} asks for ['gpu'], yet no such test passed."),
        ("pass", "browsers", 4, "names 'browsers'; it may name ['browser', 'gpu', 'hip', 'nvrtc']"),
    ],
)
def test_required_capability(
    tmp_path: Path, body: str, required: str, status: int, says: str
) -> None:
    done = run_pytest(tmp_path, body, required)
    assert says in done.stdout + done.stderr
    assert done.returncode == status


@pytest.mark.parametrize(("required", "status"), [("browser", 0), ("browser,gpu", 1)])
def test_a_capability_may_be_met_by_any_worker(tmp_path: Path, required: str, status: int) -> None:
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    workers = ("-p", "xdist", "-n", "2", "--dist=loadfile")
    done = run_pytest(tmp_path, "pass", required, *workers)
    assert "2 passed" in done.stdout
    assert done.returncode == status
