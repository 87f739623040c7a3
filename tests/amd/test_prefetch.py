"""What a pipeline loads ahead waits in registers, where no engine copies to shared memory."""

from __future__ import annotations

import re

import pytest

import tileworkbench as tw
from tests.amd.test_simulated import check_product
from tests.capability import require
from tileworkbench.compiler.device.amd import clang
from tileworkbench.kernels import matmul


def loop_of(stages: int, target: str = "hip:gfx942") -> str:
    text = tw.compile(matmul(256, 256, 256, "float16", num_stages=stages), target=target).source
    return text[text.index("for (int k =") :].partition("// line 88")[0]


@pytest.mark.parametrize("stages", [2, 3])
def test_loads_come_before_products_and_stores_behind_them(stages: int) -> None:
    loop = loop_of(stages)
    loads = [found.start() for found in re.finditer(r"\(&[AB]\[", loop)]
    products = [found.start() for found in re.finditer(r"mfma_\w+\(", loop)]
    stores = [found.start() for found in re.finditer(r"\(&[AB]_shared\[[^=]*= \(u32x4\)", loop)]
    assert (len(loads), len(stores)) == (2, 2)
    assert max(loads) < min(products) and max(products) < min(stores)


def test_without_stages_nothing_is_ahead() -> None:
    assert "_ahead" not in loop_of(1) and "_ahead" in loop_of(2)


def test_engines_need_no_registers() -> None:
    assert "_ahead" not in loop_of(2, "cuda:sm_80")


@pytest.mark.parametrize(("stages", "tiles"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_a_version_less_than_stages(stages: int, tiles: int) -> None:
    page = matmul(256, 256, 256, "float16", num_stages=stages)
    assert tw.compile(page, target="sim:gfx942").stats.shared_bytes == tiles * 16384


@pytest.mark.parametrize("stages", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_results_of_ragged_shapes_with_fewer_steps_than_stages(stages: int) -> None:
    for depth in (32, 50, 100):
        check_product("float16", "float32", "sim:gfx942", (40, 70, depth), stages=stages)


@pytest.mark.hip
@pytest.mark.parametrize("stages", [2, 3])
def test_the_machine_code_multiplies_before_it_waits_for_loads(stages: int) -> None:
    require("hip", clang.missing_compiler())
    kernel = tw.compile(
        matmul(256, 256, 256, "float16", trans_B=True, num_stages=stages), target="hip:gfx942"
    )
    words = re.findall(r"global_load_dwordx4|v_mfma|vmcnt|ds_write", kernel.asm)
    products = [at for at, word in enumerate(words) if word == "v_mfma"]
    between = words[words.index("ds_write") : products[0]]
    loads = len(between) - between[::-1].index("global_load_dwordx4")
    assert "vmcnt" not in between[loads:]  # for the loads of this step
    assert words[products[-1] + 1 :][:2] == ["vmcnt", "ds_write"]
