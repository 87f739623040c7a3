"""IR edited between two passes: read, verified, and compiled from there on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING

from tileworkbench.compiler.compilation import Source
from tileworkbench.compiler.device.host.llvm import NativeError
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    CompileError,
    Span,
    TileError,
    TileValueError,
    VerifyError,
)
from tileworkbench.compiler.driver import compile_program, keep_record, record_of
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_lines
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.lowering import EDITED, Edit, stopped_lowering
from tileworkbench.compiler.record import CompileRecord

if TYPE_CHECKING:
    from tileworkbench.workbench.kernel import Kernel

_FRONT_END = ("0", "front_end")


def edit_ir(kernel: Kernel, text: str, after: str | int, file: str = "<ir>") -> Kernel:
    """The kernel with `text` as its program after the pass `after`: see `Kernel.edit_ir`.

    `file` is what diagnostics know the text by.
    """
    record, options = kernel.compiled.record, kernel.compiled.options
    index = find_pass(record, after)
    before = record.snapshots[index - 1].program if index else record.program
    edited = parse(text, file)
    _check_interface(edited, before, file)
    verify(edited)
    program = replace(with_sites(edited, before), notes=before.notes, uses=before.uses)
    step = sum(snapshot.name != EDITED for snapshot in record.snapshots[:index])
    source = Source(record.source, record.source_file, record.first_line)
    changed = replace(options, edit=Edit(step, program, program.sites))
    try:
        made = compile_program(record.program, record.target, source=source, options=changed)
    except (VerifyError, NativeError) as error:  # mistakes of a step, if it were not edited
        raise _broken_by_edit(error, Span(file, _first_change(edited, before))) from error
    except TileError:
        raise
    except Exception as error:  # a later step counts on what no rule of the verifier says
        raise _not_taken(error, Span(file, _first_change(edited, before))) from error
    return type(kernel)(made)


def _not_taken(error: Exception, span: Span) -> CompileError:
    """What ended the compilation of edited IR that the verifier had let pass."""
    made = CompileError(
        f"{_step_of(error)} cannot take the IR as it was edited: {type(error).__name__}: {error}",
        span,
        hint="this is the first line that was edited; later steps count on more than is verified",
    )
    keep_record(made, record_of(error))
    return made


def _broken_by_edit(error: TileError, span: Span) -> CompileError:
    """What a step made of edited IR, and that the next did not take."""
    made = CompileError(
        error.message,
        error.span or span,
        hint=f"the IR that {_step_of(error)} was given is an edited one: the edit is the likely "
        f"cause, from its line {span.line} on; if the unedited kernel fails too, it is a bug in "
        "tileworkbench",
    )
    keep_record(made, record_of(error))
    return made


def _step_of(error: Exception) -> str:
    """The step that an error ended."""
    stopped = stopped_lowering(error)
    return f"the pass '{stopped.stop.name}'" if stopped else "the code generator"


def _first_change(edited: Program, before: Program) -> int:
    """The line of the text on which the first difference stands."""
    texts, old = ([line.text for line in print_lines(each)] for each in (edited, before))
    kept = _kept_lines(old, texts)
    return next((at for at in range(len(texts)) if at not in kept), len(texts) - 1) + 1


def find_pass(record: CompileRecord, after: str | int) -> int:
    """The number of a pass, from 1; 0 for the front end.

    `after` is a name or that number. Raises `ArgumentError`, too where two have the name.
    """
    names = [snapshot.name for snapshot in record.snapshots]
    word = str(after)
    if word in _FRONT_END:
        return 0
    if word.isdigit() and int(word) <= len(names):
        return int(word)
    if word not in names:
        near = get_close_matches(word, names, 1)
        listed = f"0 for the front end, or {', '.join(dict.fromkeys(names))}"
        hint = f"did you mean '{near[0]}'?" if near else listed
        raise ArgumentError(f"there is no pass '{word}'", hint)
    numbers = [str(number) for number, name in enumerate(names, 1) if name == word]
    if len(numbers) > 1:
        raise ArgumentError(f"'{word}' runs more than once: say which, {' or '.join(numbers)}")
    return int(numbers[0])


def _check_interface(edited: Program, before: Program, file: str) -> None:
    """Raise `TileValueError` where the text is of another stage or has other parameters: callers
    and later passes count on both.
    """
    if edited.stage is not before.stage:
        raise TileValueError(
            f"the stage of the IR here is '{before.stage}', not '{edited.stage}'", Span(file, 2)
        )
    same = (edited.params, edited.symbols, edited.returns, edited.target)
    if same != (before.params, before.symbols, before.returns, before.target):
        raise TileValueError(
            f"the parameters, symbols, outputs and target of '{before.name}' cannot be edited",
            Span(file, 2),
            hint="edit the kernel's own text instead",
        )


def with_sites(edited: Program, before: Program) -> Program:
    """The edited program, whose sites are lines of its text, with the sites of `before` on the
    lines that are still there: views link these to the user's kernel. Others stay in the text.
    """
    printed = print_lines(before)
    texts = [line.text for line in print_lines(edited)]
    kept = _kept_lines([line.text for line in printed], texts)
    sites = [line.site for line in print_lines(edited)]
    moved = {
        site: printed[kept[at]].site
        for at, site in enumerate(sites)
        if at in kept and printed[kept[at]].site
    }
    table = [*before.sites]
    places: dict[int, int] = {}

    def place(stmt: Stmt) -> Stmt:
        site = stmt.site
        if site and site not in places:
            if site in moved:
                places[site] = moved[site]
            else:
                places[site] = len(table)
                table.append(edited.sites[site])
        return replace(stmt, site=places[site]) if site else stmt  # type: ignore[type-var]

    body = Rewriter(rewrite_stmt=place)(edited.body)
    return replace(with_body(edited, body), sites=tuple(table))


def _kept_lines(before: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    """For each line of `after` that stands in `before`, the line there."""
    matcher = SequenceMatcher(None, before, after, autojunk=len(before) > 5000)
    kept: dict[int, int] = {}
    for low, high, size in matcher.get_matching_blocks():
        kept |= zip(range(high, high + size), range(low, low + size), strict=True)
    return kept
