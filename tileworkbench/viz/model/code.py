"""The generated code as a view."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tileworkbench.viz.model import html
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.view import KernelView

CODE_LIMIT = 400_000  # characters that a browser is sent
EXCERPT_LINES = 40  # lines in the static card
_DIFFERENCE_LINES = 400  # of the code of two kernels, live
_STILL_LINES = 120  # and in a saved notebook


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    return "" if view.record.code else f"no code was generated for '{view.record.target}'"


def model(view: KernelView) -> dict[str, Any]:
    """The text, cut to what a browser shows with ease, how many characters that left out, its
    language, and how many lines of helpers stand before the kernel.
    """
    code = view.record.code
    return {
        "text": code[:CODE_LIMIT],
        "dropped": max(0, len(code) - CODE_LIMIT),
        "language": language(view),
        "helpers": helper_lines(code, view.record.entry),
    }


def language(view: KernelView) -> str:
    """``llvm`` or ``c``: which words and comments are coloured."""
    return "llvm" if view.target_kind == "cpu" else "c"


def helper_lines(code: str, entry: str) -> int:
    """The lines before the kernel: before CUDA's entry, or LLVM's first function of its name."""
    for number, line in enumerate(code.splitlines()):
        if line.startswith('extern "C"') or (line.startswith("define ") and f"@{entry}" in line):
            return number
    return 0


_HELPER = re.compile(
    r"__device__ (?:__forceinline__|inline) [^(]*\b(\w+)\([^;{}]*\)\s*\{(.*?)\n\}", re.DOTALL
)
_ASM = re.compile(r"asm volatile\(\"(.*?)\"\s*:", re.DOTALL)
_OPCODE = re.compile(r"(?<![\w.%])(?!setp|selp)[a-z]\w*(?:\.[\w:]+)+")  # but those about predicates
_AMDGCN = re.compile(r"__builtin_amdgcn_((?!fence)\w+)")  # named as their instructions are
_BUILT_IN = re.compile(r"\b(__syncthreads|__syncwarp|__shfl\w*|atomic\w+)\s*\(")
_LLVM = re.compile(r"@llvm\.([\w.]+)\(")


def instructions(view: KernelView, live: bool) -> dict[str, tuple[str, int]]:
    """The special instructions of the code by the name of their helper: what it is called by the
    hardware, and in how many places it stands. Those of a CPU depend on the host.
    """
    code = view.record.code
    if view.target_kind == "cpu":
        calls = Counter(_LLVM.findall(code.partition("\ndeclare ")[0])) if live else Counter()
        return {f"llvm.{name}": (f"llvm.{name}", calls[name]) for name in sorted(calls)}
    names = {name: name for name in _BUILT_IN.findall(code)}
    for helper, body in _HELPER.findall(code):
        if (text := _ASM.search(body)) and (opcode := _OPCODE.search(text[1])):
            names[helper] = opcode[0]
        elif intrinsic := _AMDGCN.search(body):
            names[helper] = intrinsic[1]
    counts = Counter(re.findall(r"\b(\w+)\s*\(", code))
    places = {name: counts[name] - (name != told) for name, told in names.items()}
    return {name: (names[name], places[name]) for name in sorted(names) if places[name] > 0}


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of the code: its length, and each instruction."""
    labelled = {}
    if live or view.portable_code:
        labelled["lines"] = str(len(view.record.code.splitlines()))
    for name, places in instructions(view, live).values():
        labelled[name] = f"in {places} place{'s' if places != 1 else ''}"
    return labelled


def together(views: Sequence[KernelView], names: Sequence[str], live: bool) -> str:
    """The differences between the codes of two kernels for GPUs."""
    if len(views) != 2 or {view.target_kind for view in views} != {"gpu"}:
        return ""
    return html.difference(
        [view.record.code for view in views], names, _DIFFERENCE_LINES if live else _STILL_LINES
    )


def section(view: KernelView, opened: bool = False) -> str:
    """The first lines of code that is the same on every host; nothing where it is not."""
    if not view.portable_code:
        return ""
    lines = view.portable_code.splitlines()
    shown = lines[:EXCERPT_LINES]
    note = "" if len(lines) == len(shown) else f"the first {len(shown)} of {len(lines)} lines"
    excerpt = html.code_block(html.text(clip(line, 300)) for line in shown)
    return html.details("Code", excerpt, note=note, opened=opened)
