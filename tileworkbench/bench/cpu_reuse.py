"""Bytes of a block's tiles that its core fetches again from behind a cache, by site.

Tiles are used again and again: by the next statement, the next iteration, the next block on the
same core. Whether a cache still has them then depends on the bytes of all data that were touched
between the two uses, for caches give up what was not used for longest. These bytes are taken from
the loops around each access, without running it:

- data of an iteration that the next one needs wait for the data of one iteration;
- data of a statement that a later one needs wait for what lies between the two;
- tiles of a block that the next block needs wait for the data of a block.

A cache that is nearly full keeps part: from `_FULL` times its size on less, from `_OVERFULL` on
nothing. What is written is brought back too when it leaves, so it counts `_WRITTEN` times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field

from tileworkbench.bench.cpu_block import Env
from tileworkbench.bench.cpu_extent import Extent
from tileworkbench.bench.cpu_terms import bytes_of, in_registers, shift, value_of, value_with
from tileworkbench.bench.memory_rates import LINE_BYTES
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int, int_const
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import walk

_FULL, _OVERFULL = 0.5, 2.0
_WRITTEN = 1.3

Bytes = dict[tuple[int, Buffer], float]
"""By site and buffer."""


def kept(between: float, cache: float) -> float:
    """The part of data that a cache still has after `between` bytes of all data were touched."""
    if between <= _FULL * cache:
        return 1.0
    if between >= _OVERFULL * cache:
        return 0.0
    return 1 - math.log(between / (_FULL * cache)) / math.log(_OVERFULL / _FULL)


@dataclass(slots=True)
class Piece:
    """A statement with all below it: the distinct bytes it touches of each buffer, all that it
    accesses, and those that it fetches into a cache which has none of them at its start.
    """

    touched: dict[Buffer, float] = field(default_factory=dict)
    missed: Bytes = field(default_factory=dict)
    accessed: Bytes = field(default_factory=dict)
    written: set[Buffer] = field(default_factory=set)
    # Of each buffer, the variables that its addresses here depend on; of its largest access, if its
    # elements are in a row, the address and what is accessed.
    moves: dict[Buffer, set[Var]] = field(default_factory=dict)
    extents: dict[Buffer, tuple[Expr, Extent]] = field(default_factory=dict)
    # Where extents begin: in the first iterations of all loops, and of those inside alone.
    begins: dict[Buffer, tuple[int, int]] = field(default_factory=dict)

    @property
    def size(self) -> float:
        """Bytes of all buffers."""
        return sum(self.touched.values())

    def place(
        self,
        buffer: Buffer,
        index: Expr,
        extent: Extent,
        other: Piece,
        further: tuple[int, int] = (0, 0),
    ) -> None:
        """Note where elements are, which begin so much `further` on than those of another piece, if
        that is known.
        """
        begin = other.begins.get(buffer)
        self.extents[buffer] = index, extent
        self.begins.pop(buffer, None)
        if begin is not None:
            self.begins[buffer] = begin[0] + further[0], begin[1] + further[1]

    def crowd(self, buffer: Buffer, cache: float) -> float:
        """Bytes that a buffer takes of a cache above those it touches, because it shares few of its
        places.
        """
        if buffer not in self.extents:
            return 0.0
        _, extent = self.extents[buffer]
        own = extent.size * buffer.dtype.bytes
        return max(extent.pressure(buffer.dtype.bytes, cache) - own, 0.0)

    def save(self, buffer: Buffer, bytes_: float) -> None:
        """So many bytes of a buffer are there already; from the first of its sites."""
        for key in self.missed:
            if key[1] is buffer:
                spared = min(self.missed[key], bytes_)
                self.missed[key] -= spared
                bytes_ -= spared


class Reused:
    """What a block, with all blocks before it, finds in a cache of `cache` bytes; `block` is the
    loop over blocks.
    """

    def __init__(self, block: st.For, env: Env, cache: float) -> None:
        # A block in the middle, for those at an edge may have themselves as neighbours; of two the
        # first, behind which is the other.
        blocks = int(value_of(block.stop, env) or 0)
        middle = blocks // 2 if blocks > 2 else 0
        self.block, self.cache, self.env = block, cache, {**env, block.var.name: middle}
        self.reuse = Reuse(cache)
        self.whole = self.reuse.piece(block.body, self.env, block.site)

    def tile_misses(self) -> dict[int, float]:
        """Bytes of tiles that a block fetches from behind the cache, by site; tiles are the same
        memory for all blocks.
        """
        still = kept(self.whole.size, self.cache)
        rest = Piece(missed=dict(self.whole.missed))
        for buffer, bytes_ in self.whole.touched.items():
            if buffer.scope != "global":
                rest.save(buffer, bytes_ * _factor(self.whole, buffer) * still)
        by_site: dict[int, float] = {}
        for (site, buffer), bytes_ in rest.missed.items():
            if buffer.scope != "global" and bytes_ > 0:
                by_site[site] = by_site.get(site, 0.0) + bytes_
        return by_site

    def tensor_misses(self) -> Bytes:
        """Which part of what a block moves of tensors is not in the cache, by site and tensor: the
        rest are elements that it, or a block shortly before it, has accessed.
        """
        new = {buffer: 1 - self._had(*extent) for buffer, extent in self.whole.extents.items()}
        return {
            (site, buffer): self.whole.missed[site, buffer] / bytes_ * new.get(buffer, 1.0)
            for (site, buffer), bytes_ in self.whole.accessed.items()
            if buffer.scope == "global" and bytes_ > 0
        }

    def _had(self, index: Expr, extent: Extent) -> float:
        """The part of an extent that a block before this one has left in the cache."""
        count = int(value_of(self.block.stop, self.env) or 0)
        had = 0.0
        for blocks in self.reuse.distances(count):
            by = shift(index, self.block.var, self.env, blocks, self.reuse.lets)
            if by is not None:
                still = kept(blocks * self.whole.size, self.cache)
                had = max(had, extent.common(by) * still * (1 - blocks / count))
        return had


class Reuse:
    """A walk over the statements of a block, for a cache of so many bytes."""

    def __init__(self, cache: float) -> None:
        self.cache = cache
        self.names: dict[Var, set[Var]] = {}
        self.lets: dict[Var, Expr] = {}
        self.firsts: dict[str, int] = {}  # of the variables of loops

    def distances(self, blocks: int) -> list[int]:
        """How many blocks before one of so many stand its neighbours in each dimension."""
        numbers = {
            int(node.value)
            for value in self.lets.values()
            for node in walk(value)
            if isinstance(node, ir.Const) and node.dtype.is_int
        }
        return sorted(number for number in numbers | {1} if 0 < number < blocks)

    def piece(self, stmt: st.Stmt, env: Env, site: int) -> Piece:
        """What `stmt` touches and fetches."""
        site = getattr(stmt, "site", 0) or site
        match stmt:
            case st.Seq(stmts):
                return self.sequence(stmts, env, site)
            case st.For():
                return self.loop(stmt, env, site)
            case st.If(_, then, orelse):
                # The larger of the two: the other is most often an edge.
                parts = [self.piece(part, env, site) for part in (then, orelse) if part is not None]
                return max(parts, key=lambda part: part.size)
            case st.While(body=body):
                return self.piece(body, env, site)
        leaves = list(_leaves(stmt, site, self.names))
        for leaf in leaves:
            for buffer, (index, _) in leaf.extents.items():
                begin = value_with(index, {**env, **self.firsts}, self.lets)
                here = value_with(index, env, self.lets)
                if begin is not None and here is not None:
                    leaf.begins[buffer] = int(begin), int(here)
        return self.joined(leaves)

    def sequence(self, stmts: tuple[st.Stmt, ...], env: Env, site: int) -> Piece:
        """Statements after each other."""
        parts = list[Piece]()
        for stmt in stmts:
            if isinstance(stmt, st.Let):
                value = value_of(stmt.value, env)
                if value is not None:
                    env[stmt.var.name] = value
                self.names[stmt.var] = _variables(stmt.value, self.names)
                self.lets[stmt.var] = stmt.value
            parts.append(self.piece(stmt, env, site))
        return self.joined([part for part in parts if part.touched])

    def joined(self, parts: list[Piece]) -> Piece:
        """What parts touch and fetch after each other."""
        if len(parts) == 1:
            return parts[0]
        whole, before = Piece(), list[Piece]()
        for part in parts:
            known = dict(whole.touched)
            _join(whole, part)
            for buffer, bytes_ in part.touched.items():
                new = whole.touched[buffer] - known.get(buffer, 0.0)
                self.reuse(part, buffer, bytes_ - new, before)
            before.append(part)
            for all_, some in ((whole.missed, part.missed), (whole.accessed, part.accessed)):
                for key, bytes_ in some.items():
                    all_[key] = all_.get(key, 0.0) + bytes_
        return whole

    def reuse(self, part: Piece, buffer: Buffer, rest: float, before: list[Piece]) -> None:
        """What the statements `before` have touched of a buffer, the nearest first, may be kept: no
        more than `rest` bytes of it, which are not new to all of them.
        """
        between = dict(part.touched)
        crowd = part.crowd(buffer, self.cache)
        for earlier in reversed(before):
            for other, size in earlier.touched.items():
                between[other] = max(between.get(other, 0.0), size)
            common = min(rest, _common(part, earlier, buffer))
            if common:
                still = kept(sum(between.values()) + crowd, self.cache)
                part.save(buffer, common * _factor(part, buffer) * still)
                rest -= common

    def loop(self, loop: st.For, env: Env, site: int) -> Piece:
        """Iterations after each other: what all of them touch, the first one fetches."""
        bounds = [value_of(bound, env) for bound in (loop.start, loop.stop, loop.step)]
        first, last, stride = (1 if bound is None else int(bound) for bound in bounds)
        trips = len(range(first, last, stride or 1)) if None not in bounds else 1
        if not trips:
            return Piece()
        env[loop.var.name] = first + (trips - 1) // 2 * (stride or 1)
        self.firsts[loop.var.name] = first
        body = self.piece(loop.body, env, site)
        # The lanes of a vector are one access.
        together, size = loop.kind is st.LoopKind.VECTORIZED, body.size
        whole = Piece(written=body.written, moves=body.moves)
        for buffer, bytes_ in body.touched.items():
            moves = loop.var in body.moves[buffer]
            most = float(bytes_of(buffer))
            all_ = bytes_ * trips if moves else bytes_
            if moves and buffer in body.extents:
                index, extent = body.extents[buffer]
                by = shift(index, loop.var, env, stride or 1, self.lets)
                if by is not None:
                    extent = extent.over(abs(by), trips)
                    least = min(by * (trips - 1), 0)
                    further = least, least - by * ((trips - 1) // 2)
                    whole.place(buffer, index, extent, body, further)
                    all_ = extent.size * buffer.dtype.bytes
            elif buffer in body.extents:
                whole.place(buffer, *body.extents[buffer], body)
            whole.touched[buffer] = min(all_, most)
        whole.missed = {key: bytes_ * trips for key, bytes_ in body.missed.items()}
        whole.accessed = {key: bytes_ * trips for key, bytes_ in body.accessed.items()}
        for buffer, bytes_ in body.touched.items():
            again = bytes_ * trips - whole.touched[buffer]
            between = size + body.crowd(buffer, self.cache)
            still = 1.0 if together else kept(between, self.cache)
            whole.save(buffer, again * _factor(body, buffer) * still)
        return whole


def _factor(piece: Piece, buffer: Buffer) -> float:
    """What is written goes both ways, the second in part at the same time."""
    return _WRITTEN if buffer in piece.written else 1.0


def _apart(one: Piece, other: Piece, buffer: Buffer) -> int | None:
    """How many elements further on those of another piece begin; None where that is not known, or
    changes with the loops around them.
    """
    if buffer not in one.begins or buffer not in other.begins:
        return None
    first, here = (
        there - before
        for before, there in zip(one.begins[buffer], other.begins[buffer], strict=True)
    )
    return first if first == here else None


def _common(part: Piece, earlier: Piece, buffer: Buffer) -> float:
    """Bytes that both touch: nothing where the rows of one are the rest of those of the other, else
    all of the smaller ones.
    """
    most = min(part.touched[buffer], earlier.touched.get(buffer, 0.0))
    apart = _apart(part, earlier, buffer) if most else None
    if apart is None:
        return most
    ends = part.extents[buffer][1].run, -earlier.extents[buffer][1].run
    return 0.0 if apart in ends else most


def _join(whole: Piece, part: Piece) -> None:
    """Add what a part touches: rows that go on are longer ones."""
    for buffer, size in part.touched.items():
        longer = _longer(whole, part, buffer)
        if longer is not None:
            whole.place(buffer, *longer)
            whole.touched[buffer] = longer[1].size * buffer.dtype.bytes
        elif size > whole.touched.get(buffer, 0.0):
            whole.touched[buffer] = size
            if buffer in part.extents:
                whole.place(buffer, *part.extents[buffer], part)
            else:
                whole.extents.pop(buffer, None)
                whole.begins.pop(buffer, None)
        whole.moves.setdefault(buffer, set()).update(part.moves[buffer])
    whole.written |= part.written


def _longer(whole: Piece, part: Piece, buffer: Buffer) -> tuple[Expr, Extent, Piece] | None:
    """The rows that those of two pieces are together, with the piece that begins first; None where
    they are not rows of a kind, or that is not known.
    """
    apart = _apart(whole, part, buffer)
    if apart is None:
        return None
    (index, extent), (further, beside) = whole.extents[buffer], part.extents[buffer]
    together = extent.beside(apart, beside, LINE_BYTES // buffer.dtype.bytes)
    if together is None:
        return None
    return (index, together, whole) if apart >= 0 else (further, together, part)


def _leaves(stmt: st.Stmt, site: int, names: Mapping[Var, set[Var]]) -> Iterator[Piece]:
    """The accesses of one statement without others below it, each for itself; `names` has the
    variables that names stand for.
    """
    accesses = list(dict.fromkeys(_accesses(stmt)))
    written = {buffer for buffer, _, _, stored in accesses if stored}
    is_whole = isinstance(stmt, tile.MicroGemm | tile.Pack)
    matrix = _matrix(stmt)
    for buffer, bytes_, indices, stored in accesses:
        if not stored and (buffer, bytes_, indices, True) in accesses:
            continue
        piece = Piece({buffer: bytes_}, written=written & {buffer})
        if not is_whole and len(indices) == 1:
            piece.extents[buffer] = indices[0], Extent(bytes_ / buffer.dtype.bytes)
        elif matrix is not None and matrix[0] is buffer and buffer.scope == "global":
            piece.extents[buffer] = indices[0], matrix[1]
        piece.moves[buffer] = set().union(*(_variables(index, names) for index in indices))
        piece.missed[site, buffer] = bytes_ * _factor(piece, buffer)
        piece.accessed = dict(piece.missed)
        yield piece


def _matrix(stmt: st.Stmt) -> tuple[Buffer, Extent] | None:
    """The operand of a product or a packing that may be a tensor, and its rows; None where they
    are not known, and of other statements.
    """
    match stmt:
        case tile.Pack(src=operand, row_stride=down, col_stride=across, rows=rows, cols=cols):
            lengths = (down, rows), (across, cols)
        case tile.MicroGemm(a=operand, lda=lda, columns=False, m=m, k=k):  # others are tiles
            lengths = (lda, m), (int_const(1), k)
        case _:
            return None
    # From one element to the next, and how many.
    (step, run), rest = sorted((const_int(stride) or 0, count) for stride, count in lengths)
    return (operand.buffer, Extent(run).over(*rest)) if step == 1 else None


def _accesses(stmt: st.Stmt) -> Iterator[tuple[Buffer, float, tuple[Expr, ...], bool]]:
    """Buffers, bytes, indices, and whether they are written, of one statement."""
    match stmt:
        case tile.Pack(src=src, dst=dst, rows=rows, cols=cols):
            yield src.buffer, float(rows * cols * src.buffer.dtype.bytes), src.indices, False
            yield dst.buffer, float(rows * cols * dst.buffer.dtype.bytes), dst.indices, True
        case tile.MicroGemm(a=a, b=b, c=c, m=m, n=n, k=k):
            yield a.buffer, float(m * k * a.buffer.dtype.bytes), a.indices, False
            yield b.buffer, float(n * k * b.buffer.dtype.bytes), b.indices, False
            yield c.buffer, float(m * n * c.buffer.dtype.bytes), c.indices, True
        case _:
            for node in walk(stmt):
                if isinstance(node, ir.Load) and node.indices:
                    lanes = _lanes(node.indices[-1])
                    if in_registers(node.buffer, lanes):
                        continue
                    yield node.buffer, lanes * node.buffer.dtype.bytes, node.indices, False
            if isinstance(stmt, st.Store | st.Atomic) and stmt.indices:
                lanes = _lanes(stmt.indices[-1])
                if in_registers(stmt.buffer, lanes):
                    return
                yield stmt.buffer, lanes * stmt.buffer.dtype.bytes, stmt.indices, True


def _variables(value: Expr, names: Mapping[Var, set[Var]]) -> set[Var]:
    """The variables that an expression depends on."""
    known: set[Var] = set()
    for node in walk(value):
        if isinstance(node, Var):
            known |= names.get(node, {node})
    return known


def _lanes(index: Expr) -> float:
    return float(max((node.lanes for node in walk(index) if isinstance(node, ir.Ramp)), default=1))
