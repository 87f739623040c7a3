"""What a pipeline loads ahead waits in registers, where no engine copies to shared memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tileworkbench as tw
from tests.amd.test_simulated import check_product
from tests.capability import require
from tests.kernels.checks import random
from tests.tolerances import assert_contraction
from tileworkbench.compiler.compilation import Options
from tileworkbench.compiler.device.amd import clang
from tileworkbench.compiler.diagnostics import RunError, VerifyError
from tileworkbench.compiler.driver import compile_program
from tileworkbench.compiler.sim.threads.copies import _check_line
from tileworkbench.kernels import matmul


def loop_of(stages: int, target: str = "hip:gfx942") -> str:
    text = tw.compile(matmul(256, 256, 256, "float16", num_stages=stages), target=target).source
    return text[text.index("for (int k =") :].partition("\n  }\n")[0]


@pytest.mark.parametrize("stages", [2, 3])
def test_loads_come_before_products_and_stores_behind_them(stages: int) -> None:
    loop = loop_of(stages)
    loads = [found.start() for found in re.finditer(r"load_u32x4\(words_of_[AB],", loop)]
    products = [found.start() for found in re.finditer(r"mfma_\w+\(", loop)]
    stores = [found.start() for found in re.finditer(r"\(&[AB]_shared\[[^=]*= \(u32x[24]\)", loop)]
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
    words = re.findall(r"buffer_load_dwordx4|v_mfma|vmcnt|ds_write", kernel.asm)
    products = [at for at, word in enumerate(words) if word == "v_mfma"]
    between = words[words.index("ds_write") : products[0]]
    loads = len(between) - between[::-1].index("buffer_load_dwordx4")
    assert "vmcnt" not in between[loads:]  # for the loads of this step
    assert words[products[-1] + 1 :][:2] == ["vmcnt", "ds_write"]


# Where an engine fills tiles by whole waves (gfx950): no registers.


def test_an_engine_fills_tiles_by_whole_waves() -> None:
    loop = loop_of(3, "hip:gfx950")
    assert loop.count("load_lds_16(lds_address(&") == 2 and "_ahead" not in loop
    assert loop.count("sync_block();") == 1


@pytest.mark.parametrize(("stages", "tiles"), [(1, 1), (2, 2), (3, 3)])
def test_an_engine_needs_a_version_for_each_stage(stages: int, tiles: int) -> None:
    page = matmul(256, 256, 256, "float16", num_stages=stages)
    assert tw.compile(page, target="sim:gfx950").stats.shared_bytes == tiles * 16384


def test_tiles_that_have_no_room_for_a_version_more_wait_in_registers() -> None:
    page = matmul(
        *(256, 256, 256, "float16"),
        **{"block_M": 256, "block_N": 256, "block_K": 64, "num_stages": 3, "threads": 256},
    )
    source = tw.compile(page, target="hip:gfx950").source
    assert "_ahead" in source and "load_lds" not in source


@pytest.mark.parametrize("shape", [(100, 128, 128), (128, 100, 128), (128, 128, 100)])
def test_what_may_be_outside_waits_in_registers(shape: tuple[int, int, int]) -> None:
    source = tw.compile(matmul(*shape, "float16", num_stages=2), target="hip:gfx950").source
    assert "_ahead" in source


@pytest.mark.parametrize(("depth", "stages"), [(32, 3), (96, 2), (160, 3), (128, 4)])
def test_loads_are_waited_for_near_the_end_of_the_loop(depth: int, stages: int) -> None:
    for trans_b in (False, True):
        check_whole("sim:gfx950", depth, stages, trans_b)


@pytest.mark.hip
@pytest.mark.parametrize(("depth", "stages"), [(32, 3), (96, 2), (160, 3), (128, 4)])
def test_loads_come_as_late_as_waits_let_them(depth: int, stages: int) -> None:
    require("hip", clang.missing_compiler())
    check_whole("emu:gfx950", depth, stages)


def test_the_simulator_finds_places_apart() -> None:
    places = np.arange(128) * 16
    warps = np.arange(128) // 64
    _check_line(places - places % 1024, warps)
    places[70] += 16
    with pytest.raises(VerifyError) as caught:
        _check_line(places - np.arange(128) % 64 * 16, warps)
    assert caught.value.message == "the copies of a warp do not lie one behind the other"


def check_whole(target: str, depth: int, stages: int, trans_b: bool = False) -> None:
    """A product without ragged edges, whose tiles the engine fills."""
    shape = (128, depth), (128, depth) if trans_b else (depth, 128)
    a, b = (random(*each, dtype="float16", seed=at) for at, each in enumerate(shape))
    page = matmul(128, 128, depth, "float16", trans_B=trans_b, num_stages=stages)
    kernel = tw.compile(page, target=target)
    assert "load_lds_16" in kernel.source
    found = np.asarray(kernel(a.numpy(), b.numpy()))
    b = b.T if trans_b else b
    assert_contraction(found, a.numpy(), b.numpy())


# What is wrong, what it replaces, and what stands there instead.
MISTAKES = [
    ("a wait for a group less", "vmcnt(8)", "vmcnt(16)"),
    ("no wait at the end", "vmcnt(0)", "vmcnt(8)"),
    ("the place of another wave", "&A_shared[(i_3 * 32 + (wave_tx", "&A_shared[(i_3 * 32 + (64"),
    ("no swizzle of A", "^ ((tx >> 4) & 3)) * 8) * 2", ") * 8) * 2"),
    ("a version too early", "k_plus_2_mod_3 * 4096 + (i", "k_mod_3 * 4096 + (i"),
    ("no barrier", "sync_block();\n    if", ";\n    if"),
    (
        "the place of each lane",
        "readfirstlane(__builtin_amdgcn_workitem_id_x() & -64)",
        "perm(0, 0, 0)",
    ),
]


@pytest.mark.hip
@pytest.mark.parametrize(
    ("old", "new"), [row[1:] for row in MISTAKES], ids=[r[0] for r in MISTAKES]
)
def test_mistakes_with_copies_are_found(old: str, new: str) -> None:
    require("hip", clang.missing_compiler())
    a, b = (random(128, 160, dtype="float16", seed=at) for at in (0, 1))
    page = matmul(128, 128, 160, "float16", trans_B=True, num_stages=3)
    text = tw.compile(page, target="hip:gfx950").source
    head, kernel = text[: (begin := text.index('extern "C"'))], text[begin:]
    assert old in kernel or "vmcnt" in old
    changed = text.replace(old, new) if "vmcnt" in old else head + kernel.replace(old, new)
    options = Options(code=changed)
    planted = compile_program(page.program, "emu:gfx950", options=options)
    try:
        found = np.asarray(planted(a.numpy(), b.numpy()), np.float32)
    except RunError:
        return
    assert not np.allclose(found, (a.float() @ b.float().T).numpy(), rtol=2e-2, atol=2e-2)
