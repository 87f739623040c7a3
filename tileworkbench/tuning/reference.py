"""What tells one reference from another, in a file that outlives both."""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def digest_of(reference: Callable[..., Any], limits: Sequence[float]) -> str:
    """A digest of what a comparison with `reference` within `limits` rests on: the code of the
    function and of those of its module that it calls, and the values that they use. Of other
    modules' functions the name counts, and of what cannot be pickled the type.
    """
    module = getattr(inspect.unwrap(reference), "__module__", None)
    return hashlib.sha256(repr((_form(reference, module, set()), *limits)).encode()).hexdigest()


def _form(value: Any, module: str | None, seen: set[int]) -> Any:
    """Plain data that is equal for equal values."""

    def listed(values: Any) -> list[Any]:
        return [_form(each, module, seen) for each in values]

    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple | list | set | frozenset | dict):
        if not isinstance(value, tuple):  # it may hold itself
            if id(value) in seen:
                return type(value).__name__
            seen.add(id(value))
        made = listed(value.items() if isinstance(value, dict) else value)
        is_ordered = isinstance(value, tuple | list)
        return type(value).__name__, made if is_ordered else sorted(map(repr, made))
    if isinstance(value, partial):
        return listed((value.func, value.args, value.keywords))
    if isinstance(value, MethodType):
        return listed((value.__func__, value.__self__))
    if isinstance(value, CodeType):
        return value.co_code.hex(), value.co_names, listed(value.co_consts)
    value = inspect.unwrap(value) if callable(value) else value
    if not isinstance(value, FunctionType):
        return _pickled(value)
    if value.__module__ != module or id(value) in seen:
        return value.__module__, value.__qualname__
    seen.add(id(value))
    used = [value.__globals__.get(name) for name in _names(value.__code__)]
    cells = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
    return listed((value.__code__, value.__defaults__, value.__kwdefaults__, cells, used))


def _names(code: CodeType) -> list[str]:
    """The names that a function and those inside of it look up."""
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return [*code.co_names, *inner]


def _pickled(value: Any) -> str:
    """A digest of an object, of its type where it cannot be pickled."""
    if isinstance(value, ModuleType):
        return value.__name__
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:
        return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_full(cell: Any) -> bool:
    """Whether a variable of an enclosing function has a value by now."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
