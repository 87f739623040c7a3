"""Runs lowered programs with numpy: the threads of a block in lock step, statement by statement.

A second opinion beside the simulator, small enough to be read: only what element-wise operators
become. Every access must be in range, and stores of one statement to one place must agree.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.program import Program

Array = np.ndarray[Any, Any]
_BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "floormod": operator.mod, "xor": operator.xor,
    "and": operator.and_, "or": operator.or_, "min": np.minimum, "max": np.maximum,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "shr": operator.rshift, "shl": operator.lshift,
    "truncdiv": lambda a, b: np.trunc(np.divide(a, b)).astype(np.int64), "truncmod": np.fmod,
    "logical_and": np.logical_and, "logical_or": np.logical_or,
}  # fmt: skip
_ATOMIC = {"add": np.add, "max": np.maximum, "min": np.minimum}


class Lanes:
    """One launch; `counts` says how often each element of each global buffer was stored to."""

    def __init__(self, program: Program, arrays: dict[str, Array], scalars: dict[str, int]) -> None:
        self.memory: dict[str, Array] = dict(arrays)
        self.counts = {name: np.zeros(found.shape, int) for name, found in arrays.items()}
        self.env: dict[str, Any] = dict(scalars)
        self.threads = 1
        self.mask = np.ones(1, bool)
        self.accesses: dict[tuple[str, str], list[int]] = {}
        self.stmt(program.body)

    # Statements

    def stmt(self, stmt: st.Stmt) -> None:
        if not self.mask.any():
            return
        match stmt:
            case st.Seq(stmts):
                for part in stmts:
                    self.stmt(part)
            case st.Kernel():
                self.kernel(stmt)
            case st.Let(var, value):
                self.env[var.name] = self.value(value)
            case st.Alloc(buffer):
                self.alloc(buffer)
            case st.For(var, start, stop, step, _, body):
                low, high, by = (np.asarray(self.value(e)) for e in (start, stop, step))
                before = self.mask
                for value in range(int(low.min()), int(high[..., None].max()), int(by)):
                    self.env[var.name] = value
                    self.mask = before & np.broadcast_to(value < high, (self.threads,))
                    self.stmt(body)
                self.mask = before
            case tile.Pipelined(var, start, stop, _, body):
                for value in range(int(np.max(self.value(start))), int(np.max(self.value(stop)))):
                    self.env[var.name] = value
                    self.stmt(body)
            case st.If(cond, then, orelse):
                before = self.mask
                holds = np.broadcast_to(self.value(cond), (self.threads,))
                self.mask = before & holds
                self.stmt(then)
                self.mask = before & ~holds
                if orelse is not None:
                    self.stmt(orelse)
                self.mask = before
            case st.Store(buffer, indices, value, predicate):
                self.store(buffer, indices, self.value(value), predicate)
            case st.Atomic():
                self.atomic(stmt)
            case simt.AsyncCopy(dst, src, elements, predicate):
                ramp = ir.Ramp(src.indices[-1], ir.Const(1, src.indices[-1].dtype), elements)
                load = ir.Load(src.buffer, (*src.indices[:-1], ramp), predicate)
                target = ir.Ramp(dst.indices[-1], ir.Const(1, dst.indices[-1].dtype), elements)
                self.store(dst.buffer, (*dst.indices[:-1], target), self.value(load), None)
            case st.Assume() | simt.CommitGroup() | simt.WaitGroup():
                pass
            case _:
                raise NotImplementedError(type(stmt).__name__)

    def kernel(self, kernel: st.Kernel) -> None:
        self.threads = kernel.threads[0]
        extents = [int(self.value(extent)) for extent in kernel.grid]
        for block in np.ndindex(*extents):
            self.env |= dict(zip((var.name for var in kernel.vars), map(int, block), strict=True))
            self.env[kernel.thread_vars[0].name] = np.arange(self.threads)
            self.mask = np.ones(self.threads, bool)
            self.stmt(kernel.body)

    def alloc(self, buffer: ir.Buffer) -> None:
        shape = tuple(const_int(extent) or 0 for extent in buffer.shape)
        if buffer.scope != "shared":
            shape = (self.threads, *shape)
        made = np.empty(shape, numpy_dtype(buffer.dtype))
        made.fill(np.nan if made.dtype.kind == "f" else 77)
        self.memory[buffer.name] = made

    def where(
        self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], holds: Array
    ) -> tuple[Array, ...]:
        """Index arrays (threads, lanes), zero where the access is not made; checks the range."""
        lanes = max((index.dtype.lanes for index in indices), default=1)
        found = []
        for index in indices:
            value = np.asarray(self.value(index))
            if value.ndim < 2:
                value = value.reshape(-1, 1)
            found.append(np.broadcast_to(value, (self.threads, lanes)))
        shape = self.memory[buffer.name].shape
        if buffer.scope.startswith("local"):
            number = np.broadcast_to(np.arange(self.threads)[:, None], (self.threads, lanes))
            found.insert(0, number)
        for value, extent in zip(found, shape, strict=True):
            live = value[holds]
            assert not live.size or (live.min() >= 0 and live.max() < extent), (
                f"{buffer.name}: {live.min()}..{live.max()} of {extent}"
            )
        if buffer.scope in ("global", "shared") and lanes > 1:
            assert (found[-1][holds][:, 0] % lanes == 0).all(), "unaligned vector"
        return tuple(np.where(holds[:, None], value, 0) for value in found)

    def holds(self, predicate: ir.Expr | None) -> Array:
        if predicate is None:
            return self.mask
        return self.mask & np.broadcast_to(self.value(predicate), (self.threads,))

    def store(
        self,
        buffer: ir.Buffer,
        indices: tuple[ir.Expr, ...],
        value: Any,
        predicate: ir.Expr | None,
    ) -> None:
        holds = self.holds(predicate)
        at = self.where(buffer, indices, holds)
        self.note("store", buffer, at)
        data = np.asarray(value)
        if data.ndim < 2:
            data = data.reshape(-1, 1)
        data = np.broadcast_to(data, at[0].shape)[holds].astype(self.memory[buffer.name].dtype)
        live = tuple(part[holds] for part in at)
        self.memory[buffer.name][live] = data
        agreed = self.memory[buffer.name][live]
        assert np.array_equal(agreed, data, equal_nan=data.dtype.kind == "f"), "a race"
        if buffer.scope == "global":
            np.add.at(self.counts[buffer.name], live, 1)

    def note(self, kind: str, buffer: ir.Buffer, at: tuple[Array, ...]) -> None:
        self.accesses.setdefault((kind, buffer.name), []).append(at[0].shape[1])

    def atomic(self, stmt: st.Atomic) -> None:
        holds = self.holds(stmt.predicate)
        at = self.where(stmt.buffer, stmt.indices, holds)
        data = np.broadcast_to(np.asarray(self.value(stmt.value)).reshape(-1, 1), at[0].shape)
        live = tuple(part[holds] for part in at)
        _ATOMIC[str(stmt.kind)].at(self.memory[stmt.buffer.name], live, data[holds])
        if stmt.buffer.scope == "global":
            np.add.at(self.counts[stmt.buffer.name], live, 1)

    # Expressions

    def value(self, expr: ir.Expr) -> Any:
        match expr:
            case ir.Const(value):
                return value
            case ir.Var(name):
                return self.env[name]
            case ir.Binary(op, a, b):
                return _BINARY[op](self.value(a), self.value(b))
            case ir.Unary("neg", a):
                return -self.value(a)
            case ir.Unary("not", a):
                return np.logical_not(self.value(a))
            case ir.Cast(inner, dtype):
                return np.asarray(self.value(inner)).astype(numpy_dtype(dtype.scalar))
            case ir.Select(cond, then, other):
                return np.where(self.value(cond), self.value(then), self.value(other))
            case ir.Ramp(base, stride, lanes):
                first = np.asarray(self.value(base)).reshape(-1, 1)
                return first + np.arange(lanes)[None, :] * self.value(stride)
            case ir.Load():
                return self.load(expr)
        raise NotImplementedError(str(expr))

    def load(self, load: ir.Load) -> Array:
        holds = self.holds(load.predicate)
        at = self.where(load.buffer, load.indices, holds)
        self.note("load", load.buffer, at)
        found = self.memory[load.buffer.name][at]
        safe = 0 if load.safe is None else self.value(load.safe)
        found = np.where(holds[:, None], found, safe)
        return found if load.dtype.lanes > 1 else found[:, 0]


def numpy_dtype(dtype: Any) -> Any:
    name = str(dtype.scalar)
    return np.float32 if name == "bfloat16" else np.dtype({"bool": "bool"}.get(name, name))
