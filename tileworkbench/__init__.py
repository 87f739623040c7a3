"""A Jupyter workbench for GPU and CPU kernels written tile by tile.

Importing this module is cheap: every public name is loaded on first use, so that neither torch nor
Jupyter nor matplotlib is imported before something needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__: str  # read from the installed metadata on first use

# Public name -> the module that defines it.
_EXPORTS: dict[str, str] = {}

__all__ = ["__version__", "load_ipython_extension", "unload_ipython_extension", *_EXPORTS]


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        value = import_module("importlib.metadata").version(__name__)
    elif name in _EXPORTS:
        value = getattr(import_module(_EXPORTS[name]), name)
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


def load_ipython_extension(ipython: Any) -> None:
    """Register `%tile` and `%%tile`; called by `%load_ext tileworkbench`."""
    from tileworkbench.viz import magics

    magics.load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Remove what `load_ipython_extension` registered; called by `%unload_ext tileworkbench`."""
    from tileworkbench.viz import magics

    magics.unload(ipython)
