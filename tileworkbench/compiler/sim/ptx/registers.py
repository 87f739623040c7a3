"""``setmaxnreg``: the registers that the warps of a block have (PTX ISA, "setmaxnreg").

PTX does not say with how many a block begins. A kernel that divides them anew is compiled for one
block at a time, so it is as many as all threads can have equally, in units of eight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.sim.ptx.control import arrived, guarded_lanes
from tileworkbench.compiler.sim.ptx.copies import wait_for
from tileworkbench.compiler.sim.ptx.errors import locate
from tileworkbench.compiler.sim.ptx.execute import Control, Executor, Group
from tileworkbench.compiler.sim.ptx.geometry import WARP, Geometry
from tileworkbench.compiler.sim.ptx.module import Instruction
from tileworkbench.compiler.sim.ptx.numeric import Array
from tileworkbench.compiler.sim.ptx.operands import Decoder

_ALL, _UNIT, _LEAST, _MOST = 65536, 8, 24, 256
_GROUP = 4  # warps of a warpgroup


class Registers:
    """Those of a thread of each warp, a row for each block of a batch, what is `free`, and where
    each warp has asked `last`.
    """

    def __init__(self, geometry: Geometry) -> None:
        begin = min(_ALL // max(geometry.threads, 1), _MOST) // _UNIT * _UNIT
        self.held = np.full((len(geometry.blocks), geometry.warps), begin)
        self.last = np.full_like(self.held, -1)
        self.free = np.zeros(len(geometry.blocks), dtype=np.int64)

    def check(self, code: Sequence[Instruction]) -> None:
        """At the end: raise `RunError` where not all warps of a warpgroup have asked alike."""
        for first in range(0, self.last.shape[1], _GROUP):
            group = self.last[:, first : first + _GROUP]
            apart = (group != group[:, :1]).any(axis=1)
            if apart.any() or (group.shape[1] < _GROUP and (group >= 0).any()):
                block = int(np.argmax(apart))
                raise RunError(
                    f"not all warps of a warpgroup, of warps {first} to {first + _GROUP - 1}, "
                    f"execute it: {locate(code[int(group[block].max())])}"
                )


def decode_setmaxnreg(i: Instruction, d: Decoder) -> Control:
    """A warp waits until there are enough."""
    who, increase, place = guarded_lanes(i, d), i.has("inc"), d.module.code.index(i)
    count = int(d.constant(i.operands[0], "u32"))
    if count % _UNIT or not _LEAST <= count <= _MOST:
        raise RunError(
            f"setmaxnreg takes multiples of {_UNIT} from {_LEAST} to {_MOST}, not {count}: "
            f"{locate(i)}"
        )

    def control(executor: Executor, group: Group) -> bool:
        state, file = executor.state, executor.state.division
        asking = who(group, state)
        together = state.by_warp(arrived(state, asking, None)).any(axis=1)
        whole: Array = together.reshape(file.held.shape)
        for block, warp in np.argwhere(whole):
            held = int(file.held[block, warp])
            if held > count if increase else held < count:
                word = "more" if increase else "fewer"
                raise RunError(
                    f"{count} registers are not {word} than the {held} that a thread has: "
                    f"{locate(i)}"
                )
            needed = (count - held) * WARP
            if needed > file.free[block]:
                whole[block, warp] = False
                continue
            file.free[block] -= needed
            file.held[block, warp], file.last[block, warp] = count, place
            state.asynchronous.version += 1  # who waits looks again
        waiting = asking & ~np.repeat(whole.reshape(-1), WARP)

        def reason(lane: int) -> str:
            free = file.free[state.geometry.block_index[lane]]
            return f"for {count} registers each, and others have given back {free}"

        return wait_for(executor, group, waiting, reason)

    return control
