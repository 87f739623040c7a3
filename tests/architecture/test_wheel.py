"""`pip install .` gives a working package: the wheel holds all that the source tree does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tileworkbench.__main__ import main
from tileworkbench.labext import NAME, install

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".js", ".css", ".cfg", ".h", ".typed", ".md"}


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


def test_wheel_holds_nothing_but_the_package_and_its_extension(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"tileworkbench"}
    data = [name.partition(".data/data/")[2] for name in names if ".data/" in name]
    assert all(name.startswith(f"share/jupyter/labextensions/{NAME}/") for name in data)


def test_wheel_brings_the_course(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {f"tileworkbench/notebooks/{name}" for name in files} - names == set()


def test_wheel_brings_the_extension_that_a_checkout_installs(wheel: Path, tmp_path: Path) -> None:
    installed = install(tmp_path)
    assert installed == tmp_path / NAME
    zipfile.ZipFile(wheel).extractall(tmp_path / "wheel")
    [shared] = (tmp_path / "wheel").glob(f"*.data/data/share/jupyter/labextensions/{NAME}")
    files = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    assert files == {path.relative_to(shared) for path in shared.rglob("*") if path.is_file()}
    assert all((installed / each).read_bytes() == (shared / each).read_bytes() for each in files)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert json.loads((installed / "package.json").read_text())["version"] == project["version"]
    assert f'VERSION = "{project["version"]}"' in (installed / "static/cards.js").read_text()


def test_installing_the_extension_again_removes_what_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = install(tmp_path) / "static" / "old.js"
    old.write_text("old")
    main(["labext", str(tmp_path)])
    assert capsys.readouterr().out == f"{tmp_path / NAME}\n"
    assert not old.exists()
    assert (tmp_path / NAME / "static" / "views" / "card.js").exists()


def test_a_package_that_is_no_checkout_has_its_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tileworkbench.labext._ROOT", tmp_path)
    with pytest.raises(SystemExit):
        main(["labext"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        f"python -m tileworkbench: error: '{tmp_path}' is no checkout of tileworkbench: "
        "an installed package has its extension"
    )


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
