"""What a name of a program is: its definition, its uses, shape, dtype, scope and layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import bound_by, statements, walk

USES = 40  # lines that are listed

_WORD = re.compile(r"[^\W\d]\w*")


class Names:
    """The variables and buffers of one program, and the lines of its text that mention them."""

    def __init__(self, program: Program, lines: Sequence[str]) -> None:
        self._lines = lines
        self._values: dict[str, Var | Buffer] = {}
        for symbol in program.symbols:
            self._values[symbol.name] = symbol
        for param in program.params:
            self._values[param.name] = param.value
        self._parameters = {param.name for param in program.params}
        for stmt in statements(program.body):
            for var in bound_by(stmt):
                self._values.setdefault(var.name, var)
        for node in walk(program.body):
            if isinstance(node, Buffer):
                self._values.setdefault(node.name, node)
        self._places: dict[str, list[int]] = {}
        for number, line in enumerate(lines, 1):
            for word in dict.fromkeys(_WORD.findall(line)):
                if word in self._values:
                    self._places.setdefault(word, []).append(number)

    def describe(self, name: str) -> dict[str, Any]:
        """Label and value of each fact, and numbers of lines: ``defined`` and ``used``.

        Empty for a word that names nothing.
        """
        value = self._values.get(name)
        if value is None:
            return {}
        places = self._places.get(name, [])
        defined, used = places[:1], places[1:]
        kind = "buffer" if isinstance(value, Buffer) else "variable"
        facts = [["kind", f"{kind}, a parameter" if name in self._parameters else kind]]
        facts.append(["dtype", str(value.dtype)])
        if isinstance(value, Buffer):
            facts += _buffer_facts(value)
        if defined:
            facts.append(["definition", self._lines[defined[0] - 1].strip()])
        return {
            "name": name,
            "facts": facts,
            "defined": defined[0] if defined else 0,
            "used": used[:USES],
            "uses": len(used),
        }


def _buffer_facts(buffer: Buffer) -> list[list[str]]:
    facts = [["scope", buffer.scope]]
    facts.append(["shape", " × ".join(map(print_expr, buffer.shape)) or "one element"])
    if buffer.strides:
        facts.append(["strides", ", ".join(map(print_expr, buffer.strides))])
    facts.append(["layout", "row-major" if buffer.layout is None else buffer.layout.to_text()])
    return facts
