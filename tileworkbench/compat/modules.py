"""Registering modules under TileLang's names, and saying clearly what is not among them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import tileworkbench.language as language
from tileworkbench.api import Jit
from tileworkbench.compat import autotuner, kernels, names, profiler, testing
from tileworkbench.compiler.diagnostics import JITNoBuilderError, TileError
from tileworkbench.tuning.supply import TensorSupplyType

_RELEASE = "0.1.15"  # the release whose language this package speaks
_TVM = (
    "arith", "driver", "engine", "intrinsics", "ir", "libinfo", "quantize", "relax", "script",
    "te", "tileop", "tir", "topi", "transform", "tvm", "tvm_ffi",
)  # fmt: skip
_LAYOUTS = (
    "make_swizzled_layout",
    "make_volta_swizzled_layout",
    "make_wgmma_swizzled_layout",
    "make_tcgen05mma_swizzled_layout",
    "make_full_bank_swizzled_layout",
    "make_half_bank_swizzled_layout",
    "make_quarter_bank_swizzled_layout",
)


def _public(module: ModuleType) -> dict[str, Any]:
    """What a module defines or names on purpose, not the modules and types it needs itself."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", "").startswith("tileworkbench.")
    }


def _contents() -> dict[str, Mapping[str, Any]]:
    """The attributes of every module by its name; a module comes after its parent."""
    jit = {
        "JITKernel": kernels.JITKernel,
        "JITImpl": Jit,
        "par_compile": kernels.par_compile,
    }
    cache = (names.disable_cache, names.enable_cache, names.is_cache_enabled)
    layouts = {name: names.layout_function(name) for name in _LAYOUTS}
    tensor = {
        "TensorSupplyType": TensorSupplyType,
        "map_torch_type": names.map_torch_type,
        "torch_assert_close": testing.torch_assert_close,
    }
    keys = {"PassConfigKey": names.PassConfigKey}
    math = {"cdiv": names.cdiv, "next_power_of_2": names.next_power_of_2}
    driver = {"get_num_sms": names.get_num_sms}
    return {
        "tilelang": {
            **jit, **keys, **math,
            **{function.__name__: function for function in cache},
            "Profiler": profiler.Profiler,
            "TensorSupplyType": TensorSupplyType,
            "__version__": _RELEASE,
            "autotune": autotuner.autotune,
            "compile": kernels.compile,
            "jit": kernels.jit,
            "lower": names.lower,
            "set_log_level": names.set_log_level,
        },
        "tilelang.autotuner": _public(autotuner),
        "tilelang.carver": {},
        "tilelang.carver.arch": {},
        "tilelang.carver.arch.driver": driver,
        "tilelang.jit": {**jit, "compile": kernels.compile, "jit": kernels.jit},
        "tilelang.jit.exceptions": {"JITNoBuilderError": JITNoBuilderError},
        "tilelang.language": {"__all__": language.__all__},
        "tilelang.language.fp8": {"determine_fp8_type": names.determine_fp8_type},
        "tilelang.layout": {**layouts, "Fragment": language.Fragment, "Layout": language.Layout},
        "tilelang.math": math,
        "tilelang.profiler": {**_public(profiler), "TensorSupplyType": TensorSupplyType},
        "tilelang.testing": _public(testing),
        "tilelang.transform": keys,
        "tilelang.utils": tensor,
        "tilelang.utils.tensor": tensor,
    }  # fmt: skip


class _Module(ModuleType):
    """A registered module. What it lacks is said in a sentence that names this package."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "tilelang.language":
            return getattr(language, name)
        raise AttributeError(_missing(f"{self.__name__}.{name}", dir(self)))

    def __dir__(self) -> list[str]:
        inherited = dir(language) if self.__name__ == "tilelang.language" else []
        return sorted({*vars(self), *inherited})


def _missing(name: str, near: list[str]) -> str:
    last = name.rpartition(".")[2]
    if name.split(".")[1] in _TVM:
        return f"'{name}' belongs to TVM or TileLang's compiler: tileworkbench is built on neither"
    close = difflib.get_close_matches(last, near, 1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"tileworkbench stands in for TileLang and has no '{name}'{hint}"


class _Finder(MetaPathFinder):
    """Comes last, and is asked only for submodules that nobody has."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        parent, _, _ = fullname.rpartition(".")
        if isinstance(sys.modules.get(parent), _Module):
            # Not ModuleNotFoundError, which `from tilelang import tvm` would swallow.
            raise ImportError(_missing(fullname, dir(sys.modules[parent])), name=fullname)


_finder = _Finder()


def install() -> None:
    """Register this package under TileLang's module names; a second call changes nothing.

    Raises `TileError` when TileLang itself has been imported already.
    """
    present = sys.modules.get("tilelang")
    if isinstance(present, _Module):
        return
    if present is not None:
        raise TileError(
            "'tilelang' is already imported in this process",
            hint="call compat.install() before anything imports it, in a fresh process or kernel",
        )
    contents = _contents()
    for name, attributes in contents.items():
        module = _Module(name, f"Stands in for TileLang's module of this name; see {__package__}.")
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        vars(module).update(attributes)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent and last not in contents[parent]:  # tilelang.jit is the decorator
            setattr(sys.modules[parent], last, module)
    sys.meta_path.append(_finder)


def uninstall() -> None:
    """Take the registered names back; what scripts have imported stays with them."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tilelang"]:
        if isinstance(sys.modules[name], _Module):
            del sys.modules[name]
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
