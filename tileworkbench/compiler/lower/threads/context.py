"""What an operator is given when it is lowered to the threads of a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import prod
from typing import TYPE_CHECKING

from tileworkbench.compiler.analysis.multicasts import reached_by_threads
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import Span
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import binary, int_const, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Barrier, BarrierInit, Peer, Role, TensorMap
from tileworkbench.compiler.ir.stmt import Alloc, Atomic, AtomicKind, Kernel, Let, Stmt
from tileworkbench.compiler.ir.tile import Copy, Fill, Gemm, Parallel, Reduce, Scan
from tileworkbench.compiler.ir.types import INT32, DType
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.uses import Uses
from tileworkbench.compiler.target import Target

if TYPE_CHECKING:
    from tileworkbench.compiler.lower.threads.nests import Nest

OPERATORS = (Copy, Gemm, Fill, Reduce, Scan, Parallel)
"""What all threads of a block, or of a role, execute together."""


@dataclass(slots=True)
class KernelPrologue:
    """What operators put at the start of the kernel: register arrays, names of the thread, tensor
    maps by tensor, box and swizzle, and memory barriers.
    """

    allocs: list[Alloc] = field(default_factory=list)
    lets: dict[Expr, Let] = field(default_factory=dict)
    registers: dict[Buffer, Buffer] = field(default_factory=dict)
    maps: dict[tuple[Buffer, tuple[int, ...], int], TensorMap] = field(default_factory=dict)
    barriers: list[BarrierInit] = field(default_factory=list)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    """The numbers of the kernel's own barriers, and of those of groups of threads, by the first
    thread and the count.
    """

    @property
    def stmts(self) -> list[Stmt]:
        return [*self.maps.values(), *self.lets.values(), *self.allocs, *self.barriers]


@dataclass(frozen=True, slots=True)
class ThreadContext:
    """The target, the threads that execute the operator, and what is known about indices.

    `thread` is the linear index of a thread within the `threads` ones that take part.
    """

    target: Target
    thread: Expr
    threads: int
    ranges: Ranges
    names: Names
    safe_values: Mapping[str, Expr]
    sites: tuple[Span | None, ...]
    prologue: KernelPrologue
    start: int = 0
    """The first thread of the block that takes part."""
    block_threads: int = 0
    """All threads of the block."""
    asynchronous: bool = False
    """Whether copies may come later: in a pipelined loop, which owns commits and waits, or where
    the kernel starts them and waits itself.
    """
    nests: dict[int, tuple[Stmt, Nest]] = field(default_factory=dict)
    """Operators, by identity, as element-wise nests: they are asked for again and again."""
    started: bool = False
    """Whether the kernel starts it itself, for an engine of its choice."""
    repeated: bool = False
    """Whether it may be executed more than once."""
    uses: Uses = field(default_factory=Uses)
    """Who accesses the tensors and shared tiles of the kernel."""
    peers: Mapping[Buffer, Buffer] = field(default_factory=dict)
    """What other blocks of the cluster have, with the memory of this block that it is like."""
    reached: frozenset[Buffer] = frozenset()
    """What threads of other blocks access of this block."""
    reducers: Mapping[Buffer, AtomicKind] = field(default_factory=dict)
    """The fragments that collect contributions, of which every thread has a copy of its own."""

    @classmethod
    def of(cls, program: Program, kernel: Kernel, target: Target) -> ThreadContext:
        """The context for lowering operators of `kernel`, whose threads have one linear index."""
        ranges = Ranges(program)
        ranges.enter(kernel.thread_vars[0], int_const(0), int_const(prod(kernel.threads)), 1)
        return cls(
            target,
            kernel.thread_vars[0],
            prod(kernel.threads),
            ranges,
            Names(program),
            dict(program.safe_values),
            program.sites,
            KernelPrologue(numbers=_own_barriers(kernel.body)),
            block_threads=prod(kernel.threads),
            peers={s.buffer: s.source for s in statements(kernel.body) if isinstance(s, Peer)},
            reached=reached_by_threads(kernel.body),
            uses=Uses.of(program, kernel),
            reducers=_reducers(kernel.body),
        )

    def restricted(self, start: int, extent: int) -> ThreadContext:
        """The context of a role: only the threads `start .. start + extent - 1` of the block take
        part.
        """
        thread = sub(self.thread, int_const(start - self.start))
        return replace(self, thread=thread, threads=extent, start=start)

    @property
    def lanes(self) -> int:
        """The threads of a warp."""
        return self.target.machine.lanes

    @property
    def warp(self) -> Expr:
        """The index of the thread's warp."""
        return self.group(self.lanes)

    @property
    def lane(self) -> Expr:
        """The index of the thread within its warp."""
        return self.member(self.lanes)

    def group(self, threads: int) -> Expr:
        """The index of the thread's group of so many, a warp or a warpgroup."""
        name = "warp" if threads == self.lanes else "warpgroup"
        return self.named(name, binary("floordiv", self.thread, int_const(threads)))

    def member(self, threads: int) -> Expr:
        """The index of the thread within its group of so many."""
        name = "lane" if threads == self.lanes else "member"
        return self.named(name, binary("floormod", self.thread, int_const(threads)))

    def named(self, name: str, value: Expr) -> Expr:
        """`value`, a function of the thread alone, computed once at the start of the kernel."""
        known = self.prologue.lets.get(value)
        if known is None:
            var: Var = self.names.var(name, value.dtype)
            known = self.prologue.lets[value] = Let(var, value)
        return known.var

    def placed(self, fragment: Fragment, buffer: Buffer) -> Fragment:
        """`fragment` with the leading dimensions of `buffer`, of extent 1, on the operator's
        threads.
        """
        lead = len(buffer.shape) - 2
        if lead:
            fragment = fragment @ Layout((1,) * lead + fragment.shape, lambda *x: x[-2:])
        if self.start:
            return fragment.bind_thread_range(self.start, self.threads)
        return fragment

    def registers(self, fragment: Buffer) -> Buffer:
        """The register array of a fragment: one element per slot of its layout."""
        array = self.prologue.registers.get(fragment)
        if array is None:
            layout = fragment.layout
            if not isinstance(layout, Fragment):
                raise TypeError(f"'{fragment.name}' has no fragment layout")
            shape = (int_const(layout.slots),)
            array = Buffer(fragment.name, fragment.dtype, shape, "local")
            self.prologue.registers[fragment] = array
        return array

    def barrier(self) -> int | None:
        """The number of a barrier of the threads that take part, whole warps and not all of the
        block; None where the block has no more.
        """
        numbers, group = self.prologue.numbers, (self.start, self.threads)
        if group not in numbers:
            # Barrier 0 is the block's; a kernel's own count from 1.
            for number in range(self.target.machine.block_barriers - 1, 0, -1):
                if number not in numbers.values():
                    numbers[group] = number
                    break
            else:
                return None
        return numbers[group]

    def temporary(self, name: str, dtype: DType, elements: int, scope: str = "local") -> Buffer:
        """A fresh register array (or, for scope "shared", workspace) of this kernel."""
        buffer = Buffer(self.names.fresh(name), dtype, (int_const(elements),), scope)
        self.prologue.allocs.append(Alloc(buffer))
        return buffer

    def loop_var(self, name: str, dtype: DType = INT32) -> Var:
        """A fresh loop variable."""
        return self.names.var(name, dtype)

    def span(self, site: int) -> Span | None:
        """Where operation `site` is in the user's source."""
        return self.sites[site] if 0 <= site < len(self.sites) else None


def with_contexts(stmt: Stmt, context: ThreadContext) -> Iterator[tuple[Stmt, ThreadContext]]:
    """The tile operators in `stmt` in program order, each with the threads that execute it."""
    if isinstance(stmt, OPERATORS):
        yield stmt, context
        return
    if isinstance(stmt, Role):
        context = context.restricted(stmt.start, stmt.extent)
    for child in stmt.children():
        if isinstance(child, Stmt):
            yield from with_contexts(child, context)


def _own_barriers(body: Stmt) -> dict[tuple[int, int], int]:
    numbers = {stmt.id for stmt in statements(body) if isinstance(stmt, Barrier)}
    return {(-1, number): number for number in numbers}


def _reducers(body: Stmt) -> dict[Buffer, AtomicKind]:
    """The fragments that `body` contributes to, and how."""
    kinds: dict[Buffer, AtomicKind] = {}
    stack = [body]
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, Atomic) and stmt.buffer.scope == "local.fragment":
            kinds[stmt.buffer] = stmt.kind
        stack.extend(child for child in stmt.children() if isinstance(child, Stmt))
    return kinds
