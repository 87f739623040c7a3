"""The default tile sizes of the library: rows of `tiles.json`, one for each kernel and class of
targets.

``python -m tileworkbench.tuning.default_tiles`` writes the file. The processor has what the time
model ranks first. A GPU has it where the model prefers it to what was chosen by hand by more than
its error; no GPU has confirmed that. `Tiles` says where a row comes from.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.target import parse_target

FILE = Path(__file__).with_name("tiles.json")

CLASSES = ("cpu", "sm_80", "sm_90a", "gfx942")
"""The targets that stand for others: sm_80 for NVIDIA's without wgmma, gfx942 for AMD's."""
_STANDS_FOR = {"cuda": "sm_80", "hip": "gfx942"}


@dataclass(frozen=True, slots=True)
class Tiles:
    """The default tile sizes of a kernel for a class of targets.

    `ratio` is the predicted time over that of the fastest of `tried` configurations, a geometric
    mean over shapes. `exception` says why where the sizes are not the model's, and is empty
    elsewhere. `predicted_ms` are a GPU's times by shape, simulated only.
    """

    kernel: str
    target: str
    sizes: Mapping[str, int]
    exception: str = ""
    ratio: float = 0.0
    tried: int = 0
    predicted_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Where the sizes come from, as half a sentence."""
        if self.exception:
            return f"for {self.target}, {self.exception}"
        off = f"{(self.ratio - 1) * 100:.1f} %"
        near = f"within {off} of the first" if self.ratio > 1 else "the first"
        origin = f"for {self.target} {near} of {self.tried} by predicted time"
        return origin if self.target == "cpu" else f"{origin}, simulated only"

    def __str__(self) -> str:
        return f"{' '.join(f'{name}={size}' for name, size in self.sizes.items())} ({self.origin})"


def tiles_of(kernel: str, target: str | None) -> Tiles:
    """The row of a kernel for a target as `tw.compile` takes it; None and "auto" are the cpu. One
    without sizes for a kernel that has no row. Raises `TileValueError` for an unknown target.
    """
    key = kernel, class_of(target)
    return table().get(key) or Tiles(*key, {})


def class_of(target: str | None) -> str:
    """The class of a target."""
    parsed = parse_target("cpu" if target in (None, "auto") else str(target))
    if parsed.kind == "cpu":
        return "cpu"
    return parsed.arch if parsed.arch in CLASSES else _STANDS_FOR[parsed.kind]


@functools.cache
def table() -> Mapping[tuple[str, str], Tiles]:
    """Every row, by kernel and class of targets."""
    rows = (Tiles(**row) for row in json.loads(FILE.read_text(encoding="utf-8")))
    return {(row.kernel, row.target): row for row in rows}
