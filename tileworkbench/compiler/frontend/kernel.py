"""`with T.Kernel(...)`: one launch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import ResourceError, TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import Frame, current
from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.compiler.frontend.global_layouts import write_out
from tileworkbench.compiler.frontend.loops import set_range
from tileworkbench.compiler.frontend.values import Value, describe, extent_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.stmt import Assume, Kernel
from tileworkbench.compiler.target import MOST_BLOCKS, MOST_THREADS

DEFAULT_THREADS = 128
_MOST_IN_CLUSTER = 16  # CUDA programming guide: 8 everywhere, 16 where a kernel asks for it
_BLOCK_NAMES = ("bx", "by", "bz")


class Declared(BaseException):
    """Ends the collection of a kernel's declarations; never leaves the front end."""


def check_threads(threads: Any) -> tuple[int, ...]:
    """The extents of a block from `T.Kernel(threads=...)`.

    Raises `TileTypeError` or `TileValueError`.
    """
    if threads is None:
        return (DEFAULT_THREADS,)
    values = (
        tuple(threads)
        if isinstance(threads, Sequence) and not isinstance(threads, str)
        else (threads,)
    )
    if not 1 <= len(values) <= 3:
        raise TileValueError(f"threads takes 1 to 3 extents, not {len(values)}")
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TileTypeError(
                f"threads must be an integer or up to three of them, not {describe(value)}"
            )
    extents = tuple(value.__index__() for value in values)
    if min(extents) <= 0:
        raise TileValueError(f"threads must be positive, not {threads}")
    if prod(extents) > MOST_THREADS:
        raise ResourceError(f"a block has at most {MOST_THREADS} threads, not {prod(extents)}")
    return extents


def check_cluster(cluster: Any, grid: tuple[Expr, ...]) -> tuple[int, ...]:
    """How many blocks of a cluster lie along each extent of the grid.

    Raises `TileTypeError` or `TileValueError`.
    """
    single = isinstance(cluster, str) or not isinstance(cluster, Sequence)
    values = (cluster,) if single else tuple(cluster)
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TileTypeError(
                f"an extent of 'cluster_dims' must be an integer, not {describe(value)}"
            )
    extents = [int(value) for value in values]
    if not extents or min(extents) <= 0 or prod(extents) > _MOST_IN_CLUSTER:
        raise TileValueError(f"'cluster_dims' takes 1 to {_MOST_IN_CLUSTER} blocks, not {cluster}")
    if any(extent != 1 for extent in extents[len(grid) :]):
        raise TileValueError(f"'cluster_dims' {cluster} has more extents than the grid")
    extents = (extents + [1] * len(grid))[: len(grid)]
    for have, count in zip(grid, extents, strict=True):
        known = build.const_int(have)
        if known is not None and known % count:
            raise TileValueError(
                f"a grid extent of {known} is not a multiple of the cluster's {count}"
            )
    return tuple(extents)


class KernelBlock:
    """The context manager that `T.Kernel` returns."""

    def __init__(
        self, blocks: tuple[Any, ...], threads: Any, prelude: Any, cluster: Any = ()
    ) -> None:
        if len(blocks) > 3:
            raise TileValueError(f"a grid has at most 3 extents, not {len(blocks)}")
        if prelude is not None and not isinstance(prelude, str):
            raise TileTypeError(f"'prelude' of T.Kernel must be text, not {describe(prelude)}")
        self.prelude = prelude
        self.threads = check_threads(threads)
        self.grid: tuple[Expr, ...] = tuple(
            extent_expr(block, "a grid extent", may_be_zero=True) for block in blocks
        )
        if prod(build.const_int(extent) or 1 for extent in self.grid) > MOST_BLOCKS:
            raise ResourceError(f"a launch has at most {MOST_BLOCKS} blocks")
        self.cluster = check_cluster(cluster, self.grid) if cluster != () else ()
        self.frame: Frame | None = None

    @placed_outside
    def __enter__(self) -> Any:
        builder = current("T.Kernel")
        builder.launched = True
        if builder.placeholders is not None:
            raise Declared
        if builder.enclosing("kernel") is not None:
            raise TileValueError("a T.Kernel block cannot stand inside another one")
        if self.prelude is not None and self.prelude not in builder.sources:
            builder.sources.append(self.prelude)
        for extent, count in zip(self.grid, self.cluster, strict=False):
            rest = build.binary("floormod", extent, build.int_const(count))
            if build.const_int(rest) is None:
                builder.emit(Assume(build.binary("eq", rest, build.int_const(0))))
        grid = self.grid or (build.int_const(1),)
        names = tuple(builder.hint(d, _BLOCK_NAMES[d]) for d in range(len(grid)))
        self.grid = grid
        self.vars = tuple(builder.fresh_var(n, e.dtype) for n, e in zip(names, grid, strict=True))
        builder.grid, builder.blocks = grid, self.vars
        builder.threads, builder.thread_vars = self.threads, ()
        builder.cluster = self.cluster
        self.frame = builder.push("kernel")
        for check in builder.checks:
            builder.emit(check)
        builder.placed_checks += builder.checks
        builder.checks.clear()
        for var, extent in zip(self.vars, grid, strict=True):
            set_range(builder, var, build.int_const(0), extent)
        values = [Value(var, builder.bind(var.name)) for var in self.vars]
        return values[0] if len(values) == 1 else values

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None or self.frame is None:
            return
        builder = current("T.Kernel")
        frame, swizzle, builder.swizzle = self.frame, builder.swizzle, None
        body, threads = builder.pop(frame), builder.thread_vars
        for check in builder.endings:
            check(builder, body)
        builder.endings.clear()
        body = write_out(builder, body)
        parts = (self.vars, self.grid, self.threads, body, swizzle, threads, self.cluster)
        builder.emit(Kernel(*parts, site=frame.site))
