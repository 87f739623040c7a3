"""`tilelang.jit`, `tilelang.compile` and the kernel they give."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tileworkbench.api import (
    Jit,
    OutIdx,
    compile_each,
    compile_prim_func,
    is_fast,
    prim_func_of,
)
from tileworkbench.compat.params import KernelParam
from tileworkbench.compat.profiler import Profiler
from tileworkbench.compat.targets import read_target
from tileworkbench.compiler.compilation import CompiledKernel, Options
from tileworkbench.compiler.diagnostics import Note, TileTypeError, UnsupportedError
from tileworkbench.compiler.frontend.function import PrimFunc
from tileworkbench.tuning.supply import TensorSupplyType
from tileworkbench.workbench.kernel import Kernel


class JITKernel(Kernel):
    """A `Kernel` with the names that TileLang's scripts use: `JITKernel(prim_func, out_idx=...)` is
    what `tilelang.compile` gives.
    """

    warns_of_indices = False  # scripts count on what is masked; the simulator's report has it

    def __init__(
        self,
        func: PrimFunc,
        out_idx: OutIdx = None,
        execution_backend: str | None = "auto",
        target: Any = "auto",
        target_host: Any = None,
        verbose: bool | None = None,
        pass_configs: Mapping[str, Any] | None = None,
        from_database: bool = False,
        compile_flags: Sequence[str] | str | None = None,
    ) -> None:
        choice = read_target(target)
        make = functools.partial(self._hold, asked=choice.asked)
        if isinstance(func, PrimFunc):
            func = func.for_target(choice.target)
            func = replace(func, program=choice.prepare(func.program), remake=None)
        options = Options(fast_math=is_fast(pass_configs))
        compile_prim_func(func, out_idx, choice.target, options, make)

    @classmethod
    def of(cls, compiled: CompiledKernel, asked: str = "") -> JITKernel:
        """The kernel that was compiled where the tensors are when the target `asked` was asked
        for.
        """
        return cls.__new__(cls)._hold(compiled, asked)

    def _hold(self, compiled: CompiledKernel, asked: str) -> JITKernel:
        if asked:
            record = compiled.record
            note = Note(
                f"target '{asked}' was asked for; this kernel was compiled for '{record.target}', "
                "where the tensors are"
            )
            compiled = replace(compiled, record=replace(record, warnings=(*record.warnings, note)))
        super().__init__(compiled)
        return self

    @property
    def params(self) -> list[KernelParam]:
        """Every parameter, outputs too."""
        return [KernelParam.of(param) for param in self.program.params]

    @property
    def out_idx(self) -> list[int]:
        """The positions of the parameters that a call returns."""
        return list(self.program.returns)

    @property
    def prim_func(self) -> PrimFunc:
        """The front end's program."""
        return prim_func_of(self)

    def get_profiler(
        self, tensor_supply_type: TensorSupplyType = TensorSupplyType.Auto
    ) -> Profiler:
        """What compares and times the kernel on made-up tensors."""
        return Profiler(self, tensor_supply_type)

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """Call the kernel, or `func`, once on made-up tensors."""
        return self.get_profiler().run_once(func)

    def show_source(self, which: str = "kernel") -> None:
        """Print the generated code."""
        print(self.source if which == "kernel" else self.get_host_source())

    def export_sources(
        self, kernel_path: str | Path | None = None, host_path: str | Path | None = None
    ) -> None:
        """Write the generated code to a file."""
        if host_path is not None:
            self.get_host_source()
        if kernel_path is not None:
            Path(kernel_path).write_text(self.source, encoding="utf-8")

    def get_host_source(self) -> NoReturn:
        """Raises `UnsupportedError`: a launch on the CPU has no host program."""
        raise UnsupportedError(
            f"'{self.name}' has no host source: the CPU runs its code as it is",
            hint="get_kernel_source() is all of it",
        )

    def export_library(self, *_: Any, **__: Any) -> NoReturn:
        """Raises `UnsupportedError`: a kernel lives in the process that compiled it."""
        raise UnsupportedError(
            f"'{self.name}' cannot be written as a library",
            hint="k.export(folder) writes what it is made of",
        )

    @property
    def adapter(self) -> NoReturn:
        """Raises `AttributeError`: there is no adapter between the kernel and its call."""
        raise AttributeError(_internal("adapter"))

    @property
    def artifact(self) -> NoReturn:
        """Raises `AttributeError`: there is no TVM module behind a kernel."""
        raise AttributeError(_internal("artifact"))


def _internal(name: str) -> str:
    return f"'JITKernel.{name}' belongs to TVM, which tileworkbench is not built on"


def jit(
    func: Callable[..., Any] | None = None,
    *,
    out_idx: OutIdx = None,
    target: Any = "auto",
    target_host: Any = None,
    execution_backend: str | None = "auto",
    verbose: bool | None = None,
    pass_configs: Mapping[str, Any] | None = None,
    debug_root_path: str | None = None,
    compile_flags: Sequence[str] | str | None = None,
) -> Any:
    """`tileworkbench.jit`, where a GPU target follows the tensors' device and kernels are
    `JITKernel` objects.
    """
    choice = read_target(target)
    make = functools.partial(JITKernel.of, asked=choice.asked)

    def decorate(fn: Callable[..., Any]) -> Jit:
        if not inspect.isfunction(fn):
            raise TileTypeError(f"tilelang.jit decorates a function, not '{type(fn).__name__}'")
        options = Options(fast_math=is_fast(pass_configs))
        return Jit(fn, out_idx, choice.target, options, make, choice.prepare)

    return decorate if func is None else decorate(func)


def compile(
    func: PrimFunc,
    out_idx: OutIdx = None,
    execution_backend: str | None = "auto",
    target: Any = "auto",
    target_host: Any = None,
    verbose: bool | None = None,
    pass_configs: Mapping[str, Any] | None = None,
    compile_flags: Sequence[str] | str | None = None,
) -> JITKernel:
    """`tileworkbench.compile`, where a GPU target follows the tensors' device."""
    return JITKernel(func, out_idx, target=target, pass_configs=pass_configs)


def par_compile(
    funcs: Sequence[PrimFunc], *args: Any, num_workers: int | None = None, **kwargs: Any
) -> list[JITKernel]:
    """Compile several functions, one after the other.

    With `ignore_error` one that cannot be compiled gives None and a warning.
    """
    ignore = kwargs.pop("ignore_error", False)
    return compile_each((functools.partial(compile, f, *args, **kwargs) for f in funcs), ignore)
