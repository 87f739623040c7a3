"""The roles of a kernel's warps: producers fill tiles, consumers read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import LANGUAGE_WARPGROUP, Role
from tileworkbench.compiler.ir.stmt import Kernel
from tileworkbench.compiler.sim.threads.blocks import ranges_text

Array = np.ndarray[Any, Any]
Group = tuple[int, int]
"""The first of some threads of a block, and how many they are."""


class Roles:
    """The threads of a block that produce tiles in shared memory, and those that consume them.
    Consumers are counted in warpgroups, or in roles that are no whole warpgroups.

    There are none in a kernel without roles (`Role`), or where several launches have roles.
    """

    def __init__(self, program: Program) -> None:
        launches = [list(_filled_and_taken(each)) for each in statements(program.body)
                    if isinstance(each, Kernel)]  # fmt: skip
        some = [each for each in launches if each]
        roles = some[0] if len(some) == 1 else []
        producers, consumers = set(), set()
        for group, fills, takes in roles:
            others = [each for each in roles if each[0] != group]
            if not takes and any(fills & theirs for _, _, theirs in others):
                producers.add(group)
        for group, _, takes in roles:
            if any(takes & fills for other, fills, _ in roles if other in producers):
                consumers.update(_warpgroups(group))
        self._groups = [("producer", sorted(producers)), ("consumer", sorted(consumers))]
        self._texts: dict[tuple[bytes, str], str] = {}

    def text(self, threads: Array) -> str:
        """Some threads of a block, in rising order: `thread 3`, `consumer 0 (threads 0-127)`."""
        key = threads.tobytes(), threads.dtype.str
        known = self._texts.get(key)
        if known is None:
            known = self._texts[key] = self._text(threads)
        return known

    def _text(self, threads: Array) -> str:
        said = ranges_text(threads)
        for name, groups in self._groups:
            of = [
                number
                for number, (first, count) in enumerate(groups)
                if ((threads >= first) & (threads < first + count)).any()
            ]
            inside = sum(
                int(((threads >= first) & (threads < first + count)).sum())
                for first, count in groups
            )
            if inside == threads.size:
                return f"{_numbered(name, of, len(groups))} ({said})"
        return said


def _numbered(name: str, numbers: list[int], every: int) -> str:
    if name == "producer" and every == 1:
        return name
    if len(numbers) == 1:
        return f"{name} {numbers[0]}"
    return f"{name}s {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _warpgroups(group: Group) -> list[Group]:
    first, count = group
    if count % LANGUAGE_WARPGROUP:
        return [group]
    return [(at, LANGUAGE_WARPGROUP) for at in range(first, first + count, LANGUAGE_WARPGROUP)]


def _filled_and_taken(kernel: Kernel) -> Iterator[tuple[Group, set[str], set[str]]]:
    """The tiles in shared memory that each role writes, and reads."""
    sides: dict[Group, tuple[set[str], set[str]]] = {}
    for role in statements(kernel.body):
        if not isinstance(role, Role):
            continue
        fills, takes = sides.setdefault((role.start, role.extent), (set(), set()))
        for stmt in statements(role.body):
            for access in accesses(stmt):
                if access.buffer.scope != "shared":
                    continue
                if access.writes:
                    fills.add(access.buffer.name)
                if access.reads:
                    takes.add(access.buffer.name)
    for group, (fills, takes) in sides.items():
        yield group, fills, takes
