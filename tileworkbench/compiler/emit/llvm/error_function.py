"""erf by a polynomial for each of sixteen segments, whose coefficients a permutation chooses.

The segments are centred on the multiples of 1/4 from 0 to 15/4; the last one ends at 4, from where
on erf rounds to 1. The polynomials are minimax fits of the relative error (least squares, weighted
anew until the errors level out, in 40 digits), odd in the first segment so that small arguments
keep their precision: 2.2 ulp in all. With a permutation per coefficient it takes 18 instructions
where one polynomial for all takes 26.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.lookup import lookup
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.ir.types import FLOAT32

LIMIT, LAST = 4.0, 3.75
"""Where erf is 1, and the centre of the last segment."""

# By power of the distance from the centre.
COEFFICIENTS: tuple[tuple[float, ...], ...] = (
    (
        0.0, 0.2763264, 0.5204999, 0.71115565, 0.8427008, 0.92290014, 0.96610516, 0.9866717,
        0.9953223, 0.9985373, 0.999593, 0.9998994, 0.9999779, 0.9999957, 0.9999993, 0.9999999,
    ),
    (
        1.1283791, 1.0600142, 0.87878263, 0.6429311, 0.41510752, 0.23652112, 0.11893029,
        0.05277499, 0.020666983, 0.0071423184, 0.0021782846, 0.0005862777, 0.00013925334,
        2.9189154e-05, 5.399471e-06, 8.808042e-07,
    ),
    (
        0.0, -0.26499793, -0.43938425, -0.4821945, -0.4151081, -0.29565442, -0.17839816,
        -0.09235752, -0.041334037, -0.016069809, -0.005445315, -0.0016120272, -0.00041765405,
        -9.48267e-05, -1.8886854e-05, -3.3079357e-06,
    ),
    (
        -0.3761226, -0.30919188, -0.14647886, 0.026779434, 0.13836506, 0.16753556, 0.13875376,
        0.09015916, 0.048223943, 0.021724753, 0.008349933, 0.0027601991, 0.00078898505,
        0.0001957587, 4.2277985e-05, 8.0934215e-06,
    ),
    (
        0.0, 0.12602744, 0.18189387, 0.1500486, 0.06929179, -0.005654521, -0.044139624,
        -0.047888488, -0.034433592, -0.01915209, -0.008688898, -0.003297618, -0.001062032,
        -0.00029288046, -6.958416e-05, -1.3948593e-05,
    ),
    (
        0.11220039, 0.08084502, 0.008173241, -0.05246484, -0.06872501, -0.047108714, -0.015032963,
        0.006428916, 0.012983218, 0.010636332, 0.006134232, 0.0027761064, 0.0010288857,
        0.0003192084, 8.397349e-05, 1.3204846e-05,
    ),
)
# Adding it leaves the number of quarters in the lowest bits.
_SHIFT = 1.5 * 2**21


def has_segments(isa: Isa, kind: VectorType) -> bool:
    """Whether a permutation has room for the coefficients of all segments."""
    return isa.level == "avx512" and kind.lanes % 16 == 0


def erf_of_magnitude(
    writer: FunctionWriter, isa: Isa, kind: VectorType, magnitude: str, within: str
) -> str:
    """erf of `magnitude`, which is at most `LIMIT`; `within` is the same, at most `LAST`."""
    shift = kind.constant(_SHIFT)
    shifted = writer.let(f"fadd {kind} {within}, {shift}")
    centre = writer.let(f"fsub {kind} {shifted}, {shift}")
    distance = writer.let(f"fsub {kind} {magnitude}, {centre}")
    number = writer.let(f"bitcast {kind} {shifted} to {kind.of('i32')}")
    total = ""
    for table in reversed(COEFFICIENTS):
        chosen = lookup(writer, isa, number, kind.lanes, table, FLOAT32)
        if total:
            operands = ((kind, total), (kind, distance), (kind, chosen))
            chosen = writer.call(kind, f"llvm.fma.{kind.mangled}", *operands)
        total = chosen
    return total
