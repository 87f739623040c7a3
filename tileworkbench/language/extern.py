"""Code in other languages: C functions that a kernel calls, and launches of CUDA source."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import current, in_kernel
from tileworkbench.compiler.frontend.dtypes import to_dtype
from tileworkbench.compiler.frontend.kernel import Declared, check_threads
from tileworkbench.compiler.frontend.tensors import RegionValue, TensorValue, parallel_variables
from tileworkbench.compiler.frontend.values import Value, deeper, describe, extent_expr, to_value
from tileworkbench.compiler.ir.stmt import ExternCall, SourceKernel
from tileworkbench.compiler.ir.types import DType
from tileworkbench.language.memory import pointer_to

_PASSED = ("bool", "float32", "tfloat32", "float64", "handle")

CUDA_SOURCE = "CUDA C++ in T.import_source"
# What only NVIDIA's compilers and headers have; other words of CUDA are HIP's too.
_CUDA = re.compile(
    r"#include\s*[<\"](cuda|cooperative_groups|mma\.h|cub/|cute/|cutlass/)|\basm\b"
    r"|__(shfl|ballot|any|all|match|reduce|syncwarp)\w*_sync\b|__syncwarp\b|\b__(nv|half2float)"
    r"|\bnvcuda\b|\bwmma\b|\b__ldg\b|\b__cvta_"
)


def import_source(source: str | None = None) -> None:
    """Put C source in front of the kernel, so that `T.call_extern` finds its functions.

    Target `cpu` compiles it with the machine's C compiler; for a CUDA target it is CUDA C++. Raises
    `TileTypeError` for anything but text.

    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     T.import_source("float half_of(float x) { return x / 2; }")
    ...     with T.Kernel(1):
    ...         for i in T.Parallel(64):
    ...             A[i] = T.call_extern("float32", "half_of", A[i])
    """
    builder = current("T.import_source")
    if source is None:
        return
    if not isinstance(source, str):
        raise TileTypeError(f"T.import_source takes text, not {describe(source)}")
    if source not in builder.sources:
        builder.sources.append(source)
        if _CUDA.search(source):
            builder.uses.append((CUDA_SOURCE, builder.site))


def call_extern(dtype: Any, name: str, *operands: Any) -> Any:
    """Call the function `name` of the source given to `T.import_source`, or of the C library.

    `dtype` is the type of its result; "void" and "handle" stand for none. Operands are numbers,
    addresses (`T.address_of`, `T.access_ptr`), and tensors, which stand for their address. Inside
    T.Parallel every iteration makes one call. Raises `TileTypeError` for operands that no C
    function takes.

    >>> T.call_extern("int32", "abs", 3)
    """
    builder = in_kernel("T.call_extern")
    if not isinstance(name, str) or not name.isidentifier():
        raise TileTypeError(f"T.call_extern takes the name of a function, not {describe(name)}")
    result = None if str(dtype) in ("void", "handle", "None") else to_dtype(dtype)
    binding, args = None, []
    for operand in operands:
        value = _passed(operand)
        _check(name, value.expr.dtype)
        binding = deeper(binding, value.binding)
        args.append(value.expr)
    if result is None:
        builder.emit(ExternCall(name, tuple(args)))
        return None
    _check(name, result)
    var = builder.fresh_var(builder.hint(0, "result"), result)
    builder.emit(ExternCall(name, tuple(args), var))
    varying = [parallel_variables(builder, arg) for arg in args]
    builder.parallel[var] = frozenset().union(*varying)
    return Value(var, builder.bind(var.name))


def _passed(operand: Any) -> Value:
    if isinstance(operand, TensorValue | RegionValue):
        return pointer_to("T.call_extern", operand)
    return to_value(operand)


def _check(name: str, dtype: DType) -> None:
    plain = dtype.is_int and dtype.bits >= 8
    if dtype.lanes > 1 or not (plain or dtype in _PASSED):
        raise TileTypeError(
            f"the external function '{name}' cannot take or return a '{dtype}'",
            hint="C knows integers, float32, float64 and addresses",
        )


def CUDASourceCodeKernel(
    *blocks: Any,
    threads: Any = None,
    source_code_or_path: str | os.PathLike[str],
    entry_name: str = "main_kernel",
    cluster_dims: Any = None,
    prelude: str | None = None,
) -> None:
    """Launch a `__global__` function of CUDA source, with the kernel function's parameters.

    `source_code_or_path` is the text or the path of a file with it, `blocks` and `threads` are as
    in `T.Kernel`. CUDA targets compile it; others raise `UnsupportedError`. Raises
    `TileTypeError` or `TileValueError` for arguments of a wrong kind.

    >>> SOURCE = 'extern "C" __global__ void fill(float* A) { A[threadIdx.x] = 1; }'
    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     T.CUDASourceCodeKernel(1, threads=64, source_code_or_path=SOURCE, entry_name="fill")
    """
    builder = current("T.CUDASourceCodeKernel")
    builder.launched = True
    if builder.placeholders is not None:
        raise Declared
    if builder.enclosing("kernel") is not None:
        raise TileValueError("'T.CUDASourceCodeKernel' cannot stand inside a T.Kernel block")
    if not 1 <= len(blocks) <= 3:
        raise TileValueError(f"a grid has 1 to 3 extents, not {len(blocks)}")
    if not isinstance(entry_name, str) or not entry_name.isidentifier():
        raise TileValueError(
            f"'entry_name' of T.CUDASourceCodeKernel must be a function's name, not "
            f"{describe(entry_name)}"
        )
    if cluster_dims is not None:
        raise TileValueError("'cluster_dims' of T.CUDASourceCodeKernel is not supported")
    grid = tuple(extent_expr(block, "a grid extent", may_be_zero=True) for block in blocks)
    source = _text(source_code_or_path)
    if prelude is not None:
        source = f"{prelude}\n{source}"
    builder.emit(SourceKernel(grid, check_threads(threads), source, entry_name))


def _text(source: Any) -> str:
    if not isinstance(source, str | os.PathLike):
        raise TileTypeError(
            f"'source_code_or_path' of T.CUDASourceCodeKernel must be text or a path, not "
            f"{describe(source)}"
        )
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source
    path = Path(source)
    if not path.is_file():
        raise TileValueError(f"there is no file '{path}' with the source of a kernel")
    return path.read_text(encoding="utf-8")
