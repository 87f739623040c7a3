"""Instructions that threads execute together, as data: who takes part, where the operands live, and
when the result is there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.layout.fragment import Fragment

# The names that instruction sets have for dtypes of operands; mma reads float32 as tf32.
OPERAND_DTYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "tfloat32": "tf32",
    "float64": "f64",
    "int8": "s8",
    "uint8": "u8",
    "int4": "s4",
    "uint4": "u4",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
}


WARPGROUP_WARPS = 4
"""The warps of a warpgroup."""


class Scope(Enum):
    """The threads that execute an instruction together."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"


class Completion(Enum):
    """How it is known that an instruction is done: at once, by waiting for the group of
    instructions it was committed with, or by waiting for the phase of a memory barrier.
    """

    ITSELF = "itself"
    GROUP = "group"
    PHASE = "phase"


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a matrix instruction, of elements `dtype`.

    `place` makes the fragment that says which lane holds which element in which register, A over
    ``[row, k]``, B over ``[n, k]``, C over ``[row, column]``; None where the operand cannot be in
    registers. `swizzles` are the widths in bytes of the layouts in shared memory that a descriptor
    can name, 0 for rows as they are; empty where it cannot be there.
    """

    dtype: str
    place: Callable[[], Fragment] | None
    swizzles: tuple[int, ...] = ()

    @property
    def fragment(self) -> Fragment:
        """The registers of an operand that can be there."""
        assert self.place is not None, f"an operand of {self.dtype} that is in shared memory only"
        return self.place()


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """``c += a @ b`` of `m` x `n` x `k` elements; `reads_tf32`: float32 operands are read as tf32.

    `issues` is how many instructions of the machine that is along K, one after the other: each
    takes the next part of a lane's registers. `across` is how many there are along N: a lane has
    so many neighbours of a row of B, one for each, so that they are read at once from a tile whose
    last dimension is N. `source` is the document, and the part of it, that says so, or begins with
    "assumed" and says what no document does.
    """

    name: str
    scope: Scope
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    completes: Completion = Completion.ITSELF
    issues: int = 1
    across: int = 1
    reads_tf32: bool = False
    source: str = ""

    @property
    def dtypes(self) -> tuple[str, str, str]:
        """The dtypes of A, B and C."""
        return self.a.dtype, self.b.dtype, self.c.dtype


@dataclass(frozen=True, slots=True)
class MatrixMove:
    """ldmatrix and its inverse: a warp moves matrices of rows in one piece between shared memory
    and registers.

    Lane ``rows * i + r`` points at row `r` of matrix `i`. Matrices of one instruction are in
    registers that follow one another. The transposed form takes elements of `transposed_bits`.
    """

    name: str
    loads: bool
    rows: int
    row_bits: int
    register_bits: int
    counts: tuple[int, ...]
    transposed_bits: int

    def fragment(self, bits: int) -> Fragment | None:
        """Where elements of `bits` bits of one matrix are in registers, over ``[row, column]``;
        None where they do not fit into them.
        """
        if self.register_bits % bits:
            return None
        width = self.register_bits // bits
        lanes = self.row_bits // self.register_bits
        return Fragment(
            (self.rows, self.row_bits // bits), lambda i, j: (i * lanes + j // width, j % width)
        )


@dataclass(frozen=True, slots=True)
class TurnedLoad:
    """`lanes` neighbouring lanes read a block of shared memory by rows and get it by columns: each
    names `lane_bits` of a row, of elements of one of `bits`, and gets as many.
    """

    lanes: int
    lane_bits: int
    bits: tuple[int, ...]

    def rows(self, bits: int) -> int:
        """Rows of a block of `bits`-bit elements, and elements of a row that each lane names."""
        return self.lane_bits // bits


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of a tensor that a copy engine can copy: at most `dims` dimensions, and `extent`
    elements along each. In shared memory a box starts at a multiple of `alignment` bytes, and one
    that is swizzled where the swizzle repeats, which it does after `swizzle_rows` rows.
    """

    dims: int
    extent: int
    alignment: int
    swizzle_rows: int


@dataclass(frozen=True, slots=True)
class CopyEngine:
    """Copies that are started by one instruction and go on without the thread.

    `sizes` are the bytes that one instruction of a thread takes; empty for an engine that takes
    `boxes` of a tensor, in rows of a multiple of `alignment` bytes, stored with one of `swizzles`.
    `in_line`: a warp gives one place in shared memory, where its threads' copies lie one behind the
    other; nothing stands in for what is left out, and waits count instructions.
    """

    name: str
    source: str
    target: str
    completes: Completion
    alignment: int
    sizes: tuple[int, ...] = ()
    swizzles: tuple[int, ...] = ()
    boxes: Boxes | None = None
    in_line: bool = False
