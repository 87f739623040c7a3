"""What a sweep says of one kernel besides its time."""

from __future__ import annotations

from math import nan

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.workbench.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Facts:
    """As plain data: see `SweepPoint`."""

    predicted_us: float = nan
    limit: str = ""
    shared_bytes: int = 0
    occupancy: float = nan
    conflicts: int = 0


def facts_of(kernel: Kernel) -> Facts:
    """Predict and count; nothing runs but what the model still has to measure of a CPU."""
    occupancy, causes = kernel.occupancy, kernel.causes
    shared = [a for a in kernel.accesses if isinstance(a, AccessCount) and a.scope == "shared"]
    return Facts(
        nan if causes is None else causes.total_us,
        "" if causes is None else next(iter(causes.by_cause()), ""),
        kernel.stats.shared_bytes,
        nan if occupancy is None else occupancy.fraction,
        sum(access.wavefronts - access.ideal for access in shared),
    )
