"""Whether a kernel is faster than the operations of torch that it stands for, measured once.

Products and attention of torch are those of a vendor's library, and no model knows how good that is
on every processor. So a kernel with much of such work is timed beside torch's operations when it is
compiled, on made-up tensors; the slower of the two is not used. So is one that reads long rows in
pieces: what it computes once more for each pass, and one thread for each row, may cost more than
torch's passes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.around import Around
from tileworkbench.pytorch.attention import Attention
from tileworkbench.pytorch.batch_norms import BatchNorm
from tileworkbench.pytorch.calls import Call
from tileworkbench.pytorch.convolutions import window_of
from tileworkbench.pytorch.grouped import Grouped
from tileworkbench.pytorch.groups import LEAST_TRIED, Group, is_convolution, operations_of
from tileworkbench.pytorch.handwritten import Handwritten
from tileworkbench.pytorch.mapped import Mapped
from tileworkbench.pytorch.nodes import Node, base_of, is_number, name_of, shape_of, value_of
from tileworkbench.pytorch.pooling import Pooling
from tileworkbench.pytorch.regions import Region
from tileworkbench.pytorch.row_products import RowProduct
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.rules import AnyGroup
from tileworkbench.pytorch.sizes import OpenSizes
from tileworkbench.pytorch.turned import Turned

_VECTOR = "aten.mv.default"
MEASURED = "measured: "
"""What a reason of this module begins with."""

_OPERATIONS_OF_A_READ = 40.0  # as long as an element takes from memory to a vector's product
_ROUNDS, _SECONDS = (3, 30), 0.015
_CLEAR = 1.3  # times the smaller one: no further round changes that
_DRAWN = 1 << 16  # random numbers of a tensor, which are repeated: drawing takes longest
_MOST_BYTES = 1 << 30  # of a graph's inputs that are made up
_COLD_BYTES, _MOST_COPIES = 16 << 20, 9
_MARGIN = 1.02  # a kernel that is slower by less than this is kept


def trial(group: AnyGroup, call: Call, sizes: OpenSizes) -> str:
    """Why torch runs the operations of a group: "" if its kernel is as fast, or was not tried."""
    if call.run is None or _operations(group, sizes) < LEAST_TRIED:
        return ""
    import torch

    with torch.no_grad(), _apart():
        values = [value_of(node) for node in call.nodes]
        count = _copies(sum(prod(map(int, value.shape)) * value.itemsize for value in values))
        first = [_contents(group, node) for node in call.nodes]
        sets = [first, *([_copy(tensor) for tensor in first] for _ in range(count - 1))]
        mine, others = _times([call, _alone(group, call.nodes)], sets)
    if mine <= _MARGIN * others:
        return ""
    return f"{MEASURED}torch takes {_shown(others)}, a kernel {_shown(mine)}"


def graph_trial(with_kernels: Callable[..., Any], captured: Any, inputs: Sequence[Any]) -> str:
    """Why a graph runs as torch captured it: "" if it is as fast with kernels, or was not tried.

    Capture for a compiler takes layers apart into many operations, and each is a call from Python.
    On few elements these calls are what takes time, and kernels may not make up for them. A graph
    is tried where a run touches nothing but its inputs, which are made up here; where gradients are
    taken, a run is that of both graphs.
    """
    import torch

    if not all(map(_is_plain, inputs)) or sum(each.nbytes for each in inputs) > _MOST_BYTES:
        return ""
    if any(map(_has_effects, captured.graph.nodes)):
        return ""
    with_gradients = takes_gradients(inputs)
    calls = [with_kernels, captured.forward]
    with torch.set_grad_enabled(with_gradients), _apart():
        # As small as the weights of models.
        tensors = [_made_up(each, 0.02).requires_grad_(each.requires_grad) for each in inputs]
        try:
            if with_gradients:
                calls = _both_ways(calls, tensors)
            mine, others = _times(calls, [tensors])
        except (IndexError, RuntimeError, ValueError):  # of what is made up
            return ""
    if mine <= _MARGIN * others:
        return ""
    what = "the whole graph with its gradients" if with_gradients else "the whole graph"
    return f"{MEASURED}{what} takes torch {_shown(others)}, with kernels {_shown(mine)}"


def takes_gradients(inputs: Sequence[Any]) -> bool:
    """Whether a graph of these inputs has one for gradients, which is compiled when they are first
    taken.
    """
    import torch

    return torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in inputs
    )


def _both_ways(calls: Sequence[Callable[..., Any]], inputs: Sequence[Any]) -> list[Any]:
    """The same calls, each with the gradients of its results."""
    import torch

    def differentiable(tensors: Sequence[Any]) -> list[Any]:
        return [each for each in tensors if each is not None and each.requires_grad]

    given = [torch.ones_like(each) for each in differentiable(calls[-1](*inputs))]

    def both(call: Callable[..., Any], *tensors: Any) -> Any:
        results, leaves = differentiable(call(*tensors)), differentiable(tensors)
        return torch.autograd.grad(results, leaves, given, allow_unused=True)

    return [functools.partial(both, call) for call in calls]


@contextmanager
def _apart() -> Iterator[None]:
    """Real tensors, where torch compiles with those without contents; random numbers that are drawn
    in here are not missing afterwards.
    """
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), torch.random.fork_rng(devices=[]):
        yield


def _has_effects(node: Node) -> bool:
    """Whether a run of a captured node may change what is no input of its graph."""
    target = node.target
    overloads = [getattr(target, name) for name in getattr(target, "overloads", list)()]
    schemas = [each._schema for each in overloads] or [getattr(target, "_schema", None)]
    own = str(target).startswith(("aten.", "aten::"))
    is_mutable = not own and any(each is not None and each.is_mutable for each in schemas)
    return node.op in ("get_attr", "call_module") or is_mutable


def _is_plain(value: Any) -> bool:
    """Whether an input of a graph is a tensor of fixed sizes on the CPU."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and all(isinstance(n, int) for n in (*value.shape, *value.stride()))
    )


def tried(group: AnyGroup) -> tuple[Node, ...]:
    """The operations of a group that a trial is about: what follows from them may be a kernel
    without them.
    """
    if isinstance(group, Turned):
        return group.copies or group.members
    if isinstance(group, Mapped | Pooling | Region):
        return ()
    if isinstance(group, Attention | RowProduct):
        return group.members
    if isinstance(group, BatchNorm):
        return (group.node,)
    if isinstance(group, Grouped):
        return (group.product,)
    if isinstance(group, Around):
        return (group.centre,)
    if group.product is not None:
        return (group.product,)
    names = (*ROWS, *aten.GATHERS) if group.has_long_rows else (_VECTOR,)
    return tuple(node for node in group.members if name_of(node) in names)


def _operations(group: AnyGroup, sizes: OpenSizes) -> float:
    """Multiplications and additions of a group's products."""
    if isinstance(group, Turned):
        return LEAST_TRIED  # always tried: the order costs torch much or little, as memory lies
    if isinstance(group, Mapped | Pooling | Region):
        return 0.0
    if isinstance(group, RowProduct):
        return _OPERATIONS_OF_A_READ * prod(group.domain)
    if isinstance(group, Grouped):
        rows, groups, depth, columns = group.sizes
        read = _OPERATIONS_OF_A_READ * min(sizes.hint(rows), groups) * depth * columns
        return max(2.0 * sizes.hint(rows) * depth * columns, read)
    makes_rows = isinstance(group, Group) and group.prologue and not group.dequantises
    is_long = isinstance(group, Group) and group.has_long_rows
    if isinstance(group, Around | BatchNorm) or makes_rows or is_long:
        return LEAST_TRIED  # always tried: what is around, or read again, may cost more than one
    if isinstance(group, Handwritten):
        widths = shape_of(group.scores.args[0])[-1] + shape_of(group.members[-1])[-1]
        return 2.0 * sizes.hint(prod(shape_of(group.softmax))) * widths
    if isinstance(group, Attention):
        query, key = shape_of(group.node.args[0]), shape_of(group.node.args[1])
        return 4.0 * sizes.hint(prod(query)) * sizes.hint(key[2])
    if group.product is None:
        elements = sum(sizes.hint(prod(shape_of(node.args[0]))) for node in tried(group))
        return _OPERATIONS_OF_A_READ * elements
    if is_convolution(group.product):
        results = 2.0 * sizes.hint(prod(shape_of(group.product)))
        return results * window_of(group.product).depth
    return operations_of(group.product)


def _alone(group: AnyGroup, inputs: Sequence[Node]) -> Callable[..., Any]:
    """The operations of a group in torch, as a function of these inputs."""
    import torch.fx

    graph = torch.fx.Graph()
    made: dict[Node, Any] = {node: graph.placeholder(node.name) for node in inputs}

    def copied(node: Node) -> Any:
        if is_number(node):  # an open one, as it was when the graph was captured
            return value_of(node).node.hint
        if node not in made:
            for each in node.all_input_nodes:
                copied(each)
            made[node] = graph.node_copy(node, copied)
        return made[node]

    graph.output([copied(node) for node in group.outputs()])
    forward: Callable[..., Any] = torch.fx.GraphModule(torch.nn.Module(), graph).forward
    return forward


def _contents(group: AnyGroup, node: Node) -> Any:
    """A tensor with contents for an input of a group's kernel."""
    made = _made_up(value_of(node))
    if isinstance(group, Grouped) and node is base_of(group.offsets):
        rows, groups, _, _ = group.sizes  # as many of each group
        for at in range(groups):
            made[at] = rows * (at + 1) // groups
    return made


def _made_up(value: Any, spread: float = 1.0) -> Any:
    """A tensor with contents like this one, which has none."""
    import torch

    shape, strides = ([int(n) for n in form] for form in (value.shape, value.stride()))
    tensor = torch.empty_strided(shape, strides, dtype=value.dtype)
    if not value.dtype.is_floating_point:
        return tensor.zero_()
    memory = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,))
    own = torch.Generator().manual_seed(0)  # the user's is left alone
    memory[:_DRAWN].normal_(std=spread, generator=own)
    for begin in range(_DRAWN, len(memory), _DRAWN):
        memory[begin : begin + _DRAWN].copy_(memory[: len(memory) - begin][:_DRAWN])
    return tensor


def _copy(tensor: Any) -> Any:
    """The same in other memory."""
    import torch

    other = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return other.copy_(tensor)


def _copies(nbytes: int) -> int:
    """How many sets of tensors take turns: in a model, others are read between two calls, and
    nothing is left of the weights in a core's own caches.
    """
    return max(2, min(_MOST_COPIES, -(-_COLD_BYTES // nbytes)))


def _times(calls: Sequence[Callable[..., Any]], sets: Sequence[Sequence[Any]]) -> list[float]:
    """The smallest time of each call, in seconds, called in turns, each with the next set."""
    best = [float("inf")] * len(calls)
    for call in calls:
        call(*sets[0])
    begun = time.perf_counter()
    for number in range(_ROUNDS[1]):
        is_clear = number > 2 and max(best) > _CLEAR * min(best)
        if is_clear or (number >= _ROUNDS[0] and time.perf_counter() - begun > _SECONDS):
            break
        for place, call in enumerate(calls):
            taken = sets[(number * len(calls) + place) % len(sets)]
            start = time.perf_counter()
            call(*taken)
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:.2g} ms"
