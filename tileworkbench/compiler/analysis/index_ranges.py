"""Which values of integer tensors keep every index that is made of them inside.

The elements of such a tensor become a variable each, and the intervals of these variables grow
from zero as long as all indices are provably inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tileworkbench.compiler.analysis.data_indices import DataFlow
from tileworkbench.compiler.analysis.effects import owners, written_below
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import cast, const_int, int_const
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer, Cast, Expr, Load, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Values from `low` to `high`; `distinct` where two equal values would make two stores to one
    element.
    """

    low: int
    high: int
    distinct: bool = False


def index_ranges(program: Program) -> dict[str, IndexRange]:
    """The range of each integer tensor parameter that indices are made of, by name."""
    sources = _sources(program)
    if not sources:
        return {}
    names = Names(program)
    variables = {param: names.var(f"{param.name}_value", param.dtype) for param in sources}
    replaced = {buffer: variables[param] for param in sources for buffer in sources[param]}
    made = with_body(program, _with_variables(program.body, replaced))
    return {param.name: interval for param, interval in _Search(made, variables).run().items()}


def _sources(program: Program) -> dict[Buffer, list[Buffer]]:
    """The integer tensors that the program only reads, each with the tiles that hold nothing but
    unchanged elements of it.
    """
    written = written_below(program.body)
    params = [param.value for param in program.params if not param.output]
    tensors = [value for value in params if isinstance(value, Buffer) and value.dtype.is_int]
    sources = {tensor: [tensor] for tensor in tensors if tensor not in written}
    aliased = set(owners(program.body)) | set(owners(program.body).values())
    origins: dict[Buffer, set[Buffer | None]] = {}
    for stmt in statements(program.body):
        for use in accesses(stmt):
            if use.writes:
                origins.setdefault(use.buffer, set()).add(_copied(stmt))
    for copies in sources.values():
        for buffer, origin in origins.items():
            if len(origin) == 1 and buffer not in aliased and next(iter(origin)) in copies:
                copies.append(buffer)
    return sources


def _copied(stmt: st.Stmt) -> Buffer | None:
    """The buffer whose elements `stmt` copies unchanged; None for any other statement."""
    match stmt:
        case tile.Copy(src, dst) if dst.buffer.dtype.is_int:
            return src.buffer
        case st.Store(value=value):
            while isinstance(value, Cast) and value.dtype.is_int:
                value = value.value
            return value.buffer if isinstance(value, Load) else None
    return None


def _with_variables(body: st.Stmt, replaced: Mapping[Buffer, Var]) -> st.Stmt:
    """`body` with a variable instead of every element of these buffers."""

    def replace_load(node: Any) -> Any:
        if isinstance(node, Load) and node.buffer in replaced and node.dtype.lanes == 1:
            return cast(replaced[node.buffer], node.dtype)
        return node

    made: st.Stmt = Rewriter(replace_load)(body)
    return made


@dataclass(frozen=True, slots=True)
class _Index:
    """One index of an access, the extent it must be below, and the variables in it."""

    value: Expr
    extent: Expr
    variables: frozenset[Var]
    placed: frozenset[Var]  # those that say where a plain store goes


def _indices(program: Program, variables: frozenset[Var]) -> Iterator[_Index]:
    flow = DataFlow(program)
    for stmt in statements(program.body):
        for use in accesses(stmt):
            for value, extent in zip(use.indices, use.buffer.shape, strict=False):
                used = variables.intersection(flow.atoms(value))
                if used and const_int(extent) is not None:
                    plain = isinstance(stmt, st.Store) and use.writes
                    direct = flow.atoms(value, bounds=False) if plain else ()
                    yield _Index(value, extent, used, used.intersection(direct))


class _Search:
    """Grows the intervals of the variables as long as all indices are inside."""

    def __init__(self, program: Program, variables: Mapping[Buffer, Var]) -> None:
        self._program, self._variables = program, variables
        self._bounds: dict[Var, tuple[int, int]] = {}
        self.indices: list[_Index] = []

    def run(self) -> dict[Buffer, IndexRange]:
        """The range of each tensor that an index can be made of."""
        indices = list(_indices(self._program, frozenset(self._variables.values())))
        for base in (0, 1):
            self._bounds = dict.fromkeys(self._variables.values(), (base, base))
            ranges = self._ranges(self._bounds)
            self.indices = [each for each in indices if not ranges.guards(each.value, each.extent)]
            if self.indices:
                break
        used = {var for each in self.indices for var in each.variables}
        params = {param: var for param, var in self._variables.items() if var in used}
        for shared in (True, False):  # where several have a part in an index each gets a share
            for param, var in params.items():
                self._grow(param, var, shared)
        return {
            param: IndexRange(*self._bounds[var], self._names_stores(var))
            for param, var in params.items()
        }

    def _names_stores(self, var: Var) -> bool:
        return any(var in each.placed for each in self.indices)

    def _grow(self, param: Buffer, var: Var, shared: bool) -> None:
        """Widen the interval of `var` as far as all indices stay inside, or to its share of it."""
        mine = [each for each in self.indices if var in each.variables]
        low, reached = self._bounds[var]
        extents = [const_int(each.extent) or 1 for each in mine]
        beyond = min(max(extents), int(param.dtype.max_value)) + 1
        first = reached
        while reached + 1 < beyond:
            middle = (reached + beyond) // 2
            if self._inside({**self._bounds, var: (low, middle)}):
                reached = middle
            else:
                beyond = middle
        if shared:
            reached = first + (reached - first) // max(len(each.variables) for each in mine)
        self._bounds[var] = low, reached

    def _inside(self, bounds: dict[Var, tuple[int, int]]) -> bool:
        ranges = self._ranges(bounds)
        return not any(ranges.guards(each.value, each.extent) for each in self.indices)

    def _ranges(self, bounds: dict[Var, tuple[int, int]]) -> Ranges:
        """The facts of the program where the variables have these bounds."""
        body = self._program.body
        for var, (low, high) in bounds.items():
            first, stop, step = int_const(low), int_const(high + 1), int_const(1)
            body = st.For(var, first, stop, step, st.LoopKind.SERIAL, body)
        return Ranges(with_body(self._program, body))
