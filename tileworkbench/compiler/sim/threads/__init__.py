"""Execution of programs thread by thread: the threads of a block are the lanes of numpy vectors.

`statements` makes closures of the statements, `strands` and `blocks` run groups of threads, which
split where threads disagree and wait for each other, `registers`, `arena` and `tensors` are the
memories (`peers` those of other blocks), which check every access by what `order` and `marks` know
of the others, `clusters` and `launch` run blocks, `counters` sums up what the warps did, and
`listing` tells what accesses cost without a run.

What it defines beyond the text of the IR's classes:

- Before stage SIMT threads run in lock step: those of a group synchronise after every statement,
  asynchronous copies land at once. Threads in different roles (`Role`) are groups of their own,
  until a statement behind the roles. Tile operators are executed once by all threads that reach
  them, which wait for each other there.
- In stage SIMT threads are ordered by barriers and mbarriers only. Unordered accesses of one byte
  (one element of a tensor) by two threads are races unless both read, both are atomic, or both are
  stores of one statement with the same value. Atomic accesses of tensors are not checked.
- An asynchronous copy lands at the wait that covers its group, for the thread that issued it. Until
  then its destination is undefined, and neither to be read nor written.
- Accesses outside a tensor are masked before stage SIMT and an error in it.
- Groups of threads run one after another until all of them are blocked; `SimOptions.seed` changes
  their order. They join again at the end of the statement in which they parted, if all get there.
- The blocks of a cluster run side by side, and so do all blocks where the grid has a barrier.
  Barriers order the blocks of a cluster as they order the threads of one block. Shared memory of
  another block may be used only where barriers order its allocation before the use, and the end of
  that block after it.
- Warp-wide operations are executed by whole warps, or by the threads of their mask.
"""
