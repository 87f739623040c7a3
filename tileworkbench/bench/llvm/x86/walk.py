"""A walk that hands the machine code of each block to a core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileworkbench.bench.llvm.instructions import Function, Instruction
from tileworkbench.bench.llvm.loops import Loop, Shape
from tileworkbench.bench.llvm.pipeline import Pipeline
from tileworkbench.bench.llvm.values import Place, Values, value_of
from tileworkbench.bench.llvm.walk import Module, Walk
from tileworkbench.bench.llvm.x86.code import Coded
from tileworkbench.bench.llvm.x86.operations import CALL, MOVE, ZERO


class MachineWalk(Walk):
    """A walk through a function of which `code` is the machine code of each block. Registers are
    the core's, so that nothing is to be said of values that go from one block to another.
    """

    def __init__(
        self,
        module: Module,
        function: Function,
        shape: Shape,
        values: Values,
        pipeline: Pipeline,
        code: Mapping[str, Sequence[Coded]],
    ) -> None:
        super().__init__(module, function, shape, values, pipeline)
        self.code = code

    def execute(self, label: str, times: float, came: str | None, loop: Loop | None) -> None:
        for each in self.code.get(label, ()):
            operation, source = each.operation, each.source
            if operation.op in (MOVE, ZERO):
                self.pipeline.rename(operation.name, *operation.args)
                self.pipeline.issue(times)
            elif operation.op == CALL and source and source.detail in self.module.functions:
                self.pipeline.issue(times)
                self.call(source, times)
            else:
                self.hand_over(operation, self.place(each), times)

    def place(self, each: Coded) -> Place | None:
        """Where an access is, if that is known: what is on the stack itself is there, unless it is
        of what the IR has there.
        """
        place = value_of(self.values, each.address) if each.address else None
        if not isinstance(place, Place) or (each.slot and place.base in self.function.params):
            return each.slot
        return Place(place.base, place.offset + each.offset)

    def carry(self, values: Mapping[str, str]) -> None:
        """Its registers have it."""

    def inline(self, call: Instruction, called: Walk) -> None:
        called.once()
