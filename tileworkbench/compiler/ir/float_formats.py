"""Floats of a byte or less: what their codes mean.

Sources: OCP 8-bit floating point specification (e4m3fn, e5m2) and OCP microscaling formats
specification (e2m1, e2m3, e3m2, and the scale e8m0, which is an exponent alone); the fnuz kinds
have one NaN, the code of negative zero. A format of fewer than 8 bits has the low bits of its byte.
"""

from __future__ import annotations

from tileworkbench.compiler.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """Bits of mantissa, bias of the exponent, largest finite value and the code of NaN (or of what
    stands for it).

    Magnitudes above `special` are NaN; `infinity` is the code of infinity where there is one.
    """

    mantissa: int
    bias: int
    largest: float
    nan: int
    special: int
    infinity: int | None = None
    signed_zero: bool = True
    bits: int = 8

    @property
    def sign(self) -> int:
        """The bit that says whether a value is negative."""
        return 1 << (self.bits - 1)


SCALE = "float8_e8m0fnu"
FORMATS = {
    "float8_e4m3fn": Format(3, 7, 448.0, 0x7F, 0x7E),
    "float8_e5m2": Format(2, 15, 57344.0, 0x7E, 0x7C, infinity=0x7C),
    "float8_e4m3fnuz": Format(3, 8, 240.0, 0x80, 0x7F, signed_zero=False),
    "float8_e5m2fnuz": Format(2, 16, 57344.0, 0x80, 0x7F, signed_zero=False),
    "float4_e2m1fn": Format(1, 1, 6.0, 0x7, 0x7, bits=4),
    "float6_e2m3fn": Format(3, 1, 7.5, 0x1F, 0x1F, bits=6),
    "float6_e3m2fn": Format(2, 3, 28.0, 0x1F, 0x1F, bits=6),
    SCALE: Format(0, 127, 2.0**127, 0xFF, 0xFE, signed_zero=False),
}
