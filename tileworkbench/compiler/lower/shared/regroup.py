"""Other blocks for the same elements: a block and a place in its tile make one index."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.rewrite import Rewriter, substitute, variables
from tileworkbench.compiler.ir.stmt import Stmt, Store

MIN_BLOCKS = 32
"""As many are left for the workers where blocks are joined."""


def moving(index: Expr, ranges: Ranges) -> set[Var]:
    """The variables that an index depends on, names seen through."""
    return {var for atom, _ in ranges.linear(index).terms for var in variables(atom)}


def regrouped(
    body: Stmt,
    block: Var,
    item: Var,
    before: int,
    after: int,
    ranges: Ranges,
    tiles: Collection[Buffer] = (),
) -> Stmt | None:
    """The body with `block * after + item` for `block * before + item`; None where the two are used
    in another way. There is one block where `after` is 0.

    In `tiles`, whose first dimension has an element for each item of a block, `item` may stand by
    itself.
    """
    new_block, new_item = Var(f"{block.name}'", block.dtype), Var(f"{item.name}'", item.dtype)

    def change(node: object) -> object:
        if isinstance(node, Load) and node.buffer in tiles and node.indices[0] is item:
            return replace(node, indices=(new_item, *node.indices[1:]))
        if not isinstance(node, Binary) or node.op not in ("add", "sub"):
            return node
        linear = ranges.linear(node)
        factor = linear.coefficient(item)
        if not factor or linear.coefficient(block) != factor * before:
            return node
        others = tuple(term for term in linear.terms if term[0] not in (block, item))
        start = ((new_block, factor * after),) if after else ()
        return to_expr(Linear((*others, *start, (new_item, factor)), linear.constant), node.dtype)

    def store(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer in tiles and stmt.indices[0] is item:
            return replace(stmt, indices=(new_item, *stmt.indices[1:]))
        return stmt

    made: Stmt = Rewriter(change, store)(body)
    if {block, item} & set(variables(made)):
        return None
    back: dict[Var, Expr] = {new_block: block, new_item: item}
    return substitute(made, back)  # type: ignore[no-any-return]
