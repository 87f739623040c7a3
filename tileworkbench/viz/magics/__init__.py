"""`%%tile` and `%tile`: they parse a line, call the public API and display what it returns."""

from tileworkbench.viz.magics.extension import load, unload

__all__ = ["load", "unload"]
