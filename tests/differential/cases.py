"""Tables of small kernels: each is made by a function whose name is a claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.harness import Check, check_executors, run_native, storage

Case = tuple[Any, dict[str, Any], Check]  # a kernel, its arguments and the check of its results
F32, F16, I32 = "float32", "float16", "int32"


class Cases(dict[str, Callable[[], Case]]):
    """What makes the cases of a file, by name."""

    def __call__(self, make: Callable[[], Case]) -> Callable[[], Case]:
        """Add a case: a decorator."""
        self[make.__name__] = make
        return make

    def check(self, name: str) -> None:
        """The case holds in the simulator, on a processor and on the threads of a GPU."""
        check_executors(*self[name]())

    def check_ptx(self, name: str) -> None:
        """The case holds as executed PTX."""
        kernel, arguments, check = self[name]()
        check(run_native(kernel.program, arguments, "ptx:sm_80"))


def small(*shape: int, dtype: str = F32, seed: int = 0, low: int = -3, high: int = 4) -> Any:
    """Small integers: every order of evaluation gives the same bits."""
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(storage(dtype))
