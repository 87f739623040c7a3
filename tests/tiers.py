"""How much tests do that can do more: less in `make test`, all in `make test-all`."""

from __future__ import annotations

SLOW_TOO = False
"""Whether slow tests run as well; `tests/conftest.py` says so before it imports any test."""


def examples(count: int) -> int:
    """How many random examples a property has: `count`, in the fast tier half as many."""
    return count if SLOW_TOO else (count + 1) // 2
