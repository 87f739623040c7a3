"""How an IR node is made: frozen, slotted dataclasses with a generated `map_children`.

Children are the fields annotated `Expr`, `Stmt`, `Region`, `Address` or `Buffer`, alone, optional
or in a tuple. Fields annotated `Var` are binding occurrences and never visited. Expressions,
buffers and regions are *interned*: two structurally equal ones are the same object, so equality is
`is` and memo tables are keyed by identity. Statements are not: two equal stores are two events.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform
from weakref import WeakValueDictionary

from tileworkbench.compiler.fast_dataclass import dataclass

_CHILD = re.compile(
    r"^(tuple\[)?(Expr|Stmt|Region|Address|Buffer)( \| None)?(, \.\.\.\])?( \| None)?$"
)

T = TypeVar("T")


class Node:
    """Base of everything in the tree."""

    __slots__ = ()
    child_fields: ClassVar[tuple[str, ...]] = ()

    def map_children(self: T, visit: Callable[[Any], Any]) -> T:
        """The node with `visit` applied to each child; `self` when no child changed."""
        return self

    def children(self) -> tuple[Node, ...]:
        """All direct child nodes, in field order."""
        return ()

    def __str__(self) -> str:
        """The node as it is printed."""
        from tileworkbench.compiler.ir.printer import print_node

        return print_node(self)

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of children: one, a tuple of them, or None where that is allowed."""

    name: str
    many: bool
    optional: bool

    def spread(self) -> str:
        """The children as part of a tuple display."""
        if not self.optional:
            return f"*self.{self.name}" if self.many else f"self.{self.name}"
        some = f"self.{self.name}" if self.many else f"(self.{self.name},)"
        return f"*(() if self.{self.name} is None else {some})"


def _generate_children(fields: list[_Field]) -> Callable[..., Any]:
    """Straight-line `children`: every walk asks for them."""
    namespace: dict[str, Any] = {}
    exec(f"def children(self): return ({', '.join(f.spread() for f in fields)},)", namespace)
    return namespace["children"]  # type: ignore[no-any-return]


def _generate_map_children(fields: list[_Field]) -> Callable[..., Any]:
    """Straight-line `map_children`."""
    lines = ["def map_children(self, visit):"]
    for name, many in ((field.name, field.many) for field in fields):
        lines.append(f"    old_{name} = self.{name}")
        if many:
            lines += [
                f"    new_{name} = old_{name}",
                f"    if old_{name}:",
                f"        mapped = tuple([visit(child) for child in old_{name}])",
                f"        for old, new in zip(old_{name}, mapped):",
                "            if old is not new:",
                f"                new_{name} = mapped",
                "                break",
            ]
        else:
            lines.append(f"    new_{name} = None if old_{name} is None else visit(old_{name})")
    names = [field.name for field in fields]
    same = " and ".join(f"new_{name} is old_{name}" for name in names)
    changed = ", ".join(f"{name}=new_{name}" for name in names)
    lines += [f"    if {same}:", "        return self", f"    return replace(self, {changed})"]
    namespace: dict[str, Any] = {"replace": dataclasses.replace}
    exec("\n".join(lines), namespace)  # as dataclasses themselves do: our own text, no input
    return namespace["map_children"]  # type: ignore[no-any-return]


@dataclass_transform(frozen_default=True)
def node(cls: type[T]) -> type[T]:
    """Decorate a statement or other compared-by-value node class."""
    return _finish(dataclass(frozen=True, slots=True, repr=False)(cls))


def _finish(cls: type[T]) -> type[T]:
    fields: list[_Field] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        match = _CHILD.match(str(field.type))
        if match:
            many, optional = match.group(1) is not None, "None" in str(field.type)
            fields.append(_Field(field.name, many, optional))
    if fields:
        cls.children = _generate_children(fields)  # type: ignore[attr-defined]
        cls.map_children = _generate_map_children(fields)  # type: ignore[attr-defined]
        cls.child_fields = tuple(field.name for field in fields)  # type: ignore[attr-defined]
    return cls


class _InternMeta(type):
    """Calling the class returns the one object with these fields."""

    _table: ClassVar[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        key = (cls, *made.intern_key())
        table = _InternMeta._table
        known = table.get(key)
        if known is not None:
            return known
        return table.setdefault(key, made)


class InternedNode(Node, metaclass=_InternMeta):
    """Base of nodes whose equality is identity."""

    __slots__ = ("__weakref__",)

    def intern_key(self) -> tuple[Any, ...]:
        """What makes two nodes of this class the same."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return (type(self), tuple(getattr(self, field.name) for field in fields))


@dataclass_transform(frozen_default=True, eq_default=False)
def interned(cls: type[T]) -> type[T]:
    """Decorate an expression-like node class: identity equality, one object per value."""
    made = dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)
    # A getter of all fields at C speed: interning is the hottest operation of the compiler.
    names = [field.name for field in dataclasses.fields(made)]  # type: ignore[arg-type]
    if "intern_key" not in vars(made):
        text = f"def intern_key(self): return ({', '.join('self.' + n for n in names)},)"
        namespace: dict[str, Any] = {}
        exec(text, namespace)
        made.intern_key = namespace["intern_key"]  # type: ignore[attr-defined]
    return _finish(made)
