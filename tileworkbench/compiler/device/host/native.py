"""Generated text to functions in this process, from the disk cache if it was compiled before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileworkbench.compiler.device.host.cache import DiskCache, default_cache, object_key
from tileworkbench.compiler.device.host.llvm import (
    DEFAULT_PASSES,
    NativeFunction,
    NativeTarget,
    compile_object,
    load_object,
    native_target,
)
from tileworkbench.compiler.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NativeBuild:
    """The linked entries by name, the object file's size, and whether it came from disk."""

    functions: dict[str, NativeFunction]
    object_bytes: int
    from_cache: bool


def build_native(
    ir_text: str,
    entries: Sequence[str],
    target: NativeTarget | None = None,
    cache: DiskCache | None = None,
    imports: Mapping[str, int] | None = None,
) -> NativeBuild:
    """Compile LLVM IR for `target` (default: all of this machine) and link it into this process.

    `entries` are the functions to call, `imports` the addresses of those that the text calls,
    `cache` defaults to the one of `default_cache`. Raises
    `UnsupportedError` without llvmlite, `NativeError` when LLVM rejects the text.
    """
    target = target or native_target()
    cache = cache if cache is not None else default_cache()
    key = object_key(ir_text, target, DEFAULT_PASSES)
    data = cache.get(key)
    if data is not None:
        functions = load_object(data, entries, imports=imports)
        return NativeBuild(functions, len(data), from_cache=True)
    data = compile_object(ir_text, target, DEFAULT_PASSES)
    functions = load_object(data, entries, imports=imports)
    cache.put(key, data)
    return NativeBuild(functions, len(data), from_cache=False)
