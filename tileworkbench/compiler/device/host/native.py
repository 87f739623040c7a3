"""Generated text to functions in this process, from the disk cache if it was compiled before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileworkbench.compiler.device.host import background
from tileworkbench.compiler.device.host.background import PendingFunction
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
    """The linked entries by name, and whether they came from disk."""

    functions: Mapping[str, NativeFunction | PendingFunction]
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
    `UnsupportedError` without llvmlite, `NativeError` when LLVM rejects the text; inside of
    `native_in_background` its end raises that.
    """
    target = target or native_target()
    cache = cache if cache is not None else default_cache()
    key = object_key(ir_text, target, DEFAULT_PASSES)
    data = cache.get(key)
    if data is not None:
        return NativeBuild(load_object(data, entries, imports=imports), from_cache=True)

    def made() -> dict[str, NativeFunction]:
        data = compile_object(ir_text, target, DEFAULT_PASSES)
        functions = load_object(data, entries, imports=imports)
        cache.put(key, data)
        return functions

    worker = background.current()
    functions = made() if worker is None else worker.start(made, entries)
    return NativeBuild(functions, from_cache=False)
