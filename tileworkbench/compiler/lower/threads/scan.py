"""`T.cumsum` and `T.cummax` by the threads of a block, in shared memory.

Along the last dimension a warp walks each line in segments of its lanes: an inclusive scan by
shuffles, and the last lane's value carried to the next segment. Along other dimensions a thread
walks each line, so that neighbours access neighbouring elements. Fragments go through shared
memory. All threads execute the same loops; what lies outside is left out by predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import (
    add,
    binary,
    cast,
    conjunction,
    const,
    const_int,
    int_const,
    mul,
    select,
    sub,
)
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Region
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.simt import Exchange
from tileworkbench.compiler.ir.stmt import Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Scan
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.shared.combining import combine
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import (
    NOTHING,
    LayoutMap,
    LayoutUpdate,
    Level,
    Proposal,
)
from tileworkbench.compiler.lower.threads.plan import plan_loop
from tileworkbench.compiler.lower.threads.reduce import working_dtype
from tileworkbench.compiler.lower.threads.staging import (
    SharedTile,
    read_tile,
    workspace,
    write_tile,
)

_REASON = "is one side of a scan, which goes through shared memory"


def infer_layout(
    op: Scan, layouts: LayoutMap, level: Level, context: ThreadContext
) -> LayoutUpdate:
    """Any fragment is accepted: that of the other side, else one that the operator chooses."""
    if level is Level.STRICT:
        return NOTHING
    sides = [r.buffer for r in (op.src, op.dst) if r.buffer.scope == "local.fragment"]
    known = [fragment for fragment in map(layouts.fragment, sides) if fragment is not None]
    wanted = []
    for buffer in dict.fromkeys(sides):
        if layouts.fragment(buffer) is None:
            shape = tuple(const_int(extent) or 1 for extent in buffer.shape)
            if known and known[0].shape == shape:
                wanted.append(Proposal(buffer, known[0], _REASON))
            elif level is Level.FREE:
                layout = plan_loop(shape, 1, context.threads, True)
                wanted.append(Proposal(buffer, layout, _REASON))
    return LayoutUpdate(tuple(wanted))


def lower(op: Scan, context: ThreadContext) -> Stmt:
    """The part of one thread."""
    return seq(_Lowering(op, context).run())


class _Lowering:
    def __init__(self, op: Scan, context: ThreadContext) -> None:
        self.op, self.context = op, context
        self.shape = tuple(const_int(extent) or 1 for extent in op.dst.extents)
        self.extent = self.shape[op.dim]
        self.kept = [d for d in range(len(self.shape)) if d != op.dim]
        self.lines = prod(self.shape[d] for d in self.kept)
        self.dtype = working_dtype(op.dst.buffer.dtype)
        for region in (op.src, op.dst):
            self._check(region)

    def _check(self, region: Region) -> None:
        buffer = region.buffer
        if buffer.scope == "local.fragment" and region.extents != buffer.shape:
            raise UnsupportedError(
                f"a scan takes the fragment '{buffer.name}' as a whole, not a part of it",
                self.context.span(self.op.site),
                hint="keep it in shared memory",
            )
        if buffer.scope not in ("shared", "local.fragment"):
            raise UnsupportedError(
                f"a scan takes tiles, and '{buffer.name}' is in scope '{buffer.scope}'",
                self.context.span(self.op.site),
                hint="allocate it with T.alloc_shared or T.alloc_fragment",
            )

    def run(self) -> list[Stmt]:
        op, context = self.op, self.context
        stmts: list[Stmt] = []
        source = self._region(op.src)
        target = self._region(op.dst)
        if source is None or target is None:
            dst = op.dst.buffer
            stand_in = workspace(dst.name, dst.dtype, self.shape, context)
            if source is None:
                stmts.append(self._spill(stand_in))
                source = stand_in
            scanned = stand_in if target is None else target
        else:
            scanned = target
        stmts += self._scan(source, scanned)
        if target is None:
            stmts.append(self._fetch(scanned))
        return stmts

    def _region(self, region: Region) -> SharedTile | None:
        """A side that lies in shared memory."""
        if region.buffer.scope != "shared":
            return None
        return SharedTile(
            region.buffer,
            lambda index: tuple(add(m, i) for m, i in zip(region.mins, index, strict=True)),
        )

    def _spill(self, into: SharedTile) -> Stmt:
        """The source's fragment to shared memory, in the destination's dtype."""
        buffer, context = self.op.src.buffer, self.context
        assert isinstance(buffer.layout, Fragment)  # inference gives every fragment one
        return write_tile(context.registers(buffer), buffer.layout, into, context, self.op.site)

    def _fetch(self, source: SharedTile) -> Stmt:
        """The result from shared memory to the destination's fragment."""
        buffer, context = self.op.dst.buffer, self.context
        assert isinstance(buffer.layout, Fragment)  # inference gives every fragment one
        return read_tile(source, context.registers(buffer), buffer.layout, context, self.op.site)

    # Scanning

    def _scan(self, source: SharedTile, target: SharedTile) -> list[Stmt]:
        context = self.context
        warp = context.lanes
        whole = context.threads % warp == 0 and context.start % warp == 0
        if whole and self.op.dim == len(self.shape) - 1:
            return [self._by_warps(source, target)]
        return [self._by_threads(source, target)]

    def _loop(self, name: str, start: int, stop: int, body: Callable[[Expr], Stmt]) -> Stmt:
        if stop - start == 1:
            return body(int_const(start))
        var = self.context.loop_var(name)
        return counting(var, stop, body(var), self.op.site, start)

    def _index(self, line: Expr, position: Expr) -> list[Expr]:
        """The index of a position (from the end when reversed) of a line."""
        index: list[Expr] = [int_const(0)] * len(self.shape)
        rest = line
        for d in reversed(self.kept):
            extent = self.shape[d]
            first = d == self.kept[0]
            index[d] = rest if first else binary("floormod", rest, int_const(extent))
            rest = binary("floordiv", rest, int_const(extent))
        last = int_const(self.extent - 1)
        index[self.op.dim] = sub(last, position) if self.op.reverse else position
        return index

    def _read(self, place: SharedTile, index: Sequence[Expr], predicate: Expr | None) -> Expr:
        element = Load(place.buffer, place.at(index), predicate)
        return cast(cast(element, self.op.dst.buffer.dtype), self.dtype)

    def _write(
        self, place: SharedTile, index: Sequence[Expr], value: Expr, predicate: Expr | None
    ) -> Stmt:
        value = cast(value, place.buffer.dtype)
        return Store(place.buffer, place.at(index), value, predicate, site=self.op.site)

    def _inside(self, line: Expr, workers: int) -> list[Expr]:
        """The condition for a line to exist, where some worker may have none."""
        if self.lines % workers == 0:
            return []
        return [binary("lt", line, int_const(self.lines))]

    def _combine(self, a: Expr, b: Expr) -> Expr:
        return combine(self.op.kind, a, b, False)

    def _by_threads(self, source: SharedTile, target: SharedTile) -> Stmt:
        """Every thread walks along lines of its own."""
        context, threads = self.context, self.context.threads
        total = context.temporary("running", self.dtype, 1)
        zero = (int_const(0),)

        def element(line: Expr, position: Expr, first: bool) -> Stmt:
            predicate = conjunction(self._inside(line, threads))
            index = self._index(line, position)
            value = self._read(source, index, predicate)
            if not first:
                value = self._combine(Load(total, zero), value)
            return seq(
                [
                    Store(total, zero, value, site=self.op.site),
                    self._write(target, index, Load(total, zero), predicate),
                ]
            )

        def walk(turn: Expr) -> Stmt:
            line = add(context.thread, mul(turn, int_const(threads)))
            stmts = [element(line, int_const(0), True)]
            if self.extent > 1:
                stmts.append(self._loop("k", 1, self.extent, lambda k: element(line, k, False)))
            return seq(stmts)

        return self._loop("turn", 0, -(-self.lines // threads), walk)

    def _by_warps(self, source: SharedTile, target: SharedTile) -> Stmt:
        """Every warp walks along lines of its own, a segment of all lanes at a time."""
        context = self.context
        size = context.lanes
        warps = context.threads // size
        segments = -(-self.extent // size)
        value = context.temporary("running", self.dtype, 1)
        carry = context.temporary("carry", self.dtype, 1)
        zero = (int_const(0),)

        def walk(turn: Expr) -> Stmt:
            line = add(context.warp, mul(turn, int_const(warps)))
            start = Store(carry, zero, const(0, self.dtype), site=self.op.site)
            body = self._loop("segment", 0, segments, lambda s: segment(line, s))
            return seq([start, body] if segments > 1 else [body])

        def segment(line: Expr, number: Expr) -> Stmt:
            position = add(mul(number, int_const(size)), context.lane)
            conditions = self._inside(line, warps)
            if self.extent % size:
                conditions.append(binary("lt", position, int_const(self.extent)))
            predicate = conjunction(conditions)
            index = self._index(line, position)
            element = self._read(source, index, predicate)
            stmts: list[Stmt] = [
                Store(value, zero, element, site=self.op.site),
                *self._within_warp(value, size),
            ]
            if segments > 1:
                total = self._combine(Load(carry, zero), Load(value, zero))
                later = binary("gt", number, int_const(0))
                update = select(later, total, Load(value, zero))
                stmts.append(Store(value, zero, update, site=self.op.site))
            stmts.append(self._write(target, index, Load(value, zero), predicate))
            if segments > 1:
                last = context.names.var("last", self.dtype)
                from_last = (Load(value, zero), int_const(size - 1))
                stmts += [
                    Exchange(last, "shfl", from_last, size, site=self.op.site),
                    Store(carry, zero, last, site=self.op.site),
                ]
            return seq(stmts)

        return self._loop("turn", 0, -(-self.lines // warps), walk)

    def _within_warp(self, value: Buffer, size: int) -> list[Stmt]:
        """An inclusive scan over the lanes."""
        context, zero = self.context, (int_const(0),)
        stmts: list[Stmt] = []
        distance = 1
        while distance < min(size, self.extent):
            before = context.names.var("before", self.dtype)
            own = Load(value, zero)
            has_one = binary("ge", context.lane, int_const(distance))
            total = select(has_one, self._combine(before, own), own)
            stmts += [
                Exchange(before, "shfl_up", (own, int_const(distance)), size, site=self.op.site),
                Store(value, zero, total, site=self.op.site),
            ]
            distance *= 2
        return stmts
