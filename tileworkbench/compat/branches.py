"""`with T.If(condition):` with `T.Then` and `T.Else` in it, and `T.sblock`: statements of TVM's own
notation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.frontend.builder import Builder, current, in_kernel
from tileworkbench.compiler.frontend.scopes import Branch

_open: ContextVar[tuple[IfBlock, ...]] = ContextVar("open_ifs", default=())


class IfBlock:
    """`with T.If(condition):` around one `T.Then` and at most one `T.Else`."""

    def __init__(self, condition: Any) -> None:
        self.condition = condition
        self.arms: list[str] = []

    def __enter__(self) -> None:
        builder = current("T.If")
        self.branch = Branch(builder, self.condition, (), [])
        self.stmts = len(builder.frame.stmts)
        _open.set((*_open.get(), self))

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        _open.set(_open.get()[:-1])
        if kind is not None:
            return
        if self.arms not in (["then"], ["then", "else"]):
            raise TileValueError(
                "T.If needs one T.Then, and at most one T.Else after it",
                hint="write 'with T.If(condition):' and in it 'with T.Then():', or just 'if'",
            )
        self.branch.end()


class Arm:
    """`with T.Then():` or `with T.Else():`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __enter__(self) -> None:
        builder, opened = current(f"T.{self.kind.title()}"), _open.get()
        if not opened:
            raise TileValueError(f"T.{self.kind.title()} stands outside 'with T.If(condition):'")
        block = opened[-1]
        block.arms.append(self.kind)
        branch = self.branch = block.branch
        self.known = branch.cond is None
        self.taken = branch.then() if self.kind == "then" else branch.orelse()
        if self.known:  # the body is traced all the same, and dropped where it is not taken
            self.frame = builder.push(self.kind)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            return
        if not self.known:
            self.branch.between()
            return
        builder: Builder = self.branch.builder
        body = builder.pop(self.frame)
        if self.taken:
            builder.emit(body)


def then() -> Arm:
    """What is done where the condition of the `T.If` around it holds."""
    return Arm("then")


def otherwise() -> Arm:
    """What is done where the condition of the `T.If` around it does not hold."""
    return Arm("else")


@contextmanager
def sblock(name: str = "", no_realize: bool = False) -> Iterator[None]:
    """`with T.sblock(name):` groups statements; they run where they stand."""
    in_kernel("T.sblock")
    yield


def no_effect(*_: Any, **__: Any) -> None:
    """What a block of TVM's notation reads and writes is found from its statements."""


def sblock_attr(attrs: Mapping[str, Any]) -> None:
    """Annotations of a block. Raises `UnsupportedError` for one that would change what it does."""
    in_kernel("T.sblock_attr")
    for name in attrs:
        if name != "lexical_alloc_scope":
            raise UnsupportedError(
                f"the annotation {name!r} of T.sblock_attr is not supported",
                hint="T.annotate_layout and T.annotate_safe_value are what kernels annotate",
            )
