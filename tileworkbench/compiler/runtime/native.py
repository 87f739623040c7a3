"""Generated code to a function in this process, from the disk cache where it has been compiled
before."""

from __future__ import annotations

from dataclasses import dataclass

from tileworkbench.compiler.runtime.cache import DiskCache, default_cache, object_key
from tileworkbench.compiler.runtime.llvm import (
    DEFAULT_PASSES,
    NativeCode,
    NativeFunction,
    NativeTarget,
    compile_object,
    load_object,
    native_target,
)


@dataclass(frozen=True, slots=True)
class NativeBuild:
    """A linked function, its object file's size in bytes, and whether the object came from disk."""

    function: NativeFunction
    object_bytes: int
    from_cache: bool


def build_native(
    code: NativeCode,
    target: NativeTarget | None = None,
    passes: tuple[str, ...] = DEFAULT_PASSES,
    cache: DiskCache | None = None,
) -> NativeBuild:
    """Compile `code` for `target` (default: all of this machine) and link it into this process.

    `cache` defaults to the one of `default_cache`. Raises `UnsupportedError` without llvmlite,
    `NativeError` when LLVM rejects the code.
    """
    target = target or native_target()
    cache = cache if cache is not None else default_cache()
    key = object_key(code.ir_text, target, passes)
    data = cache.get(key)
    if data is not None:
        return NativeBuild(load_object(data, code.entry), len(data), from_cache=True)
    data = compile_object(code.ir_text, target, passes)
    function = load_object(data, code.entry)
    cache.put(key, data)
    return NativeBuild(function, len(data), from_cache=False)
