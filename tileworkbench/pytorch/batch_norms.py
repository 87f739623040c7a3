"""Batch normalisation by the statistics of the batch, with what follows it, as one kernel.

A block has one channel of all images. It goes over them three times: for the mean, for the variance
(of deviations, so that nothing cancels), and for the result. Running statistics are results, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.axes import Axis, Extended, Index, regrouped, whole
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.dtypes import named
from tileworkbench.pytorch.elements import Elements
from tileworkbench.pytorch.formulas import rsqrt
from tileworkbench.pytorch.leaves import United
from tileworkbench.pytorch.lines import indented, shape_text
from tileworkbench.pytorch.members import OneOperation
from tileworkbench.pytorch.nodes import (
    Node,
    assigned_names,
    cited,
    is_part,
    label_of,
    name_of,
    operands,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError, Term
from tileworkbench.pytorch.written import Tensor, Written, finished, free_name

_PARTS = ("out", "mean_out", "rstd_out", "running_mean_out", "running_var_out")
_FEWEST = 16  # elements of a channel that lie together
_LABELS = 3
_FUNCTIONAL = 8  # arguments of the operation with running statistics


@dataclass(frozen=True, slots=True)
class BatchNorm(OneOperation):
    """A normalisation, the parts of its result, and what follows from it, element by element."""

    @property
    def domain(self) -> Extents:
        """The extents of what it normalises."""
        return shape_of(self.node.args[0])

    def outputs(self) -> list[Node]:
        """The members that other operations read."""
        inside = set(self.members)
        return [each for each in self.members[1:] if not inside.issuperset(each.users)]


def is_over_images(node: Node) -> bool:
    """Whether a normalisation is over several images: those of one are rows."""
    return shape_of(node.args[0])[0] != 1 or len(node.args) == _FUNCTIONAL


def batch_norm(node: Node) -> BatchNorm:
    """The group that a normalisation begins. Raises `NoRuleError` for one that runs in torch."""
    images, _, *spatial = shape = shape_of(node.args[0])
    for size in shape:
        if is_open(size):
            raise OpenSizeError(size)
    kind = dtype_name(value_of(node.args[0]).dtype)
    if kind not in ("float32", "float16", "bfloat16"):
        raise NoRuleError(f"a normalisation of {kind} is torch's own")
    if not node.args[-3]:
        raise NoRuleError("a normalisation by known statistics that are results, too")
    if prod(spatial) < _FEWEST or images * prod(spatial) < 2:
        raise NoRuleError("a normalisation over elements that lie apart is torch's own")
    return BatchNorm((node,))


def joined(group: BatchNorm, node: Node) -> BatchNorm:
    """The group with one operation more. Raises `NoRuleError` where its kernel has no form."""
    grown = replace(group, members=(*group.members, node))
    if is_part(node):
        return grown
    is_element = name_of(node) in (*aten.MAPS, aten.CONVERSION)
    statistics = any(is_part(each) and not _is_first(each) for each in operands(node))
    if not is_element or statistics or shape_of(node) != group.domain:
        raise NoRuleError("behind a batch normalisation, not element by element")
    written(grown, {})
    return grown


def written(group: BatchNorm, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a group; see `writing.written`."""
    return _Writer(group, names).written(taken)


class _Writer:
    def __init__(self, group: BatchNorm, names: Mapping[Node, str]) -> None:
        self.group, self.called = group, names
        self.x, self.weight, self.bias, *self.running = group.node.args[:-3]
        _, self.momentum, self.eps = group.node.args[-3:]
        self.images, self.channels, *self.spatial = group.domain
        self.columns = prod(self.spatial)
        self.count = self.images * self.columns
        self.full = [each for each in group.outputs() if shape_of(each) == group.domain]
        self.rows = [each for each in group.outputs() if each not in self.full]

    def written(self, taken: Collection[str]) -> Written:
        sizes = {"image": self.images, "channel": self.channels, "column": self.columns}
        body = Extended({name: [n] for name, n in sizes.items()}).until_fine(self._body)
        labels = [label_of(each) for each in self.group.members[1:] if not is_part(each)]
        name = free_name("_".join(dict.fromkeys(["batch_norm", *labels][:_LABELS])), taken)
        arguments = [Tensor(node, shape) for node, (_, shape) in self.leaves.of.items()]
        results = [
            Tensor(each, (self.images, self.channels, self.columns)) for each in self.full
        ] + [Tensor(each, (self.channels,)) for each in self.rows]
        text = "\n".join(self._lines(name, body, arguments, results)) + "\n"
        return finished(name, text, arguments, results, {}, self.names)

    def _lines(
        self, name: str, body: list[str], arguments: list[Tensor], results: list[Tensor]
    ) -> Iterator[str]:
        labels = [label_of(each) for each in self.group.members if not is_part(each)]
        yield f"# {', '.join(labels)}"
        yield from (f"# {line}" for line in cited(self.group.members))
        yield f"# A block has a channel of all images: {self.images} rows of {self.columns}."
        yield "@T.prim_func"
        yield f"def {name}("
        for each, (label, _) in zip(arguments, self.leaves.of.values(), strict=True):
            yield f"    {label}: T.Tensor{_form(each)},"
        yield "):"
        for each in results:
            yield f"    {self.stored[each.node]} = T.empty{_form(each)}"
        yield f"    with T.Kernel({self.channels}, threads=128) as channel:"
        yield from indented(iter(body), 2)
        yield f"    return {', '.join(self.stored[each.node] for each in results)}"

    def _body(self, extents: Mapping[str, Sequence[int]]) -> list[str]:
        """The lines of a block, with coordinates cut like this."""
        self.names = Names("image", "channel", "tile", "deviation", *_OF_A_CHANNEL)
        self.stored = self._names_of_results()
        self.leaves = United(self.names, self.called)
        axes = {name: whole(name, own) for name, own in extents.items()}
        inner = regrouped((axes["column"],), tuple(self.spatial))
        return [
            f"tile = T.alloc_fragment((1, {self.columns}), T.float32)",
            *(f"{each} = T.alloc_fragment((1,), T.float32)" for each in _OF_A_CHANNEL),
            "T.clear(mean)",
            "T.clear(squares)",
            *self._passes((axes["image"], axes["channel"], *inner), axes["channel"]),
        ]

    def _names_of_results(self) -> dict[Node, str]:
        called = assigned_names(self.group.members)
        names = {}
        for each in self.group.outputs():
            wanted = called.get(each, "return")
            plain = "out" if wanted == "return" else f"{wanted}_out"
            names[each] = self.names.name(_PARTS[each.args[1]] if is_part(each) else plain)
        return names

    def _passes(self, at: Index, channel: tuple[Axis, ...]) -> Iterator[str]:
        elements = Elements(self.group.members, self.names, self.leaves.read)
        x = elements.at(self.x, at)
        _, (element,) = elements.lines([x])
        yield from self._over_images([f"tile[i, column] = {element}"], "mean")
        yield from _of_channel([f"mean[i] = mean[i] / {float(self.count)}"])
        _, (deviation,) = elements.lines([x - _number("mean")])
        square = [f"deviation = {deviation}", "tile[i, column] = deviation * deviation"]
        yield from self._over_images(square, "squares")
        yield from _of_channel(self._statistics((channel,)))
        if self.full:  # others may read the statistics alone
            yield from self._over_images(self._stores(x, at, (channel,)))

    def _over_images(self, lines: Sequence[str], total: str = "") -> Iterator[str]:
        """A loop over the elements of a channel, of whose tiles `total` is the sum."""
        yield f"for image in T.serial({self.images}):"
        yield f"    for i, column in T.Parallel(1, {self.columns}):"
        yield from indented(iter(lines), 2)
        if total:
            yield f"    T.reduce_sum(tile, {total}, dim=1, clear=False)"

    def _statistics(self, channel: Index) -> list[str]:
        """The lines that store what follows from the sums of a channel."""
        elements = Elements(self.group.members, self.names, self.leaves.read)
        mean, squares = _number("mean"), _number("squares")
        rstd = elements.keep("rstd", rsqrt(squares / float(self.count) + self.eps))
        scale = rstd if self.weight is None else rstd * elements.at(self.weight, channel)
        made: dict[int, Term] = {1: mean, 2: rstd}
        new = (mean, squares / float(self.count - 1))
        for place, (node, term) in enumerate(zip(self.running, new, strict=False), 3):
            made[place] = elements.at(node, channel) * (1.0 - self.momentum) + term * self.momentum
        lines, (scaled, *texts) = elements.lines([scale, *(made[n.args[1]] for n in self.rows)])
        places = (f"{self.stored[each]}[channel]" for each in self.rows)
        stores = (f"{place} = {text}" for place, text in zip(places, texts, strict=True))
        return [*lines, f"scale[i] = {scaled}", *stores]

    def _stores(self, x: Term, at: Index, channel: Index) -> list[str]:
        """The lines that store what follows from an element."""
        elements = Elements(self.group.members, self.names, self.leaves.read)
        normalised = (x - _number("mean")) * _number("scale")
        if self.bias is not None:
            normalised = normalised + elements.at(self.bias, channel)
        kept = elements.keep("normalised", normalised)
        elements.given |= {each: (kept, at) for each in self.group.members if _is_first(each)}
        lines, texts = elements.lines([elements.at(each, at) for each in self.full])
        places = (f"{self.stored[each]}[image, channel, column]" for each in self.full)
        return [*lines, *(f"{at} = {text}" for at, text in zip(places, texts, strict=True))]


_OF_A_CHANNEL = ("mean", "squares", "scale")


def _of_channel(lines: Sequence[str]) -> Iterator[str]:
    """A loop over the one channel of a block."""
    yield "for i in T.Parallel(1):"
    yield from indented(iter(lines), 1)


def _number(name: str) -> Term:
    """A number of the block's channel."""
    return Term("element", (f"{name}[i]",), named("float32"), "full")


def _is_first(node: Node) -> bool:
    return is_part(node) and node.args[1] == 0


def _form(each: Tensor) -> str:
    return f"({shape_text(each.shape)}, T.{dtype_name(value_of(each.node).dtype)})"
