"""Operands of instructions by name, as fragments: ``mma.m16n8k16.f16 A``, ``ldmatrix.x4``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout.atoms import transposed
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.machine.instructions import (
    OPERAND_DTYPES,
    MatrixInstruction,
    MatrixMove,
)
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of

# What MFMA calls operands that it does not read as mma does, and its names of others.
_MFMA_DTYPES = {"float32": "f32", "tfloat32": "xf32"}
_SAME = {"i8": "s8"}
_NAME = re.compile(
    r"\s*((?:wgmma|mma|v_mfma|mfma|ldmatrix|stmatrix)(?:[._][\w.]*)?)(?:\s+([ABCDabcd]))?\s*"
)
_IDLE = {"sync", "async", "aligned", "row", "col", "mma", "v", "shared", "m8n8", "trans"}


def looks_like_instruction(text: str) -> bool:
    """Whether a text names an instruction, known or not."""
    return _NAME.fullmatch(text) is not None


@cache
def instruction_names() -> tuple[str, ...]:
    """Every instruction, as it is written here; of those of wgmma the widths that are powers of
    two.
    """
    usual = [name for name, row in _products().items() if row.n & (row.n - 1) == 0]
    return (*usual, *(f"{move.name}.x{count}" for move in _moves() for count in move.counts))


def operand_fragment(text: str) -> Fragment:
    """The fragment of an operand: its lanes and registers.

    Of a product over A ``[row, k]``, B ``[n, k]`` or C ``[row, column]``; PTX's whole name is
    understood too. Of ldmatrix and stmatrix over the rows of the matrices one below the other: row
    `r` is the one that lane `r` points at. With ``.trans`` each matrix is transposed.

    Of a name without an operand it is A, and without a type float16 where the instruction has it;
    `whole_name` says which one that is.

    Raises:
        LayoutError: no such instruction, or an operand that is not in registers.
    """
    name, words, operand = _split(text)
    for move in _moves():
        if words[0] == move.name:
            return _moved(move, words[1:], name)
    row = _products()[_known(name, words)]
    part = {"A": row.a, "B": row.b}.get(operand, row.c)
    if part.place is None:
        raise LayoutError(
            f"Operand {operand} of '{name}' is in shared memory only.",
            hint="Layout.swizzled((rows, columns), bits, 128) is a layout that it can have there.",
        )
    return part.fragment


def whole_name(text: str) -> str:
    """What `operand_fragment` reads a name as, with type and operand: ``mma.m16n8k16.f16 A``.

    Raises:
        LayoutError: no such instruction.
    """
    name, words, operand = _split(text)
    if any(words[0] == move.name for move in _moves()):
        return name
    return f"{_known(name, words)} {operand}"


def _split(text: str) -> tuple[str, list[str], str]:
    """The name, its words and the operand."""
    match = _NAME.fullmatch(text)
    if not match:
        raise LayoutError(f"'{text.strip()}' is not the name of an instruction.")
    name = match.group(1).lower()
    return name, re.split(r"[._]", name), (match.group(2) or "A").upper()


def _known(name: str, words: list[str]) -> str:
    """The key in `_products`: of several types that have this shape, float16 or the first."""
    canonical = _canonical(words)
    if canonical in _products():
        return canonical
    typed = [each for each in _products() if each.startswith(f"{canonical.rstrip('.')}.")]
    if not re.search(r"m\d+n\d+k\d+\.?$", canonical) or not typed:
        raise _unknown(name, canonical)
    half = f"{canonical.rstrip('.')}.f16"
    return half if half in typed else typed[0]


def _canonical(words: list[str]) -> str:
    """``mma.m16n8k16.f16`` from the words of any spelling."""
    family = next(word for word in words if word != "v")
    edges = [re.fullmatch(r"m(\d+)n(\d+)k(\d+)|(\d+)x(\d+)x(\d+)", word) for word in words]
    shape = next((m for m in edges if m), None)
    numbers = [number for number in (shape.groups() if shape else ()) if number]
    named = [_SAME.get(word, word) for word in words[1:] if word not in _IDLE]
    kinds = [OPERAND_DTYPES.get(word, word) for word in named]
    known = {*OPERAND_DTYPES.values(), *_MFMA_DTYPES.values(), "s32"}
    kinds = [kind for kind in kinds if kind in known]
    if family == "mfma":
        kinds = kinds[-1:]  # the result's comes first
    elif len(kinds) > 2:
        kinds = kinds[1:3]  # D, A, B, C
    joined = ".".join(dict.fromkeys(kinds))
    if len(numbers) != 3:
        return f"{family}.{joined}"
    return f"{family}.m{numbers[0]}n{numbers[1]}k{numbers[2]}.{joined}"


@cache
def _products() -> dict[str, MatrixInstruction]:
    products: dict[str, MatrixInstruction] = {}
    for row in (row for arch in ARCHITECTURES for row in machine_of(arch).matrices):
        if row.issues > 1 or row.across > 1:
            continue  # several instructions have no name
        family = row.name.partition(".")[0]
        names = OPERAND_DTYPES | (_MFMA_DTYPES if family == "mfma" else {})
        kinds = dict.fromkeys(names[dtype] for dtype in row.dtypes[:2])
        products.setdefault(f"{family}.m{row.m}n{row.n}k{row.k}.{'.'.join(kinds)}", row)
    return products


def _moves() -> Iterator[MatrixMove]:
    known = (move for arch in ARCHITECTURES for move in machine_of(arch).moves)
    return iter({move.name: move for move in known}.values())


def _moved(move: MatrixMove, words: list[str], name: str) -> Fragment:
    bits = next((int(word[1:]) for word in words if re.fullmatch(r"b\d+", word)), 16)
    count = next((int(word[1:]) for word in words if re.fullmatch(r"x\d+", word)), 1)
    matrix = move.fragment(bits)
    if count not in move.counts or matrix is None or bits < 8:
        raise _unknown(name, f"{move.name}.x{count}")
    if "trans" in words:
        if bits != move.transposed_bits:
            raise LayoutError(f"'{name}': '.trans' takes elements of {move.transposed_bits} bits.")
        matrix = transposed(matrix)
    return matrix.repeat((count, 1))


def _unknown(name: str, canonical: str) -> LayoutError:
    near = difflib.get_close_matches(canonical, instruction_names(), 3, cutoff=0.5)
    return LayoutError(
        f"There is no instruction '{name}' here.",
        hint=f"Near it: {', '.join(near or instruction_names()[:3])}",
    )
