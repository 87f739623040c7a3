"""``cp.async``, ``mbarrier`` and the barrier of a cluster, on top of `asynchronous`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.sim.ptx.asynchronous import Asynchronous
from tileworkbench.compiler.sim.ptx.bulk import decode_bulk
from tileworkbench.compiler.sim.ptx.clusters import is_relaxed, map_address
from tileworkbench.compiler.sim.ptx.control import guarded_lanes
from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.execute import Control, Executor, Group
from tileworkbench.compiler.sim.ptx.loads import over_lanes
from tileworkbench.compiler.sim.ptx.memory import SHARED_WINDOW
from tileworkbench.compiler.sim.ptx.module import Address, Immediate, Instruction, Operand
from tileworkbench.compiler.sim.ptx.numeric import DTYPES, Array
from tileworkbench.compiler.sim.ptx.operands import Decoder, Reader
from tileworkbench.compiler.sim.ptx.state import State, Step


def shared_address(i: Instruction, d: Decoder, operand: Operand) -> Reader:
    """An address of shared memory, from a generic one where the instruction names no space."""
    read = d.read_address(operand)
    if any(name.startswith("shared") for name in i.modifiers):
        return read
    return lambda state: read(state) - SHARED_WINDOW


def decode_cp(i: Instruction, d: Decoder) -> Step:
    if i.has("bulk"):
        return decode_bulk(i, d)
    if i.modifiers[0] != "async":
        raise unsupported(i)
    if i.has("commit_group"):
        return lambda state: state.asynchronous.commit()
    if i.has("wait_all"):
        return lambda state: state.asynchronous.wait_all()
    if i.has("wait_group"):
        allowed = int(d.constant(i.operands[0], "u32"))
        return lambda state: state.asynchronous.wait_group(allowed)
    if i.has("mbarrier"):
        return _decode_arrive_later(i, d)
    return _decode_copy(i, d)


def _decode_copy(i: Instruction, d: Decoder) -> Step:
    """``cp.async.{ca,cg} [to], [from], size{, present}``: bytes past `present` become zero."""
    target, source = d.read_address(i.operands[0]), d.read_address(i.operands[1])
    size = int(d.constant(i.operands[2], "u32"))
    has_size = len(i.operands) > 3 and not i.has("L2::cache_hint")
    if size not in (4, 8, 16) or (i.has("cg") and size != 16):
        raise unsupported(i, f"a copy of {size} bytes")
    present: Reader | None = d.read(i.operands[3], "u32") if has_size else None

    def step(state: State) -> None:
        lanes = state.index
        if present is None:
            count = np.full(len(lanes), size, dtype=np.int64)
        else:
            count = np.minimum(over_lanes(state, present(state))[lanes], np.uint32(size))
        state.asynchronous.issue(
            target(state)[lanes], source(state)[lanes], count.astype(np.int64), size
        )

    return step


def _decode_arrive_later(i: Instruction, d: Decoder) -> Step:
    """``cp.async.mbarrier.arrive``: arrive when the copies so far have landed. Without ``.noinc``
    the arrival is one more than the barrier expects."""
    address = shared_address(i, d, i.operands[0])
    adds = not i.has("noinc")

    def step(state: State) -> None:
        asynchronous = state.asynchronous
        for block, place, lanes in asynchronous.each(address(state), "arrives at"):
            if adds:
                asynchronous.barrier(block, place).pending += len(lanes)
            asynchronous.queue(block, place, _arrival(asynchronous, block, place, lanes))

    return step


def _arrival(
    asynchronous: Asynchronous, block: int, place: int, lanes: Array
) -> Callable[[], None]:
    earlier = len(asynchronous.copies)
    issued = asynchronous.copies[:earlier]

    def run() -> None:
        asynchronous.land(issued, lanes)
        # Copies that landed at once were writes of these threads, the others are of nobody.
        who = np.zeros(0, dtype=np.int64) if asynchronous.lazy else lanes
        asynchronous.arrive(block, place, who, len(lanes))

    return run


def _address_operand(i: Instruction) -> int:
    return next(n for n, operand in enumerate(i.operands) if isinstance(operand, Address))


def decode_fence(i: Instruction, d: Decoder) -> Step:
    """Fences between threads, and between threads and the asynchronous proxy."""
    if i.has("mbarrier_init"):
        return lambda state: state.asynchronous.fence_barriers()
    if i.has("proxy") and not any(name.startswith("async") for name in i.modifiers):
        return lambda state: None
    between_proxies = i.has("proxy")

    def step(state: State) -> None:
        if between_proxies:
            state.asynchronous.fence_barriers()
        if state.shadow is not None:
            fence = state.shadow.fence_proxy if between_proxies else state.shadow.fence
            fence(state.index)

    return step


def decode_mbarrier(i: Instruction, d: Decoder) -> Step:
    name = i.modifiers[0]
    if i.has("shared::cluster") and name != "arrive":
        raise unsupported(i)
    where = 0 if name == "pending_count" else _address_operand(i)
    if name == "init":
        return _decode_init(i, d)
    if name == "inval":
        return lambda state: None
    if name in ("arrive", "arrive_drop"):
        return _decode_arrive(i, d, where)
    if name in ("expect_tx", "complete_tx"):
        return _decode_transaction(i, d, 1 if name == "expect_tx" else -1)
    if name == "test_wait":
        return _decode_test(i, d)
    raise unsupported(i)


def _decode_init(i: Instruction, d: Decoder) -> Step:
    address, count = shared_address(i, d, i.operands[0]), d.read(i.operands[1], "u32")

    def step(state: State) -> None:
        counts = over_lanes(state, count(state))
        for block, place, lanes in state.asynchronous.each(address(state), "initialises"):
            state.asynchronous.initialise(block, place, lanes, int(counts[lanes[0]]))

    return step


def _decode_arrive(i: Instruction, d: Decoder, where: int) -> Step:
    """Arrive, after expecting more bytes if the instruction says so; the result names the phase."""
    address = shared_address(i, d, i.operands[where])
    rest = i.operands[where + 1 :]
    operand = d.read(rest[0], "u32") if rest else d.read(Immediate(1), "u32")
    wide = i.has("cluster")
    expects, drops = i.has("expect_tx"), i.modifiers[0] == "arrive_drop"
    write = d.write(i.operands[0], "b64") if where else None

    def step(state: State) -> None:
        amounts = over_lanes(state, operand(state)).astype(np.int64)
        tokens = np.zeros(state.lanes, dtype=np.uint64)
        asynchronous = state.asynchronous
        for block, place, lanes in asynchronous.each(address(state), "arrives at"):
            barrier = asynchronous.barrier(block, place)
            tokens[lanes] = barrier.phase
            total = int(amounts[lanes].sum())
            if expects:
                barrier.transaction_bytes += total
                total = len(lanes)
            if drops:
                barrier.expected -= total
            asynchronous.arrive(block, place, lanes, total, wide)
        if write is not None:
            write(state, tokens)

    return step


def _decode_transaction(i: Instruction, d: Decoder, sign: int) -> Step:
    address, size = shared_address(i, d, i.operands[0]), d.read(i.operands[1], "u32")

    def step(state: State) -> None:
        amounts = over_lanes(state, size(state)).astype(np.int64)
        for block, place, lanes in state.asynchronous.each(address(state), "changes"):
            barrier = state.asynchronous.barrier(block, place)
            barrier.transaction_bytes += sign * int(amounts[lanes].sum())
            if sign < 0 and state.shadow is not None:
                barrier.learn(state.shadow.fenced(lanes))
            state.asynchronous.settle(barrier)

    return step


def _wait(i: Instruction, d: Decoder) -> Callable[[State], Array]:
    """The active lanes whose phase is over."""
    address = shared_address(i, d, i.operands[1])
    by_parity, wide = i.has("parity"), i.has("cluster")
    operand = d.read(i.operands[2], "u32" if by_parity else "b64")

    def done(state: State) -> Array:
        named = over_lanes(state, operand(state)).astype(np.int64)
        complete = np.zeros(state.lanes, dtype=bool)
        for block, place, lanes in state.asynchronous.each(address(state), "waits at"):
            for value in np.unique(named[lanes]):
                mine = lanes[named[lanes] == value]
                parity = int(value) & 1 if by_parity else None
                complete[mine] = state.asynchronous.is_complete(
                    block, place, mine, parity=parity, token=int(value), wide=wide
                )
        return complete

    return done


def _decode_test(i: Instruction, d: Decoder) -> Step:
    done, write = _wait(i, d), d.write(i.operands[0], "pred")
    return lambda state: write(state, done(state))


def decode_try_wait(i: Instruction, d: Decoder) -> Control:
    """Wait until the phase is over. That the instruction may also give up is not modelled: the loop
    around it would only wait again."""
    done, write, who = _wait(i, d), d.write(i.operands[0], "pred"), guarded_lanes(i, d)
    address = shared_address(i, d, i.operands[1])

    def control(executor: Executor, group: Group) -> bool:
        state = executor.state
        asking = who(group, state)
        if not asking.any():
            group.pc += 1
            return True
        state.activate(asking, False)
        finished = done(state)
        write(state, finished)

        def reason(lane: int) -> str:
            block, place = state.geometry.block_index[lane], over_lanes(state, address(state))[lane]
            return state.asynchronous.describe(int(block), int(place))

        return wait_for(executor, group, asking & ~finished, reason)

    return control


def decode_cluster_arrive(i: Instruction, d: Decoder) -> Step:
    """``barrier.cluster.arrive``"""
    relaxed = is_relaxed(i)
    return lambda state: state.clusters.arrive(relaxed)


def decode_cluster_wait(i: Instruction, d: Decoder) -> Control:
    """``barrier.cluster.wait``"""
    who = guarded_lanes(i, d)

    def control(executor: Executor, group: Group) -> bool:
        state = executor.state
        asking = who(group, state)
        state.activate(asking, False)
        waiting = asking & ~state.clusters.done()
        return wait_for(executor, group, waiting, state.clusters.describe)

    return control


def wait_for(
    executor: Executor, group: Group, waiting: Array, reason: Callable[[int], str]
) -> bool:
    """Let the lanes that are not `waiting` go on; whether that is the whole group."""
    if not waiting.any():
        group.pc += 1
        return True
    rest = group.mask & ~waiting
    if rest.any():
        executor.merge(executor.split(group, rest, group.pc + 1))
    group.waits, group.version = "memory", executor.state.asynchronous.version
    group.reason = reason(int(np.argmax(waiting)))
    return False


def decode_mapa(i: Instruction, d: Decoder) -> Step:
    """``mapa``: what an address of shared memory is in another block of the cluster."""
    kind = i.modifiers[-1]
    named = i.has("shared::cluster")
    address, rank = d.read(i.operands[1], kind), d.read(i.operands[2], "u32")
    write = d.write(i.operands[0], kind)
    window = 0 if named else SHARED_WINDOW

    def step(state: State) -> None:
        own = over_lanes(state, address(state)).astype(np.int64) - window
        mapped = map_address(state, own, over_lanes(state, rank(state)).astype(np.int64))
        write(state, (mapped + window).astype(DTYPES[kind]))

    return step
