"""`tw.compare`: what differs is marked, what was measured stays out of a saved notebook."""

from __future__ import annotations

import re

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.sanitiser import problems
from tileworkbench.compiler.diagnostics import ArgumentError, CheckError
from tileworkbench.kernels import matmul, softmax
from tileworkbench.viz.model.compared import HTML_LIMIT, comparison_html
from tileworkbench.viz.model.views import VIEWS
from tileworkbench.workbench.comparison import Comparison


def html_of(found: Comparison) -> str:
    """What a saved notebook keeps of a comparison."""
    return comparison_html(found.kernels, found.names)


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


def staged(*numbers: int, target: str = "sim:sm_80") -> list[tw.Kernel]:
    made = (matmul(128, 128, 256, "float16", num_stages=number) for number in numbers)
    return [tw.compile(each, target=target) for each in made]


def differing(found: Comparison, view: str) -> dict[str, tuple[str | None, ...]]:
    return {fact.label: fact.values for fact in found.views[view].differences}


def test_one_kernel_with_itself() -> None:
    kernel = tile(64, 16)
    found = tw.compare(kernel, kernel)
    assert found.differences == ()
    assert found.source_diff == ""
    name = "plain"
    assert found.names == (f"{name} #1", f"{name} #2")
    assert repr(found) == f"<compare {name} #1 | {name} #2 | 0 facts differ, same source>"


def test_facts_side_by_side() -> None:
    found = tw.compare(tile(64, 16), tile(64, 32))
    assert differing(found, "card")["grid"] == ("4", "2")
    lines = str(found).splitlines()
    assert lines[0].split() == ["plain[block=16]", "plain[block=32]"]  # what differs names them
    assert lines[1].split() == ["target", "cpu", "cpu"]
    assert found.to_dict()["card"]["constants"] == {
        "plain[block=16]": "N=64, block=16, twice=False",
        "plain[block=32]": "N=64, block=32, twice=False",
    }
    assert lines[3].split() == ["grid", "4", "2"]


def test_source_passes_and_facts_that_only_one_kernel_has() -> None:
    first, second = tile(64, 16, True), tile(64, 16)
    found = tw.compare(first, second)
    assert differing(found, "card")["shared"] == ("64 B", "")
    words = {True: "changed", False: "no-op"}
    lone = {
        one.name: (words[one.changed], words[other.changed])
        for one, other in zip(first.passes, second.passes, strict=True)
        if one.changed != other.changed
    }
    assert lone and lone.items() <= differing(found, "passes").items()
    assert "-            T.copy(A[bx * block], a)" in found.source_diff.splitlines()
    html = html_of(found)
    assert problems(html) == []
    assert "<details" in html and "T.copy(A[bx * block], a)" in html


def test_measurements_are_printed_and_not_saved() -> None:
    first, second = tile(64, 16), tile(64, 32)
    first.bench(torch.zeros(64), rounds=1)
    found = tw.compare(first, second)
    time, lacking = differing(found, "card")["time"]
    assert time and lacking == ""
    assert time in str(found)
    assert time not in html_of(found) and "quartiles" not in html_of(found)


def test_one_kernel_on_several_targets() -> None:
    targets = ("cpu", "sim:sm_80", "sim:sm_90")
    found = tw.compare(*(tw.compile(matmul(128, 128, 64, "float16"), target=t) for t in targets))
    assert found.names == tuple(f"matmul {target}" for target in targets)
    plain = found.to_dict()
    assert tuple(plain["card"]["target"].values()) == targets
    assert plain["banks"]["A_shared: read"] == {
        "matmul cpu": None,
        "matmul sim:sm_80": "ldmatrix.x4 of 16 B: 128 wavefronts",
        "matmul sim:sm_90": "ldmatrix.x4 of 16 B: 128 wavefronts",
    }
    _, ampere, hopper = plain["layouts"]["C_local: as text"].values()
    assert ampere == hopper != ""
    card = plain["card"]
    assert "ldmatrix_x4" in str(card["instructions"]["matmul sim:sm_80"])
    assert card["wavefronts"]["matmul sim:sm_80"] == "512 for 512"
    assert "64 warps" in str(card["occupancy"]["matmul sim:sm_80"])
    assert "(predicted)" in str(card["bound by"]["matmul sim:sm_90"])
    assert (found.source_diff, found.code_diff) == ("", "")
    page = html_of(found)
    assert problems(page) == []
    assert "data:image/svg" not in page.partition("Layouts")[2].partition("Banks")[0]
    assert len(page.encode()) <= HTML_LIMIT


def test_pictures_of_layouts_that_differ() -> None:
    made = (matmul(128, 128, 64, "float16", trans_B=each) for each in (False, True, True))
    page = html_of(tw.compare(*(tw.compile(each, target="sim:sm_80") for each in made)))
    assert page.count('alt="B_shared') == 2 and page.count("as in matmul #2") == 1
    assert 'alt="A_shared coloured' not in page and 'alt="C_local' not in page


def test_what_one_kind_of_target_has_is_no_difference() -> None:
    cpu, *gpus = (
        tw.compile(matmul(128, 128, 64, "float16"), target=target)
        for target in ("cpu", "sim:sm_80", "sim:sm_80")
    )
    found = tw.compare(cpu, gpus[0])
    assert differing(found, "passes") == {} and differing(found, "banks") == {}
    one = tw.compile(softmax(128, 512), target="sim:sm_80")
    assert "A_shared: read" in differing(tw.compare(gpus[1], one), "banks")


def test_every_view_is_aligned() -> None:
    """Two numbers of stages differ in what depends on them and in nothing else."""
    found = tw.compare(*staged(2, 3))
    assert list(found.views) == [
        "card",
        *(name for name in VIEWS if name not in ("errors", "prints")),
    ]
    assert all(view.facts for view in found.views.values())
    assert {name for name, view in found.views.items() if not view.differences} == {
        "source",
        "passes",
        "layouts",
        "footprint",
        "numerics",
        "replay",
    }
    assert differing(found, "smem")["A_shared"] == (
        "16.0 KiB at byte 0, 2 stages",
        "24.0 KiB at byte 0, 3 stages",
    )
    assert differing(found, "pipeline")["loop k: stages"] == ("2", "3")
    assert differing(found, "banks")["A_shared: write"] == (
        "cp.async of 16 B: 128 wavefronts",
        "cp.async of 16 B: 192 wavefronts",
    )
    assert differing(found, "global")["A: read"] == (
        "cp.async of 16 B: 512 sectors",
        "cp.async of 16 B: 768 sectors",
    )
    copies = differing(found, "code")["cp.async.cg.shared.global.L2::128B"]
    assert copies == ("in 4 places", "in 6 places")
    rows = found.rows()
    assert {row["view"] for row in rows} == set(found.views)
    assert [row["fact"] for row in rows if row["view"] == "pipeline" and row["differs"]] == list(
        differing(found, "pipeline")
    )


def test_one_roofline_for_all_with_the_ratio_in_words() -> None:
    page = html_of(tw.compare(*staged(2, 3)))
    assert page.count('alt="roofline of A100') == 1
    said = re.search(r"matmul #2 is ([\d.]+) times as fast as matmul #1: .* \(predicted\)\.", page)
    assert said is not None and float(said.group(1)) > 1


def test_a_line_that_was_added_stands_beside_nothing() -> None:
    page = html_of(tw.compare(tile(64, 16, True), tile(64, 16)))
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page)
    copied = next(row for row in rows if "T.copy(A[bx * block], a)" in row and "<b" not in row)
    assert copied.count("T.copy") == 1 and "background-color:rgba(47,128,201" in copied


def test_the_errors_of_failed_checks() -> None:
    kernel, other = tile(64, 16), tile(64, 32)
    data = torch.zeros(64)
    kernel.check(lambda a: a * 2, data)
    with pytest.raises(CheckError):
        other.check(lambda a: a + (torch.arange(64) == 3), data)
    found = tw.compare(kernel, other)
    assert found.views["errors"].missing == ("no check of this kernel has failed", "")
    assert found.to_dict()["errors"]["wrong elements"] == {
        found.names[0]: "",
        found.names[1]: "1 of 64",
    }
    assert differing(found, "card")["check"][0] == "check ok"


def test_the_code_of_two_gpu_kernels_is_compared() -> None:
    found = tw.compare(*staged(2, 3))
    assert "pending=1" not in found.code_diff and "cp.async" in found.code_diff
    assert "shared" in differing(found, "card")


def test_a_large_comparison_leaves_pictures_out() -> None:
    found = tw.compare(*staged(1, 2, 3, 4))
    page = html_of(found)
    assert len(page.encode()) <= HTML_LIMIT
    assert "Not drawn here: run the cell to see it." in page
    assert problems(page) == []
    many = html_of(tw.compare(*staged(1, 2, 3, 4), *staged(1, 2, 3, 4, target="sim:sm_90a")))
    assert len(many.encode()) <= HTML_LIMIT and "more rows" in many


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
    assert name not in html_of(tw.compare(kernel, kernel))


def test_what_bounds_a_kernel_on_each_target() -> None:
    made = [tw.compile(softmax(128, 512), target=f"sim:{arch}") for arch in ("sm_80", "sm_90")]
    said = tw.compare(*made).to_dict()["card"]["bound by"]
    assert len(said) == 2
    assert all(
        text and text.startswith("launch, ") and text.endswith("(predicted)")
        for text in said.values()
    )
    cpu = tw.compile(softmax(128, 512), target="cpu")
    assert "bound by" not in html_of(tw.compare(cpu, cpu))  # depends on the host
