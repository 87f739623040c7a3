"""Comparing a kernel with a reference, with the simulator, and its passes with each other."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.analysis.effects import owners, written_below
from tileworkbench.compiler.diagnostics import ArgumentError, CheckError, RunError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Load
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import parameters, statements, walk
from tileworkbench.compiler.ir.tile import Copy, Gemm, Reduce, Scan
from tileworkbench.compiler.runtime.arrays import view_array
from tileworkbench.viz.model.view import CheckResult

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.simulate import SimResult
    from tileworkbench.kernel import Kernel

Array = np.ndarray[Any, Any]

# Relative tolerance by dtype of the output; the absolute one is the same share of the largest
# element of the reference, so that cancellation in a long sum is not taken for an error.
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
class Validation:
    """The outcome of `validate`: every stage in order with its largest deviation from the first.

    `first_wrong` names the pass after which a result differs, or after which the simulator finds
    something wrong that it does not find in the front end's program; None when there is none.
    `finding` says what it found, if that is what is wrong.
    """

    stages: tuple[tuple[str, float], ...]
    first_wrong: str | None
    finding: str = ""

    @property
    def ok(self) -> bool:
        """Whether all stages agree."""
        return self.first_wrong is None

    def __str__(self) -> str:
        if self.first_wrong is None:
            return f"all {len(self.stages)} stages agree"
        if self.finding:
            return f"wrong after pass '{self.first_wrong}': {self.finding}"
        return f"the result changes after pass '{self.first_wrong}'"


def simulate_stage(
    kernel: Kernel, args: Sequence[Any], stage: str, blocks: Iterable[int] | None = None
) -> SimResult:
    """Run one stage of `kernel` in the simulator: "tile", "lowered" or a pass name."""
    if stage == "tile":
        program = kernel.program
    elif stage == "lowered":
        program = kernel.passes[-1].program
    else:
        program = kernel.passes[stage].program
    return _simulate(kernel.program, program, args, blocks)


def _simulate(
    origin: Program, program: Program, args: Sequence[Any], blocks: Iterable[int] | None = None
) -> SimResult:
    from tileworkbench.compiler.sim.simulate import SimOptions, simulate

    passed = [param for param in origin.params if not param.output]
    if len(args) != len(passed):
        arguments = "1 argument" if len(passed) == 1 else f"{len(passed)} arguments"
        raise ArgumentError(f"'{origin.name}' takes {arguments}, got {len(args)}")
    named = {param.name: value for param, value in zip(passed, args, strict=True)}
    for param in passed:
        if isinstance(param.value, Buffer):
            _check_contents(origin.name, param.name, named[param.name])
    options = SimOptions(blocks=None if blocks is None else tuple(blocks))
    return simulate(program, named, options=options, signature=origin)


def _check_contents(kernel: str, name: str, value: Any) -> None:
    """Raise `ArgumentError` for a tensor whose elements the simulator cannot read."""
    try:
        view = view_array(value)
    except ArgumentError as error:
        raise ArgumentError(f"'{kernel}': '{name}' {error.message}", error.hint) from None
    if view is not None and view.is_fake:
        raise ArgumentError(f"'{kernel}': '{name}' is a fake tensor, which has no contents")


def validate_passes(kernel: Kernel, args: Sequence[Any]) -> Validation:
    """Simulate the front end's program and every snapshot on the same arguments."""
    origin = _simulate(kernel.program, kernel.program, args)
    first = _results(kernel, origin)
    rtol = _TOLERANCE_TF32 if rounds_to_tf32(kernel) else None
    stages = [("tile", 0.0)]
    wrong: str | None = None
    finding = ""
    for snapshot in kernel.passes:
        if not snapshot.changed:
            continue
        try:
            result = _simulate(kernel.program, snapshot.program, args)
        except RunError as error:
            worst, violation = float("inf"), error.message
        else:
            found = _results(kernel, result)
            pairs = zip(found, first, strict=True)
            worst = max((_deviation(a, b, rtol) for a, b in pairs), default=0.0)
            violation = _new_violation(origin, result, kernel.target)
        stages.append((snapshot.name, worst))
        if wrong is None and (worst > 1.0 or violation):
            wrong, finding = snapshot.name, violation
    return Validation(tuple(stages), wrong, finding)


def _new_violation(first: SimResult, later: SimResult, target: str) -> str:
    """What is wrong in a later run though nothing was in the first, else empty.

    Vectors of a CPU also read what no lane uses: what was never written shows in the results.
    """
    if not first.report.ok:
        return ""
    harmless = later.report.uninitialised if target.startswith("cpu") else ()
    wrong = [finding for finding in later.report.findings if finding not in harmless]
    return f"{wrong[0].kind}: {wrong[0]}" if wrong else ""


def _results(kernel: Kernel, result: SimResult) -> list[tuple[Array, str]]:
    """Every tensor after a run, in the order of the parameters, with its dtype."""
    tensors = [p.value for p in kernel.program.params if isinstance(p.value, Buffer)]
    return [(_wide(result.arrays[b.name]).reshape(-1), str(b.dtype)) for b in tensors]


def rounds_to_tf32(kernel: Kernel) -> bool:
    """Whether the kernel multiplies float32 tiles on tensor cores."""
    if not kernel.target.startswith(("cuda", "sim", "ptx")):
        return False
    gemms = [stmt for stmt in statements(kernel.program.body) if isinstance(stmt, Gemm)]
    return any(gemm.a.buffer.dtype == "float32" for gemm in gemms)


def _deviation(found: tuple[Array, str], expected: tuple[Array, str], rtol: float | None) -> float:
    """The largest error in units of the dtype's tolerance."""
    (a, dtype), (b, _) = found, expected
    allowed = _allowed(b, dtype, rtol if dtype in ("float32", "float64") else None, None)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    error = np.where(same, 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(error == 0, 0.0, error / allowed)))


def make_inputs(program: Program, seed: int = 0) -> list[Any]:
    """Random torch tensors for the parameters a caller passes: normal floats, small integers.

    Raises `ArgumentError` for extents that are symbols and for scalar parameters.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    inputs = []
    for param in program.params:
        if param.output:
            continue
        buffer = param.value
        shape = None
        if isinstance(buffer, Buffer) and not buffer.strides:
            shape = [const_int(extent) for extent in buffer.shape]
        if shape is None or None in shape:
            raise ArgumentError(
                f"no inputs can be made up for '{param.name}' of '{program.name}'",
                hint="pass the arguments yourself: k.check(reference, *args), k.bench(*args)",
            )
        inputs.append(_random_tensor(torch, buffer.dtype, shape, generator))
    return inputs


def _random_tensor(torch: Any, dtype: Any, shape: list[Any], generator: Any) -> Any:
    kind = getattr(torch, str(dtype))
    if dtype.is_float:
        return torch.randn(shape, generator=generator).to(kind)
    low, high = (0, 2) if dtype.is_bool else (0, 8) if dtype.kind == "uint" else (-8, 8)
    return torch.randint(low, high, shape, generator=generator).to(kind)


def check_kernel(
    kernel: Kernel,
    reference: Callable[..., Any],
    args: Sequence[Any],
    rtol: float | None,
    atol: float | None,
) -> CheckResult:
    """Run `kernel` and `reference` and compare every output. Raises `CheckError`.

    A kernel that returns nothing is judged by the parameters it writes. The reference is called
    without those that the kernel only writes, and returns them all, in order.
    """
    params = [param.value for param in kernel.program.params]
    if kernel.program.returns:
        returned = [params[index] for index in kernel.program.returns]
        compared = [value for value in returned if isinstance(value, Buffer)]
        inputs: Sequence[Any] = args
        outputs = _listed(kernel(*args))
    else:
        compared = _written(kernel.program)
        inputs = _reference_inputs(kernel.program, args)
        kernel(*args)
        outputs = [args[params.index(buffer)] for buffer in compared]
    expected = _listed(_call_reference(kernel, reference, inputs))
    if len(expected) != len(outputs):
        raise ArgumentError(
            f"'{kernel.name}' has {_outputs(len(outputs))}, the reference {len(expected)}"
        )
    worst, limit = 0.0, 0.0
    for buffer, got, want in zip(compared, outputs, expected, strict=True):
        dtype = str(buffer.dtype)
        error, allowed = _compare(kernel, buffer.name, dtype, _wide(got), _wide(want), rtol, atol)
        worst, limit = max(worst, error), max(limit, allowed)
    name = getattr(reference, "__name__", "") or type(reference).__name__
    return CheckResult(True, worst, limit, name)


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
    return reference(*inputs)


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"


def _outputs(count: int) -> str:
    return "1 output" if count == 1 else f"{count} outputs"


def _written(program: Program) -> list[Buffer]:
    """The tensor parameters that the kernel writes, in order."""
    found = written_below(program.body)
    return [buffer for buffer in parameters(program) if buffer in found]


def _reference_inputs(program: Program, args: Sequence[Any]) -> list[Any]:
    """The arguments that a reference needs, as they are before the kernel runs."""
    aliases = owners(program.body)
    outputs, read = set(_written(program)), {aliases.get(b, b) for b in _read(program)}
    given = zip(args, (param.value for param in program.params), strict=False)
    return [
        copy.deepcopy(arg) if value in outputs else arg
        for arg, value in given
        if value not in outputs or value in read
    ]


def _read(program: Program) -> Iterator[Buffer]:
    """The buffers whose elements the kernel reads."""
    for node in walk(program.body):
        match node:
            case Load(buffer=buffer) | Reduce(src=buffer):
                yield buffer
            case Copy(src=region) | Scan(src=region):
                yield region.buffer
            case Gemm(a, b, c):
                yield from (a.buffer, b.buffer, c.buffer)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _wide(value: Any) -> Array:
    """Any array as float64 numpy (exact for every dtype we have but large int64)."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.double().numpy() if value.dtype.is_floating_point else value.numpy()
    return np.asarray(value).astype(np.float64)


def _allowed(want: Array, dtype: str, rtol: float | None, atol: float | None) -> Array:
    if rtol is None:
        default = _TOLERANCE_SMALL_FLOAT if dtype.startswith("float8") else 0.0
        rtol = _TOLERANCE.get(dtype, default)
    # Infinities and NaN are right or wrong, never close.
    size = np.where(np.isfinite(want), np.abs(want), 0.0)
    if atol is None:
        atol = rtol * float(size.max(initial=0.0))
    return np.asarray(atol + rtol * size)


def _compare(
    kernel: Kernel,
    name: str,
    dtype: str,
    got: Array,
    want: Array,
    rtol: float | None,
    atol: float | None,
) -> tuple[float, float]:
    """(largest error, largest tolerance) of one output. Raises `CheckError`."""
    if rtol is None and dtype in ("float32", "float64") and rounds_to_tf32(kernel):
        rtol = _TOLERANCE_TF32
    if got.shape != want.shape:
        raise CheckError(
            f"output '{name}' of '{kernel.name}' has shape {got.shape}, the reference {want.shape}"
        )
    allowed = _allowed(want, dtype, rtol, atol)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(got - want))
    bad = ~(error <= allowed)
    if bad.any():
        raise _mismatch(kernel, name, got, want, error, bad)
    return float(error.max(initial=0.0)), float(allowed.max(initial=0.0))


def _mismatch(
    kernel: Kernel, name: str, got: Array, want: Array, error: Array, bad: Array
) -> CheckError:
    """What differs and where: the count, the first element, the worst, and the box they lie in."""
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    ranked = np.where(bad, np.where(np.isnan(error), np.inf, error), -1.0)
    worst = tuple(int(i) for i in np.unravel_index(int(ranked.argmax()), bad.shape))
    places = np.argwhere(bad)
    box = ", ".join(
        f"{low}:{high + 1}" for low, high in zip(places.min(0), places.max(0), strict=True)
    )
    at = ", ".join(map(str, first))
    return CheckError(
        f"'{kernel.name}' disagrees with the reference in {int(bad.sum())} of {bad.size} elements "
        f"of '{name}': first at [{at}], where it is {got[first]:.6g} instead of {want[first]:.6g}; "
        f"largest error {error[worst]:.3g} at [{', '.join(map(str, worst))}]; "
        f"all of them lie in [{box}]",
        hint="k.validate(*args) tells whether a pass broke it, k.simulate(*args) what is wrong",
    )
