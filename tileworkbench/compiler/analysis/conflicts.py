"""Conflicting writes: iterations of a parallel loop, blocks or threads that certainly store
different values in one element.

An element is the same when the indices agree for two iterations that are tried, or when no index
depends on a block's or thread's number. Only what is executed unconditionally counts, and values
differ when they depend on the numbers that distinguish the iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from tileworkbench.compiler.analysis.dataflow import may_leave
from tileworkbench.compiler.analysis.dependence import Dependence
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import Access, accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.rewrite import bound_by, statements, variables

_PRIVATE_TO_BLOCKS = ("shared", "local.fragment", "local", "local.var")
_PRIVATE_TO_THREADS = ("local", "local.var")
_NO_VALUE = (KeyError, ValueError, ZeroDivisionError, OverflowError)
Point = tuple[int, ...]


def conflicts(kernel: st.Kernel, ranges: Ranges) -> Iterator[tuple[int, str]]:
    """The site and the sentence of every such store."""
    for stmt in statements(kernel.body):
        if isinstance(stmt, tile.Parallel):
            yield from _Nest(stmt, ranges).conflicts()
    yield from _between_blocks(kernel)
    yield from _between_threads(kernel)


# Blocks and threads


def _between_blocks(kernel: st.Kernel) -> Iterator[tuple[int, str]]:
    written = [(stmt, use) for stmt, _ in _certain(kernel.body) for use in _plain_writes(stmt)]
    places = [(stmt, use) for stmt, use in written if use.buffer.scope == "global"]
    for var, extent in zip(kernel.vars, kernel.grid, strict=True):
        if (const_int(extent) or 0) > 1:
            sentence = f"blocks of different '{var.name}' write the same elements of"
            yield from _collisions(kernel, var, _PRIVATE_TO_BLOCKS, places, sentence)


def _between_threads(kernel: st.Kernel) -> Iterator[tuple[int, str]]:
    places = [
        (stmt, use)
        for stmt, parallel in _certain(kernel.body)
        if isinstance(stmt, st.Store) and not parallel
        for use in _plain_writes(stmt)
        if use.buffer.scope in ("global", "shared")
    ]
    for var, extent in zip(kernel.thread_vars, kernel.threads, strict=False):
        if extent > 1:
            sentence = f"threads of different '{var.name}' write the same element of"
            yield from _collisions(kernel, var, _PRIVATE_TO_THREADS, places, sentence)


def _collisions(
    kernel: st.Kernel,
    var: Var,
    private: tuple[str, ...],
    places: Sequence[tuple[st.Stmt, Access]],
    sentence: str,
) -> Iterator[tuple[int, str]]:
    """Writes to the same place with a value that differs with `var`."""
    dependence = Dependence(kernel.body, var, private) if places else None
    for stmt, use in places:
        if dependence is not None and _collides(stmt, use, dependence):
            yield stmt.site, f"{sentence} '{use.buffer.name}', with different values"


def _collides(stmt: st.Stmt, use: Access, dependence: Dependence) -> bool:
    """Whether `stmt` writes the same place for every value of the variable, but not the same
    value.
    """
    if not all(dependence.is_fixed(index) for index in use.indices):
        return False
    match stmt:
        case st.Store(value=value) | tile.Fill(value=value):
            return dependence.differs(value)
        case tile.Copy(src=src):
            private = src.buffer.scope in dependence.private
            return (private and src.buffer in dependence.different) or any(
                dependence.differs(low) for low in src.mins
            )
    return False


def _plain_writes(stmt: st.Stmt) -> list[Access]:
    if isinstance(stmt, st.Store | tile.Copy | tile.Fill):
        return [use for use in accesses(stmt) if use.writes and use.certain]
    return []


def _certain(body: st.Stmt, parallel: bool = False) -> Iterator[tuple[st.Stmt, bool]]:
    """The statements that every block executes, and whether in a parallel loop."""
    if isinstance(body, st.If | st.While | simt.Role):
        return
    yield body, parallel
    match body:
        case st.For() | tile.Pipelined():
            if not iterations(body) or may_leave(body.body):
                return
        case tile.Parallel(extents=extents):
            parallel = True
            if not all(const_int(extent) for extent in extents):
                return
    for child in body.children():
        if isinstance(child, st.Stmt):
            yield from _certain(child, parallel)


# Iterations of one parallel loop


@dataclass(frozen=True, slots=True)
class _Index:
    """One index as a sum: the part that differs between iterations, the part that they share, and a
    constant.
    """

    varying: tuple[tuple[Expr, int], ...]
    shared: frozenset[tuple[Expr, int]]
    constant: int

    def at(self, env: dict[str, Any]) -> int:
        """The part that differs, for one iteration."""
        return self.constant + sum(
            int(evaluate(atom, env)) * factor for atom, factor in self.varying
        )


class _Nest:
    """The stores and loads that each iteration of a parallel loop certainly makes."""

    def __init__(self, stmt: tile.Parallel, ranges: Ranges) -> None:
        self.stmt, self.ranges = stmt, ranges
        self.inner = {var for part in statements(stmt) for var in bound_by(part)}
        self.values: dict[str, Expr] = {}  # of lets, and of inner loops in their first iteration
        self.uses: list[tuple[st.Stmt, Access]] = []
        self.collect(stmt.body)
        self.samples: dict[Point, dict[str, Any]] | None = None

    def collect(self, body: st.Stmt) -> None:
        """Take the accesses that are executed in every iteration."""
        if isinstance(body, st.If | st.While):
            return
        for use in accesses(body):
            if use.certain and use.buffer.scope not in _PRIVATE_TO_THREADS:
                self.uses.append((body, use))
        if isinstance(body, st.Let):
            self.values[body.var.name] = body.value
        elif isinstance(body, st.For):
            if not iterations(body) or may_leave(body.body):
                return
            self.values[body.var.name] = body.start
        for child in body.children():
            if isinstance(child, st.Stmt):
                self.collect(child)

    def conflicts(self) -> Iterator[tuple[int, str]]:
        """Two stores to one element, and loads of an element that another iteration stores."""
        readers: dict[Buffer, dict[tuple[Expr, ...], list[tuple[st.Stmt, Access]]]] = {}
        for reader, load in self.uses:
            if load.reads and not isinstance(reader, st.Atomic):
                of_buffer = readers.setdefault(load.buffer, {})
                of_buffer.setdefault(load.indices, []).append((reader, load))
        for stmt, store in self.uses:
            if not isinstance(stmt, st.Store) or not store.writes:
                continue
            written = [self.index(index) for index in store.indices]
            if not self.is_injective(written):
                pair = self.collision(stmt, written)
                if pair is not None:
                    yield (
                        stmt.site,
                        f"iterations {self.describe(pair[0])} and {self.describe(pair[1])} of "
                        f"this parallel loop write the same element of '{store.buffer.name}', "
                        "with different values",
                    )
            for indices, loads in readers.get(store.buffer, {}).items():
                if indices != store.indices:
                    for reader, load in loads:
                        yield from self.met(reader, load, written)

    def index(self, index: Expr) -> _Index:
        """`index` taken apart."""
        linear = self.ranges.linear(index)
        varying = [term for term in linear.terms if not self.inner.isdisjoint(variables(term[0]))]
        shared = frozenset(term for term in linear.terms if term not in varying)
        return _Index(tuple(varying), shared, linear.constant)

    def is_injective(self, indices: list[_Index]) -> bool:
        """Whether each variable of the loop moves an index of its own."""
        alone = {index.varying[0][0] for index in indices if len(index.varying) == 1}
        return alone.issuperset(self.stmt.vars)

    def points(self) -> dict[Point, dict[str, Any]]:
        """Some iterations, each with the values of the names in it."""
        if self.samples is None:
            self.samples = {}
            for point in product(*(_sampled(extent) for extent in self.stmt.extents)):
                env = dict(zip((var.name for var in self.stmt.vars), point, strict=True))
                for name, value in self.values.items():
                    with suppress(*_NO_VALUE):
                        env[name] = evaluate(value, env)  # type: ignore[assignment]
                self.samples[point] = env
        return self.samples

    def places(self, indices: list[_Index]) -> dict[Point, Point] | None:
        """What each iteration tried accesses, None where an index has no value here."""
        try:
            return {
                point: tuple(index.at(env) for index in indices)
                for point, env in self.points().items()
            }
        except _NO_VALUE:
            return None

    def collision(self, stmt: st.Store, indices: list[_Index]) -> tuple[Point, Point] | None:
        """Two iterations that store different values in one place."""
        first: dict[Point, Point] = {}
        for point, place in (self.places(indices) or {}).items():
            other = first.setdefault(place, point)
            if other is not point and self.differ(stmt.value, other, point):
                return other, point
        return None

    def differ(self, value: Expr, one: Point, two: Point) -> bool:
        """Whether iterations give `value` different values."""
        try:
            return bool(evaluate(value, self.points()[one]) != evaluate(value, self.points()[two]))
        except _NO_VALUE:
            return any(
                Dependence(self.stmt.body, var, _PRIVATE_TO_THREADS).differs(value)
                for var, a, b in zip(self.stmt.vars, one, two, strict=True)
                if a != b
            )

    def met(
        self, reader: st.Stmt, load: Access, written: list[_Index]
    ) -> Iterator[tuple[int, str]]:
        """A load of what another iteration stores."""
        loaded = [self.index(index) for index in load.indices]
        if [index.shared for index in loaded] != [index.shared for index in written]:
            return
        stored, read = self.places(written), self.places(loaded)
        if stored is None or read is None:
            return
        writers = {place: point for point, place in stored.items()}
        for point, place in read.items():
            writer = writers.get(place, point)
            if writer != point:
                yield (
                    reader.site,
                    f"iteration {self.describe(point)} of this parallel loop reads the element of "
                    f"'{load.buffer.name}' that iteration {self.describe(writer)} writes",
                )
                return

    def describe(self, point: Point) -> str:
        """``i = 0``, or ``(i, j) = (0, 1)``."""
        names, values = (", ".join(map(str, x)) for x in ((v.name for v in self.stmt.vars), point))
        return f"{names} = {values}" if len(point) == 1 else f"({names}) = ({values})"


def _sampled(extent: Expr) -> list[int]:
    """Some values of a parallel dimension: neighbours at both ends, and what lies a power of two or
    half of the dimension apart.
    """
    size = const_int(extent)
    if size is None:
        return [0]
    tried = (*range(8), 16, 32, 64, 128, size // 2, size - 2, size - 1)
    return sorted({value for value in tried if 0 <= value < size})
