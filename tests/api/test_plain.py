"""What views show as plain data: rows for each view of the table, and the same in the documents."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tileworkbench as tw
from tests.viz.test_prints import printing
from tests.viz.tiled import compiled
from tileworkbench.viz.model.views import VIEWS
from tileworkbench.workbench.inputs import make_inputs
from tileworkbench.workbench.plain import ROWS

README = Path(__file__).parents[2] / "README.md"
FACTS = {
    "card": {"name": "mm", "threads": 128, "grid": [4, 4]},
    "source": {"ideal_sectors": 0},
    "passes": {"index": 1, "disabled": False},
    "layouts": {"buffer": "A_shared", "kind": "Layout", "copies": 1},
    "banks": {"scope": "shared", "buffer": "A_shared"},
    "global": {"scope": "global", "buffer": "A"},
    "smem": {"name": "A_shared", "versions": 3},
    "pipeline": {},
    "roofline": {"name": "mm", "predicted": True},
    "errors": {"element": [0, 0], "block": [0, 0], "warp": 0, "lane": 0},
    "footprint": {"tensor": "A", "untouched": 0, "stored": 0},
    "numerics": {"buffer": "A_shared", "loops": {"k": 0}, "ulp": 0.0},
    "prints": {"thread": 63, "loops": {"k": 0}},
    "replay": {"step": 0, "block": [0, 0], "kind": "alloc"},
    "code": {"number": 1},
}


@pytest.fixture(scope="module")
def kernel() -> tw.Kernel:
    made = copy.copy(compiled("mm"))
    inputs = make_inputs(made.program)
    with pytest.raises(tw.CheckError):
        made.check(lambda a, b: a.float() @ b.float() + 9, *inputs)
    return made


def test_every_view_has_rows_and_stands_in_the_readme() -> None:
    assert list(ROWS) == ["card", *VIEWS] == list(FACTS)
    section = README.read_text(encoding="utf-8").partition("## Views as data")[2]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)[: len(ROWS)] == list(ROWS)


@pytest.mark.parametrize("view", ["card", *VIEWS])
def test_rows_are_plain_data_with_the_same_keys(kernel: tw.Kernel, view: str) -> None:
    if view == "prints":  # the kernel has no T.print
        kernel = printing.with_target("cpu").compile()
    rows = kernel.to_dict(view)
    assert rows
    assert json.loads(json.dumps(rows, allow_nan=False)) == json.loads(json.dumps(rows))
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    facts = FACTS[view]
    assert any(all(row[key] == value for key, value in facts.items()) for row in rows), rows[0]


def test_rows_of_memory_are_the_accesses(kernel: tw.Kernel) -> None:
    counts = [access for access in kernel.accesses if access.scope == "shared"]
    rows = kernel.to_dict("banks")
    assert [row["wavefronts"] for row in rows] == [count.wavefronts for count in counts]
    assert len(kernel.to_dict("global")) == len(kernel.accesses) - len(rows)
    lines = kernel.to_dict("code")
    assert "\n".join(row["text"] for row in lines) == kernel.source.rstrip("\n")


@pytest.mark.parametrize("view", sorted(set(VIEWS) - {"roofline", "pipeline"}))
def test_rows_of_a_cpu_kernel(view: str) -> None:
    rows = compiled("mm", "cpu").to_dict(view)
    json.dumps(rows, allow_nan=False)
    assert len({tuple(row) for row in rows}) <= 1


def test_a_name_of_no_view(kernel: tw.Kernel) -> None:
    with pytest.raises(tw.ArgumentError) as caught:
        kernel.to_dict("bank")
    assert str(caught.value).startswith("'bank' is not a view\nhint: choose one of card, source,")


def test_a_frame_has_the_rows(kernel: tw.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda rows: ("frame", rows)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert kernel.to_frame("smem") == ("frame", kernel.to_dict("smem"))
