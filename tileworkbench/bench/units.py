"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def format_bytes(count: float) -> str:
    """``512 B``, ``24.0 KiB``, ``1.5 MiB``."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while count >= 1024 and power < len(units) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.0f} B" if power == 0 else f"{count:.1f} {units[power]}"


def format_count(count: float) -> str:
    """``950``, ``33.6 M``, ``2.1 G``: three digits and a decimal prefix."""
    units = ("", " k", " M", " G", " T", " P")
    power = 0
    while abs(count) >= 999.5 and power < len(units) - 1:
        count, power = count / 1000, power + 1
    return f"{three_digits(count)}{units[power]}"


def three_digits(number: float) -> str:
    """``0.125``, ``33.6``, ``1234``: three digits, never an exponent for large numbers."""
    text = f"{number:.3g}"
    return text if "e" not in text else f"{float(text):.0f}" if abs(number) >= 1 else text


def format_time(time_us: float) -> str:
    """``840 ns``, ``41.2 µs``, ``3.4 ms``, ``1.2 s`` from microseconds."""
    for scale, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "µs")):
        if time_us >= scale:
            return f"{three_digits(time_us / scale)} {unit}"
    return f"{time_us * 1e3:.0f} ns"


def format_percent(fraction: float) -> str:
    """``4.5 %``, ``38 %``: two digits, or whole percents."""
    return f"{fraction * 100:.2g} %" if fraction < 0.1 else f"{fraction * 100:.0f} %"


def format_error(error: float) -> str:
    """One digit: a maximum error differs from host to host in the others."""
    return "0" if error == 0 else f"{error:.0e}" if math.isfinite(error) else str(error)


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers as text, with two digits beyond the first in which they differ, four at least:
    the last digits of a sum are another processor's others. Whole numbers have all their digits.
    """
    pair, digits = (float(one), float(other)), 4
    distance = abs(pair[0] - pair[1])
    if 0 < distance < math.inf:  # no NaN either
        digits = max(digits, 2 - math.floor(math.log10(distance / max(map(abs, pair)))))
    first, second = (_with_digits(value, digits) for value in pair)
    return first, second


def _with_digits(value: float, digits: int) -> str:
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.{digits}g}" if digits < 16 else str(value)


def rate_unit(dtypes: Sequence[str]) -> str:
    """``GOP/s`` where all these element types are integers, else ``GFLOP/s``."""
    whole = [name.startswith(("int", "uint")) for name in dtypes]
    return "GOP/s" if whole and all(whole) else "GFLOP/s"
