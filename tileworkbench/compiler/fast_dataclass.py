"""`dataclass`, as the standard library has it, at a third of the price.

A process makes some 250 dataclasses before its first kernel is compiled. The standard decorator
compiles up to six methods of each from text: that was a fifth of the time to the first result. Only
`__init__` needs text. The other methods differ in the names of the fields alone. Fields, slots and
`__match_args__` are the standard library's work here too.

`order`, `unsafe_hash`, `weakref_slot` and `InitVar` are not here; a class that needs them takes the
standard decorator. The standard decorator makes no frozen class of one that inherits from these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Make a class a dataclass, with the options of `_make` and their usual meaning."""
        return _make(cls) if cls is not None else lambda cls: _make(cls, **options)


def _make(
    cls: type,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,
    init: bool = True,
    kw_only: bool = False,
) -> type:
    own = vars(cls)
    standard = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    made: Any = standard(cls)
    fields = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _initializer(made, fields)} if init else {}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state} if slots else {}
    if repr:
        methods["__repr__"] = _represent
    if eq:
        methods |= _comparison(fields, frozen)
    for name, method in methods.items():
        # What the class defines itself stays; `__hash__ = None` stands there for any `__eq__`.
        if own.get(name) is None:
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def _initializer(made: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    """`__init__`. It stores through the slots themselves, as a frozen class refuses assignment."""
    names: dict[str, Any] = {"_missing_": dataclasses.MISSING, "_store_": object.__setattr__}
    parameters: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for field in fields:
        name, default, value = field.name, f"_default_{field.name}", field.name
        if field.default_factory is not dataclasses.MISSING:
            names[default] = field.default_factory
            value = (
                f"{default}() if {name} is _missing_ else {name}" if field.init else f"{default}()"
            )
            parameter = f"{name}=_missing_"
        elif field.default is not dataclasses.MISSING:
            names[default] = field.default
            value, parameter = name if field.init else default, f"{name}={default}"
        elif field.init:
            parameter = name
        else:
            continue  # the class sets it, in __post_init__
        if field.init:
            parameters[bool(field.kw_only)].append(parameter)
        slot: Any = getattr(made, name, None)
        if type(slot).__name__ == "member_descriptor":
            names[f"_set_{name}"] = slot.__set__
            lines.append(f"    _set_{name}(self, {value})")
        else:
            lines.append(f"    _store_(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        lines.append("    self.__post_init__()")
    named = ["*", *parameters[True]] if parameters[True] else []
    head = f"def __init__({', '.join(['self', *parameters[False], *named])}):"
    exec("\n".join([head, *lines, "    return None"]), names)  # our own text, no input
    initializer: Callable[..., None] = names["__init__"]
    initializer.__qualname__ = f"{made.__qualname__}.__init__"
    initializer.__module__ = made.__module__
    annotations = {field.name: field.type for field in fields if field.init}
    initializer.__annotations__ = annotations | {"return": None}
    return initializer


def _comparison(fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> dict[str, Any]:
    """`__eq__` and `__hash__` by the values of the fields that are compared."""
    values = _values([field.name for field in fields if field.compare])
    hashable = [field for field in fields if (field.compare if field.hash is None else field.hash)]
    keys = _values([field.name for field in hashable])

    def equal(self: Any, other: Any) -> Any:
        return (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )

    def hashed(self: Any) -> int:
        return hash(keys(self))

    # As in the standard library: what can change and compares by value has no hash.
    return {"__eq__": equal, "__hash__": hashed if frozen else None}


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of some fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        only = attrgetter(names[0])
        return lambda self: (only(self),)
    return lambda self: ()


def _represent(self: Any) -> str:
    shown = (field.name for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
