"""Generated text to a function in this process, from the disk cache if it was compiled before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tileworkbench.compiler.runtime.cache import DiskCache, default_cache, object_key
from tileworkbench.compiler.runtime.llvm import (
    DEFAULT_PASSES,
    NativeFunction,
    NativeTarget,
    compile_object,
    load_object,
    native_target,
)


class NativeCode(Protocol):
    """What code generation hands over for one grid; the contract is in the docstring of `llvm`."""

    @property
    def ir_text(self) -> str: ...
    @property
    def entry(self) -> str: ...
    @property
    def scratch_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NativeBuild:
    """A linked function, its object file's size, and whether the object came from disk."""

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
    `NativeError` when LLVM rejects the text.
    """
    target = target or native_target()
    cache = cache if cache is not None else default_cache()
    key = object_key(code.ir_text, target, passes)
    data = cache.get(key)
    if data is not None:
        return NativeBuild(_link(data, code.entry), len(data), from_cache=True)
    data = compile_object(code.ir_text, target, passes)
    function = _link(data, code.entry)
    cache.put(key, data)
    return NativeBuild(function, len(data), from_cache=False)


def _link(data: bytes, entry: str) -> NativeFunction:
    return load_object(data, [entry])[entry]
