"""Registering modules under TileLang's and TVM's names, and saying clearly what is not in them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import tileworkbench.language as language
from tileworkbench.compat import language as scripts
from tileworkbench.compat.absent import absent, remedy
from tileworkbench.compat.contents import contents, speaks
from tileworkbench.compiler.diagnostics import TileError

_ROOT = "tilelang"
_COMPANIONS = ("tvm", "tvm_ffi")  # stood in for where they are not installed


class _Module(ModuleType):
    """A registered module. What it lacks is said in a sentence that names this package."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        if speaks(self.__name__):
            known = remedy(path) is not None
            if name in scripts.NAMES:
                return scripts.NAMES[name]
            if name in dir(language) or not known:
                return getattr(language, name)
        if remedy(path) is None:
            raise AttributeError(_missing(path, dir(self)))
        made = absent(path)
        setattr(self, name, made)  # the same class whenever it is asked for
        return made

    def __dir__(self) -> list[str]:
        inherited = [*dir(language), *scripts.NAMES] if speaks(self.__name__) else []
        return sorted({*vars(self), *inherited})


def _missing(name: str, near: list[str]) -> str:
    close = difflib.get_close_matches(name.rpartition(".")[2], near, 1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"tileworkbench stands in for TileLang and has no '{name}'{hint}"


class _Finder(MetaPathFinder, Loader):
    """Finds the submodules of registered modules that are absent on purpose. It comes last."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parent, _, _ = fullname.rpartition(".")
        if not isinstance(sys.modules.get(parent), _Module):
            return None
        if remedy(fullname) is None:
            # Not ModuleNotFoundError, which `from tilelang import x` would swallow.
            raise ImportError(_missing(fullname, dir(sys.modules[parent])), name=fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _module(spec.name, {})

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


_finder = _Finder()


def _module(name: str, attributes: Mapping[str, Any]) -> ModuleType:
    made = _Module(name, f"Stands in for the module of this name; see {__package__}.")
    made.__spec__ = ModuleSpec(name, _finder, is_package=True)
    made.__path__ = []
    vars(made).update(attributes)
    return made


def install() -> None:
    """Register this package under TileLang's module names, and under TVM's where TVM is not
    installed; a second call changes nothing.

    Raises `TileError` when TileLang itself has been imported already.
    """
    present = sys.modules.get(_ROOT)
    if isinstance(present, _Module):
        return
    if present is not None:
        raise TileError(
            "'tilelang' is already imported in this process",
            hint="call compat.install() before anything imports it, in a fresh process or kernel",
        )
    roots = {_ROOT, *(name for name in _COMPANIONS if not _is_installed(name))}
    everything = contents()
    modules = {name: _module(name, attributes) for name, attributes in everything.items()}
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent and last not in everything[parent]:  # tilelang.jit is the decorator
            setattr(modules[parent], last, module)
        if name.partition(".")[0] in roots:
            sys.modules[name] = module
    modules[_ROOT].tvm = modules["tvm"]  # type: ignore[attr-defined]
    sys.meta_path.append(_finder)


def _is_installed(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None


def uninstall() -> None:
    """Take the registered names back; what scripts have imported stays with them."""
    for name in [name for name, module in sys.modules.items() if isinstance(module, _Module)]:
        del sys.modules[name]
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
