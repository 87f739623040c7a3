"""Every architecture by its name."""

from __future__ import annotations

from functools import cache

from tileworkbench.compiler.machine import amd, nvidia
from tileworkbench.compiler.machine.machine import Machine

_MACHINES = {**nvidia.MACHINES, **amd.MACHINES}
ARCHITECTURES = tuple(_MACHINES)


@cache
def machine_of(arch: str) -> Machine:
    """The architecture `arch`, one of ARCHITECTURES; made once."""
    return _MACHINES[arch]()
