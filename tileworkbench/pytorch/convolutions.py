"""Convolutions as the product of a kernel: filters by the windows of an image.

Rows are filters, columns the pixels of the output, batches the images. Names are the usual ones:
filters have taps (r, s), the output pixels (p, q). Filters of one channel each (depthwise) are
summed tap by tap from a part of the image in fast memory; else the windows of some pixels are
gathered in a tile and multiplied (implicit GEMM). Filters in groups, which see a part of the
channels each, are more products of the batch.

Who runs one is measured, minima of interleaved calls with one thread on an Intel Xeon without
instructions for 16 bits: of bfloat16, kernels took 0.1 to 0.7 of torch's time for windows of 1 to
16 by 16, and as long or twice as long for one filter a channel on 7 by 7 pixels. Of float32 torch's
library is at the peak, and kernels of one filter a channel took 1 to 2.4 times as long with what
follows them; for sequences (one dimension) 0.85.
"""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.bench.products import product_rates
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.nodes import Node, shape_of, value_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError

NAMES = ("p", "q", "r", "s", "at", "at_h", "at_w", "inside", "image", "filters")
"""What the text of a convolution calls its own things."""

_PLANE = 4096  # pixels of a block of a depthwise convolution
_PIXELS = 128  # of a block of others
_WIDEST = 512  # pixels in a row of the output: a block has whole rows
_NARROWEST = 16  # pixels in a row, which are a vector
_FEWEST = 16  # filters, and what a pixel sums, that are worth a kernel
_IMAGE = 16384  # elements of the part of the image that a block keeps


@dataclass(frozen=True, slots=True)
class Window:
    """The sizes of a convolution. Tuples have one number for each dimension of the image."""

    filters: int  # of one group, of all where each has one channel
    channels: int  # of one filter
    groups: int
    image: Extents
    out: Extents
    taps: Extents
    stride: Extents
    padding: Extents
    dilation: Extents

    @property
    def is_depthwise(self) -> bool:
        """Whether each filter sees one channel of several."""
        return self.channels == 1 and self.groups > 1

    @property
    def pixels(self) -> int:
        """Pixels of an output's channel."""
        return self.out[0] if len(self.out) == 1 else self.out[0] * self.out[1]

    @property
    def depth(self) -> int:
        """What one pixel sums: channels by taps."""
        count = self.channels
        for extent in self.taps:
            count *= extent
        return count

    def shapes(self, batch: Extents) -> tuple[Extents, Extents]:
        """Those of the filters and of the images as a kernel takes them."""
        if self.is_depthwise:
            return (self.filters, *self.taps), (*batch, self.groups, *self.image)
        groups = (self.groups,) if self.groups > 1 else ()
        return (*groups, self.filters, self.depth), (*batch, self.channels, *self.image)

    def tile(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        flat = len(self.out) == 1
        if self.is_depthwise:
            columns = min(self.pixels, _PLANE)
            if not flat:
                columns = max(1, min(self.out[0], _PLANE // self.out[1])) * self.out[1]
            return max(1, min(_PLANE // 2 // columns, 16, self.filters)), columns
        rows = min(128, max(16, 1 << (self.filters - 1).bit_length()))
        if flat:
            return rows, min(_PIXELS, max(16, self.pixels))
        return rows, max(1, min(self.out[0], _PIXELS // self.out[1])) * self.out[1]

    def parts(self, columns: int) -> Extents:
        """The rows and columns of the output in a block."""
        return (columns,) if len(self.out) == 1 else (columns // self.out[1], self.out[1])

    def spans(self, columns: int) -> Extents:
        """The rows and columns of the image that these pixels see."""
        sizes = zip(self.parts(columns), self.stride, self.taps, self.dilation, strict=True)
        return tuple((part - 1) * step + (taps - 1) * far + 1 for part, step, taps, far in sizes)


def window_of(node: Node) -> Window:
    """The sizes of `aten.convolution`. Raises `NoRuleError` for one that runs in torch."""
    data, weight, _, stride, padding, dilation, transposed, _, groups = node.args
    shape, filter_shape = shape_of(data), shape_of(weight)
    dimensions = len(shape) - 2
    if transposed or dimensions not in (1, 2):
        raise NoRuleError("a transposed convolution, or one of volumes, is torch's own")
    if any(not isinstance(each, int) for each in (*stride, *padding, *dilation)):
        raise NoRuleError("a convolution whose stride is open")
    for size in (*shape[1:], *filter_shape):
        if is_open(size):
            raise OpenSizeError(size)
    filters, channels, *taps = filter_shape
    if channels > 1:
        filters //= groups
    step, pad, far = (
        (tuple(each) * dimensions)[:dimensions] for each in (stride, padding, dilation)
    )
    out = shape_of(node)[2:]
    return Window(filters, channels, groups, shape[2:], out, tuple(taps), step, pad, far)


def domain_of(node: Node) -> Extents:
    """The extents of a convolution's result, with those of groups."""
    window, (images, _, *out) = window_of(node), shape_of(node)
    if window.is_depthwise or window.groups == 1:
        return shape_of(node)
    return (images, window.groups, window.filters, *out)


def check(node: Node) -> None:
    """Raise `NoRuleError` for a convolution that is as fast in torch."""
    window = window_of(node)
    kind = dtype_name(value_of(node).dtype)
    if any(dtype_name(value_of(each).dtype) != kind for each in node.args[:2]):
        raise NoRuleError("a convolution of two dtypes")
    if kind not in ("float32", "float16", "bfloat16"):
        raise NoRuleError(f"a convolution of {kind} is torch's own")
    if window.out[-1] > _WIDEST and len(window.out) > 1:
        raise NoRuleError(f"a convolution of images of {window.out[-1]} columns")
    if window.is_depthwise:
        if window.out[-1] < _NARROWEST:
            raise NoRuleError(f"a convolution of images of {window.out[-1]} columns")
        if kind == "float32" and len(window.out) > 1:
            raise NoRuleError("a convolution of float32 is as fast in torch")
        span = 1
        for each in window.spans(window.tile()[1]):
            span *= each
        if span * window.tile()[0] > 2 * _IMAGE:
            raise NoRuleError("a convolution whose windows are wide")
        return
    if kind == "float32" or not product_rates(kind).kernel_is_faster:
        raise NoRuleError(f"a convolution of {kind} is as fast in torch")
    if window.filters < (_FEWEST if window.groups == 1 else _FEWEST // 2) or window.depth < _FEWEST:
        raise NoRuleError("a convolution with few filters or channels is as fast in torch")


def summed(
    window: Window, tile: tuple[int, int], data: str, weight: str, dtype: str, is_batch: bool
) -> Iterator[str]:
    """The lines of a block that fill its accumulator `product`."""
    rows, columns = tile
    yield f"product = T.alloc_fragment(({rows}, {columns}), T.float32)"
    yield "T.clear(product)"
    image = f"{data}[bz, " if is_batch else f"{data}["
    if window.is_depthwise:
        yield from _tap_by_tap(window, tile, image, weight, dtype)
    else:
        yield from _gathered(window, tile, image, weight, dtype)


def _tap_by_tap(
    window: Window, tile: tuple[int, int], data: str, weight: str, dtype: str
) -> Iterator[str]:
    rows, columns = tile
    spans, parts = window.spans(columns), window.parts(columns)
    filters = f"by * {rows} + i" if rows > 1 else "by"
    of_each = window.filters // window.groups  # filters that see one channel
    channel = filters if of_each == 1 else f"({filters}) // {of_each}"
    places, taps = ("p", "q")[-len(parts) :], ("r", "s")[-len(parts) :]
    yield f"image = T.alloc_shared({_shape((rows, *spans))}, T.float32)"
    yield f"for {', '.join(('i', *places))} in T.Parallel({_listed((rows, *spans))}):"
    first = parts[0] * window.stride[0]
    starts = [f"bx * {first} + {places[0]}", *places[1:]]
    yield from _places(window, starts, data, channel, f"image[i, {', '.join(places)}]", dtype)
    indent = ""
    for tap, count in zip(taps, window.taps, strict=True):
        yield f"{indent}for {tap} in T.serial({count}):"
        indent += "    "
    yield f"{indent}for {', '.join(('i', *places))} in T.Parallel({_listed((rows, *parts))}):"
    seen = ", ".join(
        f"{times(place, step)} + {times(tap, far)}"
        for place, step, tap, far in zip(places, window.stride, taps, window.dilation, strict=True)
    )
    factor = _wide(f"{weight}[{filters}, {', '.join(taps)}]", dtype)
    yield f"{indent}    product[i, {_flat(places, parts)}] += image[i, {seen}] * {factor}"


def _gathered(
    window: Window, tile: tuple[int, int], data: str, weight: str, dtype: str
) -> Iterator[str]:
    rows, columns = tile
    parts, depth = window.parts(columns), window.depth
    places, step = ("p", "q")[-len(parts) :], 32
    yield f"filters = T.alloc_shared(({rows}, {step}), T.{dtype})"
    yield f"image = T.alloc_fragment(({step}, {columns}), T.{dtype})"
    yield f"for k in T.Pipelined(T.ceildiv({depth}, {step}), num_stages=2):"
    group = f"bz % {window.groups}, " if window.groups > 1 else ""
    yield f"    T.copy({weight}[{group}by * {rows}, k * {step}], filters)"
    yield f"    for {', '.join(('i', *places))} in T.Parallel({_listed((step, *parts))}):"
    yield f"        at = k * {step} + i"
    width = window.taps[-1]
    taps = [f"at % {width}"]
    if len(parts) > 1:
        taps = [f"at // {width} % {window.taps[0]}", *taps]
    if depth == window.channels:
        taps = ["0"] * len(parts)
    outer = [f"(bx * {parts[0]} + {places[0]})", *places[1:]]
    starts = [
        " + ".join([times(place, by), *([times(tap, far)] if tap != "0" else [])])
        for place, by, tap, far in zip(outer, window.stride, taps, window.dilation, strict=True)
    ]
    count = depth // window.channels
    channel = "at" if count == 1 else f"at // {count}"
    guard = f"(at < {depth})" if depth % step else ""
    target = f"image[i, {_flat(places, parts)}]"
    lines = _places(window, starts, data, channel, target, "float32", guard)
    yield from (f"    {line}" for line in lines)
    yield "    T.gemm(filters, image, product)"


def _places(
    window: Window,
    starts: list[str],
    data: str,
    channel: str,
    target: str,
    dtype: str,
    guard: str = "",
) -> Iterator[str]:
    """The lines that read an element of the image, 0 outside of it."""
    names = ("at_h", "at_w")[-len(starts) :]
    tests = [guard] if guard else []
    for name, start, pad, extent in zip(names, starts, window.padding, window.image, strict=True):
        yield f"    {name} = {start}" + (f" - {pad}" if pad else "")
        if pad:
            tests.append(f"({name} >= 0) & ({name} < {extent})")
    element = _wide(f"{data}{channel}, {', '.join(names)}]", dtype)
    if tests:
        yield f"    inside = {' & '.join(tests)}"
        element = f"T.if_then_else(inside, {element}, 0)"
    yield f"    {target} = {element}"


def times(text: str, count: int) -> str:
    return text if count == 1 else f"{text} * {count}"


def _wide(element: str, dtype: str) -> str:
    return element if dtype == "float32" else f"T.cast({element}, T.float32)"


def _flat(places: tuple[str, ...], parts: Extents) -> str:
    return places[0] if len(parts) == 1 else f"{places[0]} * {parts[1]} + {places[1]}"


def _listed(extents: Extents) -> str:
    return ", ".join(map(str, extents))


def _shape(extents: Extents) -> str:
    return f"({_listed(extents)})"
