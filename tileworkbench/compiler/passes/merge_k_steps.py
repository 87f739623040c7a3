"""A loop that copies two tiles and multiplies them takes several steps along k at once.

The accumulator then stays in registers for longer, and copies read longer runs of memory. The order
of the sums is the same. A GPU's small steps are there to hide the latency of loads, which a
processor does by itself.

Before::

    A_shared = T.alloc_shared((64, 32), "float32")
    B_shared = T.alloc_shared((32, 64), "float32")
    for k in T.Pipelined(16, num_stages=3):
        T.copy(A[0:64, k * 32:k * 32 + 32], A_shared)
        T.copy(B[k * 32:k * 32 + 32, 0:64], B_shared)
        T.gemm(A_shared, B_shared, C_local)

After::

    A_shared = T.alloc_shared((64, 256), "float32")
    B_shared = T.alloc_shared((256, 64), "float32")
    for k in T.Pipelined(2, num_stages=3):
        T.copy(A[0:64, k * 256:k * 256 + 256], A_shared)
        T.copy(B[k * 256:k * 256 + 256, 0:64], B_shared)
        T.gemm(A_shared, B_shared, C_local)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tileworkbench.compiler.analysis.access import depends_on, element_accesses
from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import const, const_int, int_const
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Region, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Alloc, For, LoopKind, Seq, Stmt, seq
from tileworkbench.compiler.ir.tile import Copy, Gemm, Pipelined
from tileworkbench.compiler.lower.shared.regions import wide_dims
from tileworkbench.compiler.passes.optional import optional

_MAX_BYTES = 1 << 18  # of both tiles: they stay in the second-level cache beside C
_MAX_K_BYTES = 1 << 10  # of one row: longer sums gain nothing more


@optional("long steps along k: the accumulator leaves its registers more often")
def merge_k_steps(program: Program) -> Program:
    """Merge the steps of loops over k that hold nothing but whole-tile copies and their gemm."""
    merger = _Merger(program)
    merged = Rewriter(rewrite_stmt=merger.visit)(program.body)
    allocated = Rewriter(rewrite_stmt=merger.allocate)
    return with_body(program, allocated(merged) if merger.grown else program.body)


class _Merger:
    def __init__(self, program: Program) -> None:
        self.ranges = Ranges(program)
        self.grown: dict[Buffer, Buffer] = {}
        self.uses = Counter(
            child.buffer if isinstance(child, Region) else child
            for stmt in statements(program.body)
            for child in stmt.children()
            if isinstance(child, Region | Buffer) and not isinstance(stmt, Alloc)
        )
        self.elementwise = {
            access.buffer
            for access in element_accesses(program.body)
            if access.buffer.scope != "global"
        }

    def allocate(self, stmt: Stmt) -> Stmt:
        """Allocations as large as the tiles have become."""
        if isinstance(stmt, Alloc) and stmt.buffer in self.grown:
            return replace(stmt, buffer=self.grown[stmt.buffer])
        return stmt

    def visit(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For | Pipelined) or not _counts_up(stmt):
            return stmt
        match stmt.body:
            case Seq((Copy() as first, Copy() as second, Gemm() as product)):
                return self.merge(stmt, (first, second), product)
        return stmt

    def merge(self, loop: For | Pipelined, copies: tuple[Copy, Copy], product: Gemm) -> Stmt:
        """The loop with as many steps at once as fit; itself where they cannot be merged."""
        keeps_sum = isinstance(product.clear, Const) and not product.clear.value
        dtype = product.c.buffer.dtype
        if dtype.is_float and dtype.bits <= 8:  # each product rounds by more than sums are off
            return loop
        if not keeps_sum or depends_on(product.c, frozenset({loop.var})):
            return loop
        sides = {
            product.a.buffer: (product.a, 0 if product.transpose_a else 1),
            product.b.buffer: (product.b, 1 if product.transpose_b else 0),
        }
        by_tile = {copy.dst.buffer: copy for copy in copies}
        if len(by_tile) != 2 or sides.keys() != by_tile.keys():
            return loop
        sources = {copy.src.buffer for copy in copies}
        if product.c.buffer in sources | sides.keys():
            return loop
        if not all(
            self.advances(by_tile[tile], region, dim, loop.var)
            for tile, (region, dim) in sides.items()
        ):
            return loop
        tiles = [(tile, dim) for tile, (_, dim) in sides.items()]
        count = _steps_at_once(const_int(loop.stop) or 1, tiles)
        return loop if count == 1 else self.grow(loop, copies, product, dict(tiles), count)

    def advances(self, copy: Copy, operand: Region, dim: int, k: Var) -> bool:
        """Whether the copy fills all of a tile that only this gemm reads, and moves by exactly the
        tile's extent along k from step to step.
        """
        tile, src = copy.dst.buffer, copy.src
        whole = all(
            region.extents == tile.shape and all(low is int_const(0) for low in region.mins)
            for region in (copy.dst, operand)
        )
        extents = [const_int(extent) for extent in tile.shape]
        if not whole or len(extents) != 2 or None in extents or tile.layout is not None:
            return False
        alone = self.uses[tile] == 2 and tile not in self.elementwise  # the copy and the gemm
        if not alone or tile.scope == "global" or src.buffer.scope != "global":
            return False
        dims = wide_dims(src)
        if len(dims) != 2 or [const_int(src.extents[d]) for d in dims] != extents:
            return False
        moving = self.ranges.linear(src.mins[dims[dim]])
        return (
            moving.coefficient(k) == extents[dim]
            and not any(
                depends_on(atom, frozenset({k})) for atom, _ in moving.terms if atom is not k
            )
            and not any(
                depends_on(low, frozenset({k})) for d, low in enumerate(src.mins) if d != dims[dim]
            )
        )

    def grow(
        self,
        loop: For | Pipelined,
        copies: tuple[Copy, Copy],
        product: Gemm,
        dims: dict[Buffer, int],
        count: int,
    ) -> Stmt:
        made: list[Stmt] = []
        for copy in copies:
            tile = copy.dst.buffer
            at = wide_dims(copy.src)[dims[tile]]
            src = self.stretched(copy.src, at, loop.var, count)
            dst = self.whole(tile, dims[tile], count)
            made.append(replace(copy, src=src, dst=dst))
        a, b = product.a.buffer, product.b.buffer
        made.append(
            replace(product, a=self.whole(a, dims[a], count), b=self.whole(b, dims[b], count))
        )
        stop = const((const_int(loop.stop) or count) // count, loop.stop.dtype)
        return replace(loop, stop=stop, body=seq(made))

    def stretched(self, region: Region, dim: int, k: Var, count: int) -> Region:
        """The regions of `count` steps as one."""
        low = self.ranges.linear(region.mins[dim])
        terms = tuple((atom, factor * count if atom is k else factor) for atom, factor in low.terms)
        start = to_expr(Linear(terms, low.constant), region.mins[dim].dtype)
        mins = (*region.mins[:dim], start, *region.mins[dim + 1 :])
        return Region(region.buffer, mins, _times(region.extents, dim, count))

    def whole(self, tile: Buffer, dim: int, count: int) -> Region:
        """The region that is all of the tile which replaces `tile`."""
        shape = _times(tile.shape, dim, count)
        grown = self.grown.setdefault(tile, replace(tile, shape=shape))
        return Region(grown, tuple(int_const(0) for _ in shape), shape)


def _counts_up(loop: For | Pipelined) -> bool:
    """0, 1, 2 ... to a constant, one after the other."""
    if const_int(loop.start) != 0 or const_int(loop.stop) is None:
        return False
    if isinstance(loop, Pipelined):
        return True
    return const_int(loop.step) == 1 and loop.kind in (LoopKind.SERIAL, LoopKind.UNROLLED)


def _steps_at_once(trips: int, tiles: list[tuple[Buffer, int]]) -> int:
    """The largest divisor of `trips` for which tiles and rows stay small enough."""
    step_bytes, row_bytes = 0, 0
    for tile, dim in tiles:
        extents = [const_int(extent) or 1 for extent in tile.shape]
        # 16-bit floats are multiplied as float32.
        size = 4 if tile.dtype.is_float and tile.dtype.bits < 32 else tile.dtype.bytes
        step_bytes += extents[0] * extents[1] * size
        row_bytes = max(row_bytes, extents[dim] * size)
    return max(
        count
        for count in range(1, trips + 1)
        if trips % count == 0
        and (count == 1 or (step_bytes * count <= _MAX_BYTES and row_bytes * count <= _MAX_K_BYTES))
    )


def _times(extents: tuple[Expr, ...], dim: int, count: int) -> tuple[Expr, ...]:
    return tuple(
        int_const((const_int(extent) or 0) * count) if d == dim else extent
        for d, extent in enumerate(extents)
    )
