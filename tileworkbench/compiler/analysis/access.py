"""How the address of an access moves with one variable."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import conjunction, const_int
from tileworkbench.compiler.ir.effects import Access, accesses
from tileworkbench.compiler.ir.expr import Binary, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.stmt import Let, Stmt


class Motion(StrEnum):
    """What one step of a variable does to an access."""

    UNIFORM = "uniform"  # the same element
    CONTIGUOUS = "contiguous"  # the next element in memory
    REPEATED = "repeated"  # the same element a few times, then the next: x[j // 2]
    STRIDED = "strided"  # every second or fourth element
    SCATTERED = "scattered"  # anything else


STRIDES = (2, 4)
"""Steps in elements at which a vector is worth reading whole."""


def element_accesses(root: Stmt) -> Iterator[Access]:
    """Every access of single elements below `root`; what a statement's expressions share once."""
    for stmt in statements(root):
        yield from (access for access in accesses(stmt) if access.of_element)


def motion(
    access: Access,
    var: Var,
    ranges: Ranges,
    varying: frozenset[Var] = frozenset(),
    lanes: int = 1,
) -> Motion:
    """How `access` moves with `var`; `varying` are further variables whose value depends on it.

    With `lanes`, only within vectors of so many steps that begin at a multiple of it.
    """
    step, repeats = 0, 0
    last = len(access.indices) - 1
    for d, index in enumerate(access.indices):
        linear = ranges.linear(index)
        for atom, factor in linear.terms:
            if atom is var:
                # A step along an outer dimension is never contiguous.
                step += factor if d == last else max(STRIDES) + 1
            elif depends_on(atom, varying | {var}):
                count = _repetitions(atom, var, ranges, varying, lanes)
                if count == 0 or (count < lanes and (d != last or factor != 1)):
                    return Motion.SCATTERED
                repeats += count < lanes
    if step == 0 and not repeats:
        return Motion.UNIFORM
    dense = not access.buffer.strides or const_int(access.buffer.strides[-1]) == 1
    if not dense or (step and repeats) or repeats > 1:
        return Motion.SCATTERED
    if repeats:
        return Motion.REPEATED
    if step in STRIDES and lanes > step:
        return Motion.STRIDED
    return Motion.CONTIGUOUS if step == 1 else Motion.SCATTERED


def _repetitions(atom: Expr, var: Var, ranges: Ranges, varying: frozenset[Var], lanes: int) -> int:
    """How many lanes in a row have the same value of `atom`, at least: `lanes` where all have; 0
    where it is not `(a + var) // c` with an `a` that keeps vectors and repetitions in step.
    """
    if not isinstance(atom, Binary) or atom.op != "floordiv":
        return 0
    count = const_int(atom.b) or 0
    linear = ranges.linear(atom.a)
    rest = Linear(tuple(term for term in linear.terms if term[0] is not var), linear.constant)
    if linear.coefficient(var) != 1 or count < 2 or count & (count - 1):
        return 0
    if any(depends_on(other, varying | {var}) for other, _ in rest.terms):
        return 0
    return min(count, lanes) if ranges.linear_divides(min(count, lanes), rest) else 0


def depends_on(root: Node, variables: frozenset[Var]) -> bool:
    """Whether an expression or statement reads one of `variables`."""
    return any(node in variables for node in walk(root) if isinstance(node, Var))


def varying_lets(root: Stmt, var: Var) -> frozenset[Var]:
    """The variables bound by `Let` below `root` whose value depends on `var`."""
    varying: set[Var] = {var}
    for current in walk(root):
        if isinstance(current, Let) and depends_on(current.value, frozenset(varying)):
            varying.add(current.var)
    return frozenset(varying - {var})


def conjuncts(cond: Expr | None) -> list[Expr]:
    """The conditions that `cond` joins with `logical_and`, in order, each once."""
    if cond is None:
        return []
    conditions: dict[Expr, None] = {}
    stack = [cond]
    while stack:
        current = stack.pop()
        if getattr(current, "op", None) == "logical_and":
            stack += [current.b, current.a]  # type: ignore[attr-defined]
        else:
            conditions[current] = None
    return list(conditions)


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """Where `a` and `b` hold, each condition once; None stands for no condition."""
    return conjunction([*conjuncts(a), *conjuncts(b)])


def loads(root: Node) -> Iterator[Load]:
    """The reads of memory in `root`."""
    return (node for node in walk(root) if isinstance(node, Load))


def has_loads(root: Node) -> bool:
    """Whether `root` reads memory."""
    return any(True for _ in loads(root))
