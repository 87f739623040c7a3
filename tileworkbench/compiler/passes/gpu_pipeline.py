"""The passes of GPUs, in order."""

from __future__ import annotations

from tileworkbench.compiler.passes.bind_threads import BindThreads
from tileworkbench.compiler.passes.check_accesses import check_accesses
from tileworkbench.compiler.passes.drop_unused_lets import drop_unused_lets
from tileworkbench.compiler.passes.expand_pipelines import expand_pipelines
from tileworkbench.compiler.passes.fence_proxies import fence_proxies
from tileworkbench.compiler.passes.flatten_buffers import flatten_buffers
from tileworkbench.compiler.passes.infer_thread_layouts import InferThreadLayouts
from tileworkbench.compiler.passes.insert_barriers import InsertBarriers
from tileworkbench.compiler.passes.lower_to_threads import LowerToThreads
from tileworkbench.compiler.passes.pipeline import Pass
from tileworkbench.compiler.passes.plan_pipelines import plan_pipelines
from tileworkbench.compiler.passes.plan_shared_memory import PlanSharedMemory
from tileworkbench.compiler.passes.simplify_expressions import simplify_expressions
from tileworkbench.compiler.passes.unroll_register_loops import unroll_register_loops
from tileworkbench.compiler.target import Target


def gpu_pipeline(target: Target) -> tuple[Pass, ...]:
    """A block of threads: fragments in registers, tiles in shared memory, copies ahead of use."""
    return (
        simplify_expressions,
        check_accesses,
        # One thread index, which layouts are functions of.
        BindThreads(target),
        # Before schedules: what turns a tile is a statement of its loop.
        *_with_turned_operands(target),
        # The schedule is chosen for tile operators, so that each is laid out and lowered once.
        plan_pipelines,
        # Before layouts: loads into registers are laid out like any fragment.
        *_without_copies(target),
        # The tiles that results go through are laid out as any.
        *_with_stores(target),
        InferThreadLayouts(target),
        LowerToThreads(target),
        # Of loops that a producer runs ahead of, nothing is left to expand.
        *_with_warpgroups(target),
        # Versions of a buffer are a further dimension: a layout passes through unchanged.
        expand_pipelines,
        # Buffers in one place are one hazard: places before barriers.
        PlanSharedMemory(target),
        # Behind waits, and in front of barriers: threads fence what they wrote, then meet.
        fence_proxies,
        # Barriers by the elements that threads touch, while indices are still those of the tile.
        InsertBarriers(target),
        flatten_buffers,
        # Registers have one index each by now; what a loop repeats of it is simplified next.
        unroll_register_loops,
        simplify_expressions,
        drop_unused_lets,
    )


def _with_turned_operands(target: Target) -> tuple[Pass, ...]:
    """Operands for warpgroups, which read bytes along K only."""
    from tileworkbench.compiler.lower.threads import wgmma

    if not wgmma.instructions(target):
        return ()
    from tileworkbench.compiler.passes.turn_operands import TurnOperands

    return (TurnOperands(target),)


def _without_copies(target: Target) -> tuple[Pass, ...]:
    """Loads ahead of use where no engine copies from global to shared memory."""
    engine = target.machine.thread_copies
    if engine is not None and not engine.in_line:  # it copies whatever a kernel has
        return ()
    from tileworkbench.compiler.passes.prefetch_registers import PrefetchRegisters
    from tileworkbench.compiler.passes.turn_tiles import TurnTiles

    turns = (TurnTiles(target),) if target.machine.move(loads=True) is None else ()
    return (PrefetchRegisters(target), *turns)


def _with_stores(target: Target) -> tuple[Pass, ...]:
    """Results through tiles where lanes hold half a sector of them at once: ldmatrix loads operands
    that lie so, too.
    """
    if target.machine.move(loads=True) is None:
        return ()
    from tileworkbench.compiler.passes.stage_results import StageResults

    return (StageResults(target),)


def _with_warpgroups(target: Target) -> tuple[Pass, ...]:
    """Roles of warpgroups where their instructions work by themselves."""
    from tileworkbench.compiler.lower.threads import wgmma

    if not wgmma.instructions(target):
        return ()
    from tileworkbench.compiler.passes.specialize_warps import SpecializeWarps

    return (SpecializeWarps(target),)
