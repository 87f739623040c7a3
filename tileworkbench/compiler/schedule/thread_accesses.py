"""Which thread touches which element of shared and global memory in a statement.

An index is split into what is the same for all threads of the block and stays symbolic, and what
varies with the thread and with loops of constant bounds inside the statement, which is enumerated.
Two accesses with equal symbolic parts are compared element by element; others are apart only when
their versions provably differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear, combine
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.traces import Trace, UntraceableError
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int, unary
from tileworkbench.compiler.ir.effects import Access, accesses
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Ramp, Var
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.rewrite import substitute, walk
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP, MATRIX_ROWS, Start, StoreMatrix
from tileworkbench.compiler.ir.types import BOOL, INT32, INT64
from tileworkbench.compiler.layout.digits import NotDigitsError
from tileworkbench.compiler.schedule.arrivals import same_everywhere

Array = np.ndarray[Any, Any]
_POINTS = 1 << 20  # most points that are enumerated
_NOBODY, _EVERYBODY = -1, np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """The lowest and the highest thread that touch each element of a buffer (or of one version of
    it), `first` int32 (elements,) with -1 for none. `ThreadAccesses` makes equal ones once.
    """

    first: Array
    last: Array

    def conflict(self, other: Owners, group: int = 1) -> bool:
        """Whether an element is touched by one thread here and by another one there, of another
        `group` of neighbouring threads.
        """
        size = min(len(self.first), len(other.first))
        both = (self.first[:size] >= 0) & (other.first[:size] >= 0)
        if not both.any():
            return False
        lowest = np.minimum(self.first[:size], other.first[:size])
        highest = np.maximum(self.last[:size], other.last[:size])
        return bool((both & (lowest // group != highest // group)).any())


@dataclass(frozen=True, slots=True)
class ThreadAccess:
    """One access of a statement. `base` are the symbolic parts of its indices; `owners` is None
    when nothing is known about the elements, `rows` the same of the first index alone, where that
    may say more. `version` is the first of several indices where it is the same for all threads and
    iterations of the statement. Accesses are equal if they conflict with the same others, wherever
    they stand in the code.

    What happened since: `warps_met`, the threads of each warp have waited for each other;
    `arrived`, the memory barriers that all threads of the access have arrived at; `age`, how many
    iterations have begun; `apart`, threads that wait for others by memory barriers have gone on.
    `at_barrier`: it is started and done when a memory barrier says so, at which whoever needs that
    waits.
    """

    buffer: Buffer
    write: bool
    atomic: bool
    asynchronous: bool
    base: tuple[Expr, ...]
    owners: Owners | None
    site: int = field(compare=False)
    version: Expr | None = None
    rows: Owners | None = None
    warps_met: bool = False
    arrived: frozenset[Address] = frozenset()
    age: int = 0
    apart: bool = False
    at_barrier: bool = False

    def carried(self, values: Mapping[Var, Expr]) -> ThreadAccess:
        """The access as the next iteration sees it, where loop variables have the given `values`
        for it. A memory barrier that is not the same one in every iteration is another one there.
        """
        base = tuple(substitute(part, values) for part in self.base)
        version = None if self.version is None else substitute(self.version, values)
        arrived = frozenset(filter(same_everywhere, self.arrived))
        return replace(self, base=base, version=version, arrived=arrived, age=self.age + 1)


class ThreadAccesses:
    """Finds the accesses of statements of one kernel."""

    def __init__(self, kernel: st.Kernel, ranges: Ranges, buffers: frozenset[Buffer]) -> None:
        self.uniformity = Uniformity(kernel)
        self.ranges = ranges
        self.buffers = buffers
        self.thread = kernel.thread_vars[0]
        self.threads = (0, prod(kernel.threads))
        self.conditions: list[Expr] = []  # those around the statement at hand
        self.storing: StoreMatrix | None = None  # the statement at hand where it is one
        self.made: dict[tuple[bytes, bytes], Owners] = {}
        self.definitions = {
            stmt.var: stmt.value for stmt in walk(kernel) if isinstance(stmt, st.Let)
        }

    def of(self, stmt: st.Stmt) -> tuple[ThreadAccess, ...]:
        """The accesses of `stmt` and everything below it."""
        return tuple(self._below(stmt, {}))

    def own(self, stmt: st.Stmt) -> tuple[ThreadAccess, ...]:
        """The accesses of the expressions of `stmt` itself, which `of` lists first."""
        return tuple(self._own(stmt, {}))

    def _below(self, stmt: st.Stmt, loops: dict[Var, range]) -> Iterator[ThreadAccess]:
        if isinstance(stmt, st.If):
            yield from self._own(stmt, loops)
            yield from self._branch(stmt.cond, stmt.then, loops)
            if stmt.orelse is not None:
                yield from self._branch(unary("not", stmt.cond), stmt.orelse, loops)
            return
        if isinstance(stmt, Start) and stmt.barrier is not None:
            below = self._below(stmt.body, loops)
            yield from (replace(access, at_barrier=True) for access in below)
            return
        if isinstance(stmt, st.For):
            values = iterations(stmt)
            if values is not None:
                loops = {**loops, stmt.var: values}
        yield from self._own(stmt, loops)
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                yield from self._below(child, loops)

    def _branch(self, cond: Expr, body: st.Stmt, loops: dict[Var, range]) -> Iterator[ThreadAccess]:
        """The accesses of a branch, by the threads that take it."""
        self.conditions.append(cond)
        yield from self._below(body, loops)
        self.conditions.pop()

    def _own(self, stmt: st.Stmt, loops: dict[Var, range]) -> Iterator[ThreadAccess]:
        for access in accesses(stmt):
            # At tile operators, which access regions or whole buffers, all threads meet.
            if access.buffer in self.buffers and access.indices and access.region is None:
                yield self._access(access, stmt, loops)

    def _access(self, access: Access, stmt: st.Stmt, loops: dict[Var, range]) -> ThreadAccess:
        """Who touches which elements, only where the access's predicate holds."""
        before = len(self.conditions)
        if access.predicate is not None:
            self.conditions.append(access.predicate)
        indices = access.indices
        if access.count > 1:
            last = indices[-1]
            indices = (*indices[:-1], Ramp(last, ir.Const(1, last.dtype), access.count))
        self.storing = stmt if isinstance(stmt, StoreMatrix) and access.rows else None
        placed = self._placed(access, indices, stmt.site, loops)
        exact, self.storing = self.storing is not None, None
        del self.conditions[before:]
        if not access.count:  # how many elements it is about is not known
            return replace(placed, owners=None, rows=None)
        if access.rows and not exact:
            return replace(placed, owners=self._once(_by_warps(placed.owners)))
        return placed

    def _placed(
        self, access: Access, indices: tuple[Expr, ...], site: int, loops: dict[Var, range]
    ) -> ThreadAccess:
        buffer = access.buffer
        base: list[Expr] = []
        varying: list[Linear] = []
        for index in indices:
            scalar = index.base if isinstance(index, Ramp) else index
            uniform, rest = self._split(self.ranges.linear(scalar), loops)
            base.append(uniform)
            varying.append(rest)
        ramp = indices[-1] if isinstance(indices[-1], Ramp) else None
        owners = self._owners(buffer, varying, ramp, loops)
        version = None if len(indices) == 1 or varying[0].terms else indices[0]
        rows = None
        partly = owners is None or any(const_int(part) is None for part in base[1:])
        if varying[0].terms and len(indices) > 1 and partly:
            rows = self._owners(replace(buffer, shape=buffer.shape[:1]), varying[:1], None, loops)
        return ThreadAccess(
            buffer,
            access.writes,
            access.atomic,
            access.started,
            tuple(base),
            owners,
            site,
            version,
            rows,
        )

    def _split(self, linear: Linear, loops: dict[Var, range]) -> tuple[Expr, Linear]:
        """The symbolic part of an index, and the part that is enumerated."""
        uniform: list[tuple[Expr, int]] = []
        rest: list[tuple[Expr, int]] = []
        for atom, factor in linear.terms:
            own = any(node in loops for node in walk(atom) if isinstance(node, Var))
            target = rest if own or self.uniformity.varies(atom) else uniform
            target.append((atom, factor))
        wide = any(atom.dtype.bits > 32 for atom, _ in uniform)
        symbolic = to_expr(Linear(tuple(uniform), 0), INT64 if wide else INT32)
        return symbolic, Linear(tuple(rest), linear.constant)

    def _owners(
        self, buffer: Buffer, indices: list[Linear], ramp: Ramp | None, loops: dict[Var, range]
    ) -> Owners | None:
        extents = [const_int(extent) for extent in buffer.shape]
        if buffer.scope == "global":
            extents[0] = extents[0] or 1
        if any(extent is None for extent in extents):
            return None
        atoms = [atom for index in indices for atom, _ in index.terms]
        named = {node for part in (*atoms, *self.conditions) for node in walk(part)}
        used = [var for var in loops if var in named]
        lanes = 1 if ramp is None else ramp.lanes
        start, count = self.threads
        if count * lanes * prod(len(loops[var]) for var in used) > _POINTS:
            return None
        axes = 2 + len(used)
        env: dict[Var, Array] = {
            self.thread: _axis(np.arange(start, start + count), 0, axes),
            **{var: _axis(np.array(loops[var]), 1 + at, axes) for at, var in enumerate(used)},
        }
        try:
            position = self._position(indices, [e or 0 for e in extents], env)
        except (UntraceableError, NotDigitsError, ArithmeticError):
            return None
        if ramp is not None:
            stride = const_int(ramp.stride) or 0
            position = position + _axis(np.arange(lanes) * stride, axes - 1, axes)
        active, threads = self._active(env), env[self.thread]
        if self.storing is not None:
            threads = _writers(self.storing, threads, _axis(np.arange(lanes), axes - 1, axes))
            active = active & (threads >= 0)
        position, threads, active = np.broadcast_arrays(position, threads, active)
        return self._once(_collect(position[active], threads[active]))

    def _once(self, owners: Owners | None) -> Owners | None:
        """The same object for equal ones."""
        if owners is None:
            return None
        return self.made.setdefault((owners.first.tobytes(), owners.last.tobytes()), owners)

    def _active(self, env: Mapping[Var, Array]) -> Array:
        """Where the enclosing conditions hold, as far as they are functions of what is
        enumerated.
        """
        active: Array = np.ones((1,) * len(next(iter(env.values())).shape), bool)
        trace = Trace(env, self.definitions)
        for condition in self.conditions:
            try:
                active = active & np.asarray(trace(condition), bool)
            except (UntraceableError, NotDigitsError, ArithmeticError):
                continue
        return active

    def _position(
        self, indices: list[Linear], extents: list[int], env: Mapping[Var, Array]
    ) -> Array:
        """Row-major position of the enumerated part."""
        total: Array = np.zeros((1,) * len(next(iter(env.values())).shape), np.int64)
        trace = Trace(env, self.definitions)
        for index, extent in zip(indices, extents, strict=True):
            value: Array = np.asarray(index.constant, np.int64)
            for atom, factor in index.terms:
                value = value + factor * trace(atom)
            total = total * extent + value
        return total


def _writers(stmt: StoreMatrix, threads: Array, column: Array) -> Array:
    """The thread that writes each element of the row that each of `threads` points at; -1 for those
    that point at none.
    """
    lane = threads % LANGUAGE_WARP
    row, number = lane % MATRIX_ROWS, lane // MATRIX_ROWS
    across, along = (column, row) if stmt.transpose else (row, column)
    writer = threads - lane + across * (MATRIX_ROWS // 2) + along // 2
    return np.where(number < stmt.count, writer, _NOBODY)


def _by_warps(owners: Owners | None) -> Owners | None:
    """Rows that a lane points at, and other lanes read or write."""
    if owners is None:
        return None
    touched = owners.first >= 0
    return Owners(
        np.where(touched, 0, _NOBODY).astype(np.int32),
        np.where(touched, _EVERYBODY, _NOBODY).astype(np.int32),
    )


def _axis(values: Array, at: int, axes: int) -> Array:
    shape = [1] * axes
    shape[at] = len(values)
    return values.astype(np.int64).reshape(shape)


def _collect(position: Array, threads: Array) -> Owners | None:
    if position.size == 0:
        return Owners(np.zeros(0, np.int32), np.zeros(0, np.int32))
    if position.min() < 0:
        return None
    size = int(position.max()) + 1
    if size > _POINTS:
        return None
    first = np.full(size, _EVERYBODY, np.int32)
    last = np.full(size, _NOBODY, np.int32)
    np.minimum.at(first, position, threads.astype(np.int32))
    np.maximum.at(last, position, threads.astype(np.int32))
    first[last == _NOBODY] = _NOBODY
    return Owners(first, last)


def same_version(a: Expr, b: Expr, ranges: Ranges) -> bool | None:
    """Whether two version indices are equal: True, False, or None where it is not known."""
    first, second = _modular(a), _modular(b)
    if first is None or second is None or first[1] != second[1]:
        return ranges.proves(ir.Binary("eq", a, b, BOOL)) if a.dtype == b.dtype else None
    difference = combine([(ranges.linear(first[0]), 1), (ranges.linear(second[0]), -1)])
    if difference.terms:
        return None
    return difference.constant % first[1] == 0


def iterations_apart(accesses: Iterable[ThreadAccess], var: Var, ranges: Ranges) -> int:
    """The most iterations of the loop over `var` that can lie between two of `accesses` to one
    version. Where versions do not follow `var`, it is the next iteration.
    """
    most = 1
    constants: dict[Buffer, list[int]] = {}
    for access in accesses:
        if access.version is None or var not in walk(access.version):
            continue
        modular = _modular(access.version)
        if modular is not None:
            most = max(most, modular[1])
        else:
            offsets = constants.setdefault(access.buffer, [])
            offsets.append(ranges.linear(access.version).constant)
    return max([most, *(max(offsets) - min(offsets) for offsets in constants.values())])


def _modular(value: Expr) -> tuple[Expr, int] | None:
    if isinstance(value, ir.Binary) and value.op == "floormod":
        modulus = const_int(value.b)
        if modulus:
            return value.a, modulus
    return None
