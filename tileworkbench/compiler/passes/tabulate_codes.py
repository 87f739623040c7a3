"""What a vector computes from codes of at most four bits is looked up in a table.

A table of 16 numbers fits one vector register (two with AVX2), and choosing one of them for every
lane is one instruction. Decoding packed weights then costs the same in every format. A table is
constant; where what is computed ends as a 16-bit float and also depends on values that are the same
for all lanes, such as a group's scale, the table is itself a vector that the loop around computes.

Before::

    for j_lane in T.vectorized(16):
        code = T.int32(B[j_lane // 2]) >> j_lane % 2 * 4 & 15
        W[j_lane] = T.float32((code ^ 8) - 8)

After::

    for j_lane in T.vectorized(16):
        code = T.int32(B[j_lane // 2]) >> j_lane % 2 * 4 & 15
        W[j_lane] = T.lookup(code, T.float32(0.0), T.float32(1.0), ..., T.float32(-1.0))

and for ``T.bfloat16(T.float32((code ^ 8) - 8) * scale)``::

    T.lane_at(T.bfloat16x16(T.lookup(T.Ramp(0, 1, 16), ...) * T.Broadcast(scale, 16)), code)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.access import depends_on, has_loads
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, walk, with_body
from tileworkbench.compiler.ir.stmt import For, Let, LoopKind, Stmt
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.target import Target

_ENTRIES = 16
_DTYPES = ("float32", "int32")
# From so many operations on a lookup is cheaper: one instruction, or four.
_WORTH = {"avx512": 2, "avx2": 6}
_PURE = (ir.Binary, ir.Unary, ir.Select, ir.Cast, ir.Reinterpret)
_SHORT = ("bfloat16", "float16")
_WORTH_VECTOR = 2
_CODE = Var("code'", INT32)


@optional("tables: packed codes are decoded by arithmetic")
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
        words = self.target.arch == "avx512"  # has permutations of words

        def tabulate(stmt: Stmt) -> Stmt:
            if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED:
                # A vector of two registers at least pays for computing the table's one.
                in_vectors = words and (const_int(stmt.stop) or 0) >= 2 * _ENTRIES
                return _tabulate(stmt, worth, in_vectors)
            return stmt

        return with_body(program, Rewriter(rewrite_stmt=tabulate)(program.body))


def _mentions_code(program: Program) -> bool:
    return any(isinstance(node, Expr) and _is_code(node) for node in walk(program.body))


def _is_code(value: Expr) -> bool:
    if not isinstance(value, ir.Binary) or value.op != "and" or value.dtype != "int32":
        return False
    mask = const_int(value.b)
    return mask is not None and 0 < mask < _ENTRIES


def _tabulate(loop: For, worth: int, in_vectors: bool) -> Stmt:
    varying, codes = {loop.var}, set[Expr]()
    for stmt in statements(loop.body):
        if isinstance(stmt, Let) and depends_on(stmt.value, frozenset(varying)):
            varying.add(stmt.var)
            if _is_code(stmt.value):
                codes.add(stmt.var)
    finder = _Finder(frozenset(varying), codes, worth)

    def visit(node: object) -> object:
        if isinstance(node, Expr):
            made = finder.vector(node) if in_vectors else None
            made = finder.table(node) if made is None else made
            if made is not None:
                return made
        return node.map_children(visit)  # type: ignore[attr-defined]

    return visit(loop)  # type: ignore[return-value]


class _Finder:
    """Finds the largest expressions of one loop that depend on nothing but one code, or on one code
    and on what does not vary."""

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
        """`value` as a lookup in a table of constants; None where that is not possible or not worth
        it."""
        code = self.code_below(value, _DTYPES, self.worth, uniform=False)
        if code is None:
            return None
        formula = Rewriter(lambda node: _CODE if node is code else node)(value)
        entries = [evaluate(formula, {_CODE.name: number}) for number in range(_ENTRIES)]
        table = (const(entry, value.dtype) for entry in entries)
        return ir.Call("lookup", (code, *table), value.dtype)

    def vector(self, value: Expr) -> Expr | None:
        """`value` as a lane of a vector that holds it for every code."""
        code = self.code_below(value, _SHORT, _WORTH_VECTOR, uniform=True)
        if code is None:
            return None
        return ir.Call("lane_at", (self.for_every_code(value, code), code), value.dtype)

    def for_every_code(self, value: Expr, code: Expr) -> Expr:
        """The vector of `value` for the codes 0 to 15."""
        if not depends_on(value, self.varying):
            return ir.Broadcast(value, _ENTRIES)
        codes = ir.Ramp(const(0, INT32), const(1, INT32), _ENTRIES)
        if value is code:
            return codes
        made = self.table(value)
        if isinstance(made, ir.Call):
            made = replace(made, args=(codes, *made.args[1:]))
        else:
            made = value.map_children(lambda child: self.for_every_code(child, code))
        return replace(made, dtype=value.dtype.with_lanes(_ENTRIES))  # type: ignore

    def code_below(
        self, value: Expr, dtypes: tuple[str, ...], worth: int, uniform: bool
    ) -> Expr | None:
        """The only code below `value`, if its operations are pure and as many as `worth`."""
        if str(value.dtype) not in dtypes or not isinstance(value, _PURE) or self.is_code(value):
            return None
        codes: set[Expr] = set()
        operations = self.collect(value, codes, set(), uniform)
        if operations is None or operations < worth or len(codes) != 1:
            return None
        return codes.pop()

    def collect(
        self, value: Expr, codes: set[Expr], seen: set[Expr], uniform: bool = False
    ) -> int | None:
        """The number of operations between `value` and the codes below it, which go to `codes`;
        None where there is anything else, save constants or, with `uniform`, what does not vary.
        """
        if value in seen or isinstance(value, ir.Const):
            return 0
        seen.add(value)
        if self.is_code(value):
            codes.add(value)
            return 0
        if uniform and not depends_on(value, self.varying):
            return 0
        if not isinstance(value, _PURE) or (isinstance(value, ir.Binary) and value.op == "pow"):
            return None
        if isinstance(value, ir.Select) and has_loads(value):
            return None  # a load that only one of the branches makes
        total = 1
        for child in value.children():
            count = self.collect(child, codes, seen, uniform) if isinstance(child, Expr) else 0
            if count is None or len(codes) > 1:
                return None
            total += count
        return total
