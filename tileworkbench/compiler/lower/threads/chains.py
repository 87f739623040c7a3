"""Products that pass their results on in registers, as attention does.

A warp that multiplies rows of such a result must hold them whole, so the warps share the products
of the chain by rows.
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Region
from tileworkbench.compiler.ir.rewrite import buffers_of, statements
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Copy, Fill, Gemm, Parallel, Reduce, Scan, WarpPolicy
from tileworkbench.compiler.machine.instructions import Scope
from tileworkbench.compiler.machine.machine import Machine

_OPERATORS = (Copy, Gemm, Fill, Reduce, Scan, Parallel)


def chain_policies(body: Stmt) -> dict[int, WarpPolicy]:
    """The policy that each product of a chain needs, by the `id` of its statement: whole rows of
    what it makes, but whole columns where it reads operand B (transposed) from registers, whose
    rows are columns of the result.
    """
    policies: dict[int, WarpPolicy] = {}
    for chain in products_in_chains(body):
        if any(_in_registers(gemm.a) or _in_registers(gemm.b) for gemm in chain):
            for gemm in chain:
                by_columns = _in_registers(gemm.b) and not _in_registers(gemm.a)
                policies[id(gemm)] = WarpPolicy.FULL_COL if by_columns else WarpPolicy.FULL_ROW
    return policies


def _in_registers(operand: Region) -> bool:
    return operand.buffer.scope == "local.fragment"


def products_in_chains(body: Stmt) -> list[list[Gemm]]:
    """The products below `body` in groups that operators on fragments tie together."""
    owner = owners(body)
    groups: list[tuple[set[Buffer], list[Gemm]]] = []
    for stmt in statements(body):
        if not isinstance(stmt, _OPERATORS):
            continue
        held = (buffer for buffer in buffers_of(stmt) if buffer.scope == "local.fragment")
        used = {owner.get(buffer, buffer) for buffer in held}
        products = [stmt] if isinstance(stmt, Gemm) else []
        apart = []
        for buffers, gemms in groups:
            if buffers & used:
                used, products = used | buffers, [*gemms, *products]
            else:
                apart.append((buffers, gemms))
        groups = [*apart, (used, products)]
    return [gemms for _, gemms in groups]


def chain_remedy(body: Stmt, threads: int, machine: Machine) -> str | None:
    """What lets a chain of products be shared by whole rows, where a block of so many threads has
    too few of them; None where that is not what is wrong.
    """
    policies, lanes = chain_policies(body), machine.lanes
    warps = threads // lanes
    for gemm in (stmt for stmt in statements(body) if isinstance(stmt, Gemm)):
        if id(gemm) not in policies:
            continue
        rows, unit = const_int(gemm.c.extents[-2]), _least_rows(gemm, machine)
        by_rows = policies[id(gemm)] is WarpPolicy.FULL_ROW
        if by_rows and rows is not None and rows % unit == 0 and warps * unit > rows:
            return (
                f"use threads={rows // unit * lanes}, or tiles of {warps * unit} rows: "
                "each warp must have whole rows of what the next product reads"
            )
    return None


def _least_rows(gemm: Gemm, machine: Machine) -> int:
    """The fewest rows of the result that an instruction of a warp makes."""
    dtype = gemm.a.buffer.dtype
    rows = (row.m for row in machine.matrices if row.scope is Scope.WARP and row.a.dtype == dtype)
    return min(rows, default=1)
