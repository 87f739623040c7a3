"""Comparing a kernel's outputs with those of a reference, and what the simulator says beside it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.bench.units import told_apart
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    CheckError,
    Note,
    RunError,
    SimulatorLimitError,
    UnsupportedError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.workbench.inputs import read_parameters, written_parameters
from tileworkbench.workbench.locating import STATEMENTS, blank_map, explain, locate
from tileworkbench.workbench.poisoning import compiled_with_poison
from tileworkbench.workbench.replays import trouble_in, trouble_of
from tileworkbench.workbench.results import CheckResult
from tileworkbench.workbench.simulation import look

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.report import SimReport
    from tileworkbench.viz.model.error_map import ErrorMap
    from tileworkbench.workbench.kernel import Kernel

Array = np.ndarray[Any, Any]

# Relative tolerance by dtype; the absolute one is the same share of the largest element of the
# reference, so that cancellation in a long sum is not taken for an error.
_TOLERANCE = {
    "float64": 1e-10,
    "float32": 1e-4,
    "float16": 5e-3,
    "bfloat16": 2e-2,
}
_TOLERANCE_SMALL_FLOAT = 0.1
# Tensor cores take float32 operands as tf32, with 10 bits of mantissa.
_TOLERANCE_TF32 = 5e-3


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A relative and an absolute tolerance (None: the same share of the largest element), and what
    they are those of.
    """

    relative: float
    reason: str
    absolute: float | None = None


def tolerance_of(dtype: str, reference: str = "", tf32: bool = False) -> Tolerance:
    """What an output of `dtype` may deviate by from a reference whose result is of dtype
    `reference`: a result that was rounded to fewer bits is no more exact than these.
    """
    tolerance = Tolerance(_relative(dtype), dtype)
    if tf32 and dtype in ("float32", "float64"):
        tolerance = Tolerance(_TOLERANCE_TF32, "tf32, in which tensor cores multiply float32")
    if _relative(reference) > tolerance.relative:
        return Tolerance(_relative(reference), f"{reference}, the dtype of the reference's result")
    return tolerance


def _relative(dtype: str) -> float:
    return _TOLERANCE.get(dtype, _TOLERANCE_SMALL_FLOAT if dtype.startswith("float8") else 0.0)


def rounds_to_tf32(kernel: Kernel) -> bool:
    """Whether the kernel multiplies float32 tiles on tensor cores."""
    if kernel.compiled.target.kind != "cuda":
        return False
    gemms = [stmt for stmt in statements(kernel.program.body) if isinstance(stmt, Gemm)]
    return any(gemm.a.buffer.dtype == "float32" for gemm in gemms)


def check_kernel(
    kernel: Kernel,
    reference: Callable[..., Any],
    args: Sequence[Any],
    rtol: float | None,
    atol: float | None,
    sanitize: bool,
) -> CheckResult:
    """Simulate some blocks (with `sanitize` all, and indices that come from data are errors), run
    `kernel` on outputs that hold NaN or bytes 0xCD, as tiles do that it reads before it writes
    them, call `reference`, and compare every output.

    A kernel that returns nothing is judged by the parameters it writes. The reference is called
    without those that the kernel only writes, and returns them all, in order.

    Raises `RaceError` or another `RunError` for what the simulator finds, `CheckError` for results
    that differ; both have the kernel's warnings as notes.
    """
    kernel.compiled.signature.bind(tuple(args))  # wrong arguments are the first thing to say
    simulated = ""
    try:
        simulated = _simulated(kernel, args, sanitize)
        worst, limit, nans = _compared(kernel, reference, args, rtol, atol)
    except RunError as error:
        error.kernel = kernel
        if kernel._trouble is None:
            # Shapes that differ are no block's fault; a deadlock may be that of any.
            trouble_in(kernel, args, (0,) if isinstance(error, CheckError) else ())
        looked = (Note(f"the simulator found nothing wrong: {simulated}"),) if simulated else ()
        error.notes = (*kernel.warnings, *error.notes, *looked)
        raise
    return CheckResult(True, worst, limit, _name_of(reference), simulated, nans)


def _simulated(kernel: Kernel, args: Sequence[Any], sanitize: bool) -> str:
    """How much of the call the simulator has looked at. Raises what it finds wrong."""
    everything = sanitize or kernel.has_unguarded_indices
    try:
        report: SimReport = look(kernel, args, everything, sanitize)
    except (UnsupportedError, SimulatorLimitError) as error:
        return f"not simulated: {error.message}"
    kernel.note_masked(report)
    failure = report.error()
    trouble_of(kernel, args, report)
    if failure is not None and kernel.target.startswith("sim:"):
        return ""  # the call simulates the threads, and says which of them meet
    if failure is not None:
        raise failure
    return f"{report.extent} simulated"


def _compared(
    kernel: Kernel,
    reference: Callable[..., Any],
    args: Sequence[Any],
    rtol: float | None,
    atol: float | None,
) -> tuple[float, float, int]:
    """The largest error and the largest tolerance of all outputs, and how many elements are NaN in
    both. Raises `CheckError`.
    """
    program = kernel.program
    compiled = compiled_with_poison(kernel)
    params = [param.value for param in program.params]
    before = _before(program, args)
    if program.returns:
        returned = [params[index] for index in program.returns]
        compared = [value for value in returned if isinstance(value, Buffer)]
        inputs: Sequence[Any] = args
        outputs = listed(compiled.call_poisoned(*args))
    else:
        compared = written_parameters(program)
        inputs = _reference_inputs(program, args)
        compiled.call_poisoned(*args)
        outputs = [args[params.index(buffer)] for buffer in compared]
    expected = listed(_call_reference(kernel, reference, inputs))
    if len(expected) != len(outputs):
        raise ArgumentError(
            f"'{kernel.name}' has {_outputs(len(outputs))}, the reference {len(expected)}"
        )
    worst, limit, nans = 0.0, 0.0, 0
    for buffer, got, want in zip(compared, outputs, expected, strict=True):
        tolerance = tolerance_of(str(buffer.dtype), _dtype_of(want), rounds_to_tf32(kernel))
        if rtol is not None or atol is not None:
            relative = tolerance.relative if rtol is None else rtol
            tolerance = Tolerance(relative, "what was asked for", atol)
        try:
            wanted = _expected(kernel, buffer.name, want)
            error, allowed = _compare(kernel, buffer.name, wide(got), wanted, tolerance)
            nans += int(np.count_nonzero(np.isnan(wanted)))  # the output's too, or they differ
        except CheckError as failed:
            if failed.map is not None:
                located = locate(kernel, before, failed.map, most_statements=STATEMENTS)
                kernel._failed = (located, before)
                kernel._check = _failure(failed.map, tolerance, _name_of(reference))
                trouble_in(kernel, before, [located.first_block])
                explain(failed, kernel._failed[0], kernel)
            raise
        worst, limit = max(worst, error), max(limit, allowed)
    return worst, limit, nans


def _failure(errors: ErrorMap, tolerance: Tolerance, reference: str) -> CheckResult:
    """What a card says of a check that has failed."""
    worst = absolute_error(errors.got, errors.expected).max()
    allowed = allowed_error(errors.expected, tolerance.relative, tolerance.absolute).max()
    return CheckResult(False, float(worst), float(allowed), reference)


def _name_of(reference: Callable[..., Any]) -> str:
    return getattr(reference, "__name__", "") or type(reference).__name__


def _dtype_of(value: Any) -> str:
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def _call_reference(kernel: Kernel, reference: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """What `reference` returns. Raises `ArgumentError` where it does not take the inputs."""
    try:
        inspect.signature(reference).bind(*inputs)
    except ValueError:  # a function without a signature says itself what it does not take
        pass
    except TypeError as error:
        raise ArgumentError(
            f"the reference is called with the {_inputs(len(inputs))} of '{kernel.name}': {error}",
            hint="let it take these arguments, and return what the kernel computes",
        ) from None
    try:
        return reference(*inputs)
    except Exception as error:
        name = _name_of(reference)
        error.add_note(
            f"'{name}' raised this, the reference of a check of '{kernel.name}', on the kernel's "
            f"{_inputs(len(inputs))}: nothing was compared"
        )
        raise


def _expected(kernel: Kernel, name: str, value: Any) -> Array:
    """What a reference returned for one output. Raises `ArgumentError` for what is no array."""
    try:
        return wide(value)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"the reference returns {type(value).__name__} for the output '{name}' of "
            f"'{kernel.name}', which is no array of numbers",
            hint="return an array or a tensor for each output, in order",
        ) from None


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"


def _outputs(count: int) -> str:
    return "1 output" if count == 1 else f"{count} outputs"


def _reference_inputs(program: Program, args: Sequence[Any]) -> list[Any]:
    """The arguments that a reference needs, as they are before the kernel runs."""
    outputs, read = set(written_parameters(program)), read_parameters(program)
    given = zip(args, (param.value for param in program.params), strict=False)
    return [
        copy.deepcopy(arg) if value in outputs else arg
        for arg, value in given
        if value not in outputs or value in read
    ]


def _before(program: Program, args: Sequence[Any]) -> list[Any]:
    """The arguments as they are before the kernel runs: copies of those that it changes."""
    updated = set(written_parameters(program)) & read_parameters(program)
    return [
        copy.deepcopy(arg) if param.value in updated else arg
        for arg, param in zip(args, _passed(program), strict=True)
    ]


def _passed(program: Program) -> list[Param]:
    return [param for param in program.params if not param.output]


def listed(value: Any) -> list[Any]:
    """The values of a return: none, one, or several."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def wide(value: Any) -> Array:
    """Any array as float64 numpy (exact for every dtype we have but large int64)."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.double().numpy() if value.dtype.is_floating_point else value.numpy()
    return np.asarray(value).astype(np.float64)


def absolute_error(got: Array, want: Array) -> Array:
    """`|got - want|` of each element: 0 where both are NaN or the same infinity, NaN where one of
    them is NaN.
    """
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(same, 0.0, np.abs(got - want)))


def allowed_error(want: Array, relative: float, absolute: float | None = None) -> Array:
    """The largest error of each element. Infinities and NaN are right or wrong, never close."""
    size = np.where(np.isfinite(want), np.abs(want), 0.0)
    if absolute is None:
        absolute = relative * float(size.max(initial=0.0))
    return np.asarray(absolute + relative * size)


def _compare(
    kernel: Kernel, name: str, got: Array, want: Array, tolerance: Tolerance
) -> tuple[float, float]:
    """(largest error, largest tolerance) of one output. Raises `CheckError`."""
    if got.shape != want.shape:
        raise CheckError(
            f"output '{name}' of '{kernel.name}' has shape {got.shape}, the reference {want.shape}",
            hint="no element was compared: let the reference return an array of the same shape",
        )
    allowed = allowed_error(want, tolerance.relative, tolerance.absolute)
    error = absolute_error(got, want)
    bad = ~(error <= allowed)
    if bad.any():
        failed = _mismatch(kernel, name, (got, want), error, bad, tolerance)
        failed.map = blank_map(kernel.name, name, got, want, bad)
        raise failed
    return float(error.max(initial=0.0)), float(allowed.max(initial=0.0))


def _mismatch(
    kernel: Kernel,
    name: str,
    arrays: tuple[Array, Array],
    error: Array,
    bad: Array,
    tolerance: Tolerance,
) -> CheckError:
    """What differs and where: the count, the first element, the worst, and the box they lie in."""
    got, want = arrays
    places = np.argwhere(bad)
    first = tuple(int(i) for i in places[0])
    ranked = np.where(bad, np.where(np.isnan(error), np.inf, error), -1.0)
    worst = tuple(int(i) for i in np.unravel_index(int(ranked.argmax()), bad.shape))
    box = [(low, high + 1) for low, high in zip(places.min(0), places.max(0), strict=True)]
    where = f"all of them lie in [{', '.join(f'{low}:{high}' for low, high in box)}]"
    if box == [(0, extent) for extent in bad.shape]:
        where = "they are everywhere"
    at = ", ".join(map(str, first))
    shown, wanted = told_apart(got[first], want[first])
    return CheckError(
        f"'{kernel.name}' disagrees with the reference in {int(bad.sum())} of {bad.size} elements "
        f"of '{name}': first at [{at}], where it is {shown} instead of {wanted}; "
        f"largest error {error[worst]:.3g} at [{', '.join(map(str, worst))}]; {where}; the "
        f"relative tolerance is {tolerance.relative:g}, that of {tolerance.reason}",
        hint="the kernel's .validate(...) on these arguments names the pass that broke it, if one "
        "did; its .simulate(...) has a report of what is wrong",
    )
