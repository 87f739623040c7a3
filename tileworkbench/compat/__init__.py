"""TileLang's module names, and TVM's, for scripts written for it.

After `install()` a script that imports ``tilelang`` gets this package instead: the same language,
`jit`, `compile`, `autotune`, profilers and test helpers. A GPU target or back end then follows the
tensors: with tensors on the CPU the kernel is compiled for the CPU, and its card says so.

`contents` lists what each module holds, `absent` what resolves and says at its use what to write
instead; anything else is an error of its import. Beside them `language` has the names of TVM's
notation, `nodes` its classes of values, `targets` and `threads` what targets mean.
"""

from __future__ import annotations

from tileworkbench.compat.modules import install, uninstall

__all__ = ["install", "uninstall"]
