"""Exchanges: every thread writes its operand into an array, then each reads what it is to get.

A vote or reduction of a warp is computed once for the warp; a match, or one for which the threads
name the lanes themselves, once for each thread. Lanes that do not execute the exchange take no part
in it. What a shuffle from such a lane gives is not defined; here it is the thread's own value.
"""

from __future__ import annotations

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import (
    FALSE,
    TRUE,
    add,
    binary,
    cast,
    const,
    int_const,
    logical,
    mul,
    select,
    sub,
)
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP, Exchange
from tileworkbench.compiler.ir.stmt import Alloc, Let, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Parallel, ReduceKind
from tileworkbench.compiler.ir.types import INT32, UINT64, DType
from tileworkbench.compiler.lower.shared.combining import combine, identity
from tileworkbench.compiler.lower.thread_loops.block import Block, Scope, lane_is_active

_ZERO = int_const(0)
_SHUFFLES = ("shfl", "shfl_xor", "shfl_up", "shfl_down")
_REDUCTIONS = {
    "warp_sum": ReduceKind.SUM,
    "warp_max": ReduceKind.MAX,
    "warp_min": ReduceKind.MIN,
    "warp_and": ReduceKind.BITAND,
    "warp_or": ReduceKind.BITOR,
    "warp_xor": ReduceKind.BITXOR,
}


@dataclass(frozen=True, slots=True)
class Split:
    """An exchange in three parts: what each thread does first, what the block does then, and what
    each thread does after that. The result is named by the last `Let` of `after`, or of `between`
    when all threads have the same.
    """

    before: list[Stmt]
    between: list[Stmt]
    after: list[Stmt]


def split_exchange(op: Exchange, block: Block, scope: Scope, mask_varies: bool) -> Split:
    """`op`, executed by the threads of `scope`."""
    exchange = _Exchange(op, block, scope)
    if op.is_barrier:
        return exchange.over_block()
    if op.kind in _SHUFFLES:
        return exchange.shuffle()
    if op.kind in ("match_any", "match_all") or mask_varies:
        return exchange.per_thread()
    return exchange.per_warp()


class _Exchange:
    def __init__(self, op: Exchange, block: Block, scope: Scope) -> None:
        self.op = op
        self.block = block
        self.scope = scope
        self.values = block.array(f"{op.var.name}_lanes", op.args[0].dtype) if op.args else None

    @property
    def before(self) -> list[Stmt]:
        """Every thread writes its operand into the array."""
        if self.values is None:
            return []
        place = (self.block.thread,)
        return [Store(self.values, place, self.op.args[0], site=self.op.site)]

    def let(self, value: Expr) -> Stmt:
        return Let(self.op.var, cast(value, self.op.var.dtype), site=self.op.site)

    def shown(self, thread: Expr) -> Expr:
        """The operand of `thread`."""
        assert self.values is not None
        return Load(self.values, (thread,))

    # Shuffles

    def shuffle(self) -> Split:
        thread, width = self.block.thread, self.op.width
        lane = binary("floormod", thread, int_const(width))
        first, other = sub(thread, lane), self.op.args[1]
        source, inside = self.source(lane, other)
        place = add(first, source)
        if self.block.count % width:
            exists = binary("lt", place, int_const(self.block.count))
            inside = exists if inside is TRUE else logical("logical_and", inside, exists)
        value = select(inside, self.shown(place), self.shown(thread))
        return Split(self.before, [], [self.let(value)])

    def source(self, lane: Expr, other: Expr) -> tuple[Expr, Expr]:
        """The lane to read in the segment, and whether the segment has it."""
        width = int_const(self.op.width)
        match self.op.kind:
            case "shfl":
                return binary("floormod", other, width), TRUE
            case "shfl_up":
                source = sub(lane, other)
            case "shfl_down":
                source = add(lane, other)
            case _:  # also reads earlier segments of the warp
                before: Expr = _ZERO
                if self.op.width < LANGUAGE_WARP:
                    before = sub(
                        binary("floormod", self.block.thread, int_const(LANGUAGE_WARP)), lane
                    )
                source = sub(binary("xor", add(before, lane), other), before)
                inside = binary("ge", add(before, source), _ZERO)
                return source, logical("logical_and", inside, binary("lt", source, width))
        low = binary("ge", source, _ZERO)
        return source, logical("logical_and", low, binary("lt", source, width))

    # Votes, matches and reductions

    def per_warp(self) -> Split:
        scope, site = self.scope, self.op.site
        stop = scope.start + scope.extent
        first = scope.start // LANGUAGE_WARP
        count = -(-stop // LANGUAGE_WARP) - first
        warps = -(-self.block.count // LANGUAGE_WARP)
        results = self.block.memory(
            f"{self.op.var.name}_warps", self.op.var.dtype, (int_const(warps),)
        )
        var = self.block.names.var("warp")
        warp = add(var, int_const(first))
        stmts, result = self.folded(mul(warp, int_const(LANGUAGE_WARP)))
        body = seq([*stmts, Store(results, (warp,), result, site=site)])
        loop = Parallel((var,), (int_const(count),), body, site=site)
        warp_of_thread = binary("floordiv", self.block.thread, int_const(LANGUAGE_WARP))
        return Split(self.before, [loop], [self.let(Load(results, (warp_of_thread,)))])

    def per_thread(self) -> Split:
        thread = self.block.thread
        lane = binary("floormod", thread, int_const(LANGUAGE_WARP))
        stmts, result = self.folded(sub(thread, lane))
        return Split(self.before, [], [*stmts, self.let(result)])

    def folded(self, first: Expr) -> tuple[list[Stmt], Expr]:
        """The combination over the warp that starts at thread `first`."""
        op, site, block = self.op, self.op.site, self.block
        stop = self.scope.start + self.scope.extent
        aligned = self.scope.start % LANGUAGE_WARP == 0 and stop % LANGUAGE_WARP == 0
        lane = block.names.var("lane")
        thread = add(first, lane)
        active = lane_is_active(self.scope, thread, aligned)
        if op.mask is not None:
            bit = binary("and", binary("shr", op.mask, cast(lane, op.mask.dtype)), _one(op.mask))
            named = binary("ne", bit, const(0, op.mask.dtype))
            active = named if active is None else logical("logical_and", active, named)
        total = self.local("combined", op.var.dtype if op.kind in _REDUCTIONS else UINT64)
        start, step = self.step(Load(total, ()), thread, lane)
        if active is not None:
            step = select(active, step, Load(total, ()))
        stmts: list[Stmt] = [
            Alloc(total, start, site=site),
            counting(lane, LANGUAGE_WARP, Store(total, (), step, site=site), site),
        ]
        if op.kind != "match_all":
            return stmts, self.finished(Load(total, ()))
        everyone = self.local("present", UINT64)
        one = _lane_bit(lane)
        more = binary("or", Load(everyone, ()), one)
        seen = more if active is None else select(active, more, Load(everyone, ()))
        stmts += [
            Alloc(everyone, const(0, UINT64), site=site),
            counting(lane, LANGUAGE_WARP, Store(everyone, (), seen, site=site), site),
        ]
        same = binary("eq", Load(total, ()), Load(everyone, ()))
        return stmts, select(same, Load(everyone, ()), const(0, UINT64))

    def step(self, total: Expr, thread: Expr, lane: Var) -> tuple[Expr, Expr]:
        """What the combination starts with, and what it is with one more lane.

        Votes collect the lanes in which the condition holds; `all_sync` those in which it fails.
        """
        op = self.op
        if op.kind in _REDUCTIONS:
            kind = _REDUCTIONS[op.kind]
            return identity(kind, op.var.dtype), combine(kind, total, self.shown(thread), False)
        taken: Expr = TRUE
        if op.kind.startswith("match"):
            taken = binary("eq", self.shown(thread), self.shown(self.block.thread))
        elif op.kind != "activemask":
            taken = self.shown(thread)
            if op.kind == "all_sync":
                taken = binary("eq", taken, FALSE)
        return const(0, UINT64), binary(
            "or", total, select(taken, _lane_bit(lane), const(0, UINT64))
        )

    def finished(self, total: Expr) -> Expr:
        if self.op.kind == "any_sync":
            return cast(binary("ne", total, const(0, UINT64)), INT32)
        if self.op.kind == "all_sync":
            return cast(binary("eq", total, const(0, UINT64)), INT32)
        return total

    def over_block(self) -> Split:
        """All threads of the block get one value."""
        op, site = self.op, self.op.site
        total = self.block.cell(op.var.name, INT32)
        thread = self.block.names.var("t")
        operand = cast(self.shown(add(thread, int_const(self.scope.start))), INT32)
        start, step = {
            "block_count": (0, add(Load(total, ()), operand)),
            "block_all": (1, binary("and", Load(total, ()), operand)),
            "block_any": (0, binary("or", Load(total, ()), operand)),
        }[op.kind]
        between = [
            Store(total, (), int_const(start), site=site),
            counting(thread, self.scope.extent, Store(total, (), step, site=site), site),
            self.let(Load(total, ())),
        ]
        return Split(self.before, between, [])

    def local(self, name: str, dtype: DType) -> Buffer:
        return Buffer(self.block.names.fresh(name), dtype, (), "local.var")


def _one(mask: Expr) -> Expr:
    return const(1, mask.dtype)


def _lane_bit(lane: Expr) -> Expr:
    return binary("shl", const(1, UINT64), cast(lane, UINT64))
