"""The pages of the language: every name of `T` is there, and its lines run."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from docs.examples import FRAMES, GROUPS, NAMES, Example, example, run
from docs.language import TITLES, groups, pages
from tileworkbench.workbench.inputs import make_inputs

EXAMPLES = [example(name, group) for group, names in groups().items() for name in names]
# Element types differ in width only: every fourth is compiled.
EXECUTED = [made for n, made in enumerate(EXAMPLES) if made.group != "dtypes" or n % 4 == 0]


def named(made: Any) -> str:
    return made.name if isinstance(made, Example) else str(made)


def test_every_public_name_is_in_one_group() -> None:
    ours = {
        name
        for name in dir(T)
        if not name.startswith("_")
        and not isinstance(getattr(T, name), ModuleType)
        and getattr(T, name) is not getattr(__builtins__, name, None)
    }
    listed = [name for names in groups().values() for name in names]
    assert len(listed) == len(set(listed))
    tools = {"Any", "FunctionType", "INSTEAD", "UNSUPPORTED", "annotations", "placed_outside"}
    assert ours - tools - {"unsupported"} == (set(listed) | set(T.UNSUPPORTED)) - {
        name for name in listed if name.startswith("_")
    }


def test_every_name_is_on_a_page() -> None:
    made = dict(pages())
    for group, names in groups().items():
        for name in names:
            assert f"`T.{name}`" in made[f"language/{group}.md"], name
    for name in (*T.UNSUPPORTED, *T.INSTEAD):
        assert f"`T.{name}`" in made["language/unsupported.md"], name
    assert set(TITLES) == set(groups()) >= {*GROUPS}
    assert set(NAMES) <= {made.name for made in EXAMPLES} and {*NAMES.values()} <= {*FRAMES}


@pytest.mark.parametrize("group", TITLES)
def test_lines_are_kernels_and_use_the_name(group: str) -> None:
    for made in EXAMPLES:
        if made.group == group:
            assert "kernel" in run(made) or made.name == "dtype"
            used = [getattr(T, name) for name in re.findall(r"T\.(\w+)", made.code)]
            about = {inspect.getdoc(value) for value in used}
            assert inspect.getdoc(getattr(T, made.name)) in about, made.name


def inputs(name: str, kernel: tw.Kernel) -> list[Any]:
    """What an example is called with: random tensors, but where a shape is open."""
    if name == "StridedTensor":
        return [torch.ones(128)[::2]]
    if name in ("dynamic", "symbolic"):
        return [torch.ones(100)]
    if name == "make_tensor":
        held = torch.ones(64)
        return [held.data_ptr(), held]
    return make_inputs(kernel.program)


@pytest.mark.slow
@pytest.mark.parametrize("made", EXECUTED, ids=named)
def test_lines_run(made: Example, capfd: pytest.CaptureFixture[str]) -> None:
    function = run(made).get("kernel")
    if made.name == "dtype":
        return
    if made.name == "const":
        assert torch.equal(function(torch.arange(64.0)), torch.arange(64.0))
        return
    clusters = made.frame == "a cluster" or "ClusterKernel" in made.code
    if made.name == "CUDASourceCodeKernel":
        with pytest.raises(tw.UnsupportedError, match="target 'cpu' cannot run CUDA source"):
            tw.compile(function, target="cpu")
        return
    kernel = tw.compile(function, target="sim:sm_90" if clusters else "cpu")
    kernel(*inputs(made.name, kernel))


def test_a_name_without_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(T.copy, "__doc__", "Copies.")
    assert inspect.getdoc(T.copy) == "Copies."
    with pytest.raises(ValueError, match=r"the docstring of T\.copy has no line that begins"):
        example("copy", "tile")
