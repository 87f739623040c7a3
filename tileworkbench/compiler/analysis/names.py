"""Names that a program does not use yet."""

from __future__ import annotations

import re

from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.node import InternedNode, Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import bound_by
from tileworkbench.compiler.ir.types import INT32, DType

_SUFFIX = re.compile(r"_\d+$")


def stem(name: str) -> str:
    """The name that a numbered one was made from."""
    return _SUFFIX.sub("", name)


def ascii_name(name: str) -> str:
    """The name for texts whose identifiers are plain letters: `ü` becomes `u00fc`."""
    return "".join(letter if letter.isascii() else f"u{ord(letter):04x}" for letter in name)


class Names:
    """Hands out unused names: `i`, then `i_1`, `i_2`, and so on."""

    def __init__(self, program: Program) -> None:
        self._used: set[str] = {program.name, *(param.name for param in program.params)}
        self._next: dict[str, int] = {}
        # What statements share is looked at once: every pass asks for the names of a program.
        stack: list[Node] = [program.body]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if isinstance(node, InternedNode):
                if node in seen:
                    continue
                seen.add(node)
                if isinstance(node, Var | Buffer):
                    self._used.add(node.name)
            self._used.update(var.name for var in bound_by(node))
            stack.extend(node.children())

    def fresh(self, base: str) -> str:
        """An unused name that starts with `base`."""
        base = stem(base)
        name, count = base, self._next.get(base, 0)
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._next[base] = count
        self._used.add(name)
        return name

    def var(self, base: str, dtype: DType = INT32) -> Var:
        """A fresh variable."""
        return Var(self.fresh(base), dtype)
