"""Colours that people with any colour vision can tell apart, dark text readable on each.

Categories: Paul Tol's "light" qualitative scheme (SRON/EPS/TN/09-002, issue 3.2). Sequences: points
of cividis (Nunez, Anderton, Renslow, PLoS ONE 13(7), 2018), lightened so that text stays readable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CATEGORIES = (
    (119, 170, 221),
    (238, 136, 102),
    (187, 204, 51),
    (153, 221, 255),
    (238, 221, 136),
    (68, 187, 153),
    (255, 170, 187),
    (170, 170, 0),
)
SEQUENCE = (
    (112, 134, 178),
    (132, 148, 176),
    (150, 158, 165),
    (180, 176, 155),
    (212, 198, 132),
    (246, 224, 96),
)
EMPTY = (205, 205, 205)
SHADE = 0.17  # how much whiter each further group of categories is
PALETTE = {
    "categories": [list(colour) for colour in CATEGORIES],
    "sequence": [list(colour) for colour in SEQUENCE],
    "empty": list(EMPTY),
    "shade": SHADE,
}
"""The same numbers for the browser."""


def category_colours(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """RGB of category numbers: eight hues, each group of eight a shade lighter, in four shades.

    Negative numbers are empty places.
    """
    hues = np.array(CATEGORIES, np.float64)[values % len(CATEGORIES)]
    shade = (values // len(CATEGORIES) % 4)[..., None] * SHADE
    mixed = hues + (255 - hues) * shade
    mixed[values < 0] = EMPTY
    return mixed.astype(np.uint8)


def sequence_colours(values: NDArray[np.int64], top: int) -> NDArray[np.uint8]:
    """RGB of numbers from 0 to `top` along one ramp. Negative numbers are empty places."""
    stops = np.array(SEQUENCE, np.float64)
    position = np.clip(values, 0, top) / max(top, 1) * (len(stops) - 1)
    low = np.minimum(position.astype(np.int64), len(stops) - 2)
    part = (position - low)[..., None]
    mixed: NDArray[np.float64] = stops[low] * (1 - part) + stops[low + 1] * part
    mixed[values < 0] = EMPTY
    return mixed.astype(np.uint8)
