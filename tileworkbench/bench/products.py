"""Who multiplies matrices faster on this processor: torch's library, or kernels.

Both are counted in multiply-adds of float32, which the two do at about the same rate. For 16-bit
floats torch calls oneDNN. Where the processor has instructions for them (VDPBF16PS, AMX, AVX-512's
arithmetic of float16, Arm's BFMMLA) the library is at its best. Where it has none, the library
widens the elements again for each use of them; a kernel widens a tile once, when it is packed.

The shares are measured, minima of interleaved calls: on an Intel Xeon with AVX-512 and no
instruction for 16 bits (512 x 512 x 512, one thread, torch 2.13) the library does 20 to 30 GFLOP/s
of bfloat16, 1 to 13 of float16, and 146 of float32; kernels do 86 to 139 of both. With VDPBF16PS
(AMD EPYC, Zen 5, `benchmarks/results/cpu_suite-amd-epyc-2-cores-znver5.md`) kernels reach 0.84 of
the library, with AMX (an Intel Xeon, 1024 x 1024 x 1024, one thread) 0.5: the library does 1,200 to
1,400 GFLOP/s, kernels 650, and both 160 of float32. On another EPYC, with 128 rows and tiles 128
deep, they were 1.05 times as fast: so much work is tried.

Weights that kernels make from codes in the tile: on that Xeon int8 and packed int4 of 1024 x 1024
with float32 took 0.3 to 0.6 of torch's time for 1 to 16 rows, and for 512 rows 1.5 (int8) and 0.73
(int4); with bfloat16 0.12 to 0.6 for 1 to 512 rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.fast_dataclass import dataclass

# LLVM's names of the instructions that multiply elements of a type.
_INSTRUCTIONS = {
    "bfloat16": ("avx512bf16", "amx-bf16", "bf16"),
    "float16": ("avx512fp16", "amx-fp16", "fullfp16"),
}
_WITHOUT = {"bfloat16": 0.2, "float16": 0.1}  # of the rate of float32, in the library
_WIDENED = 0.7  # in a kernel
_TILE_ROWS = 128
_CLOSE = 0.75
# An operation on one element, in multiply-adds: inside of a tile, and from memory to memory.
_IN_TILE, _IN_MEMORY = 5.0, 60.0
_COMPUTED_TILES = 0.7  # of the rate of a kernel: what was computed is packed after that
_WITH = {"bfloat16": (2.0, 1.7), "float16": (2.0, 0.7)}  # library, kernel
_WITH_TILES = (8.0, 4.0)  # of bfloat16
_ROWS, _ROWS_OF_TILES = 12, 32  # of a register block, of two tile registers


@dataclass(frozen=True, slots=True)
class ProductRates:
    """Multiply-adds of torch's library and of kernels, in those of float32 on the processor.

    `has_instructions` says whether it multiplies the element type as it is. A kernel multiplies
    `rows` at once: fewer leave the rest of its registers empty.
    """

    library: float
    kernel: float
    has_instructions: bool
    rows: int = _ROWS

    @property
    def kernel_is_faster(self) -> bool:
        return self.kernel > self.library

    @property
    def is_close(self) -> bool:
        """Whether the better of the two depends on the sizes and on the processor."""
        return self.kernel > _CLOSE * self.library

    def kernel_dequantises_faster(self, rows: int, operations: int) -> bool:
        """Whether a product of so many rows whose other operand follows from codes by `operations`
        is faster in a kernel: it computes that operand for each tile of rows, the library once, but
        each operation reads and writes memory.
        """
        tiles = -(-rows // _TILE_ROWS)
        kernel = rows / (_COMPUTED_TILES * self.kernel) + tiles * operations * _IN_TILE
        return kernel < rows / self.library + operations * _IN_MEMORY


def product_rates(dtype: str, features: Iterable[str] | None = None) -> ProductRates:
    """The rates for operands of `dtype`: "float32", "float16" or "bfloat16".

    `features` are LLVM's names of what a processor has; without them, this one's.
    """
    if dtype == "float32":
        return ProductRates(1.0, 1.0, True)
    known = processor.cpu_features() if features is None else frozenset(features)
    if known.isdisjoint(_INSTRUCTIONS[dtype]):
        return ProductRates(_WITHOUT[dtype], _WIDENED, False)
    has_tiles = dtype == "bfloat16" and "amx-bf16" in known
    if has_tiles:
        return ProductRates(*_WITH_TILES, True, _ROWS_OF_TILES)
    return ProductRates(*_WITH[dtype], True)
