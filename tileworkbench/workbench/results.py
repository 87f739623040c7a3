"""What is found out about a kernel besides its compilation: how it compares with a reference, and
the layouts of its buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileworkbench.compiler.fast_dataclass import dataclass

if TYPE_CHECKING:
    from tileworkbench.compiler.analysis.atoms import Atom
    from tileworkbench.compiler.layout.fragment import Fragment
    from tileworkbench.compiler.layout.layout import Layout


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A comparison with a reference. `max_error` and `tolerance` are absolute; `simulated` says how
    much of the call the simulator has looked at; `nans` counts the elements that are NaN in both,
    which are equal but may hide an error.
    """

    ok: bool
    max_error: float
    tolerance: float
    reference: str = ""
    simulated: str = ""
    nans: int = 0

    @property
    def nan_text(self) -> str:
        """What to say of the elements that are NaN in both; empty where there are none."""
        many = "1 element is" if self.nans == 1 else f"{self.nans} elements are"
        return f"{many} NaN in both, which is not compared further" if self.nans else ""


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """The layout of one buffer. `role` is a few words such as ``shared float32 64x32``.

    `element_bytes` turns addresses, which are in elements, into bytes and banks. `banked` is false
    for memory without banks, a CPU's: it is coloured by address. `atoms` are what instructions take
    of it at once; None where no code is known, and the layout itself must tell.
    """

    name: str
    layout: Layout | Fragment
    role: str = ""
    element_bytes: int = 4
    banked: bool = True
    atoms: tuple[Atom, ...] | None = None

    @property
    def fitting_atoms(self) -> tuple[Atom, ...]:
        """What instructions take of it at once; of a fragment without a kernel, what could."""
        if self.atoms is not None:
            return self.atoms
        from tileworkbench.compiler.analysis.atoms import fragment_atoms
        from tileworkbench.compiler.layout.fragment import Fragment

        return fragment_atoms(self.layout) if isinstance(self.layout, Fragment) else ()
