"""Running sums along a dimension that is not the last one, as one kernel with what is summed and
what follows. A block has some columns and goes down their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from tileworkbench.pytorch.around import Around, gathered
from tileworkbench.pytorch.axes import Extended, regrouped, text_of_axes, whole
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import compute_dtype
from tileworkbench.pytorch.elements import Elements
from tileworkbench.pytorch.leaves import Leaves, dense_order
from tileworkbench.pytorch.lines import indented
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
from tileworkbench.pytorch.written import Tensor, Written, finished, free_name, text_of_kernel

_SCAN = "aten.cumsum.default"
_NARROWEST, _WIDEST = 16, 512  # columns of a block
_FEWEST = 8192  # elements that are worth a kernel


class Scan(Around):
    """A running sum, and what is computed around it."""


def scan(node: Node, taken: Collection[Node]) -> Scan | None:
    """The group of a running sum, without what is `taken` by others; None where there is none.
    Whether a kernel can be written is not known yet.
    """
    if name_of(node) != _SCAN or not node.users or node.kwargs:
        return None
    try:
        return Scan(*gathered(node, taken, is_cheap=False))
    except NoRuleError:
        return None


def written(group: Around, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a group; see `mapped.written`."""
    return _Writer(group, names).written(taken)


class _Writer:
    def __init__(self, group: Around, names: Mapping[Node, str]) -> None:
        self.group, self.called = group, names
        (self.root,) = group.outputs()
        value, shape = value_of(group.centre), shape_of(group.centre)
        if any(map(is_open, shape)) or prod(shape) < _FEWEST or not value.is_floating_point():
            raise NoRuleError("a running sum of few elements, of open sizes, or of integers")
        at = group.centre.args[1] % len(shape)
        self.outer, self.length, self.inner = shape[:at], shape[at], shape[at + 1 :]
        columns = prod(self.inner)
        self.columns = max(n for n in range(1, min(columns, _WIDEST) + 1) if columns % n == 0)
        if self.columns < _NARROWEST:
            raise NoRuleError("a running sum along elements that lie together")
        order = dense_order(shape_of(self.root), strides_of(self.root))
        self.result = Tensor(self.root, tuple(shape_of(self.root)[n] for n in order), order)

    def written(self, taken: Collection[str]) -> Written:
        sizes = {"by": prod(self.outer), "k": self.length, "column": prod(self.inner)}
        cuts = Extended({name: [size] for name, size in sizes.items()})
        body: list[str] = cuts.until_fine(self._body)
        labels = [label_of(each) for each in self.group.members if is_work(each)]
        name = free_name("_".join(dict.fromkeys((*labels[:1], "cumsum", labels[-1]))), taken)
        about = f"A block goes down {self.columns} columns of {self.length} rows."
        comments = [", ".join(labels), *cited(self.group.members), about]
        arguments, block = self.leaves.arguments(), self._block(body)
        text = text_of_kernel(name, comments, self.leaves.labels(), arguments, self.result, block)
        return finished(name, text, arguments, [self.result], {}, self.names)

    def _body(self, extents: Mapping[str, Sequence[int]]) -> list[str]:
        """The lines of the loop over columns, with coordinates cut like this."""
        self.names = Names("out", "running")
        self.leaves = Leaves(self.names, self.called)
        axes = {name: whole(name, own) for name, own in extents.items()}
        outer, inner = (
            regrouped((axes["by"],), self.outer),
            regrouped((axes["column"],), self.inner),
        )
        at = (*outer, axes["k"], *inner)
        centre, members = self.group.centre, self.group.members
        before = Elements(members, self.names, self.leaves.read)
        lines, (element,) = before.lines([before.at(centre.args[0], at)])
        made = Term("element", ("running[j]",), compute_dtype(value_of(centre).dtype), "full")
        after = Elements(members, self.names, self.leaves.read, {centre: (made, at)})
        index = self.group.followed_to_result(at)
        stored, (result,) = after.lines([after.at(self.root, index)])
        places = [index[n] for n in self.result.order]
        last = next(each for each in reversed(places) if each)[-1]
        if last.coordinate != "column":
            raise NoRuleError("a result in another order")
        place = ", ".join(map(text_of_axes, places))
        return [*lines, f"running[j] += {element}", *stored, f"out[{place}] = {result}"]

    def _block(self, body: Sequence[str]) -> Iterator[str]:
        blocks = f"{prod(self.inner) // self.columns}, {prod(self.outer)}"
        yield f"with T.Kernel({blocks}, threads=128) as (bx, by):"
        yield f"    running = T.alloc_fragment(({self.columns},), T.float32)"
        yield "    T.clear(running)"
        yield f"    for k in T.serial({self.length}):"
        yield f"        for j in T.Parallel({self.columns}):"
        yield f"            column = bx * {self.columns} + j"
        yield from indented(iter(body), 3)
