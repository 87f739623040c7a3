"""Instructions that decide who runs: branches, calls, exits, barriers and waits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.diagnostics import DeviceAssertError, RunError
from tileworkbench.compiler.sim.ptx.errors import locate, unsupported
from tileworkbench.compiler.sim.ptx.execute import BARRIERS, Control, Executor, Group, Release
from tileworkbench.compiler.sim.ptx.geometry import WARP
from tileworkbench.compiler.sim.ptx.loads import over_lanes
from tileworkbench.compiler.sim.ptx.module import (
    Function,
    Instruction,
    Negated,
    Operand,
    Symbol,
    Variable,
    Vector,
)
from tileworkbench.compiler.sim.ptx.numeric import Array
from tileworkbench.compiler.sim.ptx.operands import Decoder, Reader
from tileworkbench.compiler.sim.ptx.state import State, Step
from tileworkbench.compiler.sim.ptx.warp import pack_lanes

Who = Callable[[Group, State], Array]


def guarded_lanes(i: Instruction, d: Decoder) -> Who:
    """The lanes of a group whose guard lets them execute the instruction."""
    if i.guard is None:
        return lambda group, state: group.mask
    guard = d.read(Negated(i.guard) if i.guard_negated else i.guard, "pred")
    return lambda group, state: group.mask & guard(state)


def decode_bra(i: Instruction, d: Decoder) -> Control:
    who = guarded_lanes(i, d)
    target = _label(i, d, i.operands[0])

    def control(executor: Executor, group: Group) -> bool:
        taken = who(group, executor.state)
        count = int(np.count_nonzero(taken))
        if count == group.count:
            group.pc = target
        elif count == 0:
            group.pc += 1
        else:
            executor.state.statistics.divergent_branches += 1
            other = executor.split(group, taken, target)
            group.pc += 1
            executor.merge(other)
            return False
        return True

    return control


def _label(i: Instruction, d: Decoder, operand: Operand) -> int:
    if not isinstance(operand, Symbol) or operand.name not in d.module.labels:
        raise unsupported(i, "the target is no label")
    return d.module.labels[operand.name]


def decode_brx(i: Instruction, d: Decoder) -> Control:
    """``brx.idx``: a jump to one of a list of labels."""
    who, index = guarded_lanes(i, d), d.read(i.operands[0], "u32")
    table = i.operands[1]
    if not isinstance(table, Symbol) or table.name not in d.module.tables:
        raise unsupported(i, "the list is no '.branchtargets'")
    targets = [d.module.labels[name] for name in d.module.tables[table.name]]

    def control(executor: Executor, group: Group) -> bool:
        taken = who(group, executor.state)
        chosen = over_lanes(executor.state, index(executor.state))
        for number in np.unique(chosen[taken]):
            if number >= len(targets):
                raise RunError(f"entry {number} of {len(targets)} targets: {locate(i)}")
            lanes = taken & (chosen == number)
            if np.count_nonzero(lanes) == group.count:
                group.pc = targets[number]
                return True
            executor.merge(executor.split(group, lanes, targets[number]))
        group.pc += 1
        return False

    return control


def decode_exit(i: Instruction, d: Decoder) -> Control:
    who = guarded_lanes(i, d)

    def control(executor: Executor, group: Group) -> bool:
        leaving = who(group, executor.state)
        if np.count_nonzero(leaving) == group.count:
            executor.remove(group)
        else:
            group.resize(group.mask & ~leaving)
            group.pc += 1
        executor.finish(leaving)
        return False

    return control


class Call:
    """A call of a function of the module: what it copies there and back."""

    def __init__(self, i: Instruction, d: Decoder, function: Function) -> None:
        if function.start <= d.module.code.index(i) < function.end:
            raise unsupported(i, "a recursive call")
        results, _, parameters = i.operands
        self.start = function.start
        self._into = _pair_places(i, d, parameters, function.parameters)
        returned = _pair_places(i, d, results, function.results)
        self._out_of = [(theirs, ours, size) for ours, theirs, size in returned]

    def copy_parameters(self, state: State) -> None:
        _copy_local(state, self._into)

    def copy_results(self, state: State) -> None:
        _copy_local(state, self._out_of)


def _pair_places(
    i: Instruction, d: Decoder, operands: Operand, variables: tuple[Variable, ...]
) -> list[tuple[int, int, int]]:
    items = operands.items if isinstance(operands, Vector) else ()
    pairs = []
    for item, variable in zip(items, variables, strict=True):
        if not isinstance(item, Symbol):
            raise unsupported(i, "an argument that is no parameter variable")
        pairs.append((d.address_of(item), d.address_of(Symbol(variable.name)), variable.size))
    return pairs


def _copy_local(state: State, moves: list[tuple[int, int, int]]) -> None:
    rows = state.memory.local.reshape(-1, state.memory.local_stride)
    lanes = state.index
    for source, target, size in moves:
        rows[lanes, target : target + size] = rows[lanes, source : source + size]


def decode_ret(i: Instruction, d: Decoder, calls: dict[int, Call]) -> Control:
    """Return to the caller; the end of the thread in an entry."""
    who, end = guarded_lanes(i, d), decode_exit(i, d)

    def control(executor: Executor, group: Group) -> bool:
        if not group.stack:
            return end(executor, group)
        leaving = who(group, executor.state)
        if not leaving.any():
            group.pc += 1
            return True
        *outer, site = group.stack
        executor.state.activate(leaving, False)
        calls[site].copy_results(executor.state)
        if np.count_nonzero(leaving) == group.count:
            group.pc, group.stack = site + 1, tuple(outer)
            executor.merge(group)
            return True
        other = executor.split(group, leaving, site + 1)
        other.stack = tuple(outer)
        group.pc += 1
        executor.merge(other)
        return False

    return control


def decode_call(i: Instruction, d: Decoder, call: Call) -> Control:
    who = guarded_lanes(i, d)

    def control(executor: Executor, group: Group) -> bool:
        calling = who(group, executor.state)
        site = group.pc
        if not calling.any():
            group.pc += 1
            return True
        executor.state.activate(calling, False)
        call.copy_parameters(executor.state)
        if np.count_nonzero(calling) != group.count:
            other = executor.split(group, group.mask & ~calling, site + 1)
            executor.merge(other)
        group.stack = (*group.stack, site)
        group.pc = call.start
        return True

    return control


def decode_trap(i: Instruction, d: Decoder) -> Control:
    who = guarded_lanes(i, d)

    def control(executor: Executor, group: Group) -> bool:
        lanes = who(group, executor.state)
        if lanes.any():
            name = executor.state.geometry.thread_name(int(np.argmax(lanes)))
            raise DeviceAssertError(f"{name} stops the kernel: {locate(i)}")
        group.pc += 1
        return True

    return control


# -- instructions of whole warps


def decode_warp(i: Instruction, d: Decoder, step: Step, member: Operand | None) -> Control:
    """Execute `step` as soon as all lanes of a warp that take part are here: those that the operand
    `member` names, without one all there are."""
    who = guarded_lanes(i, d)
    mask: Reader | None = d.read(member, "b32") if member is not None else None

    def control(executor: Executor, group: Group) -> bool:
        state = executor.state
        active = who(group, state)
        ready = active
        if i.guard is not None or group.count != executor.live_count:
            ready = arrived(state, active, mask)
        if not active.any():
            group.pc += 1
            return True
        if not ready.any():
            rest = group.mask & ~active
            if rest.any():
                executor.merge(executor.split(group, rest, group.pc + 1))
            group.waits = "warp"
            return False
        state.activate(ready, np.count_nonzero(ready) == executor.live_count)
        step(state)
        waiting = active & ~ready
        if waiting.any():
            executor.split(group, waiting, group.pc).waits = "warp"
        group.pc += 1
        return True

    return control


def arrived(state: State, active: Array, mask: Reader | None) -> Array:
    """The active lanes all of whose partners are active too."""
    here = np.repeat(pack_lanes(state, active), WARP)
    needed = np.repeat(pack_lanes(state, state.live), WARP)
    if mask is not None:
        needed = needed & mask(state)
    return np.asarray(active & ((needed & ~here) == 0))


def warp_barrier(i: Instruction, d: Decoder) -> Step:
    """``bar.warp.sync``: orders memory between the threads of a warp when all take part."""

    def step(state: State) -> None:
        if state.shadow is None:
            return
        whole = state.by_warp(state.mask == state.live).all(axis=1)
        some = state.by_warp(state.mask).any(axis=1)
        numbers = np.flatnonzero(whole & some)
        warps = state.geometry.warps
        state.shadow.synchronise_warps(numbers // warps, numbers % warps)

    return step


# -- barriers of a block


def decode_barrier(i: Instruction, d: Decoder) -> tuple[Control, Release | None]:
    """``bar`` and ``barrier``: sync, arrive and red."""
    name = next(each for each in i.modifiers if each in ("sync", "arrive", "red"))
    operands = i.operands[1:] if name == "red" else i.operands
    vote = d.read(operands[-1], "pred") if name == "red" else None
    operands = operands[:-1] if name == "red" else operands
    number = d.read(operands[0], "u32")
    threads = d.read(operands[1], "u32") if len(operands) > 1 else None
    whole = i.opcode == "bar" or i.has("aligned")
    who = guarded_lanes(i, d)
    release = _reduction(i, d) if name == "red" else None

    def control(executor: Executor, group: Group) -> bool:
        state = executor.state
        lanes = who(group, state)
        if not lanes.any():
            group.pc += 1
            return True
        if whole and group.count != executor.live_count:
            ready = arrived(state, lanes, None)
            if not ready.any():
                group.waits = "warp"
                return False
            if (ready != group.mask).any():
                rest = executor.split(group, group.mask & ~ready, group.pc)
                rest.waits = "warp"
        elif (lanes != group.mask).any():
            executor.merge(executor.split(group, group.mask & ~lanes, group.pc + 1))
        return _reach(executor, group, name, number, threads, vote)

    return control, release


def _reach(
    executor: Executor,
    group: Group,
    name: str,
    number: Reader,
    threads: Reader | None,
    vote: Reader | None,
) -> bool:
    """All lanes of the group reach a barrier; whether they go on."""
    state = executor.state
    numbers = over_lanes(state, number(state))
    first = int(numbers[int(np.argmax(group.mask))])
    if first >= BARRIERS:
        raise RunError(f"there is no barrier {first}: {locate(state.instruction)}")
    others = group.mask & (numbers != first)
    if others.any():
        executor.split(group, others, group.pc)
    state.activate(group.mask, False)
    count = int(over_lanes(state, threads(state))[state.index[0]]) if threads else 0
    votes = over_lanes(state, vote(state)) if vote else np.zeros(state.lanes, dtype=bool)
    lanes = group.mask
    if name == "arrive":
        group.pc += 1
    else:
        group.waits, group.barrier = "barrier", first
    executor.arrive(first, lanes, count, votes)
    return group in executor.groups and not group.waits


def _reduction(i: Instruction, d: Decoder) -> Release:
    """The result of ``bar.red`` in the lanes that a barrier lets go."""
    kind = next(each for each in i.modifiers if each in ("popc", "and", "or"))
    write = d.write(i.operands[0], "u32" if kind == "popc" else "pred")

    def release(executor: Executor, lanes: Array) -> None:
        state = executor.state
        number = next(
            group.barrier
            for group in executor.groups
            if group.waits == "barrier" and (group.mask & lanes).any()
        )
        per_block = executor.votes[:, number]
        votes = np.repeat(per_block, state.geometry.block_lanes)
        arrived = np.repeat(executor.arrived[:, number], state.geometry.block_lanes)
        result = {"popc": votes.astype(np.uint32), "and": votes == arrived, "or": votes > 0}[kind]
        state.activate(lanes, False)
        write(state, np.asarray(result))

    return release
