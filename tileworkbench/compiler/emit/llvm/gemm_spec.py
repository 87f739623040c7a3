"""What one register-blocked matrix product is given: extents, dtypes, layouts."""

from __future__ import annotations

from tileworkbench.compiler.analysis.micro_tile import compute_dtype
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import DTYPE_BYTES
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.types import DType


@dataclass(frozen=True, slots=True)
class MicroGemmSpec:
    """One tile product, C[m, n] = (C +) A[m, k] B[k, n].

    Args:
        m, n, k: extents of the tile.
        in_dtype: dtype of the elements of A and B before packing.
        acc_dtype: dtype of C in memory; 16-bit floats are summed in float32 and rounded at the
            store.
        isa: what the code may use.
        mr, nr: rows and columns of a register block; `nr` is a multiple of the vector length.
        a_layout: 'rows' (element (i, p) at i * lda + p) or 'columns' (at p * lda + i; with
            `group` g > 1, bytes g p .. g p + g - 1 of a row lie together and lda counts rows of
            groups).
        b_layout: 'panels' as packing writes them, or 'rows' (element (p, j) at p * ldb +
            j), which needs `group` 1 and B already in `panel_dtype`.
        prefetch_a: how many k ahead to fetch rows of A into the first-level cache; 0 for none.
            Set it to k where A lies in a large matrix and the next tile is k further on.
        b_least: the smallest exponent of B stands behind its panels, as packing writes it.
    """

    m: int
    n: int
    k: int
    in_dtype: str
    acc_dtype: str
    isa: Isa
    mr: int
    nr: int
    a_layout: str = "rows"
    b_layout: str = "panels"
    prefetch_a: int = 0
    b_least: bool = False

    def __post_init__(self) -> None:
        if compute_dtype(DType(self.in_dtype), DType(self.acc_dtype)) is None:
            raise ValueError(f"no product of '{self.in_dtype}' with accumulator '{self.acc_dtype}'")
        if min(self.m, self.n, self.k, self.mr, self.nr) < 1 or self.nr % self.lanes:
            raise ValueError(f"extents must be positive and nr a multiple of {self.lanes}: {self}")
        if self.a_layout not in ("rows", "columns") or self.b_layout not in ("panels", "rows"):
            raise ValueError(f"unknown operand layout: '{self.a_layout}', '{self.b_layout}'")
        if self.prefetch_a and self.a_layout != "rows":
            raise ValueError("only rows of A are prefetched")
        if self.b_layout == "rows" and self.group > 1:
            raise ValueError(f"'{self.in_dtype}' operands need packed panels of B")

    @property
    def compute_dtype(self) -> str:
        """The dtype of the accumulators in registers."""
        wider = compute_dtype(DType(self.in_dtype), DType(self.acc_dtype))
        return self.acc_dtype if wider is None else str(wider)

    @property
    def lanes(self) -> int:
        """Accumulators in one vector register."""
        return self.isa.lanes(DTYPE_BYTES[self.compute_dtype])

    @property
    def dot(self) -> str:
        """The dtype whose products a dot-product instruction sums in groups, or '' for none."""
        if self.compute_dtype == "int32":
            return "int8" if self.in_dtype == "int8" and self.isa.dot_int8 else "int16"
        pairs = self.in_dtype == "bfloat16" and self.compute_dtype == "float32"
        return "bfloat16" if pairs and self.isa.dot_bfloat16 else ""

    @property
    def group(self) -> int:
        """How many consecutive k an accumulator lane takes at once: 4 bytes, 2 shorts or 1."""
        return 4 // DTYPE_BYTES[self.dot] if self.dot else 1

    @property
    def panel_dtype(self) -> str:
        """The dtype of packed A and B; A may be used where it lies if this equals `in_dtype`."""
        return self.dot or self.compute_dtype

    @property
    def tiles(self) -> bool:
        """Whether rows in sixteens are multiplied with whole panels by tile registers."""
        dots = self.isa.tiles and self.dot in ("int8", "bfloat16")
        in_place = self.a_layout == "rows" and self.acc_dtype == self.compute_dtype
        fills = self.m >= 16 and self.n >= self.nr and self.k % (16 * self.group) == 0
        return dots and in_place and fills

    @property
    def asks(self) -> bool:
        """Whether the operands are asked if dot products are exact."""
        return self.dot == "bfloat16" and (self.tiles or not self.isa.tiles)

    @property
    def k_padded(self) -> int:
        """k rounded up to a multiple of `group`; what packed rows of A hold."""
        return -(-self.k // self.group) * self.group

    @property
    def panel_stride(self) -> int:
        """Elements of `panel_dtype` from one packed panel of B to the next."""
        column_sums = 4 * self.nr if self.dot == "int8" else 0
        return self.k_padded * self.nr + column_sums

    @property
    def a_elements(self) -> int:
        """Elements of `panel_dtype` that packed A takes, in either layout."""
        return self.m * self.k_padded

    @property
    def b_elements(self) -> int:
        """Elements of `panel_dtype` that the packed panels of B take."""
        return -(-self.n // self.nr) * self.panel_stride

    @property
    def a_stride(self) -> int:
        """The `lda` of packed A."""
        return self.k_padded if self.a_layout == "rows" else self.m
