"""`tilelang.autotuner`: the decorator, and the search written as a chain of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tileworkbench.api import Jit
from tileworkbench.compat.kernels import jit
from tileworkbench.compiler.diagnostics import TileTypeError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.tuning.autotune import Autotuned
from tileworkbench.tuning.autotune import autotune as autotune
from tileworkbench.tuning.autotune import set_autotune_inputs as set_autotune_inputs
from tileworkbench.tuning.trials import Config, Settings
from tileworkbench.workbench.kernel import Kernel


@dataclass(frozen=True, slots=True)
class AutotuneResult:
    """The best kernel of a search, its configuration, and milliseconds per call."""

    kernel: Kernel
    config: Config
    latency: float
    ref_latency: float | None

    @property
    def libcode(self) -> str:
        """The kernel's generated code."""
        return self.kernel.source

    @property
    def func(self) -> Any:
        """The kernel's program."""
        return self.kernel.program


class AutoTuner:
    """Measure a function that returns a `T.prim_func` in several configurations."""

    def __init__(self, fn: Callable[..., Any], configs: Sequence[Config]) -> None:
        self._fn, self._configs = fn, configs
        self._compile: dict[str, Any] = {}
        self._settings = Settings()

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Sequence[Config]) -> AutoTuner:
        """A search over `configs`, keyword arguments of `kernel`."""
        return cls(kernel, configs)

    def set_compile_args(self, **options: Any) -> AutoTuner:
        """The options of `tilelang.jit`."""
        self._compile = options
        return self

    def set_profile_args(self, **options: Any) -> AutoTuner:
        """How configurations are measured and checked: the options of `autotune`."""
        names = set(Settings.__dataclass_fields__)
        self._settings = replace(
            self._settings, **{name: value for name, value in options.items() if name in names}
        )
        return self

    def run(self, warmup: float = 25, rep: float = 100, timeout: float = 100) -> AutotuneResult:
        """Measure every configuration and return the fastest."""
        settings = replace(self._settings, warmup=warmup, rep=rep, timeout=timeout)
        settings.check()
        fn = self._fn.fn if isinstance(self._fn, Jit) else self._fn
        kernel = Autotuned(jit(fn, **self._compile), self._configs, settings)()
        if not isinstance(kernel, Kernel):
            raise TileTypeError(
                "AutoTuner takes a function that returns a T.prim_func",
                hint="put @tilelang.autotune above a kernel function of the eager style",
            )
        return AutotuneResult(
            kernel, kernel.config or {}, float(kernel.latency or 0.0), kernel.ref_latency
        )
