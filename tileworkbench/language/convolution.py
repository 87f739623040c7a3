"""Convolution as a matrix product: the tile of the unfolded image that a block multiplies."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import ShapeError, TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.loops import refuse_in_parallel
from tileworkbench.compiler.frontend.regions import to_buffer
from tileworkbench.compiler.frontend.values import describe, index_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.printer import show_shape
from tileworkbench.compiler.ir.stmt import Store
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.ir.types import INT32


def im2col(
    img: Any,
    col: Any,
    nhw_step: Any,
    c_step: Any,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
) -> None:
    """Fill the tile `col` (BM, BK) of the unfolded image `img` (N, H, W, C).

    Row m = nhw_step * BM + i is an output pixel, column k = c_step * BK + j a tap of the square
    `kernel` and a channel, channels fastest: the value is
    `img[n, h, w, k % C]` with `n = m // (OH * OW)`,
    `h = m % (OH * OW) // OW * stride + k // (kernel * C) * dilation - pad` and
    `w = m % OW * stride + k // C % kernel * dilation - pad`, zero outside the image. Raises
    `ShapeError`, `TileTypeError` or `TileValueError` for operands that do not fit.

    >>> image = T.view(A, (1, 8, 8, 64))
    >>> T.im2col(image, a, 0, 0, kernel=3, stride=1, dilation=1, pad=1)
    """
    construct = "T.im2col"
    builder = in_kernel(construct)
    refuse_in_parallel(builder, construct)
    image, tile = to_buffer(img, construct, "image"), to_buffer(col, construct, "destination")
    if len(image.shape) != 4 or len(tile.shape) != 2:
        raise ShapeError(
            f"{construct} takes an image (N, H, W, C) and a tile of two dimensions, not "
            f"{show_shape(image.shape)} and {show_shape(tile.shape)}"
        )
    sizes = {"kernel": kernel, "stride": stride, "dilation": dilation}
    for name, size in {**sizes, "pad": pad}.items():
        _check(construct, name, size, 0 if name == "pad" else 1)
    row_tile, column_tile = (
        build.cast(index_expr(step, f"a step of {construct}")[0], INT32)
        for step in (nhw_step, c_step)
    )
    i, j = builder.fresh_var("i", INT32), builder.fresh_var("j", INT32)
    m = build.add(build.mul(row_tile, tile.shape[0]), i)
    k = build.add(build.mul(column_tile, tile.shape[1]), j)
    indices = _pixel(image, m, k, (kernel, stride, dilation, pad))
    value: Expr = Load(image, indices)
    inside = build.conjunction(
        [
            condition
            for index, extent in zip(indices[1:3], image.shape[1:3], strict=True)
            for condition in (
                build.binary("ge", index, build.int_const(0)),
                build.binary("lt", index, extent),
            )
        ]
    )
    if inside is not None:  # the border is zero whatever the image's safe value
        value = build.select(inside, value, build.const(0, image.dtype))
    store = Store(tile, (i, j), build.cast(value, tile.dtype), site=builder.site)
    builder.emit(Parallel((i, j), tile.shape, store))


def _check(construct: str, name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TileTypeError(f"'{name}' of {construct} must be an integer, not {describe(value)}")
    if value < least:
        raise TileValueError(f"'{name}' of {construct} must be at least {least}, not {value}")


def _pixel(
    image: Buffer, m: Expr, k: Expr, parameters: tuple[int, int, int, int]
) -> tuple[Expr, ...]:
    """The index into the image of row m and column k of the unfolded one."""
    kernel, stride, dilation, pad = parameters
    _, height, width, channels = image.shape

    def extent(size: Expr) -> Expr:
        span = build.add(size, build.int_const(2 * pad - dilation * (kernel - 1) - 1))
        steps = build.binary("floordiv", span, build.int_const(stride))
        return build.add(steps, build.int_const(1))

    def at(output: Expr, tap: Expr) -> Expr:
        first = build.mul(output, build.int_const(stride))
        offset = build.mul(tap, build.int_const(dilation))
        return build.sub(build.add(first, offset), build.int_const(pad))

    columns = extent(width)
    area = build.mul(extent(height), columns)
    pixel = build.binary("floormod", m, area)
    taps = build.binary("floordiv", k, channels)
    row_tap = build.binary("floordiv", k, build.mul(build.int_const(kernel), channels))
    column_tap = build.binary("floormod", taps, build.int_const(kernel))
    return (
        build.binary("floordiv", m, area),
        at(build.binary("floordiv", pixel, columns), row_tap),
        at(build.binary("floormod", m, columns), column_tap),
        build.binary("floormod", k, channels),
    )


c2d_im2col = im2col
