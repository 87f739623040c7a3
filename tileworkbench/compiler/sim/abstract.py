"""Values of expressions without running a program: those that do not depend on memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.sim.expressions import Evaluate, ExpressionTranslator, Slots
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Storage

SYMBOL = 1 << 12
"""What symbols are taken for: large and divisible."""

AnyFrame = TypeVar("AnyFrame", bound=Frame)


class _UnknownError(Exception):
    """A value depends on memory."""


class _Unknown(Storage):
    """Memory whose contents are not known."""

    __slots__ = ()

    def __init__(self) -> None:
        """Start without knowledge of any variable."""

    def load(self, *place: Any) -> Any:
        raise _UnknownError


class Register(_Unknown):
    """A scalar of each thread: what is known of it, None for nothing."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None

    def load(self, *place: Any) -> Any:
        if self.value is None:
            raise _UnknownError
        return self.value


# An unknown variable is no number: arithmetic with it raises one of these.
_FAILURES = (_UnknownError, RunError, TypeError, AttributeError)


class Evaluator(Generic[AnyFrame]):
    """The values of expressions in the lanes of `frame`, where they are known."""

    def __init__(self, frame: AnyFrame) -> None:
        self.frame = frame
        self._slots = Slots()
        self.expressions = ExpressionTranslator(self._slots)

    def assign(self, var: Var, value: Any) -> None:
        """`var` is `value`, or unknown where that is None."""
        slot = self._slots.variable(var)
        self._grow()
        self.frame.values[slot] = _UnknownError if value is None else value

    def assign_parameters(self, program: Program) -> None:
        """Symbols are large and divisible, numbers that a call passes are 1."""
        for symbol in program.symbols:
            self.assign(symbol, SYMBOL)
        for param in program.params:
            if isinstance(param.value, Var):
                self.assign(param.value, 1)

    def register(self, buffer: Buffer) -> Register:
        """The scalar `buffer`, of which nothing is known yet."""
        slot, made = self._slots.buffer(buffer), Register()
        self._grow()
        self.frame.storages[slot] = made
        return made

    def value(self, value: Expr) -> Any:
        """What `value` is for each lane, None where it is not known."""
        values = self.all_values([self.expressions(value)])
        return None if values is None else values[0]

    def all_values(self, evaluate: Sequence[Evaluate]) -> tuple[Any, ...] | None:
        """The values of translated expressions, None where one is not known."""
        self._grow()
        try:
            values = tuple([one(self.frame) for one in evaluate])
        except _FAILURES:
            return None
        return None if any(value is _UnknownError for value in values) else values

    def _grow(self) -> None:
        frame, slots = self.frame, self._slots
        unknown: Any = _UnknownError
        frame.values += [unknown] * (len(slots.variables) - len(frame.values))
        frame.storages += [_Unknown() for _ in range(len(slots.buffers) - len(frame.storages))]


def own_loads(stmt: Stmt) -> Iterator[Load]:
    """The loads in the expressions of `stmt` itself, each once."""
    seen: set[Node] = set()
    stack = [child for child in stmt.children() if not isinstance(child, Stmt | Buffer)]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Load):
            yield node
        stack.extend(child for child in node.children() if not isinstance(child, Buffer))
