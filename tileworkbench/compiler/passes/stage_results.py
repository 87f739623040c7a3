"""Results of 16 bits leave the block through a tile in shared memory.

Threads hold a result as matrix instructions leave it: two neighbours of a row each. Stored from
there, a warp fills half of each sector of global memory. From sm_90 on stmatrix writes rows of 16
bytes to the tile, and the copy engine takes it from there. Elsewhere threads store 16 bytes each
from it, which are whole sectors; what fills these anyway, or has rows that no such vectors fit,
stays.

The tile must not cost a block: it is made only where as many blocks of the kernel fit on a
multiprocessor with it as without. It may lie where the operands lay, unless these are loaded again.

Before::

    T.copy(C_local, C[by * 128:by * 128 + 128, bx * 128:bx * 128 + 128])

After::

    C_tile = T.alloc_shared((128, 128), "float16")
    T.copy(C_local, C_tile)
    T.copy(C_tile, C[by * 128:by * 128 + 128, bx * 128:bx * 128 + 128])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.occupancy import occupancy
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Buffer, Region
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alloc, Kernel, Stmt, seq
from tileworkbench.compiler.ir.tile import Copy, Gemm, Pipelined
from tileworkbench.compiler.lower.threads import wgmma
from tileworkbench.compiler.lower.threads.context import ThreadContext, with_contexts
from tileworkbench.compiler.lower.threads.result_stores import check_stores
from tileworkbench.compiler.lower.threads.tensor_copies import Unsuitable, plan
from tileworkbench.compiler.machine.instructions import WARPGROUP_WARPS
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.schedule.lifetimes import place, shared_bytes, timeline
from tileworkbench.compiler.schedule.warpgroups import OTHER_REGISTERS, PRODUCER_REGISTERS
from tileworkbench.compiler.target import Target

_BITS = 16  # of an element; wider ones fill their sectors from registers, too
_THROUGH_A_TILE = (
    "through a tile in shared memory and from there 16 bytes a thread, "
    "because from registers a warp fills half of each sector of 32 bytes"
)


@optional("16-bit results leave from registers, two neighbours at a time")
@dataclass(frozen=True, slots=True)
class StageResults:
    """Take 16-bit results of products through shared memory, so that whole sectors are stored."""

    target: Target

    @property
    def has_engine(self) -> bool:
        """Whether an engine stores tiles, from rows that warps write by matrices."""
        machine = self.target.machine
        return machine.box_copies("global") is not None and machine.move(loads=False) is not None

    @property
    def otherwise(self) -> str:
        """How a result leaves the block without a tile, as notes say it."""
        return "threads" if self.has_engine else "from registers"

    def __call__(self, program: Program) -> Program:
        names, notes = Names(program), []

        def note(copy: Copy, said: str) -> None:
            span = program.span(copy.site)
            line = f", line {span.line}" if span else ""
            notes.append(f"{copy.dst.buffer.name}: {said} (copy{line})")

        def change(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel):
                return stmt
            chosen = list(_results(stmt))
            while chosen:
                made, stores = _staged(stmt, chosen, names)
                refused = self._refused(made, chosen, stores, program)
                if not refused:
                    for copy in () if self.has_engine else chosen:
                        note(copy, _THROUGH_A_TILE)
                    return made
                for copy, why in refused:
                    note(copy, f"{self.otherwise}, because {why}")
                    chosen.remove(copy)
            return stmt

        body = Rewriter(rewrite_stmt=change)(program.body)
        if body is program.body and not notes:
            return program
        return replace(program, body=body, notes=(*program.notes, *notes))

    def _refused(
        self, kernel: Kernel, copies: list[Copy], stores: list[Copy], program: Program
    ) -> list[tuple[Copy, str]]:
        """Which of `copies` cannot be staged, as `kernel` has them with `stores`, and why."""
        context = ThreadContext.of(program, kernel, self.target)
        products = {
            stmt.c.buffer: (stmt, threads)
            for stmt, threads in with_contexts(kernel.body, context)
            if isinstance(stmt, Gemm)
        }
        refused = []
        for copy, store in zip(copies, stores, strict=True):
            try:
                if self.has_engine:
                    plan(store, context)
                else:
                    check_stores(store, *products[copy.src.buffer])
            except Unsuitable as reason:
                refused.append((copy, str(reason)))
        tiles = {store.src.buffer for store in stores}
        if not refused and self._costs_a_block(kernel, tiles, products, program):
            why = "a tile in shared memory would leave room for fewer blocks"
            refused = [(copy, why) for copy in copies]
        return refused

    def _costs_a_block(
        self, kernel: Kernel, tiles: set[Buffer], results: Iterable[Buffer], program: Program
    ) -> bool:
        """Whether fewer blocks fit on a multiprocessor because of the `tiles`."""
        groups = bool(wgmma.instructions(self.target))
        threads, machine = prod(kernel.threads), self.target.machine
        words = sum(prod(const_shape(each) or ()) * each.dtype.bits // 32 for each in results)
        registers = words // threads + OTHER_REGISTERS
        loaders = WARPGROUP_WARPS * machine.lanes if groups else 0
        share = (registers * threads + PRODUCER_REGISTERS * loaders) // (threads + loaders)
        share = min(share, machine.thread_registers)

        def blocks(bytes_: int) -> int:
            held = occupancy(self.target.arch, threads + loaders, bytes_, share)
            return 0 if held is None else held.blocks

        sizes = _sizes(kernel)
        most = sum(sizes.values())
        if most <= machine.shared.most and blocks(most) == blocks(0):
            return False  # whatever shares memory
        lives = [
            replace(life, size=sizes.get(life.buffer, life.size))
            for life in timeline(kernel, program).lives
        ]
        _, used = place(life for life in lives if life.buffer not in tiles)
        _, whole = place(lives)
        # Roles may turn out not to share memory.
        apart = used + sum(sizes[tile] for tile in tiles)
        if (apart if groups else whole) > machine.shared.most:
            return True
        return blocks(whole) < blocks(used)


def _results(kernel: Kernel) -> Iterator[Copy]:
    """The copies of whole results of products to tensors of 16-bit floats, outside pipelines."""
    results = {stmt.c.buffer for stmt in statements(kernel.body) if isinstance(stmt, Gemm)}
    inner = {
        id(stmt)
        for loop in statements(kernel.body)
        if isinstance(loop, Pipelined)
        for stmt in statements(loop.body)
    }
    for stmt in statements(kernel.body):
        if isinstance(stmt, Copy) and id(stmt) not in inner and stmt.src.buffer in results:
            source, target = stmt.src, stmt.dst.buffer
            whole = tuple(source.extents) == tuple(source.buffer.shape)
            floats = target.dtype.is_float and target.dtype.bits == _BITS
            plain = stmt.loop_layout is None and stmt.coalesced_width is None
            if target.scope == "global" and floats and whole and plain:
                yield stmt


def _staged(kernel: Kernel, copies: list[Copy], names: Names) -> tuple[Kernel, list[Copy]]:
    """`kernel` with these copies in two steps, and the second step of each."""
    stores: dict[int, Copy] = {}

    def change(stmt: Stmt) -> Stmt:
        if not any(stmt is copy for copy in copies) or not isinstance(stmt, Copy):
            return stmt
        shape = stmt.src.buffer.shape
        name = names.fresh(f"{stmt.dst.buffer.name}_tile")
        tile = Buffer(name, stmt.dst.buffer.dtype, shape, "shared")
        here = Region(tile, tuple(int_const(0) for _ in shape), shape)
        stores[id(stmt)] = replace(stmt, src=here)
        return seq([Alloc(tile, site=stmt.site), replace(stmt, dst=here), stores[id(stmt)]])

    made = replace(kernel, body=Rewriter(rewrite_stmt=change)(kernel.body))
    return made, [stores[id(copy)] for copy in copies]


def _sizes(kernel: Kernel) -> dict[Buffer, int]:
    """The bytes of the kernel's shared buffers, of those that pipelines load in versions."""
    versions: dict[Buffer, int] = {}
    for loop in statements(kernel.body):
        if isinstance(loop, Pipelined):
            for stmt in statements(loop.body):
                if isinstance(stmt, Copy) and stmt.src.buffer.scope == "global":
                    versions[stmt.dst.buffer] = max(loop.num_stages, 1)
    tiles = (stmt.buffer for stmt in statements(kernel.body) if isinstance(stmt, Alloc))
    return {
        tile: shared_bytes(tile) * versions.get(tile, 1)
        for tile in tiles
        if tile.scope == "shared" and const_shape(tile) is not None
    }
