"""`tilelang.testing`: seeds, comparisons and skips."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from tileworkbench.tuning.closeness import assert_close

_NO_GPU = "compiling for a GPU is not part of this version"


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
        print(f"at most {max_mismatched_ratio:.3%} of {tuple(tensor_a.shape)} differ")
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


def _device_only(*args: Any) -> Any:
    """A decorator, with or without parentheses, that skips what needs a GPU."""
    skip = _skip(_NO_GPU)
    return skip(args[0]) if len(args) == 1 and callable(args[0]) else skip


def requires_cuda(*args: Any) -> Any:
    """Skip a test that needs a CUDA device."""
    return _device_only(*args)


def requires_rocm(*args: Any) -> Any:
    """Skip a test that needs a HIP device."""
    return _device_only(*args)


def requires_metal(*args: Any) -> Any:
    """Skip a test that needs a Metal device."""
    return _device_only(*args)


def requires_cuda_compute_version(major: int, minor: int = 0, mode: str = "ge") -> Any:
    """Skip a test that needs a CUDA device of some compute capability."""
    return _skip(_NO_GPU)


def requires_cuda_compute_version_ge(major: int, minor: int = 0) -> Any:
    """Skip a test that needs a CUDA device of at least this compute capability."""
    return _skip(_NO_GPU)


requires_cuda_compute_version_gt = requires_cuda_compute_version_ge
requires_cuda_compute_version_eq = requires_cuda_compute_version_ge
requires_cuda_compute_version_le = requires_cuda_compute_version_ge
requires_cuda_compute_version_lt = requires_cuda_compute_version_ge


def requires_llvm(*args: Any) -> Any:
    """A decorator that leaves the test alone: LLVM is always there."""
    return args[0] if args else lambda test: test


def requires_package(name: str) -> Callable[[Any], Any]:
    """Skip a test where the package `name` is not installed."""
    if find_spec(name) is None:
        return _skip(f"the package '{name}' is not installed")
    return lambda test: test
