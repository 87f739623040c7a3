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


def run_pytest(folder: Path, body: str, required: str) -> subprocess.CompletedProcess[str]:
    """Run one test marked `browser` with `body` in a pytest of its own that shares our hooks."""
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = browser: a\n")
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    source = f"import pytest\n@pytest.mark.browser\ndef test_it():\n{lines}\n"
    (folder / "test_it.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(folder)],
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
        ("pass", "browsers", 4, "names 'browsers'; it may name ['browser', 'gpu', 'nvrtc']"),
    ],
)
def test_required_capability(
    tmp_path: Path, body: str, required: str, status: int, says: str
) -> None:
    done = run_pytest(tmp_path, body, required)
    assert says in done.stdout + done.stderr
    assert done.returncode == status
