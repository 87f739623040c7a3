"""A walk that hands LLVM IR to a core, where it is not known what LLVM makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tileworkbench.bench.llvm.costs import Costs
from tileworkbench.bench.llvm.instructions import Function, Instruction, touches_memory
from tileworkbench.bench.llvm.known import Known
from tileworkbench.bench.llvm.loops import Loop, Shape, successors
from tileworkbench.bench.llvm.pipeline import Pipeline
from tileworkbench.bench.llvm.values import Place, Values, value_of
from tileworkbench.bench.llvm.walk import Module, Walk, arrived

_CALLED = 4.0  # instructions of a call


class IrWalk(Walk):
    """A walk through a function; `result` is the name of what it has returned, `constant` what is
    the same in each iteration of a loop.
    """

    def __init__(
        self,
        module: Module,
        function: Function,
        shape: Shape,
        values: Values,
        pipeline: Pipeline,
        costs: Costs,
        constant: Callable[[Loop], frozenset[str]],
    ) -> None:
        super().__init__(module, function, shape, values, pipeline)
        self.costs, self.constant, self.result = costs, constant, ""
        self.known = Known(costs.defined, costs.users)

    def carry(self, values: Mapping[str, str]) -> None:
        self.pipeline.pass_on(values.items())

    def execute(self, label: str, times: float, came: str | None, loop: Loop | None) -> None:
        if not self.falls_into(label):
            self.known.clear()
        done = self.done(loop)
        for each in self.function.blocks[label]:
            if each.name in done:
                continue
            if each.op == "phi":
                if loop is None or label != loop.header:
                    self.pipeline.pass_on([(each.name, arrived(each, came))])
            elif each.op == "br":
                self.pipeline.issue(times)
            elif each.op == "ret":
                self.result = each.args[0] if each.args else ""
            elif each.op != "switch":
                self.instruction(each, times)

    def done(self, loop: Loop | None) -> frozenset[str]:
        """What an iteration before this one has left."""
        while loop is not None and loop not in self.again:
            loop = loop.parent
        return frozenset() if loop is None else self.constant(loop)

    def falls_into(self, label: str) -> bool:
        """Whether a block goes on where the only one before it ends."""
        before = self.shape.before.get(label, ())
        return len(before) == 1 and len(successors(self.function, before[0])) == 1

    def instruction(self, each: Instruction, times: float) -> None:
        """Add an instruction."""
        if touches_memory(each):
            self.known.clear()
        if each.op == "call" and each.detail in self.module.functions:
            self.pipeline.issue(times * _CALLED)
            self.call(each, times)
            return
        place = value_of(self.values, each.args[-1]) if each.op in ("load", "store") else None
        if each.op in ("load", "store", "insertelement"):
            same = self.known.note(each, place)
        else:
            same = self.known.again(each) if each.name else None
        if same is not None:
            self.pipeline.pass_on([(each.name, same)])
        else:
            self.hand_over(each, place if isinstance(place, Place) else None, times)

    def inline(self, call: Instruction, called: Walk) -> None:
        assert isinstance(called, IrWalk)
        params = called.function.params
        stands_for = dict(zip(params, call.args, strict=False))

        def body() -> str:
            called.once()
            return called.result

        self.pipeline.call(call.name, called.costs, stands_for, body)
