"""One kernel, every way to run it, against one reference.

The simulator at each stage, and native code at each level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests import tiers
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.driver import compile_program, lower_program, resolve_target
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.sim import SimResult, simulate
from tileworkbench.language.functions import PrimFunc

Array = np.ndarray[Any, Any]
Check = Callable[[dict[str, Array]], None]  # raises when the tensors after a run are wrong

# Without vector instructions, and with all of this machine's; code that is written for each width
# apart is tested on the width between them too.
LEVELS = ("native", "generic")
ALL_LEVELS = ("native", "avx2", "generic")

# What these leave, the simulator executes lane by lane, many times slower than what `bind_blocks`
# leaves: the same vector loops, with all their lanes at once. `tests/properties/test_programs.py`
# and `tests/passes/test_stages.py` check them in every tier.
_LANE_BY_LANE = () if tiers.SLOW_TOO else ("vectorize_loops", "flatten_buffers")


def check_everywhere(
    kernel: PrimFunc | Program,
    arguments: dict[str, Any],
    check: Check,
    levels: tuple[str, ...] = LEVELS,
) -> None:
    """`check` holds for the tile program, for the program after every pass, and for native code.

    The simulator must moreover find nothing wrong at any stage. Passes are checked one by one for
    this machine's level, the level without vector instructions by its last program. In the fast
    tier two passes are checked by what follows them (`_LANE_BY_LANE`).
    """
    program = kernel if isinstance(kernel, Program) else kernel.program
    check_simulated("tile", simulate(program, arguments), check)
    for level in levels:
        target = f"cpu:{level}"
        try:
            compiled = compile_program(program, target)
        except UnsupportedError as error:
            if level == "native" or level not in error.message:
                raise
            continue  # this machine has no such level
        changed = [found for found in compiled.record.snapshots if found.changed]
        apart = [found for found in changed if found.name not in _LANE_BY_LANE]
        simulated = {"native": apart, "generic": apart[-1:]}.get(level, [])
        for found in simulated:
            result = simulate(found.program, arguments, signature=program)
            check_simulated(f"{target} after '{found.name}'", result, check)
        with named(f"{target} native code"):
            check(run_native(program, arguments, target))


def check_on_threads(
    kernel: PrimFunc | Program,
    arguments: dict[str, Any],
    check: Check,
    target: str = "sim:sm_80",
) -> None:
    """`check` holds on the threads of a GPU's block, after every pass; nothing is found wrong."""
    program = kernel if isinstance(kernel, Program) else kernel.program
    for snapshot in lower_program(program, resolve_target(target)):
        if snapshot.changed:
            result = simulate(snapshot.program, arguments, signature=program)
            check_simulated(f"{target} after '{snapshot.name}'", result, check)


def check_executors(kernel: PrimFunc | Program, arguments: dict[str, Any], check: Check) -> None:
    """`check` holds for the tile program, on a processor and on the threads of a GPU."""
    check_everywhere(kernel, arguments, check, ("native",))
    check_on_threads(kernel, arguments, check)


def check_clusters(kernel: PrimFunc | Program, arguments: dict[str, Any], check: Check) -> None:
    """`check` holds everywhere on a processor, and on the threads of a GPU that has clusters."""
    check_everywhere(kernel, arguments, check)
    check_on_threads(kernel, arguments, check, "sim:sm_90")


def check_simulated(stage: str, result: SimResult, check: Check) -> None:
    """A simulated run gives the right values, and nothing was wrong with its accesses."""
    with named(f"simulated {stage}"):
        assert result.report.ok, str(result.report)
        check(result.arrays)


def run_native(program: Program, arguments: dict[str, Any], target: str) -> dict[str, Array]:
    """Every tensor after a native run on copies of `arguments`."""
    passed = {
        name: value.copy(order="K") if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    order = [param.name for param in program.params if not param.output]
    returned = compile_program(program, target)(*[passed[name] for name in order])
    outputs = returned if isinstance(returned, list) else [returned]
    arrays = {name: value for name, value in passed.items() if isinstance(value, np.ndarray)}
    for index, value in zip(program.returns, outputs, strict=False):
        arrays[program.params[index].name] = value
    return arrays


class named:
    """A block whose failures say where they happened."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            error.add_note(f"in {self._where}")


def equals(**expected: Array) -> Check:
    """The tensors are these, to the bit (NaN equal to NaN)."""

    def check(arrays: dict[str, Array]) -> None:
        for name, value in expected.items():
            found = np.asarray(arrays[name])
            assert found.shape == value.shape, (
                f"shape {found.shape} of '{name}', expected {value.shape}"
            )
            assert found.dtype == value.dtype
            wide = np.float64 if found.dtype.kind in "fV" else found.dtype
            np.testing.assert_array_equal(found.astype(wide), value.astype(wide), err_msg=name)

    return check


def random_array(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Standard normal floats, or integers over the whole range."""
    rng = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if "int" in dtype:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return rng.standard_normal(shape).astype(storage(dtype))


def storage(dtype: str) -> np.dtype[Any]:
    """numpy's type for a dtype of the language."""
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
