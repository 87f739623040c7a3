"""Rows of tensors that lie apart from each other, and what going down them costs.

A tile that is narrower than the tensor has rows of a few lines each. The processor fetches the next
lines of a row, not the next row, so a run of lines begins anew in each (`memory_rates.py`):

- runs come from the level that has the tensor, at the rate of rows like these: of rows that the
  kernel fetches ahead, or of others, which are slower where they share a few places of the caches;
- of runs that are shorter than a line, the next one finds it in the first cache or the second, if
  the loops are back before these have given it up;
- each row is in a page of its own, and a core does not remember where many pages are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tileworkbench.bench.cpu_block import Env, GridWork
from tileworkbench.bench.cpu_extent import MOST_ROWS, WAYS, Extent, period_of
from tileworkbench.bench.cpu_reuse import kept
from tileworkbench.bench.cpu_terms import bytes_of, shift
from tileworkbench.bench.memory_rates import FETCH, LINE_BYTES, LOAD, PAGE_BYTES, STORE, MemoryRates
from tileworkbench.compiler.analysis.steps import trips
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import substitute

_GAP = 12  # bytes between elements of a run: every second or fourth of a line
_SOON = 9  # iterations after which an address may have come back
_NEAR = 1024  # bytes between rows that the processor foresees as if they were one row
_BEHIND = 2  # lines behind a run that it fetches then, in vain if they are lost before their turn
# Times as many rows as their places have room for, where lines come from the second cache, and from
# behind it.
_CROWDED, _FAR_CROWDED = 8, 64
_APART = 8  # places of the first cache, among which lines come in as among many


@dataclass(frozen=True, slots=True)
class Rows:
    """What a block accesses of a tensor: `count` rows, each `pitch` bytes after the one before, and
    `run` bytes of each at a time; `back` is after how many rows a later iteration or block goes on
    in the first of them, 0 if none does soon, `fetched` whether the kernel fetches them ahead
    itself, `size` the bytes of the tensor.
    """

    count: int
    run: float
    pitch: int
    back: int = 0
    fetched: bool = False
    size: float = 0.0

    @property
    def lines(self) -> float:
        """Lines of the cache that a run touches, if runs follow each other from a line's start."""
        bytes_ = round(self.run)
        return (bytes_ + LINE_BYTES - math.gcd(bytes_, self.pitch, LINE_BYTES)) / LINE_BYTES

    def crowded(self, first_cache: int, full: int = _CROWDED) -> float:
        """How far, from 0 to 1, their lines are slower to come into a first cache of so many bytes,
        because they share one or two of its places, a quarter as much with four: not at all where
        these have room for all rows, most where rows are `full` times as many.
        """
        period = period_of(first_cache)
        places = {at * self.pitch % period // LINE_BYTES for at in range(min(MOST_ROWS, self.rows))}
        many = min(math.log(self.rows / (WAYS * len(places)), full), 1.0)
        few = min(max(math.log2(_APART / len(places)) / 2, 0.0), 1.0)
        return max(many, 0.0) * few**2

    @property
    def rows(self) -> int:
        """Rows until the loops are back in the first."""
        return self.back or self.count

    def pages(self, rows: float) -> float:
        """Pages that so many rows stand in."""
        return min(rows * min(self.pitch / PAGE_BYTES, 1.0), self.size / PAGE_BYTES)

    def pressure(self, cache: int, rows: int) -> float:
        """Bytes of a cache of so many that the runs of so many rows take; of rows that are close
        together all that lies between, which is fetched as well.
        """
        run = self.run if self.pitch >= _NEAR else self.pitch
        return Extent(run, {self.pitch: rows}).pressure(1, cache)


def rows_of(grid: GridWork, cache: float, fetched: Collection[Buffer] = ()) -> dict[Buffer, Rows]:
    """The rows of each tensor that a block of a grid goes down, by the most frequent access, where
    the kernel fetches those of some tensors ahead and the second cache has so many bytes.
    """
    reused = next(iter(grid.reused.values()))
    env, block = reused.env, grid.loop.var
    # Blocks after this one that come before the cache has given up what it touched.
    soon = [n for n in reused.reuse.distances(grid.blocks) if n * reused.whole.size <= cache]
    most: dict[Buffer, tuple[int, Rows]] = {}
    for buffer, index, loops in _accesses(grid.loop.body, (), {}):
        moves = [(_step(index, loop, env), trips(loop)) for loop in loops]
        by = [(blocks, abs(shift(index, block, env, blocks) or 0)) for blocks in soon or [1]]
        is_vector = bool(loops) and loops[0].kind is st.LoopKind.VECTORIZED
        rows = _rows(moves, by, buffer.dtype.bytes, is_vector)
        rows = replace(rows, fetched=buffer in fetched, size=float(bytes_of(buffer)))
        often = math.prod(trips(loop) for loop in loops)
        if buffer not in most or often > most[buffer][0]:
            most[buffer] = often, rows
    return {buffer: rows for buffer, (_, rows) in most.items()}


def _step(index: Expr, loop: st.For, env: Env) -> int:
    """How many elements an address moves in an iteration. Quotients and remainders move by more in
    some, and come back in one of the next.
    """
    near = range(1, min(trips(loop), _SOON))
    moved = [abs(shift(index, loop.var, env, steps) or 0) / steps for steps in near]
    return math.ceil(min((each for each in moved if each), default=0))


def _rows(
    moves: Sequence[tuple[int, int]],
    by: Sequence[tuple[int, int]],
    size: int,
    is_vector: bool = True,
) -> Rows:
    """The rows of an access that moves by so many elements of so many bytes with each iteration of
    the loops around it, the innermost first, which is a vector or not, and `by` so many blocks and
    elements until others.
    """
    moves = [(step, times) for step, times in moves if step and times > 1]
    run, pitch, count = 1, 0, 1
    # Vectors down columns are turned in registers.
    for step, times in (*sorted(moves[:2]), *moves[2:]) if is_vector else moves:
        if not pitch and (step - run) * size <= _GAP:
            run += step * (times - 1)
        elif step <= run or (pitch and (step - run) * size <= LINE_BYTES):
            return Rows(count, run * size, pitch * size, count)
        elif pitch and step % pitch == 0 and step // pitch < count:
            back, rows = step // pitch, count
            count += back * (times - 1)
            if back <= rows / 2:  # most of them again
                return Rows(count, run * size, pitch * size, rows)
        else:
            pitch, count = pitch or step, count * times
    # The rest of a row may be an access of its own.
    beside = (blocks for blocks, step in by if 0 < step * size <= run * size + LINE_BYTES)
    return Rows(count, run * size, pitch * size, count * next(beside, 0))


def _accesses(
    stmt: st.Stmt, loops: tuple[st.For, ...], names: dict[Var, Expr]
) -> Iterator[tuple[Buffer, Expr, tuple[st.For, ...]]]:
    """The addresses of elements of tensors, with the loops around them, the innermost first;
    `names` has what names before the statement stand for.
    """
    if isinstance(stmt, st.For):
        loops = (stmt, *loops)
    children = [child for child in stmt.children() if isinstance(child, st.Stmt)]
    if children:
        names = dict(names)
        for child in children:
            if isinstance(child, st.Let):
                names[child.var] = substitute(child.value, names)
            yield from _accesses(child, loops, names)
        return
    for use in accesses(stmt):
        is_one = use.of_element and use.count == len(use.indices) == 1
        if is_one and use.buffer.scope == "global":
            yield use.buffer, substitute(use.indices[0], names), loops


@dataclass(frozen=True, slots=True)
class Near:
    """What is near when the loops come back to rows: which part of the lines of all runs is in the
    first cache, and in the second; how many pages were accessed meanwhile; and how far the rows are
    `crowded` in the first cache for lines from the second, and for others.
    """

    first: float
    second: float = 1.0
    pages: float = 0.0
    crowded: float = 0.0
    far_crowded: float = 0.0


def near_of(rows: Rows, all_: Collection[Rows], first: int, second: int) -> Near:
    """What caches of so many bytes keep of rows, which are among all that a block goes down."""
    several = [(each, each.rows if each is rows else each.count) for each in all_ if each.count > 1]

    def kept_of(cache: int) -> float:
        return kept(sum(each.pressure(cache, count) for each, count in several), cache)

    if rows.back:
        pages = sum(each.pages(count) for each, count in several)
    else:
        pages = sum(each.size for each in all_) / PAGE_BYTES
    crowded = rows.crowded(first), rows.crowded(first, _FAR_CROWDED)
    return Near(kept_of(first), kept_of(second), pages, *crowded)


def rows_ns(
    rows: Rows,
    bytes_: float,
    straight_ns: float,
    rates: MemoryRates,
    level: str,
    stored: bool,
    near: Near,
) -> float:
    """Nanoseconds of `bytes_` of a tensor from `level`, which would take `straight_ns` in a row,
    where so much is `near`.
    """
    if rows.count <= 1 or rows.run >= PAGE_BYTES:
        return straight_ns
    kind = FETCH if rows.fetched else STORE if stored else LOAD

    def run_ns(level: str, lines: float) -> float:
        crowded = near.crowded if level == "L2" else near.far_crowded
        return rates.run_ns(level, kind, lines, crowded)

    runs = bytes_ / rows.run
    first = bytes_ / max(rows.run, LINE_BYTES)  # that are the first to touch a line
    again = runs * rows.lines - first * max(rows.run / LINE_BYTES, 1.0)  # of lines that others had
    far_ns = straight_ns
    if rows.pitch < _NEAR:
        behind = min(rows.pitch / rows.run - 1, _BEHIND / rows.lines)
        far_ns *= 1 + (1 - near.second) * max(behind, 0.0)
    else:
        far_ns = max(first * run_ns(level, rows.run / LINE_BYTES), straight_ns)
    again_ns = again * run_ns(level, 1)
    if rows.back:
        second_ns = again * run_ns("L2", 1)
        again_ns = (1 - near.first) * (near.second * second_ns + (1 - near.second) * again_ns)
    return rates.walked_ns(
        kind, far_ns + again_ns, runs * min(rows.pitch / PAGE_BYTES, 1.0), near.pages
    )
