"""What a launch did, counted: instructions, and the traffic of every memory access.

Shared memory has 32 banks of 4 bytes. A warp's access is served in phases: one of 32 lanes for up
to 4 bytes a lane, two of 16 lanes for 8 bytes, four of 8 lanes for 16 bytes, and one of 8 rows per
matrix for ldmatrix and stmatrix. A phase takes as many wavefronts as the busiest bank has distinct
words. Global memory moves in sectors of 32 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tileworkbench.compiler.sim.ptx.numeric import Array

BANKS = 32
SECTOR_BYTES = 32


@dataclass(slots=True)
class Traffic:
    """One memory instruction: how many warps executed it and what that cost.

    For shared memory `units` are wavefronts, for global memory sectors; `ideal` is the least that
    could have moved as many bytes.
    """

    space: str
    requests: int = 0
    units: int = 0
    ideal: int = 0

    @property
    def ratio(self) -> float:
        """1.0 is perfect; a shared access of 2.0 takes twice the wavefronts it needs."""
        return self.units / self.ideal if self.ideal else 1.0


@dataclass(slots=True)
class Statistics:
    """Counters of one launch, by the place of the instruction in the module's
    code, traffic also by the space: a copy has both."""

    warp_instructions: list[int]
    traffic: dict[tuple[int, str], Traffic] = field(default_factory=dict)
    divergent_branches: int = 0
    barriers: int = 0  # completed ones, summed over blocks

    def record_shared(self, pc: int, offsets: Array, warps: Array, lanes: Array, size: int) -> None:
        """Count an access of `size` bytes per lane at byte `offsets` of a block's shared memory;
        `warps` and `lanes` (0 to 31) say who accesses."""
        per_phase = {8: 16, 16: 8}.get(size, 32) if size <= 16 else 8
        phases = warps.astype(np.int64) * 4 + lanes // per_phase
        self._add_shared(pc, offsets, phases, warps, size)

    def record_rows(self, pc: int, offsets: Array, warps: Array, lanes: Array) -> None:
        """Count a matrix access of 16-byte rows, eight of them a phase."""
        self._add_shared(pc, offsets, warps.astype(np.int64) * 4 + lanes // 8, warps, 16)

    def _add_shared(self, pc: int, offsets: Array, phases: Array, warps: Array, size: int) -> None:
        words = offsets.astype(np.int64) >> 2
        if size > 4:
            words = (words[:, None] + np.arange(size // 4)).ravel()
            keys = np.repeat(phases, size // 4)
        else:
            keys = phases
        distinct = np.unique(keys << 32 | words)
        banks = np.bincount((distinct >> 32) * BANKS + (distinct & (BANKS - 1)))
        padded = np.pad(banks, (0, -len(banks) % BANKS)).reshape(-1, BANKS)
        counts = np.bincount(warps)
        traffic = self.traffic.setdefault((pc, "shared"), Traffic("shared"))
        traffic.requests += int(np.count_nonzero(counts))
        traffic.units += int(padded.max(axis=1).sum())
        traffic.ideal += int((-(-counts * size // (4 * BANKS))).sum())

    def record_global(self, pc: int, addresses: Array, warps: Array, size: int) -> None:
        """Count an access of `size` bytes per lane at these addresses."""
        sectors = addresses.astype(np.int64) // SECTOR_BYTES
        keys = warps.astype(np.int64) << 48
        traffic = self.traffic.setdefault((pc, "global"), Traffic("global"))
        counts = np.bincount(warps)
        traffic.requests += int(np.count_nonzero(counts))
        traffic.units += len(np.unique(keys | (sectors & ((1 << 48) - 1))))
        traffic.ideal += int((-(-counts * size // SECTOR_BYTES)).sum())
