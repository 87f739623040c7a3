"""A whole kernel function at one stage of the compiler."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from tileworkbench.compiler.diagnostics import Span
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.decisions import LayoutDecision
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.node import Node, node
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.types import DType


class Stage(StrEnum):
    """Which nodes are legal; see `verify.py` for the table."""

    TILE = "tile"  # what the front end makes
    PLANNED = "planned"  # with layouts and loop plans
    SIMT = "simt"  # per-thread code: no tile operators, no fragments
    CPU = "cpu"  # block loop, serial and vector loops over flat buffers, Pack and MicroGemm


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: a tensor (`value` is its global Buffer) or a scalar (`value` is its Var).

    `output` says that the caller does not pass it: it is allocated by each call, and returned when
    the program lists it (otherwise it is a workspace).
    """

    value: Buffer | Var
    output: bool = False

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def dtype(self) -> DType:
        """The type of its elements, or of the scalar."""
        return self.value.dtype


@node
class Program(Node):
    """A kernel function: parameters, the symbols its shapes are written in, and the body.

    `returns` holds the indices of the output parameters in the order they are returned.
    `safe_values` are the values read outside a global buffer where it is not zero, by buffer name.
    `sources` are texts in C, or in the target's own dialect of it, that external calls refer to.
    `sites[i]` is the Span of operation i (index 0 is unused); `notes` says why choices were made,
    and `decisions` in which order layouts were chosen, for views. `uses` are the names and sites
    of constructs for hardware of their own, which not all architectures have. None of these takes
    part in equality.
    """

    name: str
    params: tuple[Param, ...]
    symbols: tuple[Var, ...]
    body: Stmt
    stage: Stage = Stage.TILE
    target: str = ""
    returns: tuple[int, ...] = ()
    safe_values: tuple[tuple[str, Expr], ...] = ()
    scratch_bytes: int = 0
    sources: tuple[str, ...] = ()
    sites: tuple[Span | None, ...] = field(default=(None,), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    decisions: tuple[LayoutDecision, ...] = field(default=(), compare=False)
    uses: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    def span(self, site: int) -> Span | None:
        """Where operation `site` is in the user's source."""
        return self.sites[site] if 0 <= site < len(self.sites) else None
