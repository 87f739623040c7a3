"""What is tried of a kernel, how, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from tileworkbench.api import Recipe
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.tuning.store import TuningStore
from tileworkbench.tuning.supply import TensorSupplyType
from tileworkbench.workbench.kernel import Kernel

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """How configurations are measured and checked; see `autotune`."""

    warmup: float = 25
    rep: float = 100
    timeout: float = 100
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Sequence[Any]] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[[list[Any], list[Any]], Any] | None = None
    cache_input_tensors: bool = False
    do_not_specialize: tuple[str, ...] = ()
    early_stop: bool | None = None
    top: int | None = None
    store: TuningStore | None = None
    isolate: bool = True
    executor: Any = None
    sizes: Mapping[str, Sequence[int]] | None = None
    retry: bool = False

    @property
    def is_checked(self) -> bool:
        """Whether results are compared with a reference."""
        return self.ref_prog is not None and not self.skip_check

    def is_predicted(self, configurations: int) -> bool:
        """Whether the time model says which of so many configurations are measured first."""
        asked = self.top is not None or bool(self.early_stop)
        return asked or (self.early_stop is None and configurations >= MANY)


# Configurations of which a model that is about right spares the measurement of so many that asking
# it, which compiles each, is worth it.
MANY = 12


class Fault(Enum):
    """What has failed where a configuration has."""

    OTHER = "what may be there, or right, another time"
    KERNEL = "the kernel, always"
    LIMIT = "the time limit"
    CHECK = "the comparison with a reference"


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration: milliseconds per call, or NaN and why there are none: an `error`, or none
    where the time model says that others are faster.

    `predicted` are the milliseconds of the time model (NaN: it was not asked, or knows none),
    `machine` is where it was measured. `is_stored` says that an earlier search measured it.
    """

    config: Config
    latency: float = math.nan
    error: str = ""
    predicted: float = math.nan
    machine: str = ""
    is_stored: bool = False
    fault: Fault = field(default=Fault.OTHER, repr=False, compare=False)
    kernel: Kernel | None = field(default=None, repr=False, compare=False)
    recipe: Recipe | None = field(default=None, repr=False, compare=False)

    @property
    def is_measured(self) -> bool:
        """Whether it has a time."""
        return math.isfinite(self.latency)
