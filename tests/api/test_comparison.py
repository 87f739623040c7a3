"""`tw.compare`: what differs is marked, what was measured stays out of a saved notebook."""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.sanitiser import problems
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.kernels import matmul, softmax


@tw.jit(out_idx=[-1])
def tile(N, block, twice=False):
    @T.prim_func
    def double(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            a = T.alloc_shared((block,), T.float32)
            T.copy(A[bx * block], a)
            for i in T.Parallel(block):
                B[bx * block + i] = a[i] * 2.0

    @T.prim_func
    def plain(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2.0

    return double if twice else plain


def test_one_kernel_with_itself() -> None:
    kernel = tile(64, 16)
    found = tw.compare(kernel, kernel)
    assert found.differences == ()
    assert found.source_diff == ""
    assert found.measured == ()
    name = "plain[N=64,block=16,twice=False]"
    assert repr(found) == f"<compare {name} | {name} | 0 facts differ, same source>"


def test_facts_side_by_side() -> None:
    found = tw.compare(tile(64, 16), tile(64, 32))
    launch = [fact for fact in found.differences if "pass" not in fact.label]
    assert [(fact.label, fact.values) for fact in launch] == [("grid", ("4", "2"))]
    lines = str(found).splitlines()
    assert lines[0].split() == [
        "plain[N=64,block=16,twice=False]",
        "plain[N=64,block=32,twice=False]",
    ]
    assert lines[1].split() == ["target", "cpu", "cpu"]
    assert lines[2].split() == ["grid", "4", "2"]
    assert repr(found).endswith(f"{len(found.differences)} facts differ, same source>")


def test_source_passes_and_facts_that_only_one_kernel_has() -> None:
    first, second = tile(64, 16, True), tile(64, 16)
    found = tw.compare(first, second)
    facts = {fact.label: fact.values for fact in found.differences}
    assert facts["shared"] == ("64 B", "")
    words = {True: "changed", False: "no change"}
    lone = {
        f"pass {one.name}": (words[one.changed], words[other.changed])
        for one, other in zip(first.passes, second.passes, strict=True)
        if one.changed != other.changed
    }
    assert lone and lone.items() <= facts.items()
    assert "-            T.copy(A[bx * block], a)" in found.source_diff.splitlines()
    html = found._repr_html_()
    assert "<details" in html and "T.copy(A[bx * block], a)" in html


def test_measurements_are_printed_and_not_saved() -> None:
    first, second = tile(64, 16), tile(64, 32)
    first.bench(torch.zeros(64), rounds=1)
    found = tw.compare(first, second)
    labels = [fact.label for fact in found.measured]
    assert labels[:2] == ["time", "quartiles"]
    assert found.measured[0].values[1] == ""
    assert "time" in str(found)
    assert "time" not in found._repr_html_()
    assert found.measured[0].values[0] in str(found)


def test_one_kernel_on_several_targets() -> None:
    targets = ("cpu", "sim:sm_80", "sim:sm_90")
    found = tw.compare(*(tw.compile(matmul(128, 128, 64, "float16"), target=t) for t in targets))
    assert found.names == tuple(f"matmul {target}" for target in targets)
    facts = {fact.label: fact.values for fact in found.facts}
    assert facts["target"] == targets
    assert facts["access A_shared"][0] == ""
    assert "ldmatrix.x4" in facts["access A_shared"][1]
    assert facts["layout C_local"][1] == facts["layout C_local"][2] != ""
    assert "64 warps" in facts["occupancy"][1]
    assert (found.source_diff, found.code_diff) == ("", "")
    page = found._repr_html_()
    assert problems(page) == []
    assert page.count("data:image/svg") == 6  # A_shared, B_shared and C_local on both GPUs
    assert tuple(found.to_dict()["target"].values()) == targets


def test_the_code_of_two_gpu_kernels_is_compared() -> None:
    made = (matmul(128, 128, 64, "float16", num_stages=number) for number in (2, 3))
    found = tw.compare(*(tw.compile(each, target="sim:sm_80") for each in made))
    assert "pending=1" not in found.code_diff and "cp.async" in found.code_diff
    assert "shared" in {fact.label for fact in found.differences}


def test_what_cannot_be_compared() -> None:
    kernel = tile(64, 16)
    with pytest.raises(ArgumentError) as caught:
        tw.compare(kernel)
    assert str(caught.value) == "a comparison takes two kernels or more, not 1"
    with pytest.raises(ArgumentError) as caught:
        tw.compare(kernel, tile)
    assert str(caught.value) == (
        "a comparison takes compiled kernels, not 'Jit'\n"
        "hint: tw.compile(...), or .kernel of what tw.jit decorates"
    )


@pytest.mark.parametrize("name", ["<b>bold</b>"])
def test_what_a_user_wrote_is_text(name: str) -> None:
    @tw.jit
    def labelled(A, label: str = ""):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        B = T.empty((N,), T.float32)
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(N):
                B[i] = A[i]
        return B

    labelled(torch.zeros(4), label=name)
    kernel = labelled.kernel
    assert name not in tw.compare(kernel, kernel)._repr_html_()


def test_what_bounds_a_kernel_on_each_target() -> None:
    made = [tw.compile(softmax(128, 512), target=f"sim:{arch}") for arch in ("sm_80", "sm_90")]
    said = tw.compare(*made).to_dict()["bound by"]
    assert len(said) == 2
    assert all(
        text.startswith("launch, ") and text.endswith("(predicted)") for text in said.values()
    )
    cpu = tw.compile(softmax(128, 512), target="cpu")
    assert tw.compare(cpu, cpu).to_dict().get("bound by") is None  # depends on the host
