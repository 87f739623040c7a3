"""A kernel as a node of a graph.

A graph's tensors are known: torch has checked the inputs, and their views only say how memory is
read. So where all sizes are fixed, a call takes the tensors behind the views, adds up addresses and
starts the kernel; only strides are looked at again, and torch makes no view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import Interrupted, RunError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.nodes import (
    Node,
    base_of,
    is_number,
    offset_of,
    shape_of,
    strides_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import Formula, formula, is_open
from tileworkbench.pytorch.written import Tensor, Written
from tileworkbench.workbench.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Place:
    """Where a view's elements are: `offset` bytes behind the first one of the tensor `base`, which
    has these `strides`."""

    base: Node
    offset: int
    strides: Extents


def place_of(each: Tensor) -> Place | None:
    """Where a kernel finds an argument without a copy; None where torch has to make one."""
    base = base_of(each.node)
    value, whole = value_of(each.node), value_of(base)
    if whole is None or isinstance(whole, tuple | list):
        return None
    if value.untyped_storage()._cdata != whole.untyped_storage()._cdata:
        return None
    shape, strides, begins = shape_of(each.node), strides_of(each.node), offset_of(each.node)
    if any(map(is_open, (*shape, *strides, begins, *strides_of(base), offset_of(base)))):
        return None
    order = each.order or tuple(range(len(shape)))
    if not _is_dense([(shape[at], strides[at]) for at in order]):
        return None
    return Place(base, (begins - offset_of(base)) * value.itemsize, strides_of(base))


def _is_dense(extents: Sequence[tuple[int, int]]) -> bool:
    """Whether elements with these (extent, stride) are one behind the other."""
    expected = 1
    for extent, stride in reversed(extents):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


class Call:
    """A kernel as a node of a graph: it takes and returns tensors of torch's shapes. `nodes` are
    those whose tensors it takes, `results` what it makes; `run` is `Kernel.run_at` where a call
    needs no more than that. `is_update` says that it writes to tensors that it takes.
    """

    def __init__(self, kernel: Kernel, what: Written, is_update: bool = False) -> None:
        self.kernel = kernel
        self.__name__ = kernel.name
        self.is_update = is_update
        self.results = what.results
        self._arguments, self._known = what.arguments, what.known
        self.run = None if what.known else kernel.run_at
        self._nodes = [each.node for each in what.arguments]
        self._places = [place_of(each) if self.run else None for each in what.arguments]
        taken = [
            node if place is None else place.base
            for node, place in zip(self._nodes, self._places, strict=True)
        ]
        others = (node for node, _ in what.known.values())
        self.nodes = tuple(dict.fromkeys((*taken, *others)))
        self._from = [self.nodes.index(node) for node in taken]
        self._shapes = [self._formulas(each.shape) for each in what.arguments]
        self._made = [self._formulas(each.ordered) for each in what.results]
        self._fixed = None if what.known else (_values(self._shapes, {}), _values(self._made, {}))
        self.new = [] if what.known else [_empty(each) for each in what.results]
        self._offsets = [place.offset if place else 0 for place in self._places]
        self.strides = [
            (at, place.strides)
            for at, place in zip(self._from, self._places, strict=True)
            if place is not None
        ]
        self._copied = [at for at, place in enumerate(self._places) if place is None]
        # What a sequence of calls needs; it makes no copies.
        self.launches = () if self.run is None or self._copied else kernel.native_launches
        self.places = list(zip(self._from, self._offsets, strict=True))
        self.result_bytes = [prod(size) * dtype.itemsize for size, _, dtype in self.new]

    def __call__(self, *tensors: Any) -> Any:
        if self.run is None or any(tensors[at].stride() != has for at, has in self.strides):
            return self._checked(tensors)
        import torch

        addresses = [
            tensors[at].data_ptr() + offset
            for at, offset in zip(self._from, self._offsets, strict=True)
        ]
        if self._copied:
            assert self._fixed is not None
            kept = {}
            for at in self._copied:
                tensor = tensors[self._from[at]]
                kept[at] = self._arguments[at].to_kernel(tensor, self._fixed[0][at])
                addresses[at] = kept[at].data_ptr()
        made = [torch.empty_strided(size, stride, dtype=dtype) for size, stride, dtype in self.new]
        try:
            self.run([*addresses, *(each.data_ptr() for each in made)])
        except Interrupted:
            raise  # the user wants no second run
        except RunError:
            return self._checked(tensors)  # which says more of it
        return made[0] if len(made) == 1 else made

    def _checked(self, tensors: Sequence[Any]) -> Any:
        """By a call of the kernel that checks its arguments."""
        values = dict(zip(self.nodes, tensors, strict=True))
        taken, given = self._fixed or self._sizes(values)
        made = self.kernel(
            *[
                form.to_kernel(self._argument(at, tensors), taken[at])
                for at, form in enumerate(self._arguments)
            ]
        )
        if not given:
            return made
        if len(given) == 1:
            return self.results[0].to_torch(made, given[0])
        return [
            form.to_torch(each, shape)
            for form, each, shape in zip(self.results, made, given, strict=True)
        ]

    def _argument(self, at: int, tensors: Sequence[Any]) -> Any:
        """torch's tensor of an argument: a view of what the call takes."""
        taken, place = tensors[self._from[at]], self._places[at]
        if place is None:
            return taken
        node = self._nodes[at]
        return taken if place.base is node else _viewed(node, place.base, taken)

    def _sizes(self, values: Mapping[Node, Any]) -> tuple[list[Extents], list[Extents]]:
        known = {
            size: values[node] if at < 0 else values[node].shape[at]
            for size, (node, at) in self._known.items()
        }
        return _values(self._shapes, known), _values(self._made, known)

    def _formulas(self, shape: Extents) -> list[Formula]:
        return [formula(size, self._known) for size in shape]


def _viewed(node: Node, base: Node, tensor: Any) -> Any:
    """The tensor of a view's node, whose base has this one."""
    if node is base:
        return tensor
    if is_number(node):  # none that is open: see `place_of`
        return int(value_of(node))
    import torch.fx

    args, kwargs = torch.fx.map_arg(
        (node.args, node.kwargs), lambda each: _viewed(each, base, tensor)
    )
    return node.target(*args, **kwargs)


def _empty(each: Tensor) -> tuple[Extents, Extents, Any]:
    """(extents, strides, dtype) of a result as torch has it."""
    value = value_of(each.node)
    order = each.order or tuple(range(value.dim()))
    shape = shape_of(each.node)
    strides = [0] * len(shape)
    for place, at in enumerate(order):
        strides[at] = prod(shape[inner] for inner in order[place + 1 :])
    return shape, tuple(strides), value.dtype


def _values(shapes: Sequence[Sequence[Formula]], known: Mapping[int, int]) -> list[Extents]:
    return [tuple(size.value(known) for size in shape) for shape in shapes]
