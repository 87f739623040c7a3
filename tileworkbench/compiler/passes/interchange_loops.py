"""Serial loops around element-wise nests go inside strips of the nest, and what they add up stays
in registers.

A loop that goes over a tile again and again loads and stores each element every time. Elements do
not meet, so a strip that fits the registers can take all iterations before the next one begins.
Nests over the same box that stand before and after go along: a tile that only they touch is never
in memory.

Before::

    for i, j in T.Parallel(2, 256):
        total[i, j] = 0.0
    for t in T.serial(5):
        for i_1, j_1 in T.Parallel(2, 256):
            total[i_1, j_1] = total[i_1, j_1] + X[i_1 + t, j_1]
    for i_2, j_2 in T.Parallel(2, 256):
        Y[i_2, j_2] = total[i_2, j_2]

After::

    for strip in T.serial(2):
        for i in T.serial(2):
            total_1 = T.alloc_local((128,), "float32")
            for j in T.Parallel(128):
                total_1[j] = 0.0
            for t in T.serial(5):
                for j_1 in T.Parallel(128):
                    total_1[j_1] = total_1[j_1] + X[i + t, strip * 128 + j_1]
            for j_2 in T.Parallel(128):
                Y[i, strip * 128 + j_2] = total_1[j_2]
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.effects import hides_accesses
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Alloc, Seq, Stmt, seq
from tileworkbench.compiler.lower.shared.nest_groups import Member, NestGroup, touches
from tileworkbench.compiler.lower.shared.strips import Strips, strip_of
from tileworkbench.compiler.lower.vectors.context import Context
from tileworkbench.compiler.lower.vectors.parallel import choose
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.target import Target

_TILES = ("shared", "local.fragment")


@optional("sums in registers: loops around nests load and store each element every time")
@dataclass(frozen=True, slots=True)
class InterchangeLoops:
    """Put serial loops around nests, with the nests beside them, inside of strips."""

    target: Target

    def __call__(self, program: Program) -> Program:
        members = map(Member.of, statements(program.body))
        if not any(each and each.repeats for each in members) or hides_accesses(program.body):
            return program
        interchange = _Interchange(program, self.target)
        return with_body(program, Rewriter(rewrite_stmt=interchange.visit)(program.body))


class _Interchange:
    def __init__(self, program: Program, target: Target) -> None:
        self.context = Context.of(program, target)
        self.touches = touches(statements(program.body))

    def visit(self, stmt: Stmt) -> Stmt:
        """A sequence with its groups of nests in strips."""
        if not isinstance(stmt, Seq):
            return stmt
        done: list[Stmt] = []
        group: NestGroup | None = None
        begins = 0  # where the statements of the group do
        for child in stmt.stmts:
            single = self.group_of(child)
            both = group.joined(single) if group is not None and single is not None else None
            if both is None and not isinstance(child, Alloc):
                done[begins:] = self.in_strips(group, done[begins:])
                begins = len(done)
            if not isinstance(child, Alloc):
                group = both or single
            done.append(child)
        done[begins:] = self.in_strips(group, done[begins:])
        return stmt if done == list(stmt.stmts) else seq(done)

    def group_of(self, stmt: Stmt) -> NestGroup | None:
        """A statement as a group; None where it cannot be one, or where its vectors go along other
        dimensions than strips do.
        """
        member = Member.of(stmt)
        plan = None if member is None else choose(member.nest, self.context)
        if member is None or (plan is not None and plan.at != len(member.nest.vars) - 1):
            return None
        return NestGroup.of(member, self.context.ranges)

    def in_strips(self, group: NestGroup | None, stmts: list[Stmt]) -> list[Stmt]:
        """A group strip by strip, or as it stands in `stmts` where that gives nothing."""
        if group is None or not group.repeated:
            return stmts
        sums = {use.buffer for each in group.repeated for use in each.uses() if use.writes}
        counts = group.touches()
        own = {buffer for buffer in counts if counts[buffer] == self.touches[buffer]}
        held = [
            buffer
            for buffer in dict.fromkeys(use.buffer for use in group.uses() if use.writes)
            if buffer in sums | own and _fits(buffer) and group.stays(buffer)
        ]
        bits = max(max(use.buffer.dtype.bits, 8) for use in group.uses())
        shared = any(each.rows_share for each in group.repeated)
        lanes = self.context.target.vector_bits // bits
        sizes = strip_of(group.extents, lanes, shared=shared)
        if sums.isdisjoint(held) or sizes == group.extents:
            return stmts
        kept = frozenset(held) - own
        allocated = [stmt for stmt in stmts if isinstance(stmt, Alloc)]
        return [*allocated, Strips(group, tuple(held), kept, self.context.names).write(sizes)]


def _fits(buffer: Buffer) -> bool:
    """Whether elements of a buffer can be in registers instead."""
    return buffer.scope in _TILES and buffer.dtype.bits >= 8
