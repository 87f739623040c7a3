"""Kernels that are one but for their names: a layer of a model is there many times."""

from __future__ import annotations

import builtins
import keyword
import re

# A string, a comment, or a name that is neither an attribute nor that of a keyword argument.
_TOKEN = re.compile(
    r"""(?P<other>"[^"]*"|'[^']*')|#[^\n]*|(?<![\w.])(?P<name>[^\W\d]\w*)\b(?!=[^=])"""
)
_KNOWN = frozenset((*keyword.kwlist, *dir(builtins), "T"))  # all else a text names itself


def form_of(text: str) -> str:
    """A kernel's text without comments, its names numbered in the order in which they appear.

    Two kernels of one form do the same with their arguments, in the same order.
    """
    numbers: dict[str, str] = {}

    def numbered(token: re.Match[str]) -> str:
        name = token["name"]
        if name is None or name in _KNOWN:
            return name or token["other"] or ""
        return numbers.setdefault(name, f"_{len(numbers)}")

    lines = (line.rstrip() for line in _TOKEN.sub(numbered, text).splitlines())
    return "\n".join(line for line in lines if line)
