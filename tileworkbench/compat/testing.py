"""`tilelang.testing`: seeds, comparisons and skips."""

from __future__ import annotations

import inspect
import operator
import random
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from tileworkbench.bench.units import format_percent
from tileworkbench.tuning.closeness import assert_close


def set_random_seed(seed: int = 42) -> None:
    """Seed Python's, numpy's and torch's generators."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def torch_assert_close(
    tensor_a: Any,
    tensor_b: Any,
    rtol: float = 1e-2,
    atol: float = 1e-3,
    max_mismatched_ratio: float = 0.001,
    verbose: bool = False,
    **_: Any,
) -> bool:
    """Compare two tensors; see `assert_close`. Returns True."""
    assert_close(tensor_a, tensor_b, rtol, atol, max_mismatched_ratio)
    if verbose:
        print(f"at most {format_percent(max_mismatched_ratio)} of {tuple(tensor_a.shape)} differ")
    return True


def main(*_: Any) -> None:
    """Run the tests of the calling file with pytest, and exit with its status."""
    import pytest

    caller = inspect.stack()[1].filename
    sys.exit(pytest.main([caller]))


def _skip(reason: str) -> Callable[[Any], Any]:
    import pytest

    decorate: Callable[[Any], Any] = pytest.mark.skip(reason=reason)
    return decorate


def _unless(reason: str, args: tuple[Any, ...]) -> Any:
    """A decorator, with or without parentheses, that skips a test for `reason`, if any."""
    decorate = _skip(reason) if reason else lambda test: test
    return decorate(args[0]) if len(args) == 1 and callable(args[0]) else decorate


def requires_cuda(*args: Any) -> Any:
    """Skip a test where no CUDA device can be used."""
    from tileworkbench.compiler.device.nvidia.driver import missing_device

    return _unless(missing_device() or "", args)


def _requires_hip(name: str, arch: str | None = None) -> Callable[..., Any]:
    """A decorator that skips a test where no AMD GPU (of this architecture) can be used."""

    def requires(*args: Any) -> Any:
        from tileworkbench.compiler.device.amd.driver import missing_device

        return _unless(missing_device(arch) or "", args)

    requires.__name__ = requires.__qualname__ = name
    requires.__doc__ = f"Skip a test where no {arch or 'AMD GPU'} can be used."
    return requires


def _absent(name: str, reason: str) -> Callable[..., Any]:
    def requires(*args: Any) -> Any:
        return _unless(reason, args)

    requires.__name__ = requires.__qualname__ = name
    requires.__doc__ = f"Skip a test: {reason}."
    return requires


_APPLE = "code for Apple GPUs is not part of this version"
# What a test may need, beyond CUDA.
FEATURES: dict[str, Callable[..., Any]] = {
    **{
        f"requires_{name}": requires_cuda
        for name in ("cuda_or_cdna", "cudagraph", "gpu", "nvptx", "tensorcore")
    },
    **{
        f"requires_{name}": _requires_hip(f"requires_{name}")
        for name in ("cdna", "matrixcore", "rocm")
    },
    "requires_gfx950": _requires_hip("requires_gfx950", "gfx950"),
    "requires_metal": _absent("requires_metal", _APPLE),
    **{
        f"requires_{name}": _absent(f"requires_{name}", f"{name} is not part of this version")
        for name in (
            *("ascend", "cublas", "cudnn", "cutlass", "multi_gpu", "nccl", "opencl", "rpc"),
            *("hexagon", "hipblas", "vulkan"),
        )
    },
}


def requires_cuda_compute_version(major: int, minor: int = 0, mode: str = "ge") -> Any:
    """Skip a test unless the CUDA device's compute capability compares with ``major.minor`` as
    `mode` says: ge, gt, eq, le or lt.
    """
    from tileworkbench.compiler.device.nvidia.driver import missing_device, open_device

    reason = missing_device() or ""
    if not reason:
        digits = re.findall(r"\d+", open_device().arch)[0]
        has = int(digits[:-1]), int(digits[-1])
        if not getattr(operator, mode)(has, (major, minor)):
            reason = f"the device has compute capability {has[0]}.{has[1]}"
    return _unless(reason, ())


def _comparing(mode: str) -> Callable[..., Any]:
    def requires(major: int, minor: int = 0) -> Any:
        return requires_cuda_compute_version(major, minor, mode)

    requires.__name__ = requires.__qualname__ = f"requires_cuda_compute_version_{mode}"
    requires.__doc__ = f"`requires_cuda_compute_version` with the mode '{mode}'."
    return requires


requires_cuda_compute_version_ge = _comparing("ge")
requires_cuda_compute_version_gt = _comparing("gt")
requires_cuda_compute_version_eq = _comparing("eq")
requires_cuda_compute_version_le = _comparing("le")
requires_cuda_compute_version_lt = _comparing("lt")


def requires_llvm(*args: Any) -> Any:
    """A decorator that leaves the test alone: LLVM is always there."""
    return args[0] if args else lambda test: test


def requires_package(*names: str) -> Callable[[Any], Any]:
    """Skip a test where one of the packages `names` is not installed."""
    for name in names:
        if find_spec(name) is None:
            return _skip(f"the package '{name}' is not installed")
    return lambda test: test


_latencies: dict[str, float] = {}


def process_func(func: Callable[..., float], name: str | None = None, /, **kwargs: Any) -> None:
    """Call `func`, which measures something and returns how long it took, and keep the number under
    `name` (the name of its module by default) for `regression`.
    """
    shown = (name or func.__module__).removeprefix("regression_")
    latency = float(func(**kwargs))
    if latency > 0:
        _latencies[shown] = latency
    else:
        warnings.warn(f"'{shown}' took {latency}, which is no time", RuntimeWarning, stacklevel=2)


def regression(prefixes: Sequence[str] = ("regression_",), verbose: bool = True) -> None:
    """Call the functions of the calling module whose names begin with one of `prefixes`, in
    alphabetical order, and print what `process_func` has kept as a table.
    """
    _latencies.clear()
    caller = inspect.stack()[1].frame.f_globals
    for name in sorted(name for name in caller if name.startswith(tuple(prefixes))):
        if callable(caller[name]):
            if verbose:
                print(name, flush=True)
            caller[name]()
    print("| File | Latency |\n|---|---|")
    for name, latency in _latencies.items():
        print(f"| {name} | {latency:.8g} |")
