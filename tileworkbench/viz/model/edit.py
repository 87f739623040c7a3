"""The cells in which a program between two passes, or the generated code, is edited."""

from __future__ import annotations

from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.record import CompileRecord


def ir_cell(record: CompileRecord, index: int, name: str = "") -> str:
    """A cell with the program after pass `index` (0: the front end's), of the kernel that the user
    calls `name`.

    Raises:
        IndexError: there is no such pass.
    """
    if not 0 <= index <= len(record.snapshots):
        raise IndexError(f"there is no pass {index}: the record has {len(record.snapshots)}")
    program = record.snapshots[index - 1].program if index else record.program
    after = after_word(record, index)
    return f"%%tile ir {name or record.name} --after {after}\n{print_program(program)}"


def after_word(record: CompileRecord, index: int) -> str:
    """How a line names pass `index`: by its name, or by its number where two have that name."""
    names = [snapshot.name for snapshot in record.snapshots]
    name = names[index - 1] if index else ""
    return name if names.count(name) == 1 else str(index)


def source_cell(record: CompileRecord, name: str = "") -> str:
    """A cell with the generated code."""
    return f"%%tile src {name or record.name}\n{record.code}"
