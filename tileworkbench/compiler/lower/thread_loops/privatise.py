"""Thread loops get their variables. What a thread keeps from one loop to a later one is stored in
an array with an element for every thread, except what is computed from its index: that is computed
again.
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import add, int_const
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    bound_by,
    statements,
    substitute,
    variables,
    walk,
)
from tileworkbench.compiler.ir.stmt import (
    Alloc,
    Atomic,
    ExternCall,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    seq,
)
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.thread_loops.block import Block

_LARGEST = 40  # nodes of an expression that is computed anew instead of kept


def privatise(body: Stmt, block: Block, program: Program) -> Stmt:
    """`body` with all thread loops of `block` finished."""
    formulas = _formulas(body, block)
    arrays: dict[Var | Buffer, Buffer] = {
        name: block.array(name.name, name.dtype, _shape(name))
        for name in _kept(body, block)
        if name not in formulas
    }
    return _Privatiser(block, arrays, formulas, program).visit(body, None)


def _shape(name: Var | Buffer) -> tuple[Expr, ...]:
    return name.shape if isinstance(name, Buffer) else ()


def _formulas(body: Stmt, block: Block) -> dict[Var | Buffer, Expr]:
    """What lets of thread loops stand for that need no memory."""
    formulas: dict[Var | Buffer, Expr] = {}
    in_loops = {
        stmt.var
        for loop in statements(body)
        if _loop_of(loop, block) is not None
        for stmt in statements(loop)
        if isinstance(stmt, Let)
    }
    for stmt in statements(body):
        if not isinstance(stmt, Let) or stmt.var not in in_loops:
            continue
        names = set(variables(stmt.value)) & in_loops
        if not has_loads(stmt.value) and names <= formulas.keys():
            value = substitute(stmt.value, {var: formulas[var] for var in names})
            if sum(1 for _ in zip(walk(value), range(_LARGEST), strict=False)) < _LARGEST:
                formulas[stmt.var] = value
    return formulas


def _loop_of(stmt: Stmt, block: Block) -> Var | None:
    """The variable of a thread loop."""
    for var in bound_by(stmt):
        if var in block.loops:
            return var
    return None


def _kept(body: Stmt, block: Block) -> list[Var | Buffer]:
    """What is made in one thread loop and used in another."""
    home: dict[Node, Var] = {}
    used: dict[Node, set[Var | None]] = {}

    def visit(stmt: Stmt, loop: Var | None) -> None:
        loop = _loop_of(stmt, block) or loop
        if loop is not None:
            if isinstance(stmt, Alloc):
                home[stmt.buffer] = loop
            elif isinstance(stmt, Let | Atomic | ExternCall):
                home.update(dict.fromkeys(bound_by(stmt), loop))
        for child in stmt.children():
            if isinstance(child, Stmt):
                visit(child, loop)
            elif not (isinstance(stmt, Alloc) and child is stmt.buffer):
                for name in walk(child):
                    if isinstance(name, Var | Buffer):
                        used.setdefault(name, set()).add(loop)

    visit(body, None)
    vectors = _vector_loops(body, block)
    return [
        name  # type: ignore[misc]
        for name, loop in home.items()
        if used.get(name, {loop}) - {loop} or (isinstance(name, Buffer) and loop in vectors)
    ]


def _vector_loops(body: Stmt, block: Block) -> set[Var]:
    """The thread loops that can be executed in lock step: there, a thread's own memory is a lane of
    an array.
    """
    loops: set[Var] = set()
    for stmt in statements(body):
        loop = _loop_of(stmt, block)
        if loop is not None and isinstance(stmt, Parallel) and _in_lock_step(stmt.body, block):
            loops.add(loop)
    return loops


def _in_lock_step(body: Stmt, block: Block) -> bool:
    own = {stmt.var for stmt in statements(body) if isinstance(stmt, Let)} | {block.thread}
    for stmt in statements(body):
        if not isinstance(stmt, Seq | Let | Store | Alloc | If | For):
            return False
        if isinstance(stmt, For) and own & {*variables(stmt.start), *variables(stmt.stop)}:
            return False
    return True


class _Privatiser:
    def __init__(
        self,
        block: Block,
        arrays: dict[Var | Buffer, Buffer],
        formulas: dict[Var | Buffer, Expr],
        program: Program,
    ) -> None:
        self.block = block
        self.arrays = arrays
        self.formulas = formulas
        self.program = program

    def visit(self, stmt: Stmt, loop: Var | None) -> Stmt:
        over_threads = _loop_of(stmt, self.block)
        if over_threads is not None:
            return self.finish(stmt, over_threads)
        made = stmt.map_children(
            lambda child: self.visit(child, loop) if isinstance(child, Stmt) else child
        )
        self.check_uniform(stmt)
        return seq(made.stmts) if isinstance(made, Seq) else made

    def check_uniform(self, stmt: Stmt) -> None:
        """Raise `UnsupportedError` where code of the whole block needs one thread's value."""
        for child in stmt.children():
            if isinstance(child, Stmt):
                continue
            for node in walk(child):
                if node is self.block.thread or node in self.arrays or node in self.formulas:
                    raise UnsupportedError(
                        f"the threads of the block may disagree on '{node.name}', "
                        "which is used where they act together",
                        self.program.span(stmt.site),
                        hint="use what all threads have alike, or write this for single threads",
                    )

    def finish(self, stmt: Stmt, loop: Var) -> Stmt:
        """A thread loop with its own variable, and arrays for what it shares with others."""
        thread = add(loop, int_const(self.block.loops[loop]))
        made_here = self.made_in(stmt)
        stmt = substitute(
            stmt,
            {
                var: value
                for var, value in self.formulas.items()
                if isinstance(var, Var) and var not in made_here
            },
        )

        def change(node: object) -> object:
            if isinstance(node, Load) and node.buffer in self.arrays:
                array = self.arrays[node.buffer]
                return Load(array, (*node.indices, thread), node.predicate, node.safe)
            if isinstance(node, Var):
                if node is self.block.thread:
                    return thread
                if node in self.arrays and node not in made_here:
                    return Load(self.arrays[node], (thread,))
            return node

        def change_stmt(node: Stmt) -> Stmt:
            return self.keep(node, thread)

        return Rewriter(change, change_stmt)(stmt)  # type: ignore[no-any-return]

    def made_in(self, stmt: Stmt) -> set[Var]:
        return {
            var
            for node in walk(stmt)
            if isinstance(node, Let | Atomic | ExternCall)
            for var in bound_by(node)
        }

    def keep(self, stmt: Stmt, thread: Expr) -> Stmt:
        """`stmt`, with arrays for what it makes or writes."""
        match stmt:
            case Let() | Atomic() | ExternCall():
                if isinstance(stmt, Atomic) and stmt.buffer in self.arrays:
                    array = self.arrays[stmt.buffer]
                    stmt = replace(stmt, buffer=array, indices=(*stmt.indices, thread))
                copies = [
                    Store(self.arrays[var], (thread,), var, site=stmt.site)
                    for var in bound_by(stmt)
                    if var in self.arrays
                ]
                return seq([stmt, *copies]) if copies else stmt
            case Store(buffer, indices) if buffer in self.arrays:
                return replace(stmt, buffer=self.arrays[buffer], indices=(*indices, thread))
            case Alloc(buffer, init) if buffer in self.arrays:
                if init is None:
                    return Seq(())
                return Store(self.arrays[buffer], (thread,), init, site=stmt.site)
        return stmt
