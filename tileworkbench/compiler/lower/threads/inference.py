"""What tile operators say about layouts, and what is known so far (paper, section 4.2).

An operator is asked at three levels, each less binding than the one before. It answers with
proposals for buffers, raises `LayoutConflict` when it cannot work with what is known, and says
nothing when it has nothing to add. It is asked again whenever a buffer it uses changes, and once
more at the end, when every layout is fixed: that is when it must raise if it cannot be lowered.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout

Place = Layout | Fragment
"""A layout of shared memory, or the fragment of a tile in registers."""


class Level(IntEnum):
    """How binding the answers of an operator are."""

    STRICT = 0
    """What the instruction dictates. Asked once, in program order; may not be changed later."""
    COMMON = 1
    """What follows from layouts that are known already."""
    FREE = 2
    """A choice of its own, where nothing is known."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A layout that an operator wants for a buffer. `reason` completes "it ...": "holds the result
    of a matrix product".

    A `soft` proposal is for shared memory only and gives way to any layout that is known. Threads
    of a fragment count from 0 among the ones that execute the operator.
    """

    buffer: Buffer
    layout: Place
    reason: str
    soft: bool = False


@dataclass(frozen=True, slots=True)
class LayoutUpdate:
    """An operator's answer; `loop` is the fragment of its iterations, where it has any."""

    proposals: tuple[Proposal, ...] = ()
    loop: Fragment | None = None


NOTHING = LayoutUpdate()


class LayoutConflict(Exception):
    """An operator cannot work with the layouts that are known, or with no layout at all.

    `buffer` is the tile in conflict and `wanted` the layout that the operator needs there, where it
    is known; `hint` the smallest change of the kernel that helps. The inference adds who set the
    layout that is known, and turns it into a `LayoutError`.
    """

    def __init__(
        self,
        message: str,
        buffer: Buffer | None = None,
        wanted: Place | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.buffer = buffer
        self.wanted = wanted
        self.hint = hint


@dataclass(frozen=True, slots=True)
class LayoutMap:
    """The layouts that are known. A view: it changes as the inference goes on."""

    known: Mapping[Buffer, Place]

    def get(self, buffer: Buffer) -> Place | None:
        """The layout of `buffer`, None while it has none."""
        return self.known.get(buffer)

    def fragment(self, buffer: Buffer) -> Fragment | None:
        """The fragment of `buffer`, None while it has none or where it is not in registers."""
        layout = self.known.get(buffer)
        return layout if isinstance(layout, Fragment) else None
