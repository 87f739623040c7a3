"""The benchmark scripts' tables and kernels; nothing is timed."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The scripts' folder on the path; their results go to the returned one."""
    monkeypatch.syspath_prepend(str(FOLDER))
    importlib.import_module("common")
    monkeypatch.setattr("common.RESULTS", tmp_path)
    yield tmp_path
    for name in ("common", "ceilings_agree", "cpu_gemm", "compile_latency", "gpu_common"):
        sys.modules.pop(name, None)


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_table(scripts: Path) -> None:
    common = load("common")
    table = common.markdown_table(("what", "ms"), [("a", "1"), ("b", "2")])
    assert table == "| what | ms |\n|---|---:|\n| a | 1 |\n| b | 2 |"


def test_results_are_named_after_the_machine(scripts: Path) -> None:
    common = load("common")
    facts = common.environment(("numpy", "no-such-package")) | {"machine": "Some (R) CPU, 2 cores"}
    path = common.write_results("x", facts, [1], "table")
    assert path == scripts / "x-some-r-cpu-2-cores.md"
    assert json.loads(path.with_suffix(".json").read_text())["results"] == [1]
    assert "no-such-package not installed" in path.read_text()
    assert path.read_text().endswith("\ntable\n")


def test_gemm_row_takes_medians_over_processes(scripts: Path) -> None:
    pytest.importorskip("torch")
    cpu_gemm = load("cpu_gemm")
    case = {"dtype": "float32", "shape": [100, 100, 100], "threads": 2, "error": 1e-6}
    cases = tuple(
        {**case, "tileworkbench": [ours] * 4, "torch": [torch] * 4}
        for ours, torch in ((1.0, 2.0), (2.0, 2.0), (4.0, 2.0))
    )
    peer = {(2, 100, 100, 100): {"times": [10.0, 20.0, 40.0]}}
    assert list(cpu_gemm.table_row(cases, peer)) == [
        "float32 100 x 100 x 100, 2",
        *("1", "0 to 2", "1", "1 to 1"),
        *("1.00", "0.50 to 2.00", "0.1", "1e-06"),
    ]


def test_gemm_report_says_where_tilelang_is_missing(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    cpu_gemm = load("cpu_gemm")
    monkeypatch.delenv("TILEWORKBENCH_TILELANG_PYTHON", raising=False)
    text = cpu_gemm.report([{"gemm": [], "overhead": {"call": [0.005]}}], cpu_gemm.run_tilelang())
    assert (
        "TileLang: not installed (TILEWORKBENCH_TILELANG_PYTHON names no interpreter that has it)."
    ) in text
    assert "| call | 5.00 |" in text
    monkeypatch.setenv("TILEWORKBENCH_TILELANG_PYTHON", str(tmp_path / "python"))
    assert "No such file or directory" in cpu_gemm.run_tilelang()["missing"]


def test_latency_report_has_limits(scripts: Path) -> None:
    found = load("compile_latency").report({"compile, cold": [80.0, 100.0, 90.0]})
    assert found.splitlines()[2] == "| compile, cold | 90 ms | 80 to 100 | 150 ms |"


def test_the_cell_is_the_benchmarks_kernel(scripts: Path) -> None:
    source = load("compile_latency").cell_source()
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert function.name == "matmul"
    assert source.count("T.float32") == 6
    assert source.endswith("return C\n")


def test_a_peer_that_is_not_installed_says_how_to_name_it(
    scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latency = load("compile_latency")
    monkeypatch.setattr(latency, "find_spec", lambda name: None)
    for name, (variable, script, _) in latency.PEERS.items():
        monkeypatch.delenv(variable, raising=False)
        assert (FOLDER / script).is_file()
        said = f"not installed ({variable} names no interpreter that has it)"
        assert latency.run_peer(name) == {"version": said}


def test_gpu_rows_and_the_reason_for_none(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = load("gpu_common")
    row = {
        **{"shape": (1, 2), "ratio": (0.9, 1.0, 1.1), "error": 1e-4},
        **{"ours_ms": (1.0, 2.0, 3.0), "torch_ms": (2.0, 2.0, 2.0)},
        **{"ours_tflops": 100.4, "torch_tflops": 99.6},
    }
    assert common.table([row], ["M x N"], lambda shape: [" x ".join(map(str, shape))]).endswith(
        "\n| 1 x 2 | 1.00 (0.90 to 1.10) | 2.000 (1.000 to 3.000) | 2.000 (2.000 to 2.000) "
        "| 100 | 100 | 1.0e-04 |"
    )
    monkeypatch.setattr(common, "missing", lambda: "no device")
    monkeypatch.setattr(sys, "argv", ["gpu"])
    common.run("gpu", "About.", "float16", [], lambda *_: {}, ([], lambda _: []))
    assert capsys.readouterr().out.startswith("Nothing was measured: no device.\nwritten to ")


def test_ceilings_of_processes_are_compared(scripts: Path) -> None:
    agree = load("ceilings_agree")
    runs = [
        {
            "ceilings": {"L1, 1 T, GB/s": 100.0, "DRAM, 2 T, GB/s": 50.0 + n},
            **{"busy": n > 3, "doubt": "it was busy" if n > 3 else ""},
        }
        for n in (0, 2, 4)
    ]
    table = agree.make_table(runs)
    assert "| L1, 1 T, GB/s | 100.0 | 100.0 | 100.0 | 0.0 % | 0.0 % |" in table
    assert "| DRAM, 2 T, GB/s | 50.0 | 52.0 | 54.0 | 8.0 % | 4.0 % |" in table
    assert "\n\n1. quiet\n2. quiet\n3. it was busy\n\n" in table
    head = "3 processes, one after another: "
    assert table.endswith(f"{head}2 called the machine quiet, and these agree within 5 %.")
    runs[2]["busy"] = False
    assert agree.make_table(runs).endswith(
        f"{head}3 called the machine quiet. These are not within 5 %: DRAM, 2 T, GB/s."
    )
    runs[0]["busy"] = runs[1]["busy"] = True
    table = agree.make_table(runs)
    assert table.endswith(
        f"{head}1 called the machine quiet, so there is nothing that must agree within 5 %."
    )
    assert "| 8.0 % | - |" in table
