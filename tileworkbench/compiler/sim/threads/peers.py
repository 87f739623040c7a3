"""Shared memory of the other blocks of a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.ir.simt import Peer
from tileworkbench.compiler.sim.control import Execute
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.problems import MAY_HAVE_ENDED
from tileworkbench.compiler.sim.report import FindingKind, located
from tileworkbench.compiler.sim.threads.collective import different_values
from tileworkbench.compiler.sim.threads.frame import ThreadFrame, Visit
from tileworkbench.compiler.sim.threads.strands import agreed


def translate_peer(stmt: Peer, expr: ExpressionTranslator) -> Execute:
    """The closure of `peer`."""
    slot, source = expr.slots.buffer(stmt.buffer), expr.slots.buffer(stmt.source)
    rank, name = expr(stmt.rank), stmt.source.name

    def peer(frame: Any) -> None:
        number = agreed(rank(frame), frame)
        if type(number) is np.ndarray:
            raise different_values(frame, stmt.buffer.name)
        frame.storages[slot] = _owner(frame, int(number), source, name).storages[source]

    return peer


def _owner(frame: ThreadFrame, rank: int, source: int, name: str) -> ThreadFrame:
    """The block of that rank, which has made the memory of slot `source`."""
    span, blocks = frame.recorder.program.span(frame.site), len(frame.cluster)
    if not 0 <= rank < blocks:
        raise located(RunError, f"block {rank} of a cluster of {blocks} does not exist", span)
    owner = frame.cluster[rank]
    if not _is_made(frame, owner, source):
        raise located(
            RunError,
            f"block {rank} of the cluster may not have made '{name}' yet, which block "
            f"{frame.rank} uses",
            span,
            "let the blocks wait for each other first, with T.cluster_sync()",
        )
    if owner.rank != frame.rank:
        visitor = frame.order.ids(frame.active_threads()[:1])
        visit = Visit(name, frame.block, frame.site, frame.order.now, int(visitor[0]))
        owner.visits.append(visit)
        if owner.ended:
            _report(owner, visit)
    return owner


def _is_made(frame: ThreadFrame, owner: ThreadFrame, source: int) -> bool:
    """Whether a barrier told the active threads that the memory is made."""
    if owner.rank == frame.rank:
        return True
    if source not in owner.made:
        return False
    ids = frame.order.ids(frame.active_threads())
    made, maker = (np.full(len(ids), value) for value in owner.made[source])
    return not frame.order.unordered(made, maker, ids).any()


def end(owner: ThreadFrame) -> None:
    """The block of `owner` ends, and with it its shared memory."""
    owner.ended = True
    ids = owner.order.ids(np.arange(owner.threads))
    for visit in owner.visits:
        times, visitors = (np.full(len(ids), value) for value in (visit.time, visit.visitor))
        if owner.order.unordered(times, visitors, ids).all():
            _report(owner, visit)


def _report(owner: ThreadFrame, visit: Visit) -> None:
    if owner.options.races:
        place = (visit.block, visit.site, 1)
        owner.recorder.found(FindingKind.RACE, MAY_HAVE_ENDED, visit.name, (), *place)


def noting_when(slot: int, make: Execute) -> Execute:
    """`make`, which makes the memory of `slot`, and a note of when that was."""

    def noted(frame: Any) -> None:
        make(frame)
        threads = frame.active_threads()
        if len(threads):
            frame.made[slot] = frame.order.now, frame.order.first + int(threads[0])

    return noted
