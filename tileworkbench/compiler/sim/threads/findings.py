"""Recording what threads do wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.sim.memory import Index
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.threads.marks import (
    READ_AND_WRITTEN,
    SEVERAL,
    TWO_WRITERS,
    Clash,
)

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]
NOT_ALIGNED = "the address of this access is not a multiple of its size"
NOT_CONTIGUOUS = "the elements of this vector are not next to each other in memory"

_BETWEEN_BLOCKS = {
    TWO_WRITERS: "two blocks of the cluster write this element, unordered by a barrier",
    READ_AND_WRITTEN: "one block of the cluster reads what another one writes, unordered by a "
    "barrier",
}


def report_threads(
    frame: ThreadFrame, kind: FindingKind, detail: str, name: str, index: Index, bad: Array
) -> None:
    """Record the same violation by each thread of `bad`, if there is one."""
    if kind is FindingKind.MISALIGNED and not frame.options.misaligned:
        return
    if bad.any():
        place = _index_of(index, int(np.argmax(bad)))
        count = int(np.count_nonzero(bad))
        thread = frame.thread_of(bad, frame.lanes)
        frame.recorder.found(kind, detail, name, place, frame.block, frame.site, count, thread)


def report_clash(frame: ThreadFrame, name: str, index: Index, threads: Array, clash: Clash) -> None:
    """Record accesses by `threads` that race with earlier ones, one finding for each of those."""
    for site in np.unique(clash.sites[clash.where]):
        bad = clash.where & (clash.sites == site)
        first = int(np.argmax(bad))
        other = int(clash.others[first]) - frame.order.first
        apart = clash.others[first] > SEVERAL and not 0 <= other < frame.threads
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
            None if apart or clash.others[first] <= SEVERAL else other,
        )


def _index_of(index: Index, thread: int) -> tuple[int, ...]:
    """The (first) element that a thread's access is to."""
    found = []
    for position in index:
        array = np.asarray(position)
        if array.ndim:
            array = array[thread if len(array) > 1 else 0]
        found.append(int(array.reshape(-1)[0]))
    return tuple(found)
