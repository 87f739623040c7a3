"""Differences of programs as trees."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tileworkbench as tw
from tests.kernels.test_gpu import CASES
from tests.viz.sample import compile_record
from tileworkbench.compiler.ir.printer import print_head
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import with_body
from tileworkbench.compiler.ir.stmt import Kernel, Seq, seq
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.tree_diff import (
    TreeDiff,
    count_nodes,
    count_statements,
    diff_trees,
)


def written(diff: TreeDiff) -> list[str]:
    """The rows as text: sign, indentation, the statement, what of it is another."""
    signs = {"same": " ", "inside": " ", "changed": "~", "removed": "-", "added": "+", "moved": ">"}
    lines = []
    for row in diff.rows:
        stmt = row.after or row.before
        assert stmt is not None
        text = f"{row.count} same" if row.count > 1 else print_head(stmt)
        fields = "".join(f" [{name}: {was} -> {now}]" for name, was, now in row.fields)
        lines.append(f"{signs[row.kind]} {'  ' * row.depth}{text}{fields}")
    return lines


def body_of(program: Program) -> tuple[Kernel, Seq]:
    kernel = program.body
    assert isinstance(kernel, Kernel)
    assert isinstance(kernel.body, Seq)
    return kernel, kernel.body


def with_statements(program: Program, order: list[int]) -> Program:
    kernel, body = body_of(program)
    return with_body(program, replace(kernel, body=seq([body.stmts[at] for at in order])))


def test_a_statement_that_was_lowered_is_rewritten_in_its_place() -> None:
    record = compile_record()
    diff = diff_trees(record.program, record.snapshots[1].program)
    assert written(diff) == [
        "  with T.Kernel(4, 4, threads=128) as (bx, by):",
        "    3 same",
        "~   for i in T.serial(64): [: Fill -> For]",
        "+     for j in T.serial(64):",
        "+       C_local[i, j] = 0.0",
        "    2 same",
    ]
    assert dict(diff.counts) == {"inside": 1, "same": 8, "changed": 1, "added": 2}


def test_fields_of_a_rewritten_statement() -> None:
    record = compile_record()
    diff = diff_trees(record.snapshots[2].program, record.snapshots[4].program)
    changed = [row for row in diff.rows if row.kind == "changed"]
    assert {row.fields for row in changed} == {(("kind", "serial", "vectorized"),)}
    assert len(changed) == 3


def test_a_statement_in_another_place_was_moved() -> None:
    program = compile_record().program
    diff = diff_trees(program, with_statements(program, [0, 1, 3, 2, 4, 5]))
    assert [line for line in written(diff) if line[0] == ">"] == [">   T.fill(C_local, 0.0)"]
    assert diff.counts["moved"] == 1
    assert diff.counts["added"] == diff.counts["removed"] == 0


def test_what_was_removed_and_added() -> None:
    program = compile_record().program
    less = with_statements(program, [0, 1, 2, 4, 5])
    removed, added = diff_trees(program, less), diff_trees(less, program)
    assert [line for line in written(removed) if line[0] == "-"] == ["-   T.fill(C_local, 0.0)"]
    assert [line for line in written(added) if line[0] == "+"] == ["+   T.fill(C_local, 0.0)"]


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
@pytest.mark.parametrize("name", ["matmul", "flash_attention", "histogram"])
def test_every_statement_is_counted_once(name: str, target: str) -> None:
    kernel = tw.compile(CASES[name]()[0], target=target)
    before = kernel.program
    for snapshot in kernel.record.snapshots:
        counts = diff_trees(before, snapshot.program).counts
        kept = counts["same"] + counts["inside"] + counts["changed"] + counts["moved"]
        assert kept + counts["added"] == count_statements(snapshot.program)
        assert kept + counts["removed"] == count_statements(before)
        if not snapshot.changed:
            assert set(counts) == {"same"}
        before = snapshot.program


def test_nodes_are_counted() -> None:
    record = compile_record()
    assert count_nodes(record.program) < count_nodes(record.snapshots[-1].program)
    diff = PassBrowser(record).diff(2)
    assert diff["rewrites"] == {
        "kept": 9,
        "rewritten": 1,
        "added": 2,
        "removed": 0,
        "moved": 0,
        "nodes_before": count_nodes(record.program),
        "nodes_after": count_nodes(record.snapshots[1].program),
    }


def test_rows_for_the_browser() -> None:
    rows = PassBrowser(compile_record()).tree(2)["rows"]
    assert rows[1] == {"kind": "same", "depth": 1, "count": 3}
    assert rows[2] == {
        "kind": "changed",
        "depth": 1,
        "before": {"type": "Fill", "text": "T.fill(C_local, 0.0)", "source": 12},
        "after": {"type": "For", "text": "for i in T.serial(64):", "source": 12},
        "fields": [["", "Fill", "For"]],
    }
    with pytest.raises(IndexError) as caught:
        PassBrowser(compile_record()).tree(9)
    assert str(caught.value) == "there is no pass 9: the record has 5"
