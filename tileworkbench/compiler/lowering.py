"""The passes of a target, run one after another: verified, with a snapshot after each."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.diagnostics import (
    Span,
    TileValueError,
    UnsupportedError,
    VerifyError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.machine.machine import TENSOR_MEMORY
from tileworkbench.compiler.passes.optional import in_place_of, lost_without
from tileworkbench.compiler.passes.pipeline import Pass, pass_name, pipeline
from tileworkbench.compiler.record import Snapshot, Stop
from tileworkbench.compiler.target import Target

EDITED = "edited"
"""The name of the snapshot that holds a program which the user has put between two passes."""

_STOPPED = "_stopped_lowering"


@dataclass(frozen=True, slots=True)
class Edit:
    """A program that takes the place of what `after` passes have left (0: of the front end's).

    `sites` are the program's own, which do not take part in its equality: two equal texts in
    different cells are two edits.
    """

    after: int
    program: Program
    sites: tuple[Span | None, ...]


@dataclass(frozen=True, slots=True)
class StoppedLowering:
    """What passes have left until one raised."""

    snapshots: tuple[Snapshot, ...]
    stop: Stop


def lower_program(
    program: Program,
    target: Target,
    sanitize: bool = False,
    *,
    disabled: tuple[str, ...] = (),
    edit: Edit | None = None,
) -> tuple[Snapshot, ...]:
    """Run every pass of `target`, verify after each, and return a snapshot per pass.

    `disabled` names optional passes that are left out. `edit` puts a program between two passes,
    with a snapshot of its own.

    Raises `CompileError` kinds for kernels that cannot be compiled; a `VerifyError` is a bug of
    the compiler and names the pass. `stopped_lowering` gives what was done before. Raises
    `TileValueError` for a name in `disabled` that is no optional pass.
    """
    verify(program)
    check_uses(program, target)
    steps = pipeline(target, sanitize)
    _check_disabled(steps, disabled, target)
    snapshots: list[Snapshot] = []
    current = program
    for number, step in enumerate(steps):
        if edit is not None and edit.after == number:
            current = _put(edit, current, snapshots)
        current = _run(step, current, snapshots, disabled)
    if edit is not None and edit.after == len(steps):
        _put(edit, current, snapshots)
    return tuple(_linked(snapshots, len(program.sites)))


def _linked(snapshots: list[Snapshot], known: int) -> Iterator[Snapshot]:
    """The snapshots, from the edit on with the first `known` sites, which are the kernel's. Errors
    of passes need the places in the edited text; code and views link to the user's kernel.
    """
    edited = False
    for snapshot in snapshots:
        edited = edited or snapshot.name == EDITED
        sites = snapshot.program.sites
        if not edited or len(sites) <= known:
            yield snapshot
            continue
        kept = (*sites[:known], *(None for _ in sites[known:]))
        yield replace(snapshot, program=replace(snapshot.program, sites=kept))


def _put(edit: Edit, before: Program, snapshots: list[Snapshot]) -> Program:
    changed = edit.program != before
    doc = "The program as it was edited."
    snapshots.append(Snapshot(EDITED, doc, edit.program, changed, 0.0))
    return edit.program


def _run(
    step: Pass, current: Program, snapshots: list[Snapshot], disabled: tuple[str, ...]
) -> Program:
    """The program after `step`; its snapshot is added."""
    name, doc, lost = pass_name(step), _first_paragraph(step), lost_without(step)
    off = name in disabled
    taken = in_place_of(step) if off else step
    start = time.perf_counter()
    try:
        after = current if taken is None else taken(current)
        elapsed = (time.perf_counter() - start) * 1e6
        if after is not current:
            _verify_after(after, name)
    except Exception as error:
        stop = Stop(name, doc, getattr(error, "message", str(error)), getattr(error, "span", None))
        setattr(error, _STOPPED, StoppedLowering(tuple(snapshots), stop))
        raise
    snapshots.append(Snapshot(name, doc, after, after is not current, elapsed, lost, off))
    return after


def stopped_lowering(error: BaseException) -> StoppedLowering | None:
    """What passes have left, where `error` was raised by one of them."""
    stopped = getattr(error, _STOPPED, None)
    return stopped if isinstance(stopped, StoppedLowering) else None


def check_uses(program: Program, target: Target) -> None:
    """Raise `UnsupportedError` where the kernel asks for what the target's machine is without."""
    if target.kind == "cpu":
        return
    for construct, site in program.uses:
        if construct in target.machine.without:
            why = "is not there"
            if construct in TENSOR_MEMORY:
                why = "needs tensor memory, and there is no code for it"
            raise UnsupportedError(
                f"{construct} {why} on '{target.arch}'",
                program.span(site),
                hint=target.machine.without[construct],
            )


def step_of(target: Target, name: str, number: int = 0) -> Pass:
    """The pass of `target` with that name, `number` further ones before it. Raises `LookupError`
    where there is none.
    """
    steps = [step for step in pipeline(target, sanitize=True) if pass_name(step) == name]
    if number >= len(steps):
        raise LookupError(f"'{target}' has no pass '{name}' after {number} others of that name")
    return steps[number]


def optional_passes(target: Target) -> list[str]:
    """The names of the passes of `target` that can be switched off."""
    return _optional(pipeline(target))


def passes_of_others(names: Sequence[str], target: Target, others: Sequence[Target]) -> list[str]:
    """Those of `names` that are passes of `others` and not of `target`."""
    own = {pass_name(step) for step in pipeline(target)}
    theirs = {pass_name(step) for other in others for step in pipeline(other)}
    return [name for name in names if name in theirs - own]


def _optional(steps: tuple[Pass, ...]) -> list[str]:
    return list(dict.fromkeys(pass_name(step) for step in steps if lost_without(step)))


def _check_disabled(steps: tuple[Pass, ...], disabled: tuple[str, ...], target: Target) -> None:
    names, free = [pass_name(step) for step in steps], _optional(steps)
    for name in disabled:
        if name not in names:
            near = difflib.get_close_matches(name, free, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"optional are {', '.join(free)}"
            raise TileValueError(f"'{name}' is not a pass of '{target}'", hint=hint)
        if name not in free:
            raise TileValueError(
                f"pass '{name}' cannot be switched off: kernels for '{target}' need it",
                hint=f"optional are {', '.join(free)}",
            )


def _first_paragraph(step: Any) -> str:
    """The first paragraph of a pass's docstring, on one line."""
    return " ".join((step.__doc__ or "").strip().split("\n\n")[0].split())


def _verify_after(program: Program, name: str) -> None:
    try:
        verify(program)
    except VerifyError as error:
        raise VerifyError(
            f"pass '{name}' broke the program: {error.message}",
            error.span,
            hint="this is a bug in tileworkbench; please report it with the kernel",
        ) from None
