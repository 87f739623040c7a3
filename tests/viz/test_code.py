"""What is told of the generated code."""

from __future__ import annotations

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.kernels import matmul
from tileworkbench.viz.model.card import card_html
from tileworkbench.viz.model.code import instructions


def test_instructions_in_blocks_of_assembly_are_named() -> None:
    """The product of a warpgroup begins with a predicate."""
    view = tw.compile(matmul(128, 128, 64, "float16"), target="sim:sm_90a").view()
    found = dict(instructions(view, True).values())
    (product,) = [name for name in found if "mma_async" in name]
    assert product == "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"
    assert any(name.startswith("cp.async.bulk.tensor.2d.shared") for name in found)
    assert {"wgmma.fence.sync.aligned", "wgmma.wait_group.sync.aligned"} <= set(found)
    assert not [name for name in found if name.startswith(("setp", "selp", "."))]


def test_instructions_of_amd_are_named() -> None:
    view = tw.compile(matmul(128, 128, 64, "float16"), target="sim:gfx942").view()
    found = dict(instructions(view, True).values())
    assert set(found) == {"mfma_f32_32x32x8f16", "perm", "s_barrier"}


@pytest.mark.parametrize("target", ["sim:sm_90a", "ptx:sm_90a"])
def test_a_card_and_every_view_of_copies_by_the_engine(target: str) -> None:
    """A tile that one instruction brings has no store and no load of a thread."""

    @T.prim_func
    def double(A: T.Tensor((64, 64), T.float16), B: T.Tensor((64, 64), T.float16)):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), T.float16)
            T.copy(A, tile)
            T.copy(tile, B)

    kernel = tw.compile(double, target=target)
    assert "tile" in card_html(kernel.view())
    assert {view: kernel.to_dict(view) for view in ("layouts", "banks", "global", "smem", "code")}
