"""Indices become one offset in elements: layouts and strides are applied, buffers lose their shape.

Offsets are int32; those into a global buffer are int64 when its size is symbolic or 2**31 elements
and more. The variable of a vector loop comes last, so that a contiguous access can be seen as one.

Before::

    for j_lane in T.vectorized(16):
        C[bx, j * 16 + j_lane] = C_local[3, j * 16 + j_lane]

After::

    for j_lane in T.vectorized(16):
        C[bx * 128 + j * 16 + j_lane] = C_local[j * 16 + 384 + j_lane]
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear, combine
from tileworkbench.compiler.analysis.physical import physical_index
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import add, cast, const, const_int, int_const, mul, sub
from tileworkbench.compiler.ir.expr import (
    TENSOR_MAP,
    Address,
    AddressOf,
    Buffer,
    Expr,
    Load,
    Ramp,
    Var,
)
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements
from tileworkbench.compiler.ir.rules import Rule, Rules
from tileworkbench.compiler.ir.simt import Peer, TensorMap
from tileworkbench.compiler.ir.sizes import const_shape, elements_of, strides_of
from tileworkbench.compiler.ir.stmt import (
    Alias,
    Alloc,
    Atomic,
    For,
    LoopKind,
    Pointer,
    Stmt,
    Store,
)
from tileworkbench.compiler.ir.types import INT32, INT64, DType
from tileworkbench.compiler.layout.layout import Layout

_SHAPED = ("local.var", TENSOR_MAP)  # the scopes of what keeps its shape


def flatten_buffers(program: Program) -> Program:
    """Give every buffer one dimension and every access one index."""
    return _Flattening(program).run()


class _Flattening:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.ranges = Ranges(program)
        self.buffers: dict[Buffer, Buffer] = {}
        self.sites = {
            stmt.buffer: stmt.site for stmt in statements(program.body) if isinstance(stmt, Alloc)
        }
        self.lanes = {
            stmt.var
            for stmt in statements(program.body)
            if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED
        }

    def run(self) -> Program:
        body = Rewriter(Rules(self.expressions()), Rules(self.statements()))(self.program.body)
        params = tuple(
            Param(self.flat(param.value), param.output)
            if isinstance(param.value, Buffer)
            else param
            for param in self.program.params
        )
        if body is self.program.body and params == self.program.params:
            return self.program
        return replace(self.program, body=body, params=params)

    # Rewriting is bottom-up, and an access needs the buffer as it was: buffers are replaced by
    # their accesses.
    def expressions(self) -> dict[Any, tuple[Rule, ...]]:
        return {
            Load: (self.flatten_load,),
            **dict.fromkeys((Address, AddressOf), (self.flatten_address,)),
        }

    def statements(self) -> dict[Any, tuple[Rule, ...]]:
        return {
            **dict.fromkeys((Store, Atomic), (self.flatten_store,)),
            **dict.fromkeys((Alloc, Pointer), (self.flatten_buffer,)),
            **dict.fromkeys((Alias, Peer), (self.flatten_view,)),
            TensorMap: (self.flatten_tensor_map,),
        }

    def flatten_load(self, load: Load) -> Load | None:
        """A load has one index: the position by the buffer's layout or strides."""
        if load.buffer.scope == "local.var":
            return None
        index = self.offset(load.buffer, load.indices)
        return Load(self.flat(load.buffer), (index,), load.predicate, load.safe)

    def flatten_address(self, node: Address | AddressOf) -> Address | AddressOf | None:
        """An address has one index: the position by the buffer's layout or strides."""
        if node.buffer.scope in _SHAPED:
            return None
        return type(node)(self.flat(node.buffer), (self.offset(node.buffer, node.indices),))

    def flatten_store(self, stmt: Store | Atomic) -> Stmt | None:
        """A store has one index: the position by the buffer's layout or strides."""
        if stmt.buffer.scope == "local.var":
            return None
        buffer, indices = self.flat(stmt.buffer), (self.offset(stmt.buffer, stmt.indices),)
        if buffer is stmt.buffer and indices == stmt.indices:
            return None
        return replace(stmt, buffer=buffer, indices=indices)

    def flatten_buffer(self, stmt: Alloc | Pointer) -> Stmt | None:
        """A buffer has one dimension."""
        flat = self.flat(stmt.buffer)
        return None if flat is stmt.buffer else replace(stmt, buffer=flat)

    def flatten_view(self, stmt: Alias | Peer) -> Stmt | None:
        """A view and what it shows have one dimension."""
        flat, source = self.flat(stmt.buffer), self.flat(stmt.source)
        same = flat is stmt.buffer and source is stmt.source
        return None if same else replace(stmt, buffer=flat, source=source)

    def flatten_tensor_map(self, stmt: TensorMap) -> Stmt | None:
        """The tensor that a copy engine knows has one dimension."""
        source = self.flat(stmt.source)
        return None if source is stmt.source else replace(stmt, source=source)

    def flat(self, buffer: Buffer) -> Buffer:
        """`buffer` with one dimension; fragments have become memory of the worker."""
        made = self.buffers.get(buffer)
        if made is None:
            scope = "local" if buffer.scope == "local.fragment" else buffer.scope
            shape = buffer.shape if scope == "local.var" else (_elements(buffer),)
            made = Buffer(buffer.name, buffer.dtype, shape, scope)
            self.buffers[buffer] = made
        return made

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The position of an element in the flat buffer."""
        dtype = _offset_dtype(buffer)
        vector = indices[-1] if indices and isinstance(indices[-1], Ramp) else None
        scalars = indices if vector is None else (*indices[:-1], vector.base)
        if _is_rearranged(buffer):
            return self.rearranged(buffer, scalars, vector, dtype)
        parts: list[tuple[Linear, int]] = []
        rest: Expr = const(0, dtype)
        for index, stride in zip(scalars, strides_of(buffer), strict=True):
            factor = const_int(stride)
            if factor is None:
                rest = add(rest, mul(cast(index, dtype), cast(stride, dtype)))
            else:
                parts.append((self.widened(index, dtype), factor))
        base = self.lane_last(combine(parts), rest, dtype)
        if vector is None:
            return base
        return Ramp(base, cast(vector.stride, dtype), vector.lanes)

    def widened(self, index: Expr, dtype: DType) -> Linear:
        """An index as a sum of numbers of type `dtype`.

        One that may wrap around does so in its own type first, but for steps that are not negative
        and not too large: where they make it wrap, its guard does not hold.
        """
        linear, ranges = self.ranges.linear(index), self.ranges
        if dtype.bits <= index.dtype.bits or ranges.fits(index):
            return linear
        steps, rest, reach = [], [], 0
        for atom, factor in linear.terms:
            bounds = ranges.bounds(atom).scale(factor)
            if bounds.low is not None and bounds.high is not None and bounds.low >= 0:
                reach += bounds.high
                steps.append((atom, factor))
            else:
                rest.append((atom, factor))
        if reach > index.dtype.max_value:
            steps, rest = [], list(linear.terms)
        first = to_expr(Linear(tuple(rest), linear.constant), index.dtype)
        return combine([(Linear(((first, 1),), 0), 1), (Linear(tuple(steps), 0), 1)])

    def rearranged(
        self, buffer: Buffer, scalars: tuple[Expr, ...], vector: Ramp | None, dtype: DType
    ) -> Expr:
        """The position under a layout that is not row-major; vectors lie within its runs."""
        layout = buffer.layout
        index = None
        if isinstance(layout, Layout):
            index = physical_index(layout, scalars, self.ranges, dtype)
        if index is None:
            raise UnsupportedError(
                f"the layout of '{buffer.name}' has no formula that code could compute",
                self.program.span(self.sites.get(buffer, 0)),
                hint="write it with +, *, //, % and ^ of the indices and constants",
            )
        return index if vector is None else Ramp(index, cast(vector.stride, dtype), vector.lanes)

    def lane_last(self, linear: Linear, rest: Expr, dtype: DType) -> Expr:
        scalar = tuple(term for term in linear.terms if term[0] not in self.lanes)
        base = to_expr(Linear(scalar, linear.constant), dtype)
        total = add(rest, base) if const_int(rest) != 0 else base
        for atom, factor in linear.terms:
            if atom in self.lanes and isinstance(atom, Var):
                part = cast(atom, dtype)
                step = mul(part, const(abs(factor), dtype))
                total = add(total, step) if factor > 0 else sub(total, step)
        return total


def _offset_dtype(buffer: Buffer) -> DType:
    if buffer.scope != "global":
        return INT32
    shape = const_shape(buffer)
    if shape is None or any(const_int(stride) is None for stride in buffer.strides):
        return INT64
    count = const_int(_elements(buffer))
    return INT32 if count is not None and count < 1 << 31 else INT64


def _is_rearranged(buffer: Buffer) -> bool:
    layout = buffer.layout
    return isinstance(layout, Layout) and layout != Layout.row_major(layout.shape)


def _elements(buffer: Buffer) -> Expr:
    """Elements of storage: up to the last one that can be addressed."""
    if _is_rearranged(buffer) and isinstance(buffer.layout, Layout):
        return int_const(prod(buffer.layout.output_shape))
    return elements_of(buffer)
