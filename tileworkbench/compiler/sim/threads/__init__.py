"""Execution of programs thread by thread: the threads of a block are the lanes of numpy vectors.

`statements` makes closures of the statements, `strands` runs groups of threads that part where they
disagree and wait for each other, `memory` checks every access by what `order` and `marks` know of
the others, and `counters` sums up what the warps did.
"""
