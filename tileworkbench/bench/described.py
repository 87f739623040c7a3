"""A processor that is described and not asked: what the model needs of it, as a file.

Predictions for it are the same on every machine whose LLVM knows its architecture. Code for it is
optimised, but no instructions are selected, so this machine need not have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from tileworkbench.bench.ceilings import machine_from_json, machine_to_json
from tileworkbench.bench.memory_rates import MemoryRates
from tileworkbench.bench.operation_rates import OperationRates
from tileworkbench.bench.points import Machine
from tileworkbench.bench.probes import assumed_isa, assumed_target
from tileworkbench.bench.time_model import Prediction, predict_time
from tileworkbench.compiler.device.host.llvm import NativeTarget
from tileworkbench.compiler.device.host.processor import CacheSizes, assumed_caches
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.lowering import lower_program
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class DescribedCpu:
    """A processor: its ceilings, nanoseconds of operations and of memory, caches, instructions, and
    what LLVM calls its architecture (`triple`) and itself (`cpu`).
    """

    machine: Machine
    rates: OperationRates
    memory: MemoryRates
    caches: CacheSizes
    isa: Isa
    triple: str
    cpu: str

    @property
    def target(self) -> Target:
        """What a kernel is lowered for."""
        isa = self.isa
        return Target(
            *("cpu", isa.level),
            vector_bits=isa.vector_bits,
            dot_int8=isa.dot_int8,
            dot_bfloat16=isa.dot_bfloat16,
        )

    def predict(self, program: Program, threads: int = 1) -> Prediction:
        """The time of a call of a program of stage TILE. Raises what passes raise, and
        `ArgumentError` for symbolic shapes.
        """
        lowered = lower_program(program, self.target)[-1].program
        with self._assumed():
            return predict_time(
                lowered, self.machine, threads, rates=self.rates, memory=self.memory
            )

    @contextmanager
    def _assumed(self) -> Iterator[None]:
        native = NativeTarget("native", self.triple, self.cpu, "", frozenset())
        caches, isa = assumed_caches.set(self.caches), assumed_isa.set(self.isa)
        target = assumed_target.set(native)
        try:
            yield
        finally:
            assumed_caches.reset(caches)
            assumed_isa.reset(isa)
            assumed_target.reset(target)

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        facts = {"machine": json.loads(machine_to_json(self.machine))}
        facts |= {"vector_ns": dict(self.rates.vector_ns), "memory": asdict(self.memory)}
        facts |= {"triple": self.triple, "cpu": self.cpu}
        return json.dumps(
            {**facts, "caches": asdict(self.caches), "isa": asdict(self.isa)}, indent=1
        )

    @staticmethod
    def from_json(text: str) -> DescribedCpu:
        """The processor that `to_json` wrote. Raises `ValueError` for another text."""
        facts = json.loads(text)
        machine = machine_from_json(json.dumps(facts["machine"]))
        runs = {name: tuple(times) for name, times in facts["memory"]["runs_ns"].items()}
        memory = MemoryRates(**{**facts["memory"], "runs_ns": runs})
        parts = OperationRates(facts["vector_ns"]), memory, CacheSizes(**facts["caches"])
        return DescribedCpu(machine, *parts, Isa(**facts["isa"]), facts["triple"], facts["cpu"])
