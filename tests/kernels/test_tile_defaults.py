"""Default tile sizes of the library are those that the time model ranks first, or nearly, or there
is a reason. The table is written by benchmarks/tile_defaults.py.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
NEAR = 1.1  # predicted time of the default over that of the first

# A kernel's default serves every target: whoever compiles for one of these may pass others.
REASONS = {
    ("matmul", "cpu"): "256 x 256 accumulators are 512 registers of each of 128 threads on a GPU, "
    "which have 255 at most",
    ("matmul", "sm_90a"): "with float32 a block_K of 64 takes 128 KiB of shared memory, and sm_86, "
    "sm_89 and sm_120 have 99",
    ("flash_attention", "cpu"): "128 x 128 is not the first on sm_80 and sm_90a, where blocks of "
    "64 rows hold fewer registers",
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script, which imports its neighbours."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("tile_defaults", FOLDER / "tile_defaults.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["tile_defaults"] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    (path,) = (FOLDER / "results").glob("tile_defaults-*.json")
    written: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    return written


def test_the_table_is_about_the_library_as_it_is(
    script: ModuleType, rows: list[dict[str, Any]]
) -> None:
    """Whoever changes a default runs the script again."""
    now = {family.name: script.defaults_of(family) for family in script.FAMILIES}
    assert [(row["kernel"], row["target"]) for row in rows] == [
        (family, target) for family in now for target in script.TARGETS
    ]
    assert all(row["default"] == now[row["kernel"]] for row in rows)


def test_a_default_that_is_not_near_the_first_has_a_reason(rows: list[dict[str, Any]]) -> None:
    far = {(row["kernel"], row["target"]) for row in rows if not row["ratio"] <= NEAR}
    assert far == set(REASONS)


def test_the_reason_of_matmul_on_a_hopper_gpu_is_true() -> None:
    import tileworkbench as tw
    from tileworkbench.kernels import matmul

    with pytest.raises(tw.ResourceError, match="needs 131072 bytes of shared memory"):
        tw.compile(matmul(256, 256, 256, "float32", block_K=64), target="sim:sm_86")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_what_is_written_is_what_the_model_says(
    script: ModuleType, rows: list[dict[str, Any]], target: str
) -> None:
    """Of a GPU it is the same on every machine."""
    for family in script.FAMILIES[1:4]:
        (written,) = (
            row for row in rows if (row["kernel"], row["target"]) == (family.name, target)
        )
        made = script.compare(family, target)
        assert made["first"] == written["first"]
        assert made["ratio"] == pytest.approx(written["ratio"], rel=1e-6)
