"""Numbers as people write them, and the one line that stands for a kernel in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tileworkbench.bench.units import format_bytes, format_error, three_digits
from tileworkbench.compiler.diagnostics import line_in

if TYPE_CHECKING:
    from tileworkbench.compiler.diagnostics import Note
    from tileworkbench.compiler.record import CompileRecord
    from tileworkbench.viz.model.view import KernelView
    from tileworkbench.workbench.results import CheckResult


def clip(text: str, limit: int) -> str:
    """`text` in at most `limit` characters, with an ellipsis where it was cut."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def first_sentence(doc: str) -> str:
    """The first sentence of a docstring, on one line."""
    text = " ".join(doc.split("\n\n")[0].split())
    match = re.match(r".*?[.!?](?=\s|$)", text)
    return match.group() if match else text


def numbered(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Rows by label; a label that comes again has its number."""
    by_label: dict[str, str] = {}
    for label, value in rows:
        number = 1
        while (key := label if number == 1 else f"{label} #{number}") in by_label:
            number += 1
        by_label[key] = value
    return by_label


def title(record: CompileRecord) -> str:
    """``mm[BK=32,BM=64]``."""
    constants = ",".join(f"{name}={value}" for name, value in record.constants)
    return f"{record.name}[{constants}]" if constants else record.name


def passes_changed(record: CompileRecord) -> tuple[int, int]:
    """How many passes changed something, and how many there are."""
    return sum(snapshot.changed for snapshot in record.snapshots), len(record.snapshots)


def check_text(check: CheckResult) -> str:
    """``check ok``; a failure names its error to one digit."""
    if check.ok:
        return f"check ok ({check.nan_text})" if check.nans else "check ok"
    return f"check FAILED (max err {format_error(check.max_error)})"


def warnings_of(record: CompileRecord) -> list[tuple[Note, int]]:
    """The warnings with their line in the user's source, 0 where they have none."""
    return [(note, line_in(record.source_file, note.span)) for note in record.warnings]


def warnings_text(record: CompileRecord) -> str:
    """``2 warnings (lines 4, 7)``."""
    count = len(record.warnings)
    lines = sorted({line for _, line in warnings_of(record) if line})
    where = f" (line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))})" if lines else ""
    return f"{count} warning{'s' if count > 1 else ''}{where}"


def executes_threads(record: CompileRecord) -> bool:
    """Whether a processor executes the threads of a block, in loops, not whole tiles only."""
    return any(step.name == "split_threads" and step.changed for step in record.snapshots)


def plain_line(view: KernelView) -> str:
    """One line without timings, addresses, paths or anything that depends on the host."""
    record = view.record
    changed, total = passes_changed(record)
    facts = [title(record), record.target, f"grid={view.grid}", f"threads={view.threads}"]
    if executes_threads(record):
        facts.append("simt")
    if view.shared_bytes:
        facts.append(f"smem={format_bytes(view.shared_bytes).replace(' ', '')}")
    parts = [" ".join(facts), f"{total} passes, {changed} changed"]
    if view.intensity is not None:
        parts.append(f"AI {three_digits(view.intensity)} {view.operation}/B")
    if record.facts:
        parts.append(f"where {' and '.join(record.facts)}")
    if record.variants:
        parts.append(f"{len(record.variants) + 1} variants")
    if view.check is not None:
        parts.append(check_text(view.check))
    if record.warnings:
        parts.append(warnings_text(record))
    return " ".join(f"<TileKernel {' | '.join(parts)}>".split())


def block_text(block: tuple[int, ...]) -> str:
    """A block by its indices: ``block (3, 0)``."""
    return f"block ({', '.join(map(str, block))})"
