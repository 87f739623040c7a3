"""Run-time checks of accesses of tensors whose index comes from data, where nothing in the kernel
guards them (the option `sanitize`).

The language masks what is outside a tensor, and ragged tiles need that. An index that was read from
a tensor is hardly ever meant to be outside.

Before::

    B[I[n]] = x

After::

    T.device_assert(I[n] >= 0 and I[n] < 8, "out of range: 0 of 'B', which has extent 8", I[n])
    B[I[n]] = x
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.data_indices import unguarded_accesses
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import with_body
from tileworkbench.compiler.passes.assert_accesses import Checks


def assert_indices(program: Program) -> Program:
    """Put a check in front of accesses of tensors by unguarded indices that come from data."""
    checks = Checks(Ranges(program), unguarded_accesses(program), tiles=False)
    return with_body(program, checks.visit(program.body, ()))
