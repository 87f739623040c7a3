"""Lowered programs with collectives of warps: matrix instructions and exchanges, lane by lane.

Lane maps are written here once more, from the PTX ISA ("Matrix fragments for mma", "ldmatrix"),
independently of the fragments the lowering uses.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.lower.threads.lanes import Array, Lanes
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st

LANE = np.arange(32)
GROUP, QUAD = LANE // 4, LANE % 4


def a_places(m: int, k: int, bits: int) -> list[tuple[Array, Array]]:
    """Row and column of each element of A in the lanes' registers."""
    if bits == 64:
        return [(GROUP, QUAD)]
    per, found = 32 // bits, []
    for register in range(m * k * bits // 1024):
        for e in range(per):
            row = GROUP + 8 * (register % (m // 8))
            column = QUAD * per + e + 4 * per * (register // (m // 8))
            found.append((row, column))
    return found


def b_places(k: int, bits: int) -> list[tuple[Array, Array]]:
    """Row (along K) and column of each element of B."""
    return [(column, row) for row, column in a_places(8, k, bits)]


def c_places(m: int) -> list[tuple[Array, Array]]:
    return [(GROUP + 8 * (e // 2), 2 * QUAD + e % 2) for e in range(m // 4)]


class Warps(Lanes):
    """Counts instructions besides: `issued[name]` times a warp has executed one."""

    def __init__(self, program: Any, arrays: dict[str, Array], **scalars: int) -> None:
        self.issued: dict[str, int] = {}
        super().__init__(program, arrays, scalars)

    def stmt(self, stmt: st.Stmt) -> None:
        match stmt:
            case simt.Role(start, extent, body):
                before = self.mask
                number = np.arange(self.threads)
                self.mask = before & (number >= start) & (number < start + extent)
                self.stmt(body)
                self.mask = before
            case simt.LoadMatrix():
                self.load_matrix(stmt)
            case simt.Mma():
                self.multiply(stmt)
            case simt.Exchange(var, kind, args):
                self.count(kind)
                self.env[var.name] = self.exchange(kind, *(self.value(arg) for arg in args))
            case _:
                super().stmt(stmt)

    def alloc(self, buffer: ir.Buffer) -> None:
        if buffer.dtype.kind != "uint":
            return super().alloc(buffer)
        shape = tuple(int(extent.value) for extent in buffer.shape)  # type: ignore[attr-defined]
        if buffer.scope != "shared":
            shape = (self.threads, *shape)
        self.memory[buffer.name] = np.full(shape, 77, array_dtype(str(buffer.dtype)))

    def count(self, name: str) -> None:
        live = self.mask.reshape(-1, 32)
        assert (live.all(1) | ~live.any(1)).all(), f"{name} by a part of a warp"
        self.issued[name] = self.issued.get(name, 0) + int(live.all(1).sum())

    def flat(self, address: ir.Address) -> Array:
        """Row-major positions of an address in its buffer, per thread."""
        shape = self.memory[address.buffer.name].shape
        if address.buffer.scope == "local":
            shape = shape[1:]
        index = [np.broadcast_to(self.value(i), (self.threads,)) for i in address.indices]
        for value, extent in zip(index, shape, strict=True):
            assert value[self.mask].min() >= 0 and value[self.mask].max() < extent
        index = [np.where(self.mask, value, 0) for value in index]
        return np.ravel_multi_index(index, shape)

    def load_matrix(self, stmt: simt.LoadMatrix) -> None:
        self.count("load_matrix")
        bits = stmt.src.buffer.dtype.bits
        per, row = 32 // bits, 128 // bits
        source = self.memory[stmt.src.buffer.name]
        addresses, into = self.flat(stmt.src), self.flat(stmt.dst)
        for warp in np.flatnonzero(self.mask.reshape(-1, 32).all(1)):
            lanes = warp * 32 + LANE
            for matrix in range(stmt.count):
                starts = addresses[warp * 32 + matrix * 8 + np.arange(8)]
                assert (starts % row == 0).all(), "rows of 16 bytes"
                rows = source.reshape(-1)[starts[:, None] + np.arange(row)]
                for e in range(per):
                    value = rows[GROUP, QUAD * per + e]
                    if stmt.transpose:
                        assert bits == 16
                        value = rows[2 * QUAD + e, GROUP]
                    registers = self.memory[stmt.dst.buffer.name]
                    registers[lanes, into[lanes] + matrix * per + e] = value

    def multiply(self, stmt: simt.Mma) -> None:
        for _ in range(stmt.n // 8):
            self.count("mma")
        a, b = (address.buffer.dtype for address in (stmt.a, stmt.b))
        at = [self.flat(address) for address in (stmt.a, stmt.b, stmt.c)]
        for warp in np.flatnonzero(self.mask.reshape(-1, 32).all(1)):
            lanes = warp * 32 + LANE
            left = np.zeros((stmt.m, stmt.k))
            for e, place in enumerate(a_places(stmt.m, stmt.k, a.bits)):
                left[place] = self.memory[stmt.a.buffer.name][lanes, at[0][lanes] + e]
            # Several across: each has the next registers of B, in those of C they take turns.
            across, elements = stmt.n // 8, stmt.k // 4
            for one in range(across):
                right, total = np.zeros((stmt.k, 8)), np.zeros((stmt.m, 8))
                for e, place in enumerate(b_places(stmt.k, b.bits)):
                    held = at[1][lanes] + one * elements + e
                    right[place] = self.memory[stmt.b.buffer.name][lanes, held]
                registers = self.memory[stmt.c.buffer.name]
                for e, place in enumerate(c_places(stmt.m)):
                    total[place] = registers[lanes, at[2][lanes] + e * across + one]
                total = total + left @ right
                for e, place in enumerate(c_places(stmt.m)):
                    into = at[2][lanes] + e * across + one
                    registers[lanes, into] = total[place].astype(registers.dtype)

    def exchange(self, kind: str, value: Any, lane: Any) -> Array:
        own = np.broadcast_to(value, (self.threads,)).reshape(-1, 32)
        number = np.broadcast_to(lane, (self.threads,)).reshape(-1, 32)
        source = {
            "shfl": number,
            "shfl_xor": LANE ^ number,
            "shfl_up": np.where(number <= LANE, LANE - number, LANE),
        }[kind]
        return np.take_along_axis(own, source, 1).reshape(-1)

    def value(self, expr: ir.Expr) -> Any:
        match expr:
            case ir.Unary("abs", a):
                return np.abs(self.value(a))
            case ir.Binary("max" | "min" as op, a, b) if a.dtype.is_float:
                return {"max": np.fmax, "min": np.fmin}[op](self.value(a), self.value(b))
            case ir.Call("max_nan", (a, b)):
                return np.maximum(self.value(a), self.value(b))
            case ir.Call("min_nan", (a, b)):
                return np.minimum(self.value(a), self.value(b))
            case ir.Reinterpret(inner):
                return np.ascontiguousarray(self.value(inner)).view(np.int32)[:, 0]
            case ir.Call("dp4a", (a, b, c)):
                left, right = (
                    np.ascontiguousarray(self.value(x)).view(np.int8).reshape(-1, 4) for x in (a, b)
                )
                return self.value(c) + (left.astype(np.int32) * right.astype(np.int32)).sum(1)
            case ir.Const(value, dtype) if dtype.is_float and abs(value) == float("inf"):
                return np.float32(value)
            case ir.Cast(inner, dtype) if dtype == "bool":
                return np.asarray(self.value(inner)) != 0
        return super().value(expr)


def array_dtype(name: str) -> Any:
    """The numpy dtype of a dtype of the language."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)
