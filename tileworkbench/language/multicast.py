"""Copies from global memory that the blocks of a cluster share.

Which blocks issue a copy is known when the kernel is traced. Those that the conditions around it
rule out do not; of the others, each issues the part of the tile that is its own, or, when all name
the same part, the lowest-ranked one issues it for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tileworkbench.compiler.analysis.access import conjuncts, has_loads
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.simplify import simplified
from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.frontend.builder import Builder
from tileworkbench.compiler.frontend.clusters import own_rank, peer, peer_address
from tileworkbench.compiler.frontend.control import let
from tileworkbench.compiler.frontend.regions import Operand, copy_regions
from tileworkbench.compiler.frontend.threads import started
from tileworkbench.compiler.frontend.values import Value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Address, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import substitute, variables
from tileworkbench.compiler.ir.simt import BarrierSignal, ClusterBarrier, Engine
from tileworkbench.compiler.ir.stmt import If, Let, Seq
from tileworkbench.compiler.ir.types import INT32
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
    cluster = _Cluster(builder)
    size = len(cluster.views)
    masked = [rank for rank in range(size) if mask >> rank & 1]
    reached = [rank for rank in masked if cluster.reaches(rank)]
    alike = cluster.is_alike(target.mins, reached)
    if barrier is None and alike and reached == masked and cluster.is_alike(source.mins, masked):
        emit_operands(source, target)  # what each would get is what it can read itself
        return
    if len(reached) > 1 and not cluster.knows(target.mins):
        raise UnsupportedError(
            f"{construct} with a cluster mask needs a place in '{target.buffer.name}' that follows "
            "from the indices of blocks and loops",
            hint="without it nobody knows whether the blocks load one part or one each",
        )
    issuers = reached[:1] if alike else reached
    waits = barrier is None and len(reached) > 1
    if waits and (builder.enclosing("role") or not all(map(cluster.reaches, range(size)))):
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
            theirs = replace(target, buffer=peer(builder, target.buffer, number))
            if barrier is None:
                emit_operands(source, theirs)
                continue
            place = peer_address(builder, barrier, number)
            with started(Engine.CLUSTER, place):
                emit_operands(source, theirs)
            builder.emit(BarrierSignal(place, 0, -bytes_))

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


class _Cluster:
    """What is known of the blocks of a cluster at a statement: an expression in terms of the
    indices of the cluster, for each rank.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.lets = _lets(builder)
        self.ranges = Ranges(Program("", (), (), Seq(())))
        for var, count, extent in zip(builder.blocks, builder.cluster, builder.grid, strict=True):
            clusters = build.binary("floordiv", extent, build.const(count, extent.dtype))
            self.ranges.enter(var, build.const(0, var.dtype), clusters, 1)
        scalars = [value for value in builder.inputs.values() if isinstance(value, Var)]
        self.common = {*builder.blocks, *builder.symbols.values(), *scalars}
        self.views = list(self._views())

    def _views(self) -> Iterator[dict[Var, Expr]]:
        """The indices of the block of each rank."""
        builder = self.builder
        for place in product(*map(range, reversed(builder.cluster))):
            made: dict[Var, Expr] = {}
            indices = zip(builder.blocks, builder.cluster, reversed(place), strict=True)
            for var, count, at in indices:
                first = build.mul(var, build.const(count, var.dtype))
                made[var] = build.add(first, build.const(at, var.dtype))
            yield made

    def simple(self, value: Expr, rank: int) -> Expr:
        """`value` for the block of that rank."""
        return simplified(substitute(self.opened(value), self.views[rank]), self.ranges)

    def opened(self, value: Expr) -> Expr:
        """`value` with the values of variables that are computed without memory."""
        return substitute(value, self.lets)  # type: ignore[no-any-return]

    def reaches(self, rank: int) -> bool:
        """Whether the conditions around allow the block of that rank to get here."""
        conditions = [frame.cond for frame in self.builder.frames if frame.cond is not None]
        parts = [part for cond in conditions for part in conjuncts(cond)]
        return not any(self.simple(part, rank) is build.FALSE for part in parts)

    def knows(self, values: Sequence[Expr]) -> bool:
        """Whether these follow from the indices of blocks and loops, and arguments."""
        opened = [self.opened(value) for value in values]
        starts = self.builder.starts
        return not any(map(has_loads, opened)) and all(
            var in self.common or (var in starts and self.knows([starts[var]]))
            for value in opened
            for var in variables(value)
        )

    def is_alike(self, values: Sequence[Expr], ranks: list[int]) -> bool:
        """Whether the blocks of these ranks are known to agree on them."""
        starts = [
            self.builder.starts[var]
            for value in values
            for var in variables(self.opened(value))
            if var not in self.common and var in self.builder.starts
        ]
        return (
            self.knows(values)
            and all(
                self.simple(value, rank) is self.simple(value, ranks[0])
                for value in values
                for rank in ranks
            )
            and (not starts or self.is_alike(starts, ranks))
        )


def _lets(builder: Builder) -> dict[Var, Expr]:
    """What the variables in scope stand for that are computed without memory."""
    values: dict[Var, Expr] = {}
    for frame in builder.frames:
        for stmt in frame.stmts:
            if isinstance(stmt, Let) and not has_loads(stmt.value):
                values[stmt.var] = substitute(stmt.value, values)
    return values


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
