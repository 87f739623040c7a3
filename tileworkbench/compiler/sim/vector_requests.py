"""Where the lanes of a CPU's vectors go: the accesses of a program of stage CPU, not executed.

One block is walked, with indices zero. Of each nest of loops only the first iterations are taken,
those of the innermost loop before others. Where an address depends on memory the access is left
out.
"""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.diagnostics import Span
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import LoopKind
from tileworkbench.compiler.sim.abstract import Evaluator, own_loads
from tileworkbench.compiler.sim.expressions import vector_indices
from tileworkbench.compiler.sim.frame import Frame, SimOptions
from tileworkbench.compiler.sim.recorder import Recorder

Array = np.ndarray[Any, Any]
CACHE_LINE = 64
MOST_VECTORS = 32  # of an access that are listed


@dataclass(frozen=True, slots=True, eq=False)
class VectorAccess:
    """One access of the lowered code of a CPU, with the first vectors of it.

    Attributes:
        span: the place in the user's source, None where it is not known.
        buffer: a tensor, or a tile in the worker's memory.
        scope: ``global``, or ``shared`` and ``local`` for tiles.
        kind: ``load``, ``store`` or ``atomic``.
        bits: of an element, which is what a lane accesses.
        vectors: the byte address of each lane, vector by vector: counted from the beginning of the
            tensor, or of the worker's memory. A scalar access has one lane.
        base: the first byte of a tile in the worker's memory; 0 for tensors.
        places: elements that a tile has room for; 0 where unknown.
    """

    site: int
    span: Span | None
    buffer: str
    scope: str
    kind: str
    bits: int
    vectors: tuple[tuple[int, ...], ...]
    base: int = 0
    places: int = 0

    @property
    def width(self) -> int:
        """Bytes of a lane."""
        return max(self.bits // 8, 1)

    @property
    def lanes(self) -> int:
        """Lanes of a vector; 1 for a scalar access."""
        return max(map(len, self.vectors), default=1)

    @property
    def lines(self) -> int:
        """The 64-byte cache lines that the vectors touch, summed."""
        return sum(len(self.lines_of(vector)) for vector in self.vectors)

    @property
    def ideal(self) -> int:
        """The lines that would be enough for their distinct bytes."""
        return sum(-(-len(set(vector)) * self.width // CACHE_LINE) for vector in self.vectors)

    @property
    def factor(self) -> float:
        """Lines divided by those that would be enough: 1.0 where each vector fills whole lines."""
        return self.lines / self.ideal if self.ideal else 1.0

    @property
    def pattern(self) -> str:
        """``scalar``, ``contiguous`` (neighbours), ``uniform`` (one element) or ``scattered``."""
        if self.lanes == 1:
            return "scalar"
        steps = {b - a for v in self.vectors for a, b in pairwise(v)}
        return {frozenset({0}): "uniform", frozenset({self.width}): "contiguous"}.get(
            frozenset(steps), "scattered"
        )

    def lines_of(self, vector: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of the cache lines that a vector touches."""
        ends = (address + self.width - 1 for address in vector)
        pairs = zip(vector, ends, strict=True)
        lines = {line // CACHE_LINE for pair in pairs for line in pair}
        return tuple(sorted(lines))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "line": self.span.line if self.span is not None else 0,
            "buffer": self.buffer,
            "scope": self.scope,
            "kind": self.kind,
            "pattern": self.pattern,
            "width": self.width,
            "lanes": self.lanes,
            "lines": self.lines,
            "ideal": self.ideal,
            "vectors": [list(vector) for vector in self.vectors],
        }

    def __str__(self) -> str:
        line = f" ({self.span})" if self.span is not None else ""
        return f"{self.buffer}: {self.kind} {self.pattern} {self.factor:.2f}x lines{line}"


def list_vectors(program: Program) -> tuple[VectorAccess, ...]:
    """The accesses of a program of stage CPU to tensors and tiles, in program order. What the
    routines of T.gemm read and write in their own way (Pack, MicroGemm) is not among them.
    """
    with np.errstate(all="ignore"):
        return _Lister(program).run()


@dataclass(slots=True)
class _Found:
    buffer: Buffer
    vectors: dict[tuple[int, ...], None] = field(default_factory=dict)


class _Lister(Evaluator[Frame]):
    """`frame.lanes` are those of the vector loop around, () outside of one."""

    def __init__(self, program: Program) -> None:
        recorder = Recorder(program)
        super().__init__(Frame([], [], recorder, SimOptions(), False, np.zeros(0, np.uint8)))
        self._program = program
        self._owners = owners(program.body)
        self._bases = {
            stmt.buffer: stmt.offset or 0
            for stmt in statements(program.body)
            if isinstance(stmt, st.Alloc)
        }
        self._found: dict[tuple[int, str, str], _Found] = {}

    def run(self) -> tuple[VectorAccess, ...]:
        self.assign_parameters(self._program)
        self._visit(self._program.body, MOST_VECTORS)
        return tuple(self._access_of(*key, access) for key, access in self._found.items())

    def _access_of(self, site: int, name: str, kind: str, access: _Found) -> VectorAccess:
        buffer = access.buffer
        size = const_int(buffer.shape[0]) if buffer.scope != "global" else 0
        return VectorAccess(
            site,
            self._program.span(site),
            name,
            buffer.scope,
            kind,
            _bits(buffer),
            tuple(access.vectors),
            self._base(buffer),
            size or 0,
        )

    def _visit(self, stmt: st.Stmt, budget: int) -> None:
        """Walk `stmt`, with at most `budget` iterations of all loops in it together."""
        site = getattr(stmt, "site", 0) or self.frame.site
        self.frame.site = site
        for load in own_loads(stmt):
            self._access(load.buffer, load.indices, load.predicate, "load")
        match stmt:
            case st.Kernel():
                for var in (*stmt.vars, *stmt.thread_vars):
                    self.assign(var, 0)
            case st.Let(var, value):
                self.assign(var, self.value(value))
            case st.Store(buffer, indices, _, predicate):
                self._access(buffer, indices, predicate, "store")
            case st.Atomic(_, buffer, indices, _, _, predicate):
                self._access(buffer, indices, predicate, "atomic")
            case st.For():
                self._loop(stmt, budget)
                return
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                self._visit(child, budget)
                self.frame.site = site

    def _loop(self, loop: st.For, budget: int) -> None:
        start, stop, step = (self.value(bound) for bound in (loop.start, loop.stop, loop.step))
        known = all(isinstance(bound, int) for bound in (start, stop, step))
        count = len(range(start, stop, step)) if known else 1
        if loop.kind is LoopKind.VECTORIZED:
            outer = self.frame.lanes
            self.frame.lanes = (count,)
            self.assign(loop.var, (start or 0) + np.arange(count, dtype=np.int32))
            self._visit(loop.body, budget)
            self.frame.lanes = outer
            return
        inner = min(_iterations(loop.body), budget)
        for trip in range(min(count, max(budget // inner, 1))):
            self.assign(loop.var, (start or 0) + trip * (step or 1))
            self._visit(loop.body, inner)

    def _access(
        self, buffer: Buffer, indices: tuple[Expr, ...], predicate: Expr | None, kind: str
    ) -> None:
        if buffer.scope == "local.var" or len(indices) != 1:
            return
        values = self.all_values(vector_indices(self.expressions, indices))
        if values is None:
            return
        places = np.asarray(values[0], np.int64)
        lanes = places.shape or self.frame.lanes
        addresses = self._base(buffer) + np.broadcast_to(places, lanes) * _bits(buffer) // 8
        active = self._active(predicate, addresses.shape)
        owner = self._owners.get(buffer, buffer)
        name = owner.name if buffer.dtype == owner.dtype else buffer.name
        key = (self.frame.site, name, kind)
        entry = self._found.setdefault(key, _Found(buffer))
        rows = zip(np.atleast_2d(addresses), np.atleast_2d(active), strict=True)
        for vector, chosen in rows:
            if len(entry.vectors) < MOST_VECTORS:
                entry.vectors.setdefault(tuple(vector[chosen].tolist()))

    def _active(self, predicate: Expr | None, shape: tuple[int, ...]) -> Array:
        """The lanes for which a predicate holds; all where it is unknown, or holds for none, as
        other iterations may be different.
        """
        holds = None if predicate is None else self.value(predicate)
        active = np.broadcast_to(np.asarray(True if holds is None else holds, np.bool_), shape)
        return active if active.any() else np.ones(shape, np.bool_)

    def _base(self, buffer: Buffer) -> int:
        return self._bases.get(self._owners.get(buffer, buffer), 0)


def _iterations(body: st.Stmt) -> int:
    """How many iterations the serial loops in `body` take, where that is known; at least 1."""
    children = body.children()
    most = max((_iterations(each) for each in children if isinstance(each, st.Stmt)), default=1)
    if not isinstance(body, st.For) or body.kind is LoopKind.VECTORIZED:
        return most
    return most * max(len(iterations(body) or ()), 1)


def _bits(buffer: Buffer) -> int:
    return 8 * buffer.dtype.bytes
