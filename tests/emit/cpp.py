"""Kernels as plain C++: lowered for the threads of a GPU that has nothing but threads, built by a
compiler that this machine has, and called.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.emit.plain.dialect import generate_cpp
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.driver import lower_program
from tileworkbench.compiler.emit.c_like.program import Module
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.target import parse_target

FLAGS = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off"]
TARGET = "sim:sm_75"  # no asynchronous copies, and no matrix instructions on float32


@cache
def compiler() -> tuple[str, ...]:
    """The command that compiles C++: empty where there is none."""
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "c++")
    return ()


def text_of(page: Any) -> Module:
    """A kernel as C++, with the user's lines in it."""
    source = page.source
    lines = ("",) * (source.first_line - 1) + tuple(source.text.splitlines())
    return generate_cpp(lower_program(page.program, parse_target(TARGET))[-1].program, lines)


def run(page: Any, folder: Path, *arguments: Any) -> list[torch.Tensor]:
    """Build a kernel and call it with what it is given as tensors and numbers, which it may write
    to; its outputs, which begin as zeros. Raises `RuntimeError` for a launch that ends badly.
    """
    module, program = text_of(page), page.program
    (folder / "kernel.cpp").write_text(module.text, encoding="utf-8")
    library = folder / "kernel.so"
    command = [*compiler(), *FLAGS, "-o", str(library), str(folder / "kernel.cpp"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    given, numbers, values = iter(arguments), {}, {}
    for param in program.params:
        if not isinstance(param.value, Buffer):
            values[param.name] = numbers[param.name] = next(given)
            continue
        shape = param.value.shape
        if not param.output:
            values[param.name] = next(given)
            pairs = zip(shape, values[param.name].shape, strict=True)
            numbers.update((str(extent), size) for extent, size in pairs)
            continue
        sizes = [int(evaluate(extent, numbers)) for extent in shape]
        values[param.name] = torch.zeros(sizes, dtype=getattr(torch, str(param.value.dtype)))
    for launch in module.launches:
        extents = [int(evaluate(extent, numbers)) for extent in launch.grid]
        passed = [
            _passed(values.get(each.name, numbers.get(each.name))) for each in module.arguments
        ]
        grid = (ctypes.c_int * 3)(*(*extents, 1, 1)[:3])
        result = ctypes.CDLL(str(library))[launch.entry](grid, *passed)
        if result:
            raise RuntimeError({1: "deadlock", 2: "assertion"}[result])
    return [values[program.params[index].name] for index in program.returns]


def _passed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value)
