"""What NVRTC and hiprtc have in common: the same C API, each with a prefix of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

Check = Callable[[Any, int], None]
"""Raises for a status of the library that is not 0."""


def declare(library: Any, prefix: str, results: Sequence[str]) -> None:
    """Set the argument types: ctypes would cut a handle passed as a plain number to 32 bits."""
    handle, size = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    texts = ctypes.POINTER(ctypes.c_char_p)
    getattr(library, f"{prefix}GetErrorString").restype = ctypes.c_char_p
    types: dict[str, list[Any]] = {
        "CreateProgram": [
            *(ctypes.POINTER(handle), ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, texts, texts)
        ],
        "CompileProgram": [handle, ctypes.c_int, texts],
        "DestroyProgram": [ctypes.POINTER(handle)],
    }
    for what in results:
        types[f"Get{what}Size"] = [handle, size]
        types[f"Get{what}"] = [handle, ctypes.c_char_p]
    for name, arguments in types.items():
        getattr(library, prefix + name).argtypes = arguments


def fetch(library: Any, prefix: str, what: str, program: ctypes.c_void_p, check: Check) -> bytes:
    """A result of a program, such as its log."""
    size = ctypes.c_size_t()
    check(library, getattr(library, f"{prefix}Get{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(library, getattr(library, f"{prefix}Get{what}")(program, buffer))
    return buffer.raw
