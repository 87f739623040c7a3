"""The place where CPU code is written: scopes, hoisting and the memo of values already computed.

Expressions are interned, so a value is computed once per scope, and as far out as its variables
allow: a pure expression that does not depend on a loop is written in front of that loop. Loads stay
where they are, since memory changes. Loads of tensors that are only read may move: they leave the
loops that are certain to execute them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import (
    LINE_COMMENT,
    EmittedFunction,
    FunctionWriter,
    VectorType,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import AddressOf, Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.float_formats import FORMATS
from tileworkbench.compiler.ir.types import DType

_REGISTER = {"bool": "i1", "float16": "float", "bfloat16": "float", "float32": "float"}
_REGISTER |= {"tfloat32": "float", "float64": "double", "handle": "i64"}
_REGISTER |= {f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_REGISTER |= {"int4": "i8", "uint4": "i8", **dict.fromkeys(FORMATS, "float")}
_MEMORY = {**_REGISTER, "bool": "i8", "float16": "i16", "bfloat16": "i16"}
_MEMORY |= dict.fromkeys(FORMATS, "i8")


@dataclass(frozen=True, slots=True)
class Value:
    """A value in registers: its text, scalar dtype and number of lanes.

    Narrower floats are held as float32 that their dtype can represent, 4-bit integers as bytes.
    """

    text: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> VectorType:
        return register_type(self.dtype, self.lanes)


def register_type(dtype: DType, lanes: int = 1) -> VectorType:
    """The LLVM type that holds a value."""
    return VectorType(_lookup(_REGISTER, dtype), lanes)


def memory_type(dtype: DType, lanes: int = 1) -> VectorType:
    """The LLVM type of an element in memory: bool is a byte, 16-bit floats are i16.

    A 4-bit element has a byte in the memory of a worker; global memory is `packed.py`'s.
    """
    return VectorType(_lookup(_MEMORY, dtype), lanes)


def _lookup(table: dict[str, str], dtype: DType) -> str:
    return table[str(dtype.scalar)]


@dataclass(slots=True)
class Scope:
    """One level of nesting. Values that its loop does not change are written to `preheader`. What
    is inside a `certain` scope is executed whenever what is around the scope is.
    """

    preheader: list[Any] | None = None
    certain: bool = False
    memo: dict[tuple[Expr, str], Value] = field(default_factory=dict)


class Emitter(FunctionWriter):
    """A function writer that knows the kernel's variables and buffers."""

    def __init__(
        self,
        name: str,
        parameters: str,
        isa: Isa,
        constant: frozenset[Buffer] = frozenset(),
        packed: frozenset[Buffer] = frozenset(),
    ) -> None:
        super().__init__(name, "i32", parameters)
        self.isa = isa
        self.constant = constant
        self.packed = packed
        self.scopes = [Scope()]
        self.values: dict[Var, Value] = {}
        self.pointers: dict[Buffer, str] = {}
        self.bound_inside: set[Buffer] = set()  # whose pointers may belong to a loop
        self.lanes = 1
        self.lane_var: Var | None = None
        self.guard: Value | None = None
        # What narrow elements were loaded as: storing them again moves their bits.
        self.stored: dict[tuple[str, DType], str] = {}
        self.moment: dict[tuple[Expr, str, Value | None], Value] = {}
        self._levels: dict[Expr, int] = {}
        self._var_levels: dict[Var, int] = {}
        self._slots: list[Any] = []
        self._lines.append(self._slots)

    def is_packed(self, buffer: Buffer) -> bool:
        """Whether two elements of `buffer` share a byte."""
        return buffer.dtype.is_packed and (buffer.scope == "global" or buffer in self.packed)

    # Where things go

    @contextmanager
    def scope(self, preheader: list[Any] | None = None, *, certain: bool = False) -> Iterator[None]:
        """Nest one level deeper."""
        self.scopes.append(Scope(preheader, certain))
        self._forget_levels(certain)
        try:
            yield
        finally:
            self.scopes.pop()
            self._forget_levels(certain)

    def set_guard(self, guard: Value | None) -> None:
        """From here on loads are made only where `guard` holds."""
        if guard is not self.guard:
            self.guard = guard
            self._forget_levels(False)

    def _forget_levels(self, certain: bool) -> None:
        """Forget how far out loads may go: that depends on the conditions around them."""
        if not certain and self.constant:
            self._levels.clear()

    def open_preheader(self) -> list[Any]:
        """A list in front of what is written next, for values hoisted out of it."""
        preheader: list[Any] = []
        self._lines.append(preheader)
        return preheader

    @contextmanager
    def writing_to(self, lines: list[Any]) -> Iterator[None]:
        """Append to `lines` instead of the current end of the function."""
        outer, self._lines = self._lines, lines
        try:
            yield
        finally:
            self._lines = outer

    def alloca(self, kind: str, count: int = 1) -> str:
        """A stack slot of the function, made on entry."""
        with self.writing_to(self._slots):
            return self.let(f"alloca [{count} x {kind}], align 64")

    def scratch(self, offset: int) -> str:
        """The place `offset` bytes into the worker's arena, named on entry."""
        with self.writing_to(self._slots):
            return self.let(f"getelementptr i8, ptr %scratch, i64 {offset}")

    def let_later(self) -> str:
        """A name for an instruction that is written by hand."""
        return self._reserve()

    # What is known

    def bind(self, var: Var, value: Value, level: int | None = None) -> None:
        """Name a value; `level` is the scope it belongs to (the current one by default)."""
        self.values[var] = value
        self._var_levels[var] = len(self.scopes) - 1 if level is None else level
        self._levels.clear()

    def level(self, expr: Expr) -> int:
        """The outermost scope in which `expr` can be computed; -1 means only right here."""
        level = self._levels.get(expr)
        if level is None:
            if isinstance(expr, Var):
                level = self._var_levels[expr]
            elif isinstance(expr, AddressOf) or (
                isinstance(expr, Load) and not self._is_constant(expr)
            ):
                level = -1
            else:
                levels = [self.level(child) for child in expr.children() if isinstance(child, Expr)]
                if isinstance(expr, Load):
                    levels.append(self._certain_level())
                level = -1 if -1 in levels else max(levels, default=0)
            self._levels[expr] = level
        return level

    def _is_constant(self, load: Load) -> bool:
        """Whether a load has the same value whenever and wherever it is made."""
        return load.buffer in self.constant and load.predicate is None and self.guard is None

    def _certain_level(self) -> int:
        """The outermost scope that cannot be left without passing here."""
        depth = len(self.scopes) - 1
        while depth > 0 and self.scopes[depth].certain:
            depth -= 1
        return depth

    def placed(self, expr: Expr, form: str, compute: Callable[[], Value]) -> Value:
        """The value `compute()` writes for `expr`, written once and as far out as possible."""
        level = self.level(expr)
        if level < 0:
            return self._momentary(expr, form, compute)
        key = (expr, form)
        for scope in self.scopes:
            known = scope.memo.get(key)
            if known is not None:
                return known
        for depth in range(level + 1, len(self.scopes)):
            preheader = self.scopes[depth].preheader
            if preheader is not None:
                # Nothing hoisted may depend on a guard of the place it came from.
                outer = self.guard
                self.set_guard(None)
                with self.writing_to(preheader):
                    value = compute()
                self.set_guard(outer)
                self.scopes[depth - 1].memo[key] = value
                return value
        value = compute()
        self.scopes[-1].memo[key] = value
        return value

    def _momentary(self, expr: Expr, form: str, compute: Callable[[], Value]) -> Value:
        """A value that depends on memory: good until the next statement."""
        key = (expr, form, self.guard)
        known = self.moment.get(key)
        if known is None:
            known = self.moment[key] = compute()
        return known

    def finish(self, result: str = "0") -> EmittedFunction:
        self.do(f"ret i32 {result}")
        text = "\n".join([self._header, *_commented(_flatten(self._lines)), "}"]) + "\n"
        return EmittedFunction(self._name, text, frozenset(self._declarations))


def _commented(lines: Iterable[Any]) -> Iterator[str]:
    """Instructions, with a comment where the user's line that they belong to changes."""
    last = 0
    for item in lines:
        text, line = item if isinstance(item, tuple) else (item, last)
        if line != last:
            yield f"  {LINE_COMMENT}{line}"
            last = line
        yield text


def _flatten(lines: list[Any]) -> Iterator[Any]:
    for line in lines:
        if isinstance(line, list):
            yield from _flatten(line)
        else:
            yield line
