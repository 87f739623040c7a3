"""How the address of an access moves with one variable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.stmt import Atomic, Let, Stmt, Store


class Motion(StrEnum):
    """What one step of a variable does to an access."""

    UNIFORM = "uniform"  # the same element
    CONTIGUOUS = "contiguous"  # the next element in memory
    SCATTERED = "scattered"  # anything else


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store in a statement."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool


def accesses(root: Stmt) -> Iterator[Access]:
    """Every load and store below `root`; a load that occurs twice in the text is met twice."""
    for found in walk(root):
        if isinstance(found, Store | Atomic):
            yield Access(found.buffer, found.indices, True)
        elif isinstance(found, Load):
            yield Access(found.buffer, found.indices, False)


def motion(
    access: Access, var: Var, ranges: Ranges, varying: frozenset[Var] = frozenset()
) -> Motion:
    """How `access` moves with `var`; `varying` are further variables whose value depends on it."""
    step = 0
    last = len(access.indices) - 1
    for d, index in enumerate(access.indices):
        linear = ranges.linear(index)
        for atom, factor in linear.terms:
            if atom is var:
                step += (
                    factor if d == last else 2
                )  # a step along an outer dimension is never contiguous
            elif depends_on(atom, varying | {var}):
                return Motion.SCATTERED
    if step == 0:
        return Motion.UNIFORM
    dense = not access.buffer.strides or const_int(access.buffer.strides[-1]) == 1
    return Motion.CONTIGUOUS if step == 1 and dense else Motion.SCATTERED


def depends_on(root: Node, variables: frozenset[Var]) -> bool:
    """Whether an expression or statement reads one of `variables`."""
    return any(found in variables for found in walk(root) if isinstance(found, Var))


def varying_lets(root: Stmt, var: Var) -> frozenset[Var]:
    """The variables bound by `Let` below `root` whose value depends on `var`."""
    found: set[Var] = {var}
    for current in walk(root):
        if isinstance(current, Let) and depends_on(current.value, frozenset(found)):
            found.add(current.var)
    return frozenset(found - {var})


def conjuncts(cond: Expr | None) -> list[Expr]:
    """The conditions that `cond` joins with `logical_and`, in order, each once."""
    if cond is None:
        return []
    found: dict[Expr, None] = {}
    stack = [cond]
    while stack:
        current = stack.pop()
        if getattr(current, "op", None) == "logical_and":
            stack += [current.b, current.a]  # type: ignore[attr-defined]
        else:
            found[current] = None
    return list(found)


def has_loads(root: Node) -> bool:
    """Whether `root` reads memory."""
    return any(isinstance(found, Load) for found in walk(root))
