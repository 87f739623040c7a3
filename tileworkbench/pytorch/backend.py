"""The compiler that torch calls: graphs in which groups of operations are kernels.

`torch.compile(model, backend="tileworkbench")` captures the graph (dynamo), makes it functional
and takes gradients (AOT autograd), and hands forward and backward graphs to `compile_graph`.
"""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileworkbench.api import compile as compile_kernel
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.attention import Attention
from tileworkbench.pytorch.groups import Group
from tileworkbench.pytorch.growing import (
    LEAST_ELEMENTS,
    LEAST_WORK,
    AnyGroup,
    find_groups,
    in_order,
    text_of,
)
from tileworkbench.pytorch.linears import join_linears
from tileworkbench.pytorch.nodes import (
    Node,
    constant_of,
    is_number,
    is_part,
    label_of,
    line_of,
    name_of,
    stand_in,
)
from tileworkbench.pytorch.references import reference_of
from tileworkbench.pytorch.report import Operation, Part, Report
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import Formula, OpenSizes, formula
from tileworkbench.pytorch.written import Written
from tileworkbench.workbench.kernel import Kernel


class Call:
    """A kernel as a node of a graph: it takes and returns tensors of torch's shapes."""

    def __init__(self, kernel: Kernel, what: Written) -> None:
        self.kernel = kernel
        self.__name__ = what.name
        self._arguments, self._results, self._known = what.arguments, what.results, what.known
        taken = [each.node for each in what.arguments]
        others = dict.fromkeys(node for node, _ in what.known.values() if node not in taken)
        self.nodes = (*taken, *others)
        self._taken = [self._formulas(each.shape) for each in what.arguments]
        self._given = [self._formulas(each.ordered) for each in what.results]
        # A call with fixed sizes computes none of them: a launch on few elements counts each step.
        self._fixed = None if what.known else (_values(self._taken, {}), _values(self._given, {}))

    def __call__(self, *tensors: Any) -> Any:
        taken, given = self._fixed or self._shapes(tensors)
        made = self.kernel(
            *[
                form.to_kernel(each, shape)
                for form, each, shape in zip(self._arguments, tensors, taken, strict=False)
            ]
        )
        if len(given) == 1:
            return self._results[0].to_torch(made, given[0])
        return [
            form.to_torch(each, shape)
            for form, each, shape in zip(self._results, made, given, strict=True)
        ]

    def _shapes(self, tensors: Sequence[Any]) -> tuple[list[Extents], list[Extents]]:
        values = dict(zip(self.nodes, tensors, strict=True))
        known = {
            size: values[node] if at < 0 else values[node].shape[at]
            for size, (node, at) in self._known.items()
        }
        return _values(self._taken, known), _values(self._given, known)

    def _formulas(self, shape: Extents) -> list[Formula]:
        return [formula(size, self._known) for size in shape]


def _values(shapes: Sequence[Sequence[Formula]], known: Mapping[int, int]) -> list[Extents]:
    return [tuple(size.value(known) for size in shape) for shape in shapes]


@dataclass(frozen=True, slots=True)
class Settings:
    """How graphs are compiled: what for, and from how much on a kernel is worth it."""

    target: str | None = None
    least_work: int = LEAST_WORK
    least_elements: int = LEAST_ELEMENTS


def compile_graph(
    module: Any,
    names: Sequence[str],
    report: Report,
    settings: Settings,
    in_backward: bool = False,
) -> Any:
    """The graph with groups of operations as kernels, which are added to `report`. `names` are
    those of its inputs; `in_backward` says that it computes gradients.
    """
    import torch.fx

    nodes = list(module.graph.nodes)
    sizes, groups, reasons = _cut(nodes, settings, may_settle=not in_backward)
    called = _names(nodes, names)
    graph = torch.fx.Graph()
    made: dict[Node, Any] = {}
    kernels: dict[Node, str] = {}
    for each in in_order(nodes, groups):
        if isinstance(each, Group | Attention):
            name = _add_kernel(graph, made, each, called, report, settings, sizes)
            kernels.update(dict.fromkeys(each.nodes, name))
        else:
            made[each] = graph.node_copy(each, lambda node: made[node])
    for node in nodes:
        if _is_work(node) and (node in kernels or node.users):
            _, line, text = line_of(node) or ("", 0, "")
            kernel = kernels.get(node, "")
            reason = "" if kernel else reasons[node]
            report.operations.append(
                Operation(name_of(node), line, text, kernel, reason, in_backward)
            )
    join_linears(graph)
    graph.eliminate_dead_code()
    graph.lint()
    compiled = torch.fx.GraphModule(module, graph)
    return compiled.forward


def _cut(
    nodes: Sequence[Node], settings: Settings, may_settle: bool
) -> tuple[OpenSizes, list[AnyGroup], dict[Node, str]]:
    """(open sizes, groups, why other operations run in torch). An open size that a kernel would
    have to know is settled, where that still makes torch compile again for others.
    """
    while True:
        sizes = OpenSizes()
        for node in nodes:
            stand_in(node, sizes)
        wanted: set[int] = set()
        groups, reasons = find_groups(
            nodes, sizes, wanted, settings.least_work, settings.least_elements
        )
        if not wanted or not may_settle:
            return sizes, groups, reasons
        for size in wanted:
            sizes.settle(size)


def _add_kernel(
    graph: Any,
    made: dict[Node, Any],
    group: AnyGroup,
    names: Mapping[Node, str],
    report: Report,
    settings: Settings,
    sizes: OpenSizes,
) -> str:
    """Add the kernel of a group to the graph and to `report`; its name."""
    import operator

    what = text_of(group, names, {part.name for part in report.parts})
    kernel = compile_kernel(_function(what), target=settings.target)
    operations = tuple(label_of(node) for node in group.nodes if _is_work(node))
    reference = reference_of(group, what, sizes)
    report.parts.append(Part(what.name, what.text, operations, kernel, reference))
    compiled = Call(kernel, what)
    call = graph.call_function(compiled, tuple(made[each] for each in compiled.nodes))
    several = len(what.results) > 1
    for place, each in enumerate(what.results):
        part = graph.call_function(operator.getitem, (call, place)) if several else call
        part.meta["val"] = each.node.meta["val"]
        made[each.node] = part
    return what.name


_count = 0


def _function(what: Written) -> Any:
    """The `T.prim_func` of a kernel's text, which errors and views find by its file's name."""
    global _count
    import tileworkbench.language as T

    _count += 1
    file = f"<torch {what.name} {_count}>"
    linecache.cache[file] = (len(what.text), None, what.text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"T": T, "__name__": "tileworkbench_generated"}
    exec(compile(what.text, file, "exec"), space)
    return space[what.name]


def _is_work(node: Node) -> bool:
    """Whether a node computes something: it does not only say how memory is read, and is no
    constant and no part of a result.
    """
    from tileworkbench.pytorch import aten

    free = (*aten.VIEWS, *aten.TRANSPOSITIONS, *aten.SLICES, aten.EXPANSION)
    if node.op != "call_function" or is_part(node) or is_number(node):
        return False
    return name_of(node) not in free and constant_of(node) is None


def _names(nodes: Sequence[Node], names: Sequence[str]) -> dict[Node, str]:
    """The names of a graph's inputs, where they are known."""
    inputs = [node for node in nodes if node.op == "placeholder"]
    found: dict[Node, str] = {}
    for place, node in enumerate(inputs):
        numbered = re.fullmatch(r"primals_(\d+)", node.name)
        at = int(numbered[1]) - 1 if numbered else place
        if (numbered or node.name.startswith("arg")) and at < len(names):
            found[node] = names[at]
    return found


def plain_name(name: str) -> str:
    """`l_weight` of torch's L_self_modules_l_parameters_weight_."""
    owned = re.sub(r"^[lL]_(\w+?_modules_)?", "", name)
    short = re.sub(r"_?(modules|parameters|buffers)_", "_", f"{owned}_").strip("_")
    return short or name


def tile_backend(
    module: Any,
    inputs: Sequence[Any],
    *,
    report: Report | None = None,
    settings: Settings | None = None,
) -> Callable[..., Any]:
    """The backend "tileworkbench" of `torch.compile`; `report` gets what is compiled."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    collected = Report() if report is None else report
    names = [plain_name(str(n.target)) for n in module.graph.nodes if n.op == "placeholder"]

    def compile_part(graph: Any, _: Any, in_backward: bool = False) -> Any:
        used = settings or Settings()
        return make_boxed_func(compile_graph(graph, names, collected, used, in_backward))

    backward = functools.partial(compile_part, in_backward=True)
    # No decompositions: a softmax that stays in torch stays one operation.
    backend = aot_autograd(fw_compiler=compile_part, bw_compiler=backward, decompositions={})
    before = len(collected.parts)
    compiled: Callable[..., Any] = backend(module, inputs)
    if len(collected.parts) == before and not _takes_gradients(inputs):
        # As it was captured it has fewer calls than operations: a linear layer is one.
        own: Callable[..., Any] = module.forward
        return own
    return compiled


def _takes_gradients(inputs: Sequence[Any]) -> bool:
    """Whether there will be a graph for gradients, which is compiled later."""
    import torch

    return torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in inputs
    )
