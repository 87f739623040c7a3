"""What a simulated run found: violations, masked accesses and how often each statement ran."""

from __future__ import annotations

from enum import StrEnum

from tileworkbench.compiler.diagnostics import Note, OutOfBoundsError, RaceError, RunError, Span
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.masked import Masked, index_text
from tileworkbench.compiler.sim.problems import GUARD, remedy

_SHOWN = 4  # findings that an error names


class LimitReached(Exception):
    """The blocks or the time that a run may take are used up."""


class FindingKind(StrEnum):
    """What is wrong with an access."""

    OUT_OF_BOUNDS = "out of bounds"
    UNINITIALISED = "uninitialised"
    RACE = "race"
    MISALIGNED = "misaligned"
    DIVERGENT = "divergent"


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation: the first element it was seen at, and how many accesses of elements had it
    there.

    `block` holds the indices of the block (x first; `()` outside a launch), `thread` is the linear
    index of the thread (None where the statement is executed by a block as a whole). A race has
    also the place of the `other` access, and who made the two as far as that is known: threads,
    blocks, or `iterations` of a parallel loop (the values of its variables). `differs` is false
    where all stores that met were of one value.
    """

    kind: FindingKind
    detail: str
    buffer: str
    index: tuple[int, ...]
    block: tuple[int, ...]
    site: int
    span: Span | None
    count: int
    thread: int | None = None
    other: Span | None = None
    other_thread: int | None = None
    other_block: tuple[int, ...] = ()
    iterations: tuple[tuple[int, ...], ...] = ()
    differs: bool = True

    @property
    def what(self) -> str:
        """What is wrong and who did it, without the lines."""
        return f"'{element(self.buffer, self.index)}'{self._who()}: {self.detail}"

    def _who(self) -> str:
        who = f" in block {index_text(self.block)}" if self.block else ""
        if self.other_block:
            who = f" in blocks {index_text(self.block)} and {index_text(self.other_block)}"
        if self.thread is not None:
            both = f"s {self.thread} and {self.other_thread}"
            who += f", thread{f' {self.thread}' if self.other_thread is None else both}"
        known = [index_text(indices) for indices in self.iterations if indices]
        if known:
            who += f", iteration{'s' if len(known) > 1 else ''} {' and '.join(known)}"
        return who

    def error(self) -> RunError:
        """The finding as an error, with its line, that of the other access, and what to do."""
        kind = {FindingKind.RACE: RaceError, FindingKind.OUT_OF_BOUNDS: OutOfBoundsError}
        notes: tuple[Note, ...] = ()
        if self.other is not None and self.other != self.span:
            notes = (Note("the other access", self.other),)
        hint = remedy(self.detail)
        if hint is None and self.kind is FindingKind.OUT_OF_BOUNDS:
            hint = GUARD
        return kind.get(self.kind, RunError)(self.what, hint, self.span, notes)

    def __str__(self) -> str:
        line = f" ({self.span})" if self.span is not None else ""
        if self.other is not None and self.other != self.span:
            line = f" ({self.span} and {self.other})"
        times = "" if self.count == 1 else f", {self.count} times"
        return f"{self.what}{line}{times}"


@dataclass(frozen=True, slots=True)
class AccessCount:
    """How the warps of a launch went to memory in one statement.

    A statement that a warp executes is a request: `count` is their number, `width` the bytes of one
    thread. Shared memory serves a request in `wavefronts`, and could in `ideal`: summed over its
    phases, the most distinct 4-byte words in one of 32 banks, and the distinct bytes over 128. A
    phase is 32 threads of at most 4 bytes, 16 of 8, 8 of 16, or the 8 rows of a matrix. Global
    memory moves `sectors` of 32 bytes, and could do with `ideal_sectors`.

    `kind` is "load", "store", "atomic", "cp.async", "ldmatrix.x4", "ldmatrix.x4.trans" and so on.
    What engines do by themselves ("TMA load", "TMA store", "wgmma") is counted as if 32 lanes made
    requests of 16 bytes each.
    """

    site: int
    span: Span | None
    buffer: str
    scope: str
    kind: str
    width: int
    count: int
    wavefronts: int = 0
    ideal: int = 0
    sectors: int = 0
    ideal_sectors: int = 0

    @property
    def factor(self) -> float:
        """What is used divided by what would be enough: 1.0 for an access without conflicts or
        waste.
        """
        used, needed = (
            (self.wavefronts, self.ideal)
            if self.scope == "shared"
            else (self.sectors, self.ideal_sectors)
        )
        return used / needed if needed else 1.0

    @property
    def writes(self) -> bool:
        """Whether it writes the buffer; copies between two memories are listed for each."""
        if self.kind in ("cp.async", "TMA load"):
            return self.scope == "shared"
        if self.kind == "TMA store":
            return self.scope == "global"
        return self.kind in ("store", "atomic") or self.kind.startswith("stmatrix")

    @property
    def described(self) -> str:
        """What it does and its factor, such as `load (ldmatrix.x4) 1.00x`."""
        kind = self.kind
        if kind not in ("load", "store", "atomic"):
            name = kind.removesuffix(" load").removesuffix(" store")
            kind = f"{'store' if self.writes else 'load'} ({name})"
        return f"{kind} {self.factor:.2f}x"

    def __str__(self) -> str:
        line = f" ({self.span})" if self.span is not None else ""
        return f"{self.buffer}: {self.described}{line}"


@dataclass(frozen=True, slots=True, repr=False)
class SimReport:
    """The findings of one run, in the order first met, and its counts.

    `executions[site]` is how often statement `site` was executed, each iteration of a parallel loop
    counting one and each thread. Programs that run thread by thread also have `accesses`,
    `instructions` (how many of each class the warps executed) and `barriers`, those of whole
    blocks that were passed. `launched` are the blocks of the launch in which a limit of
    `SimOptions` ended the run, 0 where it was complete; `timed_out` says that it was that of time
    or of statements.
    """

    out_of_bounds: tuple[Finding, ...]
    uninitialised: tuple[Finding, ...]
    races: tuple[Finding, ...]
    masked: tuple[Masked, ...]
    executions: tuple[int, ...]
    blocks: int
    misaligned: tuple[Finding, ...] = ()
    divergent: tuple[Finding, ...] = ()
    accesses: tuple[AccessCount, ...] = ()
    instructions: tuple[tuple[str, int], ...] = ()
    barriers: int = 0
    launched: int = 0
    timed_out: bool = False

    @property
    def extent(self) -> str:
        """How much was simulated: `16 blocks`, or `4 of 16 blocks` of an option's limit."""
        if self.launched:
            return f"{self.blocks} of {self.launched} blocks"
        return f"{self.blocks} block{'s' if self.blocks != 1 else ''}"

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong. Masked accesses are legal."""
        return not self.findings

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that is wrong."""
        return (
            self.out_of_bounds + self.uninitialised + self.races + self.misaligned + self.divergent
        )

    @property
    def worst(self) -> tuple[Finding, ...]:
        """What is wrong, without several stores of one value to an element. Races come first, since
        they explain much else.
        """
        findings = [*self.races, *(each for each in self.findings if each not in self.races)]
        return tuple(each for each in findings if each.differs)

    def error(self) -> RunError | None:
        """The first of `worst` as an error, which names the next few too; None without any."""
        worst = self.worst
        if not worst:
            return None
        error = worst[0].error()
        error.notes += tuple(Note(str(each)) for each in worst[1:_SHOWN])
        if len(worst) > _SHOWN:
            error.notes += (Note(f"{len(worst) - _SHOWN} more: see the report of .simulate(...)"),)
        return error

    def __str__(self) -> str:
        lines = [f"{'ok' if self.ok else 'not ok'}: {self.extent} simulated"]
        for title, group in (
            ("out of bounds", self.out_of_bounds),
            ("uninitialised reads", self.uninitialised),
            ("races", self.races),
            ("misaligned", self.misaligned),
            ("in divergent code", self.divergent),
        ):
            if group:
                lines.append(f"{title}:")
                lines += [f"  {finding}" for finding in group]
        lines += map(str, self.masked)
        return "\n".join(lines)

    __repr__ = __str__  # what a notebook shows of the last line of a cell


def element(buffer: str, index: tuple[int, ...]) -> str:
    """`buffer[i, j]` as text."""
    return f"{buffer}[{', '.join(map(str, index))}]" if index else buffer


def located(
    kind: type[RunError], message: str, span: Span | None, hint: str | None = None
) -> RunError:
    """An error of a run, with the source line of the statement it happened in."""
    return kind(message, hint, span)
