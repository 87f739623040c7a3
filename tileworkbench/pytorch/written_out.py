"""Operations that stand for simpler ones, written out where kernels then take those.

`aten._weight_int8pack_mm(x, codes, scales)` is `(x @ codes.T) * scales`. The gradient of a
convolution's image, where its stride is 1, is a convolution of the result's gradient with the
filters turned around (their taps reversed, filters and channels exchanged) and the rest of the
padding. Operations with several results of which one is read are those with that one. Losses of
classes read one element of each row, and their gradients are zero but there. What no kernel takes
is put together again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.nodes import Node, is_part, name_of, value_of
from tileworkbench.pytorch.sizes import OpenSizes, is_open

_MEAN, _IGNORED = 1, -100  # of a loss: a reduction, what stands for no class


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """`made` stands where `whole` did. It stays if `part` of it is in a kernel."""

    whole: Node
    made: Node
    part: Node

    @property
    def operation(self) -> Node:
        """The operation that `whole` is, or is a result of."""
        made: Node = self.whole.args[0] if is_part(self.whole) else self.whole
        return made


def write_out(graph: Any) -> Callable[[Collection[Node]], bool]:
    """Write out operations of a graph.

    Returns a function of the operations that kernels do. It puts the others together again, and
    returns whether there were any.
    """
    rules = {
        "aten._weight_int8pack_mm.default": _packed_weight,
        "aten.convolution_backward.default": _image_gradient,
        "aten.max_pool2d_with_indices.default": _pooled,
        "aten._native_batch_norm_legit_no_training.default": _normalised,
        "aten.nll_loss_forward.default": _class_loss,
        "aten.nll_loss_backward.default": _class_gradient,
    }
    tried = (rules[name_of(each)](graph, each) for each in [*graph.nodes] if name_of(each) in rules)
    written = [each for each in tried if each is not None]
    held: dict[Node, Any] = {}  # what operations read whose place others have: nobody reads it now
    for each in written:
        each.whole.replace_all_uses_with(each.made)
        if set(each.operation.users) <= {each.whole}:
            held[each.operation], each.operation.args = each.operation.args, ()

    def put_together(inside: Collection[Node]) -> bool:
        others = [each for each in written if each.part not in inside]
        for each in others:
            if each.operation in held:
                each.operation.args = held.pop(each.operation)
            each.made.replace_all_uses_with(each.whole)
            written.remove(each)
        if not others:
            for each in written:
                if each.operation not in held:  # its other results are read
                    _finish(each.whole)
            written.clear()
        whole = {each.whole for each in written}  # may have to take its place again
        graph.eliminate_dead_code(lambda node: node in whole or node.is_impure())
        return bool(others)

    return put_together


def _finish(whole: Node) -> None:
    """Compute no gradient of a convolution's image that is written out."""
    if is_part(whole) and name_of(whole.args[0]) == "aten.convolution_backward.default":
        gradients = whole.args[0]
        gradients.args = (*gradients.args[:-1], [False, *gradients.args[-1][1:]])


def _packed_weight(graph: Any, node: Node) -> WrittenOut | None:
    import torch

    aten = torch.ops.aten
    x, codes, scales = node.args
    dtype = value_of(x).dtype
    if value_of(scales).dtype != dtype or value_of(node).dtype != dtype:
        return None
    with graph.inserting_before(node.next):
        weight = _call(graph, node, aten._to_copy.default, codes, dtype=dtype)
        turned = _call(graph, node, aten.t.default, weight)
        product = _call(graph, node, aten.mm.default, x, turned)
        scaled = _call(graph, node, aten.mul.Tensor, product, scales)
    return WrittenOut(node, scaled, weight)


def _image_gradient(graph: Any, node: Node) -> WrittenOut | None:
    """That of filters of 16-bit floats; other convolutions are as fast in torch anyway."""
    import torch

    aten = torch.ops.aten
    gradient, _, weight, _, stride, padding, dilation, transposed, _, groups, wanted = node.args
    parts = [each for each in node.users if is_part(each) and each.args[1] == 0]
    shape = tuple(value_of(weight).shape)
    if transposed or not wanted[0] or len(parts) != 1 or len(shape) not in (3, 4):
        return None
    if any(not isinstance(each, int) for each in (*shape, *stride, *padding, *dilation)):
        return None
    taps = shape[2:]
    step, pad, far = ((*each, *each)[: len(taps)] for each in (stride, padding, dilation))
    rest = [by * (n - 1) - own for by, n, own in zip(far, taps, pad, strict=True)]
    if set(step) != {1} or min(rest) < 0 or dtype_name(value_of(weight).dtype) == "float32":
        return None
    filters, channels = shape[0] // groups, shape[1]
    with graph.inserting_before(parts[0].next):
        made = _call(graph, node, aten.view.default, weight, [groups, filters, channels, *taps])
        made = _call(graph, node, aten.transpose.int, made, 1, 2)
        made = _call(graph, node, aten.flip.default, made, [*range(3, 3 + len(taps))])
        turned = [groups * channels, filters, *taps]
        made = _call(graph, node, aten.reshape.default, made, turned)
        zeros = [0] * len(taps)
        how = (None, list(step), rest, list(far), False, zeros, groups)
        made = _call(graph, node, aten.convolution.default, gradient, made, *how)
    return WrittenOut(parts[0], made, made)


def _pooled(graph: Any, node: Node) -> WrittenOut | None:
    """The largest elements of windows, where nobody asks where they are."""
    import torch

    return _only(graph, node, torch.ops.aten.max_pool2d.default, node.args)


def _normalised(graph: Any, node: Node) -> WrittenOut | None:
    """A batch normalisation by known statistics, which are not results. Of tensors in other orders
    torch makes contiguous ones, and says that it keeps the order."""
    import torch

    x = value_of(node.args[0])
    orders = (torch.contiguous_format, *([torch.channels_last] * (x.dim() == 4)))
    if not any(x.is_contiguous(memory_format=order) for order in orders):
        return None
    *tensors, momentum, eps = node.args
    args = (*tensors, False, momentum, eps, True)
    return _only(graph, node, torch.ops.aten.batch_norm.default, args)


def _class_loss(graph: Any, node: Node) -> WrittenOut | None:
    """The loss of a class for each row, without weights: that of rows of one element, which is the
    class's own. Nobody asks for the sum of the weights, as gradients do."""
    import torch

    aten = torch.ops.aten
    scores, classes, weight, reduction, ignored = node.args
    parts = list(node.users)
    is_plain = weight is None and value_of(scores).dim() == 2
    if not is_plain or len(parts) != 1 or not is_part(parts[0]) or parts[0].args[1] != 0:
        return None
    with graph.inserting_before(parts[0].next):
        left_out = _call(graph, node, aten.eq.Scalar, classes, ignored, name="left_out")
        place = _call(graph, node, aten.masked_fill.Scalar, classes, left_out, 0, name="place")
        only = _call(graph, node, aten.zeros_like.default, classes)
        only = _call(graph, node, aten.masked_fill.Scalar, only, left_out, _IGNORED)
        place = _call(graph, node, aten.unsqueeze.default, place, 1)
        picked = _call(graph, node, aten.gather.default, scores, 1, place)
        how = (None, reduction, _IGNORED)
        loss = _call(graph, node, aten.nll_loss_forward.default, picked, only, *how)
        loss = _call(graph, node, operator.getitem, loss, 0)
    return WrittenOut(parts[0], loss, picked)


def _class_gradient(graph: Any, node: Node) -> WrittenOut | None:
    """The gradient of such a loss for the logarithms of a softmax: zeros but for the class of each
    row, which the kernel of the softmax's gradient does not read from memory."""
    import torch

    aten = torch.ops.aten
    gradient, scores, classes, weight, reduction, ignored, total = node.args
    count = OpenSizes().number(value_of(scores).shape[-1])
    readers = [name_of(each) for each in node.users]
    is_plain = weight is None and value_of(scores).dim() == 2 and not is_open(count)
    if not is_plain or readers != ["aten._log_softmax_backward_data.default"]:
        return None
    with value_of(scores).fake_mode, graph.inserting_before(node.next):
        left_out = _call(graph, node, aten.eq.Scalar, classes, ignored, name="left_out")
        scale = _call(graph, node, aten.neg.default, gradient)
        if reduction == _MEAN:
            scale = _call(graph, node, aten.div.Tensor, scale, total)
        scale = _call(graph, node, aten.masked_fill.Scalar, scale, left_out, 0.0, name="scale")
        scale = _call(graph, node, aten.unsqueeze.default, scale, 1)
        classes = _call(graph, node, aten.unsqueeze.default, classes, 1)
        columns = _call(graph, node, aten.arange.start_step, 0, count)
        is_class = _call(graph, node, aten.eq.Tensor, classes, columns)
        made = _call(graph, node, aten.where.ScalarOther, is_class, scale, 0.0, name="gradient")
    return WrittenOut(node, made, made)


def _only(graph: Any, node: Node, target: Any, args: Sequence[Any]) -> WrittenOut | None:
    """An operation of one result for the first of several, if others are not read."""
    parts = list(node.users)
    if len(parts) != 1 or not is_part(parts[0]) or parts[0].args[1] != 0:
        return None
    with graph.inserting_before(parts[0].next):
        made = graph.call_function(target, tuple(args))
    made.meta = {**parts[0].meta, "stack_trace": node.meta.get("stack_trace")}
    return WrittenOut(parts[0], made, made)


def _call(
    graph: Any, like: Node, target: Any, *args: Any, name: str | None = None, **options: Any
) -> Node:
    """A new node with its value, at the user's line of `like`."""
    import torch.fx

    made: Node = graph.create_node("call_function", target, args, options, name)
    values = torch.fx.map_arg(args, value_of)
    made.meta = {"val": target(*values, **options), "stack_trace": like.meta.get("stack_trace")}
    return made
