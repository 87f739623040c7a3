"""Blocks that multiply by the same operand become one block, which packs it once.

A worker takes several blocks after each other anyway. Those that differ only in their rows of the
first operand pack the same panels of the second one: a quarter of the time of a product of
bfloat16 where tile registers multiply, and of an attention with short blocks of queries. The blocks
become iterations of a loop, whose first one packs; panels of all steps along k are kept for the
others, where they fit the second-level cache. Enough blocks are left for the workers.

Before::

    with T.Kernel(8, 16, threads=128) as (bx, by):
        B_shared = T.alloc_shared((8192,), "bfloat16")
        for k in T.serial(4):
            T.pack_b(T.address_of(B[k * 64, bx * 128]), T.address_of(B_shared[0]))
            T.micro_gemm(T.address_of(A[by * 128, k * 64]), T.address_of(B_shared[0]))

After::

    with T.Kernel(8, 4, threads=128) as (bx, by_outer):
        B_shared = T.alloc_shared((32768,), "bfloat16")
        for by_inner in T.serial(4):
            by = by_outer * 4 + by_inner
            for k in T.serial(4):
                if by_inner == 0:
                    T.pack_b(T.address_of(B[k * 64, bx * 128]), T.address_of(B_shared[k * 8192]))
                T.micro_gemm(T.address_of(A[by * 128, k * 64]), T.address_of(B_shared[k * 8192]))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tileworkbench.compiler.analysis.access import depends_on, varying_lets
from tileworkbench.compiler.analysis.effects import constant_buffers, uses
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import (
    add,
    binary,
    const,
    const_int,
    int_const,
    logical,
    mul,
    sub,
)
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    statements,
    substitute,
    walk,
    with_body,
)
from tileworkbench.compiler.ir.stmt import (
    Alloc,
    Break,
    Continue,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Seq,
    Stmt,
    seq,
)
from tileworkbench.compiler.ir.tile import MicroGemm, Pack
from tileworkbench.compiler.lower.shared.regroup import MIN_BLOCKS
from tileworkbench.compiler.passes.optional import optional

_MOST_BYTES = 640 << 10  # of all panels: with rows of the other operand, a second-level cache


@optional("panels for several blocks: each block packs what it multiplies by")
def share_panels(program: Program) -> Program:
    """Join blocks that pack the same panels of a tensor."""
    if not any(isinstance(stmt, Pack) for stmt in statements(program.body)):
        return program
    return with_body(program, Rewriter(rewrite_stmt=_Sharing(program).visit)(program.body))


@dataclass(frozen=True, slots=True)
class _Panels:
    """A packing in a loop that counts from zero, `steps` times at most, and stops at `stop`, which
    is told by the numbers of blocks.
    """

    pack: Pack
    loop: For
    stop: Expr
    steps: int

    @property
    def kept(self) -> Buffer:
        """The buffer for all steps."""
        panels = self.pack.dst.buffer
        return replace(panels, shape=(mul(panels.shape[0], int_const(self.steps)),))

    @property
    def bytes_(self) -> int:
        return (const_int(self.kept.shape[0]) or 0) * self.kept.dtype.bytes


class _Sharing:
    def __init__(self, program: Program) -> None:
        self.constant = constant_buffers(program.body)
        self.ranges = Ranges(program)
        self.names = Names(program)
        self.uses = uses(program.body)

    def visit(self, stmt: Stmt) -> Stmt:
        """A kernel with fewer, larger blocks; others, and anything else, as they are."""
        if not isinstance(stmt, Kernel) or not isinstance(stmt.body, Seq):
            return stmt
        grid = [const_int(extent) or 0 for extent in stmt.grid]
        most = prod(grid) // MIN_BLOCKS
        for at, extent in enumerate(grid):
            counts = (count for count in range(min(extent, most), 1, -1) if extent % count == 0)
            count = next(counts, 1)
            shared = self.shared(stmt.body, stmt.vars[at]) if count > 1 else []
            if shared:
                return self.joined(stmt, stmt.body, at, count, shared)
        return stmt

    def shared(self, body: Seq, block: Var) -> list[_Panels]:
        """What is packed alike for all values of a block's number; nothing if it is too large."""
        varying = varying_lets(body, block) | {block}
        shared = [each for each in self.candidates(body) if not depends_on(each.pack, varying)]
        return shared if sum(each.bytes_ for each in shared) <= _MOST_BYTES else []

    def candidates(self, body: Seq) -> Iterator[_Panels]:
        """Packings of tensors that nobody writes, in loops of the body, for one product beside."""
        allocated = {stmt.buffer for stmt in body.stmts if isinstance(stmt, Alloc)}
        names: dict[Var, Expr] = {}
        for stmt in body.stmts:
            if isinstance(stmt, Let):
                names[stmt.var] = substitute(stmt.value, names)
            if not isinstance(stmt, For) or stmt.kind is not LoopKind.SERIAL:
                continue
            steps, stop = self.ranges.bounds(stmt.stop).high, substitute(stmt.stop, names)
            counts_up = const_int(stmt.start) == 0 and const_int(stmt.step) == 1
            leaves = any(isinstance(each, Break | Continue) for each in statements(stmt.body))
            if steps is None or not counts_up or leaves or _loads(stop):
                continue
            inside = stmt.body.stmts if isinstance(stmt.body, Seq) else (stmt.body,)
            products = {each.b.buffer for each in inside if isinstance(each, MicroGemm)}
            for pack in inside:
                if (
                    isinstance(pack, Pack)
                    and pack.dst.buffer in allocated & products
                    and self.uses[pack.dst.buffer] == 2
                    and pack.src.buffer in self.constant
                    and not _loads(pack)
                ):
                    yield _Panels(pack, stmt, stop, steps)

    def joined(
        self, kernel: Kernel, body: Seq, at: int, count: int, shared: list[_Panels]
    ) -> Kernel:
        """The kernel with `count` times fewer blocks along one dimension."""
        block, extent = kernel.vars[at], const_int(kernel.grid[at]) or 0
        outer = self.names.var(f"{block.name}_outer", block.dtype)
        inner = self.names.var(f"{block.name}_inner", block.dtype)
        kept = {each.pack.dst.buffer: each for each in shared}
        allocs = [
            replace(stmt, buffer=kept[stmt.buffer].kept)
            for stmt in body.stmts
            if isinstance(stmt, Alloc) and stmt.buffer in kept
        ]
        others = [
            stmt for stmt in body.stmts if not isinstance(stmt, Alloc) or stmt.buffer not in kept
        ]
        number = add(mul(outer, const(count, outer.dtype)), inner)
        once = _Once(kept, block, inner)
        each_block = seq([Let(block, number, site=kernel.site), *map(once.rewriter, others)])
        return replace(
            kernel,
            vars=(*kernel.vars[:at], outer, *kernel.vars[at + 1 :]),
            grid=(
                *kernel.grid[:at],
                const(extent // count, kernel.grid[at].dtype),
                *kernel.grid[at + 1 :],
            ),
            body=seq([*allocs, counting(inner, count, each_block, kernel.site)]),
        )


class _Once:
    """Rewrites what was one block and is an iteration: it packs what no iteration before has."""

    def __init__(self, kept: dict[Buffer, _Panels], block: Var, inner: Var) -> None:
        self.kept, self.block, self.inner = kept, block, inner
        self.rewriter = Rewriter(self.place, self.pack)

    def place(self, node: object) -> object:
        """The panels of a step, where all steps are kept."""
        if not isinstance(node, Address) or node.buffer not in self.kept:
            return node
        panels = self.kept[node.buffer]
        size = const(const_int(node.buffer.shape[0]) or 0, panels.loop.var.dtype)
        return Address(panels.kept, (add(mul(panels.loop.var, size), node.indices[0]),))

    def pack(self, stmt: Stmt) -> Stmt:
        """A packing in the first iteration, and in others for steps that the one before was
        without: each has done its own, or they were done before.
        """
        panels = self.panels_of(stmt)
        if panels is None:
            return stmt
        step, one = panels.loop.var, const(1, self.block.dtype)
        is_first = binary("eq", self.inner, const(0, self.inner.dtype))
        if depends_on(panels.stop, frozenset({self.block})):
            before = substitute(panels.stop, {self.block: sub(self.block, one)})
            is_first = logical("or", is_first, binary("ge", step, before))
        return If(is_first, stmt, site=stmt.site)

    def panels_of(self, stmt: Stmt) -> _Panels | None:
        if not isinstance(stmt, Pack):
            return None
        return next((p for p in self.kept.values() if p.kept == stmt.dst.buffer), None)


def _loads(root: Pack | Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(root))
