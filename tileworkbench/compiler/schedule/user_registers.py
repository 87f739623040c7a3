"""Registers that a kernel moves between its roles itself (T.set_max_nreg).

The threads of a block begin with equal parts of the registers of a multiprocessor, in units of
eight, and a warpgroup that asks for more waits until others have given them back (PTX ISA,
"setmaxnreg"). What all roles ask for must be there at last.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tileworkbench.compiler.diagnostics import ResourceError, TileValueError
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Role, SetRegisters
from tileworkbench.compiler.ir.stmt import Kernel
from tileworkbench.compiler.machine.machine import Machine


def registers_of_roles(kernel: Kernel, program: Program, machine: Machine) -> list[SetRegisters]:
    """The statements in roles of `kernel`, which are for the target.

    Raises `TileValueError` where a role asks for more and gets fewer, or the other way round, and
    `ResourceError` where all roles together ask for more than there are.
    """
    shares = machine.register_shares
    if shares is None:
        return []
    threads = prod(kernel.threads)
    begin = shares.begin(machine.registers, threads)
    made: list[SetRegisters] = []
    needed, apart = 0, threads
    for role in _roles(kernel):
        moves = [each for each in statements(role.body) if isinstance(each, SetRegisters)]
        made += moves
        if moves:
            _check(moves[0], begin, threads, program)
            needed += moves[-1].count * role.extent
            apart -= role.extent
    total = needed + begin * apart
    if made and total > machine.registers:
        worst = max(made, key=lambda each: each.count)
        raise ResourceError(
            f"the roles of the block need {total} registers, '{machine.name}' has "
            f"{machine.registers}: {threads} threads begin with {begin} each",
            program.span(worst.site),
            hint="let another role give registers back with T.set_max_nreg(count, 0), or ask for "
            "fewer",
        )
    return made


def _roles(kernel: Kernel) -> Iterator[Role]:
    """Those that are in no other one."""
    inner = {
        id(stmt)
        for role in statements(kernel.body)
        if isinstance(role, Role)
        for stmt in statements(role.body)
    }
    for stmt in statements(kernel.body):
        if isinstance(stmt, Role) and id(stmt) not in inner:
            yield stmt


def _check(first: SetRegisters, begin: int, threads: int, program: Program) -> None:
    """That the first statement of a role moves registers in the direction it says."""
    if first.count < begin if first.increase else first.count > begin:
        word, flag = ("more", 0) if first.increase else ("fewer", 1)
        raise TileValueError(
            f"{first.count} registers are not {word} than the {begin} that each of {threads} "
            "threads begins with",
            program.span(first.site),
            hint=f"write T.set_max_nreg({first.count}, {flag})",
        )
