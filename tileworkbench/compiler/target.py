"""What a target is: plain facts that analyses and operators ask for, instead of tests on names
spread about.
"""

from __future__ import annotations

from dataclasses import dataclass

from tileworkbench.compiler.diagnostics import TileValueError

MOST_THREADS = 1024  # of a block, on every target
MOST_BLOCKS = 2**31 - 1  # of a launch


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """`mma.sync.m{m}n{n}k{k}` of operand dtypes `a` and `b`, accumulated in `c`.

    float32 operands are read as tf32.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str


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

    @property
    def compute_capability(self) -> int:
        """75, 80, ... of a CUDA architecture, 0 elsewhere."""
        return int(self.arch.removeprefix("sm_").rstrip("a")) if self.kind == "cuda" else 0

    @property
    def matrix_instructions(self) -> tuple[MatrixInstruction, ...]:
        """What the tensor cores multiply in one step, the best first for each dtype."""
        capability = self.compute_capability
        return tuple(
            found for least, end, found in _MATRIX_INSTRUCTIONS if least <= capability < end
        )

    @property
    def has_dot_product(self) -> bool:
        """Whether a thread of a GPU multiplies and adds four signed bytes at once (dp4a)."""
        return self.compute_capability >= 61

    def atomic_lanes(self, dtype: str, scope: str) -> int:
        """How many neighbouring elements one instruction adds to memory, each atomically (PTX ISA,
        "red").
        """
        if self.compute_capability >= 90:
            wide = {"float32": 4, "float16": 8, "bfloat16": 8}
            narrow = {"float16": 2, "bfloat16": 2}
            return (wide if scope == "global" else narrow).get(dtype, 1)
        return 2 if dtype == "float16" and self.compute_capability >= 70 else 1

    def __str__(self) -> str:
        if self.kind == "cpu":
            return "cpu" if self.arch == "native" else f"cpu:{self.arch}"
        if self.execution == "native":
            return f"{self.kind}:{self.arch}"
        return f"{self.execution}:{self.arch}"


def _matrix_instructions() -> tuple[tuple[int, int, MatrixInstruction], ...]:
    """The first compute capability that has it, the first that has it no more, and the instruction
    (PTX ISA, "mma", target ISA notes).
    """
    found: list[tuple[int, int, MatrixInstruction]] = []

    def add(
        least: int, shape: tuple[int, int, int], a: str, b: str, c: str, end: int = 1000
    ) -> None:
        found.append((least, end, MatrixInstruction(*shape, a, b, c)))

    for c in ("float32", "float16"):
        add(80, (16, 8, 16), "float16", "float16", c)
        add(75, (16, 8, 8), "float16", "float16", c)
    for k, least in ((16, 80), (8, 80)):
        add(least, (16, 8, k), "bfloat16", "bfloat16", "float32")
    for dtype in ("float32", "tfloat32"):
        for k in (8, 4):
            add(80, (16, 8, k), dtype, dtype, "float32")
    for dtype in ("int8", "uint8"):
        add(80, (16, 8, 32), dtype, dtype, "int32")
        add(80, (16, 8, 16), dtype, dtype, "int32")
        add(75, (8, 8, 16), dtype, dtype, "int32")
    for dtype in ("int4", "uint4"):  # from sm_90 on made of products of bytes
        add(80, (16, 8, 64), dtype, dtype, "int32", end=90)
        add(80, (16, 8, 32), dtype, dtype, "int32", end=90)
        add(75, (8, 8, 32), dtype, dtype, "int32", end=90)
    for a in ("float8_e4m3fn", "float8_e5m2"):
        for b in ("float8_e4m3fn", "float8_e5m2"):
            add(89, (16, 8, 32), a, b, "float32")
    add(80, (8, 8, 4), "float64", "float64", "float64")
    return tuple(found)


_MATRIX_INSTRUCTIONS = _matrix_instructions()

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
