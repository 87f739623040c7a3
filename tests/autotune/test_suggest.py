"""Configurations ranked by the time model, and times of machines that are not here."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench import kernels
from tileworkbench.compiler.machine.tables import machine_of
from tileworkbench.tuning import suggest as module

SHAPES = {"M": 512, "N": 512, "K": 512, "dtype": "float16"}
AXES = {"block_M": [64, 128], "block_N": [128, 256], "block_K": [32], "threads": [128]}


class TestPredict:
    """`tw.predict` is `Kernel.causes` of any machine."""

    def test_a_kernels_own_machine(self) -> None:
        kernel = tw.compile(kernels.matmul(**SHAPES), target="sim:sm_80")
        assert tw.predict(kernel) == kernel.causes
        assert tw.predict(kernel).total_ms == kernel.causes.total_us / 1e3

    @pytest.mark.parametrize("machine", ["sm_80", "cuda:sm_90a", "sim:gfx942", "gfx950"])
    def test_machines_that_are_not_here(self, machine: str) -> None:
        program = kernels.matmul(**SHAPES)
        predicted = tw.predict(program, machine)
        kernel = tw.compile(program, target="sim:" + machine.rpartition(":")[2])
        assert predicted == kernel.causes
        assert tw.predict(tw.compile(program, target="cpu"), machine) == predicted
        assert "no GPU has confirmed" in predicted.model

    def test_a_processor(self) -> None:
        predicted = tw.predict(kernels.matmul(**{**SHAPES, "dtype": "float32"}))
        assert predicted.total_ms > 0
        assert "measured ceilings" in predicted.model

    def test_shapes_that_are_open(self) -> None:
        with pytest.raises(tw.UnsupportedError) as caught:
            tw.predict(kernels.matmul(T.dynamic("M"), 64, 64, "float16"), "sm_80")
        assert str(caught.value) == (
            "there is no prediction for 'matmul' on 'sim:sm_80'\n"
            "hint: shapes must be numbers, and a GPU one whose rates are published"
        )


class TestSuggest:
    """`tw.suggest`."""

    def test_the_best_comes_first(self) -> None:
        found = tw.suggest(kernels.matmul, "sm_90a", AXES, constants=SHAPES)
        times = [each.predicted_ms for each in found.ranked]
        assert times == sorted(times) and len(times) == 3
        for each in found.ranked:
            program = kernels.matmul(**SHAPES, **each.config)
            kernel = tw.compile(program, target="sim:sm_90a")
            assert each.predicted_ms == kernel.causes.total_ms
            assert each.shared_bytes == kernel.stats.shared_bytes
            assert each.limit == next(iter(kernel.causes.by_cause()))
        ((config, error),) = found.refused
        assert config == {"block_M": 128, "block_N": 256, "block_K": 32, "threads": 128}
        assert error == "its tiles take 256 registers of a thread, which has 255"
        assert found.configs == [dict(each.config) for each in found.ranked]

    def test_what_does_not_compile_is_refused_with_its_reason(self) -> None:
        axes = {"block_M": [128], "block_N": [256], "block_K": [64, 128], "num_stages": [3]}
        found = tw.suggest(kernels.matmul, "gfx942", axes, constants={**SHAPES, "threads": 256})
        assert found.ranked == ()
        assert len(found.refused) == 2
        lines = str(found).splitlines()
        assert lines[0] == "no configuration of 'matmul' compiles for sim:gfx942"
        assert lines[1].startswith("block_M=128 block_N=256 block_K=64 num_stages=3: ResourceError")
        assert all(
            "bytes of shared memory, 'gfx942' has 65536" in error for _, error in found.refused
        )

    def test_machines_say_how_many_registers_a_thread_has(self) -> None:
        assert machine_of("sm_80").thread_registers == 255
        assert machine_of("gfx942").thread_registers == 512
        found = tw.suggest(kernels.matmul, "gfx942", AXES, constants=SHAPES)
        assert len(found.ranked) == 4

    def test_usual_values_are_tried(self) -> None:
        @tw.jit
        def copied(A, block: int = 64, rows: int = 2):
            A: T.Tensor((4096,), "float32")
            B = T.empty((4096,), "float32")
            with T.Kernel(T.ceildiv(4096, block), threads=64) as b:
                for i in T.Parallel(block):
                    B[b * block + i] = A[b * block + i]
            return B

        with pytest.raises(tw.ArgumentError) as caught:
            tw.suggest(copied, "sm_80")
        assert str(caught.value) == (
            "no argument of 'copied' is named as a tile size is\n"
            "hint: name the values to try, as in axes={'rows': [32, 64]}"
        )
        found = tw.suggest(copied, "sm_80", {"block": [64, 1024]})
        assert found.configs[0] == {"block": 64}  # 64 blocks are busy, and not 4
        usual = module._usual(tw.jit(kernels.matmul), "sim:sm_80", SHAPES)
        assert set(usual) == {"block_M", "block_N", "block_K", "num_stages", "threads"}
        assert usual["block_K"] == (32, 64) and usual["block_M"] == (64, 128, 256)
        on_cpu = module._usual(tw.jit(kernels.matmul), "cpu", {**SHAPES, "block_K": 32})
        assert set(on_cpu) == {"block_M", "block_N"}

    def test_rows_are_plain_data(self) -> None:
        found = tw.suggest(kernels.matmul, "sm_90a", AXES, constants=SHAPES)
        rows = found.to_dict()
        assert json.loads(json.dumps(rows)) == rows
        assert [row["error"] for row in rows[:3]] == [""] * 3
        assert rows[-1]["error"].startswith("its tiles take 256")
        assert list(rows[0])[:5] == ["block_M", "block_N", "block_K", "threads", "predicted_ms"]
        text = str(found).splitlines()
        assert text[0].split() == [
            *("block_M", "block_N", "block_K", "threads", "predicted", "most", "time", "shared"),
            *("registers", "occupancy", "conflicts"),
        ]
        assert [line[:1] for line in text[1:4]] == ["*", " ", " "]
        assert re.search(r"idle multiprocessors \d+ %  ", text[1])
        assert text[-2:] == [
            "1 refused:",
            "block_M=128 block_N=256 block_K=32 threads=128: its tiles take 256 registers of a "
            "thread, which has 255",
        ]
        assert found._repr_html_().count("1 refused") == 1
        crowd = dataclasses.replace(found, refused=found.refused * 12)
        assert str(crowd).splitlines()[-1] == "and 2 more, see 'refused'"
        assert repr(found).startswith(
            "<suggestions for matmul sim:sm_90a | 3 ranked, 1 refused | best block_M="
        )
        page = found._repr_html_()
        assert "1 refused" in page and "its tiles take 256 registers" in page
        assert "the first: " in page
        many = dataclasses.replace(found, ranked=found.ranked * 4)
        assert "2 more" in many._repr_html_()
        hostile = dataclasses.replace(found, name="<script>")
        assert "<script>" not in hostile._repr_html_()

    def test_shapes_that_are_open(self) -> None:
        def opened(block_M: int) -> Any:
            return kernels.matmul(T.dynamic("M"), 512, 512, "float16", block_M=block_M)

        with pytest.raises(tw.UnsupportedError) as caught:
            tw.suggest(opened, "sm_80", {"block_M": [64]})
        assert str(caught.value) == (
            "there is no prediction for 'opened' on 'sim:sm_80'\n"
            "hint: shapes must be numbers, and a GPU one whose rates are published"
        )

    def test_an_interrupt_keeps_what_was_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        done: list[int] = []

        def progress(count: int, total: int) -> None:
            done.append(count)
            if count == 2:
                raise KeyboardInterrupt

        found = tw.suggest(kernels.matmul, "sm_80", AXES, constants=SHAPES, progress=progress)
        assert found.interrupted and len(found.ranked) + len(found.refused) == 2
        assert "interrupted" in str(found)

    def test_the_first_ones_are_what_autotune_takes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shapes: dict[str, Any] = {"M": 64, "N": 64, "K": 64, "dtype": "float32"}
        axes = {"block_M": [32, 64], "block_N": [32, 64], "block_K": [32]}
        found = tw.suggest(kernels.matmul, "cpu", axes, constants=shapes)
        tuned = tw.autotune(configs=found.configs[:2], store=False, warmup=0, rep=1)(
            tw.jit(kernels.matmul, target="cpu")
        )
        kernel = tuned(**shapes)
        assert kernel.config in found.configs[:2]
