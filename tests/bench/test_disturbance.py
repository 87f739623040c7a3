"""What other programs and the host used, from two readings of /proc/stat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileworkbench.bench import disturbance as module
from tileworkbench.bench.disturbance import Disturbance, Watch, disturbance, processor_ticks

BEFORE = (100, 0, 50, 1000, 10, 0, 5, 2)
#         user nice system idle iowait irq softirq steal


def test_what_others_used_is_the_work_without_ours() -> None:
    after = (150, 10, 60, 1110, 20, 0, 5, 12)  # 70 ticks of work, 200 in all
    assert disturbance(BEFORE, after, own=30.0) == Disturbance(others=0.2, host=0.05)


def test_clocks_that_do_not_quite_agree_leave_nothing() -> None:
    after = (150, 0, 50, 1050, 10, 0, 5, 2)
    assert disturbance(BEFORE, after, own=51.0) == Disturbance()
    assert disturbance(BEFORE, BEFORE, own=0.0) == Disturbance()


def test_the_first_line_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text("cpu  100 0 50 1000 10 0 5 2 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    monkeypatch.setattr(module, "_STAT", file)
    assert processor_ticks() == BEFORE


@pytest.mark.parametrize("text", [None, "", "cpu 1 2 3\n", "cpu a b c d e f g h\n"])
def test_a_system_that_does_not_tell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "stat"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(module, "_STAT", file)
    assert processor_ticks() is None
    assert Watch().read() == Disturbance()


def test_a_part_of_the_processor_is_between_nothing_and_all() -> None:
    found = Watch().read()
    assert 0 <= found.others <= 1 and 0 <= found.host <= 1
