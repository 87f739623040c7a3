"""External functions of a kernel: C texts compiled by the machine's own compiler, or functions of
the C library.

A text is compiled once per process into a shared library, in a folder that goes away with it. The
name under which generated code calls a function contains a digest of the texts, so that kernels may
have different functions of one name.
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.ir.types import DType

_C_COMPILERS, _CPP_COMPILERS = ("cc", "gcc", "clang"), ("c++", "g++", "clang++")
_CPP_MARKS = ('extern "C"', "template", "namespace", "#include <c", "std::")
_CUDA_MARKS = ("__global__", "__device__", "__shared__", "threadIdx", "blockIdx")
_C_TYPES = {
    "bool": ctypes.c_bool,
    "float32": ctypes.c_float,
    "tfloat32": ctypes.c_float,
    "float64": ctypes.c_double,
    "handle": ctypes.c_void_p,
    **{f"int{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}


def symbol_of(name: str, sources: Sequence[str]) -> str:
    """The name under which generated code calls the external function `name`."""
    digest = sha256("\0".join(sources).encode()).hexdigest()[:16]
    return f"extern_{digest}_{name}"


def find_function(name: str, sources: tuple[str, ...]) -> int:
    """The address of the external function `name`: of the texts, else of the C library.

    Raises `UnsupportedError` for a function that neither has, for CUDA texts, and where no C
    compiler is installed; `TileValueError` for texts that the compiler refuses.
    """
    libraries = [*([_compiled(sources)] if sources else []), ctypes.CDLL(None)]
    for library in libraries:
        function = getattr(library, name, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise UnsupportedError(
        f"there is no function '{name}' to call",
        hint="define it with T.import_source, or call a function of the C library",
    )


def python_function(
    name: str, sources: tuple[str, ...], arguments: Sequence[DType], result: DType | None
) -> Any:
    """The external function as Python calls it. Raises as `find_function`."""
    kinds = [_C_TYPES[str(dtype)] for dtype in arguments]
    returned = None if result is None else _C_TYPES[str(result)]
    return ctypes.CFUNCTYPE(returned, *kinds)(find_function(name, sources))


@cache
def _compiled(sources: tuple[str, ...]) -> ctypes.CDLL:
    text = "\n".join(sources)
    if any(mark in text for mark in _CUDA_MARKS):
        raise UnsupportedError(
            "the kernel's source is CUDA, which target 'cpu' cannot compile",
            hint="write it in C, or compile the kernel for a CUDA target",
        )
    is_cpp = any(mark in text for mark in _CPP_MARKS)
    names = _CPP_COMPILERS if is_cpp else _C_COMPILERS
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        language = "C++" if is_cpp else "C"
        raise UnsupportedError(
            f"the kernel's source is {language}, and this machine has no compiler for it",
            hint=f"install one of {', '.join(names)}",
        )
    stem = sha256(text.encode()).hexdigest()[:16]
    source = _folder() / f"{stem}{'.cpp' if is_cpp else '.c'}"
    library = source.with_suffix(".so")
    source.write_text(text, encoding="utf-8")
    options = ["-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    done = subprocess.run([compiler, *options, "-lm"], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        first = (lines or done.stderr.splitlines() or ["no message"])[0]
        place = first.removeprefix(f"{source}:")
        raise TileValueError(f"the C compiler refuses the kernel's source: {place}")
    return ctypes.CDLL(str(library))


@cache
def _folder() -> Path:
    """A folder of this process."""
    made = Path(tempfile.mkdtemp(prefix="tileworkbench-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
