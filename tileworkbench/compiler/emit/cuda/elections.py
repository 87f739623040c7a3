"""Branches that one thread takes to start the engine that copies tiles, whichever lane it is.

Such a branch names a thread. Where its whole warp comes to it, `elect.sync` may choose another lane
of the warp (PTX ISA, "elect.sync"): compilers know then that one lane is left. Else they add a loop
over lanes to each instruction for the engine, of four instructions. That is so in roles, where the
number of the warp is known to be the same in all lanes; elsewhere operands of the engine would be
moved one by one, which costs more. An arrival at a memory barrier gains nothing, and where products
stand in front of a store, ptxas computes their descriptors anew in each iteration.

Another lane must know all that the named thread knows. So the branch is all that its role does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Binary, Buffer, Load, Var
from tileworkbench.compiler.ir.rewrite import bound_by, statements, walk
from tileworkbench.compiler.ir.simt import Barrier, Engine, Role, SetRegisters, Start
from tileworkbench.compiler.ir.stmt import If, Kernel, Stmt, items

_WARP = 32


def elections(kernel: Kernel) -> dict[int, int]:
    """The warp whose lanes elect one, for each such branch of a role, by `id`."""
    if not any(isinstance(stmt, Role) for stmt in statements(kernel.body)):
        return {}
    return dict(_Elections(kernel).of_roles(kernel.body))


class _Elections:
    def __init__(self, kernel: Kernel) -> None:
        self.uniformity = Uniformity(kernel)
        self.thread = kernel.thread_vars[0] if len(kernel.thread_vars) == 1 else None

    def of_roles(self, body: Stmt) -> Iterator[tuple[int, int]]:
        stmts = items(body)
        for at, role in enumerate(stmts):
            if isinstance(role, Role) and role.start % _WARP == role.extent % _WARP == 0:
                work = [stmt for stmt in items(role.body) if not isinstance(stmt, SetRegisters)]
                alone = work[0] if len(work) == 1 and _is_quiet(stmts[:at]) else None
                if alone is not None and _loads(alone):
                    yield from self.of_branch(alone)

    def of_branch(self, branch: Stmt) -> Iterator[tuple[int, int]]:
        """The branch and its warp, if each lane would do the same."""
        match branch:
            case If(Binary("eq", left, right), then, None) if left is self.thread:
                number = const_int(right)
                if number is not None and number % _WARP == 0 and self.is_alike(then):
                    yield id(branch), number // _WARP

    def is_alike(self, body: Stmt) -> bool:
        own = {var for stmt in statements(body) for var in bound_by(stmt)}
        written = {each.buffer for s in statements(body) for each in accesses(s) if each.writes}
        private = {each for each in written if each.scope.startswith("local")}
        used = {node for node in walk(body) if isinstance(node, Var)} - own
        read = {node.buffer for node in walk(body) if isinstance(node, Load)} - private
        foreign: set[Var | Buffer] = used | read
        return foreign.isdisjoint(self.uniformity.varying)


def _is_quiet(stmts: Sequence[Stmt]) -> bool:
    """Whether, behind the last barrier of `stmts`, nobody touches shared memory but in roles."""
    for stmt in reversed(stmts):
        if isinstance(stmt, Barrier):
            return True
        below = () if isinstance(stmt, Role) else statements(stmt)
        if any(each.buffer.scope == "shared" for inner in below for each in accesses(inner)):
            return False
    return True


def _loads(branch: Stmt) -> bool:
    """Whether nothing but loads is started in a branch."""
    starts = (stmt for stmt in statements(branch) if isinstance(stmt, Start))
    return {stmt.engine for stmt in starts} == {Engine.TMA}
