"""Expressions as Python closures: each node becomes one function of the frame, made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tileworkbench.compiler.analysis.data_indices import DataAccess
from tileworkbench.compiler.diagnostics import RunError, SimulatorLimitError
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Var
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.arithmetic import (
    binary_function,
    intrinsic_function,
    unary_function,
)
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.observers import tell_asked
from tileworkbench.compiler.sim.regrouped import Regrouped
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.values import (
    Mask,
    Value,
    converter,
    from_storage,
    mask_and,
    mask_without,
    python_value,
    storage_dtype,
    to_array,
    wrapper,
)

Evaluate = Callable[[Frame], Value]
_RING = ("add", "sub", "mul")
_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


class Slots:
    """The places of a program's variables and buffers in the lists of a frame."""

    def __init__(self) -> None:
        self.variables: dict[Var, int] = {}
        self.buffers: dict[Buffer, int] = {}

    def variable(self, var: Var) -> int:
        """The slot of `var`."""
        return self.variables.setdefault(var, len(self.variables))

    def buffer(self, buffer: Buffer) -> int:
        """The slot of `buffer`."""
        return self.buffers.setdefault(buffer, len(self.buffers))


class ExpressionTranslator:
    """Turns expressions into closures. Equal expressions share one closure."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        # Accesses whose index comes from data and is not guarded: buffer, indices and statement.
        self.unguarded: frozenset[DataAccess] = frozenset()
        self._memo: dict[Expr, Evaluate] = {}

    def __call__(self, value: Expr) -> Evaluate:
        made = self._memo.get(value)
        if made is None:
            made = self._memo[value] = self._translate(value)
        return made

    def all(self, values: tuple[Expr, ...]) -> tuple[Evaluate, ...]:
        """A closure per expression."""
        return tuple(self(value) for value in values)

    def _translate(self, value: Expr) -> Evaluate:
        match value:
            case Const(number, dtype):
                constant = python_value(number, dtype)
                return lambda frame: constant
            case Var():
                slot = self.slots.variable(value)
                return lambda frame: frame.values[slot]
            case ir.Binary(op, a, b) if op in ir.LOGICAL:
                return _logical(op, self(a), self(b))
            case ir.Binary():
                return self._binary(value)
            case ir.Unary(op, a, dtype):
                function, operand = unary_function(op, dtype), self(a)
                return lambda frame: function(operand(frame))
            case ir.Select():
                return self._select(value)
            case ir.Cast(inner, dtype):
                convert, operand = converter(inner.dtype.scalar, dtype.scalar), self(inner)
                return lambda frame: convert(operand(frame))
            case ir.Reinterpret(inner, dtype):
                return _reinterpret(self(inner), inner, dtype.scalar)
            case ir.Call("lookup", (code, *table), dtype):
                entries = [entry.value for entry in table if isinstance(entry, Const)]
                return _lookup(self(code), entries, dtype.scalar)
            case ir.Call("lane_at", (vector, index)):
                return _lane_at(self(vector), self(index), vector.dtype.lanes)
            case ir.Call(name, args):
                return _call(intrinsic_function(name, args[0].dtype.scalar), self.all(args))
            case ir.Ramp(base, stride, lanes):
                return _ramp(self(base), self(stride), base.dtype, lanes)
            case ir.Broadcast(inner, lanes):
                return _broadcast(self(inner), inner.dtype, lanes)
            case ir.AddressOf(buffer, indices):
                return _address(self.slots.buffer(buffer), self.all(indices))
            case ir.Load():
                return self._load(value)
        raise TypeError(f"the simulator has no meaning for {type(value).__name__}")

    def _binary(self, value: ir.Binary) -> Evaluate:
        a, b = self(value.a), self(value.b)
        dtype = value.a.dtype.scalar
        if value.op in _RING and dtype.is_int and dtype.bits > 4:
            return _ring(value.op, dtype, a, b)
        function = binary_function(value.op, dtype)
        if value.op not in _DIVISIONS or (isinstance(value.b, Const) and value.b.value):
            return lambda frame: function(a(frame), b(frame))
        one = python_value(1, value.b.dtype.scalar)

        def divide(frame: Frame) -> Value:
            dividend, divisor = a(frame), b(frame)
            zero = mask_and(True, divisor == 0)
            if zero is not False:
                if mask_and(_for_lanes(frame.mask, value), zero) is not False:
                    raise located(
                        RunError,
                        "integer division by zero",
                        frame.recorder.program.span(frame.site),
                    )
                divisor = one if zero is True else _replaced(divisor, zero, one)
            return function(dividend, divisor)

        return divide

    def _select(self, value: ir.Select) -> Evaluate:
        cond, then, other = self(value.cond), self(value.then), self(value.other)
        dtype = storage_dtype(value.dtype)
        widen = value.dtype.lanes > 1 and value.cond.dtype.lanes == 1

        def select(frame: Frame) -> Value:
            chosen = cond(frame)
            if type(chosen) is not np.ndarray:
                return then(frame) if chosen else other(frame)
            outer = frame.mask
            vector = value.cond.dtype.lanes > 1
            if vector or not value.lazy:  # an explicit vector has one mask for all its lanes
                a, b = then(frame), other(frame)
            else:
                a, b = _branches(frame, outer, chosen, then, other)
            frame.mask = outer
            if widen:
                chosen = chosen[..., None]
            return np.where(chosen, np.asarray(a, dtype), np.asarray(b, dtype))

        return select

    def _load(self, value: ir.Load) -> Evaluate:
        slot, indices = self.slots.buffer(value.buffer), vector_indices(self, value.indices)
        if value.predicate is not None:
            return self._predicated(value, value.predicate, slot, indices)
        width = value.dtype.lanes
        sites = self.sites_of_data(value.buffer, value.indices)
        if sites and width == 1:

            def load(frame: Frame) -> Value:
                place = tuple([index(frame) for index in indices])
                frame.from_data = frame.site in sites
                loaded = frame.storages[slot].load(frame, place, frame.mask, frame.lanes)
                frame.from_data = False
                return loaded

            return load
        if width == 1:
            return lambda frame: frame.storages[slot].load(
                frame, tuple([index(frame) for index in indices]), frame.mask, frame.lanes
            )
        return lambda frame: frame.storages[slot].load(
            frame,
            tuple([index(frame) for index in indices]),
            _for_lanes(frame.mask, value),
            (*frame.lanes, width),
        )

    def sites_of_data(self, buffer: Buffer, indices: tuple[Expr, ...]) -> frozenset[int]:
        """The statements in which an access of `buffer` at `indices` is one of `unguarded`."""
        return frozenset(
            access.site
            for access in self.unguarded
            if access.buffer is buffer and access.indices == indices
        )

    def _predicated(
        self, value: ir.Load, condition: Expr, slot: int, indices: tuple[Evaluate, ...]
    ) -> Evaluate:
        """A load whose index is evaluated everywhere and whose memory is touched only where the
        predicate holds.
        """
        predicate = self(condition)
        safe_value = value.safe if value.safe is not None else Const(0, value.buffer.dtype)
        safe, dtype, width = self(safe_value), storage_dtype(value.dtype), value.dtype.lanes
        widen = width > 1 and condition.dtype.lanes == 1

        def load(frame: Frame) -> Value:
            chosen = predicate(frame)
            if widen and type(chosen) is np.ndarray:
                chosen = chosen[..., None]
            active = mask_and(_for_lanes(frame.mask, value), chosen)
            lanes = (*frame.lanes, width) if width > 1 else frame.lanes
            if active is False:
                if frame.observers:
                    tell_asked(frame, frame.storages[slot], "load", False, lanes)
                return safe(frame)
            loaded = frame.storages[slot].load(
                frame, tuple([index(frame) for index in indices]), active, lanes
            )
            if type(chosen) is not np.ndarray:
                return loaded
            return np.where(chosen, np.asarray(loaded, dtype), np.asarray(safe(frame), dtype))

        return load


def _ring(op: str, dtype: DType, a: Evaluate, b: Evaluate) -> Evaluate:
    """`binary_function` of the operations that indices are made of, without a call of its own."""
    wrap, low, high = wrapper(dtype), dtype.min_value, dtype.max_value

    def add(frame: Frame) -> Value:
        made = a(frame) + b(frame)
        return made if type(made) is not int or low <= made <= high else wrap(made)

    def sub(frame: Frame) -> Value:
        made = a(frame) - b(frame)
        return made if type(made) is not int or low <= made <= high else wrap(made)

    def mul(frame: Frame) -> Value:
        made = a(frame) * b(frame)
        return made if type(made) is not int or low <= made <= high else wrap(made)

    return {"add": add, "sub": sub, "mul": mul}[op]


def _replaced(values: np.ndarray[Any, Any], chosen: Mask, value: Value) -> np.ndarray[Any, Any]:
    return np.asarray(np.where(chosen, value, values), values.dtype)


def vector_indices(
    translate: ExpressionTranslator, indices: tuple[Expr, ...]
) -> tuple[Evaluate, ...]:
    """Index closures; beside a vector, an index that varies by lane gets an axis of its own."""
    width = max((index.dtype.lanes for index in indices), default=1)
    made = translate.all(indices)
    if width == 1:
        return made
    return tuple(
        one if index.dtype.lanes > 1 else _widened(one)
        for one, index in zip(made, indices, strict=True)
    )


def _widened(evaluate: Evaluate) -> Evaluate:
    def widened(frame: Frame) -> Value:
        value = evaluate(frame)
        return value[..., None] if type(value) is np.ndarray else value

    return widened


def _for_lanes(mask: Mask, value: Expr) -> Mask:
    """`mask` in the shape of values of `value`: explicit vectors have one axis more."""
    return mask[..., None] if value.dtype.lanes > 1 and type(mask) is np.ndarray else mask


def _logical(op: str, a: Evaluate, b: Evaluate) -> Evaluate:
    both = op == "logical_and"

    def logical(frame: Frame) -> Value:
        left = a(frame)
        if type(left) is not np.ndarray:
            return b(frame) if bool(left) == both else left
        outer = frame.mask
        if left.ndim > len(frame.lanes):  # conditions of an explicit vector
            return left & b(frame) if both else left | b(frame)
        frame.mask = mask_and(outer, left) if both else mask_without(outer, left)
        decided = frame.mask is False
        right = left if decided else b(frame)
        frame.mask = outer
        return left & right if both else left | right

    return logical


def _branches(
    frame: Frame, outer: Mask, chosen: np.ndarray[Any, Any], then: Evaluate, other: Evaluate
) -> tuple[Value, Value]:
    """Both values of a select, each in its own lanes; a branch that no lane takes is skipped."""
    frame.mask = mask_and(outer, chosen)
    if frame.mask is False:
        frame.mask = outer
        value = other(frame)
        return value, value
    a = then(frame)
    frame.mask = mask_without(outer, chosen)
    return a, (a if frame.mask is False else other(frame))


def _reinterpret(operand: Evaluate, inner: Expr, dtype: DType) -> Evaluate:
    source, target = inner.dtype.scalar, storage_dtype(dtype)
    joined = inner.dtype.lanes > 1 and inner.dtype.lanes * source.bits == dtype.bits

    def reinterpret(frame: Frame) -> Value:
        array = to_array(operand(frame), source)
        shape = array.shape[:-1] if joined else array.shape
        array = np.ascontiguousarray(array)
        if source.bits < 8:  # such an element has a byte, whose upper bits say nothing
            array = array.view(np.uint8) & ((1 << source.bits) - 1)
            if dtype.kind == "int":
                array = (array ^ 8) - 8
        return from_storage(array.view(target).reshape(shape), dtype)

    return reinterpret


def _address(slot: int, indices: tuple[Evaluate, ...]) -> Evaluate:
    """Where elements are in this process. What others write there counts as initialised."""

    def address(frame: Frame) -> Value:
        storage = frame.storages[slot]
        data: Any = storage.data
        if isinstance(data, Regrouped):
            raise located(
                SimulatorLimitError,
                f"'{storage.name}' has no address in the simulator, where each 4-bit element of "
                "its memory has a byte",
                frame.recorder.program.span(frame.site),
            )
        storage.expose()
        place = (*storage.prefix, *storage.place(tuple([index(frame) for index in indices])))
        start: Value = data.ctypes.data
        for position, stride in zip(place, data.strides, strict=True):
            wide = position if type(position) is int else np.asarray(position, np.int64)
            start = start + wide * stride
        return start

    return address


def _call(function: Callable[..., Value], args: tuple[Evaluate, ...]) -> Evaluate:
    if len(args) == 1:
        (only,) = args
        return lambda frame: function(only(frame))
    return lambda frame: function(*[arg(frame) for arg in args])


def _lookup(code: Evaluate, table: list[Any], dtype: DType) -> Evaluate:
    values = np.array(table, storage_dtype(dtype))
    return lambda frame: from_storage(values[code(frame) & 15], dtype)


def _lane_at(vector: Evaluate, index: Evaluate, lanes: int) -> Evaluate:
    def lane_at(frame: Frame) -> Value:
        number = np.asarray(index(frame))[..., None] % lanes
        values = vector(frame)
        values = np.broadcast_to(values, (*number.shape[:-1], lanes))
        return np.take_along_axis(values, number, -1)[..., 0]

    return lane_at


def _ramp(base: Evaluate, stride: Evaluate, dtype: DType, lanes: int) -> Evaluate:
    steps = np.arange(lanes, dtype=storage_dtype(dtype))

    def ramp(frame: Frame) -> Value:
        first, step = to_array(base(frame), dtype), to_array(stride(frame), dtype)
        return first[..., None] + step[..., None] * steps

    return ramp


def _broadcast(operand: Evaluate, dtype: DType, lanes: int) -> Evaluate:
    def broadcast(frame: Frame) -> Value:
        value = to_array(operand(frame), dtype)
        return np.broadcast_to(value[..., None], (*value.shape, lanes))

    return broadcast
