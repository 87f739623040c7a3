"""What compiling shares between targets: passes and their snapshots, steps and their times, the
record.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.analysis.evaluate import WIDER, WrappedSizeError, exact_size
from tileworkbench.compiler.analysis.hazards import find_hazards
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    Note,
    empty_grid,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import with_body
from tileworkbench.compiler.ir.stmt import Assume, seq
from tileworkbench.compiler.lowering import Edit, lower_program
from tileworkbench.compiler.record import CompileRecord, Snapshot, Stop, Timing
from tileworkbench.compiler.signature import Signature
from tileworkbench.compiler.target import MOST_BLOCKS, Target

if TYPE_CHECKING:
    from tileworkbench.compiler.device.nvidia.nvrtc import KernelResources


@dataclass(frozen=True, slots=True)
class Source:
    """Where a kernel's text came from."""

    text: str = ""
    file: str = ""
    first_line: int = 1


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may choose beyond the target."""

    allow_alias: bool = False
    constants: tuple[tuple[str, str], ...] = ()
    sanitize: bool = False  # indices that come from data are checked
    fast_math: bool = False  # approximate float32 instructions, where a target has some
    disabled: tuple[str, ...] = ()  # optional passes that are left out
    edit: Edit | None = None  # a program put between two passes
    code: str | None = None  # a text in place of the generated one
    defaults: str = ""  # the library's tile sizes in it, and where they come from

    @property
    def is_edited(self) -> bool:
        """Whether the user has written some of what the compiler makes."""
        return self.edit is not None or self.code is not None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a kernel needs of its device: shared memory of a block in bytes (what a GPU launches it
    with, what a CPU's source allocates), bytes of a CPU worker's arena, registers and spills of
    each GPU function, as far as they are known, and the nanoseconds that one core of a CPU takes
    by a rough count, None where only a call knows.
    """

    shared_bytes: int
    scratch_bytes: int = 0
    functions: tuple[KernelResources, ...] = ()
    estimated_ns: float | None = None


@dataclass(slots=True)
class CompiledKernel(ABC):
    """A compiled kernel: its record, and a call that checks its arguments before it runs.

    Calling it takes one argument per parameter that is not an output, in order, and returns the
    outputs: None, one array, or a list in the order the kernel returns them.

    `variants` are the same kernel compiled under assumptions; a call takes the first whose
    assumptions hold, else this one. `taken` is what the last call took.
    """

    record: CompileRecord
    target: Target
    signature: Signature
    options: Options = field(default=Options(), kw_only=True)
    variants: tuple[CompiledKernel, ...] = field(default=(), kw_only=True)
    taken: CompiledKernel | None = field(default=None, kw_only=True)

    @abstractmethod
    def __call__(self, *args: Any) -> Any:
        """Run it."""

    def call_poisoned(self, *args: Any) -> Any:
        """A call whose outputs hold NaN, or bytes 0xCD, before the kernel runs."""
        copy = replace(self, signature=self.signature.poisoned())
        try:
            return copy(*args)
        finally:
            self.taken = self if copy.taken is copy else copy.taken

    @property
    @abstractmethod
    def texts(self) -> Mapping[str, Callable[[], str]]:
        """What can be read of the machine code, made on request: "asm", "isa" (the machine's own
        instructions), and what else the device has.
        """

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """What it needs of its device."""

    @property
    def run_at(self) -> Callable[[Sequence[int]], None] | None:
        """What runs it on memory at these addresses, one for each parameter, outputs included, in
        order, and checks nothing. None where a call has more to do than that.
        """
        return None

    @property
    def native_launches(self) -> tuple[tuple[Any, int, float | None], ...]:
        """What `run_at` runs: (launcher, blocks, nanoseconds on one core if known) of each grid."""
        return ()


@dataclass(slots=True)
class Compilation:
    """One compilation under way: what it was given, what it takes for true besides, and the times
    of its steps so far.
    """

    program: Program
    target: Target
    source: Source
    options: Options
    facts: tuple[Expr, ...] = ()
    timings: list[Timing] = field(default_factory=list)

    def assuming(self, facts: tuple[Expr, ...]) -> Compilation:
        """The compilation of the same program for arguments of which `facts` hold."""
        body = seq([*map(Assume, facts), self.program.body])
        return replace(self, program=with_body(self.program, body), facts=facts, timings=[])

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        start = time.perf_counter()
        yield
        self.timings.append(Timing(name, (time.perf_counter() - start) * 1e6))

    def lower(self) -> tuple[Snapshot, ...]:
        """Run the passes."""
        options = self.options
        with self.step("passes"):
            return lower_program(
                self.program,
                self.target,
                options.sanitize,
                disabled=options.disabled,
                edit=options.edit,
            )

    def find_hazards(self) -> tuple[Note, ...]:
        """The warnings."""
        with self.step("analysis"):
            return find_hazards(self.program)

    def signature(
        self,
        device: str = "cpu",
        alignment: Mapping[str, int] = MappingProxyType({}),
        lowered: Program | None = None,
    ) -> Signature:
        """What a call takes, its tensors on `device` at addresses with that `alignment`, and
        allocates: the workspaces of the `lowered` program, too.
        """
        program = self.program
        if lowered is not None and len(lowered.params) > len(program.params):
            more = lowered.params[len(program.params) :]
            program = replace(program, params=(*program.params, *more))
        return Signature.of(program, device, self.options.allow_alias, alignment)

    def record(
        self,
        snapshots: tuple[Snapshot, ...],
        code: str,
        entry: str,
        warnings: tuple[Note, ...],
        *,
        target: Target | None = None,
        cached: str = "",
        variants: Sequence[CompiledKernel] = (),
        stop: Stop | None = None,
    ) -> CompileRecord:
        """What is left behind; `target` is the user's spelling where it is less precise."""
        return CompileRecord(
            name=self.program.name,
            target=str(target or self.target),
            level=self.target.arch,
            source=self.source.text,
            source_file=self.source.file,
            first_line=self.source.first_line,
            program=self.program,
            snapshots=snapshots,
            code=code,
            entry=entry,
            constants=self.options.constants,
            warnings=warnings,
            timings=tuple(self.timings),
            cached=cached,
            facts=tuple(print_expr(fact) for fact in self.facts),
            variants=tuple(variant.record for variant in variants),
            disabled=self.options.disabled,
            defaults=self.options.defaults,
            stop=stop,
        )


def grid_extents(name: str, grid: tuple[Expr, ...], numbers: Mapping[str, int]) -> list[int]:
    """The extents of a launch of kernel `name` with these symbols and scalars.

    Raises `ArgumentError` for an empty grid, and for more blocks than a launch has.
    """
    extents = []
    for axis, extent in enumerate(grid):
        try:
            extents.append(exact_size(extent, numbers))
        except WrappedSizeError as error:
            raise ArgumentError(
                f"'{name}': extent {axis} of the grid is {error.number}, which '{error.dtype}' "
                "does not hold",
                WIDER,
            ) from None
    if min(extents, default=1) < 1:
        raise empty_grid(name)
    if prod(extents) > MOST_BLOCKS:
        raise ArgumentError(
            f"'{name}': the grid has {prod(extents)} blocks; a launch has at most {MOST_BLOCKS}"
        )
    return extents
