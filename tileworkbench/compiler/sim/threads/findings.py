"""Recording what threads do wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.sim.memory import Index
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.threads.marks import SEVERAL, Clash

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]
NOT_ALIGNED = "the address of this access is not a multiple of its size"
NOT_CONTIGUOUS = "the elements of this vector are not next to each other in memory"


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
        other = int(clash.others[first])
        frame.recorder.found(
            FindingKind.RACE,
            clash.detail,
            name,
            _index_of(index, int(threads[first])),
            frame.block,
            frame.site,
            int(np.count_nonzero(bad)),
            int(threads[first]),
            int(site),
            None if other <= SEVERAL else other,
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
