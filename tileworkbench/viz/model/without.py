"""What a kernel would be without some of its optional passes: lowered again, not run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.record import CompileRecord, Snapshot
from tileworkbench.viz.model.passes import diff_of_lines, printed
from tileworkbench.viz.model.tree_diff import count_nodes, count_statements

_CHECKS = "assert_indices"  # the pass that only kernels with `sanitize` have


def without(record: CompileRecord, disabled: Collection[str]) -> dict[str, Any]:
    """The lowered program beside the one with the passes `disabled` switched off, as rows, with the
    passes whose work differs; or ``{"error": ...}`` where the compiler refuses.
    """
    sanitize = any(snapshot.name == _CHECKS for snapshot in record.snapshots)
    names = tuple(sorted(disabled))
    try:
        target = resolve_target(record.target)
        snapshots = lower_program(record.program, target, sanitize, disabled=names)
    except TileError as error:
        return {"error": str(error)}
    usual, other = _last(record.program, record.snapshots), _last(record.program, snapshots)
    file = record.source_file
    pairs = zip(record.snapshots, snapshots, strict=False)
    differ = [mine.name for mine, its in pairs if its.changed != mine.changed]
    return {
        "flags": f"--disable {','.join(names)}" if names else "",
        "differ": list(dict.fromkeys(differ)),
        "nodes": [count_nodes(usual), count_nodes(other)],
        "statements": [count_statements(usual), count_statements(other)],
        **diff_of_lines(printed(usual, file), printed(other, file)),
    }


def _last(program: Program, snapshots: tuple[Snapshot, ...]) -> Program:
    return snapshots[-1].program if snapshots else program
