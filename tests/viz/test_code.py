"""What is told of the generated code."""

from __future__ import annotations

import tileworkbench as tw
from tileworkbench.kernels import matmul
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
