"""How many blocks of a kernel run at once on one multiprocessor, and what limits that number.

The rules of allocation are those of the CUDA occupancy calculator, the numbers those of the
architecture's `Machine`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.machine.machine import Machine
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps that one multiprocessor holds at once.

    `warps_most` is what it could hold. `limits` has the number of blocks that each resource allows
    by itself: threads, blocks, shared memory, registers (where they are known). `limited_by` is the
    scarcest, `advice` what would let one block more in, empty where nothing is missing. `registers`
    are those of a thread, None where nobody has compiled the kernel for the device.
    """

    arch: str
    blocks: int
    warps: int
    warps_most: int
    limits: tuple[tuple[str, int], ...]
    limited_by: str
    advice: str
    registers: int | None = None

    @property
    def fraction(self) -> float:
        """Warps held over warps that could be."""
        return self.warps / self.warps_most

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**asdict(self), "limits": dict(self.limits), "fraction": self.fraction}


def occupancy(
    arch: str, threads: int, shared_bytes: int, registers: int | None = None
) -> Occupancy | None:
    """The occupancy of blocks of `threads` threads that take `shared_bytes` of shared memory and
    `registers` 32-bit registers per thread (None: not known). None for an architecture whose
    numbers are not known here.
    """
    machine = machine_of(arch) if arch in ARCHITECTURES else None
    if machine is None or not machine.warps or threads < 1:
        return None
    warps = -(-threads // machine.lanes)
    limits = {"threads": machine.warps // warps, "blocks": machine.blocks}
    if shared_bytes:
        limits["shared memory"] = machine.shared.bytes_ // machine.shared.taken(shared_bytes)
    if registers:
        limits["registers"] = machine.registers // (machine.warp_registers(registers) * warps)
    limited_by = min(limits, key=lambda name: limits[name])
    blocks = limits[limited_by]
    advice = _advice(limited_by, blocks, machine, warps, registers)
    held = blocks * warps
    if held >= machine.warps:
        advice = ""
    limited = tuple(limits.items())
    return Occupancy(arch, blocks, held, machine.warps, limited, limited_by, advice, registers)


def _advice(
    limited_by: str, blocks: int, machine: Machine, warps: int, registers: int | None
) -> str:
    """What to change so that one more block fits."""
    more = blocks + 1
    if limited_by == "shared memory":
        memory = machine.shared
        room = memory.bytes_ // more // memory.granule * memory.granule - memory.reserved
        return f"{more} blocks fit with at most {room} bytes of shared memory each"
    if limited_by == "registers":
        granule = machine.register_granule
        room = machine.registers // (more * warps) // granule * granule // machine.lanes
        return f"{more} blocks fit with at most {room} registers per thread, now {registers}"
    if limited_by == "blocks":
        return f"blocks of more than {warps * machine.lanes} threads would fill the multiprocessor"
    rest = machine.warps - blocks * warps
    return f"{rest} warps stay empty: blocks of {warps} warps do not divide {machine.warps}"
