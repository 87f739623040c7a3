"""The list of passes itself: names, documentation, and targets without one."""

from __future__ import annotations

import sys

import pytest

from tileworkbench.compiler.passes.pipeline import pass_name, pipeline
from tileworkbench.compiler.target import parse_target

PASSES = {pass_name(step): step for step in pipeline(parse_target("cpu:avx2"))}


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_is_named_like_its_module_and_shows_an_example(name: str) -> None:
    step = PASSES[name]
    own = getattr(step, "__name__", type(step).__name__)
    assert own in (name, "".join(word.capitalize() for word in name.split("_")))
    assert step.__doc__, "the card shows its first sentence"
    module = sys.modules[step.__module__].__doc__ or ""
    pairs = [("Before::", "After::"), ("Accepted, and left as it is::", "Refused::")]
    assert any(first in module and second in module for first, second in pairs)
