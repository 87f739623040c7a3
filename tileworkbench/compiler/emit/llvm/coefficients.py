"""Polynomials and constants of the elementary functions in `vector_math.py`.

The coefficients are minimax fits (Remez exchange in 40 digits) of the functions named beside them,
the lowest power first.
"""

from __future__ import annotations

import math

from tileworkbench.compiler.fast_dataclass import dataclass

# (e^r - 1 - r) / r^2 for |r| <= log(2) / 2
EXP = (0.499999930507, 0.166665147919, 0.0416684568195, 0.00836941880236, 0.00138131422638)
# (2^r - 1) / r for |r| <= 1 / 2
EXP2 = (
    0.693147204182,
    0.240226477426,
    0.0555032934967,
    0.00961844994087,
    0.00134001701288,
    0.00015352322607,
)
# (log(1 + f) - f) / f^2 for 1 + f from sqrt(1/2) to sqrt(2)
LOG = (
    -0.499999883469,
    0.333333256932,
    -0.250015829146,
    0.200019738087,
    -0.166090835829,
    0.141818282794,
    -0.132429831291,
    0.129044116078,
    -0.0762176191231,
)
# (tanh(x) - x) / x^3 in x^2 for |x| <= 0.625
TANH = (-0.333332819421, 0.133314422009, -0.0537397153098, 0.0206390879763, -0.00570498780523)
# (atan(x) - x) / x^3 in x^2 for |x| <= 1
ATAN = (
    -0.333331527325,
    0.199937727493,
    -0.142110546014,
    0.10666001832,
    -0.0755220824626,
    0.0432117890816,
    -0.0163678837174,
    0.00292068113529,
)
# log2(1 - erf(x)) / x for 0 <= x <= 3.95, past which erf rounds to 1
ERF_LIMIT = 3.95
ERF = (
    -1.6279070351262068,
    -0.9184476252887545,
    -0.1482770664307822,
    0.027632030303804542,
    0.0002314029215495474,
    -0.0024050128164575914,
    0.0009129910062966424,
    -0.00016972061472153425,
    1.335398443504294e-05,
)
# (sin(r) - r) / r^3 and (cos(r) - 1) / r^2 in r^2 for |r| <= pi / 4
SIN = (-0.166666666406, 0.00833332928052, -0.000198393044148, 2.71804646598e-06)
COS = (-0.49999999692, 0.0416666200729, -0.00138866726655, 2.43827218492e-05)
# pi / 2 as 33 leading bits and the rest; the reduction is exact to far below float32 up to the
# limit.
QUARTER_HIGH, QUARTER_LOW, QUARTER_LIMIT = 1.5707963267341256, 6.077100506506192e-11, 1e6


@dataclass(frozen=True, slots=True)
class Base:
    """A base b of exponentials and logarithms.

    log2(b); log_b(2) in two parts; log(b); and where b^x becomes 0 and infinite in float32.
    """

    log2: float
    step_high: float
    step_low: float
    natural: float
    lowest: float
    highest: float


def _base(b: float, lowest: float, highest: float) -> Base:
    # Nine leading bits of log_b(2), so that its product with an exponent is exact.
    step = math.log(2) / math.log(b)
    high = math.floor(step * 512) / 512
    return Base(math.log2(b), high, step - high, math.log(b), lowest, highest)


BASES = {
    "": _base(math.e, -105.0, 89.0),
    "2": _base(2.0, -152.0, 129.0),
    "10": _base(10.0, -46.0, 39.0),
}
