"""The passes of a CPU, in order."""

from __future__ import annotations

from tileworkbench.compiler.passes.assert_accesses import assert_accesses
from tileworkbench.compiler.passes.bind_blocks import bind_blocks
from tileworkbench.compiler.passes.check_accesses import check_accesses
from tileworkbench.compiler.passes.check_thread_effects import check_thread_effects
from tileworkbench.compiler.passes.flatten_buffers import flatten_buffers
from tileworkbench.compiler.passes.fuse_loops import fuse_loops
from tileworkbench.compiler.passes.guard_accesses import guard_accesses
from tileworkbench.compiler.passes.infer_layouts import InferLayouts
from tileworkbench.compiler.passes.interchange_loops import InterchangeLoops
from tileworkbench.compiler.passes.lower_tile_operators import LowerTileOperators
from tileworkbench.compiler.passes.merge_k_steps import merge_k_steps
from tileworkbench.compiler.passes.pipeline import Pass
from tileworkbench.compiler.passes.plan_scratch import plan_scratch
from tileworkbench.compiler.passes.read_in_place import ReadInPlace
from tileworkbench.compiler.passes.serialize_pipelines import serialize_pipelines
from tileworkbench.compiler.passes.share_panels import share_panels
from tileworkbench.compiler.passes.simplify_expressions import simplify_expressions
from tileworkbench.compiler.passes.split_rows import split_rows
from tileworkbench.compiler.passes.split_threads import SplitThreads
from tileworkbench.compiler.passes.tabulate_codes import TabulateCodes
from tileworkbench.compiler.passes.turn_reads import TurnReads
from tileworkbench.compiler.passes.unite_clusters import unite_clusters
from tileworkbench.compiler.passes.vectorize_loops import VectorizeLoops
from tileworkbench.compiler.passes.widen_blocks import widen_blocks
from tileworkbench.compiler.target import Target


def cpu_pipeline(target: Target) -> tuple[Pass, ...]:
    """One worker runs a block: no threads, no pipelining, tiles in a scratch arena."""
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
        # Before expressions are simplified, which folds the numbers of loops that ran once.
        serialize_pipelines,
        # Dead branches go before indices are checked: what is never executed is never out of range.
        simplify_expressions,
        check_accesses,
        widen_blocks,
        split_rows,
        # Before layouts: a tile that grows is laid out as large as it becomes.
        merge_k_steps,
        # After tiles have grown, and before layouts: what is no tile has none.
        ReadInPlace(target),
        # Copies that it adds are turned by the layouts of their tiles.
        TurnReads(target),
        # Layouts before lowering: an operator is lowered for the layouts its neighbours agreed on.
        InferLayouts(target),
        LowerTileOperators(target),
        # Once products have panels, and before anything looks at what a block accesses.
        share_panels,
        # Once copies are nests too, and before guards tell their borders apart.
        fuse_loops,
        # What is left of loops over tiles goes on in registers.
        InterchangeLoops(target),
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
