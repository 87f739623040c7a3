"""What a target is, as plain facts. Analyses and operators ask for these and do not compare names
of architectures.
"""

from __future__ import annotations

import difflib

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.machine.machine import Machine
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of

MOST_THREADS = 1024  # of a block, on every target
MOST_BLOCKS = 2**31 - 1  # of a launch
MOST_LOCAL_BYTES = 512 << 10  # of a GPU thread, registers included


@dataclass(frozen=True, slots=True)
class Target:
    """One machine to compile for.

    `dot_int8` says that a CPU multiplies and adds four bytes at once (VNNI), `dot_bfloat16` that it
    does so with pairs of bfloat16.

    `kind` is "cpu", "cuda" or "hip"; `arch` the GPU architecture or, on a CPU, the instruction-set
    level ("native" until the driver has asked the host). `execution` says what runs the code:
    "native", "sim", "ptx" or "emu".
    """

    kind: str
    arch: str
    execution: str = "native"
    vector_bits: int = 128
    dot_int8: bool = False
    dot_bfloat16: bool = False

    @property
    def is_simulated(self) -> bool:
        """Whether a simulator runs the code, so that the time of a call is not the kernel's."""
        return self.execution != "native"

    @property
    def machine(self) -> Machine:
        """What a GPU of this architecture has; a CPU has none of it."""
        return machine_of(self.arch)

    def __str__(self) -> str:
        if self.kind == "cpu":
            return "cpu" if self.arch == "native" else f"cpu:{self.arch}"
        if self.execution == "native":
            return f"{self.kind}:{self.arch}"
        return f"{self.execution}:{self.arch}"


CPU_LEVELS = ("native", "avx512", "avx2", "generic")

def parse_target(text: str) -> Target:
    """The target named by `text`: `cpu`, `cpu:<level>`, `cuda[:sm_*]`, `hip:gfx*`, `sim:<arch>`,
    `ptx:<arch>`, `emu:gfx*` or a bare arch.

    Raises `TileValueError` naming the known spellings.
    """
    head, _, tail = text.strip().partition(":")
    if head == "cpu" and (tail or "native") in CPU_LEVELS:
        return Target("cpu", tail or "native", vector_bits=512)
    if head in ARCHITECTURES and not tail:
        return _gpu(head, "native")
    if head == "cuda" and (tail or "sm_80") in ARCHITECTURES and not tail.startswith("gfx"):
        return _gpu(tail or "sm_80", "native")
    if head == "hip" and tail in ARCHITECTURES and tail.startswith("gfx"):
        return _gpu(tail, "native")
    if head == "sim" and tail in ARCHITECTURES:
        return _gpu(tail, head)
    if head == "ptx" and tail in ARCHITECTURES and not tail.startswith("gfx"):
        return _gpu(tail, head)
    if head == "emu" and tail in ARCHITECTURES and tail.startswith("gfx"):
        return _gpu(tail, head)
    near = difflib.get_close_matches(tail or head, ARCHITECTURES, 3)
    meant = f"near it: {', '.join(near)}; " if near and (tail or head) not in ARCHITECTURES else ""
    raise TileValueError(
        f"'{text}' is not a target",
        hint=f"{meant}use 'cpu', 'cpu:avx2', 'cuda:<arch>', 'hip:<arch>', 'sim:<arch>', "
        f"'ptx:<arch>' or 'emu:<arch>' with arch one of {', '.join(ARCHITECTURES)}",
    )


def _gpu(arch: str, execution: str) -> Target:
    return Target("hip" if arch.startswith("gfx") else "cuda", arch, execution)
