"""One place where an access to memory is checked, counted and carried out."""

from __future__ import annotations

import numpy as np

from tileworkbench.compiler.diagnostics import OutOfBoundsError
from tileworkbench.compiler.sim.ptx.clusters import is_peer, resolve
from tileworkbench.compiler.sim.ptx.errors import MisalignedAccessError, locate
from tileworkbench.compiler.sim.ptx.geometry import WARP
from tileworkbench.compiler.sim.ptx.memory import WINDOWS, space_of, window_number
from tileworkbench.compiler.sim.ptx.numeric import Array
from tileworkbench.compiler.sim.ptx.state import State


def locate_bytes(
    state: State,
    space: str,
    lanes: Array,
    addresses: Array,
    size: int,
    verb: str,
    alignment: int = 0,
) -> Array:
    """The place of each access in the bytes of its space, after checking bounds and alignment (the
    size unless another is given).

    `addresses` are in the space's own numbering, one for each of `lanes`.
    """
    alignment = alignment or min(size, 16)
    misaligned = addresses & (alignment - 1)
    if misaligned.any():
        at = int(np.argmax(misaligned != 0))
        raise MisalignedAccessError(
            f"{state.geometry.thread_name(int(lanes[at]))} {verb} {size} bytes at "
            f"{_describe(state, space, int(addresses[at]))}, "
            f"which is no multiple of {alignment}: {locate(state.instruction)}"
        )
    memory = state.memory
    if space == "global":
        tensors = memory.global_memory.find(addresses, size)
        if (tensors < 0).any():
            _refuse(state, space, lanes, addresses, tensors < 0, size, verb)
        return memory.global_memory.places_of(addresses, tensors)
    owners = state.geometry.block_index[lanes] if space == "shared" else lanes
    if space == "cluster":
        owners, addresses = resolve(state, lanes, addresses)
    limit = _limit(state, space)
    if addresses.size and (int(addresses.min()) < 0 or int(addresses.max()) + size > limit):
        outside = (addresses < 0) | (addresses + size > limit)
        _refuse(state, space, lanes, addresses, outside, size, verb)
    if space in ("shared", "cluster"):
        return np.asarray(addresses + owners * memory.shared_stride)
    if space == "local":
        return np.asarray(addresses + lanes * memory.local_stride)
    return addresses


def _refuse(
    state: State, space: str, lanes: Array, addresses: Array, wrong: Array, size: int, verb: str
) -> None:
    at = int(np.argmax(wrong))
    raise OutOfBoundsError(
        f"{state.geometry.thread_name(int(lanes[at]))} {verb} {size} bytes at "
        f"{_describe(state, space, int(addresses[at]))}: {locate(state.instruction)}"
    )


def _describe(state: State, space: str, address: int) -> str:
    if space == "global":
        return state.memory.global_memory.describe(address)
    name = "shared memory of another block" if space == "cluster" else f"{space} memory"
    return f"byte {address} of {name}, which has {_limit(state, space)} bytes"


def _limit(state: State, space: str) -> int:
    """The bytes of a space."""
    memory = state.memory
    return {
        "shared": memory.shared_bytes,
        "cluster": memory.shared_bytes,
        "local": memory.local_bytes,
        "param": memory.parameter_bytes,
    }[space]


def split_generic(state: State, addresses: Array) -> list[tuple[str, Array, Array]]:
    """The active lanes of an access by generic address, a group per space: the space, the lanes and
    their addresses in it. `addresses` is a vector over all lanes."""
    lanes = state.index
    windows = space_of(addresses[lanes])
    groups = []
    for window in np.unique(windows):
        mine = lanes[windows == window]
        for space, base in WINDOWS.items():
            if window == window_number(space):
                within = addresses[mine] - base
                peer = is_peer(within) if space == "shared" else np.zeros(len(mine), bool)
                if peer.any():
                    groups.append(("cluster", mine[peer], within[peer]))
                if not peer.all():
                    groups.append((space, mine[~peer], within[~peer]))
                break
        else:
            groups.append(("global", mine, addresses[mine]))
    return groups


def select(state: State, space: str, addresses: Array) -> list[tuple[str, Array, Array]]:
    """The groups of one access: one for a named space, else one for each space that it touches."""
    if not space:
        return split_generic(state, addresses)
    lanes = state.index
    if len(lanes) == len(addresses):
        return [(space, lanes, addresses)]
    return [(space, lanes, addresses[lanes])]


def load_elements(
    state: State,
    space: str,
    lanes: Array,
    addresses: Array,
    bits: int,
    count: int = 1,
    *,
    atomic: bool = False,
) -> Array:
    """`count` neighbouring elements of `bits` bits for each lane, one row a lane."""
    size = bits // 8 * count
    places = locate_bytes(state, space, lanes, addresses, size, "reads")
    note_access(state, space, lanes, addresses, size)
    if state.shadow is not None and space in ("shared", "cluster"):
        offsets, owners = owned(state, space, lanes, addresses)
        state.shadow.read(lanes, offsets, size, atomic=atomic, owners=owners)
    first = places // (bits // 8)
    view = state.memory.view(space, bits)
    if count == 1:
        return np.asarray(view[first][:, None])
    return np.asarray(view[first[:, None] + np.arange(count)])


def note_access(state: State, space: str, lanes: Array, addresses: Array, size: int) -> None:
    """Count the traffic of an access."""
    if space == "shared":
        in_warp = state.geometry.lane_in_warp[lanes]
        state.statistics.record_shared(state.pc, addresses, lanes // WARP, in_warp, size)
    elif space == "global":
        state.statistics.record_global(state.pc, addresses, lanes // WARP, size)


def store_elements(
    state: State,
    space: str,
    lanes: Array,
    addresses: Array,
    values: Array,
    bits: int,
    *,
    atomic: bool = False,
    whole: bool = False,
    counted: bool = True,
) -> None:
    """Write rows of elements of `bits` bits, one row a lane. `whole` says that a warp writes
    together, `counted` that the traffic is counted here."""
    count = values.shape[1]
    size = bits // 8 * count
    places = locate_bytes(state, space, lanes, addresses, size, "writes")
    if space == "param":
        _refuse(state, space, lanes, addresses, np.ones(len(lanes), dtype=bool), size, "writes")
    if space == "global":
        check_writable(state, lanes, addresses)
    if counted:
        note_access(state, space, lanes, addresses, size)
    index = (places // (bits // 8))[:, None] + np.arange(count)
    view = state.memory.view(space, bits)
    if space not in ("shared", "cluster") or state.shadow is None:
        view[index] = values
        return
    offsets, owners = owned(state, space, lanes, addresses)
    values = np.ascontiguousarray(values)
    old = np.ascontiguousarray(view[index])
    view[index] = values
    lost = (view[index] != values).any(axis=1)
    changed = old.view(np.uint8) != values.view(np.uint8)
    state.shadow.write(
        *(lanes, offsets, size),
        changed=changed,
        lost=lost,
        atomic=atomic,
        whole=whole,
        owners=owners,
    )


def owned(state: State, space: str, lanes: Array, addresses: Array) -> tuple[Array, Array | None]:
    """The bytes of shared memory at addresses, and whose they are, None for the lanes' own."""
    if space == "shared":
        return addresses, None
    owners, offsets = resolve(state, lanes, addresses)
    return offsets, owners


def check_writable(state: State, lanes: Array, addresses: Array) -> None:
    """Refuse a write into a buffer that is read-only."""
    memory = state.memory.global_memory
    if all(each.is_writable for each in memory.allocations):
        return
    writable = np.array([each.is_writable for each in memory.allocations])
    wrong = ~writable[memory.find(addresses, 1)]
    if wrong.any():
        at = int(np.argmax(wrong))
        raise OutOfBoundsError(
            f"{state.geometry.thread_name(int(lanes[at]))} writes "
            f"{memory.describe(int(addresses[at]))}, which is read-only: "
            f"{locate(state.instruction)}"
        )
