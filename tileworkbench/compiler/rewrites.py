"""Which rules a pass of a compilation applied, to what and in which order: found by running it once
more on the program that it was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tileworkbench.compiler.diagnostics import TileValueError, line_in
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.printer import print_head
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rules import Rewrite, RewriteLog, recording
from tileworkbench.compiler.lowering import EDITED, step_of
from tileworkbench.compiler.passes.pipeline import Pass
from tileworkbench.compiler.record import CompileRecord


def rewrites_of(record: CompileRecord, index: int) -> tuple[Rewrite, ...]:
    """The rewrites of snapshot `index` of `record`, in order; none of a pass that changed nothing,
    was switched off or did not run to its end, of an edit, of a target that this version does not
    know, and of a step that is not one of the target's passes.

    Raises `UnsupportedError` for a record of a processor that this machine has not.
    """
    if not 0 <= index < len(record.snapshots):
        return ()
    snapshot = record.snapshots[index]
    if not snapshot.changed or snapshot.disabled or snapshot.name == EDITED:
        return ()
    before = record.snapshots[index - 1].program if index else record.program
    earlier = sum(each.name == snapshot.name for each in record.snapshots[:index])
    try:
        step = step_of(resolve_target(record.target), snapshot.name, earlier)
    except (LookupError, TileValueError):
        return ()
    return tuple(recorded(step, before).rewrites)


@dataclass(frozen=True, slots=True)
class RewriteText:
    """One rewrite as text.

    Attributes:
        number: from 1 on, in the order in which they happened.
        rule: the name of the rule that was applied.
        doc: what it does, in a sentence.
        line: the line of the user's source that the statement came from, 0 for none.
        statement: the first line of the statement that it happened in, as the pass found it.
        before: the expression or statement that was rewritten; rules may have rewritten what is in
            it already.
        after: what it became.
    """

    number: int
    rule: str
    doc: str
    line: int
    statement: str
    before: str
    after: str


def texts_of(record: CompileRecord, rewrites: Sequence[Rewrite]) -> list[RewriteText]:
    """Rewrites of a pass of `record` as text."""
    sites = record.program
    return [
        RewriteText(
            number,
            each.rule,
            each.doc,
            line_in(record.source_file, sites.span(each.stmt.site)),
            print_head(each.stmt),
            str(each.before),
            str(each.after),
        )
        for number, each in enumerate(rewrites, 1)
    ]


def counts_of(rewrites: Iterable[Rewrite | RewriteText]) -> dict[str, int]:
    """How often each rule was applied, the most frequent first."""
    return dict(Counter(each.rule for each in rewrites).most_common())


def recorded(step: Pass, program: Program) -> RewriteLog:
    """What the rules of `step` do to `program`."""
    with recording() as log:
        step(program)
    return log
