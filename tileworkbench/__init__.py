"""A Jupyter workbench for GPU and CPU kernels written tile by tile.

Importing this module is cheap: every public name is loaded on first use, so that neither torch nor
Jupyter nor matplotlib is imported before something needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileworkbench.api import Jit as Jit
    from tileworkbench.api import compile as compile
    from tileworkbench.api import jit as jit
    from tileworkbench.api import roofline as roofline
    from tileworkbench.api import targets as targets
    from tileworkbench.bench.ceilings import machine as machine
    from tileworkbench.bench.timing import BenchInterrupted as BenchInterrupted
    from tileworkbench.bench.timing import BenchResult as BenchResult
    from tileworkbench.bench.timing import do_bench as do_bench
    from tileworkbench.compiler.device.host.threads import get_num_threads as get_num_threads
    from tileworkbench.compiler.device.host.threads import set_num_threads as set_num_threads
    from tileworkbench.compiler.diagnostics import CompileError as CompileError
    from tileworkbench.compiler.diagnostics import TileError as TileError
    from tileworkbench.pytorch.operators import torch_op as torch_op
    from tileworkbench.pytorch.tiled import tile as tile
    from tileworkbench.tuning.autotune import autotune as autotune
    from tileworkbench.tuning.autotune import set_autotune_inputs as set_autotune_inputs
    from tileworkbench.tuning.suggest import predict as predict
    from tileworkbench.tuning.suggest import suggest as suggest
    from tileworkbench.tuning.sweep import sweep as sweep
    from tileworkbench.workbench.comparison import compare as compare
    from tileworkbench.workbench.kernel import Kernel as Kernel
    from tileworkbench.workbench.playgrounds import playground as playground

__version__: str  # read from the installed metadata on first use

# Public name -> the module that defines it.
_EXPORTS: dict[str, str] = {
    **dict.fromkeys(("Jit", "compile", "jit", "roofline", "targets"), "tileworkbench.api"),
    "Kernel": "tileworkbench.workbench.kernel",
    "compare": "tileworkbench.workbench.comparison",
    "playground": "tileworkbench.workbench.playgrounds",
    "tile": "tileworkbench.pytorch.tiled",
    "torch_op": "tileworkbench.pytorch.operators",
    **dict.fromkeys(("autotune", "set_autotune_inputs"), "tileworkbench.tuning.autotune"),
    "sweep": "tileworkbench.tuning.sweep",
    **dict.fromkeys(("predict", "suggest"), "tileworkbench.tuning.suggest"),
    **dict.fromkeys(("BenchInterrupted", "BenchResult", "do_bench"), "tileworkbench.bench.timing"),
    "machine": "tileworkbench.bench.ceilings",
    **dict.fromkeys(
        ("get_num_threads", "set_num_threads"), "tileworkbench.compiler.device.host.threads"
    ),
    **dict.fromkeys(
        (
            "ArgumentError",
            "CheckError",
            "CompileError",
            "DeadlockError",
            "DeviceAssertError",
            "DeviceUnavailableError",
            "Interrupted",
            "JITNoBuilderError",
            "LayoutError",
            "NotOneKernelError",
            "OutOfBoundsError",
            "RaceError",
            "ResourceError",
            "RunError",
            "ShapeError",
            "TileAssertionError",
            "TileError",
            "TileIndexError",
            "TileRuntimeError",
            "TileSyntaxError",
            "TileTypeError",
            "TileValueError",
            "TileWarning",
            "UnsupportedError",
        ),
        "tileworkbench.compiler.diagnostics",
    ),
}

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

    magics.load(ipython, import_module(__name__))


def unload_ipython_extension(ipython: Any) -> None:
    """Remove what `load_ipython_extension` registered; called by `%unload_ext tileworkbench`."""
    from tileworkbench.viz import magics

    magics.unload(ipython)
