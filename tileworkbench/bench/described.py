"""A processor that is described and not asked: what the model needs of it, as a file.

Predictions for it are the same on every machine. Nothing is compiled for it, so its instructions
need not be here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from tileworkbench.bench.ceilings import machine_from_json, machine_to_json
from tileworkbench.bench.operation_rates import OperationRates
from tileworkbench.bench.points import Machine
from tileworkbench.bench.probes import assumed_isa
from tileworkbench.bench.time_model import Prediction, predict_time
from tileworkbench.compiler.device.host.processor import CacheSizes, assumed_caches
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.lowering import lower_program
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class DescribedCpu:
    """A processor: its ceilings, nanoseconds of operations, caches and instructions."""

    machine: Machine
    rates: OperationRates
    caches: CacheSizes
    isa: Isa

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
            return predict_time(lowered, self.machine, threads, rates=self.rates)

    @contextmanager
    def _assumed(self) -> Iterator[None]:
        caches, isa = assumed_caches.set(self.caches), assumed_isa.set(self.isa)
        try:
            yield
        finally:
            assumed_caches.reset(caches)
            assumed_isa.reset(isa)

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        facts = {"machine": json.loads(machine_to_json(self.machine))}
        facts |= {"vector_ns": dict(self.rates.vector_ns)}
        return json.dumps(
            {**facts, "caches": asdict(self.caches), "isa": asdict(self.isa)}, indent=1
        )

    @staticmethod
    def from_json(text: str) -> DescribedCpu:
        """The processor that `to_json` wrote. Raises `ValueError` for another text."""
        facts = json.loads(text)
        machine = machine_from_json(json.dumps(facts["machine"]))
        rates = OperationRates(facts["vector_ns"])
        return DescribedCpu(machine, rates, CacheSizes(**facts["caches"]), Isa(**facts["isa"]))
