"""Small helpers that TileLang's scripts import from various of its modules."""

from __future__ import annotations

import functools
import logging
import os
import re
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.frontend.dtypes import dtype_name
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.language.layouts import make_swizzled_layout

_DISABLE_CACHE = "TILEWORKBENCH_DISABLE_CACHE"  # read by compiler/device/host/cache.py


class _PassConfigKeys(type):
    """Every key that looks like one exists: none of them changes a result here."""

    def __getattr__(cls, name: str) -> str:
        if re.fullmatch(r"(TL|TIR|CUDA)_[A-Z0-9_]+", name) is None:
            raise AttributeError(f"'{name}' is not a key of a pass")
        prefix, _, rest = name.lower().partition("_")
        return f"{prefix}.{rest}"


class PassConfigKey(metaclass=_PassConfigKeys):
    """Keys of `pass_configs`: ``PassConfigKey.TL_X`` is the string ``tl.x``."""


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`; 1 for what is not positive."""
    return 1 << max(n - 1, 0).bit_length()


def disable_cache() -> None:
    """Neither read nor write compiled kernels on disk."""
    os.environ[_DISABLE_CACHE] = "1"


def enable_cache() -> None:
    """Use the cache on disk again."""
    os.environ.pop(_DISABLE_CACHE, None)


def is_cache_enabled() -> bool:
    """Whether the cache on disk is used."""
    return os.environ.get(_DISABLE_CACHE, "") in ("", "0")


def set_log_level(level: str | int) -> None:
    """The level of this package's logger."""
    logging.getLogger("tileworkbench").setLevel(level.upper() if isinstance(level, str) else level)


def get_num_sms(device: Any = None) -> int:
    """How many persistent workers fill the device: the CPU's threads."""
    return get_num_threads()


def get_current_device() -> int | None:
    """The number of the CUDA device that torch would use; None where there is none."""
    import torch

    return torch.cuda.current_device() if torch.cuda.is_available() else None


def device_synchronize(device: Any = None) -> None:
    """Wait for torch's CUDA device; kernels on the CPU are done when their call returns."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize(device)


def check_cuda_availability() -> bool:
    """Whether a CUDA device can be used."""
    from tileworkbench.compiler.device.nvidia.driver import missing_device

    return not missing_device()


def check_hip_availability() -> bool:
    """Whether a HIP device can be used: not by this version."""
    return False


def target_is_gfx950(target: Any) -> bool:
    """Whether a target is that AMD GPU: none is, in this version."""
    return False


def source_hook(name: str) -> Callable[..., Any]:
    """The function of that name, which would have generated code rewritten by another function.

    It returns the function, and warns that it is not called: the code is not TileLang's.
    """

    def register(func: Any = None, override: bool = True) -> Any:
        if not callable(func):
            return functools.partial(register, override=override)
        warnings.warn(
            f"'{name}' has no effect: '{getattr(func, '__name__', func)}' would rewrite code of "
            f"TileLang's, and tileworkbench generates its own",
            UserWarning,
            stacklevel=2,
        )
        return func

    register.__name__ = register.__qualname__ = name
    return register


def get_global_func(name: str, allow_missing: bool = False) -> None:
    """A function of TVM's table of functions by name: there is none. Returns None where it may be
    missing, else raises `UnsupportedError`.
    """
    if not allow_missing:
        raise UnsupportedError(
            f"TVM's function '{name}' does not exist: tileworkbench is not built on TVM"
        )


def simplified(function: Any, *_: Any, **__: Any) -> Any:
    """`function` as it is: every kernel is simplified while it is compiled."""
    return function


def determine_fp8_type(fp8_format: str = "e4m3") -> str:
    """The dtype of an 8-bit float format, ``e4m3`` or ``e5m2``."""
    return dtype_name({"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}.get(fp8_format, fp8_format))


def determine_torch_fp8_type(fp8_format: str = "e4m3") -> Any:
    """The torch dtype of `determine_fp8_type`."""
    return map_torch_type(determine_fp8_type(fp8_format))


def map_torch_type(dtype: str) -> Any:
    """The torch dtype of that name."""
    import torch

    return getattr(torch, dtype_name(dtype))


def layout_function(name: str) -> Callable[..., Layout]:
    """The function of `tilelang.layout` of that name: a layout of a tile in shared memory without
    bank conflicts.

    TileLang has one for each kind of matrix instruction; the CPU has no banks, so they are one.
    """

    def function(buffer: Any, *_: Any, **__: Any) -> Layout:
        return make_swizzled_layout(buffer)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = make_swizzled_layout.__doc__
    return function


def lower(*_: Any, **__: Any) -> NoReturn:
    """Raises `UnsupportedError`: its result would be TVM's."""
    raise UnsupportedError(
        "tilelang.lower gives objects of TVM, which tileworkbench is not built on",
        hint="tilelang.compile(...) gives a kernel whose .passes and .source show the lowering",
    )
