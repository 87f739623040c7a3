"""A further warpgroup for a kernel: which kernels can have one, and how registers are divided.

The threads of a block have equal parts of the registers of a multiprocessor when it begins. Where
only one block fits anyway, those who compute take over what the others do not need (PTX ISA,
"setmaxnreg").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import CLUSTER_WIDE, Exchange, GridBarrier, Peer, Role
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alloc, ExternCall, Kernel, Pointer
from tileworkbench.compiler.machine.instructions import WARPGROUP_WARPS
from tileworkbench.compiler.machine.machine import Machine
from tileworkbench.compiler.schedule.handovers import LoopPlan, Unsuitable
from tileworkbench.compiler.schedule.rings import new_ring

_MOST = 240  # registers of a thread, where they are divided anew
PRODUCER_REGISTERS = 40  # of a thread that loads
OTHER_REGISTERS = 40  # of those who compute, beside their arrays: addresses, counters, operands


def check(kernel: Kernel, machine: Machine) -> None:
    """Raise `Unsuitable` for a kernel that can have no further warpgroup."""
    threads, group = kernel.threads[0], WARPGROUP_WARPS * machine.lanes
    if threads + group > machine.block_threads:
        raise Unsuitable(f"a block has at most {machine.block_threads} threads")
    for stmt in statements(kernel.body):
        match stmt:
            case Role():
                raise Unsuitable("its threads have roles already")
            case Exchange() if stmt.is_barrier:
                raise Unsuitable("all threads of the block exchange values")
            case GridBarrier() | Peer():
                raise Unsuitable("blocks wait for each other")
            case ExternCall() | Pointer():
                raise Unsuitable("it calls functions or takes addresses")
    if any(isinstance(stmt, CLUSTER_WIDE) for stmt in statements(kernel.body)) or kernel.cluster:
        raise Unsuitable("blocks wait for each other")


def registers(kernel: Kernel, machine: Machine) -> tuple[int, int] | None:
    """How many a thread of the producer keeps, and how many one of `kernel` gets. None where they
    are not divided anew: each can have all that there are, or two blocks may fit.
    """
    threads, group = kernel.threads[0], WARPGROUP_WARPS * machine.lanes
    begin = _begin(kernel, machine)
    rest = begin * (threads + group) - PRODUCER_REGISTERS * group
    more = min(_MOST, _whole(rest // threads, machine))
    if begin >= more or _words(kernel) + OTHER_REGISTERS <= begin // 2:
        return None
    return PRODUCER_REGISTERS, more


def overlapped(
    plan: LoopPlan, kernel: Kernel, machine: Machine, fresh: Callable[[str], str]
) -> LoopPlan:
    """`plan`, without the overlap of the last product where the arrays that are alive at once would
    need too many registers. The warpgroups then take turns: while one multiplies, the others do the
    work between the products.
    """
    if plan.overlap is None:
        return plan
    divided = registers(kernel, machine)
    most = min(machine.thread_registers, _begin(kernel, machine)) if divided is None else divided[1]
    need = _words(kernel) + OTHER_REGISTERS
    if need > most:
        reason = f"a thread would need about {need} of {most} registers"
        return replace(plan, overlap=None, apart=reason)
    groups = kernel.threads[0] // (WARPGROUP_WARPS * machine.lanes)
    if groups < 2:
        return plan
    done = plan.handovers[0].filled.done
    return replace(plan, turn=new_ring(fresh("turn"), groups, done, WARPGROUP_WARPS))


def _begin(kernel: Kernel, machine: Machine) -> int:
    """With how many registers the threads of a block with a producer begin."""
    threads = kernel.threads[0] + WARPGROUP_WARPS * machine.lanes
    return _whole(machine.registers // threads, machine)


def _words(kernel: Kernel) -> int:
    """The registers of a thread that its arrays take."""
    return sum(
        -(-prod(const_shape(stmt.buffer) or ()) * stmt.buffer.dtype.bits // 32)
        for stmt in statements(kernel.body)
        if isinstance(stmt, Alloc) and stmt.buffer.scope.startswith("local")
    )


def _whole(count: int, machine: Machine) -> int:
    """At most `count` registers, as many as a thread can have where they are divided anew."""
    shares = machine.register_shares
    assert shares is not None, f"warpgroups of {machine.name} that divide registers"
    return count // shares.unit * shares.unit
