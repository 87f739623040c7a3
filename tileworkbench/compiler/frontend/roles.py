"""Code for some groups of a block's threads: `with T.ws(0, 1):`.

Groups that are neighbours are one `Role`. Groups that are not are a role for each row of
neighbours: the longest row executes the operators on tiles, and the others wait for it before and
after.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import Builder, Frame, in_kernel
from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.compiler.frontend.threads import (
    at_thread_level,
    role_barrier,
    thread_count,
)
from tileworkbench.compiler.frontend.values import describe
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.simt import LANGUAGE_WARPGROUP, Barrier, Role, Start
from tileworkbench.compiler.ir.stmt import Alloc, For, If, LoopKind, Seq, Stmt, While, seq
from tileworkbench.compiler.ir.tile import OPERATORS, Pipelined

_OF_THREADS = ("local", "local.var")  # what each thread has for itself


class RoleBlock:
    """The context manager that `T.ws` returns: the statements inside are for the threads of `rows`,
    each a first thread and a number of threads.
    """

    def __init__(self, rows: list[tuple[int, int]]) -> None:
        self.rows = rows
        self.frame: Frame | None = None

    @placed_outside
    def __enter__(self) -> None:
        builder = at_thread_level("T.ws")
        if builder.enclosing("role") is not None:
            raise TileValueError("a T.ws block cannot stand inside another one")
        self.frame = builder.push("role")
        self.frame.threads = (self.rows[0][0], sum(count for _, count in self.rows))

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None or self.frame is None:
            return
        builder = in_kernel("T.ws")
        frame = self.frame
        body = builder.pop(frame)
        for stmt in _roles(self.rows, body, builder, frame):
            builder.emit(stmt)


def role_of_groups(groups: tuple[Any, ...]) -> RoleBlock:
    """The role of the given groups of 128 threads.

    Raises `TileTypeError` or `TileValueError` for groups that the block does not have.
    """
    builder = at_thread_level("T.ws")
    for group in groups:
        if isinstance(group, bool) or not isinstance(group, int):
            raise TileTypeError(f"a warp group of T.ws must be an integer, not {describe(group)}")
    if not groups:
        raise TileValueError("T.ws needs at least one warp group")
    chosen, threads = sorted(set(groups)), thread_count(builder)
    last = (threads - 1) // LANGUAGE_WARPGROUP
    for group in chosen:
        if not 0 <= group <= last:
            raise TileValueError(
                f"the block has no warp group {group}: its {threads} threads are the groups 0 to "
                f"{last}, of {LANGUAGE_WARPGROUP} threads each",
                hint="ask for more threads in T.Kernel(threads=...)",
            )
    rows = []
    for _, row in groupby(enumerate(chosen), lambda pair: pair[1] - pair[0]):
        members = [group for _, group in row]
        start = members[0] * LANGUAGE_WARPGROUP
        rows.append((start, min(threads, (members[-1] + 1) * LANGUAGE_WARPGROUP) - start))
    return RoleBlock(rows)


def _roles(rows: list[tuple[int, int]], body: Stmt, builder: Builder, frame: Frame) -> list[Stmt]:
    if len(rows) == 1:
        return [Role(*rows[0], body, site=frame.site)]
    first, count = frame.threads or rows[0]
    parts = _Parts(replace(role_barrier(first, count), site=frame.site))
    working, waiting = parts.divide(body)
    made: list[Stmt] = [*parts.tiles]
    longest = max(rows, key=lambda row: row[1])
    for row in [longest, *(row for row in rows if row is not longest)]:
        code = working if row is longest else with_new_names(waiting, builder.fresh)
        made.append(Role(*row, code, site=frame.site))
    return made


class _Parts:
    """The code of a role for the threads that execute its tile operators, and for the others, which
    wait for them at `barrier`.
    """

    def __init__(self, barrier: Barrier) -> None:
        self.barrier = barrier
        self.tiles: list[Alloc] = []  # what all of them use

    def divide(self, stmt: Stmt) -> tuple[Stmt, Stmt]:
        """`stmt` for those that execute operators, and for the others."""
        if isinstance(stmt, Alloc) and stmt.buffer.scope not in _OF_THREADS:
            self.tiles.append(stmt)
            return Seq(()), Seq(())
        if _is_work(stmt):
            return seq([self.barrier, stmt, self.barrier]), seq([self.barrier, self.barrier])
        match stmt:
            case Seq(stmts):
                return self._sequence(stmts)
            case For() | While():
                working, waiting = self.divide(stmt.body)
                return replace(stmt, body=working), replace(stmt, body=waiting)
            case Pipelined(var, start, stop):
                step, kind, site = int_const(1), LoopKind.SERIAL, stmt.site
                return self.divide(For(var, start, stop, step, kind, stmt.body, site=site))
            case If(_, then, orelse):
                left, right = self.divide(then)
                others = (None, None) if orelse is None else self.divide(orelse)
                return (
                    replace(stmt, then=left, orelse=others[0]),
                    replace(stmt, then=right, orelse=others[1]),
                )
        return stmt, stmt

    def _sequence(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, Stmt]:
        runs = [(is_work, [*run]) for is_work, run in groupby(stmts, _is_work)]
        # Neighbouring operators need one barrier before and one after them.
        rows = [row for is_work, run in runs for row in ([seq(run)] if is_work else run)]
        pairs = [self.divide(stmt) for stmt in rows]
        return seq([pair[0] for pair in pairs]), seq([pair[1] for pair in pairs])


def _is_work(stmt: Stmt) -> bool:
    """Whether `stmt` consists of tile operators, in loops or not."""
    if isinstance(stmt, OPERATORS):
        return True
    if isinstance(stmt, Seq):
        return bool(stmt.stmts) and all(_is_work(child) for child in stmt.stmts)
    return isinstance(stmt, For | Pipelined | Start) and _is_work(stmt.body)
