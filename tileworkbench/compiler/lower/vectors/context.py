"""What an operator is given when its layouts are inferred and when it is lowered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tileworkbench.compiler.analysis.effects import packed_tiles
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import Span
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.target import Target

if TYPE_CHECKING:
    from tileworkbench.compiler.layout.layout import Layout


@dataclass(frozen=True, slots=True)
class Context:
    """The target, what is known about indices, unused names, values read outside global buffers,
    and tiles of which two elements share a byte.
    """

    target: Target
    ranges: Ranges
    names: Names
    safe_values: Mapping[str, Expr]
    sites: tuple[Span | None, ...]
    packed: frozenset[Buffer]

    @classmethod
    def of(cls, program: Program, target: Target) -> Context:
        """The context for lowering operators of `program`."""
        names, safe_values = Names(program), dict(program.safe_values)
        packed = packed_tiles(program.body)
        return cls(target, Ranges(program), names, safe_values, program.sites, packed)

    def span(self, site: int) -> Span | None:
        """Where operation `site` is in the user's source."""
        return self.sites[site] if 0 <= site < len(self.sites) else None


@dataclass(frozen=True, slots=True)
class Vote:
    """What one operator says about the layout of one buffer.

    `layout` None means that it takes elements one by one and so needs row-major order; otherwise it
    would like `layout` with elements of `dtype`. A vote that is not `binding` accepts whatever the
    others choose.
    """

    buffer: Buffer
    reason: str
    layout: Layout | None = None
    dtype: DType | None = None
    binding: bool = True
