"""Which products of a kernel are for warpgroups, on targets that have instructions of those, and
why the others are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Engine, Start
from tileworkbench.compiler.ir.stmt import Kernel, Stmt
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.compiler.lower.threads import wgmma
from tileworkbench.compiler.lower.threads.context import ThreadContext, with_contexts
from tileworkbench.compiler.lower.threads.gemm import product_of
from tileworkbench.compiler.machine.instructions import WARPGROUP_WARPS
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class Choice:
    """The products for warpgroups, by the `id` of the statement they replace, and a sentence about
    each product.
    """

    products: Mapping[int, Gemm]
    notes: tuple[str, ...]

    def without(self, reason: str) -> Choice:
        """The choice of none, for one `reason`."""
        return Choice({}, (f"T.gemm: mma.sync, because {reason}",))


def choose_instructions(program: Program, kernel: Kernel, target: Target) -> Choice:
    """The choice for `kernel`; nothing is said where the target has no such instructions.

    Raises `TileValueError` for a `T.wgmma_gemm` of threads that are no warpgroups.
    """
    rows = wgmma.instructions(target)
    if not rows:
        return Choice({}, ())
    products: dict[int, Gemm] = {}
    notes = []
    by_hand = {
        id(inner)
        for stmt in statements(kernel.body)
        if isinstance(stmt, Start) and stmt.engine is Engine.WGMMA
        for inner in statements(stmt.body)
    }
    context = ThreadContext.of(program, kernel, target)
    gemms = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Gemm)]
    for stmt, threads in with_contexts(kernel.body, context):
        if isinstance(stmt, Gemm):
            product = product_of(stmt)
            if id(stmt) in by_hand and (reason := wgmma.objection_to_threads(threads)):
                whole = threads.lanes * WARPGROUP_WARPS
                raise TileValueError(
                    f"T.wgmma_gemm is executed by warpgroups, and {reason}",
                    program.span(stmt.site),
                    hint=f"let {whole} threads execute it, or a multiple, from a multiple on",
                )
            others = (other for other in gemms if other is not stmt)
            reason = wgmma.objection(stmt, product, others, threads)
            said = f"mma.sync, because {reason}"
            if not reason:
                products[id(stmt)] = replace(stmt, instruction=rows[0].name)
                said = wgmma.describe(products[id(stmt)], product, threads)
            span = program.span(stmt.site)
            notes.append(f"T.gemm{f', line {span.line}' if span else ''}: {said}")
    return Choice(products, tuple(notes))


def with_products(stmt: Stmt, products: Mapping[int, Gemm]) -> Stmt:
    """`stmt` with the products of these statements replaced; nothing else is made anew."""
    if isinstance(stmt, Gemm):
        return products.get(id(stmt), stmt)
    if not products:
        return stmt
    return stmt.map_children(
        lambda child: with_products(child, products) if isinstance(child, Stmt) else child
    )
