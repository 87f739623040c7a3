"""Started operations are executed where they start; waits for groups of them, and fences between
their writes and those of threads, are removed.

That is one of the orders in which they may happen, and the one that code without an engine for them
has. The simulator runs the program before this pass in the latest order instead, so it finds a wait
that is missing. Arrivals that wait for operations become plain ones.

What a GPU has an engine for stays, outside of pipelined loops, which start and count what they do
themselves: copies that threads start (cp.async), with their groups, where it is plain that each is
waited for and read behind that; loads of the copy engine (TMA) in front of an arrival, at the same
memory barrier, of the thread that starts them, and those to several blocks; its additions to
tensors; products of warpgroups in front of a wait. Waits for the launch before stay, too, where
launches overlap.

Before::

    with T.started("cp.async"):
        T.copy(A[0:64], A_shared)
    T.commit_group()
    T.wait_group(pending=0)

After::

    T.copy(A[0:64], A_shared)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.multicasts import multicasts
from tileworkbench.compiler.analysis.pending import Pending
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.simt import (
    BarrierArrive,
    CommitGroup,
    Engine,
    Fence,
    GridDependency,
    SetRegisters,
    Start,
    WaitGroup,
)
from tileworkbench.compiler.ir.stmt import For, Kernel, Seq, Stmt, seq
from tileworkbench.compiler.ir.tile import Copy, Pipelined
from tileworkbench.compiler.schedule.user_registers import registers_of_roles
from tileworkbench.compiler.schedule.user_starts import (
    started_loads,
    started_products,
    started_sums,
)
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class CompleteOperations:
    """Execute every operation where it starts. Copies that the target's threads can start stay."""

    target: Target

    def __call__(self, program: Program) -> Program:
        machine = None if self.target.kind == "cpu" else self.target.machine
        copies = None if machine is None else machine.thread_copies
        has_engine = copies is not None and not copies.in_line
        has_loads = machine is not None and machine.box_copies("shared") is not None
        has_products = machine is not None and bool(machine.started_products)

        def change(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel):
                return stmt
            engines = {Engine.CP_ASYNC} if has_engine and _keeps_copies(stmt.body) else set()
            loads = has_loads and started_loads(stmt)
            products = has_products and started_products(stmt)
            if products:
                engines.add(Engine.WGMMA)
            moves = registers_of_roles(stmt, program, machine) if machine and has_products else []
            early = machine is not None and machine.early_launch
            waits = [each for each in statements(stmt) if isinstance(each, GridDependency)] * early
            sums = started_sums(stmt) if has_loads else []
            if sums:
                engines.add(Engine.TMA_STORE)
            sent = [each for one in multicasts(stmt.body) for each in one.parts] * has_loads
            kept = [*(loads or ()), *(products or ()), *moves, *waits, *sums, *sent]
            starts = frozenset(map(id, kept))
            return _completed(stmt, frozenset(engines), starts)

        return with_body(program, Rewriter(rewrite_stmt=change)(program.body))


def _completed(stmt: Stmt, engines: frozenset[Engine], kept: frozenset[int]) -> Stmt:
    """`stmt` where only what these engines do, and these statements (by identity), is started."""
    if id(stmt) in kept:
        return stmt
    made = stmt.map_children(
        lambda child: _completed(child, engines, kept) if isinstance(child, Stmt) else child
    )
    if isinstance(made, Seq) and made is not stmt:
        made = seq(made.stmts)
    return _complete(made, engines)


def _complete(stmt: Stmt, kept: frozenset[Engine]) -> Stmt:
    match stmt:
        case Start(body, engine) if engine is not Engine.CP_ASYNC or engine not in kept:
            return body
        case CommitGroup(engine) | WaitGroup(engine=engine) if engine not in kept:
            return Seq(())
        case Fence("async") | SetRegisters() | GridDependency():
            return Seq(())
        case BarrierArrive(_, engine) if engine is not None:
            return replace(stmt, engine=None)
    return stmt


def _keeps_copies(body: Stmt) -> bool:
    """Whether each copy that threads start is waited for, and read behind that."""
    order: list[tuple[Stmt, bool]] = []
    _collect(body, True, order)
    pending = Pending()
    unread: set[Buffer] = set()  # started, and not read behind their wait yet
    for stmt, certain in order:
        match stmt:
            case Start(Copy(src, dst), Engine.CP_ASYNC):
                fits = src.buffer.scope == "global" and dst.buffer.scope == "shared"
                if not (certain and fits and src.buffer.dtype == dst.buffer.dtype):
                    return False
                unread.add(dst.buffer)
                pending.start(stmt)
            case Start(_, Engine.CP_ASYNC) | BarrierArrive(_, Engine.CP_ASYNC):
                return False
            case Pipelined(num_stages=stages) if stages > 1:
                return False
            case CommitGroup() | WaitGroup(0) if certain:
                pending.order(stmt)
            case _:
                read = {access.buffer for access in accesses(stmt) if access.reads}
                unread -= read - pending.written()
    return not unread


def _collect(stmt: Stmt, certain: bool, order: list[tuple[Stmt, bool]]) -> None:
    """The statements below `stmt` in program order, each with whether no condition decides about
    it.
    """
    order.append((stmt, certain))
    inside = certain and isinstance(stmt, Seq | For | Pipelined)
    for child in stmt.children():
        if isinstance(child, Stmt) and not isinstance(stmt, Start):
            _collect(child, inside, order)
