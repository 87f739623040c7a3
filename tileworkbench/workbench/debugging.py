"""What a `Kernel` knows of its runs in the simulator, on inputs of the user's choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tileworkbench.workbench.inputs import make_inputs

if TYPE_CHECKING:
    from tileworkbench.workbench.kernel import Kernel


class Debugging:
    """The part of a `Kernel` that looks into runs of it."""

    _inputs: tuple[Any, ...] | None = None

    def with_inputs(self: Any, *args: Any) -> Any:
        """The inputs of views that run the kernel in the simulator, in place of made-up ones; calls
        and checks have their own. They are looked at when a view runs. Returns the kernel.
        """
        self._inputs = args
        return self


def inputs_of(kernel: Kernel) -> tuple[Sequence[Any], str]:
    """The inputs on which views run a kernel, and which these are in a few words: those of
    `with_inputs`, else those of the last check where it failed, else made-up ones.

    Raises `ArgumentError` where none can be made up.
    """
    if kernel._inputs is not None:
        return kernel._inputs, "the inputs that were given"
    if kernel._failed is not None:
        return kernel._failed[1], "the inputs of the check that failed"
    return make_inputs(kernel.program), "made-up inputs (random numbers)"
