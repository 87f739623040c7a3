"""A block whose rows have nothing to do with each other becomes several blocks of few rows.

A GPU shares the rows of a tile out to its warps. One worker of a processor computes them after each
other, and each operator of a block goes through all rows before the next one begins: the tile then
comes from a farther cache each time, and loads are waited for without anything to compute. Of few
rows a block has what it needs in registers and in the innermost cache. No number is computed in
another way.

Where the last block goes beyond the tensors, blocks without any row of theirs are left out.

Before::

    with T.Kernel(16, threads=128) as bx:
        tile = T.alloc_fragment((64, 1024), "float32")
        total = T.alloc_fragment((64,), "float32")
        T.copy(X[bx * 64:bx * 64 + 64, 0:1024], tile)
        T.reduce_sum(tile, total, dim=1)
        for i, j in T.Parallel(64, 1024):
            Y[bx * 64 + i, j] = tile[i, j] / total[i]

After::

    with T.Kernel(1024, threads=128) as bx:
        tile = T.alloc_fragment((1, 1024), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(X[bx:bx + 1, 0:1024], tile)
        T.reduce_sum(tile, total, dim=1)
        for i, j in T.Parallel(1, 1024):
            Y[bx + i, j] = tile[i, j] / total[i]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tileworkbench.compiler.analysis.access import depends_on, element_accesses
from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import binary, ceildiv, const, const_int, int_const, mul
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Region, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, variables, walk, with_body
from tileworkbench.compiler.ir.stmt import Alloc, For, If, Kernel, Let, Seq, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Copy, Fill, Parallel, Pipelined, Reduce, Scan
from tileworkbench.compiler.lower.shared.regions import wide_dims
from tileworkbench.compiler.lower.shared.regroup import regrouped
from tileworkbench.compiler.passes.optional import optional

# Bytes of a tile that a block keeps: enough for some vectors; where a loop goes through the rows
# piece by piece, enough to do something else while a sum waits for the last one.
_LEAST, _LEAST_IN_LOOPS = 512, 2048


@optional("few rows at once: a block keeps all rows of its tile")
def split_rows(program: Program) -> Program:
    """Give blocks of row-wise kernels as few rows as are worth a block."""
    ranges = Ranges(program)

    def split(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Kernel) or stmt.swizzle is not None or stmt.thread_vars:
            return stmt
        found = (Rows.of(stmt, block, ranges) for block in stmt.vars)
        return next((made for rows in found if rows and (made := rows.split())), stmt)

    return with_body(program, Rewriter(rewrite_stmt=split)(program.body))


@dataclass(slots=True)
class Rows:
    """The rows of `tiles`, the first dimension of each, which a kernel computes independently of
    each other: row i of block b is row `b * count + i` of the tensors.

    `lengths` are the extents of the tensors along it.
    """

    kernel: Kernel
    block: Var
    ranges: Ranges
    count: int
    tiles: set[Buffer]
    lengths: set[Expr]

    @staticmethod
    def of(kernel: Kernel, block: Var, ranges: Ranges) -> Rows | None:
        """The rows that `block` counts; None where there are none, or one needs another."""
        counts = {
            count
            for stmt in statements(kernel.body)
            for count in _counts(stmt, block, ranges)
            if count > 1
        }
        if len(counts) != 1:
            return None
        rows = Rows(kernel, block, ranges, counts.pop(), set(), set())
        rows.find_tiles()
        conform = all(rows.is_independent(stmt) for stmt in _outside_of_nests(kernel.body))
        return rows if conform and rows.tiles else None

    def find_tiles(self) -> None:
        """The tiles that have these rows: those that tensors' rows are copied to, and what is
        computed of them.
        """
        before = -1
        while before < len(self.tiles):
            before = len(self.tiles)
            for stmt in statements(self.kernel.body):
                self.tiles.update(self.tiles_of(stmt))

    def tiles_of(self, stmt: Stmt) -> Iterator[Buffer]:
        """The tiles that a statement shows to have rows."""
        match stmt:
            case Copy(src=src, dst=dst):
                if any(self.moves(each) or each.buffer in self.tiles for each in (src, dst)):
                    yield from _local(src.buffer, dst.buffer)
            case Reduce(src=source, dst=result):
                if source in self.tiles or result in self.tiles:
                    yield from (source, result)
            case Scan(src=src, dst=dst):
                if src.buffer in self.tiles or dst.buffer in self.tiles:
                    yield from (src.buffer, dst.buffer)
            case Parallel():
                item = self.item(stmt)
                for access in element_accesses(stmt.body):
                    if access.indices and access.indices[0] is item:
                        yield from _local(access.buffer)

    def moves(self, region: Region) -> bool:
        """Whether another block accesses other elements."""
        return any(self.by_block(low) for low in region.mins)

    def by_block(self, value: Node) -> bool:
        """Whether a value depends on the block, directly or by a name."""
        return any(
            depends_on(atom, frozenset({self.block}))
            for node in walk(value)
            if isinstance(node, Var)
            for atom, _ in self.ranges.linear(node).terms
        )

    def item(self, nest: Parallel) -> Var | None:
        """The variable of a nest that counts the rows of a block; None if there is none."""
        for var, extent in zip(nest.vars, nest.extents, strict=True):
            if const_int(extent) != self.count:
                continue
            for access in element_accesses(nest.body):
                if access.indices and access.buffer in self.tiles and access.indices[0] is var:
                    return var
                if any(self.row_of(index, var) for index in access.indices):
                    return var
        return None

    def row_of(self, index: Expr, item: Var) -> bool:
        """Whether an index of a tensor is that of a row."""
        linear = self.ranges.linear(index)
        return linear.coefficient(item) == 1 and linear.coefficient(self.block) == self.count

    def is_independent(self, stmt: Stmt) -> bool:
        """Whether a statement does the same to each row, or nothing to rows at all."""
        match stmt:
            case Seq() | Let():
                return True
            case Alloc(init=init):
                return init is None or not self.is_of_rows(init)
            case Store(buffer=buffer):
                return buffer.scope != "global" and not self.is_of_rows(stmt)
            case For(start=start, stop=stop, step=step):
                return not any(map(self.is_of_rows, (start, stop, step)))
            case Pipelined(start=start, stop=stop):
                return not any(map(self.is_of_rows, (start, stop)))
            case If(cond=cond):
                return not self.is_of_rows(cond)
            case Copy():
                return stmt.loop_layout is None and self.copies_rows(stmt)
            case Fill(dst=dst, value=value):
                local = dst.buffer.scope != "global" and self.is_whole(dst)
                return local and not self.is_of_rows(value)
            case Reduce(src=source, dst=result, dim=dim):
                if source not in self.tiles:
                    return True
                return dim > 0 and all(map(self.has_rows, (source, result)))
            case Scan(src=src, dst=dst, dim=dim):
                if src.buffer not in self.tiles:
                    return dst.buffer.scope != "global"
                return dim > 0 and self.is_whole(src) and self.is_whole(dst)
            case Parallel():
                return stmt.loop_layout is None and self.is_nest_of_rows(stmt)
        return False

    def is_of_rows(self, shared: Node) -> bool:
        """Whether what all rows share has to do with one of them."""
        return self.by_block(shared) or any(node in self.tiles for node in walk(shared))

    def has_rows(self, tile: Buffer) -> bool:
        """Whether the first dimension of a tile are the rows of a block."""
        rows = tile.shape and const_int(tile.shape[0]) == self.count
        return bool(rows) and tile.scope != "global" and tile.layout is None and not tile.strides

    def is_whole(self, region: Region) -> bool:
        """Whether a region of a tile has all of its rows."""
        if region.buffer not in self.tiles:
            return True
        first = const_int(region.mins[0]) == 0 and const_int(region.extents[0]) == self.count
        return first and self.has_rows(region.buffer)

    def copies_rows(self, copy: Copy) -> bool:
        """Whether a copy is of a block's rows, each as it is, or brings what no row changes."""
        sides = (copy.src, copy.dst)
        if not any(side.buffer in self.tiles for side in sides):
            return copy.dst.buffer.scope != "global" and not any(map(self.moves, sides))
        for side in sides:
            if side.buffer.scope != "global":
                if side.buffer not in self.tiles or not self.is_whole(side):
                    return False
                continue
            rows = wide_dims(side)
            if not rows or not self.starts_at_row(side, rows[0]):
                return False
            if side is copy.dst:
                self.lengths.add(side.buffer.shape[rows[0]])
        return True

    def starts_at_row(self, region: Region, dim: int) -> bool:
        """Whether a block accesses its rows along a dimension of a tensor, and no others move."""
        linear = self.ranges.linear(region.mins[dim])
        others = [low for d, low in enumerate(region.mins) if d != dim]
        return (
            const_int(region.extents[dim]) == self.count
            and linear.coefficient(self.block) == self.count
            and not any(self.by_block(atom) for atom, _ in linear.terms if atom is not self.block)
            and not any(map(self.by_block, others))
        )

    def is_nest_of_rows(self, nest: Parallel) -> bool:
        """Whether each iteration has to do with one row only, or all of them with none."""
        if not all(
            isinstance(each, Seq | Let | Store | If | For) for each in statements(nest.body)
        ):
            return False
        item = self.item(nest)
        for access in element_accesses(nest.body):
            of_tensor, indices = access.buffer.scope == "global", access.indices
            if access.buffer in self.tiles:
                if not self.has_rows(access.buffer) or indices[0] is not item:
                    return False
            elif item is None:
                if access.writes and of_tensor:
                    return False
            else:
                rows = [d for d, index in enumerate(indices) if self.row_of(index, item)]
                if access.writes and not (of_tensor and rows):
                    return False
                if len(indices) > 1 and len(nest.vars) > 1 and rows[-1:] == [len(indices) - 1]:
                    return False  # the rows are columns of the tensor, and few would be slow
                if access.writes:
                    self.lengths.update(access.buffer.shape[d] for d in rows)
        return item is not None or not self.by_block(nest)

    def split(self) -> Kernel | None:
        """The kernel with fewer rows a block; None where it has few already."""
        left = self.worth()
        if left == self.count:
            return None
        fewer = {
            tile: replace(tile, shape=(int_const(left), *tile.shape[1:])) for tile in self.tiles
        }
        dead: set[Var] = set()
        failed = False

        def shrink(node: object) -> object:
            if isinstance(node, Buffer):
                return fewer.get(node, node)
            if isinstance(node, Region) and node.buffer in fewer.values():
                return replace(node, extents=(int_const(left), *node.extents[1:]))
            if isinstance(node, Region) and self.moves(node):
                return self.moved(node, left)
            return node

        def change(stmt: Stmt) -> Stmt:
            nonlocal failed
            item = self.item(stmt) if isinstance(stmt, Parallel) else None
            if not isinstance(stmt, Parallel) or item is None:
                return stmt
            body = regrouped(stmt.body, self.block, item, self.count, left, self.ranges, self.tiles)
            failed |= body is None
            extents = tuple(
                const(left, extent.dtype) if var is item else extent
                for var, extent in zip(stmt.vars, stmt.extents, strict=True)
            )
            return replace(stmt, extents=extents, body=body or stmt.body)

        def drop(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Let) and stmt.var in dead:
                return seq([])
            return stmt

        body = Rewriter(rewrite_stmt=change)(self.kernel.body)
        body = Rewriter(shrink)(body)
        if failed:
            return None
        names = [
            stmt
            for stmt in _outside_of_nests(body)
            if isinstance(stmt, Let) and self.by_block(stmt.value)
        ]
        dead.update(stmt.var for stmt in names)
        body = Rewriter(rewrite_stmt=drop)(body)
        if dead & set(variables(body)):
            return None
        at = self.kernel.vars.index(self.block)
        grid = (*self.kernel.grid[:at], self.blocks(self.kernel.grid[at], left))
        return replace(self.kernel, grid=(*grid, *self.kernel.grid[at + 1 :]), body=body)

    def worth(self) -> int:
        """How many rows a block keeps."""
        if all(len(tile.shape) == 1 for tile in self.tiles):
            return self.count  # the rows are elements of a vector
        row_bytes = max(_bytes(tile) // self.count for tile in self.tiles)
        loops = any(isinstance(stmt, For | Pipelined) for stmt in statements(self.kernel.body))
        # What all rows share is fetched or made by each block, which should be worth it.
        least = max(_LEAST_IN_LOOPS if loops else _LEAST, *self.shared())
        return min(
            n
            for n in range(1, self.count + 1)
            if self.count % n == 0 and (n * row_bytes >= least or n == self.count)
        )

    def shared(self) -> tuple[int, int]:
        """Bytes of tiles and of tensors that a block accesses for all of its rows together."""
        tiles = tensors = 0
        trips: dict[Var, int] = {}
        for stmt in statements(self.kernel.body):
            match stmt:
                case (
                    For(var=var, start=start, stop=stop)
                    | Pipelined(var=var, start=start, stop=stop)
                ):
                    trips[var] = (const_int(stop) or 1) - (const_int(start) or 0)
                case Parallel(vars=variables_, extents=extents):
                    trips.update(
                        (var, const_int(extent) or 1)
                        for var, extent in zip(variables_, extents, strict=True)
                    )
                case Alloc(buffer=buffer) if buffer not in self.tiles:
                    tiles += _bytes(buffer)
            for access in accesses(stmt):
                if access.buffer.scope == "global" and not any(map(self.by_row, access.indices)):
                    moving = {v for index in access.indices for v in self.moving(index)}
                    box = access.region.extents if access.region else ()
                    elements = prod(const_int(extent) or 1 for extent in box)
                    elements *= prod(trips.get(var, 1) for var in moving)
                    tensors += elements * access.buffer.dtype.bits // 8
        return tiles, tensors

    def by_row(self, index: Expr) -> bool:
        """Whether an index of a tensor moves with the blocks along the rows."""
        return self.block in self.moving(index)

    def moving(self, index: Expr) -> set[Var]:
        """The variables of loops that an index moves with."""
        return {var for atom, _ in self.ranges.linear(index).terms for var in variables(atom)}

    def moved(self, region: Region, left: int) -> Region:
        """The rows of a tensor that a block with fewer of them accesses."""
        mins, extents = list(region.mins), list(region.extents)
        dim = wide_dims(region)[0]
        linear = self.ranges.linear(mins[dim])
        terms = tuple(
            (atom, left if atom is self.block else factor) for atom, factor in linear.terms
        )
        mins[dim] = to_expr(Linear(terms, linear.constant), mins[dim].dtype)
        extents[dim] = const(left, extents[dim].dtype)
        return replace(region, mins=tuple(mins), extents=tuple(extents))

    def blocks(self, before: Expr, left: int) -> Expr:
        """How many blocks there are, none of them without a row."""
        all_ = mul(before, const(self.count // left, before.dtype))
        if len(self.lengths) != 1:
            return all_
        (length,) = self.lengths
        needed = ceildiv(length, const(left, length.dtype))
        fewer = before is ceildiv(length, const(self.count, length.dtype))
        fewer = fewer or self.ranges.proves(binary("le", needed, all_)) is True
        return needed if fewer else binary("min", all_, needed)


def _counts(stmt: Stmt, block: Var, ranges: Ranges) -> Iterator[int]:
    """How many rows a block has, by what a statement accesses."""
    if isinstance(stmt, Copy):
        for region in (stmt.src, stmt.dst):
            yield from (ranges.linear(low).coefficient(block) for low in region.mins)
    elif isinstance(stmt, Parallel):
        for access in element_accesses(stmt.body):
            yield from (ranges.linear(index).coefficient(block) for index in access.indices)


def _local(*buffers: Buffer) -> Iterator[Buffer]:
    return (buffer for buffer in buffers if buffer.scope != "global")


def _bytes(tile: Buffer) -> int:
    return prod(const_int(extent) or 0 for extent in tile.shape) * tile.dtype.bits // 8


def _outside_of_nests(root: Stmt) -> Iterator[Stmt]:
    yield root
    if not isinstance(root, Parallel):
        for child in root.children():
            if isinstance(child, Stmt):
                yield from _outside_of_nests(child)
