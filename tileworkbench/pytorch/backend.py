"""The compiler that torch calls: graphs in which groups of operations are kernels.

`torch.compile(model, backend="tileworkbench")` captures the graph (dynamo), makes it functional
and takes gradients (AOT autograd), and hands forward and backward graphs to `compile_graph`.
"""

from __future__ import annotations

import functools
import linecache
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tileworkbench.api import compile as compile_kernel
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.pytorch.groups import Group, plan
from tileworkbench.pytorch.growing import LEAST_ELEMENTS, LEAST_WORK, find_groups, in_order
from tileworkbench.pytorch.nodes import Node, constant_of, is_part, label_of, name_of
from tileworkbench.pytorch.writing import Written, written
from tileworkbench.workbench.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel of a compiled graph: its text, the operations that it does, the kernel itself."""

    name: str
    source: str
    operations: tuple[str, ...]
    kernel: Kernel

    def __repr__(self) -> str:
        return f"{self.name}: {', '.join(self.operations)}"


@dataclass(slots=True)
class Report:
    """What became of the operations of a function: kernels, and what torch runs itself, with the
    reason of each.
    """

    parts: list[Part] = field(default_factory=list)
    in_torch: list[tuple[str, str]] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The kernels as text that runs by itself."""
        head = "import tileworkbench.language as T\n"
        return "\n\n".join([head, *(part.source for part in self.parts)])

    def __str__(self) -> str:
        inside = sum(len(part.operations) for part in self.parts)
        total = inside + len(self.in_torch)
        kernels = f"{len(self.parts)} kernel{'s' * (len(self.parts) != 1)}"
        text = [f"{inside} of {total} operations run in {kernels}"]
        text += [f"  {part!r}" for part in self.parts]
        if self.in_torch:
            text.append(f"{len(self.in_torch)} run in torch:")
            for (name, reason), count in Counter(self.in_torch).items():
                times = f" ({count} times)" if count > 1 else ""
                text.append(f"  {name}{times}: {reason}")
        return "\n".join(text)


class Call:
    """A kernel as a node of a graph: it takes and returns tensors of torch's shapes."""

    def __init__(self, kernel: Kernel, what: Written) -> None:
        self.kernel = kernel
        self.__name__ = what.name
        self._arguments = [(each.shape, each.transposed) for each in what.arguments]
        self._shapes = [shape for _, shape in what.results]

    def __call__(self, *tensors: Any) -> Any:
        args = [
            (each.mT if transposed else each).contiguous().view(shape)
            for each, (shape, transposed) in zip(tensors, self._arguments, strict=True)
        ]
        made = self.kernel(*args)
        if len(self._shapes) == 1:
            return made.view(self._shapes[0])
        return [each.view(shape) for each, shape in zip(made, self._shapes, strict=True)]


@dataclass(frozen=True, slots=True)
class Settings:
    """How graphs are compiled: what for, and from how much on a kernel is worth it."""

    target: str | None = None
    least_work: int = LEAST_WORK
    least_elements: int = LEAST_ELEMENTS


def compile_graph(module: Any, names: Sequence[str], report: Report, settings: Settings) -> Any:
    """The graph with groups of operations as kernels, which are added to `report`. `names` are
    those of its inputs.
    """
    import torch.fx

    nodes = list(module.graph.nodes)
    groups, reasons = find_groups(nodes, settings.least_work, settings.least_elements)
    called = _names(nodes, names)
    graph = torch.fx.Graph()
    made: dict[Node, Any] = {}
    for each in in_order(nodes, groups):
        if isinstance(each, Group):
            _add_kernel(graph, made, each, called, report, settings)
        else:
            made[each] = graph.node_copy(each, lambda node: made[node])
    report.in_torch += [
        (name_of(node), reason)
        for node, reason in reasons.items()
        if node.users and not is_part(node) and not _is_free(node)
    ]
    graph.eliminate_dead_code()
    graph.lint()
    compiled = torch.fx.GraphModule(module, graph)
    return compiled.forward


def _add_kernel(
    graph: Any,
    made: dict[Node, Any],
    group: Group,
    names: Mapping[Node, str],
    report: Report,
    settings: Settings,
) -> None:
    import operator

    what = written(group, plan(group), names, {part.name for part in report.parts})
    kernel = compile_kernel(_function(what), target=settings.target)
    operations = tuple(label_of(n) for n in group.members if not is_part(n) and not _is_free(n))
    report.parts.append(Part(what.name, what.text, operations, kernel))
    args = tuple(made[each.node] for each in what.arguments)
    call = graph.call_function(Call(kernel, what), args)
    for place, (node, _) in enumerate(what.results):
        several = len(what.results) > 1
        made[node] = graph.call_function(operator.getitem, (call, place)) if several else call


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


def _is_free(node: Node) -> bool:
    """Whether an operation only says how memory is read, or is a constant."""
    from tileworkbench.pytorch import aten

    free = (*aten.VIEWS, *aten.TRANSPOSITIONS, *aten.SLICES, aten.EXPANSION)
    return name_of(node) in free or constant_of(node) is not None


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
    for value in inputs:
        _settle(value)
    names = [plain_name(str(n.target)) for n in module.graph.nodes if n.op == "placeholder"]

    def compile_part(graph: Any, _: Any) -> Any:
        return make_boxed_func(compile_graph(graph, names, collected, settings or Settings()))

    # No decompositions: a softmax that stays in torch stays one operation.
    backend = aot_autograd(fw_compiler=compile_part, bw_compiler=compile_part, decompositions={})
    compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


class Tiled:
    """A function of torch operations that runs in kernels: see `tile`."""

    def __init__(self, fn: Callable[..., Any], target: str | None) -> None:
        import torch

        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.report = Report()
        backend = functools.partial(
            tile_backend, report=self.report, settings=Settings(target=target)
        )
        self._compiled = torch.compile(fn, backend=backend, dynamic=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels that were compiled until now, by name."""
        return {part.name: part.kernel for part in self.report.parts}

    @property
    def source(self) -> str:
        """The kernels as T programs, text that runs by itself."""
        return self.report.source

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"<tw.tile {name}: {self.report}>"


def tile(fn: Callable[..., Any] | None = None, *examples: Any, target: str | None = None) -> Any:
    """A function of torch operations, or a module, whose groups of operations run as kernels.

    `tw.tile(fn, *examples)` calls it once with the examples, which compiles it; as a decorator,
    `@tw.tile`, it is compiled by its first call. Other shapes and dtypes are compiled when they
    come. Element-wise operations, reductions and normalisations over the last dimensions, and
    products with what follows them become kernels; everything else runs in torch. Gradients flow as
    in torch, and their graphs are compiled too. `target` is as for `tw.compile`, and runs on the
    CPU: "cpu", "sim:..." or "ptx:...".

    The result is called like `fn`. Its `report` says which operations run in which kernel and
    which in torch, and why; `kernels` are the kernels by name, `source` the T programs as text.

    Raises `ArgumentError` for what cannot be called.
    """
    if fn is None:
        return functools.partial(tile, target=target)
    if not callable(fn):
        raise ArgumentError(f"tw.tile takes a function or a module, not a '{type(fn).__name__}'")
    tiled = Tiled(fn, target)
    if examples:
        tiled(*examples)
    return tiled


def _settle(value: Any) -> None:
    """Turn sizes that torch keeps open into numbers: a kernel has fixed shapes, and torch compiles
    again for others.
    """
    import torch

    if isinstance(value, torch.SymInt):
        int(value)
    elif isinstance(value, torch.Tensor):
        for size in (*value.shape, *value.stride()):
            int(size)
