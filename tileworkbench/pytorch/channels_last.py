"""Convolutions of images of which the channels of a pixel lie together, as one kernel with what
follows them: pixels by filters (implicit GEMM).

For each tap of the filters a block reads the pixels that it sees, some channels at a time, which
are vectors, and multiplies them. torch's library (oneDNN) is at the peak for large images. It lays
the filters out again in each call, which takes as long as the product where images are small. So a
kernel is timed beside it (`trials`). Measured on an AMD EPYC (Zen 4), one thread: the residual
blocks of a ResNet-50, of 56 to 7 pixels square, took 1.02 to 1.35 times as long in torch in
float32, and 1.0 to 1.5 times in bfloat16.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tileworkbench.bench.products import product_rates
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.around import Around, chain_of
from tileworkbench.pytorch.axes import Axis, Extended, text_of_axes, whole
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.convolutions import NAMES, Window, times, window_of
from tileworkbench.pytorch.dtypes import compute_dtype
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.elements import Elements
from tileworkbench.pytorch.leaves import Leaves, dense_order
from tileworkbench.pytorch.lines import indented
from tileworkbench.pytorch.mapped import check_tensors, kept
from tileworkbench.pytorch.nodes import (
    Node,
    cited,
    is_work,
    label_of,
    name_of,
    shape_of,
    strides_of,
    value_of,
)
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError, Term
from tileworkbench.pytorch.written import (
    Tensor,
    Written,
    base_name,
    finished,
    free_name,
    text_of_kernel,
)

ORDER = (0, 2, 3, 1)
_FEWEST = 16  # filters and channels of a group that are worth a kernel
_PIXELS, _WIDEST = 128, 512  # of a block; in a row of the output, which a block has whole
_FILTERS, _CHANNELS = 64, 256  # of a block, and of a step, at most


class ConvolutionLast(Around):
    """A convolution whose channels lie together, and what follows from it."""


def is_last(node: Node) -> bool:
    """Whether an operation is a convolution whose result has the channels of a pixel together."""
    value = value_of(node)
    if name_of(node) != aten.CONVOLUTION or value.dim() != 4:
        return False
    is_dense = node.meta["sizes"].is_contiguous
    return not is_dense(value) and bool(is_dense(value.permute(ORDER)))


def convolution_last(node: Node, taken: Collection[Node]) -> ConvolutionLast | None:
    """The group of a convolution, without what is `taken` by others; None where there is none.
    Whether a kernel can be written is not known yet.
    """
    if not node.users or not is_last(node):
        return None
    try:
        check(node)
        members = chain_of(node, taken)
        for each in members:
            check_tensors(each)
    except NoRuleError:
        return None
    return ConvolutionLast(tuple(members), node)


def check(node: Node) -> None:
    """Raise `NoRuleError` for a convolution that torch runs, with the reason."""
    if is_open(shape_of(node)[0]):
        raise NoRuleError("a batch in channels_last whose size torch keeps open")
    window = window_of(node)
    check_tensors(node)
    kind = dtype_name(value_of(node).dtype)
    if any(dtype_name(value_of(each).dtype) != kind for each in node.args[:2]):
        raise NoRuleError("a convolution of two dtypes")
    if kind not in ("float32", "float16", "bfloat16"):
        raise NoRuleError(f"a convolution of {kind} is torch's own")
    rates = product_rates(kind)
    if not (rates.kernel_is_faster or rates.is_close):
        raise NoRuleError(f"a convolution of {kind} is as fast in torch")
    if value_of(node.args[0]).stride(1) != 1:
        raise NoRuleError("an image in another order than the result")
    if window.out[1] > _WIDEST:
        raise NoRuleError(f"a convolution of images of {window.out[1]} columns")
    if min(window.filters, _channels(window)) < _FEWEST or _filters(window) < _FEWEST // 2:
        raise NoRuleError("a convolution with few filters or channels is as fast in torch")


def _filters(window: Window) -> int:
    """The filters of a block, all of one group."""
    most = min(window.filters, _FILTERS)
    if window.groups == 1:
        return most
    return next(n for n in range(most, 0, -1) if window.filters % n == 0)


def _channels(window: Window) -> int:
    """The channels of a step, which divide those of a filter."""
    most = min(window.channels, _CHANNELS)
    return next(n for n in range(most, 0, -1) if window.channels % n == 0)


def written(group: Around, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a group; see `mapped.written`."""
    return _Writer(group, names).written(taken)


class _Writer:
    def __init__(self, group: Around, names: Mapping[Node, str]) -> None:
        self.group, self.called = group, names
        (self.root,) = group.outputs()
        self.window = window_of(group.centre)
        height, self.wide = self.window.out
        most = max(1, _PIXELS // self.wide)  # rows of the output, as many in each block
        self.rows = -(-height // -(-height // most))
        self.filters, self.channels = _filters(self.window), _channels(self.window)
        order = dense_order(shape_of(self.root), strides_of(self.root))
        self.result = Tensor(self.root, tuple(shape_of(self.root)[n] for n in order), order)

    def written(self, taken: Collection[str]) -> Written:
        images, filters, height, wide = shape_of(self.group.centre)
        sizes = {"bz": images, "row": height, "q": wide, "channel": filters}
        cuts = Extended({name: [size] for name, size in sizes.items()})
        stored: list[str] = cuts.until_fine(self._stored)
        data, weight = self.group.centre.args[:2]
        window, shape = self.window, shape_of(data)
        depth = window.depth
        tensors = [
            Tensor(data, tuple(shape[n] for n in ORDER), ORDER),
            Tensor(weight, (filters, depth), ORDER),
        ]
        labels = [self.names.name(base_name(each.node, self.called)) for each in tensors]
        works = [label_of(each) for each in self.group.members if is_work(each)]
        name = free_name("_".join(dict.fromkeys((*works[:2], works[-1]))), taken)
        about = f"A block computes {self.rows} x {wide} pixels of {self.filters} filters."
        comments = [", ".join(works), *cited(self.group.members), about]
        body = [*self._multiplied(labels[0], labels[1]), *stored]
        blocks = f"{-(-height // self.rows)}, {-(-filters // self.filters)}, {images}"
        lines = [f"with T.Kernel({blocks}, threads=128) as (bx, by, bz):", *indented(iter(body), 1)]
        arguments = [*tensors, *self.leaves.arguments()]
        labels += self.leaves.labels()
        text = text_of_kernel(name, comments, labels, arguments, self.result, lines)
        return finished(name, text, arguments, [self.result], {}, self.names)

    def _multiplied(self, data: str, weight: str) -> Iterator[str]:
        window, (high, width) = self.window, self.window.taps
        dtype = dtype_name(value_of(self.group.centre).dtype)
        pixels, channels = self.rows * self.wide, self.channels
        yield f"filters = T.alloc_shared(({self.filters}, {channels}), T.{dtype})"
        yield f"image = T.alloc_fragment(({pixels}, {channels}), T.{dtype})"
        yield f"product = T.alloc_fragment(({pixels}, {self.filters}), T.float32)"
        yield "T.clear(product)"
        yield f"for r, s, k in T.grid({high}, {width}, {window.channels // channels}):"
        tap = times("r", width) + " + s"
        depth = f"({tap}) * {window.channels} + k * {channels}"
        yield f"    T.copy({weight}[by * {self.filters}, {depth}], filters)"
        yield f"    for p, q, j in T.Parallel({self.rows}, {self.wide}, {channels}):"
        starts = (f"(bx * {self.rows} + p)", "q")
        tests = []
        for at, (name, start, tap) in enumerate(zip(("at_h", "at_w"), starts, "rs", strict=True)):
            pad = window.padding[at]
            far = times(tap, window.dilation[at]) + (f" - {pad}" if pad else "")
            yield f"        {name} = {times(start, window.stride[at])} + {far}"
            if pad:
                tests.append(f"({name} >= 0) & ({name} < {window.image[at]})")
        channel = f"k * {channels} + j"
        if window.groups > 1:
            blocks = window.filters // self.filters
            channel = f"by // {blocks} * {window.channels} + {channel}"
        element = f"{data}[bz, at_h, at_w, {channel}]"
        if tests:
            yield f"        inside = {' & '.join(tests)}"
            element = f"T.if_then_else(inside, {element}, 0)"
        yield f"        image[p * {self.wide} + q, j] = {element}"
        yield "    T.gemm(image, filters, product, transpose_B=True)"

    def _stored(self, extents: Mapping[str, Sequence[int]]) -> list[str]:
        """The lines that store what follows from the product, with coordinates cut like this."""
        self.names = Names("out", "product", "channel", *NAMES)
        self.leaves = Leaves(self.names, self.called)
        axes = {name: whole(name, each) for name, each in extents.items()}
        at = (axes["bz"], axes["channel"], axes["row"], axes["q"])
        centre, members = self.group.centre, self.group.members
        place = f"product[p * {self.wide} + q, j]"
        made = Term("element", (place,), compute_dtype(value_of(centre).dtype), "full")
        elements = Elements(members, self.names, self.leaves.read, keeps_columns="channel")
        if centre.args[2] is not None:
            made = made + elements.at(centre.args[2], (axes["channel"],))
        elements.given[centre] = (made, at)
        index = self.group.followed_to_result(at)
        lines, (element,) = elements.lines([elements.at(self.root, index)])
        places = [index[n] for n in self.result.order]
        _check_order(places)
        stored = f"out[{', '.join(map(text_of_axes, places))}] = {element}"
        return [
            *kept(elements.lines_of_columns(), "channel", shape_of(centre)[1]),
            f"for p, q, j in T.Parallel({self.rows}, {self.wide}, {self.filters}):",
            f"    row = bx * {self.rows} + p",
            f"    channel = by * {self.filters} + j",
            *indented(iter([*lines, stored]), 1),
        ]


def _check_order(places: Sequence[tuple[Axis, ...]]) -> None:
    last = next(each for each in reversed(places) if each)[-1]
    if last.coordinate != "channel":
        raise NoRuleError("a result in another order")
