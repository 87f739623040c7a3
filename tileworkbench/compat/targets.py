"""What TileLang calls a target, as a target of ours and a note where they are not the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DEVICES = frozenset({"cuda", "hip", "rocm", "metal", "webgpu", "cutedsl"})
_HOSTS = frozenset({"c", "llvm", "cpu", "auto"})


def read_target(target: Any) -> tuple[str | None, str]:
    """(the target to compile for, the device asked for that the tensors' place overrides).

    `target` is None, a string such as ``cuda``, ``cuda -arch=sm_90`` or ``llvm``, or a dictionary
    or object with a ``kind``. A GPU target gives "auto": code is made for where the tensors are.
    Strings that TileLang does not know are passed on.
    """
    if target is None:
        return None, ""
    if isinstance(target, str) and not target.split():
        return target, ""
    words = _spelling(target)
    kind = words.split()[0].partition(":")[0]
    if kind in _DEVICES:
        return "auto", words
    return ("auto" if words in _HOSTS else words), ""


def _spelling(target: Any) -> str:
    if isinstance(target, str):
        return target
    kind = target.get("kind") if isinstance(target, Mapping) else getattr(target, "kind", target)
    return str(getattr(kind, "name", kind))
