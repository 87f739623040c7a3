"""Rewrites with names, and a log of them.

A rule is a function of a node, and of the facts that a table of rules was given: it returns what
the node becomes, None where it does not apply. Its name is the function's, and its docstring says
what it does. Nothing is noted while programs are compiled; `recording` has each `Rewriter` that
is made inside of it tell which of its `Rules` it applied to what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import partial
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Binary
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.stmt import Stmt

Rule = Callable[..., Any]


class Rules:
    """The rules of each kind of node, tried in order: called, it gives what a node becomes.

    The table is by the class of a node, for a `Binary` by its operation.
    """

    __slots__ = ("_facts", "_table")

    def __init__(self, table: Mapping[Any, tuple[Rule, ...]], *facts: Any) -> None:
        self._table, self._facts = table, facts

    def first(self, node: Any) -> tuple[Rule, Any] | None:
        """The first rule that changes `node`, and what it makes of it."""
        kind = node.op if type(node) is Binary else type(node)
        for rule in self._table.get(kind, ()):
            made = rule(node, *self._facts)
            if made is not None and made is not node:
                return rule, made
        return None

    def __call__(self, node: Any) -> Any:
        matched = self.first(node)
        return node if matched is None else matched[1]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One application of `rule`, which does what `doc` says: `before` became `after`, in `stmt`,
    the statement as it was found. `before` has whatever rules made of the nodes below it.
    """

    rule: str
    doc: str
    before: Node
    after: Node
    stmt: Stmt


@dataclass(slots=True)
class RewriteLog:
    """The rewrites so far, in the order in which they happened, and the statement that is visited.

    `rounds` has, for each tree that was visited from its root, how many there were before.
    """

    rewrites: list[Rewrite] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    stmt: Stmt | None = None

    @contextmanager
    def within(self, stmt: Stmt) -> Iterator[None]:
        """While `stmt` is visited."""
        outer = self.stmt
        if outer is None:
            self.rounds.append(len(self.rewrites))
        self.stmt = stmt
        yield
        self.stmt = outer

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While what rewriters do is asked for, and not done."""
        outer, self.stmt = self.stmt, None
        token = _LOG.set(None)
        yield
        _LOG.reset(token)
        self.stmt = outer

    def note(self, rule: Rule, before: Node, after: Node, stmt: Stmt) -> None:
        """Note what a rule did that is in no table."""
        self.rewrites.append(Rewrite(*_told(rule), before, after, stmt))

    def noting(self, function: Any) -> Any:
        """`function`, which notes what it does if it is `Rules`."""
        return partial(self.apply, function) if isinstance(function, Rules) else function

    def apply(self, rules: Rules, node: Any) -> Any:
        """What `rules` make of `node`. What they use themselves is not noted."""
        token = _LOG.set(None)
        try:
            matched = rules.first(node)
        finally:
            _LOG.reset(token)
        if matched is None:
            return node
        rule, made = matched
        if self.stmt is not None:
            self.note(rule, node, made, self.stmt)
        return made


_LOG: ContextVar[RewriteLog | None] = ContextVar("rewrite_log", default=None)


def current_log() -> RewriteLog | None:
    """Where rewrites are noted, None while nobody asks for them."""
    return _LOG.get()


@contextmanager
def recording() -> Iterator[RewriteLog]:
    """Have the rewrites of this thread noted in the log that it gives."""
    log = RewriteLog()
    token = _LOG.set(log)
    try:
        yield log
    finally:
        _LOG.reset(token)


def _told(rule: Any) -> tuple[str, str]:
    """The name of a rule and the first sentence of what it says of itself."""
    doc = " ".join((rule.__doc__ or "").split("\n\n")[0].split())
    return rule.__name__.lstrip("_"), doc
