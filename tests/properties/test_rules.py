"""Each rule of the simplifier by itself keeps the value; what is recorded of passes is what they
do.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

import tileworkbench as tw
from tests.kernels.test_gpu import CASES
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.simplify import EXPRESSIONS
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.ir.build import const, int_const
from tileworkbench.compiler.ir.expr import (
    COMPARISONS,
    LOGICAL,
    Binary,
    Cast,
    Expr,
    Select,
    Unary,
    Var,
)
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import Rewriter
from tileworkbench.compiler.ir.rules import Rewrite, RewriteLog, Rules, recording
from tileworkbench.compiler.ir.stmt import Seq, Stmt
from tileworkbench.compiler.ir.types import BOOL, FLOAT32, INT32, INT64
from tileworkbench.compiler.lowering import step_of
from tileworkbench.compiler.passes.simplify_expressions import STATEMENTS, simplify_expressions
from tileworkbench.compiler.rewrites import recorded, rewrites_of

EXTENTS = {Var("a", INT32): 7, Var("b", INT32): 16, Var("c", INT32): 5}
FREE = Var("free", INT32)
ARITHMETIC = ("add", "sub", "mul", "min", "max", "floordiv", "floormod", "truncdiv", "truncmod")
BITS = ("and", "or", "xor", "shl", "shr")
NAMES = sorted({rule.__name__ for rules in EXPRESSIONS.values() for rule in rules})
BY_RULES_ALONE = {
    *("simplify_expressions", "flatten_buffers", "drop_unused_lets", "serialize_pipelines"),
    *("unroll_register_loops", "guard_accesses"),
}


def ranges() -> Ranges:
    found = Ranges(Program("f", (), (), Seq(()), stage=Stage.TILE))
    for var, extent in EXTENTS.items():
        found.enter(var, int_const(0), int_const(extent), 1)
    return found


class Random:
    """Expressions as nobody would write them: nothing is folded while they are made."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, depth: int) -> Expr:
        pick = self.random.random()
        if depth == 0 or pick < 0.1:
            if self.random.random() < 0.45:
                return int_const(self.random.choice([0, 0, 1, 1, 2, 4, 8, 16, -3, 64]))
            return self.random.choice([*EXTENTS, FREE])
        if pick < 0.2:
            return Select(self.condition(depth - 1), *self.pair(depth), True, INT32)
        if pick < 0.25:
            return Cast(Cast(self.number(depth - 1), INT64), INT32)
        if pick < 0.35:
            a, b = self.number(depth - 1), self.number(depth - 1)
            if self.random.random() < 0.4:
                return Binary(self.random.choice(BITS[:3]), a, b, INT32)
            few = int_const(self.random.choice([0, 1, 3]))
            return Binary(self.random.choice(BITS), a, few, INT32)
        if pick < 0.45:
            return self.digits()
        op = self.random.choice(ARITHMETIC)
        a, b = self.pair(depth)
        if "div" in op or "mod" in op:
            b = int_const(self.random.choice([1, 2, 4, 8, 16, 32, 128]))
        return Binary(op, a, b, INT32)

    def digits(self) -> Expr:
        """A quotient or remainder of a number made of digits, as indices of vectors are."""
        high = Binary("mul", self.random.choice([*EXTENTS, FREE]), int_const(16), INT32)
        total = Binary("add", high, self.random.choice([*EXTENTS]), INT32)
        divisor = int_const(self.random.choice([2, 16, 32, 128]))
        return Binary(self.random.choice(["floordiv", "floormod"]), total, divisor, INT32)

    def pair(self, depth: int) -> tuple[Expr, Expr]:
        a = self.number(depth - 1)
        return (a, a) if self.random.random() < 0.15 else (a, self.number(depth - 1))

    def condition(self, depth: int) -> Expr:
        pick = self.random.random()
        if depth <= 0 or pick < 0.6:
            return Binary(self.random.choice(COMPARISONS), *self.pair(max(depth, 1)), BOOL)
        if pick < 0.7:
            return const(self.random.random() < 0.5, BOOL)
        if pick < 0.85:
            inner = self.condition(depth - 1)
            return Unary("not", Unary("not", inner, BOOL) if pick < 0.75 else inner, BOOL)
        a = self.condition(depth - 1)
        return Binary(self.random.choice(LOGICAL), a, self.condition(depth - 1), BOOL)


def values() -> list[dict[str, int]]:
    chosen = random.Random(0)
    return [
        {
            **{var.name: chosen.randrange(extent) for var, extent in EXTENTS.items()},
            "free": chosen.choice([-9, -1, 0, 5, 64]),
        }
        for _ in range(12)
    ]


def replayed(body: Stmt, log: RewriteLog) -> Stmt:
    """`body` with the rewrites of `log`, and nothing else, done again: what a pass leaves that
    works by rules alone.
    """
    for start, stop in pairwise((*log.rounds, len(log.rewrites))):
        made = _Replay(log.rewrites[start:stop])(body)
        assert isinstance(made, Stmt)
        body = made
    return body


class _Replay(Rewriter):
    """Does what was done to each statement, and to the expressions in it."""

    def __init__(self, rewrites: list[Rewrite]) -> None:
        super().__init__(self.expression, self.statement)
        self.by_stmt: dict[Stmt, dict[Node, Node]] = {}
        for each in rewrites:
            self.by_stmt.setdefault(each.stmt, {})[each.before] = each.after
        self.here: dict[Node, Node] = {}

    def __call__(self, root: Node) -> Node:
        if not isinstance(root, Stmt):
            return super().__call__(root)  # type: ignore[no-any-return]
        outer, memo = self.here, self._memo
        self.here, self._memo = self.by_stmt.get(root, {}), {}
        made = super().__call__(root)
        self.here, self._memo = outer, memo
        return made  # type: ignore[no-any-return]

    def expression(self, node: Node) -> Node:
        return self.here.get(node, node)

    def statement(self, stmt: Stmt) -> Stmt:
        made = self.here.get(stmt, stmt)
        assert isinstance(made, Stmt)
        return made


@pytest.mark.parametrize("name", NAMES)
def test_each_rule_by_itself_keeps_the_value(name: str) -> None:
    alone = {
        kind: tuple(rule for rule in rules if rule.__name__ == name)
        for kind, rules in EXPRESSIONS.items()
    }
    rewriter, fired = Rewriter(Rules(alone, ranges())), 0
    for seed in range(1500):
        made = Random(seed)
        whole = made.number(3) if seed % 3 else made.condition(3)
        after = rewriter(whole)
        if after is whole:
            continue
        assert after.dtype == whole.dtype
        for env in values():
            assert evaluate(after, env) == evaluate(whole, env), f"{whole} -> {after}"
        fired += 1
        if fired == 40:
            return
    assert fired >= 10, "the rule was hardly tried"


def test_rules_say_what_they_do() -> None:
    rules = [*EXPRESSIONS.values(), *STATEMENTS.values()]
    assert all(rule.__doc__ for each in rules for rule in each)


def test_floats_are_not_simplified() -> None:
    """`x + 0.0` is not `x` for -0.0, `x * 0.0` is not 0 for infinity, and `x - x` not for NaN."""
    x = Var("x", FLOAT32)
    for op, b in (("add", const(0, FLOAT32)), ("mul", const(0, FLOAT32)), ("sub", x)):
        value = Binary(op, x, b, FLOAT32)
        assert Rewriter(Rules(EXPRESSIONS, ranges()))(value) is value


STATEMENT_CASE = """\
@T.program(stage="tile")
def f(
    A: T.Tensor((16,), "float32"),
):
    with T.Kernel(1, threads=1) as (bx,):
        for i in T.serial(0):
            A[i] = 1.0
        if True:
            A[0] = 2.0
        else:
            A[1] = 3.0
        for k in T.serial(4):
            if k < 4:
                A[(k * 4 + 3) // 4] = 4.0
"""


def test_what_is_recorded_of_statements() -> None:
    program = parse(STATEMENT_CASE)
    with recording() as log:
        after = simplify_expressions(program)
    assert [each.rule for each in log.rewrites] == [
        "drop_loop",
        "take_decided_branch",
        "decide_comparison",
        "take_out_multiples",
        "take_decided_branch",
    ]
    assert str(log.rewrites[3].before) == "(k * 4 + 3) // 4"
    assert str(log.rewrites[3].after) == "k"
    assert str(log.rewrites[3].stmt) == "A[(k * 4 + 3) // 4] = 4.0"
    assert replayed(program.body, log) == after.body


def test_nothing_is_recorded_unless_asked_for() -> None:
    program = parse(STATEMENT_CASE)
    with recording() as log:
        pass
    simplify_expressions(program)
    assert log.rewrites == []


def lowered(name: str, target: str) -> Any:
    if target.startswith("sim"):
        return tw.compile(CASES[name]()[0], target=target).record
    return tw.compile(CASES[name]()[0], target="cpu").record


@pytest.mark.parametrize("target", ["sim:sm_80", "sim:sm_90a", "cpu"])
@pytest.mark.parametrize("name", ["matmul", "flash_attention", "topk", "histogram", "rope"])
def test_replaying_gives_the_program_after(name: str, target: str) -> None:
    record = lowered(name, target)
    seen: Counter[str] = Counter()
    before, replays = record.program, Counter[str]()
    for index, snapshot in enumerate(record.snapshots):
        found = rewrites_of(record, index)
        seen[snapshot.name] += 1
        if snapshot.name in BY_RULES_ALONE and snapshot.changed:
            step = step_of(resolve_target(record.target), snapshot.name, seen[snapshot.name] - 1)
            log = recorded(step, before)
            assert [each.rule for each in log.rewrites] == [each.rule for each in found]
            assert replayed(before.body, log) == snapshot.program.body, snapshot.name
            replays[snapshot.name] += 1
        assert not found or snapshot.changed
        before = snapshot.program
    assert replays.total() >= (2 if name in ("matmul", "flash_attention") else 1)
    assert "guard_accesses" in replays or name == "topk" or target != "cpu"
    assert print_program(before) == print_program(record.snapshots[-1].program)
