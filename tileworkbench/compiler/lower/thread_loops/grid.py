"""A barrier of the grid ends a launch: what follows it is another one over the same blocks.

Only tensors in global memory live from one launch to the next. Names that are computed from block
and thread indices are computed again; memory of the block is made again where the later part writes
it before it reads it. What else a later part needs is kept in a workspace with a place for every
block, or for every thread of it: stored where an earlier part ends, loaded where the later begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from itertools import pairwise

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Region, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import bound_by, buffers_of, variables, walk
from tileworkbench.compiler.lower.shared.regions import is_whole, whole_region

_ONE = int_const(1)
_TILES = ("shared", "local.fragment")


def split_at_grid_barriers(
    kernel: st.Kernel, names: Names, program: Program
) -> tuple[list[st.Kernel], list[Buffer]]:
    """`kernel` as launches that follow each other, cut at the barriers of the grid in its outermost
    sequence, and the workspaces that they need.

    Raises `UnsupportedError` where a block keeps over a barrier what cannot be in a workspace.
    """
    parts: list[list[st.Stmt]] = [[]]
    for stmt in st.items(kernel.body):
        if isinstance(stmt, simt.GridBarrier):
            parts.append([])
        else:
            parts[-1].append(stmt)
    if len(parts) == 1:
        return [kernel], []
    keeper = _Keeper(kernel, names, program)
    before: list[st.Stmt] = []
    again: list[list[st.Stmt]] = [[]]
    for number, (done, part) in enumerate(pairwise(parts)):
        before += done
        again.append(keeper.again(before, part, number + 1))
    made = []
    for number, (first, part) in enumerate(zip(again, parts, strict=True)):
        body = [*first, *part]
        whole = replace(kernel, body=st.seq([*body, *keeper.saved(body, number)]))
        made.append(with_new_names(whole, names.fresh) if number else whole)
    return made, list(keeper.places.values())


def with_workspaces(program: Program, workspaces: list[Buffer]) -> Program:
    """`program` with further parameters that each call allocates."""
    if not workspaces:
        return program
    params = (*program.params, *(Param(buffer, output=True) for buffer in workspaces))
    return replace(program, params=params)


@dataclass(slots=True)
class _Keeper:
    """What the parts of one kernel keep: its places in global memory, and the last part that needs
    it.
    """

    kernel: st.Kernel
    names: Names
    program: Program
    places: dict[Var | Buffer, Buffer] = field(default_factory=dict)
    last: dict[Var | Buffer, int] = field(default_factory=dict)

    def again(self, before: list[st.Stmt], part: list[st.Stmt], number: int) -> list[st.Stmt]:
        """The statements in front of `part` that it needs, in order."""
        body = st.seq(part)
        needed: set[Var | Buffer] = {*variables(body), *buffers_of(body)}
        made: list[st.Stmt] = []
        for stmt in reversed(before):
            match stmt:
                case st.Let(var, value) if var in needed and not has_loads(value):
                    needed |= set(variables(value))
                    made.append(stmt)
                case st.Alias(buffer, source) if buffer in needed:
                    needed.add(source)
                    made.append(stmt)
                case st.Alloc(buffer) if buffer in needed and _overwrites(part, buffer):
                    made.append(stmt)
                case _:
                    for name in _names(stmt):
                        if name in needed:
                            made += reversed(self.restored(name, stmt, number))
        return made[::-1]

    def restored(self, name: Var | Buffer, stmt: st.Stmt, number: int) -> list[st.Stmt]:
        """Part `number` begins with what an earlier one has stored."""
        place = self.place_of(name, stmt)
        self.last[name] = number
        if isinstance(name, Var):
            return [st.Let(name, Load(place, self.index(name)), site=stmt.site)]
        if not name.shape:
            return [st.Alloc(name, Load(place, self.index(name)), site=stmt.site)]
        if name.scope in _TILES:
            whole = whole_region(name)
            copied: st.Stmt = tile.Copy(self.box(name), whole, site=stmt.site)
        else:
            mine, site = self.index(name), stmt.site
            copied = self.each(
                name, lambda at: st.Store(name, at, Load(place, (*mine, *at)), site=site)
            )
        return [st.Alloc(name, site=stmt.site), copied]

    def saved(self, body: list[st.Stmt], number: int) -> list[st.Stmt]:
        """Part `number` ends by storing what a later one needs."""
        made = {name: stmt.site for stmt in body for name in _names(stmt)}
        return [
            self.save(name, made[name])
            for name in self.places
            if name in made and number < self.last[name]
        ]

    def save(self, name: Var | Buffer, site: int) -> st.Stmt:
        place = self.places[name]
        if isinstance(name, Var):
            return st.Store(place, self.index(name), name, site=site)
        if name.scope in _TILES:
            return tile.Copy(whole_region(name), self.box(name), site=site)
        return self.each(
            name, lambda at: st.Store(place, (*self.index(name), *at), Load(name, at), site=site)
        )

    def each(self, buffer: Buffer, assign: Callable[[tuple[Expr, ...]], st.Stmt]) -> st.Stmt:
        """`assign` at every element of what a thread has for itself."""
        loops = [self.names.var("i", extent.dtype) for extent in buffer.shape]
        made = assign(tuple(loops))
        for var, extent in reversed(list(zip(loops, buffer.shape, strict=True))):
            made = counting(var, extent, made, made.site)
        return made

    # Places

    def place_of(self, name: Var | Buffer, stmt: st.Stmt) -> Buffer:
        place = self.places.get(name)
        if place is None:
            if name.dtype.kind == "handle" or name.dtype.is_packed or _is_barrier(name):
                raise UnsupportedError(
                    f"target 'cpu' cannot keep '{name.name}' over a barrier of several blocks",
                    self.program.span(stmt.site),
                    hint="keep it in global memory, or run it in the simulator, with "
                    "k.simulate(...)",
                )
            shape = self.kernel.grid
            if isinstance(name, Var) or name.scope not in _TILES:
                shape = (*shape, *(int_const(count) for count in self.kernel.threads))
            if isinstance(name, Buffer):
                shape = (*shape, *name.shape)
            place = Buffer(self.names.fresh(f"{name.name}_kept"), name.dtype, shape, "global")
            self.places[name] = place
        return place

    def index(self, name: Var | Buffer) -> tuple[Expr, ...]:
        """The index of this block, or of this thread, in a workspace."""
        if isinstance(name, Buffer) and name.scope in _TILES:
            return self.kernel.vars
        return (*self.kernel.vars, *self.kernel.thread_vars)

    def box(self, buffer: Buffer) -> Region:
        """The place of this block's tile."""
        at = self.index(buffer)
        mins = (*at, *(int_const(0) for _ in buffer.shape))
        return Region(self.places[buffer], mins, (*(_ONE for _ in at), *buffer.shape))


def _names(stmt: st.Stmt) -> tuple[Var | Buffer, ...]:
    """What `stmt` itself makes for the statements after it."""
    if isinstance(stmt, st.Alloc | st.Alias):
        return (stmt.buffer,)
    return bound_by(stmt) if isinstance(stmt, _NAMING) else ()


_NAMING = (st.Let, st.Atomic, st.ExternCall, simt.Exchange)


def _is_barrier(name: Var | Buffer) -> bool:
    return isinstance(name, Buffer) and name.scope == "shared.barrier"


def _overwrites(part: list[st.Stmt], buffer: Buffer) -> bool:
    """Whether the first statement that uses `buffer` writes all of it."""
    for stmt in part:
        if buffer not in buffers_of(stmt):
            continue
        match stmt:
            case st.Store(target, indices, value):
                reads = any(
                    isinstance(node, Load) and node.buffer is buffer for node in walk(value)
                )
                return target is buffer and not indices and not reads
            case tile.Fill(dst) | tile.Copy(dst=dst):
                return dst.buffer is buffer and is_whole(dst)
        return False
    return True
