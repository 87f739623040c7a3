"""`tw.jit`, `tw.compile` and their kin: the public way from a Python function to a `Kernel`."""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.compilation import CompiledKernel, Options, Source
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    CompileError,
    NotOneKernelError,
    TileError,
    TileTypeError,
)
from tileworkbench.compiler.driver import compile_program, resolve_target
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.eager import Specialisation
from tileworkbench.compiler.frontend.function import (
    EagerFunction,
    PrimFunc,
    is_lazy,
    with_outputs,
)
from tileworkbench.compiler.frontend.source import FunctionSource
from tileworkbench.compiler.frontend.values import hashable
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.machine.tables import ARCHITECTURES
from tileworkbench.workbench.kernel import Kernel

OutIdx = int | Sequence[int] | None
MakeKernel = Callable[[CompiledKernel], Kernel]


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target, whether this machine can run it, and why not."""

    name: str
    usable: bool
    reason: str = ""


def targets() -> list[TargetStatus]:
    """Every target with what is usable on this machine and why the others are not."""
    from tileworkbench.compiler.device.amd.clang import missing_compiler
    from tileworkbench.compiler.device.amd.driver import missing_device as missing_hip
    from tileworkbench.compiler.device.nvidia.driver import missing_device
    from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc

    statuses = [_status(name) for name in ("cpu", "cpu:avx512", "cpu:avx2", "cpu:generic")]
    device, nvrtc = missing_device() or "", missing_nvrtc() or ""
    clang = missing_compiler() or ""
    for arch in ARCHITECTURES:
        if arch.startswith("gfx"):
            absent = missing_hip(arch) or ""
            statuses.append(TargetStatus(f"hip:{arch}", not absent, absent))
            statuses.append(TargetStatus(f"sim:{arch}", True))
            statuses.append(TargetStatus(f"emu:{arch}", not clang, clang))
            continue
        statuses.append(TargetStatus(f"cuda:{arch}", not (device or nvrtc), device or nvrtc))
        statuses.append(TargetStatus(f"sim:{arch}", True))
        statuses.append(TargetStatus(f"ptx:{arch}", not nvrtc, nvrtc))
    return statuses


def _status(name: str) -> TargetStatus:
    try:
        resolve_target(name)
    except TileError as error:
        return TargetStatus(name, False, error.message)
    return TargetStatus(name, True)


def compile(
    func: PrimFunc,
    out_idx: OutIdx = None,
    execution_backend: str | None = None,
    target: str | None = None,
    target_host: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[str, Any] | None = None,
    compile_flags: Sequence[str] | str | None = None,
    *,
    allow_alias: bool = False,
    sanitize: bool = False,
    disable: Sequence[str] = (),
    fast_math: bool | None = None,
) -> Kernel:
    """Compile a `T.prim_func`.

    `out_idx` names the tensor parameters that the call allocates and returns (negative ones count
    from the end). `target` is a spelling of `tw.targets()`, default "auto". `allow_alias` drops the
    check that written tensors overlap no other. With `sanitize` an access of a tensor by an index
    that comes from data, is outside, and that nothing in the kernel guards raises
    `OutOfBoundsError` when the kernel runs. `disable` names optional passes to switch off: those of
    which `kernel.passes` says what is `lost` without them. With `fast_math` CUDA code takes faster
    float32 instructions: denormals are zero, divisions and exp2 are off by up to 2 ulp, exp(x) by
    2 + 1.2 |x| ulp, log(x) by 3 ulp or, for x in [0.5, 2], 2^-21, sin and cos by 2^-21 within
    [-pi, pi] and by any amount outside (CUDA C++ Programming Guide, "Intrinsic Functions"). HIP
    code takes the hardware's exp2, log2, division and square root, too, and denormals are zero.
    Other targets, `emu:` among them, compute as without it. None takes it from `pass_configs`,
    "tl.enable_fast_math".
    `execution_backend`, `target_host`, `verbose`, other `pass_configs` and `compile_flags` are
    accepted for scripts that give them; nothing here depends on them.

    Raises `CompileError` kinds for a kernel that cannot be compiled, `TileValueError` for a name in
    `disable` that is no optional pass of the target.
    """
    fast = is_fast(pass_configs) if fast_math is None else fast_math
    options = Options(allow_alias, sanitize=sanitize, disabled=tuple(disable), fast_math=fast)
    return compile_prim_func(func, out_idx, target, options, Kernel)


def is_fast(pass_configs: Mapping[str, Any] | None) -> bool:
    """Whether the options of TileLang's passes ask for fast float32 instructions."""
    return bool((pass_configs or {}).get("tl.enable_fast_math", False))


def compile_prim_func(
    func: PrimFunc, out_idx: OutIdx, target: str | None, options: Options, make: MakeKernel
) -> Kernel:
    """`compile`, where `make` turns the compiled kernel into what is returned."""
    if not isinstance(func, PrimFunc):
        raise TileTypeError(
            f"tw.compile takes a T.prim_func, not '{type(func).__name__}'",
            hint="decorate a function with @T.prim_func, or use @tw.jit and its .compile()",
        )
    func = func.for_target(target)
    options = replace(options, defaults=func.defaults)
    return _recipe(with_outputs(func.program, out_idx), target, func.source, options).compile(make)


def _recipe(
    program: Program, target: str | None, source: FunctionSource, options: Options
) -> Recipe:
    where = Source(source.text, source.file, source.first_line)
    return Recipe(program, target or "auto", where, options)


def prim_func_of(kernel: Kernel) -> PrimFunc:
    """The function that a kernel was compiled from."""
    record = kernel.record
    text = FunctionSource(record.source, record.source_file, record.first_line)
    return PrimFunc(record.program, text)


def compile_each(jobs: Iterable[Callable[[], Any]], ignore_error: bool) -> list[Any]:
    """What each of `jobs` compiles; with `ignore_error` None and a warning for one that fails."""
    made: list[Any] = []
    for number, job in enumerate(jobs):
        try:
            made.append(job())
        except (CompileError, ArgumentError) as error:
            if not ignore_error:
                raise
            warnings.warn(f"configuration {number} cannot be compiled: {error}", stacklevel=3)
            made.append(None)
    return made


def _unchanged(program: Program) -> Program:
    return program


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a kernel is compiled from, as plain data that another process can compile, too."""

    program: Program
    target: str
    source: Source
    options: Options

    @staticmethod
    def of(kernel: Kernel) -> Recipe:
        """What a kernel was compiled from."""
        record = kernel.record
        where = Source(record.source, record.source_file, record.first_line)
        return Recipe(record.program, record.target, where, kernel.compiled.options)

    def compile(self, make: MakeKernel = Kernel, trace_us: float = 0.0) -> Kernel:
        """The kernel."""
        program, target, source = self.program, self.target, self.source
        return make(
            compile_program(program, target, source=source, options=self.options, trace_us=trace_us)
        )


_PLAIN = Options()
# The methods of `Kernel` that take the arguments of a call, and how many of their own come before.
_OF_ARGUMENTS = {"bench": 0, "check": 1, "simulate": 0, "validate": 0}
_LISTED = 8  # kernels that a message lists


class Jit:
    """A kernel function compiled on demand; see `jit`.

    `kernel` is the kernel of the last call or compilation, None before. What a `Kernel` has and a
    function has not, such as `show` and `expect`, is that of the kernel it is compiled to; an
    error lists them where there are several. `prepare` is given each traced program and returns the
    one to compile, `make` turns each compiled kernel into the object that a caller gets.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        out_idx: OutIdx = None,
        target: str | None = None,
        options: Options = _PLAIN,
        make: MakeKernel = Kernel,
        prepare: Callable[[Program], Program] = _unchanged,
    ) -> None:
        fn = getattr(fn, "for_target", lambda _: fn)(target)  # the library's defaults for it
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.target = target
        self.kernel: Kernel | None = None
        self.options = options
        self._out_idx = out_idx
        self._make, self._prepare = make, prepare
        self._kernels: dict[Any, Kernel] = {}
        self._forms: dict[Any, Kernel] = {}
        self._eager: EagerFunction | None = None if is_lazy(fn) else EagerFunction(fn)
        if self._eager is not None and out_idx is not None:
            raise ArgumentError(
                f"'{fn.__name__}': out_idx belongs to functions that return a T.prim_func",
                hint="declare outputs with T.empty and return them",
            )

    if not TYPE_CHECKING:  # a type checker shall still find names that nobody has

        def __getattr__(self, name: str) -> Any:
            """What a `Kernel` has, of the one that is compiled: `mm.show("banks")`. A method that
            takes the arguments of a call is that of the kernel for them: `mm.bench(a, b)`.
            """
            compiled = getattr(self.__dict__.get("kernel"), "__dict__", {})
            if name.startswith("_") or not (hasattr(Kernel, name) or name in compiled):
                raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")
            if name in _OF_ARGUMENTS and self.is_eager:
                return functools.partial(self._call_method, name)
            return getattr(self._only_kernel(name), name)

        def __dir__(self) -> list[str]:
            return [*super().__dir__(), *(name for name in dir(self.kernel) if name[0] != "_")]

    def _call_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A method of `_OF_ARGUMENTS`, of the kernel that a call with these arguments runs."""
        before = _OF_ARGUMENTS[name]
        own, given = args[:before], args[before:]
        kernel, passed = self.prepare(*given) if given else (self._only_kernel(name), ())
        return getattr(kernel, name)(*own, *passed, **kwargs)

    def _only_kernel(self, name: str) -> Kernel:
        """The one compiled kernel, compiled now where no shape is missing; `name` is what is asked
        of it. Raises `NotOneKernelError` where there is none, or more than one.
        """
        called = self.fn.__name__
        if len(self._kernels) > 1:
            calls = [f"  {called}.compile({_named(each)})" for each in self._kernels]
            raise NotOneKernelError(
                f"'{called}' is compiled for these shapes: pick one, and ask it for '{name}':\n"
                + "\n".join(dict.fromkeys(calls[-_LISTED:]))
            )
        if not self._kernels and self.constants({})[1]:
            raise NotOneKernelError(
                f"'{name}' is of a compiled kernel, and '{called}' is not compiled yet: call "
                f"it, or {called}.compile(...)"
            )
        return next(iter(self._kernels.values()), None) or self.compile()

    @property
    def signature(self) -> inspect.Signature:
        """The function's signature."""
        return inspect.signature(self.fn)

    @property
    def out_idx(self) -> OutIdx:
        """The parameters of a lazy function's kernel that a call returns, as they were given."""
        return self._out_idx

    @property
    def is_eager(self) -> bool:
        """Whether the function's body is the kernel itself."""
        return self._eager is not None

    def with_target(
        self,
        target: str | None,
        *,
        sanitize: bool | None = None,
        disable: Sequence[str] | None = None,
        fast_math: bool | None = None,
    ) -> Jit:
        """The same function, to be compiled for `target`, with or without `sanitize` and
        `fast_math`, and without the passes of `disable`; None keeps what it has.
        """
        disabled = None if disable is None else tuple(disable)
        given = {"sanitize": sanitize, "disabled": disabled, "fast_math": fast_math}
        changes: dict[str, Any] = {k: value for k, value in given.items() if value is not None}
        options = replace(self.options, **changes)
        return Jit(self.fn, self._out_idx, target, options, self._make, self._prepare)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Eager: compile for these arguments where needed, run, return the outputs.

        Lazy: compile and return the `Kernel`.
        """
        eager = self._eager
        if eager is None:
            self.kernel = self._compile_lazy(args, kwargs)
            return self.kernel
        form = None if kwargs else self.form(*args)
        kernel = None if form is None else self._forms.get(form)
        if kernel is None:
            specialisation, run_time = eager.bind(args, kwargs)
            kernel = self._compile_eager(eager, specialisation, run_time)
            if form is not None and len(run_time) == len(args):
                self._forms[form] = kernel
            self.kernel = kernel
            return kernel(*run_time)
        self.kernel = kernel
        return kernel(*args)

    def form(self, *args: Any) -> tuple[Any, ...] | None:
        """What the choice of a kernel for a call depends on: dtypes, shapes and strides. None where
        more has to be looked at.
        """
        eager = self._eager
        if eager is None:
            return None
        parts: list[Any] = []
        for value, kind in zip(args, eager.kinds.values(), strict=False):
            if kind == "tensor" and (form := _tensor_form(value)) is not None:
                parts.append(form)
            elif kind != "scalar":
                return None
        return tuple(parts)

    def compile(self, *args: Any, **kwargs: Any) -> Kernel:
        """The kernel for these arguments, without running it.

        Eager functions take the arguments of a call, positionally or by name, and `T.const` values
        by name. A `T.Tensor(shape, dtype)` may stand for a tensor, and what no constant is read
        from may be left out.
        """
        eager = self._eager
        if eager is None:
            self.kernel = self._compile_lazy(args, kwargs)
        else:
            specialisation = eager.specialise(*args, **kwargs)
            self.kernel = self._compile_eager(eager, specialisation)
        return self.kernel

    def is_call(self, *args: Any, **kwargs: Any) -> bool:
        """Whether these are the arguments of a call that runs a kernel: all of them, and tensors,
        not what stands for one in `compile`.
        """
        return self._eager is not None and self._eager.is_call(args, kwargs)

    def run_time(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What the kernel of a call with these arguments is run with; a lazy function's call runs
        nothing.
        """
        return () if self._eager is None else self._eager.bind(args, kwargs)[1]

    def shape_class(self, *args: Any, **kwargs: Any) -> Any:
        """What a call or `compile` with these arguments compiles for: arguments and constants, and
        no extent that is symbolic. Two of them are equal where one kernel serves both.
        """
        if self._eager is None:
            arguments = self._arguments(args, kwargs)
            return tuple((name, hashable(value)) for name, value in arguments.items())
        if self.is_call(*args, **kwargs):
            return self._eager.bind(args, kwargs)[0]
        return self._eager.specialise(*args, **kwargs)

    def prepare(self, *args: Any, **kwargs: Any) -> tuple[Kernel, tuple[Any, ...]]:
        """(the kernel that a call with these arguments runs, the arguments it is run with).

        A lazy function's call runs nothing: it takes no arguments.
        """
        if self._eager is None:
            return self._compile_lazy(args, kwargs), ()
        specialisation, run_time = self._eager.bind(args, kwargs)
        return self._compile_eager(self._eager, specialisation, run_time), run_time

    def trace(self, *args: Any, **kwargs: Any) -> Program:
        """The program that a call or `compile` with these arguments compiles, before any pass."""
        return self.recipe(*args, **kwargs)[0].program

    def recipe(self, *args: Any, **kwargs: Any) -> tuple[Recipe, tuple[Any, ...] | None]:
        """(what a call or `compile` with these arguments compiles, the arguments that the kernel is
        run with: None where these are not a call's).
        """
        eager = self._eager
        if eager is None:
            return self._lazy_recipe(self._arguments(args, kwargs), args, kwargs), None
        if not self.is_call(*args, **kwargs):
            return self._eager_recipe(eager, eager.specialise(*args, **kwargs)), None
        specialisation, run_time = eager.bind(args, kwargs)
        return self._eager_recipe(eager, specialisation), run_time

    def _eager_recipe(self, eager: EagerFunction, specialisation: Any) -> Recipe:
        program = self._prepare(eager.trace(specialisation))
        shown = dict(specialisation.arguments) | dict(specialisation.constants)
        return _recipe(program, self.target, eager.source, self._options(shown))

    def _lazy_recipe(
        self, arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Recipe:
        func = self._traced(args, kwargs)
        program = self._prepare(with_outputs(func.program, self._out_idx))
        options = replace(self._options(arguments), defaults=func.defaults)
        return _recipe(program, self.target, func.source, options)

    def constants(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """(the part of `values` that a compilation by name takes, the names it still lacks).

        Names are compile-time arguments and `T.const` constants.
        """
        parameters = self.signature.parameters
        kinds = {} if self._eager is None else self._eager.kinds
        constants = [name for name in parameters if kinds.get(name, "constant") == "constant"]
        named = {name: parameters[name].default for name in constants}
        used = {name: values[name] for name in named if name in values}
        empty = inspect.Parameter.empty
        missing = [name for name, default in named.items() if default is empty and name not in used]
        if self._eager is not None and not missing:
            arguments = {name: used.get(name, default) for name, default in named.items()}
            for name in self._eager.constant_names(arguments):
                if name in values:
                    used[name] = values[name]
                else:
                    missing.append(name)
        return used, missing

    def par_compile(
        self,
        configs: Sequence[Mapping[str, Any] | tuple[Any, ...]],
        num_workers: int | None = None,
        ignore_error: bool = False,
    ) -> list[Any]:
        """One kernel per configuration: a dict of keyword or a tuple of positional arguments.

        With `ignore_error` one that cannot be compiled gives None and a warning.
        """

        def job(config: Mapping[str, Any] | tuple[Any, ...]) -> Callable[[], Any]:
            if isinstance(config, Mapping):
                return functools.partial(self.compile, **config)
            return functools.partial(self.compile, *config)

        return compile_each(map(job, configs), ignore_error)

    def get_tir(self, *args: Any, **kwargs: Any) -> PrimFunc:
        """The function that `compile` compiles for these arguments; as text with `str`."""
        eager = self._eager
        if eager is None:
            return self._traced(args, kwargs)
        specialisation = eager.specialise(*args, **kwargs)
        return PrimFunc(eager.trace(specialisation), eager.source)

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The generated code for these arguments."""
        return self.compile(*args, **kwargs).source

    def _options(self, arguments: Mapping[str, Any]) -> Options:
        shown = _constants_of(self.fn) | dict(arguments)
        constants = tuple((name, repr(value)) for name, value in shown.items())
        return replace(self.options, constants=constants)

    def _compile_eager(
        self, eager: EagerFunction, specialisation: Any, run_time: tuple[Any, ...] | None = None
    ) -> Kernel:
        """The kernel, which is kept unless it refuses the arguments of a call."""
        known = self._kernels.get(specialisation)
        if known is None:
            start = time.perf_counter()
            recipe = self._eager_recipe(eager, specialisation)
            known = recipe.compile(self._make, (time.perf_counter() - start) * 1e6)
        if run_time is not None:
            known.compiled.signature.bind(run_time)
        self._kernels[specialisation] = known
        return known

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Every argument of a call by name, defaults included."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"'{self.fn.__name__}': {error}") from None
        bound.apply_defaults()
        return bound.arguments

    def _compile_lazy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kernel:
        arguments = self._arguments(args, kwargs)
        key = tuple((name, hashable(value)) for name, value in arguments.items())
        try:
            known = self._kernels.get(key)
        except TypeError as error:
            raise TileTypeError(f"'{self.fn.__name__}': an argument has no hash: {error}") from None
        if known is None:
            start = time.perf_counter()
            recipe = self._lazy_recipe(arguments, args, kwargs)
            known = recipe.compile(self._make, (time.perf_counter() - start) * 1e6)
            self._kernels[key] = known
        return known

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PrimFunc:
        """What a lazy function returns for these arguments."""
        func = self.fn(*args, **kwargs)
        if not isinstance(func, PrimFunc):
            raise TileTypeError(
                f"'{self.fn.__name__}' returned '{type(func).__name__}', not a T.prim_func",
                hint="a function under @tw.jit is a kernel itself or returns a T.prim_func",
            )
        return func

    def __repr__(self) -> str:
        style = "eager" if self.is_eager else "lazy"
        return f"<tw.jit {self.fn.__name__}: {style}, {len(self._kernels)} compiled>"


def _named(specialisation: Any) -> str:
    """The constants of a compiled kernel as `compile` takes them."""
    constants = specialisation
    if isinstance(specialisation, Specialisation):
        constants = (*specialisation.arguments, *specialisation.constants)
    return ", ".join(f"{name}={value!r}" for name, value in constants)


def _tensor_form(value: Any) -> tuple[Any, ...] | None:
    """Dtype, shape and strides of a tensor, None where it has none."""
    try:
        stride = getattr(value, "stride", None)
        step = stride() if callable(stride) else getattr(value, "strides", None)
        return value.dtype, tuple(value.shape), step
    except (AttributeError, RuntimeError):  # no tensor, or a nested one
        return None


def _constants_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The numbers and strings that a function closes over: they made it the kernel it is."""
    names = inspect.getclosurevars(fn).nonlocals
    return {name: value for name, value in names.items() if isinstance(value, int | float | str)}


def jit(
    func: Callable[..., Any] | None = None,
    *,
    out_idx: OutIdx = None,
    target: str | None = None,
    target_host: str | None = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[str, Any] | None = None,
    debug_root_path: str | None = None,
    compile_flags: Sequence[str] | str | None = None,
    allow_alias: bool = False,
    sanitize: bool = False,
    disable: Sequence[str] = (),
    fast_math: bool | None = None,
) -> Any:
    """Decorate a kernel function.

    *Eager*: the body is the kernel; tensor parameters are annotated `T.Tensor`, everything else is
    a compile-time constant; a call compiles (once per set of constants), runs and returns the
    `T.empty` outputs. *Lazy*: the function returns a `T.prim_func`; a call compiles and returns the
    `Kernel`. The other arguments are those of `compile`.
    """

    def decorate(func: Callable[..., Any]) -> Jit:
        if not inspect.isfunction(func):
            raise TileTypeError(f"tw.jit decorates a function, not '{type(func).__name__}'")
        fast = is_fast(pass_configs) if fast_math is None else fast_math
        disabled = tuple(disable)
        options = Options(allow_alias, sanitize=sanitize, disabled=disabled, fast_math=fast)
        return Jit(func, out_idx, target, options)

    return decorate if func is None else decorate(func)


def roofline(kernels: Any) -> Any:
    """The roofline of measured kernels (call their `.bench(...)` first) as one widget.

    Takes a kernel, a function of `tw.jit`, which stands for its last kernel, a list of these, or
    what `tw.sweep` returned. Raises `ArgumentError` for anything else. Its `figure()` is the same
    for matplotlib.
    """
    from tileworkbench.tuning.sweep import Sweep

    if isinstance(kernels, Sweep):
        return _swept_roofline(kernels)
    from tileworkbench.bench.roofline import roofline_points
    from tileworkbench.viz.widgets.roofline import RooflineWidget

    listed = kernels if isinstance(kernels, list | tuple) else [kernels]
    machine, points = roofline_points([_compiled(each) for each in listed])
    return RooflineWidget(points, machine)


def _swept_roofline(swept: Any) -> Any:
    """The widget of a sweep's points."""
    from tileworkbench.viz.widgets.roofline import RooflineWidget

    machine, points = swept.roofline()
    if machine is None or not points:
        raise ArgumentError(
            f"the sweep of '{swept.name}' has no point with a time",
            hint="no combination compiled, or shapes are symbolic: see its 'error' columns",
        )
    return RooflineWidget(points, machine)


def _compiled(value: Any) -> Kernel:
    """The kernel that `value` is or stands for."""
    kernel = value.kernel if isinstance(value, Jit) else value
    if isinstance(kernel, Kernel):
        return kernel
    what = f"'{value.fn.__name__}'" if isinstance(value, Jit) else f"a '{type(value).__name__}'"
    raise ArgumentError(
        f"tw.roofline takes kernels that were measured, not {what}",
        hint="compile it and measure it first: kernel = f.compile(...); kernel.bench(...)",
    )
