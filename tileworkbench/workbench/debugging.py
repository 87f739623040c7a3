"""What a `Kernel` knows of its runs in the simulator, on inputs of the user's choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Kernel as Launch
from tileworkbench.compiler.ir.stmt import Print
from tileworkbench.workbench.counting import CountedFacts
from tileworkbench.workbench.simulation import on_host

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.footprint.result import Footprint
    from tileworkbench.compiler.sim.numerics.result import Numerics
    from tileworkbench.compiler.sim.prints import Prints
    from tileworkbench.workbench.kernel import Kernel


class Debugging(CountedFacts):
    """The part of a `Kernel` that looks into runs of it."""

    _inputs: tuple[Any, ...] | None = None
    _numerics: Numerics | None = None
    _prints: Prints | None = None
    _footprint: tuple[Footprint, Sequence[Any], dict[int, Footprint]] | None = None

    def with_inputs(self: Any, *args: Any) -> Any:
        """The inputs of views that run the kernel in the simulator, in place of made-up ones; calls
        and checks have their own. They are looked at when a view runs. Returns the kernel.
        """
        self._inputs, self._footprint, self._numerics, self._prints = args, None, None, None
        self._counted = None
        return self

    def footprint(
        self: Any,
        *args: Any,
        blocks: Iterable[int] | None = None,
        seconds: float | None = 5.0,
    ) -> Footprint:
        """Which elements of each tensor a call loads and stores, which blocks do, how often, and
        which share of lanes is masked in which line, counted in a simulated run.

        It is on these arguments, or without any on those of `with_inputs`, of the check that
        failed, or made-up ones. `blocks` are the numbers (x fastest) of the blocks to simulate,
        None for all; of a single one it is recorded which threads do what. `seconds` is about how
        long it may take, None for no limit; `.recorded` says how far it came.

        Raises `ArgumentError` for arguments that do not fit, or a block that does not exist.
        """
        from tileworkbench.workbench.footprints import record_footprint

        given, said = (args, "the inputs that were given") if args else inputs_of(self)
        footprint = record_footprint(self, given, said, blocks, seconds)
        if blocks is None:
            self._footprint = footprint, given, {}
        return footprint

    def numerics(
        self: Any,
        *args: Any,
        block: tuple[int, ...] | None = None,
        seconds: float | None = None,
    ) -> Numerics:
        """The rounding errors of one block: after each statement what it wrote, beside the same
        program in float64, and the statement that makes the first NaN or infinity.

        The program as written runs twice in the simulator, on these arguments, or without any on
        those of `with_inputs`, of the check that failed, or made-up ones. `block` are its indices,
        x first (None: on the inputs of a check that failed the block that wrote the worst element,
        else the first). Each run ends after about so many `seconds` (None: no
        limit); what was compared by then, or before an error or an interrupt, is kept, and
        `.stopped` says so.

        Raises `UnsupportedError` where nothing is rounded, or float64 would change what the program
        means, and `ArgumentError` for arguments or a block that do not fit.
        """
        from tileworkbench.compiler.sim.numerics.replay import compare
        from tileworkbench.workbench.simulation import named_arguments

        given, said = (args, "the inputs that were given") if args else inputs_of(self)
        if block is None and not args:
            block = failing_block(self)
        program = self.program
        given = on_host(given)
        made = compare(program, named_arguments(program, given), block, said, seconds)
        self._numerics = made
        return made

    def prints(
        self: Any,
        *args: Any,
        blocks: Iterable[int] | None = None,
        seconds: float | None = None,
    ) -> Prints:
        """What `T.print` prints in a simulated run, by block and thread; nothing is written to the
        standard output. Threads are those of the lowered program for a GPU; on a CPU they are known
        where the kernel names them.

        It runs on these arguments, or without any on those of `with_inputs`, of the check that
        failed, or made-up ones. `blocks` are the numbers (x fastest) of the blocks to run, None for
        all. The run ends after about so many `seconds` (None: no limit); what was printed by then,
        or before an error or an interrupt, is kept, and `.stopped` says so.

        Raises `ArgumentError` for arguments that do not fit.
        """
        from tileworkbench.workbench.printing import record_prints

        given, said = (args, "the inputs that were given") if args else inputs_of(self)
        made = record_prints(self, given, said, blocks, seconds)
        self._prints = made
        return made

    @property
    def last_prints(self) -> Prints | None:
        """The result of the last `prints`; None where there was none."""
        return self._prints

    @cached_property
    def prints_missing(self: Any) -> str:
        """Why there is nothing to print, in one sentence; empty where there is."""
        printing = any(isinstance(stmt, Print) for stmt in statements(self.program.body))
        return "" if printing else "the kernel has no T.print"

    @property
    def last_numerics(self) -> Numerics | None:
        """The result of the last `numerics`; None where there was none."""
        return self._numerics

    @cached_property
    def numerics_missing(self: Any) -> str:
        """Why there is no replay in float64, in one sentence; empty where there is one."""
        from tileworkbench.compiler.sim.numerics.widening import widened

        try:
            widened(self.program)
        except UnsupportedError as error:
            return error.message
        return ""


def failing_block(kernel: Kernel) -> tuple[int, ...] | None:
    """The block that wrote the element with the largest error of the check whose inputs are those
    of views; None where there is none, or its writer is not known.
    """
    if kernel._inputs is not None or kernel._failed is None:
        return None
    block = kernel._failed[0].worst_block()
    launches = [stmt for stmt in statements(kernel.program.body) if isinstance(stmt, Launch)]
    fits = block is not None and len(launches) == 1 and len(launches[0].grid) == len(block)
    return tuple(block) if fits and block is not None else None


def inputs_of(kernel: Kernel) -> tuple[Sequence[Any], str]:
    """The inputs on which views run a kernel, and which these are in a few words: those of
    `with_inputs`, else those of the last check where it failed, else made-up ones.

    Raises `ArgumentError` where none can be made up.
    """
    if kernel._inputs is not None:
        return kernel._inputs, "the inputs that were given"
    if kernel._failed is not None:
        return kernel._failed[1], "the inputs of the check that failed"
    from tileworkbench.workbench.inputs import simulated_inputs

    return simulated_inputs(kernel.program), "made-up inputs (random numbers)"
