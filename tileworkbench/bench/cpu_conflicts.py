"""Cache lines that loops lose because rows lie at the same places of the innermost cache.

A line may lie in one set of a cache only, which has a few ways. The innermost cache is looked
through while the address of the page is still being found, so a way is as long as a page (4 KiB),
and addresses that are a multiple of it apart belong to the same set. A loop down the column of a
tile whose rows are that long needs a way for each row. Where it has more rows than ways, each
access finds its line gone, although the iteration around the loop wants the next element of it.
"""

from __future__ import annotations

import math

from tileworkbench.bench.cpu_block import Env
from tileworkbench.bench.cpu_terms import shift
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.rewrite import walk

_WAY, _LINE = 4096, 64  # bytes


def lines_again(body: st.Stmt, var: Var, around: Var, trips: int, env: Env) -> int:
    """How many lines each of the `trips` iterations of an innermost loop over `var` fetches again,
    those that it stores to counted twice, for they also go back.

    `around` is the variable of the next loop around it; `body` does not have vectors in it.
    """
    ways = processor.cache_sizes().l1 // _WAY
    fetched: dict[Buffer, int] = {}
    for node in walk(body):
        if not isinstance(node, ir.Load | st.Store) or not node.indices:
            continue
        index, size = node.indices[-1], node.buffer.dtype.bytes
        down, along = (abs(shift(index, each, env) or 0) * size for each in (var, around))
        if down < _LINE or not 0 < along < _LINE:
            continue
        places = _WAY // math.gcd(down, _WAY)
        if trips > places * ways:
            stored = 2 if isinstance(node, st.Store) else 1
            fetched[node.buffer] = max(fetched.get(node.buffer, 0), stored)
    return sum(fetched.values())
