"""Values of names that are no scalars: every operator raises the error that says why."""

from __future__ import annotations

from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import Span, TileTypeError
from tileworkbench.compiler.frontend.builder import out_of_scope


class NotScalar:
    """Base of what has no arithmetic of its own: every operator raises the error that says why."""

    __slots__ = ()

    @property
    def described(self) -> str:
        """What a message calls it."""
        return f"an object of type '{type(self).__name__}'"

    def refuse(self, *_: Any) -> NoReturn:
        """Raise `TileTypeError` for the use of a whole tensor or region as a scalar."""
        raise TileTypeError(f"a scalar is needed here, not {self.described}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        lambda self, *_: self.refuse()
    )
    __floordiv__ = __mod__ = __pow__ = __matmul__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = (
        __add__
    )
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __bool__ = __iter__ = __float__ = __index__ = (
        __add__
    )


class Stale:
    """What a name holds after the loop or branch that rebound it: any use raises
    `TileRuntimeError`.

    Without a scope it stands for a name that has not been bound at all.
    """

    __slots__ = ("_allocated", "_name", "_scope", "_span")

    def __init__(self, name: str, scope: str | None, span: Span | None, allocated: bool) -> None:
        self._name = name
        self._scope = scope
        self._span = span
        self._allocated = allocated

    def fail(self, *_: Any, **__: Any) -> NoReturn:
        """Raise the error of using the name here; Python's own where it was never bound."""
        if self._scope is None:
            raise UnboundLocalError(
                f"cannot access local variable '{self._name}' where it is not associated with a "
                f"value"
            )
        raise out_of_scope(self._name, self._scope, self._span, self._allocated)

    def __getattr__(self, name: str) -> NoReturn:
        self.fail()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = fail
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = (
        __invert__
    ) = __abs__ = fail
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rlshift__ = (
        __rshift__
    ) = fail
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __index__ = __int__ = __float__ = __iter__ = (
        __len__
    ) = fail
    __eq__ = __ne__ = __getitem__ = __setitem__ = __call__ = __enter__ = __str__ = __hash__ = fail
