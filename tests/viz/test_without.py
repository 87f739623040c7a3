"""What a kernel would be without optional passes."""

from __future__ import annotations

import pytest

import tileworkbench as tw
from tileworkbench.compiler.ir.printer import print_lines
from tileworkbench.kernels import matmul
from tileworkbench.kernels.softmax import softmax
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.tree_diff import count_nodes
from tileworkbench.viz.model.without import without

PAGE = matmul(64, 64, 64, "float16", block_M=64, block_N=64, block_K=32)


@pytest.mark.parametrize(
    ("target", "name"), [("cpu", "vectorize_loops"), ("sim:sm_80", "plan_pipelines")]
)
def test_the_answer_is_what_compiling_gives(target: str, name: str) -> None:
    usual = tw.compile(PAGE, target=target)
    other = tw.compile(PAGE, target=target, disable=(name,))
    found = without(usual.record, [name])
    last = [kernel.passes[-1].program for kernel in (usual, other)]
    assert found["nodes"] == [count_nodes(program) for program in last]
    assert found["flags"] == f"--disable {name}"
    assert found["added"] > 0
    texts = [row["after"]["text"] for row in found["rows"] if "text" in row.get("after", {})]
    assert set(texts) <= {line.text for line in print_lines(last[1])}


def test_back_to_all_passes() -> None:
    kernel = tw.compile(softmax(8, 256), disable=("fuse_loops",))
    entries = PassBrowser(kernel.record).overview(live=True)["entries"]
    assert [entry["name"] for entry in entries if entry.get("disabled")] == ["fuse_loops"]
    found = without(kernel.record, [])
    assert found["flags"] == ""
    assert found["differ"] == ["fuse_loops"]
    same = without(kernel.record, ["fuse_loops"])
    assert (same["added"], same["removed"], same["differ"]) == (0, 0, [])


def test_a_refusal_is_the_answer() -> None:
    kernel = tw.compile(PAGE)
    found = without(kernel.record, ["flatten_buffers"])
    assert found["error"].startswith("pass 'flatten_buffers' cannot be switched off: kernels for ")


def test_only_optional_passes_can_be_switched() -> None:
    entries = PassBrowser(tw.compile(PAGE).record).overview(live=True)["entries"]
    lost = {entry["name"]: entry.get("lost", "") for entry in entries}
    assert lost["fuse_loops"].startswith("values at hand")
    assert lost["flatten_buffers"] == ""
