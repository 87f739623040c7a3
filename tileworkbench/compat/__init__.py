"""TileLang's module names for scripts written for it.

After `install()` a script that imports ``tilelang`` gets this package instead: the same language,
`jit`, `compile`, `autotune`, profilers and test helpers. A GPU target or back end then follows the
tensors: with tensors on the CPU the kernel is compiled for the CPU, and its card says so.
"""

from __future__ import annotations

from tileworkbench.compat.modules import install, uninstall

__all__ = ["install", "uninstall"]
