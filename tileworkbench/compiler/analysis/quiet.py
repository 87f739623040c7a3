"""Which floats of a lowered program are never signalling NaNs.

Arithmetic returns quiet NaNs only; a signalling one comes from memory, or from bits. Some
instructions treat it differently from a quiet one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.effects import declared, exposed
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.rewrite import statements

_CARRIED = ("lookup", "lane_at", "max_nan", "min_nan", "lanes_max_nan", "lanes_min_nan")


@dataclass(slots=True)
class QuietFloats:
    """Queries about expressions; `accumulators` are buffers into which only quiet values are
    stored, where code generation sees to it, `tiles` those of which it is so as they are written.
    `named` are values by their names.
    """

    accumulators: frozenset[Buffer]
    tiles: frozenset[Buffer] = frozenset()
    named: Mapping[Expr, Expr] = field(default_factory=dict)
    _known: dict[Expr, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, body: st.Stmt) -> QuietFloats:
        """The accumulators of a lowered body, vectors of partial maxima and minima, and its tiles
        of quiet floats.
        """
        stores: dict[Buffer, list[st.Store]] = {}
        others = set(owners(body)) | set(owners(body).values())
        named: dict[Expr, Expr] = {}
        for stmt in statements(body):
            others.update(exposed(stmt))
            match stmt:
                case st.Store(buffer=buffer):
                    stores.setdefault(buffer, []).append(stmt)
                case st.Alloc(buffer=buffer, init=init):
                    if init is not None:
                        stores.setdefault(buffer, []).append(st.Store(buffer, (), init))
                case st.Let(var, value):
                    named[var] = value
                case _:
                    others.update(access.buffer for access in declared(stmt) if access.writes)
        alone = {
            buffer: each
            for buffer, each in stores.items()
            if buffer.scope != "global" and buffer.dtype.is_float and buffer not in others
        }
        accumulators = frozenset(buffer for buffer, each in alone.items() if _accumulates(each))
        facts = cls(accumulators, frozenset(alone), named)
        while loud := {buffer for buffer in facts.tiles if not facts.hold(alone[buffer])}:
            facts = cls(accumulators, facts.tiles - loud, named)
        return facts

    def hold(self, stores: Iterable[st.Store]) -> bool:
        """Whether all of what is stored is quiet."""
        return all(self.holds(stmt.value) for stmt in stores)

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
                is_known = buffer in self.accumulators or buffer in self.tiles
                return is_known or buffer.dtype == "float16"
            case ir.Var():
                return value in self.named and self.holds(self.named[value])
        return False


def _accumulates(stores: Iterable[st.Store]) -> bool:
    """Whether vectors are stored, and among them the larger or smaller of what was there and
    another.
    """
    is_updated = False
    for stmt in stores:
        match stmt:
            case st.Store(buffer, (ir.Ramp(),), ir.Binary("max" | "min", a, b)):
                sides = (side for side in (a, b) if isinstance(side, ir.Load))
                is_updated = is_updated or any(side.buffer is buffer for side in sides)
            case st.Store(_, (ir.Ramp(),)):
                pass
            case _:
                return False
    return is_updated
