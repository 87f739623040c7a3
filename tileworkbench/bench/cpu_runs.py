"""Rows of tensors that lie apart from each other, and what going down them costs.

A tile that is narrower than the tensor has rows of a few lines each. The processor fetches the next
lines of a row, not the next row, so a run of lines begins anew in each (`memory_rates.py`):

- where the loops come back to the same rows a little further on, the lines behind the runs wait in
  the second cache, which has to give them up where there are many rows, or fewer that are powers of
  two apart and share few of its places; lines of such rows come into the first one slower;
- else the runs come from the level that has the tensor, unless the kernel fetches them ahead;
- of runs that are shorter than a line, the next one finds it in the first cache or the second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from tileworkbench.bench.cpu_block import Env, GridWork
from tileworkbench.bench.cpu_reuse import kept
from tileworkbench.bench.cpu_terms import shift
from tileworkbench.bench.memory_rates import LINE_BYTES, PAGE_BYTES, SHARED, MemoryRates
from tileworkbench.bench.parts import together
from tileworkbench.compiler.analysis.steps import trips
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import substitute

_WAYS = 8  # lines that each place of a cache has room for
_GAP = 12  # bytes between elements of a run: every second or fourth of a line
_SOON = 9  # iterations after which an address may have come back
_NEAR = 1024  # bytes between rows that the processor foresees as if they were one
_BESIDE = 1024  # rows whose places are looked at
_OVERLAP = 3.0  # the norm of lines on their way into the second cache, and from there
_CROWDED = 8  # times as many rows as their places have room for
_APART = 8  # places of the first cache, among which lines come in as among many


@dataclass(frozen=True, slots=True)
class Rows:
    """What a block accesses of a tensor: `count` rows, each `pitch` bytes after the one before, and
    `run` bytes of each at a time; `goes_on` says whether the next iteration or block goes on in
    them, `fetched` whether the kernel fetches them ahead itself.
    """

    count: int
    run: float
    pitch: int
    goes_on: bool = False
    fetched: bool = False

    @property
    def lines(self) -> float:
        """Lines of the cache in a run."""
        return max(self.run / LINE_BYTES, 1.0)

    def crowded(self, first_cache: int) -> float:
        """How far, from 0 to 1, their lines are slower to come into a first cache of so many bytes,
        because they share one or two of its places, or four in part: not at all where these have
        room for all rows.
        """
        period = max(_period(first_cache), LINE_BYTES)
        places = {at * self.pitch % period // LINE_BYTES for at in range(min(_BESIDE, self.count))}
        many = min(math.log(self.count / (_WAYS * len(places)), _CROWDED), 1.0)
        few = min(math.log2(_APART / len(places)) / 2, 1.0)
        return max(many, 0.0) * max(few, 0.0)

    def pressure(self, cache: int, behind: int = 1) -> float:
        """Bytes of a cache of so many that the runs of all rows take, with so many lines behind
        each; more where they share few of its places.
        """
        period = _period(cache)
        apart = period / math.gcd(self.pitch, period)
        row = (self.lines + behind) * LINE_BYTES
        return self.count * row * cache / (_WAYS * min(apart * row, period))


def _period(cache: int) -> int:
    """Bytes after which addresses share places of a cache of so many."""
    return 1 << (cache // _WAYS).bit_length() - 1


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
        by = [abs(shift(index, block, env, blocks) or 0) for blocks in soon or [1]]
        is_vector = bool(loops) and loops[0].kind is st.LoopKind.VECTORIZED
        rows = _rows(moves, by, buffer.dtype.bytes, buffer in fetched, is_vector)
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
    by: Sequence[int],
    size: int,
    fetched: bool,
    is_vector: bool = True,
) -> Rows:
    """The rows of an access that moves by so many elements of so many bytes with each iteration of
    the loops around it, the innermost first, which is a vector or not, and `by` until the next
    blocks.
    """
    moves = [(step, times) for step, times in moves if step and times > 1]
    run, pitch, count, goes_on = 1, 0, 1, False
    # Vectors down columns are turned in registers.
    for step, times in (*sorted(moves[:2]), *moves[2:]) if is_vector else moves:
        if not pitch and (step - run) * size <= _GAP:
            run += step * (times - 1)
        elif step <= run or (pitch and (step - run) * size <= LINE_BYTES):
            goes_on = True
            break
        else:
            pitch, count = pitch or step, count * times
    # The rest of a row may be an access of its own.
    goes_on = goes_on or any(0 < step * size <= run * size + LINE_BYTES for step in by)
    return Rows(count, run * size, pitch * size, goes_on, fetched)


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
    """What is near when the loops come back to rows: which part of the lines behind all runs is in
    the second cache, and which part of the lines in them in the first.
    """

    second: float
    first: float = 0.0


def near_of(rows: Collection[Rows], first: int, second: int) -> Near:
    """What caches of so many bytes keep of all rows."""
    several = [each for each in rows if each.count > 1]
    behind = kept(sum(each.pressure(second) for each in several), second)
    return Near(behind, kept(sum(each.pressure(first, 0) for each in several), first))


def rows_ns(
    rows: Rows,
    bytes_: float,
    straight_ns: float,
    rates: MemoryRates,
    level: str,
    stored: bool,
    near: Near,
    crowded: float = 0.0,
) -> float:
    """Nanoseconds of `bytes_` of a tensor from `level`, which would take `straight_ns` in a row,
    where so much is `near`, and the rows are so `crowded` in the first cache.
    """
    if rows.count <= 1 or rows.run >= PAGE_BYTES:
        return straight_ns

    def second_ns(lines: float) -> float:
        """A run of so many lines of the second cache."""
        there, shared = (rates.run_ns(name, stored, lines) for name in ("L2", SHARED))
        return there + crowded * max(shared - there, 0.0)

    runs = bytes_ / max(rows.run, LINE_BYTES)
    again = bytes_ / rows.run - runs  # of the same line
    from_second_ns = runs * second_ns(rows.lines)
    if rows.pitch < _NEAR:
        near_ns = straight_ns
    elif level == "L2":
        near_ns = max(straight_ns, from_second_ns)
    else:
        near_ns = together((straight_ns, from_second_ns), _OVERLAP)
    if rows.fetched:
        far_ns = straight_ns * max(LINE_BYTES / rows.run, 1.0)
    else:
        far_ns = max(runs * rates.run_ns(level, stored, rows.lines), near_ns)
    if not rows.goes_on:
        return far_ns + again * rates.run_ns(level, stored, 1)
    again_ns = again * (1 - near.first) * second_ns(1)
    return near.second * near_ns + (1 - near.second) * far_ns + again_ns
