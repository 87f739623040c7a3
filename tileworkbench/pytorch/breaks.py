"""Where torch's capture of a function ends, and Python goes on between two graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tileworkbench.pytorch.report import Report


@contextmanager
def breaks_of_graphs(report: Report) -> Iterator[None]:
    """Add the breaks of what is captured inside to `report`, each with its line and reason."""
    reasons, known = _reasons(), set(_explained())
    before = len(reasons)
    try:
        yield
    finally:
        if len(reasons) > before:
            explained = [text for text in _explained() if text not in known]
            for place, each in enumerate(reasons[before:]):
                said = explained[place] if place < len(explained) else str(each.reason)
                report.breaks.append(_told(each, said))


def not_captured(name: str, args: Sequence[Any]) -> str:
    """Why torch captured nothing of a call, as far as its arguments tell."""
    import torch

    kinds = [
        "a quantised" if each.is_quantized else f"a {str(each.layout).removeprefix('torch.')}"
        for each in args
        if isinstance(each, torch.Tensor) and (each.is_quantized or each.layout != torch.strided)
    ]
    why = f", which takes {kinds[0]} tensor" if kinds else ""
    return f"all of '{name}': torch captures no operation of it{why}"


def _reasons() -> list[Any]:
    """Torch's list of breaks since it was reset; it grows."""
    from torch._dynamo import utils

    reasons: list[Any] = utils.graph_break_reasons
    return reasons


def _explained() -> list[str]:
    """Torch's longer texts about them, in the same order, one for each kind."""
    from torch._dynamo import utils

    return list(utils.counters["unimplemented"])


def _told(reason: Any, explained: str) -> str:
    """``line 6, 'if y.sum() > 0:': data-dependent branching``."""
    said = explained.splitlines()[0].strip().rstrip(".")
    if not reason.user_stack:
        return said
    frame = reason.user_stack[-1]
    return f"line {frame.lineno}, '{(frame.line or '').strip()}': {said}"
