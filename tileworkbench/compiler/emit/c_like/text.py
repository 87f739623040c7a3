"""Pieces of C++: types of elements, operators with the parentheses they need, numbers."""

from __future__ import annotations

import struct

from tileworkbench.compiler.emit.c_like.small_floats import NAMES
from tileworkbench.compiler.ir.types import DType

C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "float",
    "tfloat32": "float",
    "float64": "double",
    "handle": "unsigned long long",
    "int4": "signed char",
    "uint4": "unsigned char",
    **NAMES,
}
HALVES = {"float16": "f16", "bfloat16": "bf16"}
# Floats that are carried as codes and computed in float32.
CODES = {**HALVES, **NAMES}
# The sign of an operator and how tightly C++ binds it and wants its operands bound; shifts and bit
# operators take parentheses around any operator.
_OPERATORS = {
    "mul": ("*", 13, 13, 14),
    "div": ("/", 13, 13, 14),
    "truncdiv": ("/", 13, 13, 14),
    "truncmod": ("%", 13, 13, 14),
    "add": ("+", 12, 12, 13),
    "sub": ("-", 12, 12, 13),
    "shl": ("<<", 11, 15, 15),
    "shr": (">>", 11, 15, 15),
    "lt": ("<", 9, 12, 12),
    "le": ("<=", 9, 12, 12),
    "gt": (">", 9, 12, 12),
    "ge": (">=", 9, 12, 12),
    "eq": ("==", 8, 12, 12),
    "ne": ("!=", 8, 12, 12),
    "and": ("&", 6, 15, 15),
    "or": ("|", 6, 15, 15),
    "xor": ("^", 6, 15, 15),
    "logical_and": ("&&", 5, 8, 8),
    "logical_or": ("||", 4, 5, 5),
}
_CONDITIONAL = 2


class Text(str):
    """C++ text that is no atom: `level` says how tightly its outermost operator binds."""

    __slots__ = ("level",)
    level: int

    def __new__(cls, text: str, level: int) -> Text:
        made = super().__new__(cls, text)
        made.level = level
        return made


def wrapped(text: str, level: int = 15) -> str:
    """`text` in parentheses when it binds more loosely than `level`."""
    return f"({text})" if isinstance(text, Text) and text.level < level else text


def joined(op: str, a: str, b: str) -> str:
    """An infix operator between two operands."""
    sign, level, left, right = _OPERATORS[op]
    return Text(f"{wrapped(a, left)} {sign} {wrapped(b, right)}", level)


def chosen(cond: str, then: str, other: str) -> str:
    """One of two operands."""
    parts = (wrapped(cond, 3), wrapped(then, 3), wrapped(other, 3))
    return Text(f"{parts[0]} ? {parts[1]} : {parts[2]}", _CONDITIONAL)


def bits_of(dtype: DType) -> int:
    """The bits that an element has in memory: six take a byte."""
    return 8 if dtype.bits == 6 else dtype.bits


def bare(text: str) -> str:
    """`text` without parentheses that enclose all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if at == len(text) - 1 else text
    return text


def float32_text(number: float) -> str:
    """The shortest decimal that rounds to this float32, with a point."""
    for digits in range(6, 10):
        text = f"{number:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", number):
            break
    return text if any(letter in text for letter in ".en") else f"{text}.0"
