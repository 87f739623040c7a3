"""Runs a batch of blocks: which lanes execute what, and when.

Lanes at the same instruction with the same calls behind them form a group. The group that is
furthest behind runs until it meets another one, with which it merges: on compiled code that is
where branches join again. A group that runs long while others could is put behind them, so that a
loop that waits for other threads ends. Groups wait at barriers, at warp instructions for the other
lanes of their warp, and at barriers in memory for a phase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tileworkbench.compiler.diagnostics import DeadlockError, RunError
from tileworkbench.compiler.sim.ptx.errors import locate
from tileworkbench.compiler.sim.ptx.geometry import WARP
from tileworkbench.compiler.sim.ptx.numeric import Array
from tileworkbench.compiler.sim.ptx.state import State, Step
from tileworkbench.compiler.sim.ptx.warp import pack_lanes

# Instructions that a group executes while another one could run, before it is that one's turn.
_TURN = 2000

BARRIERS = 16


@dataclass(slots=True, eq=False)
class Group:
    """Lanes that are at one instruction. `stack` holds the calls they are in; `waits` says for
    what: "" (nothing), "warp", "barrier" or "memory"."""

    mask: Array
    pc: int
    stack: tuple[int, ...] = ()
    turns: int = 0
    waits: str = ""
    barrier: int = 0
    version: int = 0
    reason: str = ""  # of a wait for memory, in words
    warps: int = field(init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.resize(self.mask)

    def resize(self, mask: Array) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self.warps = int(np.count_nonzero(mask.reshape(-1, WARP).any(axis=1)))


# What a control instruction does with the group that executes it; it sets the group's place, and
# says whether the group may go straight on.
Control = Callable[["Executor", Group], bool]
# What happens to lanes that a barrier instruction lets go: it may have a result.
Release = Callable[["Executor", Array], None]


class Executor:
    """One batch. `steps` are the decoded instructions, `controls` those of them that change who
    runs and `releases` what barriers give, by their place in the code."""

    def __init__(
        self,
        state: State,
        steps: list[Step | None],
        controls: dict[int, Control],
        releases: dict[int, Release],
        limit: int,
    ) -> None:
        self.state = state
        self.steps, self.controls, self.releases = steps, controls, releases
        self.limit = limit
        self.groups: list[Group] = []
        blocks = len(state.geometry.blocks)
        self.arrived = np.zeros((blocks, BARRIERS), dtype=np.int64)
        self.expected = np.zeros((blocks, BARRIERS), dtype=np.int64)
        self.arrived_warps = np.zeros((blocks, BARRIERS, state.geometry.warps), dtype=bool)
        self.votes = np.zeros((blocks, BARRIERS), dtype=np.int64)
        self.live_count = int(np.count_nonzero(state.live))

    def run(self, start: int) -> None:
        """Run every lane from `start` to its exit."""
        self.groups = [Group(self.state.live.copy(), start)]
        with np.errstate(all="ignore"):
            while self.groups:
                self.advance(self.pick())
            self.state.asynchronous.finish_stores()
            self.state.division.check(self.state.code)

    # -- groups

    def pick(self) -> Group:
        """The group to run next: among those that can the one least favoured so far, then the
        deepest call, then the furthest behind."""
        ready = [group for group in self.groups if self.is_ready(group)]
        if not ready:
            raise self.deadlock()
        return min(ready, key=lambda group: (group.turns, -len(group.stack), group.pc))

    def is_ready(self, group: Group) -> bool:
        if group.waits == "memory":
            return group.version != self.state.asynchronous.version
        return not group.waits

    def advance(self, group: Group) -> None:
        """Run a group until it ends, waits, meets another one or has had its turn."""
        state, steps = self.state, self.steps
        counts = state.statistics.warp_instructions
        group.waits = ""
        stops, lowest = self.surroundings(group)
        state.activate(group.mask, group.count == self.live_count)
        turn, pc, warps = 0, group.pc, group.warps
        shadow = state.shadow
        while True:
            step = steps[pc]
            state.pc = pc
            if shadow is not None:
                shadow.pc = pc
            counts[pc] += warps
            state.executed += 1
            turn += 1
            if step is not None:
                step(state)
                pc += 1
                group.pc = pc
            else:
                group.pc = pc
                if not self.controls[pc](self, group):
                    return
                pc, warps = group.pc, group.warps
                stops, lowest = self.surroundings(group)
                state.activate(group.mask, group.count == self.live_count)
                if pc > lowest and pc not in stops:
                    return
            if pc in stops and self.merge(group):
                return
            if turn > _TURN:
                if state.executed > self.limit:
                    raise RunError(
                        f"the kernel did not end within {self.limit} instructions: "
                        f"{locate(state.instruction)}"
                    )
                if lowest >= 0 and len(self.groups) > 1:
                    group.turns += 1
                    return
                turn = 0

    def surroundings(self, group: Group) -> tuple[set[int], int]:
        """Where other groups stand that this one could merge with, and the lowest place of one
        that would run instead."""
        if len(self.groups) == 1:
            return set(), 1 << 60
        stops, lowest = set(), 1 << 60
        for other in self.groups:
            if other is group or other.waits == "barrier":
                continue
            if other.stack == group.stack:
                stops.add(other.pc)
            if other.turns <= group.turns and self.is_ready(other):
                lowest = min(lowest, other.pc)
        return stops, lowest

    def merge(self, group: Group) -> bool:
        """Join the groups at the same place; whether there were any."""
        joined = False
        for other in list(self.groups):
            if (
                other is not group
                and other.waits != "barrier"
                and (other.pc, other.stack) == (group.pc, group.stack)
            ):
                group.resize(group.mask | other.mask)
                group.turns = max(group.turns, other.turns)
                self.groups.remove(other)
                joined = True
        return joined

    def split(self, group: Group, mask: Array, pc: int) -> Group:
        """Take lanes out of a group into one of their own."""
        other = Group(mask, pc, group.stack, group.turns)
        group.resize(group.mask & ~mask)
        self.groups.append(other)
        return other

    def remove(self, group: Group) -> None:
        self.groups.remove(group)

    # -- the end of threads

    def finish(self, lanes: Array) -> None:
        """These lanes have ended: from here on nobody waits for them."""
        self.state.live = self.state.live & ~lanes
        self.live_count = int(np.count_nonzero(self.state.live))
        self.state.asynchronous.version += 1  # who waits for the cluster looks again
        for group in self.groups:
            if group.waits == "warp":
                group.waits = ""
        waiting = {group.barrier for group in self.groups if group.waits == "barrier"}
        for number in waiting:
            self.complete_barrier(number, np.arange(len(self.state.geometry.blocks)))

    # -- barriers of a block

    def arrive(self, number: int, lanes: Array, threads: int, votes: Array) -> None:
        """Count the arrival of lanes at a barrier. `threads` is how many it is for, 0 for all;
        `votes` the predicate of a reduction."""
        by_block = self.state.by_block(lanes)
        blocks = np.flatnonzero(by_block.any(axis=1))
        warps = by_block.reshape(len(by_block), -1, WARP)
        # A warp counts whole, also where some of its threads do not exist any more.
        gone = self.state.by_block(~self.state.live).reshape(warps.shape)
        present = (warps | (gone & warps.any(axis=2, keepdims=True))).sum(axis=(1, 2))
        self.arrived[:, number] += present if threads else by_block.sum(axis=1)
        self.arrived_warps[:, number] |= warps.any(axis=2)
        self.votes[:, number] += self.state.by_block(lanes & votes).sum(axis=1)
        self.expected[blocks, number] = threads
        self.complete_barrier(number, blocks)

    def complete_barrier(self, number: int, blocks: Array) -> None:
        """Let go those who wait at a barrier that all have reached."""
        alive = self.state.by_block(self.state.live).sum(axis=1)
        wanted = np.where(self.expected[:, number], self.expected[:, number], alive)
        here = self.arrived[:, number]
        full = np.zeros(len(alive), dtype=bool)
        full[blocks] = True
        full &= (here >= wanted) & (here > 0)
        if not full.any():
            return
        self.state.statistics.barriers += int(full.sum())
        if self.state.shadow is not None:
            for block in np.flatnonzero(full):
                warps = np.flatnonzero(self.arrived_warps[block, number])
                self.state.shadow.synchronise_block(int(block), warps)
        released = np.repeat(full, self.state.geometry.block_lanes)
        for group in list(self.groups):
            if group.waits == "barrier" and group.barrier == number:
                self._release(group, released)
        self.arrived[full, number] = 0
        self.arrived_warps[full, number] = False
        self.votes[full, number] = 0

    def _release(self, group: Group, released: Array) -> None:
        chosen = group.mask & released
        if not chosen.any():
            return
        finish = self.releases.get(group.pc)
        if finish is not None:
            finish(self, chosen)
        if (chosen == group.mask).all():
            group.waits = ""
            group.pc += 1
            target = group
        else:
            target = self.split(group, chosen, group.pc + 1)
        self.merge(target)

    # -- what went wrong

    def deadlock(self) -> DeadlockError:
        """The error that says who waits for what."""
        lines = []
        for group in sorted(self.groups, key=lambda each: int(np.argmax(each.mask)))[:4]:
            lane = int(np.argmax(group.mask))
            name = self.state.geometry.thread_name(lane)
            others = f" and {group.count - 1} more" if group.count > 1 else ""
            instruction = self.state.code[group.pc]
            reason = ""
            if group.waits == "barrier":
                block = int(self.state.geometry.block_index[lane])
                wanted = int(self.expected[block, group.barrier])
                wanted = wanted or int(self.state.by_block(self.state.live)[block].sum())
                reason = f", which {self.arrived[block, group.barrier]} of {wanted} have reached"
            elif group.waits == "warp":
                bits = pack_lanes(self.state, group.mask)[lane // WARP]
                reason = f", with lanes {int(bits):#010x} of their warp"
            elif group.waits == "memory":
                reason = f", {group.reason}"
            lines.append(f"{name}{others} at {locate(instruction)}{reason}")
        return DeadlockError("every thread waits: " + "; ".join(lines))
