"""Default tile sizes of the library: the table, who writes it, and what kernels do with it."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, replace
from math import inf
from typing import Any, ClassVar

import pytest

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.bench.described import DescribedCpu
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.machine.tables import ARCHITECTURES
from tileworkbench.kernels.page import TABLE
from tileworkbench.kernels.tiles import CLASSES, FILE, Tiles, class_of, table, tiles_of
from tileworkbench.tuning import default_tiles, gpu_tiles
from tileworkbench.tuning.default_tiles import EXCEPTIONS, FAMILIES, choose, reference_cpu, rows_of
from tileworkbench.tuning.gpu_tiles import BY_HAND, ON_GPUS, SHAPES, UNKNOWN, preferred, score
from tileworkbench.viz.model.card import facts

QUICK = ("rope", "softmax")


def chosen_by_model(target: str) -> set[str]:
    return {row.kernel for row in table().values() if row.target == target and not row.exception}


def from_table(name: str) -> set[str]:
    """The parameters of a page that take their defaults from the table."""
    page = inspect.unwrap(getattr(kernels, name))
    parameters = inspect.signature(page).parameters.items()
    return {each for each, parameter in parameters if parameter.default is TABLE}


class TestTable:
    def test_every_kernel_has_a_row_for_each_class(self) -> None:
        asking = {name for name in kernels.__all__ if from_table(name)}
        assert asking == set(kernels.__all__) - {"block_sparse_attention"}  # its tiles are a mask's
        assert list(table()) == [(name, target) for name in FAMILIES for target in CLASSES]
        assert set(FAMILIES) == asking
        assert all(set(row.sizes) == from_table(row.kernel) for row in table().values())

    def test_every_target_is_of_one_class(self) -> None:
        assert {class_of(arch) for arch in ARCHITECTURES} == {*CLASSES} - {"cpu"}
        assert class_of("sim:sm_75") == class_of("sm_90") == class_of("cuda:sm_120") == "sm_80"
        assert class_of("cuda:sm_90a") == "sm_90a"
        assert class_of("emu:gfx950") == class_of("hip:gfx90a") == "gfx942"
        assert class_of(None) == class_of("auto") == class_of("cpu:generic") == "cpu"
        with pytest.raises(tw.TileValueError, match="'sm_13' is not a target"):
            class_of("sm_13")

    @pytest.mark.parametrize("name", QUICK)
    def test_it_is_what_the_model_says(self, name: str) -> None:
        """Whoever changes the model or the pages writes it anew."""
        assert_written(name)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", sorted(FAMILIES.keys() - set(QUICK)))
    def test_all_of_it_is(self, name: str) -> None:
        assert_written(name)

    def test_the_file_is_what_is_written(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        file = tmp_path / "tiles.json"
        monkeypatch.setattr(default_tiles, "FILE", file)
        monkeypatch.setattr(default_tiles, "rows_of", lambda name: [*made(name)])

        def made(name: str) -> Any:
            return (replace(table()[name, target], tried=7) for target in CLASSES)

        default_tiles.main(["rope"])
        rows = [json.loads(line.rstrip(",")) for line in file.read_text().splitlines()[1:-1]]
        assert [row for row in rows if row["kernel"] != "rope"] == [
            asdict(row) for row in table().values() if row.kernel != "rope"
        ]
        assert {row["tried"] for row in rows if row["kernel"] == "rope"} == {7}
        assert json.loads(FILE.read_text()) == [asdict(row) for row in table().values()]
        with pytest.raises(SystemExit, match="'ropes' is no kernel of add, "):
            default_tiles.main(["ropes"])

    def test_an_exception_says_why(self) -> None:
        rows = [row for row in table().values() if row.target == "cpu" and row.exception]
        held = {row.kernel: row for row in rows}
        assert held.keys() == EXCEPTIONS.keys()
        for name, (config, reason) in EXCEPTIONS.items():
            assert tuple(held[name].sizes.values()) == config and held[name].exception == reason
            assert "measured 20" in reason or "data" in reason

    def test_a_row_of_a_gpu_says_who_chose_it(self) -> None:
        rows = [row for row in table().values() if row.target != "cpu"]
        assert set(ON_GPUS) == set(FAMILIES) and set(SHAPES) < set(FAMILIES)
        for row in rows:
            by_hand = tuple(row.sizes.values()) == ON_GPUS[row.kernel]
            known = row.kernel in SHAPES
            assert row.exception == ("" if not by_hand else BY_HAND if known else UNKNOWN)
            assert list(row.predicted_ms) == list(SHAPES.get(row.kernel, ()))
            assert not known or "simulated only" in row.origin
        assert any(not row.exception for row in rows)

    @pytest.mark.nvrtc
    @pytest.mark.parametrize("name", sorted(chosen_by_model("sm_80")))
    def test_what_the_model_chose_does_not_spill(self, name: str) -> None:
        """As ptxas compiles it, which knows registers better than the model does."""
        shape = {**gpu_tiles.sizes_of(SHAPES[name][0]), **gpu_tiles.dtype_of(name, "float16")}
        for arch in ("sm_80", "sm_90a"):
            program = getattr(kernels, name).for_target(arch)(**shape)
            for used in tw.compile(program, target=f"cuda:{arch}").resources:
                assert used.spill_store_bytes == used.spill_load_bytes == 0


def assert_written(name: str) -> None:
    for row in rows_of(name):
        written = tiles_of(name, row.target)
        assert replace(row, ratio=0, predicted_ms={}) == replace(written, ratio=0, predicted_ms={})
        assert row.ratio == pytest.approx(written.ratio, rel=1e-2)
        assert dict(row.predicted_ms) == pytest.approx(dict(written.predicted_ms), rel=1e-2)


class TestChoice:
    """Of times that are made up; 4, 8 and 16 are tried."""

    def test_the_fastest_is_taken(self) -> None:
        assert choose("rope", {(4,): 1.0, (8,): 1.2, (16,): 1.3}) == (4,)

    def test_what_the_model_cannot_tell_apart_is_taken_from_the_middle(self) -> None:
        assert choose("rope", {(4,): 1.2, (8,): 1.008, (16,): 1.0}) == (8,)
        assert choose("rope", {(4,): 1.2, (8,): 1.02, (16,): 1.0}) == (16,)
        assert choose("rope", {(4,): 1.001, (8,): 1.02, (16,): 1.0}) == (4,)

    def test_what_is_the_same_code_with_smaller_tiles_is_no_choice(self) -> None:
        assert choose("rope", {(4,): 1.0, (8,): 1.0, (16,): 1.0}) == (4,)
        assert choose("rope", {(4,): 1.2, (8,): 1.0, (16,): 1.0}) == (8,)


class TestChoiceForGpus:
    """Of times that are made up, at two shapes."""

    own: ClassVar[dict[tuple[int, ...], tuple[float, ...]]] = {(64,): (2.0, 4.0)}

    def test_it_must_be_better_by_more_than_the_error(self) -> None:
        assert preferred({**self.own, (32,): (1.7, 3.5)}, (64,)) == []
        assert preferred({**self.own, (32,): (1.6, 3.0), (16,): (1.6, 2.9)}, (64,)) == [
            (16,),
            (32,),
        ]

    def test_it_must_be_slower_at_no_shape(self) -> None:
        assert preferred({**self.own, (32,): (1.0, 4.1)}, (64,)) == []
        assert preferred({**self.own, (32,): (1.0, 4.03)}, (64,)) == [(32,)]

    def test_what_does_not_compile_is_not_better(self) -> None:
        assert preferred({**self.own, (32,): (1.0, inf)}, (64,)) == []
        assert preferred({(32,): (9.0, 9.0), (16,): (1.0, inf)}, (64,)) == [(32,)]
        assert preferred({(32,): (9.0, 9.0), (64,): (1.0, inf)}, (64,)) == [(32,)]

    def test_what_was_chosen_by_hand_is_not_left_out_for_its_registers(self) -> None:
        """The model counts 304 of 255, and ptxas takes 225."""
        axes = {"block_M": (32,), "block_N": (32,)}
        times = gpu_tiles.times_of("flash_attention_backward", "sm_80", axes)
        assert set(times) == {(32, 32), (64, 64)}
        assert inf not in times[64, 64]

    def test_a_score_is_the_mean_over_the_shortest(self) -> None:
        times = {**self.own, (32,): (1.0, 8.0)}
        assert score((2.0, 4.0), times) == pytest.approx(2**0.5) == score((1.0, 8.0), times)

    def test_it_must_compile_wherever_the_other_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two tiles of 128 x 64 doubles do not fit into 64 KiB, two of 64 x 32 do."""
        monkeypatch.setattr(gpu_tiles, "ARCHITECTURES", ("sm_75", "sm_90a"))
        monkeypatch.setitem(vars(gpu_tiles), "ON_GPUS", {"matmul": (64, 64, 32)})
        axes = FAMILIES["matmul"].axes
        assert not gpu_tiles.fits("matmul", "sm_80", (128, 128, 64), axes)
        assert gpu_tiles.fits("matmul", "sm_80", (64, 64, 16), axes)
        monkeypatch.setitem(vars(gpu_tiles), "ON_GPUS", {"matmul": (256, 256, 64)})
        assert gpu_tiles.fits("matmul", "sm_80", (256, 256, 64), axes)


class TestReference:
    def test_no_prediction_depends_on_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cpu, program = reference_cpu(), kernels.layernorm(512, 2048).program
        before = cpu.predict(program, 2)
        monkeypatch.setattr(processor, "caches", lambda: pytest.fail("asked the machine"))
        monkeypatch.setattr(
            "tileworkbench.bench.probes.native_target", lambda: pytest.fail("asked the machine")
        )
        assert cpu.predict(program, 2) == before

    def test_it_ends_with_the_prediction(self) -> None:
        own = processor.cache_sizes()
        small = replace(reference_cpu(), caches=processor.CacheSizes(1024, 2048, 4096))
        program = kernels.layernorm(512, 2048).program
        assert small.predict(program).total_us > reference_cpu().predict(program).total_us
        assert processor.cache_sizes() == own

    def test_text(self) -> None:
        cpu = reference_cpu()
        assert DescribedCpu.from_json(cpu.to_json()) == cpu
        with pytest.raises(ValueError, match="schema"):
            DescribedCpu.from_json(cpu.to_json().replace('"schema": ', '"schema": 9'))


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in which GPUs have half of what the processor has."""
    others = {
        (name, gpu): replace(row, sizes={each: size // 2 for each, size in row.sizes.items()})
        for (name, target), row in table().items()
        for gpu in CLASSES[1:]
        if target == "cpu"
    }
    changed = {**table(), **others}
    monkeypatch.setattr("tileworkbench.kernels.tiles.table", lambda: changed)


@pytest.mark.usefixtures("rows")
class TestUse:
    @staticmethod
    def grid(kernel: Any) -> tuple[int, ...]:
        return tuple(int(str(extent)) for extent in kernel.grid)

    def test_a_target_has_its_own(self) -> None:
        made = kernels.add(256, 256)
        tiles = kernels.add.tiles.sizes["block_M"], kernels.add.tiles.sizes["block_N"]
        on_cpu, on_gpu = (tw.compile(made, target=each) for each in ("cpu", "sim:sm_90a"))
        assert self.grid(on_gpu) == tuple(2 * extent for extent in self.grid(on_cpu))
        assert self.grid(on_cpu) == (256 // tiles[1], 256 // tiles[0])

    def test_what_is_given_wins(self) -> None:
        whole = kernels.add(256, 256, block_M=128, block_N=256)
        assert whole.remake is None
        assert self.grid(tw.compile(whole, target="sim:sm_90a")) == (1, 2)
        part = kernels.add(256, 256, "float32", 128)  # by position
        own = kernels.add.for_target("sm_90a").tiles.sizes["block_N"]
        assert self.grid(tw.compile(part, target="sim:sm_90a")) == (256 // own, 2)

    def test_a_jit_function_has_those_of_its_target(self) -> None:
        made = tw.jit(kernels.add, target="sim:sm_90a")
        own = kernels.add.for_target("sm_90a").tiles.sizes
        assert made.signature.parameters["block_M"].default == own["block_M"]
        kernel = made(256, 256)
        assert ("block_N", str(own["block_N"])) in kernel.record.constants
        assert self.grid(kernel) == (256 // own["block_N"], 256 // own["block_M"])
        back = made.with_target("cpu").signature.parameters["block_M"].default
        assert back == kernels.add.tiles.sizes["block_M"]

    def test_equal_rows_are_not_traced_again(self) -> None:
        made = kernels.add(256, 256)
        assert made.for_target("cpu:generic").program is made.program
        assert made.for_target("sm_90a").program is not made.program

    def test_help_says_numbers(self) -> None:
        signature = inspect.signature(kernels.matmul)
        sizes = kernels.matmul.tiles.sizes
        assert {name: signature.parameters[name].default for name in sizes} == sizes
        assert TABLE not in [each.default for each in signature.parameters.values()]


class TestOrigin:
    def test_a_kernel_knows_what_nobody_gave(self) -> None:
        made, target = kernels.add(256, 256, block_M=32), "sim:sm_80"
        size = kernels.add.for_target("sm_80").tiles.sizes["block_N"]
        said = tw.compile(made, target=target).record.defaults
        assert said.startswith(f"block_N={size} (for sm_80, chosen by hand: ")
        assert tw.jit(kernels.add, target=target)(256, 256, block_M=32).record.defaults == said
        kernel = tw.compile(made)
        assert kernel.record.defaults.endswith(f"({kernels.add.tiles.origin})")
        ((_, size_text, why),) = [
            each for each in facts(kernel.view(), live=True) if each[0] == "tiles"
        ]
        assert size_text == f"block_N={kernels.add.tiles.sizes['block_N']}"
        assert why == f"the library's defaults {kernels.add.tiles.origin}"
        whole = tw.compile(kernels.add(256, 256, block_M=32, block_N=32))
        assert whole.record.defaults == ""
        assert "tiles" not in [label for label, *_ in facts(whole.view(), live=True)]

    def test_a_row_says_where_it_comes_from(self) -> None:
        row = Tiles("matmul", "cpu", {"block_M": 64, "block_N": 32}, "", 1.0, 18)
        assert str(row) == "block_M=64 block_N=32 (for cpu the first of 18 by predicted time)"
        assert replace(row, ratio=1.034).origin == (
            "for cpu within 3.4 % of the first of 18 by predicted time"
        )
        measured = replace(row, exception="measured 2026-11-28: 2.0 ms, the first 2.2")
        assert measured.origin == "for cpu, measured 2026-11-28: 2.0 ms, the first 2.2"
        assert replace(row, target="sm_80").origin == (
            "for sm_80 the first of 18 by predicted time, simulated only"
        )

    def test_suggestions_say_where_the_default_stands(self) -> None:
        sizes = {"M": 256, "N": 512}
        own = kernels.softmax.tiles
        found = tw.suggest(kernels.softmax, "sm_80", {"block_M": (1, 2, 8)}, constants=sizes)
        own = kernels.softmax.for_target("sm_80").tiles
        assert f"the library's default: {own}; here number " in str(found)
        other = tw.suggest(kernels.softmax, "sm_80", {"block_M": (16,)}, constants=sizes)
        assert f"the library's default: {own}; not among these" in str(other)
        copied = inspect.unwrap(kernels.softmax)
        made = tw.suggest(copied, "sm_80", {"block_M": (1, 2)}, constants=sizes)
        assert made.default is None and "library" not in str(made)
