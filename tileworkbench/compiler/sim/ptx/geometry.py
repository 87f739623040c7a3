"""Where each lane of a batch of blocks is.

All threads of all blocks of a batch are the lanes of numpy vectors: lane = block * lanes per block
+ thread, where a block's lanes are its threads rounded up to whole warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tileworkbench.compiler.sim.ptx.numeric import Array

WARP = 32
Triple = tuple[int, int, int]


class Geometry:
    """Where each lane of a batch is: its thread, warp and block.

    `blocks` holds the linear numbers of the batch's blocks in the grid. Those of a `cluster` follow
    each other, by rank.
    """

    def __init__(
        self, grid: Triple, block: Triple, blocks: Sequence[int], cluster: Triple = (1, 1, 1)
    ) -> None:
        self.grid, self.block, self.blocks, self.cluster = grid, block, blocks, cluster
        self.cluster_blocks = cluster[0] * cluster[1] * cluster[2]
        self.threads = block[0] * block[1] * block[2]
        self.warps = -(-self.threads // WARP)
        self.block_lanes = self.warps * WARP
        self.lanes = self.block_lanes * len(blocks)
        number = np.arange(self.lanes)
        self.block_index = number // self.block_lanes  # within the batch
        self.thread = number % self.block_lanes
        self.warp = self.thread // WARP
        self.cluster_index = self.block_index // self.cluster_blocks  # within the batch
        self.rank = self.block_index % self.cluster_blocks
        self.lane_in_warp = number % WARP
        self.exists = self.thread < self.threads

    def thread_name(self, lane: int) -> str:
        """``thread (3, 0, 0) of block (1, 0, 0)``."""
        thread = _unflatten(int(self.thread[lane]), self.block)
        block = _unflatten(self.blocks[int(self.block_index[lane])], self.grid)
        return f"thread {thread} of block {block}"

    @cached_property
    def special(self) -> dict[str, Array]:
        """The special registers that never change, one vector each."""
        registers: dict[str, Array] = {}
        block_number = np.array(self.blocks)[self.block_index]
        for name, number, shape in (
            ("tid", self.thread, self.block),
            ("ctaid", block_number, self.grid),
        ):
            x, y, _ = shape
            parts = (number % x, number // x % y, number // (x * y))
            for axis, part, size in zip("xyz", parts, shape, strict=True):
                registers[f"%{name}.{axis}"] = part.astype(np.uint32)
                registers[f"%n{name}.{axis}"] = self._full(size)
        lane = self.lane_in_warp.astype(np.uint32)
        bit = np.uint32(1) << lane
        below = bit - np.uint32(1)
        registers["%laneid"], registers["%warpid"] = lane, self.warp.astype(np.uint32)
        registers["%nwarpid"] = self._full(self.warps)
        registers["%lanemask_eq"], registers["%lanemask_lt"] = bit, below
        registers["%lanemask_le"], registers["%lanemask_gt"] = below | bit, ~(below | bit)
        registers["%lanemask_ge"] = ~below
        for axis, size in zip("xyz", self.cluster, strict=True):
            place, count = registers[f"%ctaid.{axis}"], np.uint32(size)
            registers[f"%cluster_ctaid.{axis}"] = place % count
            registers[f"%cluster_nctaid.{axis}"] = self._full(size)
            registers[f"%clusterid.{axis}"] = place // count
            registers[f"%nclusterid.{axis}"] = registers[f"%nctaid.{axis}"] // count
        registers["%cluster_ctarank"] = self.rank.astype(np.uint32)
        registers["%smid"] = registers["%gridid"] = self._full(0)
        registers["%cluster_nctarank"] = self._full(self.cluster_blocks)
        registers["%nsmid"] = self._full(1)
        explicit = self.cluster_blocks > 1
        registers["%is_explicit_cluster"] = np.full(self.lanes, explicit, dtype=bool)
        return registers

    def _full(self, value: int) -> Array:
        return np.full(self.lanes, value, dtype=np.uint32)


def _unflatten(number: int, shape: Triple) -> Triple:
    x, y, _ = shape
    return number % x, number // x % y, number // (x * y)
