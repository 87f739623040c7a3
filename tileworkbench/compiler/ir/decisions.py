"""The steps of layout inference, which passes keep for views beside the notes of a program."""

from __future__ import annotations

from enum import StrEnum

from tileworkbench.compiler.fast_dataclass import dataclass


class Verdict(StrEnum):
    """What happened to a demand for a layout."""

    SET = "set"  # the layout is taken
    REFINED = "refined"  # it takes the place of one that it suits as well
    AGREED = "agreed"  # another one had set the same layout before
    YIELDED = "yielded"  # a wish, and another layout was known
    REJECTED = "rejected"  # a choice that did not work out, or cost more than another
    CHOSEN = "chosen"  # the choice that was best; the layouts that it sets follow


@dataclass(frozen=True, slots=True)
class LayoutDecision:
    """One step of layout inference.

    `operator` is the one that demanded, as the user calls it, at `site` (empty and 0: nobody did,
    or the user's annotation); `buffer` is a name and `layout` a formula, both empty for a choice as
    a whole. `reason` is a part of a sentence: who or what is behind the verdict.
    """

    verdict: Verdict
    operator: str
    site: int
    buffer: str
    layout: str
    reason: str
