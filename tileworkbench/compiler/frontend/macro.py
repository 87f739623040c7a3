"""`T.macro`: functions that are inlined where they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.diagnostics import (
    TileTypeError,
    TileValueError,
)
from tileworkbench.compiler.frontend.builder import Builder, current
from tileworkbench.compiler.frontend.control import let, reference
from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.compiler.frontend.refusals import NotScalar
from tileworkbench.compiler.frontend.rewritten import rewritten, users_names
from tileworkbench.compiler.frontend.trace import (
    annotation_of,
)
from tileworkbench.compiler.frontend.values import Value, VarCell, describe


class Reference:
    """Base of the annotations that pass a variable or an element into a macro by reference:

    `T.Ref`, `T.Var`.
    """

    def __class_getitem__(cls, item: Any) -> type[Reference]:
        return cls


class Macro:
    """A function inlined where it is called; its names are its own."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__
        self._namespace = users_names(fn)
        self._signature = inspect.signature(fn)

    @placed_outside
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = current(f"the macro '{self.fn.__name__}'")
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TileTypeError(f"the macro '{self.fn.__name__}': {error}") from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if self._by_reference(name):
                bound.arguments[name] = self._referred(builder, name, value)
            elif isinstance(value, VarCell):
                bound.arguments[name] = let(builder, name, value.load())
        saved = builder.checkpoint()
        result = rewritten(self.fn, self._namespace)(*bound.args, **bound.kwargs)
        builder.restore(saved)
        return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A macro that is a method receives its object first."""
        return self if instance is None else lambda *args, **kwargs: self(instance, *args, **kwargs)

    def _referred(self, builder: Builder, name: str, value: Any) -> Any:
        """`value` as what a parameter by reference may hold. Raises `TileValueError` for what has
        no place in memory.
        """
        if isinstance(value, VarCell | NotScalar):
            return value
        cell = reference(builder, name, value) if isinstance(value, Value) else None
        if cell is None:
            described = "a computed value" if isinstance(value, Value) else describe(value)
            raise TileValueError(
                f"the parameter '{name}' of the macro '{self.fn.__name__}' is a reference and "
                f"cannot be {described}",
                hint="pass a variable of T.alloc_var, an element such as A[i], or a tensor",
            )
        return cell

    def _by_reference(self, name: str) -> bool:
        annotation = annotation_of(self.fn, name, self._namespace)
        return isinstance(annotation, type) and issubclass(annotation, Reference)
