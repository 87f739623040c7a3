"""Bytes per memory level, counted (`Kernel.count_traffic`), and what views show of them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import TileError

if TYPE_CHECKING:
    from tileworkbench.bench.counted import CountedTraffic
    from tileworkbench.bench.points import Counted, Point
    from tileworkbench.workbench.kernel import Kernel


COUNTED = (
    *("counted_l1_bytes", "counted_l2_bytes", "counted_l3_bytes", "counted_dram_bytes"),
    *("counted_wavefronts", "counted_ideal", "counted_sectors", "counted_ideal_sectors"),
)
"""What is counted of a line, as plain data has it."""

_BYTES_PER_S = 3e8  # of accesses that the model of the caches follows
_PATIENCE = 4  # times the seconds that a view may take, for a single block


class CountedFacts:
    """The part of a `Kernel` that counts what its memory levels give and take."""

    _counted: CountedTraffic | str | None = None  # a text: why it could not be counted

    def count_traffic(
        self: Any, *args: Any, cold: bool = False, seconds: float = 2.0
    ) -> CountedTraffic:
        """The bytes that each memory level of this machine gives and takes in a call, counted:
        `.levels` (innermost first), `.how` and `.rows()`; `traffic` has what the model expects.

        The kernel's own code is run on copies of these arguments (none: those of `with_inputs`, or
        random ones) with each access told to a model of this machine's caches, for about
        `seconds`; where that is not enough, part of the blocks stand for all, and `.note` says so.
        The call before it has left its data in the caches, unless it is a `cold` one. Of a kernel
        for a GPU the sectors of its simulated threads are counted at L2 and memory, with an L2 that
        is cold. `tileworkbench.bench.counted` and `counted_sectors` beside this module say what is
        left out.

        Raises `UnsupportedError` for code whose accesses cannot be told, and for a GPU whose L2 is
        not published.
        """
        from tileworkbench.bench.counted import count_traffic
        from tileworkbench.workbench.counted_sectors import count_sectors
        from tileworkbench.workbench.debugging import inputs_of

        given = args or inputs_of(self)[0]
        if self.compiled.target.kind == "cpu":
            counted = count_traffic(self, given, cold, seconds)
        else:
            counted = count_sectors(self, given, seconds)
        self._counted = counted
        return counted


def count_for_view(kernel: Kernel, seconds: float, *args: Any) -> None:
    """Count what the last measurement of a kernel did, where that is not known yet."""
    cold = kernel._bench is not None and kernel._bench.cold
    known = kernel._counted
    if isinstance(known, str):
        return
    if known is None or not _fits(known, cold):
        try:
            expected = _seconds_of_a_block(kernel)
            if expected > _PATIENCE * seconds:
                kernel._counted = (
                    f"not counted, as it takes about {expected:.0f} s or more; "
                    "kernel.count_traffic() does it"
                )
                return
            kernel.count_traffic(*args, cold=cold, seconds=seconds)
        except TileError as error:
            kernel._counted = f"not counted: {error.message}"


def _seconds_of_a_block(kernel: Kernel) -> float:
    """How long a block of a CPU takes to be counted, roughly; 0 of a GPU, which stops in time."""
    if kernel.compiled.target.kind != "cpu":
        return 0.0
    blocks = [extent for extent in kernel.grid if isinstance(extent, int)]
    return kernel.traffic.get("L1", 0.0) / _BYTES_PER_S / max(prod(blocks), 1)


def counted_for(kernel: Kernel, point: Point) -> Counted | None:
    """What was counted of the kernel of a point, beside what the model expects; None for nothing.
    Of a call with other caches than the measured one nothing is said.
    """
    from tileworkbench.bench.points import Counted

    counted = kernel._counted
    if counted is None or isinstance(counted, str):
        return None if counted is None else Counted(counted)
    if not point.predicted and not _fits(counted, point.cold):
        return None
    return Counted(counted.note, counted.levels)


def counted_lines(kernel: Kernel) -> dict[int, dict[str, float]]:
    """The numbers of `COUNTED` by line, with 0 for what belongs to none; empty where nothing was
    counted.
    """
    counted = kernel._counted
    if counted is None or isinstance(counted, str):
        return {}
    by_line: dict[int, dict[str, float]] = {}
    for line in (*counted.lines, *(counted.requests.keys() - counted.lines.keys())):
        numbers = dict.fromkeys(COUNTED, 0.0)
        for level in counted.lines.get(line, ()):
            numbers[f"counted_{level.name.lower()}_bytes"] = level.bytes_
        numbers.update(zip(COUNTED[4:], counted.requests.get(line, (0.0,) * 4), strict=True))
        by_line[line] = numbers
    return by_line


def _fits(counted: CountedTraffic, cold: bool) -> bool:
    """Whether it was counted with such caches; a part of the blocks has no call before it, nor has
    what was counted of a GPU.
    """
    return counted.cold == cold or counted.blocks < counted.all_blocks or not counted.threads
