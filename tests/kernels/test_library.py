"""The library as a whole: its example runs, and every page has what a page must have."""

from __future__ import annotations

import inspect
import textwrap

import pytest

import tileworkbench.kernels as kernels


def test_the_example_of_the_package():
    block = inspect.getdoc(kernels).split("::\n\n")[1].split("\n\n`tw.jit")[0]
    names: dict[str, object] = {}
    exec(textwrap.dedent(block), names)
    assert names["c"].shape == (300, 100)


@pytest.mark.parametrize("name", kernels.__all__)
def test_every_kernel_has_a_page(name):
    factory = getattr(kernels, name)
    assert factory.__name__ == name
    assert "(" in factory.__doc__  # shapes
    assert factory.reference.__doc__
    # Options have defaults; what has none is an extent.
    parameters = inspect.signature(factory).parameters.values()
    required = [p for p in parameters if p.default is inspect.Parameter.empty]
    assert all(p.annotation in ("int", "Extent") for p in required)
    assert {"threads"} <= {p.name for p in parameters}


def test_all_is_sorted_and_complete():
    assert list(kernels.__all__) == sorted(kernels.__all__)
    exported = {name for name, value in vars(kernels).items() if hasattr(value, "reference")}
    assert exported == set(kernels.__all__)
