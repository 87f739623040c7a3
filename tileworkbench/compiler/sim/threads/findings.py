"""Recording what threads do wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.sim.memory import Index
from tileworkbench.compiler.sim.problems import PEER_READS, PEERS_WRITE, THREAD_READS, THREADS_WRITE
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.threads.marks import (
    SEVERAL,
    Clash,
)

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]

_BETWEEN_BLOCKS = {THREADS_WRITE: PEERS_WRITE, THREAD_READS: PEER_READS}


def report_threads(
    frame: ThreadFrame,
    kind: FindingKind,
    detail: str,
    name: str,
    index: Index,
    bad: Array,
    other_thread: int | None = None,
) -> None:
    """Record the same violation by each thread of `bad`, if there is one; `other_thread` is in
    conflict with the first of them.
    """
    if kind is FindingKind.MISALIGNED and not frame.options.misaligned:
        return
    if bad.any():
        place = _index_of(index, int(np.argmax(bad)))
        count = int(np.count_nonzero(bad))
        thread = frame.thread_of(bad, frame.lanes)
        frame.recorder.found(
            kind,
            detail,
            name,
            place,
            frame.block,
            frame.site,
            count,
            thread,
            other_thread=other_thread,
        )


def report_stores(
    frame: ThreadFrame, name: str, index: Index, places: Index, threads: Array, bad: Array
) -> None:
    """Record that values which one statement stored, by `threads` to `places`, are lost where `bad`
    holds: another thread's value stayed.
    """
    first = int(np.argmax(bad))
    same = np.ones(bad.shape, np.bool_)
    for position in places:
        same &= position == position[first]
    kept = int(threads[np.flatnonzero(same)[-1]])
    lost = np.zeros(frame.threads, np.bool_)
    lost[threads[bad]] = True
    report_threads(frame, FindingKind.RACE, THREADS_WRITE, name, index, lost, kept)


def report_clash(frame: ThreadFrame, name: str, index: Index, threads: Array, clash: Clash) -> None:
    """Record accesses by `threads` that race with earlier ones, one finding for each of those."""
    for site in np.unique(clash.sites[clash.where]):
        bad = clash.where & (clash.sites == site)
        others = np.where(clash.others > SEVERAL, clash.others, clash.some)
        named = bad & (
            others != frame.order.ids(threads)
        )  # the one that is named may be the thread itself
        first = int(np.argmax(named if named.any() else bad))
        other = int(others[first]) - frame.order.first
        apart = not 0 <= other < frame.threads
        frame.recorder.found(
            FindingKind.RACE,
            _BETWEEN_BLOCKS[clash.detail] if apart else clash.detail,
            name,
            _index_of(index, int(threads[first])),
            frame.block,
            frame.site,
            int(np.count_nonzero(bad)),
            int(threads[first]),
            int(site),
            other if named.any() and not apart else None,
        )


def _index_of(index: Index, thread: int) -> tuple[int, ...]:
    """The (first) element that a thread's access is to."""
    places = []
    for position in index:
        array = np.asarray(position)
        if array.ndim:
            array = array[thread if len(array) > 1 else 0]
        places.append(int(array.reshape(-1)[0]))
    return tuple(places)
