"""What a target is: plain facts that analyses and operators ask for, instead of tests on names
spread about.
"""

from __future__ import annotations

from dataclasses import dataclass

from tileworkbench.compiler.diagnostics import TileValueError


@dataclass(frozen=True, slots=True)
class Target:
    """One machine to compile for.

    `dot_int8` says that a CPU multiplies and adds four bytes at once (VNNI), `dot_bfloat16` that it
    does so with pairs of bfloat16.

    `kind` is "cpu", "cuda" or "hip"; `arch` the GPU architecture or, on a CPU, the instruction-set
    level ("native" until the driver has asked the host). `execution` says what runs the code:
    "native", "sim" or "ptx".
    """

    kind: str
    arch: str
    execution: str = "native"
    warp_size: int = 32
    shared_bytes: int = 0
    vector_bits: int = 128
    dot_int8: bool = False
    dot_bfloat16: bool = False

    def __str__(self) -> str:
        if self.kind == "cpu":
            return "cpu" if self.arch == "native" else f"cpu:{self.arch}"
        if self.execution == "native":
            return f"{self.kind}:{self.arch}"
        return f"{self.execution}:{self.arch}"


CPU_LEVELS = ("native", "avx512", "avx2", "generic")

# Shared memory a block may use, in bytes (CUDA programming guide, technical specifications per
# compute capability;
# AMD CDNA ISA documents for the LDS).
_SHARED_BYTES = {
    "sm_75": 65536,
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_90a": 232448,
    "gfx90a": 65536,
    "gfx942": 65536,
}
ARCHITECTURES = tuple(_SHARED_BYTES)


def parse_target(text: str) -> Target:
    """The target named by `text`: `cpu`, `cpu:<level>`, `cuda[:sm_*]`, `hip:gfx*`, `sim:<arch>`,
    `ptx:<arch>` or a bare arch.

    Raises `TileValueError` naming the known spellings.
    """
    head, _, tail = text.strip().partition(":")
    if head == "cpu" and (tail or "native") in CPU_LEVELS:
        return Target("cpu", tail or "native", vector_bits=512)
    if head in _SHARED_BYTES and not tail:
        return _gpu(head, "native")
    if head == "cuda" and (tail or "sm_80") in _SHARED_BYTES and not tail.startswith("gfx"):
        return _gpu(tail or "sm_80", "native")
    if head == "hip" and tail in _SHARED_BYTES and tail.startswith("gfx"):
        return _gpu(tail, "native")
    if (
        head in ("sim", "ptx")
        and tail in _SHARED_BYTES
        and not (head == "ptx" and tail.startswith("gfx"))
    ):
        return _gpu(tail, head)
    raise TileValueError(
        f"'{text}' is not a target",
        hint="use 'cpu', 'cpu:avx2', 'cuda:<arch>', 'hip:<arch>', 'sim:<arch>' or 'ptx:<arch>' "
        f"with arch one of {', '.join(ARCHITECTURES)}",
    )


def _gpu(arch: str, execution: str) -> Target:
    kind = "hip" if arch.startswith("gfx") else "cuda"
    return Target(kind, arch, execution, 64 if kind == "hip" else 32, _SHARED_BYTES[arch])
