"""The users' kernels that the CPU's time model is held against compute what they say."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tests.bench import (
    cost_attention_references,
    cost_column_references,
    cost_held_out_references,
    cost_image_references,
    cost_product_references,
    cost_quantised_references,
    cost_references,
    cost_step_references,
    cost_window_references,
)

FOLDER = Path(__file__).parents[2] / "benchmarks"
TABLES = (
    cost_references,
    cost_product_references,
    cost_quantised_references,
    cost_attention_references,
    cost_column_references,
    cost_window_references,
    cost_image_references,
    cost_step_references,
    cost_held_out_references,
)
REFERENCES = {name: each for table in TABLES for name, each in table.REFERENCES.items()}
ROUGH = {
    "basis_layer",
    "biased_attention",
    "chosen_adapters",
    "factor_gradient",
    "gated_norm",
    "graph_layer",
    "latent_attention",
    "modulated",
    "rms_linear",
    "turned_norm",
}  # numbers of 16 bits on the way


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder of the package on the path."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "cost"]:
        sys.modules.pop(name)


@pytest.fixture
def kernels(folder: None) -> dict[str, Callable[..., Any]]:
    """The kernels of all modules by name."""
    names = [path.stem for path in (FOLDER / "cost").glob("*.py")]
    kinds = [name for name in names if name not in ("__init__", "case")]
    modules = [importlib.import_module(f"cost.{name}") for name in kinds]
    return {
        name: made
        for module in modules
        for name, made in vars(module).items()
        if isinstance(made, FunctionType) and made.__module__ == module.__name__
    }


def test_every_kernel_is_tested(kernels: dict[str, Callable[..., Any]]) -> None:
    assert kernels.keys() == REFERENCES.keys()


def test_every_kernel_has_a_case(kernels: dict[str, Callable[..., Any]]) -> None:
    cases = importlib.import_module("cost").CASES
    assert len({case.name for case in cases}) == len(cases)
    assert set(kernels.values()) <= {case.make for case in cases}


@pytest.mark.parametrize("name", REFERENCES)
def test_it_computes_what_torch_does(kernels: dict[str, Callable[..., Any]], name: str) -> None:
    sizes, axes, arguments, reference = REFERENCES[name]
    expected, off = reference(*arguments), 1e-2 if name in ROUGH else 1e-4
    for blocks in zip(*axes.values(), strict=False):
        program = kernels[name](*sizes, **dict(zip(axes, blocks, strict=True)))
        torch.testing.assert_close(
            tw.compile(program, target="cpu")(*arguments), expected, rtol=off, atol=off
        )
