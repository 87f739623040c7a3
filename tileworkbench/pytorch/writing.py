"""A group as a kernel: its values as terms, its text, and how torch's tensors become arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.body import Body, Form, Output, Parameter, Product
from tileworkbench.pytorch.convolutions import NAMES, window_of
from tileworkbench.pytorch.gathers import Gather, gather_of
from tileworkbench.pytorch.groups import Group, added_to, is_convolution
from tileworkbench.pytorch.maps import element_of
from tileworkbench.pytorch.nodes import (
    Node,
    assigned_names,
    constant_of,
    is_part,
    is_view,
    label_of,
    line_of,
    name_in_kernel,
    name_of,
    operands,
    readers_of,
    seen_through,
    shape_of,
    strides_of,
    unviewed,
    value_of,
)
from tileworkbench.pytorch.program import write
from tileworkbench.pytorch.prologues import tile_lines
from tileworkbench.pytorch.rows import ROWS, RowOperation
from tileworkbench.pytorch.terms import NoRuleError, Term, number, select
from tileworkbench.pytorch.written import Tensor, Written, base_name, finished, free_name

if TYPE_CHECKING:
    from tileworkbench.pytorch.groups import Plan

_NUMBERS = (int, float, bool)
_BY_ELEMENTS = (*aten.MAPS, aten.CONVERSION)
_LABELS = 3  # operations that a kernel's name tells


def written(
    group: Group, plan: Plan, names: Mapping[Node, str], taken: Collection[str] = ()
) -> Written:
    """The kernel of a group; `names` are those that the user's code has for tensors, `taken` are
    the names of other kernels. Raises `NoRuleError` where the table has no expression for a use of
    an operation.
    """
    body = Body(plan.form)
    product, whole = _product(group, plan.form, body, names)
    tables = _tables(group, body, names)
    whole = (*whole, *(Tensor(gather.table, (gather.rows, gather.columns)) for gather in tables))
    inputs, known = _inputs(plan, body, names, product, whole)
    read = {node: each for node, each in inputs.items() if node not in known}
    called = assigned_names(group.members)
    counted = {node for node in plan.patterns if plan.counts_columns(node)}
    values = _Values(group, body, inputs, counted, called, tables)
    for node in group.members:
        values.add(node)
    outputs = [
        Output(
            body.name(_output_name(node, called)),
            value_of(node).dtype,
            values.of[node],
            is_full=prod(shape_of(node)) == prod(group.domain),
        )
        for node in group.outputs()
    ]
    for output in outputs:
        if output.term.kind == "number":
            raise NoRuleError("a constant")
    name = _kernel_name(group, taken)
    text = write(
        name,
        _comments(group, plan.form),
        plan.form,
        list(read.values()),
        body,
        outputs,
        product,
        list(tables.items()),
    )
    loaded = [Tensor(node, each.shape(plan.form)) for node, each in read.items()]
    results = [
        Tensor(node, output.shape(plan.form))
        for node, output in zip(group.outputs(), outputs, strict=True)
    ]
    wanted = {plan.form.row_count: "rows", plan.form.columns: "columns"}
    made = finished(name, text, (*whole, *loaded), results, wanted, body)
    return replace(made, note=_of_first_operand(group, plan.form))


def _inputs(
    plan: Plan,
    body: Body,
    names: Mapping[Node, str],
    product: Product | None,
    whole: Sequence[Tensor],
) -> tuple[dict[Node, Parameter], set[Node]]:
    """What is read element by element, and what of it is a parameter already: an operand of the
    product, or what the tile of one is computed from.
    """
    leaves = {} if product is None else product.leaves
    operands = {} if product is None else _operands(product, whole)
    made, known = {}, set()
    for node, pattern in plan.patterns.items():
        if plan.counts_columns(node):
            continue
        name, read = leaves.get(node) or (operands.get(node) or "", None)
        parameter = Parameter(name, value_of(node).dtype, *pattern)
        if read is not None and parameter.shape(plan.form) != read:
            raise NoRuleError("a tensor that is read in two shapes")
        shapes = [each.shape for each in whole if each.node is node and not each.order]
        if name and parameter.shape(plan.form) in shapes:
            known.add(node)
        else:
            parameter = replace(parameter, name=body.name(base_name(node, names)))
        made[node] = parameter
    return made, known


def _operands(product: Product, whole: Sequence[Tensor]) -> dict[Node, str]:
    """The names of the matrices of a product by their nodes, which come first in a kernel."""
    if product.window is not None or any(product.tiles):
        return {}
    return {each.node: name for each, name in zip(whole, (product.a, product.b), strict=False)}


def _product(
    group: Group, form: Form, body: Body, names: Mapping[Node, str]
) -> tuple[Product | None, tuple[Tensor, ...]]:
    node = group.product
    if node is None:
        return None, ()
    first, second, _ = aten.PRODUCTS[name_of(node)]
    nodes = (node.args[first], node.args[second])
    if is_convolution(node):
        return _convolution(node, form, body, names)
    flipped = tuple(_is_transposed(strides_of(each)) for each in nodes)
    arguments, called, tiles = [], [], []
    for place, (each, is_flipped) in enumerate(zip(nodes, flipped, strict=True)):
        is_made = each in group.prologue
        tile = tile_lines(each, place, group.prologue, body, names) if is_made else None
        tiles.append(tile)
        if tile is not None:
            arguments += [Tensor(leaf, shape) for leaf, (_, shape) in tile.leaves.items()]
            called.append(tile.name)
            continue
        matrix = _matrix(each, is_flipped, form)
        if matrix in arguments and not any(tiles):  # times itself
            called.append(called[0])
            continue
        arguments.append(matrix)
        called.append(body.name(base_name(each, names)))
    depth = shape_of(nodes[0])[-1]
    body.name("product")
    for each in called:
        body.name(f"{each}_shared")
    dtype = value_of(nodes[0]).dtype
    transposed = (flipped[0] and tiles[0] is None, flipped[1])
    made = (tiles[0], tiles[1])
    return Product(called[0], called[1], dtype, transposed, depth, made), tuple(arguments)


def _convolution(
    node: Node, form: Form, body: Body, names: Mapping[Node, str]
) -> tuple[Product, tuple[Tensor, ...]]:
    for each in (*NAMES, "product"):
        body.name(each)
    window = window_of(node)
    data, weight = node.args[:2]
    batch = (form.batch_count,) if form.batches else ()
    a, b = (body.name(base_name(each, names)) for each in (weight, data))
    shapes = window.shapes(batch)
    arguments = (Tensor(weight, shapes[0]), Tensor(data, shapes[1]))
    dtype = value_of(data).dtype
    return Product(a, b, dtype, (False, False), window.depth, window=window), arguments


def _matrix(node: Node, is_flipped: bool, form: Form) -> Tensor:
    """An operand of a product as the kernel takes it, its last dimensions as they lie in memory."""
    shape = shape_of(node)
    order: tuple[int, ...] = ()
    if is_flipped:
        order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        shape = tuple(shape[at] for at in order)
    batch = (form.batch_count,) if form.batches else ()
    return Tensor(node, (*batch, *shape[-2:]), order)


def _tables(group: Group, body: Body, names: Mapping[Node, str]) -> dict[Gather, Parameter]:
    """The tables that a group's gathers read, as parameters."""
    tables = {}
    for node in group.members:
        gather = gather_of(node)
        if gather is not None:
            name = body.name(base_name(gather.table, names))
            tables[gather] = Parameter(name, value_of(gather.table).dtype, (), True)
    return tables


def _is_transposed(strides: Sequence[int]) -> bool:
    rows, columns = strides[-2:]
    return bool(rows == 1 and columns != 1)


class _Values:
    """The terms of a group's values."""

    def __init__(
        self,
        group: Group,
        body: Body,
        inputs: Mapping[Node, Parameter],
        counted: Collection[Node],
        called: Mapping[Node, str],
        tables: Mapping[Gather, Parameter],
    ) -> None:
        self.tables, self.counted = tables, counted
        self.group, self.body, self.inputs, self.called = group, body, inputs, called
        self.of: dict[Node, Any] = {}

    def add(self, node: Node) -> None:
        """The term of a member whose operands have theirs."""
        name = name_of(node)
        if name in aten.VIEWS:
            self.of[node] = self._operand(node.args[0])
        elif is_part(node):
            whole, place = node.args
            self.of[node] = self.body.keep(label_of(whole), self.of[whole][place])
        elif node is self.group.product:
            self._keep(node, self._of_product(node))
        elif name == aten.CONVERSION:
            self._keep(node, self._converted(node))
        elif name in aten.GATHERS:
            self._keep(node, self._gathered(node))
        elif name in ROWS:
            self._add_row_operation(node, ROWS[name])
        elif name == aten.EQUAL and (index := self._column_named(node)) is not None:
            self._keep(node, self.body.is_at(index))
        else:
            self._keep(node, element_of(node, self._operand, self.body.keep))

    def _add_row_operation(self, node: Node, operation: RowOperation) -> None:
        picked = operation.terms(*node.args, **node.kwargs)
        made = operation.make(self.body, *(self._operand(each) for each in picked))
        if isinstance(made, tuple):
            self.of[node] = made  # its parts are kept where they are picked
        else:
            self._keep(node, made.to(value_of(node).dtype))

    def _keep(self, node: Node, term: Term) -> None:
        self.of[node] = self.body.keep(name_in_kernel(node, self.called), term)

    def _of_product(self, node: Node) -> Term:
        added = added_to(node)
        made = self.body.product("product", _accumulator(value_of(node).dtype))
        return made if added is None else made + self._operand(added)

    def _gathered(self, node: Node) -> Term:
        gather = gather_of(node)
        assert gather is not None
        index: Term = self._operand(gather.indices)
        if gather.wraps:
            index = select(index < 0, index + gather.rows, index)
        return self.body.gather(self.tables[gather], index, gather.rows)

    def _column_named(self, node: Node) -> Term | None:
        """The number of each row that a comparison has beside the columns; None for others."""
        others = [each for each in node.args if seen_through(each) not in self.counted]
        made = self._operand(others[0]) if len(others) == 1 else None
        return made if made is not None and made.kind == "row" else None

    def _converted(self, node: Node) -> Term:
        before, after = value_of(seen_through(node.args[0])), value_of(node)
        if before.device != after.device or before.layout != after.layout:
            raise NoRuleError("a conversion of more than the dtype")
        term: Term = self._operand(node.args[0])
        return term.rounded(value_of(node).dtype)

    def _operand(self, value: Any) -> Any:
        if isinstance(value, _NUMBERS) or value is None or isinstance(value, str):
            return value
        if value in self.of:
            return self.of[value]
        source = seen_through(value)
        if (filled := constant_of(source)) is not None:
            return number(filled, value_of(source).dtype)
        if source in self.counted:
            return self.body.column.to(value_of(source).dtype)
        if source not in self.inputs:
            raise NoRuleError("a value that is broadcast inside of the kernel")
        return self.body.load(self.inputs[source])


def _output_name(node: Node, called: Mapping[Node, str]) -> str:
    name = called.get(node, str(node.name))
    return "out" if name == "return" else f"{name}_out"


def _accumulator(dtype: Any) -> Any:
    from tileworkbench.pytorch.dtypes import compute_dtype

    return compute_dtype(dtype)


def _kernel_name(group: Group, taken: Collection[str]) -> str:
    before = () if group.dequantises else group.prologue[:1]
    labels = [label_of(each) for each in (*before, *group.members) if not _is_quiet(each)]
    labels = [*(["dequantised"] if group.dequantises else []), *labels]
    if len(labels) > _LABELS:
        labels = [*labels[: _LABELS - 1], labels[-1]]
    return free_name("_".join(dict.fromkeys(labels)), taken)


def _is_quiet(node: Node) -> bool:
    return is_part(node) or name_of(node) in aten.VIEWS


def _comments(group: Group, form: Form) -> Sequence[str]:
    """What the kernel computes, from which lines, and how it is cut into blocks."""
    labels = [label_of(each) for each in group.nodes if not _is_quiet(each)]
    lines = dict.fromkeys(filter(None, map(line_of, group.nodes)))
    rows, columns = form.tile
    if group.product is not None:
        shape = f"A block computes {rows} x {columns} of the product and what follows from it."
    elif any(name_of(node) in ROWS for node in group.members):
        shape = f"A block has {rows} whole row{'s' * (rows > 1)} of {columns}, kept in fast memory."
        if form.has_pieces:
            long = f"A row of {form.columns} is too long for fast memory"
            shape = f"{long}: each loop reads it in pieces of {columns}."
    elif not form.rows:
        shape = f"A block has {columns} elements, each read and written once."
    else:
        shape = f"A block has {rows} x {columns} elements, each read and written once."
    code = [f"line {line}: {text}" for _, line, text in list(lines)[:4] if text]
    return [", ".join(labels), *code, shape, *filter(None, [_of_first_operand(group, form)])]


def _of_first_operand(group: Group, form: Form) -> str:
    """Why the first operand of a product is not computed in its tile; "" where it is, or where
    nothing could be.
    """
    if group.product is None or name_of(group.product) not in aten.LAYERS or group.prologue:
        return ""
    source = unviewed(group.product.args[aten.PRODUCTS[name_of(group.product)][0]])
    if name_of(source) not in _BY_ELEMENTS:
        return ""
    blocks = -(-form.columns // form.tile[1])
    if _follows_from_rows(source):
        why = "whole rows are reduced for it"
    elif blocks > 1:
        why = f"{blocks} blocks of columns read it"
    elif any(each is not group.product and not is_view(each) for each in readers_of(source)):
        why = "others read it, too"
    else:
        why = f"with {form.columns} columns that is as fast"
    return f"Its first operand is made before: {why}."


def _follows_from_rows(node: Node) -> bool:
    """Whether a value is computed, element by element, from the result of a row operation."""
    waiting, seen = [node], set()
    while waiting:
        each = waiting.pop()
        if name_of(each) in ROWS:
            return True
        if each in seen or not (is_part(each) or is_view(each) or name_of(each) in _BY_ELEMENTS):
            continue
        seen.add(each)
        waiting += operands(each)
    return False
