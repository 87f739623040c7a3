"""What a compilation leaves behind for views: plain, picklable data, no behaviour of its own; and
what tells several apart.

`SCHEMA` is raised whenever a field changes its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tileworkbench.compiler.analysis.cost import Count as Count
from tileworkbench.compiler.diagnostics import Note, Span
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The program after one pass. `program` is the object before when the pass changed nothing.

    `lost` is what a kernel lacks without the pass, empty for one that must run. `disabled` says
    that it was switched off.
    """

    name: str
    doc: str
    program: Program
    changed: bool
    time_us: float
    lost: str = ""
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The pass that ended a compilation, and its message with the place in the user's source."""

    name: str
    doc: str
    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """One step of a compilation, in microseconds."""

    step: str
    time_us: float


@dataclass(frozen=True, slots=True)
class CompileRecord:
    """Everything about one compilation, in the order it happened.

    `source` is the user's text with its first line number, `program` the front end's Program,
    `snapshots` one per pass, `code` the generated text, `asm` the machine's, or empty until asked
    for. `warnings` carry spans. `cached` says where the machine code came from: "", "memory" or
    "disk". `variants` are the records of the same kernel compiled under assumptions, `facts` what a
    variant assumes. `disabled` are the passes that were switched off, `defaults` the library's tile
    sizes where nobody gave others, and where they come from. `stop` is the pass that
    failed, in the record of a compilation that did not end; `snapshots` are those before it.
    """

    name: str
    target: str
    level: str
    source: str
    source_file: str
    first_line: int
    program: Program
    snapshots: tuple[Snapshot, ...]
    code: str
    entry: str
    constants: tuple[tuple[str, str], ...] = ()
    warnings: tuple[Note, ...] = ()
    timings: tuple[Timing, ...] = ()
    cached: str = ""
    facts: tuple[str, ...] = ()
    variants: tuple[CompileRecord, ...] = ()
    disabled: tuple[str, ...] = ()
    defaults: str = ""
    stop: Stop | None = None
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One measurement: `times_us` are the rounds of one kernel call each.

    `comparison` says how fast it was beside another callable, if anything; `dtype` what is
    computed with, where that is known. `cold` says that each call found nothing of its arguments
    in any cache.
    """

    name: str
    times_us: tuple[float, ...]
    threads: int
    clock_note: str
    flops: float
    bytes_: float
    extra: tuple[tuple[str, float], ...] = field(default=())
    comparison: str = ""
    dtype: str = ""
    cold: bool = False


def names_of(records: Sequence[CompileRecord], versions: Sequence[int] = ()) -> tuple[str, ...]:
    """A name for each kernel that no other has. Those of one name have the constants in which they
    differ behind it; then come targets that differ, the version or the number.

    `versions` are those of the cell that made each, 0 where nobody counts them.
    """
    names = []
    for own in records:
        others = [dict(each.constants) for each in records if each.name == own.name]
        differing = (
            f"{key}={value}"
            for key, value in own.constants
            if any(other.get(key) != value for other in others)
        )
        told = ",".join(differing)
        names.append(f"{own.name}[{told}]" if told else own.name)
    if len({record.target for record in records}) > 1:
        names = [f"{name} {each.target}" for name, each in zip(names, records, strict=True)]
    for word, numbers in (("version ", versions), ("#", range(1, len(names) + 1))):
        if len(set(numbers)) > 1 and all(numbers):
            several = {name for name in names if names.count(name) > 1}
            pairs = zip(names, numbers, strict=True)
            names = [f"{name} {word}{n}" if name in several else name for name, n in pairs]
    return tuple(names)
