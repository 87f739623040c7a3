"""What rewritten source calls: places, names, branches, loops and lazy operators.

See `rewrite.py`.
"""

from __future__ import annotations

import operator
from typing import Any

from tileworkbench.compiler.diagnostics import (
    Span,
    TileRuntimeError,
    TileSyntaxError,
    TileTypeError,
)
from tileworkbench.compiler.frontend.annotations import undeclarable
from tileworkbench.compiler.frontend.bounds import bounds
from tileworkbench.compiler.frontend.builder import (
    Builder,
    Frame,
    PythonLoop,
    current,
    in_kernel,
)
from tileworkbench.compiler.frontend.loops import LoopSpec, SerialLoop
from tileworkbench.compiler.frontend.refusals import NotScalar, Stale
from tileworkbench.compiler.frontend.scopes import Branch, Reader, Scope, read, refuse_loads
from tileworkbench.compiler.frontend.tensors import (
    TensorValue,
    emit_store,
    evaluate_vector,
    parallel_variables,
)
from tileworkbench.compiler.frontend.threads import is_barrier
from tileworkbench.compiler.frontend.values import (
    Operators,
    Value,
    VarCell,
    condition,
    deeper,
    describe,
    fitting,
    select,
    to_expr,
    to_value,
)
from tileworkbench.compiler.frontend.vectors import VectorValue
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Const
from tileworkbench.compiler.ir.stmt import (
    Break,
    Continue,
    DeviceAssert,
    Let,
    Stmt,
    Store,
)


def let(builder: Builder, name: str, value: Value) -> Value:
    """`value` computed here, once, under a fresh name; constants, variables and memory barriers
    stay themselves, and of an address the indices are computed.
    """
    expr = to_value(value).expr
    if isinstance(expr, Const | ir.Var) or is_barrier(expr):
        return value
    if builder.enclosing("kernel") is None:
        refuse_loads(expr)
        return value  # a formula in the arguments: a grid and the shape of an output may use it
    if isinstance(expr, ir.AddressOf):  # what takes addresses asks which element it is
        indices = tuple(to_expr(let(builder, name, Value(index))) for index in expr.indices)
        return Value(ir.AddressOf(expr.buffer, indices), value.binding or builder.bind(name))
    var = builder.fresh_var(name, expr.dtype)
    builder.emit(Let(var, expr))
    builder.parallel[var] = frozenset(parallel_variables(builder, expr))
    low, high = bounds(expr, builder.ranges)
    if low is not None and high is not None:
        builder.ranges[var] = (low, high)
    return Value(var, builder.bind(name))


def reference(builder: Builder, name: str, value: Value) -> VarCell | None:
    """The element that `value` reads, to be read and assigned to as the variable `name`; its
    indices are computed here, once. None for any other value.
    """
    expr = to_value(value).expr
    if not isinstance(expr, ir.Load):
        return None
    indices = tuple(to_expr(let(builder, name, Value(index))) for index in expr.indices)
    binding = value.binding or builder.bind(name)
    return VarCell(expr.buffer, binding, indices)


class Element:
    """A subscript that is assigned to."""

    __slots__ = ("index", "owner")

    def __init__(self, owner: Any, index: Any) -> None:
        self.owner = owner
        self.index = index
        if isinstance(owner, TensorValue):
            owner.check_stored(index)
        elif isinstance(owner, VarCell):
            owner[index]
        elif isinstance(owner, Operators):
            raise TileTypeError("an element of a run-time scalar cannot be assigned")

    def load(self) -> Any:
        """What it holds."""
        return self.owner[self.index]

    def store(self, value: Any) -> None:
        """Assign to it."""
        if isinstance(self.owner, TensorValue):
            self.owner.store(self.index, value)
        elif isinstance(self.owner, VarCell):
            _store_variable(self.owner, value)
        else:
            self.owner[self.index] = value


class Member:
    """An attribute that is assigned to: one that holds a variable of T.alloc_var."""

    __slots__ = ("cell",)

    def __init__(self, owner: Any, name: str) -> None:
        cell = getattr(owner, name, None)
        if not isinstance(cell, VarCell):
            raise TileSyntaxError(
                "an attribute cannot be assigned in a kernel",
                hint="keep the value in a name, or make the attribute a variable: T.alloc_var(...)",
            )
        cell.binding.check()
        self.cell = cell

    def load(self) -> Any:
        """What the variable holds."""
        return self.cell.load()

    def store(self, value: Any) -> None:
        """Assign to the variable."""
        _store_variable(self.cell, value)


def _store_variable(cell: VarCell, value: Any) -> None:
    if isinstance(value, NotScalar):
        value.refuse()
    expr, _ = fitting(value, cell.buffer.dtype)
    emit_store(Store(cell.buffer, cell.indices, expr))


def _evaluated(builder: Builder, name: str, value: Any) -> Any:
    if isinstance(value, VarCell) and value.fresh:
        return value
    if isinstance(value, VectorValue):
        return evaluate_vector(builder, name, value)
    return let(builder, name, to_value(value)) if isinstance(value, Operators) else value


class Control:
    """The name `__tw` of one rewritten function."""

    def __init__(self, spans: tuple[Span, ...]) -> None:
        self.spans = spans
        self.depth = len(current("a kernel function").frames)  # where the function is called

    # Places

    def at(self, number: int, hints: tuple[str, ...] = ()) -> None:
        """Statement `number` starts."""
        current("a kernel statement").at(self.spans[number], hints)

    def hint(self, *names: str) -> None:
        """The next value is for targets of these names."""
        current("a kernel statement").hints = names

    def second(self, _: Any, value: Any) -> Any:
        """`value`; the first argument was evaluated before it."""
        return value

    # Assignment

    def assign(self, name: str, value: Any, reader: Reader, reads_itself: bool = False) -> Any:
        """`name = value`: a store when the name is a variable of T.alloc_var, a let for a run-time
        value, else just the value.
        """
        builder = current("an assignment")
        old = read(reader, name)
        if isinstance(value, VarCell) and value.fresh:
            value.fresh = False
            builder.rebind(self, name)
            return value
        if isinstance(old, VarCell) and old.binding.frame.open:
            _store_variable(old, value)
            return old
        if isinstance(value, Stale):
            value.fail()
        if reads_itself:
            self._refuse_carried(builder, name, old, value)
        builder.rebind(self, name)
        if isinstance(value, VectorValue):
            return evaluate_vector(builder, name, value)
        if isinstance(value, Operators):
            return let(builder, name, to_value(value))
        return value

    def _refuse_carried(self, builder: Builder, name: str, old: Any, value: Any) -> None:
        """A Python number that a run-time loop updates would be updated once only."""
        if isinstance(old, bool | int | float) and builder.carries(self, name):
            raise TileRuntimeError(
                f"'{name}' is a Python number, so this loop would update it once, not in every "
                f"iteration",
                hint=f"make it a variable before the loop: {name} = T.alloc_var(dtype, "
                f"init={old!r})",
            )

    def augment(self, name: str, reader: Reader, operation: str, value: Any) -> Any:
        """`name op= value`."""
        old = reader()
        if isinstance(old, TensorValue):
            raise TileTypeError(
                f"'{name}' is a whole tensor and cannot be updated at once",
                hint=f"update its elements inside T.Parallel, as in {name}[i] += x",
            )
        if isinstance(old, VarCell | Value):
            return self.assign(name, _apply(operation, to_value(old), value), reader)
        method = getattr(operator, f"i{operation.rstrip('_')}")
        made = (
            method(old, value)
            if not isinstance(value, Operators)
            else _apply(operation, old, value)
        )
        return self.assign(name, made, reader, True)

    def element(self, owner: Any, index: Any) -> Element:
        """The target `owner[index]`, checked."""
        return Element(owner, index)

    def member(self, owner: Any, name: str) -> Member:
        """The target `owner.name`, checked."""
        return Member(owner, name)

    def augment_at(self, target: Element | Member, operation: str, value: Any) -> None:
        """`owner[index] op= value`, `owner.name op= value`."""
        old = target.load()
        if isinstance(old, NotScalar) and not isinstance(old, VectorValue):
            old.refuse()
        if isinstance(old, Operators | VectorValue) or isinstance(value, Operators):
            target.store(_apply(operation, old, value))
        else:
            target.store(getattr(operator, f"i{operation.rstrip('_')}")(old, value))

    def store(self, target: Element | Member, value: Any) -> None:
        """`owner[index] = value`, `owner.name = value`."""
        target.store(value)

    def evaluate(self, names: tuple[str, ...], value: Any) -> Any:
        """`value`, or each of its elements, computed here, before any target changes."""
        builder = current("an assignment")
        if not isinstance(value, tuple | list):
            return _evaluated(builder, names[0], value)
        spare = ("value",) * len(value)
        return tuple(
            _evaluated(builder, n, v) for n, v in zip((*names, *spare), value, strict=False)
        )

    def usable(self, value: Any) -> Any:
        """`value` of a name, unless the branch or loop that bound the name has ended."""
        if isinstance(value, Stale):
            value.fail()
        return value

    def declare(self, name: str, annotation: Any) -> Any:
        """`name: annotation` in the body: the parameter's tensor."""
        builder = current("a declaration")
        if builder.declare is None:
            raise undeclarable(name)
        return builder.declare(name, annotation)

    # Branches and loops

    def branch(self, test: Any, names: tuple[str, ...], *readers: Reader) -> Branch:
        """The `if` that starts here; `names` may be bound in it."""
        saved = [read(reader, name) for reader, name in zip(readers, names, strict=True)]
        return Branch(current("'if'"), test, names, saved)

    def scope(self, names: tuple[str, ...], *readers: Reader) -> Scope:
        """The loop that starts here; `names` may be bound in it."""
        saved = [read(reader, name) for reader, name in zip(readers, names, strict=True)]
        return Scope(self, current("a loop"), names, saved)

    def range(self, function: Any, *arguments: Any) -> Any:
        """`range(...)` as the iterable of a loop, with run-time bounds too."""
        if function is not range:
            return function(*arguments)
        if not 1 <= len(arguments) <= 3:
            raise TileTypeError(f"range takes 1 to 3 arguments, not {len(arguments)}")
        start, stop, step = (0, arguments[0], 1) if len(arguments) == 1 else (*arguments, 1)[:3]
        return SerialLoop(start, stop, step)

    def elements(self, iterable: Any) -> Any:
        """The iterable of a comprehension, which Python runs while tracing."""
        if isinstance(iterable, LoopSpec | Operators | NotScalar):
            raise TileTypeError(
                "a comprehension runs while the kernel is compiled and cannot iterate over "
                + ("a run-time loop" if isinstance(iterable, LoopSpec) else describe(iterable)),
                hint="use a 'for' statement",
            )
        return iterable

    def leaves_loop(self) -> bool:
        """`break`: whether Python should break; otherwise the statement has been emitted."""
        return self._jump(Break(), "break")

    def continues_loop(self) -> bool:
        """`continue`, in the same way."""
        return self._jump(Continue(), "continue")

    def _jump(self, stmt: Stmt, word: str) -> bool:
        builder = current(f"'{word}'")
        loop = builder.loops[-1]
        if isinstance(loop, PythonLoop):
            if builder.frame is not loop.frame:
                raise TileSyntaxError(
                    f"'{word}' under a run-time condition cannot leave a loop that is unrolled "
                    f"while compiling",
                    hint="iterate with range or T.serial, or guard the rest of the body with 'if'",
                )
            return True
        emit_jump(builder, loop, stmt, word)
        return False

    def returned(self, value: Any) -> Any:
        """`return value`, which must not depend on a run-time branch or loop."""
        for frame in current("'return'").frames[self.depth :]:
            if frame.kind != "kernel":
                raise TileSyntaxError(
                    f"'return' inside a {frame.described} of the kernel",
                    hint="guard the rest of the body with 'if'",
                )
        return value

    def as_sequence(self, value: Any) -> Any:
        """What `with ... as (a, b)` unpacks: a single value is a sequence of one."""
        return (value,) if isinstance(value, Operators) else value

    def check(self, test: Any, message: Reader) -> None:
        """`assert test, message`: now for a Python value, by the kernel for a run-time one."""
        if isinstance(test, Operators):
            cond = condition(test, "the condition of 'assert'")
            text = message()
            builder = current("'assert'")
            stmt = DeviceAssert(cond.expr, "" if text is None else str(text), site=builder.site)
            if builder.frame.kind == "function":
                builder.checks.append(stmt)  # the next launch makes it
            else:
                in_kernel("'assert'").emit(stmt)
        elif not test:
            raise AssertionError(message() or "")

    # Lazy operators

    def all_of(self, *operands: Reader) -> Any:
        """`a and b and ...`"""
        return self._logical("logical_and", operands)

    def any_of(self, *operands: Reader) -> Any:
        """`a or b or ...`"""
        return self._logical("logical_or", operands)

    def _logical(self, op: str, operands: tuple[Reader, ...]) -> Any:
        result = operands[0]()
        for operand in operands[1:]:
            if not isinstance(result, Operators):
                if bool(result) == (op == "logical_or"):
                    return result
                result = operand()
                continue
            left = condition(result, "an operand of 'and' and 'or'")
            right = operand()
            if not isinstance(right, bool):
                right = condition(right, "an operand of 'and' and 'or'")
            result = _combine(op, left, to_value(right))
        return result

    def negation(self, operand: Any) -> Any:
        """`not operand`"""
        if not isinstance(operand, Operators):
            return not operand
        cond = condition(operand, "the operand of 'not'")
        return Value(build.unary("not", cond.expr), cond.binding)

    def compare(self, names: tuple[str, ...], first: Any, *rest: Reader) -> Any:
        """`first < second < ...`"""
        left, result = first, None
        for name, reader in zip(names, rest, strict=True):
            right = reader()
            link = _compare(name, left, right)
            if result is None:
                result = link
            elif isinstance(result, Operators) or isinstance(link, Operators):
                result = _combine("logical_and", to_value(result), to_value(link))
            else:
                result = link
            if not isinstance(result, Operators) and not result:
                return result
            left = right
        return result

    def choose(self, test: Any, then: Reader, other: Reader) -> Any:
        """`then if test else other`"""
        if not isinstance(test, Operators):
            return then() if test else other()
        cond = condition(test, "the condition of 'if'")
        if isinstance(cond.expr, Const):
            return then() if cond.expr.value else other()
        return select(cond, then(), other(), lazy=True)

    def slice(self, start: Any, stop: Any, step: Any) -> slice:
        """`start:stop:step` as an index."""
        return slice(start, stop, step)


def emit_jump(builder: Builder, loop: Frame, stmt: Stmt, word: str) -> None:
    """Emit a break or continue of the innermost run-time loop.

    Raises `TileSyntaxError` where it has none to leave.
    """
    names = {"parallel": "T.Parallel", "pipelined": "T.Pipelined", "vectorized": "T.vectorized"}
    if loop.kind in names:
        raise TileSyntaxError(
            f"'{word}' cannot leave a {names[loop.kind]} loop",
            hint="use T.serial, or guard the rest of the body with 'if'",
        )
    builder.emit(stmt)


def _apply(operation: str, left: Any, right: Any) -> Any:
    return getattr(operator, operation)(left, right)


def _combine(op: str, left: Value, right: Value) -> Value:
    return Value(build.logical(op, left.expr, right.expr), deeper(left.binding, right.binding))


def _compare(name: str, left: Any, right: Any) -> Any:
    if name == "in":
        return left in right
    if name == "not_in":
        return left not in right
    return getattr(operator, name)(left, right)
