"""Every tile gets a layout: packed panels where a gemm profits from them, row-major order
elsewhere.

A gemm operand that is only filled by whole-tile copies and only read by gemms in one role is kept
as the micro-kernel reads it: B in panels as wide as a register block, 16-bit floats already
widened. All else is row-major.

Before::

    B_shared = T.alloc_shared((32, 128), "float16")

After::

    B_shared = T.alloc_shared((32, 128), "float32", layout=Layout(
        (32, 128), lambda i, j: (2048*(j//64) + 64*i + j%64,)))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.decisions import LayoutDecision, Verdict
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import replace_buffers, statements
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Stmt, Store
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.shared.names import operator_name
from tileworkbench.compiler.lower.vectors.context import Context, Vote
from tileworkbench.compiler.lower.vectors.table import infer_layout
from tileworkbench.compiler.target import Target

_TILES = ("shared", "local.fragment")


@dataclass(frozen=True, slots=True)
class InferLayouts:
    """Choose the layout of every tile; the reasons go to the program's notes, and what operators
    said to its decisions.
    """

    target: Target

    def __call__(self, program: Program) -> Program:
        context = Context.of(program, self.target)
        votes: dict[Buffer, list[Vote]] = {}
        said: list[tuple[Stmt, Vote]] = []
        tiles: list[Buffer] = []
        inside: set[int] = set()
        for stmt in statements(program.body):
            if id(stmt) in inside and isinstance(stmt, Store):
                continue  # its nest has said what it does
            if isinstance(stmt, Parallel):
                inside.update(map(id, statements(stmt.body)))
            if isinstance(stmt, Alias | Alloc) and stmt.buffer.scope in _TILES:
                tiles.append(stmt.buffer)
            for vote in infer_layout(stmt, context):
                votes.setdefault(vote.buffer, []).append(vote)
                said.append((stmt, vote))
        changes: dict[Buffer, Buffer] = {}
        notes: list[str] = []
        for buffer in tiles:
            changed, reason = _choose(buffer, votes.get(buffer, []))
            if changed is not None:
                changes[buffer] = changed
            notes.append(f"{buffer.name}: {reason}")
        planned = replace_buffers(program, changes)
        return replace(
            planned,
            stage=Stage.PLANNED,
            target=str(self.target),  # from here on the program is for one target
            notes=(*program.notes, *notes),
            decisions=(*program.decisions, *_decisions(said, tiles, changes)),
        )


def _decisions(
    said: list[tuple[Stmt, Vote]], tiles: list[Buffer], changes: dict[Buffer, Buffer]
) -> Iterator[LayoutDecision]:
    """What each operator said, in program order, and what became of it."""
    settled: set[Buffer] = set()
    for stmt, vote in said:
        changed = changes.get(vote.buffer)
        if changed is None or changed.layout is None:
            continue  # of symbolic shape
        wanted: Layout | Fragment = vote.layout or Layout.row_major(changed.layout.shape)
        if vote.layout is None and not vote.binding:
            verdict, wanted = Verdict.YIELDED, changed.layout  # it takes any
        elif wanted != changed.layout:
            verdict = Verdict.REJECTED
        else:
            verdict = Verdict.AGREED if vote.buffer in settled else Verdict.SET
            settled.add(vote.buffer)
        name, wish = operator_name(stmt), str(wanted)
        yield LayoutDecision(verdict, name, stmt.site, vote.buffer.name, wish, vote.reason)
    for buffer in tiles:
        changed = changes.get(buffer)
        if buffer not in settled and changed is not None:
            wishes = any(vote.buffer is buffer and vote.layout for _, vote in said)
            why = "operators want different ones" if wishes else "no operator asks for another one"
            text = str(changed.layout)
            yield LayoutDecision(Verdict.SET, "", 0, buffer.name, text, f"is row-major: {why}")


def _choose(buffer: Buffer, votes: list[Vote]) -> tuple[Buffer | None, str]:
    """The buffer with its layout, and why; None for a buffer of symbolic shape."""
    shape = const_shape(buffer)
    if shape is None or not shape:
        return None, "row-major, its shape is not known here"
    wishes = [vote for vote in votes if vote.layout is not None]
    objections = [vote for vote in votes if vote.layout is None and vote.binding]
    if wishes and not objections and all(vote.layout == wishes[0].layout for vote in wishes):
        wish = wishes[0]
        return replace(buffer, layout=wish.layout, dtype=wish.dtype or buffer.dtype), wish.reason
    if wishes and objections:
        reason = f"row-major: it {objections[0].reason}"
    elif wishes:
        reason = "row-major: gemms use it in different roles"
    else:
        reason = f"row-major: it {votes[0].reason}" if votes else "row-major: nothing uses it"
    return replace(buffer, layout=Layout.row_major(shape)), reason
