"""How many blocks of a kernel run at once on one multiprocessor, and what holds more of them back.

The numbers of each architecture are those of the CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability"; the rules of allocation those of the CUDA occupancy
calculator: a warp's registers are a multiple of 256, shared memory is a multiple of 128 bytes (256
on sm_75), and from sm_80 on the system keeps 1 KiB of each block's for itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

WARP = 32


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one multiprocessor has: warps and blocks at once, 32-bit registers, bytes of shared
    memory, and the bytes of it that each block takes beside its own.
    """

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int = 1024
    granularity: int = 128
    registers: int = 65536


MULTIPROCESSORS = {
    "sm_75": Multiprocessor(32, 16, 64 * 1024, 0, 256),
    "sm_80": Multiprocessor(64, 32, 164 * 1024),
    "sm_86": Multiprocessor(48, 16, 100 * 1024),
    "sm_89": Multiprocessor(48, 24, 100 * 1024),
    "sm_90": Multiprocessor(64, 32, 228 * 1024),
    "sm_90a": Multiprocessor(64, 32, 228 * 1024),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps that one multiprocessor holds at once.

    `warps_most` is what it could hold. `limits` has the number of blocks that each resource allows
    by itself: threads, blocks, shared memory, registers (where they are known). `limited_by` is the
    scarcest, `advice` what would let one block more in, empty where nothing is missing.
    """

    arch: str
    blocks: int
    warps: int
    warps_most: int
    limits: tuple[tuple[str, int], ...]
    limited_by: str
    advice: str

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
    machine = MULTIPROCESSORS.get(arch)
    if machine is None or threads < 1:
        return None
    warps = -(-threads // WARP)
    limits = {"threads": machine.warps // warps, "blocks": machine.blocks}
    if shared_bytes:
        limits["shared memory"] = machine.shared_bytes // _shared(shared_bytes, machine)
    if registers:
        limits["registers"] = machine.registers // (_registers(registers) * warps)
    limited_by = min(limits, key=lambda name: limits[name])
    blocks = limits[limited_by]
    advice = _advice(limited_by, blocks, machine, warps, registers)
    held = blocks * warps
    if held >= machine.warps:
        advice = ""
    return Occupancy(arch, blocks, held, machine.warps, tuple(limits.items()), limited_by, advice)


def _shared(bytes_: int, machine: Multiprocessor) -> int:
    """The bytes that a block of `bytes_` takes."""
    whole = -(-bytes_ // machine.granularity) * machine.granularity
    return whole + machine.reserved_bytes


def _registers(count: int) -> int:
    """The registers that a warp of threads with `count` each takes."""
    return -(-count * WARP // 256) * 256


def _advice(
    limited_by: str, blocks: int, machine: Multiprocessor, warps: int, registers: int | None
) -> str:
    """What would let one block more in."""
    more = blocks + 1
    if limited_by == "shared memory":
        room = machine.shared_bytes // more // machine.granularity * machine.granularity
        room -= machine.reserved_bytes
        return f"{more} blocks fit with at most {room} bytes of shared memory each"
    if limited_by == "registers":
        room = machine.registers // (more * warps) // 256 * 256 // WARP
        return f"{more} blocks fit with at most {room} registers per thread, now {registers}"
    if limited_by == "blocks":
        return f"blocks of more than {warps * WARP} threads would fill the multiprocessor"
    rest = machine.warps - blocks * warps
    return f"{rest} warps stay empty: blocks of {warps} warps do not divide {machine.warps}"
