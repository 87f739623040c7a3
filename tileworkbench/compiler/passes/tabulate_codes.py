"""What a vector computes from codes of at most four bits is looked up in a table of constants.

A table of 16 numbers fits one vector register (two with AVX2), and choosing one of them for every
lane is one instruction. Decoding packed weights then costs the same in every format.

Before::

    for j_lane in T.vectorized(16):
        code = T.int32(B[j_lane // 2]) >> j_lane % 2 * 4 & 15
        W[j_lane] = T.float32((code ^ 8) - 8)

After::

    for j_lane in T.vectorized(16):
        code = T.int32(B[j_lane // 2]) >> j_lane % 2 * 4 & 15
        W[j_lane] = T.lookup(code, T.float32(0.0), T.float32(1.0), ..., T.float32(-1.0))
"""

from __future__ import annotations

from dataclasses import dataclass

from tileworkbench.compiler.analysis.access import depends_on
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, walk, with_body
from tileworkbench.compiler.ir.stmt import For, Let, LoopKind, Stmt
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.target import Target

_ENTRIES = 16
_DTYPES = ("float32", "int32")
# From so many operations on a lookup is cheaper: one instruction, or four.
_WORTH = {"avx512": 2, "avx2": 6}
_PURE = (ir.Binary, ir.Unary, ir.Select, ir.Cast, ir.Reinterpret)
_CODE = Var("code'", INT32)


@dataclass(frozen=True, slots=True)
class TabulateCodes:
    """Replace functions of a small code by lookups, where the target has an instruction for them.

    A code is the bitwise and of anything with a constant below 16. Functions with calls are left
    alone: their constants would be rounded in another way.
    """

    target: Target

    def __call__(self, program: Program) -> Program:
        worth = _WORTH.get(self.target.arch)
        if worth is None or not _mentions_code(program):
            return program

        def tabulate(stmt: Stmt) -> Stmt:
            if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED:
                return _tabulate(stmt, worth)
            return stmt

        return with_body(program, Rewriter(rewrite_stmt=tabulate)(program.body))


def _mentions_code(program: Program) -> bool:
    return any(isinstance(found, Expr) and _is_code(found) for found in walk(program.body))


def _is_code(value: Expr) -> bool:
    if not isinstance(value, ir.Binary) or value.op != "and" or value.dtype != "int32":
        return False
    mask = const_int(value.b)
    return mask is not None and 0 < mask < _ENTRIES


def _tabulate(loop: For, worth: int) -> Stmt:
    varying, codes = {loop.var}, set[Expr]()
    for stmt in statements(loop.body):
        if isinstance(stmt, Let) and depends_on(stmt.value, frozenset(varying)):
            varying.add(stmt.var)
            if _is_code(stmt.value):
                codes.add(stmt.var)
    finder = _Finder(frozenset(varying), codes, worth)

    def visit(node: object) -> object:
        if isinstance(node, Expr):
            found = finder.table(node)
            if found is not None:
                return found
        return node.map_children(visit)  # type: ignore[attr-defined]

    return visit(loop)  # type: ignore[return-value]


class _Finder:
    """Finds the largest expressions of one loop that depend on nothing but one code."""

    def __init__(self, varying: frozenset[Var], codes: set[Expr], worth: int) -> None:
        self.varying, self.codes, self.worth = varying, codes, worth

    def is_code(self, value: Expr) -> bool:
        """Whether `value` is a code, and not a function of another one."""
        if value in self.codes:
            return True
        if not _is_code(value) or not depends_on(value, self.varying):
            return False
        inner: set[Expr] = set()
        count = self.collect(value.a, inner, set())  # type: ignore[attr-defined]
        return count is None or not inner

    def table(self, value: Expr) -> Expr | None:
        if str(value.dtype) not in _DTYPES or not isinstance(value, _PURE) or self.is_code(value):
            return None
        found: set[Expr] = set()
        operations = self.collect(value, found, set())
        if operations is None or operations < self.worth or len(found) != 1:
            return None
        (code,) = found
        formula = Rewriter(lambda node: _CODE if node is code else node)(value)
        entries = [evaluate(formula, {_CODE.name: number}) for number in range(_ENTRIES)]
        table = (const(entry, value.dtype) for entry in entries)
        return ir.Call("lookup", (code, *table), value.dtype)

    def collect(self, value: Expr, found: set[Expr], seen: set[Expr]) -> int | None:
        """The number of operations between `value` and the codes below it, which go to `found`;
        None where there is anything else."""
        if value in seen or isinstance(value, ir.Const):
            return 0
        seen.add(value)
        if self.is_code(value):
            found.add(value)
            return 0
        if not isinstance(value, _PURE) or (isinstance(value, ir.Binary) and value.op == "pow"):
            return None
        total = 1
        for child in value.children():
            count = self.collect(child, found, seen) if isinstance(child, Expr) else 0
            if count is None or len(found) > 1:
                return None
            total += count
        return total
