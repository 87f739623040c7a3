"""Pieces of Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from enum import EnumMeta
from typing import Any

import tileworkbench.language as T

_ENUM = re.compile(r"<(\w+)\.(\w+): \d+>")  # as a signature shows a member of one
_ITEM = re.compile(r"^    (?=\S)", re.M)


def fenced(text: str, language: str = "python") -> str:
    """A block of code."""
    fence = "```" if "```" not in text else "````"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar in a cell is kept."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
                     for line in lines)  # fmt: skip


def contents(names: Iterable[str]) -> str:
    """The list of the pages below this one."""
    return "\n".join(["```{toctree}", ":maxdepth: 1", "", *names, "```"])


def page(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def prose(text: str) -> str:
    """A docstring as Markdown: `name` is code already, a block after '::' becomes a fenced one, and
    a tree or a list of attributes keeps its lines.
    """
    out: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            out.append(fenced(inspect.cleandoc("\n" + block), "text"))
        elif len(lines) > 1 and lines[0].endswith(":") and lines[1].startswith("    "):
            items = [" ".join(item.split()) for item in _ITEM.split("\n".join(lines[1:])) if item]
            out += [lines[0], "\n".join(f"- {_item(item)}" for item in items)]
        else:
            out.append(_escaped(block))
    return "\n\n".join(out)


def _item(text: str) -> str:
    """`name, name: what it is`, of a list of arguments."""
    names, colon, rest = text.partition(": ")
    return f"**{_escaped(names)}**: {_escaped(rest)}" if colon else _escaped(text)


def _escaped(text: str) -> str:
    """Text whose stars, underscores, brackets and angles outside code stand for themselves."""
    parts = re.split(r"(``[^`]*``|`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts
    )


def signature(name: str, value: Any, prefix: str) -> str:
    """`prefix.name(...)` as a block, a parameter to a line where it is long; without types, which
    are for tools.
    """
    if isinstance(value, EnumMeta):
        return fenced("\n".join(f"{prefix}{name}.{member}" for member in value.__members__))
    try:
        made = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in made.parameters.values()
        if each.name != "self"
    ]
    plain = made.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    text = _ENUM.sub(lambda m: f"{'T.' * hasattr(T, m[1])}{m[1]}.{m[2]}", f"{prefix}{name}{plain}")
    if len(text) > 80:
        inner = text[text.index("(") + 1 : -1]
        text = f"{text[: text.index('(')]}(\n    " + ",\n    ".join(_split(inner)) + ",\n)"
    return fenced(text)


def _split(text: str) -> list[str]:
    """The parts of `text` between commas that are in no bracket."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]
