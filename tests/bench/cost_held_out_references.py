"""What torch gives for the kernels of `benchmarks/cost/` that are held out."""

from __future__ import annotations

from tests.bench.cost_inputs import Reference

REFERENCES: dict[str, Reference] = {}
