"""Kernels as they are beside the same kernels compiled in other ways, in turn."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from common import environment, markdown_table, write_results
from cost import CASES
from cost.case import Case
from cost_model import inputs_of
from in_turn import in_turn, usual

import tileworkbench as tw
from tileworkbench.compiler.driver import clear_memory_cache

TARGETS = ("cpu", "cpu:avx2")


def compare_cases(
    name: str, doc: str, heads: tuple[str, str], other: Callable[[Any, str], Any]
) -> None:
    """Compare the kernels of `cost/`, with tiles from the beginning, the middle and the end
    of their lists, with what `other` makes of a program for a target; write the results as `name`.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of it, nothing written")
    parser.add_argument("--only", default="", help="a part of the names of kernels")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    seconds = 0.15 if options.quick else 0.8
    cases = [case for case in CASES if options.only in case.name]
    data = [row for case in cases for row in _compared(case, other, seconds)]
    text = told(heads, data)
    print(text)
    if not options.quick and not options.only:
        print(f"\nwritten to {write_results(name, facts, data, text)}")


def compare_rows(
    name: str, doc: str, heads: tuple[str, str], rows: Callable[[float], Iterable[dict[str, Any]]]
) -> None:
    """A table of rows with `kernel`, `target` and `ms` of two ways. `rows` measures each call for
    so many times as long as it usually does; results are written as `name`.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    data = list(rows(0.2 if options.quick else 1.0))
    text = told(heads, data)
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results(name, facts, data, text)}")


def compare_with_torch(
    name: str, doc: str, way: str, other: str, rows: Callable[[float], Iterable[dict[str, Any]]]
) -> None:
    """A table of rows with `kernel`, `target` and `ms`: those of a kernel in one `way`, in the
    `other` and of torch. `rows` measures each call so many seconds; results are written as `name`.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite", "torch"))
    tw.set_num_threads(1)
    torch.set_num_threads(1)
    data = list(rows(0.2 if options.quick else 1.0))
    table = [
        (
            row["kernel"],
            row["target"],
            *(f"{ms:.3f}" for ms in row["ms"]),
            *(f"{ms / row['ms'][0]:.2f}" for ms in row["ms"][1:]),
        )
        for row in data
    ]
    heads = "kernel, one thread", "target", f"{way}, ms", f"{other}, ms", "torch, ms"
    text = markdown_table((*heads, f"of {other.removeprefix('by ')}", "of torch"), table)
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results(name, facts, data, text)}")


def _compared(
    case: Case, other: Callable[[Any, str], Any], seconds: float
) -> Iterator[dict[str, Any]]:
    """Milliseconds of a call by target and tiles; nothing where the code is the same."""
    tiles = case.configurations
    for at in dict.fromkeys((0, len(tiles) // 2, len(tiles) - 1)):
        program = case.make(**case.constants, **tiles[at])
        for target in TARGETS:
            kernels = (tw.compile(program, target=target), other(program, target))
            if kernels[0].source != kernels[1].source:
                times = milliseconds(kernels, 100, seconds)
                yield {"kernel": case.label(tiles[at]), "target": target, "ms": times}


def compiled_with(owner: Any, name: str, value: Any, program: Any, target: str) -> Any:
    """A kernel that is compiled with another attribute of a module or class."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    clear_memory_cache()
    try:
        return tw.compile(program, target=target)
    finally:
        setattr(owner, name, before)


def milliseconds(kernels: Sequence[Any], rounds: int, seconds: float) -> list[float]:
    """The times of a call of each, on the same tensors."""
    args = inputs_of(kernels[0])
    calls = [lambda k=kernel: k(*args) for kernel in kernels]
    return [float(ms) for ms in usual(in_turn(calls, rounds, seconds))]


def gain(row: dict[str, Any]) -> float:
    """How many times as fast the first of the times `ms` is as the others, in the mean."""
    first, *others = row["ms"]
    return float(sum(others) / len(others) / first)


def told(heads: tuple[str, str], data: Sequence[dict[str, Any]]) -> str:
    """A table of rows with `kernel`, `target` and `ms`, and geometric means of their gains."""
    rows = [
        (
            row["kernel"],
            row["target"],
            f"{row['ms'][0]:.3f}",
            " ".join(f"{ms:.3f}" for ms in row["ms"][1:]),
            f"{gain(row):.2f}",
        )
        for row in data
    ]
    table = markdown_table(("kernel, one thread", "target", *heads, "times as fast"), rows)
    targets = [target for target in TARGETS if any(row["target"] == target for row in data)]
    means = (f"{target} {_mean(data, target):.2f} times as fast" for target in targets)
    return f"{table}\n\nGeometric means: {'; '.join(means)}."


def _mean(data: Sequence[dict[str, Any]], target: str) -> float:
    gains = [math.log(gain(row)) for row in data if row["target"] == target]
    return math.exp(sum(gains) / len(gains))
