"""What names in a running kernel hold: wrappers around IR with Python's operators.

IR nodes compare by identity and have no operators, so users never see them: a `Value` is a scalar
expression and a `VarCell` a mutable scalar. Buffers are in `tensors.py`.
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import TileIndexError, TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import Binding, active_builder
from tileworkbench.compiler.frontend.dtypes import TileDType, to_dtype
from tileworkbench.compiler.frontend.refusals import NotScalar, Stale
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Var
from tileworkbench.compiler.ir.types import FLOAT32, FLOAT64, INT32, DType, promote

Number = bool | int | float


def deeper(a: Binding | None, b: Binding | None) -> Binding | None:
    """The one of two bindings whose frame ends first."""
    if a is None or (b is not None and b.frame.depth > a.frame.depth):
        return b
    return a


def is_number(value: object) -> bool:
    """Whether `value` is a Python (or numpy) number that stands for a constant."""
    return _number(value) is not None


# numpy's names of Python's operators.
_UFUNCS = {
    **{"add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "power": "pow"},
    **{"floor_divide": "floordiv", "remainder": "mod", "left_shift": "lshift"},
    **{"right_shift": "rshift", "bitwise_and": "and_", "bitwise_or": "or_", "bitwise_xor": "xor"},
    **{"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"},
    **{"equal": "eq", "not_equal": "ne"},
}


def _foreign(function: str) -> TileTypeError:
    """The error of another library's function on a value of the kernel."""
    return TileTypeError(
        f"{function} works on numbers and tensors, not on a run-time value",
        hint="use the language's own functions, as in T.exp(x) or T.max(x, 0)",
    )


def _number(value: object) -> Number | None:
    """`value` as a Python number where it is one or one of numpy's, else None."""
    if type(value) in (int, float, bool):
        return value  # type: ignore[return-value]
    module = type(value).__module__
    if module == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # of numpy's own floats too, whose operators would come back here
    return value if isinstance(value, bool | int | float) else None


def _plain(value: Any) -> Any:
    """`value`, a number of numpy's as Python's."""
    number = _number(value)
    return value if number is None else number


def hashable(value: Any) -> Any:
    """`value`, or what stands for it in the key of a dictionary: a symbol, as `T.dynamic` makes it,
    compares as an expression and has no hash of its own.
    """
    if isinstance(value, tuple):
        return tuple(hashable(each) for each in value)
    return value.expr if isinstance(value, Value) else value


class Operators:
    """Python's operators over scalars of the kernel; every one builds an expression."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        return arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return arithmetic("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return arithmetic("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return arithmetic("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return arithmetic("div", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return arithmetic("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return arithmetic("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return arithmetic("floormod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return arithmetic("floormod", other, self)

    def __pow__(self, other: Any) -> Any:
        return power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return power(other, self)

    def __lshift__(self, other: Any) -> Any:
        return arithmetic("shl", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return arithmetic("shl", other, self)

    def __rshift__(self, other: Any) -> Any:
        return arithmetic("shr", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return arithmetic("shr", other, self)

    def __and__(self, other: Any) -> Any:
        return arithmetic("and", self, other)

    def __rand__(self, other: Any) -> Any:
        return arithmetic("and", other, self)

    def __or__(self, other: Any) -> Any:
        return arithmetic("or", self, other)

    def __ror__(self, other: Any) -> Any:
        return arithmetic("or", other, self)

    def __xor__(self, other: Any) -> Any:
        return arithmetic("xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return arithmetic("xor", other, self)

    def __eq__(self, other: object) -> Any:
        return arithmetic("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return arithmetic("ne", self, other)

    def __lt__(self, other: Any) -> Any:
        return arithmetic("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return arithmetic("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return arithmetic("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return arithmetic("ge", self, other)

    def __neg__(self) -> Value:
        return unary("neg", self)

    def __pos__(self) -> Value:
        return to_value(self)

    def __invert__(self) -> Value:
        return unary("bitnot", self)

    def __abs__(self) -> Value:
        return unary("abs", self)

    def astype(self, dtype: Any) -> Value:
        """The value converted to `dtype`."""
        value = to_value(self)
        return Value(build.cast(value.expr, to_dtype(dtype)), value.binding)

    @property
    def dtype(self) -> TileDType:
        """The type of the value."""
        return TileDType(to_value(self).expr.dtype)

    # A run-time value has no Python value

    def __bool__(self) -> bool:
        value = to_value(self).expr
        if isinstance(value, Const):
            return bool(value.value)
        raise TileTypeError(
            "a run-time value has no truth value while the kernel is traced",
            hint="in the kernel itself 'if', 'while', 'and', 'or', 'not' and 'x if c else y' "
            "work on it; "
            "in a helper function use @T.macro, T.if_then_else, T.min or T.max",
        )

    def __index__(self) -> int:
        value = to_value(self).expr
        if isinstance(value, Const) and isinstance(value.value, int):
            return int(value.value)
        raise TileTypeError(
            "a run-time value cannot be used as a Python integer",
            hint="Python lists, shapes of tiles and ranges of unrolled loops need numbers known "
            "while compiling",
        )

    __int__ = __index__

    def __float__(self) -> float:
        value = to_value(self).expr
        if isinstance(value, Const):
            return float(value.value)
        raise TileTypeError(
            "a run-time value cannot be turned into a Python float",
            hint="use T.cast or T.float32(value)",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        """What numpy calls for `number + value`, and for functions such as `np.exp(value)`."""
        if method == "__call__" and ufunc.__name__ in _UFUNCS:
            return getattr(operator, _UFUNCS[ufunc.__name__])(*map(_plain, operands))
        raise _foreign(f"numpy's '{ufunc.__name__}'")

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> NoReturn:
        raise _foreign(f"torch's '{getattr(function, '__name__', function)}'")

    def __iter__(self) -> NoReturn:
        raise TileTypeError("a run-time scalar cannot be unpacked or iterated over")

    def __len__(self) -> NoReturn:
        raise TileTypeError("a run-time scalar has no length")

    def __getitem__(self, index: Any) -> NoReturn:
        raise TileTypeError("a run-time scalar cannot be indexed")


class Value(Operators):
    """A scalar expression.

    `binding` is the innermost name it depends on: it ends with that name's frame.
    """

    __slots__ = ("binding", "expr")

    def __init__(self, expr: Expr, binding: Binding | None = None) -> None:
        self.expr = expr
        self.binding = binding

    @property
    def name(self) -> str:
        """The name of a variable. Raises `AttributeError` for any other expression."""
        if isinstance(self.expr, Var):
            return self.expr.name
        raise AttributeError("only a variable has a name")

    def __repr__(self) -> str:
        from tileworkbench.compiler.ir.printer import print_expr

        return print_expr(self.expr)


class VarCell(Operators):
    """A mutable scalar, of `T.alloc_var` or an element passed by reference: reading the name loads
    it, assigning to the name stores into it.
    """

    __slots__ = ("binding", "buffer", "fresh", "indices")

    def __init__(
        self, buffer: Buffer, binding: Binding, indices: tuple[Expr, ...] | None = None
    ) -> None:
        self.buffer = buffer
        self.binding = binding
        self.indices = indices or ()
        self.fresh = indices is None  # until its first name is bound

    def load(self) -> Value:
        """The current content."""
        return Value(ir.Load(self.buffer, self.indices), self.binding)

    def __repr__(self) -> str:
        return f"<variable {self.buffer.name}: {self.buffer.dtype}>"

    def __getitem__(self, index: Any) -> Any:
        """`v[0]` is another spelling of the content."""
        if index == 0:
            return self.load()
        raise TileIndexError(f"the variable '{self.buffer.name}' has the one index 0")


# Conversions


def from_expr(expr: Expr) -> Any:
    """An extent or stride as users see it: a Python integer when constant, else a value."""
    if isinstance(expr, Const) and expr.dtype.is_int:
        return int(expr.value)
    return Value(expr)


def to_value(operand: Any, partner: DType | None = None) -> Value:
    """`operand` as a scalar value; a Python number takes a type that suits `partner` (see
    `number_dtype`).

    Raises `TileTypeError` for anything that is no scalar and `TileRuntimeError` for a name whose
    frame has ended.
    """
    if isinstance(operand, VarCell):
        operand = operand.load()
    if isinstance(operand, Value):
        if operand.binding is not None:
            operand.binding.check()
        return operand
    if isinstance(operand, Stale):
        operand.fail()
    number = _number(operand)
    if number is not None:
        return Value(number_const(number, partner))
    if isinstance(operand, NotScalar):
        operand.refuse()
    raise TileTypeError(f"a scalar is needed here, not {describe(operand)}")


def to_expr(operand: Any, partner: DType | None = None) -> Expr:
    """The expression of `to_value`."""
    return to_value(operand, partner).expr


def describe(value: object) -> str:
    """What a message calls a Python object that does not fit."""
    if value is None:
        return "None"
    if isinstance(value, DType):
        return f"the dtype '{value}'"
    if isinstance(value, str):
        return f"the text {value!r}"
    if isinstance(value, bool | int | float):
        return f"the number {value}"
    if isinstance(value, Operators):
        return "a run-time value"
    if isinstance(value, NotScalar):
        return value.described
    return f"an object of type '{type(value).__name__}'"


def number_const(number: Number, partner: DType | None) -> Const:
    """A Python number as a literal beside an operand of type `partner`.

    An int takes a float partner's type, and that of a 32- or 64-bit unsigned one where it is an
    int32 or fits nothing else; otherwise it is an int32 or int64. A float is float32, or float64
    beside a float64. Raises `ValueError` for a negative number beside an unsigned type, and for
    one that no 64-bit integer holds.
    """
    if isinstance(number, bool) or partner is None:
        return build.python_scalar(number)
    if isinstance(number, float):
        return build.const(number, FLOAT64 if partner.scalar == FLOAT64 else FLOAT32)
    if partner.is_float:
        return build.const(number, partner.scalar)
    if partner.kind == "uint" and partner.bits >= 32:
        if number < 0:
            raise ValueError(
                f"{number} has no value in '{partner}'; cast the other operand to a signed type"
            )
        if number < 1 << 31 or 1 << 63 <= number < 1 << partner.bits:
            return build.const(number, partner.scalar)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} has no value in 'int64'")
    return build.python_scalar(number)


def _bits_const(number: Any, partner: DType) -> Any:
    """A Python int as bits of type `partner` where they fit into it, else itself."""
    if not isinstance(number, int) or not (partner.is_int or partner.is_bool):
        return number
    bits = partner.bits
    low, high = (0, 1) if partner.is_bool else (-(1 << bits - 1), (1 << bits) - 1)
    if partner.kind == "int":
        high >>= 1
    fits = low <= number <= high
    return Value(build.const(number, partner.scalar)) if fits else number


def fitting(value: Any, dtype: DType) -> tuple[Expr, Binding | None]:
    """`value` as an expression of exactly `dtype`, numbers rounded once, and what it depends on."""
    number = _number(value)
    if number is not None:
        return build.const(number, dtype), None
    made = to_value(value)
    if made.expr.dtype.lanes not in (1, dtype.lanes):
        raise TileTypeError(f"a value of '{made.expr.dtype}' is no '{dtype}': the lanes differ")
    return build.cast(made.expr, dtype), made.binding


def make_typed(dtype: TileDType, values: tuple[Any, ...]) -> Any:
    """`T.<dtype>(...)`: a constant, a cast, a vector, or a fresh variable. See
    `TileDType.__call__`.
    """
    if not values:
        builder = active_builder()
        name = "v" if builder is None else builder.fresh("v")
        return Value(Var(name, DType(dtype)))
    if dtype.lanes > 1:
        from tileworkbench.compiler.frontend.vectors import gather

        return gather(DType(dtype), values)
    if len(values) > 1:
        raise TileTypeError(f"'T.{dtype!s}' takes one value, not {len(values)}")
    expr, binding = fitting(_parsed(values[0]), DType(dtype))
    return Value(expr, binding)


def _parsed(value: Any) -> Any:
    """The number of a text such as "inf". Raises `TileValueError` for a text of no number."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        raise TileValueError(f"the text {str(value)!r} is not a number") from None


# Arithmetic

_NO_ANSWER = frozenset({"eq", "ne"})


def pair(a: Any, b: Any) -> tuple[Value, Value]:
    """Both operands as values, a Python number adapted to the other side."""
    if isinstance(a, Operators):
        left = to_value(a)
        return left, to_value(b, left.expr.dtype)
    right = to_value(b)
    return to_value(a, right.expr.dtype), right


def arithmetic(op: str, a: Any, b: Any) -> Any:
    """`a op b` for operands of which at least one is a `Value`."""
    if op in _NO_ANSWER and (a is None or b is None or isinstance(a, str) or isinstance(b, str)):
        return op == "ne"
    left, right = _bits(op, _plain(a), _plain(b)) if op in ir.BITWISE else pair(a, b)
    made = (
        build.add(left.expr, right.expr) if op == "add" else build.binary(op, left.expr, right.expr)
    )
    return Value(made, deeper(left.binding, right.binding))


def _bits(op: str, a: Any, b: Any) -> tuple[Value, Value]:
    """The operands of an operation on bits: a Python int is bits of the other side's type, and a
    shift has the type of both sides.
    """
    if isinstance(a, Operators):
        left, right = pair(a, _bits_const(b, to_value(a).expr.dtype))
    else:
        left, right = pair(_bits_const(a, to_value(b).expr.dtype), b)
    if op not in ("shl", "shr") or not (left.expr.dtype.is_int and right.expr.dtype.is_int):
        return left, right
    dtype = promote(left.expr.dtype, right.expr.dtype)
    count = b if isinstance(b, int) else build.const_int(right.expr) or 0
    if not 0 <= count < dtype.bits:
        raise TileValueError(f"shift by {count} is out of range for '{dtype}'")
    return (
        Value(build.cast(left.expr, dtype), left.binding),
        Value(build.cast(right.expr, dtype), right.binding),
    )


def unary(op: str, operand: Any) -> Value:
    """`op operand`; see `build.unary`."""
    value = to_value(operand)
    return Value(build.unary(op, value.expr), value.binding)


_LARGEST_EXPONENT = 64


def power(base: Any, exponent: Any) -> Any:
    """`base ** exponent`: repeated multiplication for a small constant exponent, else the float
    function.
    """
    base, exponent = _plain(base), _plain(exponent)
    if is_number(base) and is_number(exponent):
        return base**exponent
    if isinstance(exponent, int) and 0 <= exponent <= _LARGEST_EXPONENT:
        return _integer_power(to_value(base), exponent)
    left, right = pair(base, exponent)
    dtype = promote(left.expr.dtype, right.expr.dtype)
    if not dtype.is_float:
        raise TileTypeError(
            f"'{left.expr.dtype}' to a power that is not a constant from 0 to {_LARGEST_EXPONENT}",
            hint="cast the base to a float type",
        )
    return Value(build.binary("pow", left.expr, right.expr), deeper(left.binding, right.binding))


def _integer_power(value: Value, exponent: int) -> Value:
    dtype = value.expr.dtype
    wide = FLOAT32 if dtype.is_float and dtype.bits < 32 else dtype  # rounded once
    result: Expr = build.const(1, wide)
    square, first = build.cast(value.expr, wide), True
    while exponent:
        if exponent & 1:
            result = square if first else build.mul(result, square)
            first = False
        exponent >>= 1
        if exponent:
            square = build.mul(square, square)
    return Value(build.cast(result, dtype), value.binding)


def condition(value: Any, what: str) -> Value:
    """`value` as a condition. Raises `TileTypeError` when it is not of type bool."""
    made = to_value(value)
    if not ir.is_bool(made.expr):
        raise TileTypeError(
            f"{what} must be a 'bool', not '{made.expr.dtype}'",
            hint="compare the value, as in 'x != 0'",
        )
    return made


def select(cond: Any, then: Any, other: Any, lazy: bool) -> Value:
    """`then` where `cond` holds, else `other`, with promoted types."""
    chosen = condition(cond, "the condition")
    if is_number(then) and is_number(other):
        left, right = to_value(then), to_value(other)
    else:
        left, right = pair(then, other)
    made = build.select(chosen.expr, left.expr, right.expr, lazy)
    return Value(made, deeper(chosen.binding, deeper(left.binding, right.binding)))


def index_expr(value: Any, what: str = "an index") -> tuple[Expr, Binding | None]:
    """`value` as an integer expression of type int32 or int64.

    Raises `TileTypeError` when it is no integer.
    """
    if isinstance(value, Stale):
        value.fail()
    if isinstance(value, bool | float) or not (isinstance(value, Operators) or is_number(value)):
        advice = "use '//' or T.ceildiv instead of '/'" if isinstance(value, float) else None
        if isinstance(value, list | tuple):
            advice = "take one of its elements: 'with T.Kernel(m, n) as (bx, by)' names each"
        raise TileTypeError(f"{what} must be an integer, not {describe(value)}", hint=advice)
    made = to_value(value)
    dtype = made.expr.dtype
    if not dtype.is_int:
        hint = "use '//' or T.ceildiv instead of '/'" if dtype.is_float else None
        raise TileTypeError(f"{what} must be an integer, not '{dtype}'", hint=hint)
    if dtype in ("int32", "int64"):
        return made.expr, made.binding
    wide = dtype.bits == 64 or dtype == "uint32"
    return build.cast(made.expr, "int64" if wide else INT32), made.binding


def extent_expr(value: Any, what: str, may_be_zero: bool = False) -> Expr:
    """`value` as an extent: a positive integer (or 0, where that is possible) or an expression.

    Raises `TileTypeError` or `TileValueError`.
    """
    if isinstance(value, int) and value >= 1 << 63:
        raise TileValueError(f"{what} does not fit into 64 bits: {value}")
    expr, _ = index_expr(value, what)
    number = build.const_int(expr)
    if number is not None and number < (0 if may_be_zero else 1):
        rule = "must not be negative" if may_be_zero else "must be positive"
        raise TileValueError(f"{what} {rule}, not {number}")
    return expr
