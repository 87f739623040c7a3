"""What may begin a kernel, and what may join it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tileworkbench.bench.products import product_rates
from tileworkbench.pytorch import (
    aten,
    attention,
    batch_norms,
    channels_last,
    convolutions,
    grouped,
    grouped_text,
    handwritten,
    in_torch,
    mapped,
    mapped_products,
    pooling,
    regions,
    row_products,
    scans,
    shapes,
    turned,
)
from tileworkbench.pytorch.around import Around
from tileworkbench.pytorch.attention import Attention
from tileworkbench.pytorch.batch_norms import BatchNorm
from tileworkbench.pytorch.channels_last import ConvolutionLast
from tileworkbench.pytorch.dtypes import is_known
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.gathers import gather_of
from tileworkbench.pytorch.grouped import Grouped
from tileworkbench.pytorch.groups import (
    Group,
    domain_of,
    is_convolution,
    is_tried,
    place,
    plan,
    weight_of,
)
from tileworkbench.pytorch.handwritten import Handwritten
from tileworkbench.pytorch.mapped import Mapped
from tileworkbench.pytorch.mapped_products import MappedProduct
from tileworkbench.pytorch.nodes import (
    Node,
    changes,
    is_part,
    is_tuple,
    name_of,
    operands,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.pooling import Pooling
from tileworkbench.pytorch.prologues import prologue_of
from tileworkbench.pytorch.regions import Region
from tileworkbench.pytorch.row_products import RowProduct, row_product
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.scans import Scan
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.turned import Turned
from tileworkbench.pytorch.writing import written
from tileworkbench.pytorch.written import Written

AnyGroup = Group | Attention | Around | BatchNorm | Grouped | Mapped | Pooling | Region | RowProduct

_WRITERS: dict[type, Callable[[Any, Mapping[Node, str], Collection[str]], Written]] = {
    Attention: attention.written,
    BatchNorm: batch_norms.written,
    ConvolutionLast: channels_last.written,
    Grouped: grouped_text.written,
    Handwritten: handwritten.written,
    Mapped: mapped.written,
    MappedProduct: mapped_products.written,
    Pooling: pooling.written,
    Region: regions.written,
    RowProduct: row_products.written,
    Scan: scans.written,
    Turned: turned.written,
}


def text_of(
    group: AnyGroup, names: Mapping[Node, str], taken: Collection[str] = (), threads: int = 0
) -> Written:
    """The kernel of a group; see `writing.written` and `groups.plan`."""
    write = _WRITERS.get(type(group))
    if write is not None:
        return write(group, names, taken)
    assert isinstance(group, Group)
    return written(group, plan(group, threads), names, taken)


def started(node: Node) -> AnyGroup:
    """A group of one operation. Raises `NoRuleError` for one that runs in torch."""
    name = name_of(node)
    if name in in_torch.REASONS:
        raise NoRuleError(in_torch.REASONS[name])
    if name == aten.ATTENTION:
        _check_tensors(node)
        return attention.started(node)
    if name in aten.BATCH_NORMS and batch_norms.is_over_images(node):
        _check_dtypes(node)
        return batch_norms.batch_norm(node)
    if name in aten.POOLS:
        _check_tensors(node)
        return pooling.pooling(node)
    if name in aten.GROUPED:
        _check_tensors(node)
        return grouped.grouped_product(node)
    if not weight_of(node):
        is_own = not name.startswith("aten.")
        raise NoRuleError("an operator of its own, no operation of ATen" if is_own else _NO_RULE)
    if channels_last.is_last(node):
        channels_last.check(node)
    _check_dtypes(node)
    gather = gather_of(node)
    if name in aten.PRODUCTS:
        return row_product(node) or _product(node)
    if name in ROWS or gather is not None:
        inner = _reduced(node) if gather is None else gather.columns
        group = Group((node,), _fine(domain_of(node)), inner)
        group = replace(group, domain=common(group.domain, _rows_and_columns(group)))
    elif not _fine(shape_of(node)):
        raise NoRuleError("on few elements, it is as fast in torch")
    else:
        group = Group((node,), _fine(shape_of(node)))
    written(group, plan(group), {})
    return group


def _product(node: Node) -> Group:
    """The group that a product begins, with what makes its second operand if that is faster."""
    group = Group((node,), _fine(shape_of(node)), product=node)
    if is_convolution(node):
        convolutions.check(node)
        group = replace(group, domain=_fine(convolutions.domain_of(node)))
        written(group, plan(group), {})
        return group
    prologue = prologue_of(node)
    if prologue:
        try:
            for each in prologue:
                _check_tensors(each)
            _check_product(node, prologue)
            together = replace(group, prologue=prologue)
            written(together, plan(together), {})
            return together
        except NoRuleError as error:
            if isinstance(error, OpenSizeError):
                raise
    _check_product(node, ())
    written(group, plan(group), {})
    return group


def _check_product(node: Node, prologue: Sequence[Node]) -> None:
    first, second, _ = aten.PRODUCTS[name_of(node)]
    a, b = value_of(node.args[first]), value_of(node.args[second])
    extents = (*shape_of(node.args[first])[-2:], *shape_of(node.args[second])[-2:])
    if node.kwargs:
        raise NoRuleError("a scaled product")
    kind = dtype_name(a.dtype)
    if a.dtype != b.dtype or kind not in _MULTIPLIED:
        raise NoRuleError(f"a product of {kind} is torch's own")
    rates = product_rates(kind)
    if prologue:
        work = sum(map(weight_of, prologue))
        if not rates.kernel_dequantises_faster(node.meta["sizes"].hint(extents[0]), work):
            raise NoRuleError("with so many rows it is as fast to make the weight in torch first")
    elif kind != "float32" and not (rates.kernel_is_faster or (rates.is_close and is_tried(node))):
        raise NoRuleError(
            f"this processor multiplies {kind} by instructions, with which torch is faster"
        )
    if kind == "float32" and len(shape_of(node)) == 3 and not is_tried(node):
        raise NoRuleError("a batch of float32 products is as fast in torch")
    if min(extents[1:] if prologue else extents) < _SMALL:
        raise NoRuleError("a product with few rows or columns is as fast in torch")
    for size in (*shape_of(node)[-1:], *shape_of(node.args[second])[-2:]):
        if is_open(size):
            raise OpenSizeError(size)


def grouped_of(node: Node, taken: Collection[Node]) -> Grouped:
    """The group of a grouped product, with what else its kernel can do. Raises `NoRuleError`."""
    alone = started(node)
    assert isinstance(alone, Grouped)
    for group in grouped.grown(alone, taken):
        try:
            for each in group.members:
                _check_tensors(each)
            grouped_text.written(group, {})
            return group
        except NoRuleError:
            continue
    raise NoRuleError("a grouped product without a form")


_NO_RULE = "no rule for it"
_MULTIPLIED = ("float32", "float16", "bfloat16")
_SMALL = 16  # rows, columns or depth of a product that is not worth a kernel


def _fine(shape: Extents) -> Extents:
    return tuple(extent for extent in shape if extent != 1)


def _rows_and_columns(group: Group) -> Extents:
    return (prod(group.domain) // group.inner, group.inner)


def joined(group: AnyGroup, node: Node) -> AnyGroup:
    """The group with one operation more, whose operands are some of its values. Raises
    `NoRuleError` where the kernel would have no form.
    """
    if isinstance(group, Grouped):
        raise NoRuleError("behind a grouped product, what its kernel has is decided")
    if isinstance(group, Pooling | Region | RowProduct):
        raise NoRuleError("on few elements, its kernel is another")
    if isinstance(group, Around):
        raise NoRuleError("a kernel that is whole when it begins")
    if isinstance(group, Attention):
        return group.joined(node)
    if isinstance(group, BatchNorm):
        _check_dtypes(node)
        return batch_norms.joined(group, node)
    assert isinstance(group, Group)  # what is mapped is found when all others are
    name = name_of(node)
    if (
        name in aten.PRODUCTS
        or name in aten.GATHERS
        or not (is_part(node) or name in aten.VIEWS or weight_of(node))
    ):
        raise NoRuleError(_NO_RULE)
    _check_dtypes(node)
    inner = group.inner
    domain = domain_of(node)
    if name in ROWS:
        if group.product is not None:
            raise NoRuleError("a reduction over the rows of a product's tiles")
        reduced = _reduced(node)
        if inner and reduced != inner:
            raise NoRuleError("reductions over rows of two lengths")
        inner = reduced
    elements, whole = prod(domain), prod(group.domain)
    if elements == whole:
        fine = common(group.domain, domain)
    elif inner and elements * inner == whole:
        rows = group.domain[: place(group.domain, inner)]
        fine = common(rows, domain) + group.domain[len(rows) :]
    else:
        raise NoRuleError("another number of elements")
    if inner:
        fine = common(fine, (whole // inner, inner))
    grown = replace(group, members=(*group.members, node), domain=fine, inner=inner)
    for each in operands(node):
        if each in group.members and name not in aten.VIEWS and not is_part(node):
            check_value(grown, each, domain)
    written(grown, plan(grown), {})
    return grown


def check_value(group: Group, operand: Node, domain: Extents) -> None:
    """Raise `NoRuleError` for a member that another reads, of these extents, unless it has an
    element for each of those, or one for each row.
    """
    if is_tuple(operand):
        return
    shape = shape_of(operand)
    if prod(shape) == prod(domain):
        return
    aligned = (1,) * (len(domain) - len(shape)) + shape
    if not group.inner or not any(
        aligned[:at] == domain[:at]
        and set(aligned[at:]) <= {1}
        and prod(domain[at:]) == group.inner
        for at in range(len(domain) + 1)
    ):
        raise NoRuleError("a value that is broadcast inside of the kernel")


def common(a: Sequence[int], b: Sequence[int]) -> Extents:
    """The coarsest extents that both shapes are made of. Raises `NoRuleError` for no such."""
    fine = shapes.common_extents(a, b)
    if fine is None:
        raise NoRuleError("shapes that cut across each other")
    return fine


def _reduced(node: Node) -> int:
    """The product of the dimensions that a row operation goes over. Raises `NoRuleError` where
    those are not the last ones.
    """
    shape = domain_of(node)
    dims = ROWS[name_of(node)].dims(*node.args, **node.kwargs) or range(len(shape))
    places = sorted(dim % len(shape) for dim in dims) if shape else []
    if not places or places != list(range(len(shape) - len(places), len(shape))):
        raise NoRuleError("not along the last dimensions")
    count = prod([shape[at] for at in places])
    if is_open(count):
        raise OpenSizeError(count)
    if count == 1:
        raise NoRuleError("rows of one element")
    if name_of(node) == aten.PICK and prod(shape_of(node)) * count != prod(shape):
        raise NoRuleError("an index for each element is torch's own")
    return count


def _check_dtypes(node: Node) -> None:
    made = _check_tensors(node)
    sizes = node.meta["sizes"]
    if not all(each is None or sizes.is_contiguous(each) for each in made):
        raise NoRuleError("a result that is not contiguous")


def _check_tensors(node: Node) -> Sequence[Any]:
    """The results of an operation. Raises `NoRuleError` where it has tensors that no kernel has."""
    import torch

    if changes(node):
        raise NoRuleError("a number that is another in each call")
    values = [value_of(each) for each in (node, *operands(node))]
    for value in values:
        for each in value if isinstance(value, tuple | list) else (value,):
            if each is None:
                continue
            if not isinstance(each, torch.Tensor) or each.layout != torch.strided:
                raise NoRuleError("what is no dense tensor")
            if not is_known(each.dtype):
                raise NoRuleError(f"{each.dtype} is not computed here")
            if node.meta["sizes"].count(each) == 0:
                raise NoRuleError("a tensor without elements")
            if each.device.type != "cpu":
                raise NoRuleError(f"a tensor on {each.device}")
    return values[0] if isinstance(values[0], tuple | list) else (values[0],)
