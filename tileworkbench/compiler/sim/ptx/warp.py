"""Instructions in which the lanes of a warp exchange values (PTX ISA, "shfl.sync", "vote.sync",
"match.sync", "redux.sync", "activemask", "elect.sync").

The scheduler runs them when every lane that the member mask names has arrived.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.geometry import WARP
from tileworkbench.compiler.sim.ptx.loads import over_lanes
from tileworkbench.compiler.sim.ptx.module import TYPE_BITS, Instruction, Operand, Pair, Sink
from tileworkbench.compiler.sim.ptx.numeric import DTYPES, UNSIGNED, Array
from tileworkbench.compiler.sim.ptx.operands import Decoder
from tileworkbench.compiler.sim.ptx.state import State, Step

_BITS = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


def _pair(operand: Operand) -> tuple[Operand, Operand]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


def pack_lanes(state: State, flags: Array) -> Array:
    """One word per warp with a bit for each lane."""
    return np.asarray((state.by_warp(flags) * _BITS).sum(axis=1, dtype=np.uint32))


def _spread(state: State, per_warp: Array) -> Array:
    return np.repeat(per_warp, WARP)


def decode_shfl(i: Instruction, d: Decoder) -> Step:
    target, lands = _pair(i.operands[0])
    value = d.read(i.operands[1], "b32")
    offset, control = d.read_all(i.operands[2:4], "b32")
    write, write_lands = d.write(target, "b32"), d.write(lands, "pred")
    mode = next(name for name in i.modifiers if name in ("up", "down", "bfly", "idx"))

    def step(state: State) -> None:
        lane = state.geometry.lane_in_warp
        by = (over_lanes(state, offset(state)) & np.uint32(31)).astype(np.int64)
        word = over_lanes(state, control(state)).astype(np.int64)
        clamp, segment = word & 31, (word >> 8) & 31
        last = (lane & segment) | (clamp & ~segment)
        if mode == "up":
            source = lane - by
            inside = source >= last
        else:
            source = {
                "down": lane + by,
                "bfly": lane ^ by,
                "idx": (lane & segment) | (by & ~segment),
            }[mode]
            inside = source <= last
        source = np.where(inside, source, lane)
        everywhere = state.geometry.block_index * state.geometry.block_lanes
        place = everywhere + state.geometry.warp * WARP + source
        given = over_lanes(state, value(state))
        # A lane that does not take part has nothing to give.
        write(state, np.where(state.mask[place], given[place], ~np.uint32(0)))
        write_lands(state, inside)

    return step


def decode_vote(i: Instruction, d: Decoder) -> Step:
    mode = next(name for name in i.modifiers if name in ("all", "any", "uni", "ballot"))
    predicate = d.read(i.operands[1], "pred")
    write = d.write(i.operands[0], "b32" if mode == "ballot" else "pred")

    def step(state: State) -> None:
        holds = over_lanes(state, predicate(state)) & state.mask
        yes, present = pack_lanes(state, holds), pack_lanes(state, state.mask)
        if mode == "ballot":
            result = yes
        elif mode == "any":
            result = yes != 0
        elif mode == "all":
            result = yes == present
        else:
            result = (yes == present) | (yes == 0)
        write(state, _spread(state, result))

    return step


def decode_activemask(i: Instruction, d: Decoder) -> Step:
    write = d.write(i.operands[0], "b32")
    return lambda state: write(state, _spread(state, pack_lanes(state, state.mask)))


def decode_elect(i: Instruction, d: Decoder) -> Step:
    """Which lane is the leader, nothing says: here it is the highest of those that take part."""
    target, leads = _pair(i.operands[0])
    write, write_leads = d.write(target, "b32"), d.write(leads, "pred")

    def step(state: State) -> None:
        lanes = state.by_warp(state.mask)[:, ::-1]
        leader = (lanes.shape[1] - 1 - np.argmax(lanes, axis=1)).astype(np.uint32)
        everywhere = _spread(state, leader)
        write(state, everywhere)
        write_leads(state, everywhere == state.geometry.lane_in_warp)

    return step


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


def _neutral(name: str, kind: str) -> Array:
    dtype = DTYPES[kind]
    if name == "min":
        return np.array(np.inf if kind == "f32" else np.iinfo(dtype).max, dtype=dtype)
    if name == "max":
        return np.array(-np.inf if kind == "f32" else np.iinfo(dtype).min, dtype=dtype)
    return np.array(-1 if name == "and" else 0).astype(dtype)


def decode_redux(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    name = next(each for each in i.modifiers if each in _REDUCTIONS)
    if kind == "f32":
        raise unsupported(i)
    value, write = d.read(i.operands[1], kind), d.write(i.operands[0], kind)
    neutral, reduce = _neutral(name, kind), _REDUCTIONS[name]

    def step(state: State) -> None:
        present = np.where(state.mask, value(state), neutral)
        result = reduce(state.by_warp(present), axis=1, dtype=present.dtype)
        write(state, _spread(state, np.asarray(result)))

    return step


def decode_match(i: Instruction, d: Decoder) -> Step:
    """``match.any``: the lanes with the same value; ``match.all``: all of them or none."""
    kind = f"b{TYPE_BITS[i.modifiers[-1]]}"
    target, agrees = _pair(i.operands[0])
    value = d.read(i.operands[1], kind)
    write, write_agrees = d.write(target, "b32"), d.write(agrees, "pred")
    needs_all = i.has("all")

    def step(state: State) -> None:
        given = state.by_warp(over_lanes(state, value(state)).astype(UNSIGNED[64]))
        present = state.by_warp(state.mask)
        same = (given[:, :, None] == given[:, None, :]) & present[:, None, :]
        masks = (same * _BITS).sum(axis=2, dtype=np.uint32).ravel()
        if not needs_all:
            write(state, masks)
            return
        everybody = masks == _spread(state, pack_lanes(state, state.mask))
        write(state, np.where(everybody, masks, np.uint32(0)))
        write_agrees(state, everybody)

    return step
