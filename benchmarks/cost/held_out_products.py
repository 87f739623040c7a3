"""Products that the model has not been fitted to."""

from __future__ import annotations

from cost.case import Case

CASES: tuple[Case, ...] = ()
