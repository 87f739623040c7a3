"""What is tried of a kernel, how, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from tileworkbench.api import Recipe
from tileworkbench.compiler.diagnostics import ArgumentError
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

    def check(self) -> None:
        """Raise `ArgumentError` for what makes no sense."""
        kinds = {
            "warmup": "number of milliseconds, 0 or more",
            "rep": "positive number of milliseconds",
            "timeout": "positive number of seconds",
        }
        for name, kind in kinds.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not (value > 0 or (name == "warmup" and value == 0)):
                raise ArgumentError(f"{name} is a {kind}, not {value!r}")
        top = self.top
        if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
            raise ArgumentError(f"top is how many configurations are measured, not {top!r}")
        if self.sizes is not None and not isinstance(self.sizes, Mapping):
            raise ArgumentError(
                f"sizes has samples by the name of a symbol, and is no {type(self.sizes).__name__}",
                hint="such as sizes={'M': [16, 128, 1024]}",
            )
        for name in ("ref_prog", "supply_prog", "manual_check_prog"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ArgumentError(f"{name} is a function, not {value!r}")

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


def listed_configs(given: Any) -> list[Config]:
    """Configurations as a user gives them. Raises `ArgumentError` for anything else."""
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        kind = type(given).__name__
        raise ArgumentError(
            f"configs is a list of dictionaries, or a function that returns one, not '{kind}'",
            hint="such as configs=[{'block_M': 64}, {'block_M': 128}]",
        )
    configs = list(given)
    for config in configs:
        if not isinstance(config, Mapping):
            raise ArgumentError(f"a configuration is a dictionary, not {config!r}")
    return configs


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
