"""`pip install .` gives a working package: the wheel holds all that the source tree does."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".js", ".css", ".cfg", ".typed", ".md"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the build back end without pip, so without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "tileworkbench"
    files = {p.relative_to(ROOT).as_posix() for p in package.rglob("*") if p.suffix in SUFFIXES}
    assert files - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_wheel_holds_nothing_but_the_package(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tileworkbench"}


def test_package_imports_from_the_unpacked_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "import tileworkbench as tw; print(tw.__version__, tw.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    version, file = done.stdout.split(maxsplit=1)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version == project["version"]
    assert Path(file.strip()) == tmp_path / "tileworkbench" / "__init__.py"
