"""The rows of a kernel's tiles, where each has nothing to do with the others.

Such rows are the first dimension of the tiles, and the blocks along one dimension of the grid have
so many of them each. All statements of the kernel do the same to every row, or something that all
rows share.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tileworkbench.compiler.analysis.access import element_accesses
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Region, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import statements, variables, walk
from tileworkbench.compiler.ir.stmt import Alloc, For, If, Kernel, Let, Seq, Stmt, Store
from tileworkbench.compiler.ir.tile import Copy, Fill, Parallel, Pipelined, Reduce, Scan
from tileworkbench.compiler.lower.shared.regions import wide_dims
from tileworkbench.compiler.lower.shared.regroup import moving

_VECTOR = 8  # elements, in which a loop over the columns of one row has something to do at once


@dataclass(slots=True)
class Rows:
    """The rows of `tiles`: row i of block b is row `b * count + i` of the tensors.

    `lengths` are the extents along it of the tensors that are written.
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
            ranges.linear(index).coefficient(block)
            for stmt in statements(kernel.body)
            for access in accesses(stmt)
            for index in access.indices
        }
        several = [count for count in counts if count > 1]
        if len(several) != 1:
            return None
        rows = Rows(kernel, block, ranges, several[0], set(), set())
        rows.find_tiles()
        conform = all(rows.is_independent(stmt) for stmt in outside_of_nests(kernel.body))
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
        return any(self.block in moving(var, self.ranges) for var in variables(value))

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

    @property
    def row_bytes(self) -> int:
        """Of the largest tile."""
        return max(size_of(tile) // self.count for tile in self.tiles)

    @property
    def are_elements(self) -> bool:
        """Whether rows are elements of vectors, or what a loop has to compute at once."""
        loops = filter(is_loop, outside_of_nests(self.kernel.body))
        vectors = all(len(tile.shape) == 1 for tile in self.tiles)
        return vectors or any(self.widest(loop) < _VECTOR for loop in loops)

    def widest(self, loop: Stmt) -> int:
        """The most elements of a row that a statement in a loop has to do with."""
        widest = 0
        for stmt in outside_of_nests(loop):
            match stmt:
                case Copy(dst=dst) | Fill(dst=dst) | Scan(dst=dst):
                    extents = dst.extents
                case Reduce(src=src):
                    extents = src.shape
                case Parallel():
                    extents = stmt.extents
                case _:
                    continue
            elements = prod(const_int(extent) or 1 for extent in extents)
            widest = max(widest, elements // self.count)
        return widest

    def shared_bytes(self) -> int:
        """Bytes of tiles that a block makes for all of its rows together."""
        allocs = (stmt for stmt in statements(self.kernel.body) if isinstance(stmt, Alloc))
        return sum(size_of(alloc.buffer) for alloc in allocs if alloc.buffer not in self.tiles)


def _local(*buffers: Buffer) -> Iterator[Buffer]:
    return (buffer for buffer in buffers if buffer.scope != "global")


def size_of(tile: Buffer) -> int:
    """Bytes of a tile."""
    return prod(const_int(extent) or 0 for extent in tile.shape) * tile.dtype.bits // 8


def is_loop(stmt: Stmt) -> bool:
    """Whether iterations follow each other."""
    return isinstance(stmt, For | Pipelined)


def outside_of_nests(root: Stmt) -> Iterator[Stmt]:
    """Every statement below and including `root` that is no part of an element-wise nest."""
    yield root
    if not isinstance(root, Parallel):
        for child in root.children():
            if isinstance(child, Stmt):
                yield from outside_of_nests(child)
