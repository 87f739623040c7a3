"""What helpers need of a machine, looked up in its row."""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.machine.machine import Machine
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of

BFLOAT16 = "rounding to bfloat16"
PAIRS = "rounding to pairs of 16-bit floats"
COPY = "an asynchronous copy"
BARRIER = "a memory barrier"
BYTES = "a memory barrier that counts bytes"
FENCE = "a fence of asynchronous copies"
BOX = "a copy of a box of a tensor"
PRODUCT = "a product of warpgroups (wgmma)"
CLUSTER = "a cluster of blocks"
EARLY = "a launch that begins before the one in front of it has ended"
LOAD, STORE = "a load of matrix fragments (ldmatrix)", "a store of matrix fragments (stmatrix)"

_HAS: dict[str, Callable[[Machine], bool]] = {
    BFLOAT16: lambda machine: "bfloat16" in machine.pairs,
    PAIRS: lambda machine: bool(machine.pairs),
    COPY: lambda machine: machine.thread_copies is not None,
    BARRIER: lambda machine: machine.memory_barriers,
    BYTES: lambda machine: machine.counts_bytes,
    FENCE: lambda machine: machine.box_copies("shared") is not None,
    BOX: lambda machine: machine.box_copies("shared") is not None,
    PRODUCT: lambda machine: bool(machine.started_products),
    CLUSTER: lambda machine: machine.cluster_blocks > 0,
    EARLY: lambda machine: machine.early_launch,
    LOAD: lambda machine: machine.move(loads=True) is not None,
    STORE: lambda machine: machine.move(loads=False) is not None,
}


def require(feature: str, machine: Machine) -> None:
    """Raise `UnsupportedError` where `machine` does not have `feature`."""
    has = _HAS[feature]
    if not has(machine):
        first = next(arch for arch in ARCHITECTURES if has(machine_of(arch)))
        raise UnsupportedError(
            f"{feature} needs {first}, the target is {machine.name}",
            hint=f"compile for 'cuda:{first}' or later",
        )
