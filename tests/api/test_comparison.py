"""`tw.compare`: what differs is marked, what was measured stays out of a saved notebook."""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T


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
    assert [(fact.label, fact.first, fact.second) for fact in launch] == [("grid", "4", "2")]
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
    facts = {fact.label: (fact.first, fact.second) for fact in found.differences}
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
    assert found.measured[0].second == ""
    assert "time" in str(found)
    assert "time" not in found._repr_html_()
    assert found.measured[0].first in str(found)


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
