"""The generated code as a view."""

from __future__ import annotations

from typing import Any

from tileworkbench.viz.model import html
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.view import KernelView

CODE_LIMIT = 400_000  # characters that a browser is sent
EXCERPT_LINES = 40  # lines in the static card


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


def section(view: KernelView, opened: bool = False) -> str:
    """The first lines of code that is the same on every host; nothing where it is not."""
    if not view.portable_code:
        return ""
    lines = view.portable_code.splitlines()
    shown = lines[:EXCERPT_LINES]
    note = "" if len(lines) == len(shown) else f"the first {len(shown)} of {len(lines)} lines"
    excerpt = html.code_block(html.text(clip(line, 300)) for line in shown)
    return html.details("Code", excerpt, note=note, opened=opened)
