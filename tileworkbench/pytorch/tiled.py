"""`tw.tile`: a function of torch operations that runs in kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tileworkbench.bench.timing import BenchResult, measure, refuse_simulated
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.pytorch.agreement import Agreement, compare_with_torch
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.breaks import breaks_of_graphs, not_captured
from tileworkbench.pytorch.report import Part, Report
from tileworkbench.pytorch.trials import MEASURED
from tileworkbench.viz.display import function_mimebundle
from tileworkbench.viz.model.bundle import Bundle
from tileworkbench.viz.model.function import FunctionView, KernelRow, OperationRow
from tileworkbench.workbench.kernel import Kernel


class Tiled:
    """A function of torch operations that runs in kernels: see `tile`.

    Attributes:
        fn: the function as it was.
        name: what it is called in its card and in cells.
        report: what became of its operations until now.
        agreement: how the last `check` came out, None without one.
        times: what the last `bench` measured, None without one.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        target: str | None,
        dynamic: bool | None = None,
        keep_slower: bool = False,
    ) -> None:
        import torch

        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.target = target
        self.name = str(getattr(fn, "__name__", type(fn).__name__))
        self.report = Report()
        self.agreement: Agreement | None = None
        self.times: BenchResult | None = None
        self._options = target, dynamic, keep_slower
        settings = Settings(target=target, keep_slower=keep_slower)
        backend = functools.partial(tile_backend, report=self.report, settings=settings)
        self._compiled = torch.compile(fn, backend=backend, dynamic=dynamic)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with breaks_of_graphs(self.report):
            result = self._compiled(*args, **kwargs)
        if not self.report.operations and not self.report.breaks:
            self.report.breaks.append(not_captured(self.name, (*args, *kwargs.values())))
        return result

    def __getattr__(self, name: str) -> Any:
        # A module keeps its parameters and submodules.
        if name == "fn" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, here or in another process, compiles what it is called with.
        return Tiled, (self.fn, *self._options), {"name": self.name}

    def __getitem__(self, name: str) -> Part:
        """The kernel of that name with its text and what it is checked against.

        Raises `ArgumentError` where there is none.
        """
        parts = {part.name: part for part in self.report.parts}
        if name not in parts:
            known = f"one of {', '.join(parts)}" if parts else self._why_none()
            raise ArgumentError(f"'{name}' is no kernel of '{self.name}'", known)
        return parts[name]

    def _why_none(self) -> str:
        """Why there are no kernels."""
        if not self.report.operations:
            return "there is none yet: call it first"
        if any(reason.startswith(MEASURED) for _, reason in self.report.in_torch):
            return "torch was faster; keep_slower=True keeps the kernels"
        return "torch runs all its operations; its report says why"

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels that were compiled until now, by name."""
        return {part.name: part.kernel for part in self.report.parts}

    @property
    def source(self) -> str:
        """The kernels as T programs, text that runs by itself."""
        return self.report.source

    def check(self, *args: Any, rtol: float | None = None, atol: float | None = None) -> Agreement:
        """Compare results, and gradients where an argument takes one, with those of the function as
        it is, on copies of these arguments.

        Tolerances are those of `Kernel.check`, by dtype, unless given. Where torch's own results
        move by more than the usual ones when arguments move by a few roundings (neighbours of a
        sort, say), as large a difference is counted and no error. Raises `CheckError` for a result
        that differs.
        """
        self.agreement = compare_with_torch(self, args, rtol, atol)
        return self.agreement

    def bench(self, *args: Any, rounds: int = 0) -> BenchResult:
        """Measure it in turns with the function as it is in torch, on these arguments; `rounds` as
        for `tw.bench`.

        Raises `UnsupportedError` where its kernels are simulated.
        """
        self(*args)
        for part in self.report.parts:
            refuse_simulated(part.name, part.kernel.target)
        calls = {self.name: lambda: self._compiled(*args), "torch": lambda: self.fn(*args)}
        measured = measure(calls, rounds)
        beside = ("torch", measured["torch"].median)
        self.times = replace(measured[self.name], against=beside)
        return self.times

    def view(self) -> FunctionView:
        """The data of its card."""
        report = self.report
        operations = (
            OperationRow(
                each.name, each.line, each.text, each.kernel, each.reason, each.in_backward
            )
            for each in report.operations
        )
        kernels = (
            KernelRow(part.name, part.source, part.kernel.target, part.cell(self.name))
            for part in report.parts
        )
        agreement = "" if self.agreement is None else str(self.agreement)
        times = "" if self.times is None else str(self.times)
        return FunctionView(
            self.name,
            report.summary,
            tuple(operations),
            tuple(kernels),
            tuple(report.breaks),
            agreement,
            times,
        )

    def __repr__(self) -> str:
        return f"<tw.tile {self.name}: {self.report}>"

    def _repr_mimebundle_(self, **_options: Any) -> Bundle:
        return function_mimebundle(self.view(), repr(self))


def tile(
    fn: Callable[..., Any] | None = None,
    *examples: Any,
    target: str | None = None,
    dynamic: bool | None = None,
    keep_slower: bool = False,
) -> Any:
    """A function of torch operations, or a module, whose groups of operations run as kernels.

    `tw.tile(fn, *examples)` calls it once with the examples, which compiles it; as a decorator,
    `@tw.tile`, it is compiled by its first call. When a size changes, it is compiled once more, for
    every such size; `dynamic` is as for `torch.compile`: True does that at once, False compiles for
    each shape. Rows that are reduced, and the width of products, are always known. Element-wise
    operations, reductions and normalisations over the last dimensions, products and convolutions
    with what follows them, embeddings and attention become kernels, as far as they are faster;
    everything else runs in torch. Which is faster is measured where no model knows; `keep_slower`
    keeps all kernels, for those who want to read or improve them, and measures nothing.
    Gradients flow as in torch, and their graphs are compiled too. `target` is as for
    `tw.compile`, and runs on the CPU: "cpu", "sim:..." or "ptx:...".

    The result is called like `fn`. Its `report` says which operations run in which kernel and
    which in torch, and why; `kernels` are the kernels by name, `source` the T programs as text.

    Raises `ArgumentError` for what cannot be called.
    """
    if fn is None:
        return functools.partial(tile, target=target, dynamic=dynamic, keep_slower=keep_slower)
    if not callable(fn):
        raise ArgumentError(f"tw.tile takes a function or a module, not a '{type(fn).__name__}'")
    tiled = Tiled(fn, target, dynamic, keep_slower)
    if examples:
        tiled(*examples)
    return tiled
