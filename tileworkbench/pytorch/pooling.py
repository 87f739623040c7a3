"""Pooling over the windows of images: the largest element of each, or their mean.

Where a channel's pixels lie together, windows are taken apart: a block reduces its columns first,
along whole rows of the image, and then the rows of what that gives. Where the channels of a pixel
lie together, a block has a row of the output and goes over the windows' taps.

Measured on an AMD EPYC (Zen 4), one thread, 64 to 256 channels of 56 to 256 pixels square each:
where a channel's pixels lie together torch's `max_pool2d` takes 8 to 28 times as long and
`avg_pool2d` 6 to 21 times (2 for windows of 7 by 7 that cover the image). Where the channels of a
pixel lie together it takes 0.8 to 2.9 times as long, and 0.4 for those windows of 7 by 7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.lines import indented, shape_text
from tileworkbench.pytorch.members import OneOperation
from tileworkbench.pytorch.nodes import Node, cited, name_of, shape_of, value_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.written import Tensor, Written, base_name, finished, free_name

LARGEST = "aten.max_pool2d.default"
_MOST_TAPS = 16  # along one dimension
_TILE = 8192  # elements that a block keeps
_CHANNELS_LAST = (0, 2, 3, 1)


@dataclass(frozen=True, slots=True)
class Windows:
    """The sizes of a pooling; tuples have a number for the height and one for the width. `divisor`
    is what sums are divided by, 0 where the largest element is wanted. `order` is that of the
    dimensions in memory, empty where a channel's pixels lie together."""

    image: Extents
    out: Extents
    taps: Extents
    stride: Extents
    padding: Extents
    dilation: Extents
    divisor: int
    order: Extents


@dataclass(frozen=True, slots=True)
class Pooling(OneOperation):
    """A group that is one pooling."""

    @property
    def domain(self) -> Extents:
        """The extents of what it reads."""
        return shape_of(self.node.args[0])

    def outputs(self) -> list[Node]:
        """What other operations read."""
        return list(self.members)


def pooling(node: Node) -> Pooling:
    """The group of a pooling. Raises `NoRuleError` for one that runs in torch."""
    windows_of(node)
    return Pooling((node,))


def windows_of(node: Node) -> Windows:
    """The sizes of a pooling. Raises `NoRuleError` for one that runs in torch."""
    data, taps, *rest = node.args
    stride = rest[0] if rest else []
    padding = rest[1] if len(rest) > 1 else 0
    rest = rest[2:]
    taps, padding = _pair(taps), _pair(padding)
    dilation, divisor = _pair(1), 0
    if name_of(node) == LARGEST:
        dilation = _pair(rest[0] if rest else 1)
    else:
        divisor = _divisor(taps, padding, *rest)
    shape, value = shape_of(data), value_of(data)
    for size in shape[-3:]:
        if is_open(size):
            raise OpenSizeError(size)
    if dtype_name(value.dtype) not in ("float32", "float16", "bfloat16"):
        raise NoRuleError(f"a window of {dtype_name(value.dtype)} is torch's own")
    if max(taps) > _MOST_TAPS:
        raise NoRuleError(f"a window of {max(taps)} pixels is torch's own")
    order = _order(node)
    step = _pair(stride) if stride else taps
    sizes = Windows(shape[-2:], shape_of(node)[-2:], taps, step, padding, dilation, divisor, order)
    kept = shape[1] * sizes.out[1] if order else _columns(sizes)
    if kept > 4 * _TILE:
        raise NoRuleError("a window over rows of so many elements is torch's own")
    return sizes


def _divisor(
    taps: Extents,
    padding: Extents,
    ceils: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> int:
    if divisor is not None:
        return divisor
    if ceils or (any(padding) and not counts_padding):
        raise NoRuleError("a mean over windows of several sizes is torch's own")
    return taps[0] * taps[1]


def _order(node: Node) -> Extents:
    """The order of dimensions of what a pooling reads and makes."""
    sizes = node.meta["sizes"]
    values = value_of(node.args[0]), value_of(node)
    if all(map(sizes.is_contiguous, values)):
        return ()
    if all(v.dim() == 4 and sizes.is_contiguous(v.permute(_CHANNELS_LAST)) for v in values):
        return _CHANNELS_LAST
    raise NoRuleError("a tensor that is not dense")


def _pair(value: int | Sequence[int]) -> Extents:
    values = (value,) if isinstance(value, int) else tuple(value)
    if not all(isinstance(each, int) for each in values):
        raise NoRuleError("a window whose size is open")
    return (*values, *values)[:2]


def written(group: Pooling, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a pooling; see `writing.written`."""
    node, called = group.node, Names("tall", "best", "p", "q", "r", "s", "c", "w", "at_h", "at_w")
    sizes, data = windows_of(node), node.args[0]
    order = sizes.order
    shapes = [shape_of(each) for each in (data, node)]
    shapes = [
        tuple(shape[at] for at in order) if order else (prod(shape[:-2]), *shape[-2:])
        for shape in shapes
    ]
    label = called.name(base_name(data, names))
    out = called.name("out")
    name = free_name("max_pool" if name_of(node) == LARGEST else "mean_pool", taken)
    dtype = dtype_name(value_of(data).dtype)
    block = _channels_last if order else _planes
    lines = [
        *(f"# {line}" for line in cited([node])),
        "@T.prim_func",
        f"def {name}({label}: T.Tensor({shape_text(shapes[0])}, T.{dtype})):",
        f"    {out} = T.empty({shape_text(shapes[1])}, T.{dtype})",
        *indented(block(sizes, shapes[1], label, out, dtype), 1),
        f"    return {out}",
    ]
    arguments, results = (
        [Tensor(each, shape, order)] for each, shape in zip((data, node), shapes, strict=True)
    )
    return finished(name, "\n".join(lines) + "\n", arguments, results, {}, called)


def _columns(sizes: Windows) -> int:
    """The columns of the padded image that a row of the output sees."""
    return (sizes.out[1] - 1) * sizes.stride[1] + (sizes.taps[1] - 1) * sizes.dilation[1] + 1


def _planes(sizes: Windows, out: Extents, data: str, to: str, dtype: str) -> Iterator[str]:
    """The block of images of which each channel's pixels lie together."""
    (high, wide), columns = sizes.out, _columns(sizes)
    rows = max(n for n in range(1, high + 1) if not high % n and (n == 1 or n * columns <= _TILE))
    yield f"with T.Kernel({high // rows}, {out[0]}, threads=128) as (bx, by):"
    yield f"    tall = T.alloc_shared(({rows}, {columns}), T.float32)"
    yield f"    for p, w in T.Parallel({rows}, {columns}):"
    first = f"bx * {rows} + p" if high > rows else "p"
    at_w = f"w - {sizes.padding[1]}" if sizes.padding[1] else "w"
    terms = []
    for r in range(sizes.taps[0]):
        row = _placed(f"({first})" if high > rows else first, r, sizes, 0)
        test = _inside(row, sizes, 0, r) + _inside(at_w, sizes, 1)
        element = _wide(f"{data}[by, {row}, {at_w}]", dtype)
        terms.append(_guarded(element, test, sizes))
    yield from indented(_reduced(terms, "tall[p, w]", sizes), 2)
    yield f"    for p, q in T.Parallel({rows}, {wide}):"
    places = (_times("q", sizes.stride[1]), sizes.dilation[1])
    terms = [f"tall[p, {places[0]}{_plus(s * places[1])}]" for s in range(sizes.taps[1])]
    yield from indented(_reduced(terms, f"{to}[by, {first}, q]", sizes, is_last=True), 2)


def _channels_last(sizes: Windows, out: Extents, data: str, to: str, dtype: str) -> Iterator[str]:
    """The block of images of which each pixel's channels lie together."""
    images, high, wide, channels = out
    yield f"with T.Kernel({high}, {images}, threads=128) as (bx, by):"
    yield f"    best = T.alloc_fragment(({wide}, {channels}), T.float32)"
    yield f"    T.fill(best, {_neutral(sizes)})"
    yield f"    for r, s in T.grid({sizes.taps[0]}, {sizes.taps[1]}):"
    yield f"        for q, c in T.Parallel({wide}, {channels}):"
    for name, start, tap, at in (("at_h", "bx", "r", 0), ("at_w", "q", "s", 1)):
        pad = f" - {sizes.padding[at]}" if sizes.padding[at] else ""
        far = _times(tap, sizes.dilation[at])
        yield f"            {name} = {_times(start, sizes.stride[at])} + {far}{pad}"
    element = _wide(f"{data}[by, at_h, at_w, c]", dtype)
    test = [*_inside("at_h", sizes, 0), *_inside("at_w", sizes, 1)]
    terms = ["best[q, c]", _guarded(element, test, sizes)]
    yield from indented(_reduced(terms, "best[q, c]", sizes), 3)
    yield f"    for q, c in T.Parallel({wide}, {channels}):"
    yield from indented(_reduced(["best[q, c]"], f"{to}[by, bx, q, c]", sizes, is_last=True), 2)


def _placed(first: str, tap: int, sizes: Windows, at: int) -> str:
    """The row or column of the image that a tap of a window sees."""
    start = tap * sizes.dilation[at] - sizes.padding[at]
    return f"{_times(first, sizes.stride[at])}{_plus(start)}"


def _inside(place: str, sizes: Windows, at: int, tap: int | None = None) -> list[str]:
    """What has to be true of a row or column of the image; of a tap's, less."""
    last = (sizes.out[at] - 1) * sizes.stride[at] - sizes.padding[at]
    far = (sizes.taps[at] - 1) * sizes.dilation[at]
    reach = far if tap is None else tap * sizes.dilation[at]
    before = -sizes.padding[at] + (0 if tap is None else reach) < 0
    return [
        *([f"({place} >= 0)"] if before else []),
        *([f"({place} < {sizes.image[at]})"] if last + reach >= sizes.image[at] else []),
    ]


def _guarded(element: str, test: Sequence[str], sizes: Windows) -> str:
    if not test:
        return element
    return f"T.if_then_else({' & '.join(test)}, {element}, {_neutral(sizes)})"


def _reduced(
    terms: Sequence[str], target: str, sizes: Windows, is_last: bool = False
) -> Iterator[str]:
    """The lines that store the sum of terms, or the largest: NaN where one is, as torch has it."""
    if sizes.divisor:
        total = " + ".join(terms)
        if is_last and sizes.divisor != 1:
            total = f"({total}) / {float(sizes.divisor)}"
        yield f"{target} = {total}"
        return
    known = terms[0]
    if len(terms) > 1:
        yield f"most_0 = {known}"
        known = "most_0"
    for at, term in enumerate(terms[1:], 1):
        yield f"seen_{at} = {term}"
        larger = f"(seen_{at} > {known}) | T.isnan(seen_{at})"
        yield f"most_{at} = T.if_then_else({larger}, seen_{at}, {known})"
        known = f"most_{at}"
    yield f"{target} = {known}"


def _neutral(sizes: Windows) -> str:
    return "0.0" if sizes.divisor else "-T.infinity(T.float32)"


def _wide(element: str, dtype: str) -> str:
    return element if dtype == "float32" else f"T.cast({element}, T.float32)"


def _times(text: str, count: int) -> str:
    return text if count == 1 else f"{text} * {count}"


def _plus(count: int) -> str:
    return f" {'+' if count > 0 else '-'} {abs(count)}" if count else ""
