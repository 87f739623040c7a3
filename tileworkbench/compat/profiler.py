"""`tilelang.profiler`: comparing and timing a kernel on made-up tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileworkbench.bench import timing
from tileworkbench.compiler.device.gpu import SimulatedCall
from tileworkbench.compiler.diagnostics import CheckError, UnsupportedError
from tileworkbench.compiler.ir.program import Param
from tileworkbench.tuning.closeness import assert_close, result_pairs
from tileworkbench.tuning.supply import TensorSupplyType, supply_tensors
from tileworkbench.workbench.checking import listed
from tileworkbench.workbench.kernel import Kernel


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    *,
    quantiles: Sequence[float] | None = None,
    return_mode: timing.Statistic = "mean",
    **_: Any,
) -> Any:
    """Milliseconds per call of `fn`; see `tileworkbench.do_bench`.

    Options that choose how a GPU is timed (`backend`, `fast_flush`, numbers of calls) are accepted.
    Warns of a kernel that is simulated, whose time says nothing.
    """
    before = SimulatedCall.last
    times = timing.time_calls(fn, warmup, rep, quantiles=quantiles, return_mode=return_mode)
    if (call := SimulatedCall.last) is not before and call is not None:
        try:
            timing.refuse_simulated(call.name, call.target)
        except UnsupportedError as error:
            warnings.warn(error.message, RuntimeWarning, stacklevel=2)
    return times


class Profiler:
    """What `kernel.get_profiler()` gives; made-up tensors are the same in every run."""

    def __init__(self, kernel: Kernel, supply: TensorSupplyType = TensorSupplyType.Auto) -> None:
        self.func, self.supply = kernel, supply

    @property
    def params(self) -> tuple[Param, ...]:
        """Every parameter of the kernel, outputs too."""
        return self.func.program.params

    @property
    def result_idx(self) -> list[int]:
        """The positions of the parameters that a call returns."""
        return list(self.func.program.returns)

    def inputs(self, symbols: Mapping[str, int] | None = None) -> list[Any]:
        """Made-up tensors for the parameters that a caller passes."""
        return supply_tensors(self.func.program, self.supply, symbols)

    def _inputs(
        self, given: Sequence[Any] | None, symbols: Mapping[str, int] | None = None
    ) -> list[Any]:
        return self.inputs(symbols) if given is None else list(given)

    def __call__(self, *args: Any) -> Any:
        return self.func(*args)

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """Call the kernel, or `func`, once."""
        return (func or self.func)(*self.inputs())

    def assert_allclose(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Compare with a reference that is called with the same tensors.

        Raises `CheckError`, an `AssertionError`, where too many elements differ.
        """
        pairs = result_pairs(self.func, self._inputs(input_tensors), reference_program)
        for got, want in pairs:
            assert_close(got, want, rtol, atol, max_mismatched_ratio, f"'{self.func.name}'")

    def manual_assert_close(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[[list[Any], list[Any]], Any] | None = None,
    ) -> None:
        """Hand both results to `manual_check_prog`, which raises where they differ."""
        pairs = result_pairs(self.func, self._inputs(input_tensors), reference_program)
        if manual_check_prog is not None:
            manual_check_prog([got for got, _ in pairs], [want for _, want in pairs])

    def assert_consistent(self, repeat: int = 10) -> None:
        """Raise `CheckError` unless `repeat` further calls give bit by bit the same results."""
        inputs = self.inputs()
        first = listed(self.func(*inputs))
        for _ in range(repeat):
            for got, want in zip(listed(self.func(*inputs)), first, strict=True):
                if not bool(((got == want) | ((got != got) & (want != want))).all()):
                    raise CheckError(f"'{self.func.name}' gives different results on equal inputs")

    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        backend: str = "event",
        quantiles: Sequence[float] | None = None,
        return_mode: timing.Statistic = "mean",
        dynamic_symbolic_constraints: Mapping[str, int] | None = None,
        **_: Any,
    ) -> Any:
        """Milliseconds per call of the kernel, or of `func` with the kernel's tensors.

        The number of calls follows from `warmup` and `rep` milliseconds; what chooses it or a GPU's
        timer otherwise is accepted. Warns of a kernel that is simulated, whose time says nothing.
        """
        inputs = self._inputs(input_tensors, dynamic_symbolic_constraints)
        called = func or self.func
        return do_bench(
            lambda: called(*inputs), warmup, rep, quantiles=quantiles, return_mode=return_mode
        )
