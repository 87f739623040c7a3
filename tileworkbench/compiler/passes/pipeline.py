"""The passes of each target, in order."""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.passes.assert_indices import assert_indices
from tileworkbench.compiler.passes.check_accesses import check_accesses
from tileworkbench.compiler.passes.complete_operations import CompleteOperations
from tileworkbench.compiler.passes.simplify_expressions import simplify_expressions
from tileworkbench.compiler.target import Target

Pass = Callable[[Program], Program]


def pipeline(target: Target, sanitize: bool = False) -> tuple[Pass, ...]:
    """The passes that take a program from the front end to code generation for `target`; with
    `sanitize` the code checks indices that come from data.
    """
    # Asynchrony that has no code ends before anything else looks at the operators. What comes from
    # data, and under which conditions, is clear in the program as it was written.
    checks = (CompleteOperations(target), *((assert_indices,) if sanitize else ()))
    if target.kind == "cpu":
        return (*checks, *cpu_pipeline(target))
    return (*checks, *gpu_pipeline(target))


def cpu_pipeline(target: Target) -> tuple[Pass, ...]:
    """One worker runs a block: no threads, no pipelining, tiles in a scratch arena."""
    # Imported here, as those of a GPU: who compiles for one does not wait for the other.
    from tileworkbench.compiler.passes.assert_accesses import assert_accesses
    from tileworkbench.compiler.passes.bind_blocks import bind_blocks
    from tileworkbench.compiler.passes.check_thread_effects import check_thread_effects
    from tileworkbench.compiler.passes.flatten_buffers import flatten_buffers
    from tileworkbench.compiler.passes.fuse_loops import fuse_loops
    from tileworkbench.compiler.passes.guard_accesses import guard_accesses
    from tileworkbench.compiler.passes.infer_layouts import InferLayouts
    from tileworkbench.compiler.passes.lower_tile_operators import LowerTileOperators
    from tileworkbench.compiler.passes.merge_k_steps import merge_k_steps
    from tileworkbench.compiler.passes.plan_scratch import plan_scratch
    from tileworkbench.compiler.passes.serialize_pipelines import serialize_pipelines
    from tileworkbench.compiler.passes.split_threads import SplitThreads
    from tileworkbench.compiler.passes.tabulate_codes import TabulateCodes
    from tileworkbench.compiler.passes.unite_clusters import unite_clusters
    from tileworkbench.compiler.passes.vectorize_loops import VectorizeLoops
    from tileworkbench.compiler.passes.widen_blocks import widen_blocks

    return (
        # What threads would repeat is checked in the program as it was written.
        check_thread_effects,
        # Checks of indices come before any pass that adds accesses: an error then names an access
        # that the user wrote.
        assert_accesses,
        # Blocks that run at once are threads of one worker, as those of a block are.
        unite_clusters,
        # From here on a block is one thread.
        SplitThreads(target),
        # Dead branches go before indices are checked: what is never executed is never out of range.
        simplify_expressions,
        check_accesses,
        widen_blocks,
        # Before layouts: a tile that grows is laid out as large as it becomes.
        merge_k_steps,
        serialize_pipelines,
        # Layouts before lowering: an operator is lowered for the layouts its neighbours agreed on.
        InferLayouts(target),
        LowerTileOperators(target),
        # Once copies are nests too, and before guards tell their borders apart.
        fuse_loops,
        # Guards after lowering, so that copies get them too; before vectorising, which needs to
        # know the predicates.
        guard_accesses,
        VectorizeLoops(target),
        # What is worth a table is known once vectors are.
        TabulateCodes(target),
        # Flattening needs the loops in their final shape to put the vector variable last in each
        # index.
        flatten_buffers,
        # Only flat programs are in the CPU stage, which `bind_blocks` enters.
        bind_blocks,
        plan_scratch,
    )


def gpu_pipeline(target: Target) -> tuple[Pass, ...]:
    """A block of threads: fragments in registers, tiles in shared memory, copies ahead of use."""
    from tileworkbench.compiler.passes.bind_threads import BindThreads
    from tileworkbench.compiler.passes.drop_unused_lets import drop_unused_lets
    from tileworkbench.compiler.passes.expand_pipelines import expand_pipelines
    from tileworkbench.compiler.passes.fence_proxies import fence_proxies
    from tileworkbench.compiler.passes.flatten_buffers import flatten_buffers
    from tileworkbench.compiler.passes.infer_thread_layouts import InferThreadLayouts
    from tileworkbench.compiler.passes.insert_barriers import InsertBarriers
    from tileworkbench.compiler.passes.lower_to_threads import LowerToThreads
    from tileworkbench.compiler.passes.plan_pipelines import plan_pipelines
    from tileworkbench.compiler.passes.plan_shared_memory import PlanSharedMemory
    from tileworkbench.compiler.passes.unroll_register_loops import unroll_register_loops

    return (
        simplify_expressions,
        check_accesses,
        # One thread index, which layouts are functions of.
        BindThreads(target),
        # The schedule is chosen for tile operators, so that each is laid out and lowered once.
        plan_pipelines,
        # Before layouts: loads into registers are laid out like any fragment.
        *_without_copies(target),
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


def _without_copies(target: Target) -> tuple[Pass, ...]:
    """Loads ahead of use where no engine copies from global to shared memory."""
    if target.machine.copies:
        return ()
    from tileworkbench.compiler.passes.prefetch_registers import prefetch_registers

    return (prefetch_registers,)


def _with_warpgroups(target: Target) -> tuple[Pass, ...]:
    """Roles of warpgroups where their instructions work by themselves."""
    from tileworkbench.compiler.lower.threads import wgmma

    if not wgmma.instructions(target):
        return ()
    from tileworkbench.compiler.passes.specialize_warps import SpecializeWarps

    return (SpecializeWarps(target),)


def pass_name(pass_: Pass) -> str:
    """The name of a pass as it is shown: that of its module."""
    return getattr(pass_, "__module__", "").rsplit(".", 1)[-1]
