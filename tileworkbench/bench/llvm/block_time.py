"""The time of a block on a core: the code that LLVM makes of it, walked with the block's number.

Nothing is run: integers and addresses follow from the number of the block (`walk.py`). A core
executes machine code, where its instructions are known (`x86/`), or the LLVM IR it is made of.

What is left out: decoding, mispredicted branches. Data are taken to be in the innermost cache;
`time_model` adds what lies behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.costs import Costs
from tileworkbench.bench.llvm.instructions import parse_functions
from tileworkbench.bench.llvm.ir_walk import IrWalk
from tileworkbench.bench.llvm.loops import Loop, Shape, constant_in, shape_of
from tileworkbench.bench.llvm.pipeline import Pipeline
from tileworkbench.bench.llvm.values import Place, Value, Values
from tileworkbench.bench.llvm.walk import Walk, Work
from tileworkbench.bench.llvm.x86.code import Coded, coded, lines_of
from tileworkbench.bench.llvm.x86.costs import MachineCosts
from tileworkbench.bench.llvm.x86.walk import MachineWalk
from tileworkbench.bench.memory_rates import LINE_BYTES


class BlockTimes:
    """The times of blocks of a module. `text` is LLVM IR as `optimized_text` gives it, `assembly`
    what LLVM makes of it where it is `numbered`, if that is x86's; without it the IR stands for it.
    """

    def __init__(self, text: str, core: Core, assembly: str = "") -> None:
        self.functions, self.core = parse_functions(text), core
        self.lines, self.machine_costs = lines_of(assembly), MachineCosts(core)
        self._shapes: dict[str, Shape] = {}
        self._costs: dict[str, Costs] = {}
        self._called: dict[tuple[object, ...], list[Work]] = {}
        self._constant: dict[Loop, frozenset[str]] = {}
        self._code: dict[str, Mapping[str, Sequence[Coded]]] = {}

    def block_work(self, name: str, numbers: Iterable[int]) -> list[Work]:
        """The pieces of a block of the function `name`, the mean of blocks of these numbers. Where
        the first two take the same, all do.
        """
        blocks: list[list[Work]] = []
        for number in numbers:
            blocks.append(self._of_block(name, number))
            if len(blocks) == 2 and blocks[0] == blocks[1]:
                break
        return [each.scaled(1 / len(blocks)) for block in blocks for each in block]

    def _of_block(self, name: str, number: int) -> list[Work]:
        function = self.functions[name]
        values: Values = {param: Place(param, 0) for param in function.params if param != "%flag"}
        values["%block"] = number
        return self.works(name, values)

    def works(self, name: str, values: Mapping[str, Value]) -> list[Work]:
        """The pieces of a call of a function with such arguments."""
        costs = self.machine_costs if name in self.lines else self.costs(name)
        return self.walk(name, dict(values), Pipeline(costs)).whole()

    def walk(self, name: str, values: Values, pipeline: Pipeline) -> Walk:
        """A walk through a function with such arguments, executed by a core."""
        about = self, self.functions[name], self.shape(name), values, pipeline
        if name in self.lines:
            return MachineWalk(*about, self.code(name))
        return IrWalk(*about, self.costs(name), partial(self.constant, name))

    def shape(self, name: str) -> Shape:
        """The loops of a function."""
        if name not in self._shapes:
            self._shapes[name] = shape_of(self.functions[name])
        return self._shapes[name]

    def costs(self, name: str) -> Costs:
        """The costs of a function's instructions."""
        if name not in self._costs:
            self._costs[name] = Costs(self.core, self.functions[name])
        return self._costs[name]

    def constant(self, name: str, loop: Loop) -> frozenset[str]:
        """What is the same in each iteration of a loop of the function `name`."""
        if loop not in self._constant:
            self._constant[loop] = constant_in(self.functions[name], self.shape(name), loop)
        return self._constant[loop]

    def code(self, name: str) -> Mapping[str, Sequence[Coded]]:
        """The machine code of a function by the blocks of its IR."""
        if name not in self._code:
            self._code[name] = coded(self.lines[name], self.functions[name])
        return self._code[name]

    def called(self, name: str, values: Mapping[str, Value]) -> list[Work]:
        """The pieces of a call, which are the same for the same numbers and places in a line."""
        known = {
            param: Place(arg.base, arg.offset % LINE_BYTES) if isinstance(arg, Place) else arg
            for param, arg in values.items()
        }
        key = (name, *sorted(known.items(), key=lambda item: item[0]))
        if key not in self._called:
            self._called[key] = self.works(name, known)
        return self._called[key]
