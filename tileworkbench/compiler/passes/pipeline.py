"""The passes of each target, in order."""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.passes.assert_indices import assert_indices
from tileworkbench.compiler.passes.complete_operations import CompleteOperations
from tileworkbench.compiler.target import Target

Pass = Callable[[Program], Program]


def pipeline(target: Target, sanitize: bool = False) -> tuple[Pass, ...]:
    """The passes that take a program from the front end to code generation for `target`; with
    `sanitize` the code checks indices that come from data.
    """
    # Asynchrony that has no code ends before anything else looks at the operators. What comes from
    # data, and under which conditions, is clear in the program as it was written.
    checks = (CompleteOperations(target), *((assert_indices,) if sanitize else ()))
    # Imported here: who compiles for one does not wait for the passes of the other.
    if target.kind == "cpu":
        from tileworkbench.compiler.passes.cpu_pipeline import cpu_pipeline

        return (*checks, *cpu_pipeline(target))
    from tileworkbench.compiler.passes.gpu_pipeline import gpu_pipeline

    return (*checks, *gpu_pipeline(target))


def pass_name(pass_: Pass) -> str:
    """The name of a pass as it is shown: that of its module."""
    return getattr(pass_, "__module__", "").rsplit(".", 1)[-1]
