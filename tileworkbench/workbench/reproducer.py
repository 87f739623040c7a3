"""`Kernel.export`: a folder from which somebody else can compile and run the same program."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.printer import print_expr, print_program
from tileworkbench.compiler.ir.program import Param

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileworkbench.workbench.kernel import Kernel

_PACKAGES = ("tileworkbench", "numpy", "llvmlite", "torch")

_SCRIPT = '''\
"""Compile the exported program, compare it with the simulator, and print what the passes did.

It runs on the inputs in inputs.pt, where they were exported, else on made-up ones: values for
extents that are symbols then go on the command line: python reproduce.py m=1024
"""

import sys
from pathlib import Path

import torch

from tileworkbench.compiler.driver import compile_program
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.workbench.kernel import Kernel
from tileworkbench.tuning.supply import supply_tensors

text = Path(__file__).with_name("program.txt").read_text(encoding="utf-8")
kernel = Kernel(compile_program(parse(text), {target!r}))
stored = Path(__file__).with_name("inputs.pt")
if stored.exists():
    inputs = torch.load(stored, weights_only=True)
else:
    symbols = dict(part.split("=") for part in sys.argv[1:])
    inputs = supply_tensors(kernel.program, symbols={{k: int(v) for k, v in symbols.items()}})
kernel(*inputs)
print(kernel)
print(kernel.validate(*inputs))
'''


def export_kernel(kernel: Kernel, directory: Path, args: Sequence[Any] = ()) -> Path:
    """Write the folder and return it.

    ``source.py`` is the user's text, ``program.txt`` the front end's program, ``passes/`` the
    program after each pass that changed it, ``code.ll`` or ``code.cu`` the generated code
    (``code_1.cu`` that of a variant), ``parameters.json`` names, dtypes and shapes,
    ``environment.json`` versions, ``inputs.pt`` the `args` if there are any, and ``reproduce.py`` a
    script that compiles ``program.txt`` and runs it. Raises `ArgumentError` where the path is a
    file, and for arguments that PyTorch cannot hold.
    """
    if directory.exists() and not directory.is_dir():
        raise ArgumentError(f"'{directory}' is a file", hint="k.export writes a folder")
    inputs = [_stored(arg) for arg in args]
    passes = directory / "passes"
    passes.mkdir(parents=True, exist_ok=True)
    # What another kernel left that was exported here before.
    for pattern in ("passes/[0-9][0-9]_*.txt", "code*.[lc][lu]", "inputs.pt"):
        for old in directory.glob(pattern):
            old.unlink()
    record = kernel.record
    suffix = "ll" if record.target.startswith("cpu") else "cu"
    texts = {
        "source.py": record.source,
        "program.txt": print_program(record.program),
        f"code.{suffix}": record.code,
        "parameters.json": _json([_parameter(param) for param in record.program.params]),
        "environment.json": _json(_environment(kernel)),
        "reproduce.py": _SCRIPT.format(target=record.target),
    }
    for number, snapshot in enumerate(record.snapshots):
        if snapshot.changed:
            texts[f"passes/{number:02}_{snapshot.name}.txt"] = print_program(snapshot.program)
    for number, variant in enumerate(record.variants, 1):
        texts[f"code_{number}.{suffix}"] = f"// where {' and '.join(variant.facts)}\n{variant.code}"
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    if inputs:
        import torch

        torch.save(inputs, directory / "inputs.pt")
    return directory


def _stored(arg: Any) -> Any:
    """An argument as the file has it: a tensor of its own on the CPU, or a number."""
    import torch

    if isinstance(arg, bool | int | float):
        return arg
    try:
        return torch.as_tensor(arg).detach().cpu().clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"an argument cannot be stored: {error}") from error


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _parameter(param: Param) -> dict[str, Any]:
    value = param.value
    described: dict[str, Any] = {
        "name": param.name,
        "dtype": str(value.dtype),
        "output": param.output,
    }
    if isinstance(value, Buffer):
        described["shape"] = [_extent(extent) for extent in value.shape]
        if value.strides:
            described["strides"] = [_extent(stride) for stride in value.strides]
    return described


def _extent(extent: Expr) -> int | str:
    number = const_int(extent)
    return print_expr(extent) if number is None else number


def _environment(kernel: Kernel) -> dict[str, Any]:
    record = kernel.record
    return {
        "target": record.target,
        "level": record.level,
        "constants": dict(record.constants),
        "python": platform.python_version(),
        "system": sys.platform,
        "machine": platform.machine(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
