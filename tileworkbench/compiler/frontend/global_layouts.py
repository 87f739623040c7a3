"""Layouts of tensors in global memory: where in the caller's memory a kernel finds each element.

The compiler may choose the layout of a tile; the order of a tensor's elements is visible to the
code that reads the tensor afterwards. So it is written out when the launch ends: every access
becomes one to a flat view of the tensor, at the place that the layout gives, under the bounds of
the tensor's own indices. Copies and fills become T.Parallel loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.bounds import bounds
from tileworkbench.compiler.frontend.builder import Builder
from tileworkbench.compiler.frontend.private_tiles import element_at
from tileworkbench.compiler.frontend.refusals import NotScalar
from tileworkbench.compiler.frontend.tensors import difference
from tileworkbench.compiler.frontend.values import Value, index_expr
from tileworkbench.compiler.ir import build, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Region, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, substitute, walk
from tileworkbench.compiler.layout.layout import Layout

_ONE = build.int_const(1)
_LARGE = 1 << 31
_Views = Mapping[Buffer, "_Placed"]


class FormulaLayout(NotScalar):
    """A layout whose extents are known when the kernel is called: its function, not evaluated."""

    __slots__ = ("function", "shape")

    def __init__(self, shape: tuple[Expr, ...], function: Callable[..., Any]) -> None:
        self.shape = shape
        self.function = function

    @property
    def described(self) -> str:
        return "a layout whose extents are not known while compiling"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the elements of a box lie: indices as formulas in `variables`, each below its extent
    of `extents`.
    """

    shape: tuple[Expr, ...]
    variables: tuple[Var, ...]
    places: tuple[Expr, ...]
    extents: tuple[Expr, ...]

    @property
    def size(self) -> Expr:
        """How many elements the memory must have."""
        return build.product(self.extents)

    def flat(self, indices: Sequence[Expr], dtype: str) -> Expr:
        """The position of an element in row-major order of the places."""
        chosen = dict(zip(self.variables, indices, strict=True))
        total: Expr = build.const(0, dtype)
        for place, extent in zip(self.places, self.extents, strict=True):
            digit = build.cast(substitute(place, chosen), dtype)
            total = build.add(build.mul(total, build.cast(extent, dtype)), digit)
        return total


def placement(shape: Sequence[Expr], function: Callable[..., Any]) -> Placement:
    """The placement of a layout's function over a box of any extents.

    Raises `LayoutError` where no largest index is known.
    """
    variables, places = _places(shape, function)
    tops = {
        var: build.add(extent, build.const(-1, extent.dtype))
        for var, extent in zip(variables, shape, strict=True)
    }
    extents = tuple(build.add(_largest(place, tops), _ONE) for place in places)
    return Placement(tuple(shape), variables, places, extents)


def placement_of(layout: Layout) -> Placement:
    """The placement of a layout of constant extents."""
    shape = tuple(build.int_const(extent) for extent in layout.shape)
    extents = tuple(build.int_const(extent) for extent in layout.mapping.output_shape)
    variables, places = _places(shape, lambda *index: layout.mapping.evaluate(index))
    return Placement(shape, variables, places, extents)


def _places(
    shape: Sequence[Expr], function: Callable[..., Any]
) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
    """A variable for each dimension, and what `function` makes of them."""
    variables = tuple(Var(f"index_{d}", extent.dtype) for d, extent in enumerate(shape))
    made = function(*(Value(var) for var in variables))
    results = made if isinstance(made, tuple | list) else (made,)
    what = "what a layout's function returns"
    return variables, tuple(index_expr(result, what)[0] for result in results)


def _largest(value: Expr, tops: Mapping[Var, Expr]) -> Expr:
    """The largest value of an index formula of variables from 0 to `tops`."""
    number = build.const_int(value)
    if number is not None:
        return value
    match value:
        case Var():
            return tops.get(value, value)
        case Binary("add", a, b):
            return build.add(_largest(a, tops), _largest(b, tops))
        case Binary("mul", a, b) if (build.const_int(b) or 0) > 0:
            return build.mul(_largest(a, tops), b)
        case Binary("mul", a, b) if (build.const_int(a) or 0) > 0:
            return build.mul(a, _largest(b, tops))
        case Binary("floordiv", a, b) if (build.const_int(b) or 0) > 0:
            return build.binary("floordiv", _largest(a, tops), b)
        case Binary("floormod", a, b) if (build.const_int(b) or 0) > 0:
            most, high = build.sub(b, _ONE), _largest(a, tops)
            return build.binary("min", most, high) if build.const_int(high) is not None else most
        case Binary("xor", a, b):
            ends = [build.const_int(_largest(side, tops)) for side in (a, b)]
            if None not in ends:
                return build.int_const((1 << max(e or 0 for e in ends).bit_length()) - 1)
    raise LayoutError(
        f"a tensor's layout has the index '{Value(value)!r}', whose largest value is not known",
        hint="write it with '+', '*', '//', '%' and '^', and constants after the last four",
    )


def annotate(builder: Builder, buffer: Buffer, made: Placement) -> None:
    """Give `buffer` a placement in the launch that is being traced.

    Raises `LayoutError` for one that does not suit it.
    """
    if buffer.strides or buffer.dtype.is_packed:
        what = "strides" if buffer.strides else "two elements in a byte"
        raise LayoutError(f"'{buffer.name}' has {what}, and no layout of its own besides")
    size = build.product(buffer.shape)
    spare = build.const_int(difference(size, made.size))
    have, need = _count(buffer.shape), _count(made.extents)
    if have is not None and need is not None:
        spare = have - need
    if spare is not None and spare < 0:
        raise LayoutError(
            f"the layout of '{buffer.name}' takes {need} elements, and the tensor has {have}",
            hint="in global memory a layout must fill the tensor: it leaves no gaps",
        )
    if spare is None:
        wide = [build.cast(value, "int64") for value in (made.size, size)]
        builder.emit(
            st.DeviceAssert(
                build.binary("le", *wide),
                f"the layout of '{buffer.name}' takes more elements than the tensor has",
            )
        )
    builder.placements[buffer] = made


def _count(extents: Sequence[Expr]) -> int | None:
    numbers = [build.const_int(extent) for extent in extents]
    return None if None in numbers else prod(number or 0 for number in numbers)


def write_out(builder: Builder, body: st.Stmt) -> st.Stmt:
    """The body of a launch with the placements of its tensors in every access."""
    placements = dict(builder.placements)
    builder.placements.clear()
    if not placements:
        return body
    views = {buffer: _Placed(builder, buffer, made) for buffer, made in placements.items()}
    made = Rewriter(rewrite_stmt=_Loops(builder, views))(body)
    made = Rewriter(_loads(views), _Stores(views))(made)
    for stmt in statements(made):
        for child in stmt.children():
            if not isinstance(child, st.Stmt):
                _refuse_whole(builder, stmt, child, views)
    aliases = [st.Alias(view.flat, buffer) for buffer, view in views.items()]
    return st.seq([*aliases, made])


def _refuse_whole(builder: Builder, stmt: st.Stmt, part: Node, views: _Views) -> None:
    for node in walk(part):
        if isinstance(node, Buffer) and node in views:
            raise UnsupportedError(
                f"'{node.name}' has a layout, and is used here as a whole or by its address",
                builder.sites[stmt.site],
                hint="copy it, or access its elements",
            )


class _Placed:
    """A tensor with a placement, and the flat view through which it is accessed."""

    def __init__(self, builder: Builder, buffer: Buffer, made: Placement) -> None:
        count = _count(buffer.shape)
        self.dtype = "int32" if count is not None and count < _LARGE else "int64"
        extents = [build.cast(extent, self.dtype) for extent in buffer.shape]
        name = builder.fresh(f"{buffer.name}_elements")
        self.flat = Buffer(name, buffer.dtype, (build.product(tuple(extents)),), "global")
        self.safe = builder.safe_values.get(buffer.name, build.const(0, buffer.dtype))
        self.shape = buffer.shape
        self.made = made
        self.ranges = builder.ranges

    def at(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The flat index of an element."""
        return (self.made.flat(indices, self.dtype),)

    def inside(self, indices: Sequence[Expr]) -> Expr | None:
        """That an element exists; None where that is certain."""
        conditions = []
        for index, extent in zip(indices, self.shape, strict=True):
            low, high = bounds(index, self.ranges)
            size = build.const_int(extent)
            if low is None or low < 0:
                conditions.append(build.binary("ge", index, build.const(0, index.dtype)))
            if size is None or high is None or high >= size:
                conditions.append(build.binary("lt", index, extent))
        return build.conjunction(conditions)


class _Loops:
    """Copies and fills of placed tensors as loops over their elements."""

    def __init__(self, builder: Builder, views: _Views) -> None:
        self._builder = builder
        self._views = views

    def __call__(self, stmt: st.Stmt) -> st.Stmt:
        match stmt:
            case tile.Copy(src, dst, width, layout):
                if src.buffer not in self._views and dst.buffer not in self._views:
                    return stmt
                inwards = src.buffer.scope == "global" and dst.buffer.scope != "global"
                base = dst if inwards else src
                return self._loop(stmt, base, src, width, layout)
            case tile.Fill(dst, value) if dst.buffer in self._views:
                return self._loop(stmt, dst, value)
        return stmt

    def _loop(
        self,
        stmt: tile.Copy | tile.Fill,
        base: Region,
        source: Region | Expr,
        width: int | None = None,
        layout: Any = None,
    ) -> st.Stmt:
        extents = tuple(e for e in base.extents if build.const_int(e) != 1) or (_ONE,)
        variables = tuple(
            self._builder.fresh_var("ijklmnop"[d % 8], e.dtype) for d, e in enumerate(extents)
        )
        for var, extent in zip(variables, extents, strict=True):
            if (count := build.const_int(extent)) is not None:
                self._builder.ranges[var] = (0, count - 1)
        if isinstance(source, Region):
            value: Expr = Load(source.buffer, element_at(source, variables))
        else:
            value = source
        dst = stmt.dst
        store = st.Store(
            dst.buffer,
            element_at(dst, variables),
            build.cast(value, dst.buffer.dtype),
            site=stmt.site,
        )
        return tile.Parallel(variables, extents, store, width, layout, site=stmt.site)


def _loads(views: _Views) -> Callable[[Any], Any]:
    def rewrite(node: Any) -> Any:
        if not isinstance(node, Load) or node.buffer not in views:
            return node
        view = views[node.buffer]
        made: Expr = Load(view.flat, view.at(node.indices))
        inside = view.inside(node.indices)
        return made if inside is None else build.select(inside, made, view.safe)

    return rewrite


class _Stores:
    """Stores and atomic accesses of placed tensors."""

    def __init__(self, views: _Views) -> None:
        self._views = views

    def __call__(self, stmt: st.Stmt) -> st.Stmt:
        match stmt:
            case st.Store(buffer, indices, value) if buffer in self._views:
                view = self._views[buffer]
                made: st.Stmt = st.Store(view.flat, view.at(indices), value, site=stmt.site)
            case st.Atomic(kind, buffer, indices, value, previous) if buffer in self._views:
                view = self._views[buffer]
                if previous is not None:
                    inside = view.inside(indices)
                    place, safe = view.at(indices), view.safe if inside is not None else None
                    return st.Atomic(
                        kind, view.flat, place, value, previous, inside, safe, site=stmt.site
                    )
                made = st.Atomic(kind, view.flat, view.at(indices), value, site=stmt.site)
            case _:
                return stmt
        inside = view.inside(indices)
        return made if inside is None else st.If(inside, made, site=stmt.site)
