"""The line of `%tile layout`: a layout as it was typed, and an operation behind two dashes."""

from __future__ import annotations

import re

_OPERATION = re.compile(r"(?:^|\s)--([a-z][a-z_]*)(?:\s|$)")


def split_layout(line: str) -> list[str] | None:
    """The layout, then the operation and what it takes where they are given; None for a line of
    another command. A layout keeps its quotes and spaces.
    """
    command, _, rest = line.strip().partition(" ")
    if command != "layout":
        return None
    return [part.strip() for part in _OPERATION.split(rest, maxsplit=1)]


def layout_words(last: str) -> list[str]:
    """What `last` may become: operations behind dashes, else names of instructions."""
    # Here, because loading the extension needs neither.
    from tileworkbench.compiler.layout.operations import OPERATIONS
    from tileworkbench.compiler.machine.operands import instruction_names

    known = [f"--{name}" for name in OPERATIONS] if last.startswith("-") else instruction_names()
    return [word for word in known if last and word.startswith(last)]
