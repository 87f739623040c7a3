"""A kernel with the configurations that are predicted and measured, and what kernels share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ROWS = (1, 2, 4, 8, 16, 32)
TILES = (8, 16, 64, 256)
ELEMENTS = {"block_M": (1, 8, 64), "block_N": (16, 64, 256, 1024)}
IMAGES = {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256, 1024)}
PIECES = {"block_M": (1, 4, 16), "block_N": (128, 512, 2048, 8192)}  # of rows
SHORT_PIECES = {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)}
COLUMNS = {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)}
SMALL_PRODUCTS = {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "block_K": (32, 64, 128)}


@dataclass(frozen=True)
class Case:
    """A kernel with what stays and what is varied."""

    name: str
    make: Callable[..., Any]
    constants: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]

    @property
    def configurations(self) -> list[dict[str, Any]]:
        """All configurations."""
        tiles = itertools.product(*self.axes.values())
        return [dict(zip(self.axes, each, strict=True)) for each in tiles]

    @property
    def middle(self) -> dict[str, Any]:
        """The configuration in the middle of all."""
        return self.configurations[len(self.configurations) // 2]

    def label(self, config: Mapping[str, Any]) -> str:
        """The kernel with a configuration."""
        return f"{self.name}, {text_of(config)}"


def text_of(config: Mapping[str, Any]) -> str:
    """A configuration in a table."""
    return " ".join(f"{axis}={size}" for axis, size in config.items())
