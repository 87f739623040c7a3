"""Tables of integers as bytes of the smallest type, for the browser."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_TYPES = {"u1": 2**8 - 1, "u2": 2**16 - 1, "i4": 2**31 - 1, "f8": 2**53}  # and the largest number


def packed(values: Array) -> dict[str, Any]:
    """``{"type": "u1" | "u2" | "i4" | "f8", "data": bytes}``, row-major and little-endian.

    Numbers below zero mean that there is none: they become the largest number of the type, which
    is then in ``empty``.
    """
    top = int(values.max(initial=0))
    empty = bool((values < 0).any())
    name, limit = next(item for item in _TYPES.items() if top + empty <= item[1])
    kept = np.where(values < 0, limit, values)
    made: dict[str, Any] = {"type": name, "data": kept.astype(f"<{name}").tobytes()}
    if empty:
        made["empty"] = limit
    return made


def packed_text(values: Array) -> dict[str, Any]:
    """The same with the bytes as base64 text, for data that travels as JSON."""
    made = packed(values)
    return made | {"data": b64encode(made["data"]).decode("ascii")}


def as_text(value: Any) -> Any:
    """A model with the bytes of its tables as base64 text, so that it can travel as JSON."""
    if isinstance(value, dict):
        return {key: as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_text(each) for each in value]
    return b64encode(value).decode("ascii") if isinstance(value, bytes) else value
