"""The barrier of a cluster in two halves: threads arrive and go on, and wait for others later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.threads.barriers import Arrive, Wait
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.order import ClusterPhases

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class PhaseWait:
    """A wait for the phase in which some threads have arrived."""

    phases: ClusterPhases
    ids: Array

    def ready(self) -> bool:
        return int(self.phases.arrived[self.ids].max()) <= self.phases.phase

    def finish(self, frame: ThreadFrame) -> None:
        self.phases.waited[self.ids] = self.phases.arrived[self.ids]
        frame.order.acquire(frame.owned_threads(), self.phases.complete_times)

    def describe(self) -> str:
        late = int((self.phases.arrived == self.phases.phase).sum())
        return f"for {late} threads of the cluster to arrive"


def translate_arrive(relaxed: bool) -> Callable[[ThreadFrame], None]:
    """The closure of `cluster_arrive`."""

    def arrive(frame: ThreadFrame) -> None:
        frame.counters.instruction("cluster barrier", frame.active())
        threads = frame.active_threads()
        ids, phases = frame.order.ids(threads), frame.phases
        if (phases.arrived[ids] > phases.waited[ids]).any():
            raise located(
                RunError,
                "a thread arrives at the barrier of its cluster twice without waiting there",
                frame.recorder.program.span(frame.site),
                "put T.cluster_wait() between the two arrivals",
            )
        phases.arrive(ids, None if relaxed else frame.order.release(threads))

    return arrive


def translate_wait() -> Arrive:
    """The closure of `cluster_wait`."""

    def wait(frame: ThreadFrame) -> Wait:
        ids, phases = frame.order.ids(frame.active_threads()), frame.phases
        if (phases.arrived[ids] == phases.waited[ids]).any():
            raise located(
                RunError,
                "a thread waits at the barrier of its cluster, where it has not arrived",
                frame.recorder.program.span(frame.site),
                "call T.cluster_arrive() before T.cluster_wait()",
            )
        return PhaseWait(phases, ids)

    return wait
