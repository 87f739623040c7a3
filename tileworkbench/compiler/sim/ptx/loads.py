"""Loads, stores and atomic updates (PTX ISA, "ld", "st", "atom", "red")."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tileworkbench.compiler.sim.ptx.access import (
    check_writable,
    load_elements,
    locate_bytes,
    note_access,
    owned,
    select,
    store_elements,
)
from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.floats import FLOATS, choose, decode_bits, encode_bits
from tileworkbench.compiler.sim.ptx.module import (
    TYPE_BITS,
    Instruction,
    Operand,
    Register,
    Sink,
)
from tileworkbench.compiler.sim.ptx.numeric import DTYPES, SIGNED, UNSIGNED, Array, sum_to_odd
from tileworkbench.compiler.sim.ptx.operands import Decoder, Reader, items_of
from tileworkbench.compiler.sim.ptx.state import State, Step

_SPACES = ("global", "shared", "local", "param", "const")
# Accesses that order or synchronise threads themselves, and so do not race with each other.
_STRONG = ("volatile", "relaxed", "acquire", "release", "mmio")


def space_named(i: Instruction, d: Decoder, address: Operand) -> str:
    """The space that an access names: "" for a generic address. Constant memory is part of global
    memory, and the parameters of calls are local to a thread."""
    for modifier in i.modifiers:
        if modifier == "shared::cluster":
            return "cluster"
        space = modifier.split("::")[0]
        if space in _SPACES:
            if space == "param":
                return d.space_of(address) or "param"
            return "global" if space == "const" else space
    return ""


def _count(i: Instruction) -> int:
    return next((int(name[1]) for name in i.modifiers if name in ("v2", "v4", "v8")), 1)


def decode_ld(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    bits, count = TYPE_BITS[kind], _count(i)
    space, address = space_named(i, d, i.operands[1]), d.read_address(i.operands[1])
    targets = [_loaded(i, target, kind) for target in items_of(i.operands[0])]
    atomic = i.has(*_STRONG)

    def step(state: State) -> None:
        for where, lanes, addresses in select(state, space, address(state)):
            values = load_elements(state, where, lanes, addresses, bits, count, atomic=atomic)
            for number, target in enumerate(targets):
                if target is not None:
                    slot, extend = target
                    put_some(state, slot, lanes, extend(values[:, number]))

    return step


def put_some(state: State, slot: int, lanes: Array, values: Array) -> None:
    """Set a register in some of the lanes from a vector over just these."""
    if len(lanes) == state.lanes:
        state.registers[slot] = values
    else:
        state.scatter(slot, lanes, values)


def _loaded(
    i: Instruction, target: Operand, kind: str
) -> tuple[int, Callable[[Array], Array]] | None:
    """The slot of a loaded register and how a value is extended to it."""
    if isinstance(target, Sink):
        return None
    bits = TYPE_BITS[kind]
    if not isinstance(target, Register) or target.bits < bits:
        raise unsupported(i, "the result of a load")
    if target.bits == bits:
        return target.slot, lambda values: values
    storage = UNSIGNED[target.bits]
    narrow = SIGNED[bits] if kind.startswith("s") else UNSIGNED[bits]
    return target.slot, lambda values: values.view(narrow).astype(storage)


def decode_st(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    bits = TYPE_BITS[kind]
    space, address = space_named(i, d, i.operands[0]), d.read_address(i.operands[0])
    sources = d.read_all(items_of(i.operands[1]), f"b{bits}")
    atomic = i.has(*_STRONG)

    def step(state: State) -> None:
        values = [over_lanes(state, source(state)) for source in sources]
        for where, lanes, addresses in select(state, space, address(state)):
            rows = np.stack([value[lanes] for value in values], axis=1)
            store_elements(state, where, lanes, addresses, rows, bits, atomic=atomic)

    return step


def over_lanes(state: State, value: Array) -> Array:
    """A value as a vector over all lanes."""
    return np.broadcast_to(value, (state.lanes,)) if value.ndim == 0 else value


# -- atomic updates


def _float_update(function: Callable[[Array, Array], Array], kind: str) -> Callable[..., Array]:
    def update(old: Array, new: Array, _: Array) -> Array:
        a, b = decode_bits(old, kind), decode_bits(new, kind)
        return encode_bits(function(a, b), kind)

    return update


def _add_floats(a: Array, b: Array) -> Array:
    if a.dtype == np.float64:
        return a + b
    return sum_to_odd(a.astype(np.float64), b.astype(np.float64))


def _updates(i: Instruction, name: str, kind: str) -> Callable[[Array, Array, Array], Array]:
    """The new contents of memory from the old ones, the operand and, for cas, the second one."""
    if name == "exch":
        return lambda old, new, _: new
    if name == "cas":
        return lambda old, expected, new: np.where(old == expected, new, old)
    if kind in FLOATS:
        floats: dict[str, Callable[[Array, Array], Array]] = {
            "add": _add_floats,
            "min": partial(choose, smaller=True),
            "max": partial(choose, smaller=False),
        }
        if name not in floats:
            raise unsupported(i)
        return _float_update(floats[name], kind)
    dtype = DTYPES[kind]
    one = UNSIGNED[TYPE_BITS[kind]](1)
    table: dict[str, Callable[[Array, Array, Array], Array]] = {
        "add": lambda old, new, _: old + new,
        "and": lambda old, new, _: old & new,
        "or": lambda old, new, _: old | new,
        "xor": lambda old, new, _: old ^ new,
        "inc": lambda old, new, _: np.where(old >= new, old * 0, old + one),
        "dec": lambda old, new, _: np.where((old == 0) | (old > new), new, old - one),
        "min": lambda old, new, _: np.minimum(old.view(dtype), new.view(dtype)).view(old.dtype),
        "max": lambda old, new, _: np.maximum(old.view(dtype), new.view(dtype)).view(old.dtype),
    }
    if name not in table:
        raise unsupported(i)
    return table[name]


_ATOMIC_NAMES = ("add", "and", "or", "xor", "inc", "dec", "min", "max", "exch", "cas")


def decode_atom(i: Instruction, d: Decoder) -> Step:
    """``atom`` and ``red``: lanes update one after the other, in the order of their numbers."""
    kind, count = i.modifiers[-1], _count(i)
    bits = TYPE_BITS[kind]
    returns = i.opcode == "atom"
    operands = i.operands[1:] if returns else i.operands
    space, address = space_named(i, d, operands[0]), d.read_address(operands[0])
    name = next(each for each in i.modifiers if each in _ATOMIC_NAMES)
    update = _updates(i, name, kind)
    sources = d.read_all(items_of(operands[1]), f"b{bits}")
    swaps: list[Reader] = d.read_all(items_of(operands[2]), f"b{bits}") if name == "cas" else []
    targets = [_loaded(i, each, f"b{bits}") for each in items_of(i.operands[0])] if returns else []

    def step(state: State) -> None:
        rows = np.stack([over_lanes(state, source(state)) for source in sources], axis=1)
        second = rows
        if swaps:
            second = np.stack([over_lanes(state, swap(state)) for swap in swaps], axis=1)
        for where, lanes, addresses in select(state, space, address(state)):
            old = _update_memory(
                state, where, lanes, addresses, rows[lanes], second[lanes], bits, update
            )
            for number, target in enumerate(targets):
                if target is not None:
                    put_some(state, target[0], lanes, np.ascontiguousarray(old[:, number]))

    if count != len(sources):
        raise unsupported(i, "a vector of another length")
    return step


def _update_memory(
    state: State,
    space: str,
    lanes: Array,
    addresses: Array,
    first: Array,
    second: Array,
    bits: int,
    update: Callable[[Array, Array, Array], Array],
) -> Array:
    """Update memory, lane after lane where several name one place; returns the value that each lane
    found there.
    """
    count = first.shape[1]
    size = bits // 8 * count
    places = locate_bytes(state, space, lanes, addresses, size, "updates")
    if space == "global":
        check_writable(state, lanes, addresses)
    note_access(state, space, lanes, addresses, size)
    shadow = state.shadow if space in ("shared", "cluster") else None
    if shadow is not None:
        offsets, owners = owned(state, space, lanes, addresses)
        shadow.read(lanes, offsets, size, atomic=True, owners=owners)
    index = (places // (bits // 8))[:, None] + np.arange(count)
    view = state.memory.view(space, bits)
    before = np.empty_like(first)
    for now in _rounds(places):
        old = view[index[now]]
        before[now] = old
        new = np.asarray(update(old.ravel(), first[now].ravel(), second[now].ravel()))
        view[index[now]] = new.reshape(old.shape)
    if shadow is not None:
        shadow.write(lanes, offsets, size, atomic=True, owners=owners)
    return before


def _rounds(places: Array) -> list[Array]:
    """The items in rounds without two of the same place, each place's items in their order."""
    order = np.argsort(places, kind="stable")
    _, starts, sizes = np.unique(places[order], return_index=True, return_counts=True)
    rank = np.arange(len(places)) - np.repeat(starts, sizes)
    by_rank = np.argsort(rank, kind="stable")
    ends = np.cumsum(np.bincount(rank))
    return np.split(order[by_rank], ends[:-1])


def decode_nothing(i: Instruction, d: Decoder) -> Step:
    """Prefetches, fences and hints: nothing that a result could show."""
    return lambda state: None
