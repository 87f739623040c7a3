"""What a batch of blocks is while it runs: registers, the active lanes, memory, detectors.

A register is one vector over all lanes and is replaced, never changed in place, so that copying one
is free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tileworkbench.compiler.sim.ptx.geometry import WARP, Geometry
from tileworkbench.compiler.sim.ptx.memory import Memory
from tileworkbench.compiler.sim.ptx.module import Instruction
from tileworkbench.compiler.sim.ptx.numeric import UNSIGNED, Array
from tileworkbench.compiler.sim.ptx.shadow import Shadow
from tileworkbench.compiler.sim.ptx.statistics import Statistics
from tileworkbench.compiler.sim.ptx.tensormap import TensorMap

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.ptx.asynchronous import Asynchronous
    from tileworkbench.compiler.sim.ptx.clusters import ClusterBarriers
    from tileworkbench.compiler.sim.ptx.registers import Registers

# A decoded instruction: acts on the state's active lanes.
Step = Callable[["State"], None]


class State:
    """The registers and the active lanes of a batch; every step reads and changes one of these."""

    def __init__(
        self,
        geometry: Geometry,
        register_bits: tuple[int, ...],
        code: tuple[Instruction, ...],
        memory: Memory,
        statistics: Statistics,
        detects: bool,
    ) -> None:
        self.geometry = geometry
        self.lanes = geometry.lanes
        self.code = code
        self.memory = memory
        self.statistics = statistics
        self.shadow = Shadow(geometry, memory.shared_stride, code) if detects else None
        # Nothing has a value before it is written: all bits set reads as NaN.
        poison = {
            bits: np.full(self.lanes, -1).astype(UNSIGNED[bits]) for bits in set(register_bits)
        }
        self.registers: list[Array] = [poison[bits] for bits in register_bits]
        self.asynchronous: Asynchronous  # set by whoever makes the state
        self.clusters: ClusterBarriers  # likewise
        self.division: Registers  # likewise
        self.carry = np.zeros(self.lanes, dtype=np.uint32)
        self.live = geometry.exists.copy()
        self.pc = 0
        self.printed: list[str] = []
        self.tensor_maps: list[tuple[TensorMap, int]] = []  # with the address of the tensor
        self.executed = 0  # instructions of this batch so far: what the clocks show
        self._mask = self.live
        self._index: Array | None = None
        self.full = True

    @property
    def mask(self) -> Array:
        """The active lanes, as booleans over all lanes."""
        return self._mask

    @property
    def index(self) -> Array:
        """The numbers of the active lanes."""
        if self._index is None:
            self._index = np.flatnonzero(self._mask)
        return self._index

    def activate(self, mask: Array, full: bool) -> None:
        """Let the following steps act on these lanes; `full` says that they are all the live."""
        self._mask, self._index, self.full = mask, None, full

    @property
    def instruction(self) -> Instruction:
        return self.code[self.pc]

    def put(self, slot: int, value: Array) -> None:
        """Set a register in the active lanes from a vector over all lanes, or a scalar."""
        if value.ndim == 0:
            value = np.full(self.lanes, value)
        if not self.full:
            value = np.where(self._mask, value, self.registers[slot])
        self.registers[slot] = value

    def scatter(self, slot: int, lanes: Array, values: Array) -> None:
        """Set a register in some lanes from a vector over just these."""
        copy = self.registers[slot].copy()
        copy[lanes] = values
        self.registers[slot] = copy

    def by_warp(self, vector: Array) -> Array:
        """A vector over all lanes with one row a warp."""
        return vector.reshape(-1, WARP)

    def by_block(self, vector: Array) -> Array:
        """A vector over all lanes with one row a block."""
        return vector.reshape(-1, self.geometry.block_lanes)

    def read_special(self, name: str) -> Array:
        """The value of a special register; the clocks count executed instructions."""
        fixed = self.geometry.special.get(name)
        if fixed is not None:
            return fixed
        if name in ("%clock64", "%globaltimer"):
            return np.full(self.lanes, self.executed, dtype=np.uint64)
        if name in ("%dynamic_smem_size", "%total_smem_size"):
            size = self.memory.dynamic_bytes if "dynamic" in name else self.memory.shared_bytes
            return np.full(self.lanes, size, dtype=np.uint32)
        clock = self.executed >> (32 if name.endswith("hi") else 0)
        return np.full(self.lanes, clock & 0xFFFFFFFF, dtype=np.uint32)
