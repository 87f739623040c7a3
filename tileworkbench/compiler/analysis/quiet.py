"""Which floats of a lowered program are never signalling NaNs.

Arithmetic returns quiet NaNs only; a signalling one comes from memory, or from bits. Some
instructions treat it differently from a quiet one.
"""

from __future__ import annotations

import math
from dataclasses import field

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.effects import exposed
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.rewrite import statements

_CARRIED = ("lookup", "lane_at", "max_nan", "min_nan", "lanes_max_nan", "lanes_min_nan")


@dataclass(slots=True)
class QuietFloats:
    """Queries about expressions; `accumulators` are buffers into which only quiet values are
    stored, where code generation sees to it.
    """

    accumulators: frozenset[Buffer]
    _known: dict[Expr, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, body: st.Stmt) -> QuietFloats:
        """The accumulators of a lowered body: vectors of partial maxima and minima."""
        candidates: set[Buffer] = set()
        others = set(owners(body)) | set(owners(body).values())
        for stmt in statements(body):
            others.update(exposed(stmt))
            match stmt:
                case st.Store(buffer, (ir.Ramp(),), ir.Binary("max" | "min", a, b)) if (
                    buffer.dtype.is_float
                ):
                    if any(isinstance(side, ir.Load) and side.buffer is buffer for side in (a, b)):
                        candidates.add(buffer)
                case st.Store(buffer, (ir.Ramp(),)):
                    pass
                case st.Store(buffer=buffer) | st.Atomic(buffer=buffer):
                    others.add(buffer)
        return cls(frozenset(b for b in candidates - others if b.scope == "local"))

    def holds(self, value: Expr) -> bool:
        """Whether no element of `value` is a signalling NaN."""
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._find(value)
        return known

    def _find(self, value: Expr) -> bool:
        match value:
            case ir.Const(number):
                return not (isinstance(number, float) and math.isnan(number))
            case ir.Binary():
                return True
            case ir.Call(name, args):
                return name not in _CARRIED or (name != "lane_at" and all(map(self.holds, args)))
            case ir.Unary(_, inner) | ir.Broadcast(inner):
                return self.holds(inner)
            case ir.Select(_, then, other):
                return self.holds(then) and self.holds(other)
            case ir.Cast(inner):
                return not inner.dtype.is_float or self.holds(inner)
            case ir.Load(buffer):
                return buffer in self.accumulators or buffer.dtype == "float16"
        return False
