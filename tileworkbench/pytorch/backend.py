"""The compiler that torch calls: graphs in which groups of operations are kernels.

`torch.compile(model, backend="tileworkbench")` captures the graph (dynamo), makes it functional
and takes gradients (AOT autograd), and hands forward and backward graphs to `compile_graph`.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from tileworkbench.compiler.device.host.background import native_in_background
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.runtime.collection import uncollected
from tileworkbench.pytorch.bindings import call_directly
from tileworkbench.pytorch.calls import Call
from tileworkbench.pytorch.copies import drop_copies
from tileworkbench.pytorch.folding import drop_examples, fold_constants
from tileworkbench.pytorch.gathers import hold_rows
from tileworkbench.pytorch.groups import Group
from tileworkbench.pytorch.growing import (
    LEAST_ELEMENTS,
    LEAST_WORK,
    find_groups,
    in_order,
)
from tileworkbench.pytorch.in_place import update_in_place
from tileworkbench.pytorch.linears import join_linears
from tileworkbench.pytorch.making import Maker
from tileworkbench.pytorch.nodes import (
    Node,
    drop_unused,
    is_read_outside,
    is_view,
    is_work,
    line_of,
    name_of,
    stand_in,
    value_of,
)
from tileworkbench.pytorch.regions import Region, find_regions, may_update
from tileworkbench.pytorch.report import Operation, Part, Report
from tileworkbench.pytorch.rules import AnyGroup
from tileworkbench.pytorch.sequences import join_calls
from tileworkbench.pytorch.shared_heads import share_heads
from tileworkbench.pytorch.sizes import OpenSizes
from tileworkbench.pytorch.trials import graph_trial, takes_gradients, tried
from tileworkbench.pytorch.vectors import use_vectors
from tileworkbench.pytorch.view_chains import shorten_views
from tileworkbench.pytorch.written_out import write_out


@dataclass(frozen=True, slots=True)
class Settings:
    """How graphs are compiled: what for, from how much on a kernel is worth it, and whether kernels
    stay that torch may be faster than, unmeasured.
    """

    target: str | None = None
    least_work: int = LEAST_WORK
    least_elements: int = LEAST_ELEMENTS
    keep_slower: bool = False


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

    put_together = _simplified(module, in_backward)
    while True:
        nodes = list(module.graph.nodes)
        maker = Maker(_names(nodes, names), report, settings.target)
        groups, reasons, calls = _kernels(nodes, settings, maker, may_settle=not in_backward)
        if not put_together({node for group in groups for node in group.nodes}):
            break
    nodes = list(module.graph.nodes)
    graph = torch.fx.Graph()
    made: dict[Node, Any] = {}
    kernels: dict[Node, str] = {}
    inside = {node for each in groups if isinstance(each, Region) for node in each.nodes}
    for each in in_order(nodes, groups):
        if isinstance(each, AnyGroup):
            part, call = calls[each.members]
            maker.use(part)
            _add_call(graph, made, call)
            if isinstance(each, Region):
                made.update({node: made[node.args[0]] for node in each.updates})
            if isinstance(each, Group):
                _add_views(graph, made, each)
            kernels.update(dict.fromkeys(each.nodes, part.name))
        elif not inside or not is_view(each) or is_read_outside(each, inside):
            made[each] = graph.node_copy(each, lambda node: made[node])
    report.operations += _operations(nodes, kernels, reasons, in_backward)
    join_linears(graph)
    drop_unused(graph)
    update_in_place(graph)
    shorten_views(graph)
    graph = join_calls(graph)
    drop_unused(graph)
    call_directly(graph)
    compiled = torch.fx.GraphModule(module, graph)
    return compiled.forward


def _simplified(module: Any, in_backward: bool) -> Callable[[Collection[Node]], bool]:
    """Make a graph simpler; returns what puts together again what no kernel takes."""
    drop_examples(module.graph)
    fold_constants(module)
    drop_copies(module.graph)
    share_heads(module.graph)
    update_in_place(module.graph, may_update)
    if not in_backward:  # whose guards are written before
        hold_rows(module.graph)
    put_together = write_out(module.graph)
    use_vectors(module.graph)
    return put_together


def _operations(
    nodes: Sequence[Node], kernels: Mapping[Node, str], reasons: Mapping[Node, str], backward: bool
) -> Iterator[Operation]:
    """What became of each operation that computes something."""
    for node in nodes:
        if is_work(node) and (node in kernels or node.users):
            _, line, text = line_of(node) or ("", 0, "")
            kernel = kernels.get(node, "")
            reason = "" if kernel else reasons[node]
            yield Operation(name_of(node), line, text, kernel, reason, backward)


def _add_views(graph: Any, made: dict[Node, Any], group: Group) -> None:
    """Add the views of a kernel's results that others may read."""
    for node in filter(group.is_remade, group.members):
        if node.args[0] in made:
            made[node] = graph.node_copy(node, lambda node: made[node])


def _kernels(
    nodes: Sequence[Node], settings: Settings, maker: Maker, may_settle: bool
) -> tuple[list[AnyGroup], dict[Node, str], dict[tuple[Node, ...], tuple[Part, Call]]]:
    """(groups, why other operations run in torch, the kernel of each group by its members). Where
    torch turns out to be faster, the graph is cut once more, without what it is faster at.
    """
    refused: dict[Node, str] = {}
    regions = find_regions(nodes) if may_settle else []
    while True:
        sizes, groups, reasons = _cut(nodes, settings, may_settle, refused, regions)
        with native_in_background():
            calls = {group.members: maker.make(group, sizes) for group in groups}
        if settings.keep_slower:
            return groups, reasons, calls
        for group in groups:
            reason = maker.try_out(group, *calls[group.members], sizes)
            if reason:
                refused.update(dict.fromkeys(tried(group), reason))
        if not any(node in refused for members in calls for node in members):
            return groups, reasons, calls


def _cut(
    nodes: Sequence[Node],
    settings: Settings,
    may_settle: bool,
    refused: Mapping[Node, str],
    regions: Sequence[Region],
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
            nodes, sizes, wanted, settings.least_work, settings.least_elements, refused, regions
        )
        if not wanted or not may_settle:
            return sizes, groups, reasons
        for size in wanted:
            sizes.settle(size)


def _add_call(graph: Any, made: dict[Node, Any], call: Call) -> None:
    """Add a kernel's call, and the nodes that pick its results, to the graph."""
    import operator

    node = graph.call_function(call, tuple(made[each] for each in call.nodes))
    several = len(call.results) != 1
    for place, each in enumerate(call.results):
        result = graph.call_function(operator.getitem, (node, place)) if several else node
        result.meta["val"] = value_of(each.node)
        made[each.node] = result


def _names(nodes: Sequence[Node], names: Sequence[str]) -> dict[Node, str]:
    """The names of a graph's inputs, where they are known."""
    inputs = [node for node in nodes if node.op == "placeholder"]
    named: dict[Node, str] = {}
    for place, node in enumerate(inputs):
        numbered = re.fullmatch(r"primals_(\d+)", node.name)
        at = int(numbered[1]) - 1 if numbered else place
        if (numbered or node.name.startswith("arg")) and at < len(names):
            named[node] = names[at]
    return named


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
    used = settings or Settings()
    names = [plain_name(str(n.target)) for n in module.graph.nodes if n.op == "placeholder"]
    operations: list[Operation] = []  # of both graphs

    def compile_part(graph: Any, _: Any, in_backward: bool = False) -> Any:
        before = len(collected.operations)
        made = make_boxed_func(compile_graph(graph, names, collected, used, in_backward))
        operations.extend(collected.operations[before:])
        return made

    backward = functools.partial(compile_part, in_backward=True)
    # No decompositions: a softmax that stays in torch stays one operation.
    backend = aot_autograd(
        fw_compiler=compile_part,
        bw_compiler=backward,
        decompositions={},
        keep_inference_input_mutations=True,  # as nodes of the graph, which `in_place` looks at
    )
    with uncollected():
        compiled: Callable[..., Any] = backend(module, inputs)

    def faster(given: Sequence[Any]) -> Callable[..., Any]:
        # As it was captured it has fewer calls than operations: a linear layer is one.
        own: Callable[..., Any] = module.forward
        if not any(each.kernel for each in operations):
            return own
        runs_here = all(part.kernel.run_at is not None for part in collected.parts)
        may = runs_here and not used.keep_slower
        reason = graph_trial(compiled, module, given) if may else ""
        if reason:
            collected.withdraw(operations, reason)
        return own if reason else compiled

    def is_known(given: Sequence[Any]) -> bool:
        # The graph for gradients is compiled when they are first taken.
        return bool(operations) and operations[-1].in_backward and takes_gradients(given)

    return _chosen_later(compiled, faster, is_known) if takes_gradients(inputs) else faster(inputs)


def _chosen_later(
    now: Callable[..., Any],
    choose: Callable[[Sequence[Any]], Callable[..., Any]],
    may_choose: Callable[[Sequence[Any]], bool],
) -> Callable[..., Any]:
    """Calls `now`, and from the first call on of whose arguments one `may_choose` what is chosen
    for these.
    """
    chosen: Callable[..., Any] | None = None
    first = threading.Lock()  # taken once, by the call that chooses

    def call(*args: Any) -> Any:
        nonlocal chosen
        if chosen is None:
            if not may_choose(args) or not first.acquire(blocking=False):
                return now(*args)
            chosen = choose(args)
        return chosen(*args)

    return call
