"""Which elements the lanes of a vector access: neighbours, each one several times, or every so
many; and how those are loaded and stored that no whole vectors hold.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import add, const, const_int, mul, sub
from tileworkbench.compiler.ir.expr import Expr, Var

_REPEATS = (2, 4, 8, 16)
_STRIDES = (2, 4)


@dataclass(frozen=True, slots=True)
class LanePattern:
    """Lane l is at `base + l // repeat * stride`; one of the two is 1."""

    base: Expr
    repeat: int = 1
    stride: int = 1

    def is_dense(self, lanes: int) -> bool:
        """Whether whole vectors hold the elements of so many lanes, and a few others."""
        return self.stride in _STRIDES and self.stride < lanes

    def with_base(self, base: Expr) -> LanePattern:
        """The same steps from another start."""
        return LanePattern(base, self.repeat, self.stride)


def lane_pattern(index: Expr, var: Var, lanes: int) -> LanePattern | None:
    """How `index` moves with the lane variable, or None for any other way, backwards too."""
    zero = const(0, index.dtype)
    if index is var:
        return LanePattern(zero)
    match index:
        case ir.Cast(value, dtype) if dtype.is_int:
            inner = lane_pattern(value, var, lanes)
            return None if inner is None else inner.with_base(ir.Cast(inner.base, dtype))
        case ir.Binary("floordiv", a, b) if a is var:
            count = const_int(b)
            return LanePattern(zero, repeat=count) if count in _REPEATS and count <= lanes else None
        case ir.Binary("mul", a, b):
            a, b = (b, a) if const_int(b) is None else (a, b)
            step, inner = const_int(b) or 0, lane_pattern(a, var, lanes)
            if inner is None or inner.repeat > 1 or step < 1:
                return None
            return LanePattern(mul(inner.base, b), stride=inner.stride * step)
        case ir.Binary("add" | "sub" as op, a, b):
            in_a, in_b = mentions(a, var), mentions(b, var)
            if in_a and not in_b:
                rest = lane_pattern(a, var, lanes)
                join = add if op == "add" else sub
                return None if rest is None else rest.with_base(join(rest.base, b))
            if in_b and not in_a and op == "add":
                rest = lane_pattern(b, var, lanes)
                return None if rest is None else rest.with_base(add(a, rest.base))
    return None


def mentions(expr: Expr, var: Var) -> bool:
    """Whether `var` is read anywhere in `expr`."""
    return expr is var or any(
        mentions(child, var) for child in expr.children() if isinstance(child, Expr)
    )


def repeat_lanes(writer: FunctionWriter, value: str, kind: VectorType, count: int) -> str:
    """Each lane of `value`, a `kind`, `count` times in a row."""
    if kind.lanes == 1:
        return writer.splat(value, VectorType(kind.element, count))
    order = [lane // count for lane in range(kind.lanes * count)]
    return _shuffle(writer, value, value, kind, order)


def load_apart(
    writer: FunctionWriter, first: str, kind: VectorType, stride: int, size: int
) -> str:
    """A `kind` of elements of `size` bytes, each `stride` elements after the one before, loaded one
    by one: of a gather LLVM would put all addresses into vectors, and take each out again.
    """
    one, text = VectorType(kind.element, 1), "poison"
    for lane in range(kind.lanes):
        place = writer.address(one, first, str(lane * stride))
        element = writer.let(f"load {one}, ptr {place}, align {size}")
        text = writer.with_lane(text, kind, lane, element)
    return text


def store_apart(
    writer: FunctionWriter, first: str, value: str, kind: VectorType, stride: int, size: int
) -> None:
    """Store the lanes of a `kind` where `load_apart` would load them from."""
    one = VectorType(kind.element, 1)
    for lane in range(kind.lanes):
        place = writer.address(one, first, str(lane * stride))
        writer.do(f"store {one} {writer.lane(value, kind, lane)}, ptr {place}, align {size}")


def strided_starts(lanes: int, stride: int) -> list[int]:
    """Where to read `stride` vectors that hold every `stride`-th of `lanes * stride` elements: the
    last begins earlier, so that none reads past the last element wanted.
    """
    starts = [part * lanes for part in range(stride)]
    starts[-1] -= stride - 1
    return starts


def gather_strided(writer: FunctionWriter, parts: list[str], kind: VectorType, stride: int) -> str:
    """The elements wanted of the vectors that were read at `strided_starts`."""
    count = kind.lanes // stride
    first = [0] * (stride - 1) + [stride - 1]
    while len(parts) > 1:
        merged, starts = [], []
        for at in range(0, len(parts), 2):
            order = [first[at] + lane * stride for lane in range(count)]
            order += [kind.lanes + first[at + 1] + lane * stride for lane in range(count)]
            order += [0] * (kind.lanes - len(order))
            merged.append(_shuffle(writer, parts[at], parts[at + 1], kind, order))
            starts.append(0)
        parts, first, count, stride = merged, starts, 2 * count, 1
    return parts[0]


def _shuffle(
    writer: FunctionWriter, left: str, right: str, kind: VectorType, order: list[int]
) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in order)
    return writer.let(f"shufflevector {kind} {left}, {kind} {right}, <{len(order)} x i32> <{mask}>")
