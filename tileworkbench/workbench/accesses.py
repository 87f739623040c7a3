"""`Kernel.accesses`: how the lowered code reads and writes memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tileworkbench.compiler.analysis.access import Motion, motion, varying_lets
from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import Access
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Ramp, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.stmt import Atomic, For, LoopKind, Stmt, Store
from tileworkbench.compiler.ir.tile import MicroGemm, Pack
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.compiler.sim.vector_requests import VectorAccess, list_vectors

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.listing import Unlisted
    from tileworkbench.compiler.sim.threads.requests import WarpAccess


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """One place in the code that reads or writes a tensor.

    Attributes:
        buffer: the parameter.
        kind: ``load``, ``store``, ``atomic``, or ``pack`` and ``gemm`` for what the routines of
            T.gemm read and write in their own way.
        pattern: ``contiguous`` (one vector of neighbours), ``uniform`` (one element for all lanes),
            ``scattered`` (each lane its own place) or ``scalar``; empty for pack and gemm.
        vector_bytes: bytes moved at once, None for pack and gemm, whose instructions are chosen
            inside those routines.
        line: of the user's source, 0 where it is not known.
    """

    buffer: str
    kind: str
    pattern: str
    vector_bytes: int | None
    line: int


def accesses_of(
    program: Program, requests: Iterable[WarpAccess | VectorAccess]
) -> tuple[GlobalAccess | AccessCount, ...]:
    """The accesses of a lowered program, whose requests are known: `GlobalAccess` of stage CPU, the
    `AccessCount` of each warp's access of stage SIMT; none of earlier stages.
    """
    if program.stage is Stage.CPU:
        return global_accesses(program)
    return tuple(access.count for access in requests if not isinstance(access, VectorAccess))


def requests_of(
    program: Program,
) -> tuple[tuple[WarpAccess, ...] | tuple[VectorAccess, ...], tuple[Unlisted, ...]]:
    """The addresses behind the accesses of a lowered program: of the warps of stage SIMT, of the
    vectors of stage CPU; none of earlier stages. With those of stage SIMT come the accesses whose
    addresses nobody knows before it runs.
    """
    if program.stage is Stage.CPU:
        return list_vectors(program), ()
    if program.stage is not Stage.SIMT:
        return (), ()
    from tileworkbench.compiler.sim.threads.listing import list_all

    return list_all(program)


def global_accesses(program: Program) -> tuple[GlobalAccess, ...]:
    """The accesses of a program of the CPU stage in program order; equal ones are listed once."""
    return tuple(dict.fromkeys(_Reader(program).read(program.body, 0, None)))


@dataclass(frozen=True, slots=True)
class _Lanes:
    """A loop that is executed as one vector."""

    var: Var
    count: int
    varying: frozenset[Var]


class _Reader:
    def __init__(self, program: Program) -> None:
        self._program, self._ranges = program, Ranges(program)
        self._names = {alias: owner.name for alias, owner in owners(program.body).items()}

    def read(self, node: Node, site: int, lanes: _Lanes | None) -> Iterator[GlobalAccess]:
        """The accesses of `node`, which belongs to the statement of `site`."""
        if isinstance(node, Stmt):
            site = getattr(node, "site", 0) or site
        match node:
            case For(var, stop=stop, kind=LoopKind.VECTORIZED, body=body):
                lanes = _Lanes(var, const_int(stop) or 1, varying_lets(body, var))
        for child in node.children():  # operands come before what is done with them
            yield from self.read(child, site, lanes)
        match node:
            case Load(buffer, indices):
                yield from self._access(buffer, "load", indices, site, lanes)
            case Store(buffer, indices):
                yield from self._access(buffer, "store", indices, site, lanes)
            case Atomic(_, buffer, indices):
                yield from self._access(buffer, "atomic", indices, site, lanes)
            case Pack(src=source):
                yield from self._routine("pack", site, source.buffer)
            case MicroGemm(a=a, b=b, c=c):
                yield from self._routine("gemm", site, a.buffer, b.buffer, c.buffer)

    def _routine(self, kind: str, site: int, *buffers: Buffer) -> Iterator[GlobalAccess]:
        for buffer in buffers:
            if buffer.scope == "global":
                yield GlobalAccess(self._name(buffer), kind, "", None, self._line(site))

    def _access(
        self,
        buffer: Buffer,
        kind: str,
        indices: tuple[Expr, ...],
        site: int,
        lanes: _Lanes | None,
    ) -> Iterator[GlobalAccess]:
        if buffer.scope != "global":
            return
        pattern, count = self._pattern(
            Access(buffer, indices, kind == "load", kind != "load"), lanes
        )
        size = buffer.dtype.bytes * count
        yield GlobalAccess(self._name(buffer), kind, pattern, size, self._line(site))

    def _pattern(self, access: Access, lanes: _Lanes | None) -> tuple[str, int]:
        """(the pattern, elements moved at once)."""
        for index in access.indices:
            if isinstance(index, Ramp):
                dense = const_int(index.stride) == 1
                return ("contiguous", index.lanes) if dense else ("scattered", 1)
        if lanes is None:
            return "scalar", 1
        moves = motion(access, lanes.var, self._ranges, lanes.varying)
        return str(moves), lanes.count if moves is Motion.CONTIGUOUS else 1

    def _name(self, buffer: Buffer) -> str:
        return self._names.get(buffer, buffer.name)

    def _line(self, site: int) -> int:
        span = self._program.span(site)
        return span.line if span is not None else 0
