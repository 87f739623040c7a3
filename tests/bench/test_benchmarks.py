"""The benchmark scripts' tables and kernels; nothing is timed."""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tileworkbench.bench.ceilings import machine_to_json
from tileworkbench.bench.points import Ceiling, Machine

GPU = ("gpu_ceilings", "gpu_common", "gpu_report")
FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The scripts' folder on the path; their results go to the returned one."""
    monkeypatch.syspath_prepend(str(FOLDER))
    importlib.import_module("common")
    monkeypatch.setattr("common.RESULTS", tmp_path)
    yield tmp_path
    imported = ("common", "ceilings_agree", "cpu_gemm", "compile_latency", *GPU)
    cost = [name for name in sys.modules if name.split(".")[0] == "cost"]
    for name in (*imported, *cost, "cost_model", "in_turn", "recording", "simulator"):
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


@dataclass
class Clock:
    """A clock that stands still but for what `wait` adds."""

    now_ns: int = 0

    def wait(self, milliseconds: float) -> None:
        self.now_ns += round(milliseconds * 1e6)

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def perf_counter(self) -> float:
        return self.now_ns / 1e9


@pytest.mark.parametrize(("rounds", "seconds", "made"), [(60, 0.0, 8), (60, 0.1, 10), (9, 1.0, 9)])
def test_calls_in_turn(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, seconds: float, made: int
) -> None:
    """A round of both takes 10 ms: three calls of each, of which the first brings data near."""
    in_turn, clock, order = load("in_turn"), Clock(), list[str]()
    monkeypatch.setattr(in_turn, "time", clock)
    took = {"a": itertools.cycle((2.0, 1.0, 1.5)), "b": itertools.cycle((2.5, 1.75, 1.25))}

    def call(name: str) -> None:
        order.append(name)
        clock.wait(next(took[name]))

    times = in_turn.in_turn([lambda: call("a"), lambda: call("b")], rounds, seconds)
    assert times.tolist() == [[1.0, 1.25]] * made
    assert len(order) == 6 * made
    assert {order[at] for at in range(0, len(order), 6)} == {"a", "b"}  # each begins some rounds


def test_something_is_done_before_each_round(scripts: Path) -> None:
    order = list[str]()
    call, before = (lambda: order.append("call")), (lambda number: order.append(str(number)))
    load("in_turn").in_turn([call], rounds=2, seconds=0.0, before=before)
    assert order == ["0", *["call"] * 3, "1", *["call"] * 3]


def test_tensors_lie_somewhere_else_in_each_round(scripts: Path) -> None:
    torch = pytest.importorskip("torch")
    values = [torch.arange(600).view(20, 30), torch.ones(4, dtype=torch.bool)]
    moving, places = load("cost_model").Moving(values), list[list[int]]()
    for number in (0, 1, 2, 0):
        moving.move(number)
        assert all(map(torch.equal, moving.tensors, values))
        places.append([each.data_ptr() % 4096 for each in moving.tensors])
    assert places[3] == places[0] and len({tuple(each) for each in places}) == 3
    starts = [each.data_ptr() for each in moving.rooms]
    assert all(
        (each.data_ptr() - start) % 64 == 0
        for each, start in zip(moving.tensors, starts, strict=True)
    )


def test_a_slow_round_changes_no_comparison(scripts: Path) -> None:
    in_turn = load("in_turn")
    quiet = np.array([[1.0, 3.0, 2.0]] * 7)
    assert in_turn.usual(quiet).tolist() == [1.0, 3.0, 2.0]
    disturbed = quiet * np.array([1.0, 1.5, 1.0, 4.0, 1.0, 1.0, 2.0])[:, None]
    assert in_turn.usual(disturbed).tolist() == [1.0, 3.0, 2.0]
    disturbed[0, 0] = 9.0  # one call of one round
    assert (in_turn.usual(disturbed) / in_turn.usual(disturbed)[0]).tolist() == [1.0, 3.0, 2.0]


def test_what_an_order_of_predictions_is_worth(scripts: Path) -> None:
    """Pairs that are as good as equal count for a rank, but not as pairs."""
    pytest.importorskip("torch")
    cost_model = load("cost_model")

    def points(predicted: list[float], measured: list[float]) -> list[Any]:
        return [({}, p, m, (m, m)) for p, m in zip(predicted, measured, strict=True)]

    measured = [1.0, 1.05, 2.0, 3.0]
    assert cost_model.pairs(points([1.0, 1.05, 2.0, 3.0], measured)) == (5, 5)
    assert cost_model.pairs(points([1.1, 1.0, 2.0, 3.0], measured)) == (5, 5)
    assert cost_model.pairs(points([2.0, 2.0, 2.0, 3.0], measured)) == (3, 5)
    near, apart = points(measured, [1.0, 1.01, 1.02, 1.03]), points(measured, [1.0, 2.0, 4.0, 8.0])
    assert cost_model.within(near) < 0.5 < cost_model.within(apart) == 1.0
    said = cost_model.orders([apart, points([4.0, 3.0, 2.0, 1.0], measured)])
    assert said.startswith(
        "; of those 2 whose order measurements repeat (0.9 or more), 1 are ranked"
    )
    assert said.endswith("of 11 pairs that are 10 % or more apart 55% are predicted in their order")
    assert "pairs" not in cost_model.orders([near])
    assert cost_model.orders([]) == ""


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


def test_latency_report_beside_another_checkout(scripts: Path) -> None:
    values = {"compile, cold": [80.0, 100.0, 90.0], "first call after it": [1.0]}
    found = load("compile_latency").report(values, {"compile, cold": [70.0, 60.0, 75.0]})
    assert found.splitlines() == [
        "| what | other checkout | median | over processes | limit |",
        "|---|---:|---:|---:|---:|",
        "| compile, cold | 70 ms | 90 ms | 80 to 100 | 150 ms |",
        "| first call after it |  | 1 ms | 1 to 1 |  |",
    ]


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
        "| 100 | 100 | 1.0e-04 |  |"
    )
    tuned = {**row, "others": {"Triton": 1.234}, "note": "128x64", "ours_tflops": float("nan")}
    failed = {"shape": (3, 4), "failed": "RunError: no memory"}
    found = common.table([row, tuned, failed], ["M x N"], lambda shape: [f"{shape[0]}"])
    lines = found.splitlines()
    assert "| ours/torch | ours/Triton | ours, ms" in lines[0]
    assert "(0.90 to 1.10) |  | 2.000" in lines[2] and lines[2].endswith("| 1.0e-04 |  |")
    assert "(0.90 to 1.10) | 1.23 | 2.000" in lines[3]
    assert lines[3].endswith("|  | 100 | 1.0e-04 | 128x64 |")
    assert lines[-1] == "3 failed: RunError: no memory"
    monkeypatch.setattr(common, "missing", lambda: "no device")
    monkeypatch.setattr(sys, "argv", ["gpu"])
    common.run("gpu", "About.", "float16", [], lambda *_: {}, ([], lambda _: []))
    assert capsys.readouterr().out.startswith("Nothing was measured: no device.\nwritten to ")


def test_a_gpu_row_that_fails_is_a_row(scripts: Path) -> None:
    common = load("gpu_common")

    def measure(shape: int, rounds: int) -> dict[str, int]:
        if shape == 2:
            raise ValueError("too large")
        return {"shape": shape}

    assert [common._row(measure, shape, 1) for shape in (1, 2)] == [
        {"shape": 1},
        {"shape": 2, "failed": "ValueError: too large"},
    ]


def test_the_gpu_report_has_every_step(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step that fails, hangs or says nothing is a part of the report, and the status says so."""
    report = load("gpu_report")
    common = load("common")
    monkeypatch.setattr(report, "RESULTS", scripts)
    monkeypatch.setattr(sys, "argv", ["gpu_report"])
    assert report.missing() is None or report.main() == 1
    monkeypatch.setattr(report, "missing", lambda: None)
    machine = {"machine": "Some GPU", "capability": "9.0", "multiprocessors": 132}
    rest = {"memory_gib": 80.0, "driver": "580", "cuda": "13.0"}
    monkeypatch.setattr(report, "device_facts", lambda: {**machine, **rest})

    def step(command: list[str], end: float) -> tuple[int, str]:
        if "pytest" in command:
            return 1, "FAILED tests/gpu/test_device.py::test_x - no\n=== 1 failed, 3 passed ==="
        name = Path(command[1]).stem
        if name == "gpu_library":
            return -1, "stopped after 9 s"
        facts = {**common.environment(()), **machine}
        common.write_results(name, facts, [{"shape": 1}], f"about\n\n| {name} |")
        return 0, ""

    monkeypatch.setattr(report, "limited", step)
    assert report.main() == 1
    said = capsys.readouterr().out
    assert "Some GPU: compute capability 9.0, 132 multiprocessors, 80.0 GiB, driver 580" in said
    assert "1 failed, 3 passed\nFAILED tests/gpu/test_device.py::test_x - no" in said
    assert "## gpu_library\n\nfailed with status -1:\n\n```\nstopped after 9 s\n```" in said
    assert "## gpu_matmul\n\nabout\n\n| gpu_matmul |" in said
    written = json.loads((scripts / "gpu_report-some-gpu.json").read_text())["results"]
    assert written["gpu_attention"] == [{"shape": 1}] and written["tests"]["status"] == 1
    assert written["gpu_ceilings"] == [{"shape": 1}]


def test_gpu_ceilings_have_what_failed_and_what_is_published(
    scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ceilings = load("gpu_ceilings")

    def times(
        calls: dict[str, Callable[[], None]], rounds: int, before: object
    ) -> dict[str, list[float]]:
        ((name, call),) = calls.items()
        call()
        return {name: [1.0, 2.0, 4.0]}

    made = {
        "DRAM, copy": (lambda: None, 2e9, "GB/s"),
        "float16 product": (lambda: None, 1e12, "TFLOP/s"),
        "int8 product": (lambda: 1 // 0, 1e12, "TFLOP/s"),
    }
    monkeypatch.setattr(ceilings, "calls", lambda: made)
    monkeypatch.setattr(ceilings, "compare_times", times)
    rows = ceilings.measure(3)
    assert [row.get("rate") for row in rows] == [1000.0, 500.0, None]
    text = ceilings.table(rows, "sm_90a")
    assert "| DRAM, copy | 1000 | GB/s |\n| float16 product | 500 | TFLOP/s |" in text
    assert "int8 product failed: ZeroDivisionError" in text and "Published, H100" in text


def test_the_gpu_report_needs_no_environment_of_its_own() -> None:
    """Nothing is installed, as the target has no prerequisites: it takes the Python it is given."""
    rules = (FOLDER.parent / "Makefile").read_text().split("\n\n")
    (rule,) = (each for each in rules if "\ngpu-report:" in each)
    assert rule.endswith("\ngpu-report:\n\tPYTHONPATH=. $(PYTHON) benchmarks/gpu_report.py")


def test_a_step_of_the_gpu_report_ends_in_time(scripts: Path) -> None:
    report = load("gpu_report")
    waiting = [sys.executable, "-c", "print('begun', flush=True); import time; time.sleep(60)"]
    status, said = report.limited(waiting, time.monotonic() + 1.5)
    assert status == -1 and "stopped after" in said
    assert report.limited([sys.executable, "-c", "print('done')"], time.monotonic() + 60) == (
        *(0, "done\n"),
    )


def run_of(
    agree: ModuleType, memory: float, doubt: str = "", guest: bool = False
) -> dict[str, object]:
    """What a process of `ceilings_agree` sends of a machine with two ceilings."""
    ceilings = (Ceiling("L1", 100.0, "GB/s", 1), Ceiling("DRAM", memory, "GB/s", 2, shared=guest))
    machine = Machine("m", ceilings, "", doubt)
    return {
        **{"ceilings": agree.named(machine), "machine": json.loads(machine_to_json(machine))},
        **{"busy": machine.busy, "doubt": doubt},
        "shared": [agree.ceiling_name(each) for each in machine.shared],
    }


def test_ceilings_of_processes_are_compared(scripts: Path) -> None:
    agree = load("ceilings_agree")
    runs = [run_of(agree, *each) for each in ((50.0,), (52.0,), (54.0, "it was busy"))]
    table = agree.make_table(runs)
    assert "| L1, 1 T, GB/s | 100.0 | 100.0 | 100.0 | 0.0 % | 0.0 % |" in table
    assert "| DRAM, 2 T, GB/s | 50.0 | 52.0 | 54.0 | 8.0 % | 4.0 % |" in table
    assert "\n\n1. quiet\n2. quiet\n3. it was busy\n\n" in table
    head = "3 processes, one after another: "
    assert (
        f"\n\n{head}2 called the machine quiet, and all 2 ceilings that they promise agree within "
        "5 %.\n\n"
    ) in table
    runs[2] = run_of(agree, 54.0)
    assert (
        f"{head}3 called the machine quiet. These are not within 5 %: DRAM, 2 T, GB/s."
    ) in agree.make_table(runs)
    runs[:2] = [run_of(agree, 50.0, "busy"), run_of(agree, 52.0, "busy")]
    table = agree.make_table(runs)
    assert (
        f"{head}1 called the machine quiet, so there is nothing that must agree within 5 %."
    ) in table
    assert "| 8.0 % | - |" in table


def test_ceilings_that_a_guest_shares_need_not_agree(scripts: Path) -> None:
    agree = load("ceilings_agree")
    table = agree.make_table([run_of(agree, each, guest=True) for each in (50.0, 90.0)])
    assert "| DRAM, 2 T, GB/s | 50.0 | 70.0 | 90.0 | 80.0 % | shared |" in table
    assert (
        "2 called the machine quiet, and all 1 ceilings that they promise agree within 5 % (1 are "
        "shared with other guests of the host)."
    ) in table


def test_ceilings_that_are_kept_settle(scripts: Path) -> None:
    agree = load("ceilings_agree")
    runs = [run_of(agree, memory) for memory in (40.0, 50.0, 45.0, 51.0)]
    assert agree.make_table(runs).endswith(
        "\n\nKept in a cache: no process after number 2 raised any ceiling by more than 5 %."
    )
    assert agree.make_table([*runs, run_of(agree, 60.0)]).endswith(
        "\n\nKept in a cache: the last process still raised some ceiling by more than 5 %."
    )


def test_recording_has_a_row_for_each_recorder(scripts: Path) -> None:
    recording = load("recording")
    times = {"plain": [1.0, 2.0, 3.0], "recorded": [2.0, 5.0, 9.0]}
    rows = [{"program": "SIMT", "recorder": "footprint", "bytes": 3 << 20} | times]
    assert recording.table(rows).splitlines()[-1] == (
        "| SIMT: footprint | 2.000 | 5.000 | 2.50 | 3.0 |"
    )
    assert {"write log", "footprint"} <= set(recording.RECORDERS)
    given = recording.argparse.Namespace(quick=True, rounds=9)
    calls: list[str] = []
    found = recording.measured(
        lambda: calls.append("plain"), lambda: calls.append("recorded"), given
    )
    assert sorted(calls) == 3 * ["plain"] + 3 * ["recorded"]
    assert [len(found[way]) for way in ("plain", "recorded")] == [1, 1]
