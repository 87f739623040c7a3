"""Copies from global memory that the blocks of a cluster share.

Which blocks issue a copy is known when the kernel is traced. Those that the conditions around it
rule out do not; of the others, each issues the part of the tile that is its own, or, when all name
the same part, the lowest-ranked one issues it for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tileworkbench.compiler.analysis.access import conjuncts, has_loads
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.frontend.builder import Builder
from tileworkbench.compiler.frontend.clusters import own_rank, peer, peer_address
from tileworkbench.compiler.frontend.control import let
from tileworkbench.compiler.frontend.regions import Operand, copy_regions
from tileworkbench.compiler.frontend.values import Value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Address, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.simt import BarrierSignal, ClusterBarrier
from tileworkbench.compiler.ir.stmt import If, Let, Seq
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.passes.simplify_expressions import simplified
from tileworkbench.language.tile import emit_operands

_ZERO, _ONE = build.int_const(0), build.int_const(1)


def multicast(
    construct: str,
    builder: Builder,
    source: Operand,
    target: Operand,
    mask: int,
    barrier: Address | None,
) -> None:
    """Copy to all blocks whose bits in `mask` are set; those outside it copy for themselves.

    With a `barrier` each of them expects at its own one what all that issue send it; without one
    they wait for each other, unless a single one gets here.
    """
    if (source.buffer.scope, target.buffer.scope) != ("global", "shared"):
        raise TileValueError(
            f"{construct} with a cluster mask moves from global to shared memory, not from "
            f"{source.buffer.scope} to {target.buffer.scope}"
        )
    size = prod(builder.cluster)
    masked = [rank for rank in range(size) if mask >> rank & 1]
    views = _views(builder)
    reached = [rank for rank in masked if views[rank].reaches]
    if reached == masked and _agree([views[rank].of(source, target) for rank in masked]):
        emit_operands(source, target)  # what each would get is what it can read itself
        return
    parts = not _agree([views[rank].of(target) for rank in reached])
    issuers = reached if parts else reached[:1]
    waits = barrier is None and len(reached) > 1
    if waits and (builder.enclosing("role") or not all(view.reaches for view in views)):
        raise UnsupportedError(
            f"{construct} with a cluster mask waits for all threads of the cluster, and only some "
            "of them reach it",
            hint="use T.tma_copy, whose memory barrier says when the tile has arrived",
        )
    rank = let(builder, "rank", Value(own_rank(builder))).expr
    bytes_ = 0 if barrier is None else _bytes(construct, source, target)

    def send() -> None:
        for other in masked:
            number = build.int_const(other)
            emit_operands(source, replace(target, buffer=peer(builder, target.buffer, number)))
            if barrier is not None:
                builder.emit(BarrierSignal(peer_address(builder, barrier, number), 0, -bytes_))

    def expect(place: Address) -> None:
        builder.emit(BarrierSignal(place, 0, bytes_ * len(issuers)))

    if waits:
        builder.emit(ClusterBarrier())
    if barrier is not None:
        _where(builder, rank, masked, lambda: expect(barrier))
    _where(builder, rank, issuers, send)
    outside = [other for other in range(size) if other not in masked]
    _where(builder, rank, outside, lambda: emit_operands(source, target))
    if waits:
        builder.emit(ClusterBarrier())


@dataclass(frozen=True, slots=True)
class _View:
    """The statement at hand as the block of one rank meets it: the block's indices in terms of
    those of its cluster.
    """

    conditions: list[Expr]
    values: dict[Var, Expr]
    lets: dict[Var, Expr]
    ranges: Ranges

    @property
    def reaches(self) -> bool:
        """Whether the conditions around allow it to get there."""
        return not any(self.simple(part) is build.FALSE for part in self.conditions)

    def of(self, *operands: Operand) -> tuple[Expr, ...]:
        """Where the operands begin."""
        return tuple(self.simple(at) for operand in operands for at in operand.mins)

    def simple(self, value: Expr) -> Expr:
        """`value` for this block."""
        return simplified(substitute(substitute(value, self.lets), self.values), self.ranges)


def _views(builder: Builder) -> list[_View]:
    """The views of the blocks of a cluster, by rank."""
    conditions = [
        part for frame in builder.frames if frame.cond is not None for part in conjuncts(frame.cond)
    ]
    ranges, lets = Ranges(Program("", (), (), Seq(()))), _lets(builder)
    for var, count, extent in zip(builder.blocks, builder.cluster, builder.grid, strict=True):
        clusters = build.binary("floordiv", extent, build.const(count, extent.dtype))
        ranges.enter(var, build.const(0, var.dtype), clusters, 1)
    made = []
    for place in product(*map(range, reversed(builder.cluster))):
        values = {
            var: build.add(
                build.mul(var, build.const(count, var.dtype)), build.const(at, var.dtype)
            )
            for var, count, at in zip(builder.blocks, builder.cluster, reversed(place), strict=True)
        }
        made.append(_View(conditions, values, lets, ranges))
    return made


def _lets(builder: Builder) -> dict[Var, Expr]:
    """What the variables in scope stand for that are computed without memory."""
    found: dict[Var, Expr] = {}
    for frame in builder.frames:
        for stmt in frame.stmts:
            if isinstance(stmt, Let) and not has_loads(stmt.value):
                found[stmt.var] = substitute(stmt.value, found)
    return found


def _agree(places: Sequence[tuple[Expr, ...]]) -> bool:
    """Whether all are the same expressions."""
    return all(a is b for place in places for a, b in zip(place, places[0], strict=True))


def _bytes(construct: str, source: Operand, target: Operand) -> int:
    """How many bytes a copy brings."""
    single = source.extents is None and target.extents is None
    extents = () if single else copy_regions(source, target)[1].extents
    counts = [build.const_int(extent) for extent in extents]
    if None in counts:
        raise TileValueError(f"{construct} with a cluster mask needs a tile of constant extents")
    elements = prod(count for count in counts if count is not None)
    return -(-elements * target.buffer.dtype.bits // 8)


def _where(builder: Builder, rank: Expr, ranks: list[int], emit: Callable[[], None]) -> None:
    """What `emit` emits, for the blocks of these ranks."""
    size = prod(builder.cluster)
    if not ranks:
        return
    if len(ranks) == size:
        emit()
        return
    if len(ranks) == 1:
        cond = build.binary("eq", rank, build.int_const(ranks[0]))
    else:
        bits = build.const(sum(1 << one for one in ranks), INT32)
        bit = build.binary("and", build.binary("shr", bits, rank), _ONE)
        cond = build.binary("ne", bit, _ZERO)
    frame = builder.push("then")
    emit()
    builder.emit(If(cond, builder.pop(frame)))
