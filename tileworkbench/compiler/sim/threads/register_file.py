"""How many registers the threads of a block have: setmaxnreg (PTX ISA, "setmaxnreg").

A block begins with equal parts for all its threads, in units of eight: with as many as there are,
since a kernel that divides them anew is compiled for one block at a time. A warpgroup that asks for
more waits until others of its block have given enough back.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.machine.instructions import WARPGROUP_WARPS
from tileworkbench.compiler.machine.tables import machine_of
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.threads.barriers import Arrive, Wait

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

_MACHINE = "sm_90a"  # whose rules hold for programs that are for no GPU


@dataclass(slots=True)
class RegisterFile:
    """The registers of one block: those that are free, and those `held` by each thread of a
    warpgroup that has asked for a number of its own.
    """

    held: dict[int, int] = field(default_factory=dict)
    free: int = 0


@dataclass(slots=True)
class RegisterWait:
    """For `needed` registers, so that threads of warpgroups have `count` each."""

    file: RegisterFile
    groups: list[int]
    count: int
    needed: int

    def ready(self) -> bool:
        return self.needed <= self.file.free

    def finish(self, frame: ThreadFrame) -> None:
        self.file.free -= self.needed
        self.file.held.update(dict.fromkeys(self.groups, self.count))

    def describe(self) -> str:
        return (
            f"for {self.needed} more registers, to have {self.count} each, of which others have "
            f"given back {self.file.free}"
        )


def translate_set_registers(stmt: simt.SetRegisters) -> Arrive:
    """The closure of setmaxnreg."""

    def set_registers(frame: ThreadFrame) -> Wait:
        groups, file = whole_groups(frame, "setmaxnreg").tolist(), frame.registers
        count, size = stmt.count, frame.warp * WARPGROUP_WARPS
        machine = frame.machine or machine_of(_MACHINE)
        shares = machine.register_shares
        assert shares is not None, f"setmaxnreg in a program for {machine.name}"
        begin = shares.begin(machine.registers, frame.threads)
        before = [file.held.get(group, begin) for group in groups]
        wrong = [each for each in before if (each > count if stmt.increase else each < count)]
        unit, least, most = shares.unit, shares.least, shares.most
        if wrong or count % unit or not least <= count <= most:
            word = "more" if stmt.increase else "fewer"
            detail = f"takes multiples of {unit} from {least} to {most}, not {count}"
            if wrong:
                detail = f"asks for {count} registers, not {word} than the {wrong[0]} there are"
            detail = f"'setmaxnreg' {detail}"
            raise located(RunError, detail, frame.recorder.program.span(frame.site))
        needed = sum(count - each for each in before) * size
        return RegisterWait(file, groups, count, needed)

    return set_registers


def whole_groups(frame: ThreadFrame, what: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The warpgroups that take part. Raises `RunError` unless each does as a whole."""
    active, size = frame.active(), frame.warp * WARPGROUP_WARPS
    counts = np.add.reduceat(active, range(0, len(active), size), dtype=np.int64)
    wrong = (counts != 0) & (counts != size)
    if not wrong.any():
        return np.flatnonzero(counts)
    group = int(np.argmax(wrong))
    detail = (
        f"by {counts[group]} of the {size} threads of warpgroup {group}, which begins at "
        f"thread {group * size}"
    )
    where = f" in block ({', '.join(map(str, frame.block))})"
    span = frame.recorder.program.span(frame.site)
    raise located(RunError, f"'{what}' is executed {detail}{where}", span)
