"""Kernels of a graph that run one behind the other, as one node and one native call.

What is between them lies in memory that the call has for itself; results of the graph, and what
torch reads, are new tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from tileworkbench.compiler.device.host.sequence import LaunchSequence, Step
from tileworkbench.pytorch.calls import Call
from tileworkbench.pytorch.nodes import Node, is_part, is_view, value_of

_LINE = 64
_MOST_BYTES = 64 << 20  # of what lies between the kernels of a sequence
_FEWEST = 2


class SequenceCall:
    """Several calls as a node of a graph. It takes `nodes`; `sources` say, for each call, where
    each tensor that it takes comes from: (-1, place among `nodes`) or (number of a call, place
    among its results). `results` are those that are returned.
    """

    is_update = True  # some kernel may write to what it takes

    def __init__(
        self,
        calls: Sequence[Call],
        nodes: Sequence[Node],
        sources: Sequence[Sequence[tuple[int, int]]],
        results: Sequence[tuple[int, int]],
    ) -> None:
        self.calls, self.nodes = tuple(calls), tuple(nodes)
        self.sources, self.results = tuple(map(tuple, sources)), tuple(results)
        self.__name__ = f"{self.calls[0].__name__}_and_{len(self.calls) - 1}_more"
        self.new = [self.calls[at].new[place] for at, place in results]
        taken = range(len(self.nodes))
        self._strides = _strides(self.calls, self.sources)
        bases: dict[tuple[int, int], tuple[int, int]] = {(-1, at): (at, 0) for at in taken}
        bases |= {each: (len(self.nodes) + at, 0) for at, each in enumerate(self.results)}
        last = len(self.nodes) + len(self.results)
        arena, self.arena_bytes = _arena(self.calls, self.sources, set(self.results))
        bases |= {each: (last, offset) for each, offset in arena.items()}
        steps = [step for at in range(len(self.calls)) for step in self._steps(at, bases)]
        self._run = LaunchSequence(steps, last, self.arena_bytes)

    def _steps(self, at: int, bases: Mapping[tuple[int, int], tuple[int, int]]) -> list[Step]:
        call = self.calls[at]
        slots = []
        for source, offset in call.places:
            base, begun = bases[self.sources[at][source]]
            slots.append((base, begun + offset))
        slots += [bases[at, place] for place in range(len(call.results))]
        return [
            Step(launcher, blocks, estimate, tuple(slots), call.kernel)
            for launcher, blocks, estimate in call.launches
        ]

    def __call__(self, *tensors: Any) -> Any:
        if any(tensors[at].stride() != has for at, has in self._strides):
            return self._apart(tensors)
        import torch

        made = [torch.empty_strided(size, stride, dtype=dtype) for size, stride, dtype in self.new]
        self._run([each.data_ptr() for each in (*tensors, *made)])
        return made

    def _apart(self, tensors: Sequence[Any]) -> list[Any]:
        """By one call after the other, for tensors with other strides."""
        made: list[list[Any]] = []

        def of(source: tuple[int, int]) -> Any:
            at, place = source
            return tensors[place] if at < 0 else made[at][place]

        for call, sources in zip(self.calls, self.sources, strict=True):
            results = call(*map(of, sources))
            made.append([results] if len(call.results) == 1 else list(results or ()))
        return list(map(of, self.results))


def _strides(
    calls: Sequence[Call], sources: Sequence[Sequence[tuple[int, int]]]
) -> list[tuple[int, tuple[int, ...]]]:
    """The strides that the calls expect of what comes from outside."""
    wanted = {
        (sources[at][place][1], tuple(strides))
        for at, call in enumerate(calls)
        for place, strides in call.strides
        if sources[at][place][0] < 0
    }
    return sorted(wanted)


def _arena(
    calls: Sequence[Call],
    sources: Sequence[Sequence[tuple[int, int]]],
    returned: set[tuple[int, int]],
) -> tuple[dict[tuple[int, int], int], int]:
    """(where each result that is not returned lies, bytes in all): two of them share memory where
    the one is not needed any more when the other is made.
    """
    last_use = {source: at for at, each in enumerate(sources) for source in each}
    live: list[tuple[int, int, int]] = []  # (begin, end, last use)
    places: dict[tuple[int, int], int] = {}
    size = 0
    for at, call in enumerate(calls):
        for place, nbytes in enumerate(call.result_bytes):
            if (at, place) in returned:
                continue
            live = [each for each in live if each[2] >= at]
            begin = 0
            for other, end, _ in sorted(live):
                if begin + nbytes <= other:
                    break
                begin = max(begin, -(-end // _LINE) * _LINE)
            live.append((begin, begin + nbytes, last_use.get((at, place), at)))
            places[at, place] = begin
            size = max(size, begin + nbytes)
    return places, size


def join_calls(graph: Any) -> Any:
    """The graph with one node for each stretch of kernels between which there are only views, and
    parts of results.
    """
    import torch.fx

    if not LaunchSequence.is_available():
        return graph
    joined = _Joined(torch.fx.Graph())
    for node in graph.nodes:
        joined.add(node)
    joined.graph.lint()
    return joined.graph


class _Joined:
    """A graph as it is copied. `waiting` are kernels that may become one node, `late` are views and
    parts of what they make.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.made: dict[Node, Any] = {}
        self.waiting: list[Node] = []
        self.late: list[Node] = []

    def add(self, node: Node) -> None:
        """Copy the next node, or let it wait."""
        if isinstance(node.target, Call) and node.target.launches:
            if any(each in self.late and not _is_result(each) for each in node.args):
                self.flush()
            self.waiting.append(node)
        elif any(each in self.waiting or each in self.late for each in node.all_input_nodes) and (
            is_view(node) or _is_result(node)
        ):
            self.late.append(node)
        else:
            if node.op not in ("placeholder", "get_attr"):
                self.flush()
            self._copy(node)

    def _copy(self, node: Node) -> None:
        self.made[node] = self.graph.node_copy(node, self.made.__getitem__)

    def flush(self) -> None:
        """Copy all that waits."""
        call = self._sequence() if len(self.waiting) >= _FEWEST else None
        for node in self.waiting if call is None else ():
            self._copy(node)
        for node in self.late:
            if node not in self.made and (call is None or not _is_result(node)):
                self._copy(node)
        self.waiting, self.late = [], []

    def _sequence(self) -> SequenceCall | None:
        """One node for all kernels that wait."""
        number = {node: at for at, node in enumerate(self.waiting)}
        sources = {
            each: (number[each], 0) for each in self.waiting if len(each.target.results) == 1
        }
        sources |= {
            each: (number[each.args[0]], each.args[1]) for each in self.late if _is_result(each)
        }
        returned = sorted(
            {
                source
                for each, source in sources.items()
                if any(user not in number for user in each.users)
            }
        )
        outside = dict.fromkeys(
            each for node in self.waiting for each in node.args if each not in sources
        )
        order = {each: (-1, at) for at, each in enumerate(outside)}
        origin = sources | order
        call = SequenceCall(
            [node.target for node in self.waiting],
            list(outside),
            [[origin[each] for each in node.args] for node in self.waiting],
            returned,
        )
        if call.arena_bytes > _MOST_BYTES:
            return None
        whole = self.graph.call_function(call, tuple(self.made[each] for each in outside))
        parts = {}
        for at, source in enumerate(returned):
            parts[source] = self.graph.call_function(operator.getitem, (whole, at))
        for each, source in sources.items():
            if source in parts:
                self.made[each] = parts[source]
                parts[source].meta["val"] = value_of(each)
        return call


def _is_result(node: Node) -> bool:
    """Whether a node picks one of a kernel's results."""
    return is_part(node) and isinstance(node.args[0].target, Call)
