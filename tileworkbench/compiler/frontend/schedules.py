"""Workers that visit several tiles each: the loop and the scheduler of persistent kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.builder import Builder, active_builder, in_kernel
from tileworkbench.compiler.frontend.control import let
from tileworkbench.compiler.frontend.loops import LoopSpec, open_loop, set_range
from tileworkbench.compiler.frontend.tensors import emit_store
from tileworkbench.compiler.frontend.values import Value, VarCell, describe, index_expr
from tileworkbench.compiler.frontend.wide_indices import exact_product
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.stmt import Alloc, For, If, LoopKind, Store
from tileworkbench.compiler.ir.types import INT32

_ZERO, _ONE = build.int_const(0), build.int_const(1)


def _index(value: Any, what: str) -> Expr:
    return build.cast(index_expr(value, what)[0], INT32)


@dataclass(frozen=True, slots=True)
class PersistentLoop(LoopSpec):
    """The tiles of the box `domain` that worker `index` of `wave_size` visits.

    The last dimension is cut into groups; tiles are numbered group by group, and inside a group
    along the other dimensions before the members of the group.
    """

    domain: tuple[Any, ...]
    wave_size: Any
    index: Any
    group_size: int

    def run(self, builder: Builder) -> Iterator[Value | tuple[Value, ...]]:
        in_kernel("T.Persistent")
        extents = [_index(extent, "an extent of T.Persistent") for extent in self.domain]
        workers = _index(self.wave_size, "'wave_size' of T.Persistent")
        worker = _index(self.index, "'index' of T.Persistent")
        last = extents[-1]
        group = build.binary("max", _ONE, build.binary("min", _index(self.group_size, ""), last))
        radices = [build.ceildiv(last, group), *extents[:-1], group]
        total = exact_product(tuple(radices), builder.symbols.values())
        names = [builder.hint(d, "ijklmnop"[d]) for d in range(len(extents))]
        wave = builder.fresh_var("wave", total.dtype)
        waves, zero = build.ceildiv(total, workers), build.const(0, total.dtype)
        with open_loop(builder, LoopKind.SERIAL) as loop:
            set_range(builder, wave, zero, waves)
            number = build.add(build.mul(wave, workers), worker)
            tile = let(builder, "tile", Value(number, builder.bind("tile"))).expr
            digits = self._digits(tile, radices)
            places = [*digits[1:-1], build.add(build.mul(digits[0], group), digits[-1])]
            coordinates = [
                let(builder, name, Value(place, builder.bind(name)))
                for name, place in zip(names, places, strict=True)
            ]
            inside = build.logical(
                "logical_and",
                build.binary("lt", tile, total),
                build.binary("lt", coordinates[-1].expr, last),
            )
            branch = builder.push("then")
            yield coordinates[0] if len(coordinates) == 1 else tuple(coordinates)
            body = builder.pop(branch)
            builder.emit(If(inside, body, site=loop.site))
        one = build.const(1, total.dtype)
        builder.emit(For(wave, zero, waves, one, LoopKind.SERIAL, loop.body, site=loop.site))

    @staticmethod
    def _digits(number: Expr, radices: list[Expr]) -> list[Expr]:
        """`number` in the mixed radix system `radices`, the last digit running fastest."""
        digits: list[Expr] = []
        for radix in reversed(radices[1:]):
            digits.append(build.binary("floormod", number, radix))
            number = build.binary("floordiv", number, radix)
        return [number, *reversed(digits)]


class TileScheduler:
    """See `T.PersistentTileScheduler`."""

    def __init__(
        self,
        tiles: tuple[Any, Any],
        workers: Any,
        swizzle_size: int,
        column_major: bool,
        cluster_size: int,
        name: str | None,
    ) -> None:
        construct = "T.PersistentTileScheduler"
        for what, value in (("swizzle_size", swizzle_size), ("cluster_size", cluster_size)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TileTypeError(
                    f"'{what}' of {construct} must be an integer, not {describe(value)}"
                )
            if not 0 < value <= INT32.max_value:
                raise TileValueError(
                    f"'{what}' of {construct} must lie between 1 and 2147483647, not {value}"
                )
        rows, columns = (_index(value, f"a number of tiles of {construct}") for value in tiles)
        clusters = build.ceildiv(rows, build.int_const(cluster_size))
        builder = active_builder()
        symbols = () if builder is None else tuple(builder.symbols.values())
        self._total = exact_product((clusters, columns), symbols)
        pair = (clusters, columns) if column_major else (columns, clusters)
        self._primary, self._secondary = pair
        self._column_major = column_major
        self._swizzle = build.int_const(swizzle_size)
        self._workers = (
            None if workers is None else _index(workers, f"'num_workers' of {construct}")
        )
        self._cluster_size = cluster_size
        self._name = name or "scheduler"
        self._cells: dict[str, VarCell] = {}

    def init(self, worker: Any) -> None:
        """Start with the first tile of `worker`, a number below the number of workers."""
        builder = in_kernel("T.PersistentTileScheduler.init")
        first = _index(worker, "the worker of T.PersistentTileScheduler")
        if self._workers is None:
            blocks = build.cast(build.product(builder.grid), INT32)  # of a launch that is legal
            self._workers = build.binary("floordiv", blocks, build.int_const(self._cluster_size))
        row, column = self._place(first)
        starts = {"linear_idx": first, "current_iter": _ZERO, "m_idx": row, "n_idx": column}
        for name, start in starts.items():
            buffer = Buffer(builder.fresh(f"{self._name}_{name}"), INT32, (), "local.var")
            builder.emit(Alloc(buffer, start))
            self._cells[name] = VarCell(buffer, builder.bind(buffer.name, allocated=True))

    def valid(self) -> Value:
        """Whether the current tile exists."""
        current = self._cell("linear_idx").load()
        return Value(build.binary("lt", current.expr, self._total), current.binding)

    def next_tile(self) -> None:
        """Go on to the worker's next tile."""
        step = self._cell("linear_idx").load().expr
        self._assign("linear_idx", build.add(step, self._workers or _ONE))
        self._assign("current_iter", build.add(self._cell("current_iter").load().expr, _ONE))
        row, column = self._place(self._cell("linear_idx").load().expr)
        self._assign("m_idx", row)
        self._assign("n_idx", column)

    def coord(self, number: Any) -> tuple[Value, Value]:
        """The tile (m, n) with that number."""
        expr, binding = index_expr(number, "a tile of T.PersistentTileScheduler")
        row, column = self._place(build.cast(expr, INT32))
        return Value(row, binding), Value(column, binding)

    @property
    def m_idx(self) -> Value:
        """The current tile's row."""
        return self._cell("m_idx").load()

    @property
    def n_idx(self) -> Value:
        """The current tile's column."""
        return self._cell("n_idx").load()

    @property
    def linear_idx(self) -> Value:
        """The current tile's number."""
        return self._cell("linear_idx").load()

    @property
    def current_iter(self) -> Value:
        """How many tiles the worker has finished."""
        return self._cell("current_iter").load()

    def _cell(self, name: str) -> VarCell:
        if name not in self._cells:
            raise TileValueError(
                "T.PersistentTileScheduler is used before its first tile is known",
                hint="call init(worker) first",
            )
        self._cells[name].binding.check()
        return self._cells[name]

    def _assign(self, name: str, value: Expr) -> None:
        emit_store(Store(self._cell(name).buffer, (), value))

    def _place(self, number: Expr) -> tuple[Expr, Expr]:
        """Panels of `swizzle` columns of the second axis are walked row by row."""
        binary = build.binary
        # A panel wider than the second axis is all of it.
        area = build.mul(self._primary, binary("min", self._swizzle, self._secondary))
        panel = binary("floordiv", number, area)
        start = build.mul(panel, self._swizzle)
        width = binary("min", self._swizzle, build.sub(self._secondary, start))
        width = binary("max", _ONE, width)
        rest = build.sub(number, build.mul(panel, area))
        fast = binary("floordiv", rest, width)
        slow = build.add(start, binary("floormod", rest, width))
        return (fast, slow) if self._column_major else (slow, fast)
