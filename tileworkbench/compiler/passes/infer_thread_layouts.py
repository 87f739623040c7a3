"""Every tile gets the layout its operators agree on: which thread holds which elements of a
fragment, where the elements of a shared tile lie, and which thread executes which iterations.

Matrix instructions fix the layouts of their operands and results, and of all that is combined with
these. The rest is chosen so that memory is accessed in wide, contiguous pieces.

Before::

    C_local = T.alloc_fragment((4, 4), "float32", layout=Fragment((4, 4), ...))
    D_local = T.alloc_fragment((4,), "float32")
    for i, j in T.Parallel(4, 4):
        C_local[i, j] = C_local[i, j] + D_local[i]

After::

    D_local = T.alloc_fragment((4,), "float32", layout=Fragment(
        (4,), lambda i, rep: (2*i + rep, 0), replicate=2))
    for i, j in T.Parallel(4, 4, loop_layout=Fragment(
            (4, 4), lambda i, j: (2*i + j//2, j%2))):
        C_local[i, j] = C_local[i, j] + D_local[i]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import prod

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.decisions import LayoutDecision
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import buffers_of, replace_buffers, statements, with_body
from tileworkbench.compiler.ir.simt import Peer
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Kernel, Stmt
from tileworkbench.compiler.ir.tile import Gemm, Parallel, WarpPolicy
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads.chains import chain_policies, chain_remedy
from tileworkbench.compiler.lower.threads.choice import (
    Choice,
    choose_instructions,
    with_products,
)
from tileworkbench.compiler.lower.threads.conflicts import describe_failure
from tileworkbench.compiler.lower.threads.context import (
    OPERATORS,
    ThreadContext,
    with_contexts,
)
from tileworkbench.compiler.lower.threads.inference import Proposal
from tileworkbench.compiler.lower.threads.reasons import decisions_of, notes_of, retried
from tileworkbench.compiler.lower.threads.shapes import in_depth, of_one_shape, one_by_one
from tileworkbench.compiler.lower.threads.solver import Failure, Operator, Solver
from tileworkbench.compiler.lower.threads.table import infer_layout, traffic
from tileworkbench.compiler.target import Target

_TILES = ("shared", "local.fragment")


@dataclass(frozen=True, slots=True)
class InferThreadLayouts:
    """Choose layouts for the threads of each block; the reasons go to the program's notes, and the
    steps to its decisions.
    """

    target: Target

    def __call__(self, program: Program) -> Program:
        notes: list[str] = []
        decisions: list[LayoutDecision] = []
        layouts: dict[Buffer, Buffer] = {}
        loops: dict[int, Fragment] = {}
        launches = [stmt for stmt in statements(program.body) if isinstance(stmt, Kernel)]
        for kernel in launches:
            choice, solver, products, told = _solve_chosen(program, kernel, self.target)
            body = with_products(program.body, choice.products)
            program = with_body(program, with_products(body, products))
            notes += choice.notes
            notes += notes_of(solver, program)
            decisions += [*told, *decisions_of(solver)]
            layouts |= {b: replace(b, layout=layout) for b, layout in solver.known.items()}
            loops |= {id(solver.operators[at].stmt): f for at, f in solver.loops.items()}
        planned = replace_buffers(with_body(program, _with_loops(program.body, loops)), layouts)
        return replace(
            planned,
            stage=Stage.PLANNED,
            target=str(self.target),  # from here on the program is for one target
            notes=(*program.notes, *notes),
            decisions=(*program.decisions, *decisions),
        )


def _solve_chosen(
    program: Program, kernel: Kernel, target: Target
) -> tuple[Choice, Solver, dict[int, Gemm], list[LayoutDecision]]:
    """The instructions of one kernel's products, and its layouts with those; without instructions
    of warpgroups where layouts would not agree.
    """
    choice = choose_instructions(program, kernel, target)
    if choice.products:
        changed = replace(kernel, body=with_products(kernel.body, choice.products))
        try:
            return choice, *_solve_chains(program, changed, target)
        except LayoutError as error:
            choice = choice.without(f"with wgmma: {error.message}")
    return choice, *_solve_chains(program, kernel, target)


def _solve_chains(
    program: Program, kernel: Kernel, target: Target
) -> tuple[Solver, dict[int, Gemm], list[LayoutDecision]]:
    """The layouts of one kernel, the products whose policy or instruction had to change, by the
    `id` of the statement, and the reasons.

    A policy is a preference: where a product takes the result of another one from registers, both
    must be shared by the warps in the same way. So is the widest instruction that fits: where the
    products have different ones, their results lie differently.
    """
    deep = in_depth(kernel.body, ThreadContext.of(program, kernel, target))
    if deep:
        with suppress(LayoutError):
            changed = replace(kernel, body=with_products(kernel.body, deep))
            return solve(program, changed, target), deep, []
    try:
        return solve(program, kernel, target), {}, []
    except LayoutError as error:
        failed = error
    for products, tried in _alternatives(program, kernel, target):
        changed = replace(kernel, body=with_products(kernel.body, products))
        with suppress(LayoutError):
            return solve(program, changed, target), products, [retried(failed, products, tried)]
    remedy = chain_remedy(kernel.body, prod(kernel.threads), target.machine)
    failed.hint = remedy or failed.hint
    raise failed


def _alternatives(
    program: Program, kernel: Kernel, target: Target
) -> Iterator[tuple[dict[int, Gemm], str]]:
    """Products to try, by the `id` of the statement that each replaces, and what failed before."""
    context = ThreadContext.of(program, kernel, target)
    alone = one_by_one(kernel.body, context)
    if alone:
        yield alone, "several results across"
    policies = chain_policies(kernel.body)
    chained = {
        id(stmt): replace(alone.get(id(stmt), stmt), policy=policies[id(stmt)])
        for stmt in statements(kernel.body)
        if isinstance(stmt, Gemm) and id(stmt) in policies and stmt.policy is WarpPolicy.SQUARE
    }
    if chained:
        yield alone | chained, "warps in squares"
    alike = of_one_shape(kernel.body, context)
    if alike:
        yield alone | alike, "instructions of different shapes"


def solve(program: Program, kernel: Kernel, target: Target) -> Solver:
    """The layouts of one kernel.

    Raises `LayoutError` where its operators do not agree.
    """
    context = ThreadContext.of(program, kernel, target)
    operators = [
        Operator(stmt, tuple(b for b in buffers_of(stmt) if b.scope in _TILES), threads)
        for stmt, threads in with_contexts(kernel.body, context)
    ]
    tiles = [
        stmt.buffer
        for stmt in statements(kernel.body)
        if isinstance(stmt, Alloc | Alias | Peer) and stmt.buffer.scope in _TILES
    ]
    solver = Solver(operators, infer_layout, traffic, _views(kernel.body, tiles))
    try:
        solver.solve(_given(kernel.body, tiles, context), tiles)
    except Failure as failure:
        raise describe_failure(failure, solver) from failure
    return solver


def _given(
    body: Stmt, tiles: list[Buffer], context: ThreadContext
) -> Iterator[tuple[Proposal, bool]]:
    """What is fixed before operators are asked: the user's layouts, and fragments that code outside
    operators reads, which every thread must hold.
    """
    for buffer in tiles:
        if buffer.layout is not None:
            _check_threads(buffer, context)
            reason = "has a given layout (T.annotate_layout, or an earlier pass)"
            yield Proposal(buffer, buffer.layout, reason), True
    for buffer in dict.fromkeys(_read_outside(body)):
        shape = const_shape(buffer)
        if shape is not None and buffer.layout is None:
            layout = Fragment.fully_replicated(shape, context.threads)
            yield Proposal(buffer, layout, "is read by every thread, outside operators"), True


def _check_threads(buffer: Buffer, context: ThreadContext) -> None:
    layout = buffer.layout
    if isinstance(layout, Fragment) and layout.threads > context.threads:
        raise LayoutError(
            f"the layout of '{buffer.name}' is for {layout.threads} threads, and a block has "
            f"{context.threads}"
        )


def _read_outside(stmt: Stmt) -> Iterator[Buffer]:
    if isinstance(stmt, (*OPERATORS, Alloc, Alias)):
        return
    for child in stmt.children():
        if isinstance(child, Stmt):
            yield from _read_outside(child)
        elif isinstance(child, Expr):
            yield from (b for b in buffers_of(child) if b.scope == "local.fragment")


def _views(body: Stmt, tiles: list[Buffer]) -> dict[Buffer, tuple[Buffer, ...]]:
    """The other tiles that share the memory of each tile."""
    owner = owners(body)
    # What another block has of a tile lies there as it does here.
    owner |= {s.buffer: s.source for s in statements(body) if isinstance(s, Peer)}
    groups: dict[Buffer, list[Buffer]] = {}
    for buffer in tiles:
        groups.setdefault(owner.get(buffer, buffer), []).append(buffer)
    return {
        buffer: tuple(other for other in group if other is not buffer)
        for group in groups.values()
        for buffer in group
        if len(group) > 1
    }


def _with_loops(stmt: Stmt, loops: dict[int, Fragment]) -> Stmt:
    if isinstance(stmt, Parallel):
        layout = loops.get(id(stmt))
        return stmt if layout is None else replace(stmt, loop_layout=layout)
    return stmt.map_children(
        lambda child: _with_loops(child, loops) if isinstance(child, Stmt) else child
    )
