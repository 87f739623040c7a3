"""What the simulator finds wrong with accesses, as sentences, and what to do about each."""

from __future__ import annotations

NEVER_WRITTEN = "read before it is written"
NOT_LANDED = "read before the wait for the asynchronous copy that writes it"
OVERTAKEN = "written while an asynchronous copy to it is under way"
SOURCE_WRITTEN = "written while an asynchronous copy still reads it"
STORE_OVERTAKEN = "written while T.tma_copy still reads it"
NOT_STORED = "read before the wait for the T.tma_copy that writes it"
ENDED = "still read by T.tma_copy when the block ends"
NOT_FENCED = "read by the copy engine or tensor cores, with no fence behind the write of a thread"
NOT_FENCED_WRITE = "written by the copy engine, with no fence behind the write of a thread"
SENDER_ENDED = "still read by a copy to another block when its own block ends"
NOT_FORMED = "read before the wait for the asynchronous product that writes it"
PRODUCT_OVERTAKEN = "written while an asynchronous product into it is under way"
REGISTERS_NOT_FENCED = "used by an asynchronous product with no fence behind an access of a thread"
DESCRIPTOR_MISPLACED = "a matrix descriptor begins at no multiple of 16 bytes"
DESCRIPTOR_OUTSIDE = "a matrix descriptor reads outside the tile"
OPERAND_WRITTEN = "written while an asynchronous product still reads it"

ITERATIONS_WRITE = "two iterations of one parallel loop write this element"
ITERATION_READS = "one iteration of a parallel loop reads what another one writes"
BLOCKS_WRITE = "two blocks write this element"
BLOCK_READS = "one block reads what another one writes"
THREADS_WRITE = "two threads write this element, unordered by a barrier"
THREAD_READS = "one thread reads what another one writes, unordered by a barrier"
PEERS_WRITE = "two blocks of the cluster write this element, unordered by a barrier"
PEER_READS = "one block of the cluster reads what another one writes, unordered by a barrier"
MAY_HAVE_ENDED = "belongs to a block that no barrier keeps from ending before this use of it"
UNORDERED_INIT = "used by a thread that no barrier orders behind its initialisation"
TOO_MANY_ARRIVALS = "arrived at more often in one phase than it was made for"
UNORDERED_ARRIVAL = "arrived at by a thread that no wait orders behind the phase before"

NOT_ALIGNED = "the address of this access is not a multiple of its size"
BOX_OUTSIDE = "a box of the copy engine lies outside the tile"
BOX_MISPLACED = "a box of the copy engine begins where it can store none"
NOT_CONTIGUOUS = "the elements of this vector are not next to each other in memory"
ABSENT = "the value of a thread that does not take part in the exchange"
DIVERGENT = "the threads of a block meet at different statements"
PART_OF_A_WARP = "only some threads of a warp reach this barrier"

GUARD = "guard the access with an 'if', or make the buffer as large as its indices need"
"""What to do about an access outside its buffer."""

_ATOMIC = "or add to it with T.atomic_add"
_REMEDIES = {
    NEVER_WRITTEN: "write it first, with T.clear, T.fill or T.copy",
    NOT_LANDED: "wait for the copy first, with T.ptx_wait_group(0) or at its memory barrier",
    OVERTAKEN: "wait for the copy first, with T.ptx_wait_group(0) or at its memory barrier",
    SOURCE_WRITTEN: "wait for the copy first, with T.ptx_wait_group(0) or at its memory barrier",
    STORE_OVERTAKEN: "wait for the copy first, with T.tma_store_arrive() and T.tma_store_wait(0)",
    NOT_STORED: "wait for the copy, with T.tma_store_arrive() and T.tma_store_wait(0, read=False)",
    ENDED: "wait for the copy at the end, with T.tma_store_arrive() and T.tma_store_wait(0)",
    NOT_FENCED: "put T.fence_proxy_async() behind the write, in front of what the threads meet at",
    NOT_FENCED_WRITE: "put T.fence_proxy_async() between the two writes",
    SENDER_ENDED: "let all blocks of the cluster wait at its end, with T.cluster_sync()",
    NOT_FORMED: "wait for the product first, with T.wait_wgmma(0) or at its memory barrier",
    PRODUCT_OVERTAKEN: "wait for the product first, with T.wait_wgmma(0) or at its memory barrier",
    REGISTERS_NOT_FENCED: "fence the registers in front of the first product of a group",
    DESCRIPTOR_MISPLACED: "begin operands at multiples of 16 bytes",
    DESCRIPTOR_OUTSIDE: "give the descriptor the distances that the tile's layout has",
    OPERAND_WRITTEN: "wait for the product first, with T.wait_wgmma(0) or at its memory barrier",
    ITERATIONS_WRITE: f"let each iteration write elements of its own, {_ATOMIC}",
    ITERATION_READS: f"split the loop in two, write another buffer than it reads, {_ATOMIC}",
    BLOCKS_WRITE: f"let each block write elements of its own, {_ATOMIC}",
    BLOCK_READS: "read it in a second T.Kernel, or behind T.sync_grid()",
    THREADS_WRITE: f"let one thread write it, put T.sync_threads() between the writes, {_ATOMIC}",
    THREAD_READS: f"put T.sync_threads() between the two accesses, {_ATOMIC}",
    PEERS_WRITE: "put T.cluster_sync() between the two accesses",
    PEER_READS: "put T.cluster_sync() between the two accesses",
    MAY_HAVE_ENDED: "let all blocks of the cluster wait at its end, with T.cluster_sync()",
    UNORDERED_INIT: "put T.sync_threads() behind the initialisation",
    TOO_MANY_ARRIVALS: "make it for all threads that arrive in a phase",
    UNORDERED_ARRIVAL: "make it for all threads that arrive in a phase, or wait for that phase",
    NOT_ALIGNED: "begin the vector at a multiple of its length, or access the elements one by one",
    BOX_OUTSIDE: "copy no more than the tile has room for, into a version that it has",
    BOX_MISPLACED: "let the tile begin at a multiple of 128 bytes, of 8 rows where it is swizzled",
    NOT_CONTIGUOUS: "let the last index grow by one from element to element",
    ABSENT: "let all threads of the warp take part, or exchange within the active ones only",
    DIVERGENT: "let all threads of the block reach the same barrier",
    PART_OF_A_WARP: "move the barrier out of the branch, so that whole warps reach it",
}

# What the errors of the PTX interpreter are called here.
PTX_PROBLEMS = {
    "RaceError": THREAD_READS,
    "UninitializedReadError": NEVER_WRITTEN,
    "MisalignedAccessError": NOT_ALIGNED,
    "DivergenceError": PART_OF_A_WARP,
    "DeadlockError": DIVERGENT,
}


def remedy(problem: str) -> str | None:
    """What to do about a problem, whose sentence numbers may follow behind a colon; None where the
    sentence is enough.
    """
    return _REMEDIES.get(problem.partition(":")[0])
