"""The loops of a function and the order of its blocks.

Natural loops (Aho, Lam, Sethi, Ullman: Compilers, 9.6): an edge back to a block that is still being
visited depth first ends a loop, whose blocks are those that reach the edge without that block. The
code of kernels has no other cycles.
"""

from __future__ import annotations

from dataclasses import field

from tileworkbench.bench.llvm.instructions import Function, Instruction, touches_memory
from tileworkbench.compiler.fast_dataclass import dataclass

_LEAST_BITS = 128  # of a vector register


@dataclass(slots=True, eq=False)
class Loop:
    """A loop by the block it begins with; `latches` go back to it."""

    header: str
    blocks: set[str] = field(default_factory=set)
    latches: list[str] = field(default_factory=list)
    parent: Loop | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The blocks that are reached, by their place in an order in which each stands behind those it
    comes from, but for edges back; the loops by their headers; the blocks before each; and what
    compares integers, by its name.
    """

    order: dict[str, int]
    loops: dict[str, Loop]
    before: dict[str, list[str]]
    tests: dict[str, Instruction]

    def inside(self, loop: Loop | None) -> dict[str, Loop]:
        """The loops that stand in `loop` itself, or in none."""
        return {header: each for header, each in self.loops.items() if each.parent is loop}


def successors(function: Function, label: str) -> tuple[str, ...]:
    """The blocks that a block goes to."""
    body = function.blocks[label]
    return body[-1].labels if body and body[-1].op in ("br", "switch") else ()


def constant_in(function: Function, shape: Shape, loop: Loop) -> frozenset[str]:
    """The results in a loop that are the same in each iteration: of operations on what comes from
    outside of it, which LLVM does before it, but for vectors of less than a register.
    """
    bodies = [function.blocks[label] for label in sorted(loop.blocks, key=shape.order.__getitem__)]
    moving = {each.name for body in bodies for each in body if each.name}
    constant = set[str]()
    for body in bodies:
        for each in body:
            is_part = each.kind.lanes > 1 and each.kind.lanes * each.kind.bits < _LEAST_BITS
            is_fixed = each.op in ("phi", "load") or touches_memory(each) or is_part
            if each.name and not is_fixed and moving.isdisjoint(each.args):
                moving.discard(each.name)
                constant.add(each.name)
    return frozenset(constant)


def shape_of(function: Function) -> Shape:
    """Order and loops of a function."""
    done: list[str] = []
    open_, seen = set[str](), {function.entry}
    stack = [(function.entry, iter(successors(function, function.entry)))]
    open_.add(function.entry)
    back: list[tuple[str, str]] = []
    while stack:
        label, following = stack[-1]
        for each in following:
            if each in open_:
                back.append((label, each))
            elif each not in seen:
                seen.add(each)
                open_.add(each)
                stack.append((each, iter(successors(function, each))))
                break
        else:
            stack.pop()
            open_.discard(label)
            done.append(label)
    order = {label: at for at, label in enumerate(reversed(done))}
    before: dict[str, list[str]] = {}
    for label in order:
        for each in successors(function, label):
            before.setdefault(each, []).append(label)
    bodies = function.blocks.values()
    tests = {each.name: each for body in bodies for each in body if each.op == "icmp"}
    return Shape(order, _loops(before, back), before, tests)


def _loops(before: dict[str, list[str]], back: list[tuple[str, str]]) -> dict[str, Loop]:
    loops: dict[str, Loop] = {}
    for latch, header in back:
        loop = loops.setdefault(header, Loop(header, {header}))
        loop.latches.append(latch)
        work = [latch]
        while work:
            label = work.pop()
            if label not in loop.blocks:
                loop.blocks.add(label)
                work += before.get(label, ())
    by_size = sorted(loops.values(), key=lambda each: len(each.blocks))
    for at, loop in enumerate(by_size):
        outer = (each for each in by_size[at + 1 :] if loop.header in each.blocks)
        loop.parent = next(outer, None)
    return loops
