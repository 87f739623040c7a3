"""Whether one tensor may be passed for both an input and an output of a kernel."""

from __future__ import annotations

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Expr, Load, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.stmt import Kernel, Let, Store, items
from tileworkbench.compiler.ir.tile import Parallel


def is_elementwise(program: Program) -> bool:
    """Whether the program is one launch of one `T.Parallel` nest that stores to one tensor, each
    element at most once and from the same element of other tensors.

    Then every element is read before it is written and by the same iteration, so that input and
    output may be the same memory.
    """
    kernels = [stmt for stmt in statements(program.body) if isinstance(stmt, Kernel)]
    if len(kernels) != 1 or program.body is not kernels[0]:
        return False
    kernel, nest = kernels[0], kernels[0].body
    if not isinstance(nest, Parallel):
        return False
    stores = [stmt for stmt in items(nest.body) if isinstance(stmt, Store)]
    if len(stores) != 1 or any(not isinstance(s, Let | Store) for s in items(nest.body)):
        return False
    store = stores[0]
    loads = [node for node in walk(nest.body) if isinstance(node, Load)]
    if any(load.indices != store.indices for load in loads if load.buffer.shape):
        return False
    loops = dict(zip((*kernel.vars, *nest.vars), (*kernel.grid, *nest.extents), strict=True))
    return _is_injective(store.indices, loops, Ranges(program))


def _is_injective(indices: tuple[Expr, ...], loops: dict[Var, Expr], ranges: Ranges) -> bool:
    """Whether no two iterations have the same indices: each loop variable is a digit of one index,
    with room for all smaller digits below it.
    """
    left = {var for var, extent in loops.items() if const_int(extent) != 1}
    for index in indices:
        terms = sorted(ranges.linear(index).terms, key=lambda term: term[1])
        reach = 1  # one more than what the smaller digits add up to
        for position, (atom, factor) in enumerate(terms):
            if not isinstance(atom, Var) or atom not in left or factor < reach:
                return False
            left.discard(atom)
            extent = const_int(loops[atom])
            if extent is None:  # only the largest digit may have any extent
                if position < len(terms) - 1:
                    return False
            else:
                reach += factor * (extent - 1)
    return not left
