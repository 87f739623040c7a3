"""Who may import whom: the table, and the reading of a module's imports that it is held against."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = "tileworkbench"


@dataclass(frozen=True, slots=True)
class Rule:
    """What the modules under one name may import.

    `inside` holds names within the package, each with everything under it. `eager` holds
    third-party packages allowed anywhere in a module, `lazy` those allowed inside functions only.
    """

    inside: tuple[str, ...] = ()
    eager: tuple[str, ...] = ()
    lazy: tuple[str, ...] = ()


_FOUNDATION = (
    *("compiler.ir", "compiler.layout", "compiler.machine"),
    *("compiler.diagnostics", "compiler.fast_dataclass", "compiler.target"),
)
_MIDDLE = (
    *("compiler.analysis", "compiler.schedule", "compiler.lower", "compiler.passes"),
    *("compiler.frontend", "compiler.emit"),
)
_EMITTING = (*_FOUNDATION, "compiler.analysis", "compiler.emit.float_formats")
_EXECUTION = ("compiler.record", "compiler.sim", "compiler.runtime")
_COMPILING = (
    *("compiler.signature", "compiler.lowering", "compiler.compilation"),
    *("compiler.device", "compiler.rewrites"),
)
_PROGRAMMING = (*_COMPILING, "compiler.driver", "language", "kernels")
_BELOW_VIEWS = (*_FOUNDATION, *_MIDDLE, *_EXECUTION, *_PROGRAMMING)
_JUPYTER = ("IPython", "anywidget", "ipywidgets", "traitlets")

# The longest name that a module's own name starts with decides; a module without one is an error.
# A module may always import its siblings under the same name.
RULES: Mapping[str, Rule] = {
    # 0: data, on the standard library
    "compiler": Rule(),
    "compiler.fast_dataclass": Rule(),
    "compiler.diagnostics": Rule(("compiler.fast_dataclass",)),
    "compiler.target": Rule(
        ("compiler.diagnostics", "compiler.fast_dataclass", "compiler.machine")
    ),
    "compiler.machine": Rule(
        (
            *("compiler.diagnostics", "compiler.fast_dataclass", "compiler.layout"),
            "compiler.ir.types",
        )
    ),
    "compiler.layout": Rule(
        (
            *("compiler.diagnostics", "compiler.fast_dataclass"),
            *("compiler.ir.node", "compiler.ir.types", "compiler.ir.expr"),
        ),
        eager=("numpy",),
    ),
    "compiler.ir": Rule(_FOUNDATION, lazy=("numpy", "ml_dtypes")),
    # 1: the compiler proper; frontend, passes and emit never see each other
    "compiler.analysis": Rule(_FOUNDATION, eager=("numpy",)),
    "compiler.schedule": Rule((*_FOUNDATION, "compiler.analysis"), eager=("numpy",)),
    "compiler.lower": Rule((*_FOUNDATION, "compiler.analysis"), eager=("numpy",)),
    # CPU vectors and GPU threads lower for themselves.
    "compiler.lower.vectors": Rule((*_FOUNDATION, "compiler.analysis", "compiler.lower.shared")),
    "compiler.lower.threads": Rule(
        (*_FOUNDATION, "compiler.analysis", "compiler.lower.shared"), eager=("numpy",)
    ),
    "compiler.lower.thread_loops": Rule(
        (*_FOUNDATION, "compiler.analysis", "compiler.lower.shared", "compiler.lower.vectors")
    ),
    "compiler.passes": Rule(
        (*_FOUNDATION, "compiler.analysis", "compiler.schedule", "compiler.lower"),
        eager=("numpy",),
    ),
    "compiler.frontend": Rule(_FOUNDATION, lazy=("numpy", "ml_dtypes")),
    "compiler.emit": Rule(_FOUNDATION),
    # The core of C-like languages knows none of them, and they do not know each other.
    "compiler.emit.c_like": Rule(_EMITTING),
    "compiler.emit.cuda": Rule((*_EMITTING, "compiler.emit.c_like")),
    "compiler.emit.llvm": Rule((*_EMITTING, "compiler.emit.c_sources"), eager=("numpy",)),
    # 2: execution
    "compiler.record": Rule((*_FOUNDATION, *_MIDDLE), eager=("numpy",)),
    "compiler.sim": Rule((*_FOUNDATION, *_MIDDLE, "compiler.record"), eager=("numpy", "ml_dtypes")),
    # What runs the PTX knows nothing of the compiler: only then does agreement prove something.
    "compiler.sim.ptx": Rule(("compiler.diagnostics",), eager=("numpy", "ml_dtypes")),
    "compiler.runtime": Rule(
        # the driver: which device an address belongs to
        (*_FOUNDATION, *_MIDDLE, "compiler.record", "compiler.device.nvidia.driver"),
        eager=("numpy", "ml_dtypes"),
        lazy=("torch",),
    ),
    # 3: the whole compiler wired together, and what users write kernels in
    "compiler.signature": Rule((*_FOUNDATION, *_MIDDLE, *_EXECUTION)),
    "compiler.lowering": Rule((*_FOUNDATION, *_MIDDLE, "compiler.record")),
    "compiler.rewrites": Rule(
        (*_FOUNDATION, *_MIDDLE, "compiler.record", "compiler.lowering", "compiler.driver"),
    ),
    "compiler.compilation": Rule(
        (*_FOUNDATION, *_MIDDLE, *_EXECUTION, *_COMPILING[:2], "compiler.device.nvidia.nvrtc")
    ),
    "compiler.device": Rule((*_FOUNDATION, *_MIDDLE, *_EXECUTION, *_COMPILING), lazy=("numpy",)),
    # what devices are made of knows no kernels
    "compiler.device.host": Rule(
        (*_FOUNDATION, "compiler.runtime"), lazy=("llvmlite", "platformdirs", "torch")
    ),
    "compiler.device.host.kernel": Rule((*_FOUNDATION, *_MIDDLE, *_EXECUTION, *_COMPILING)),
    "compiler.device.nvidia": Rule(
        (
            *("compiler.diagnostics", "compiler.fast_dataclass", "compiler.device.launch"),
            "compiler.device.runtime_compiler",
        ),
        lazy=("platformdirs",),
    ),
    "compiler.device.nvidia.kernel": Rule((*_FOUNDATION, *_MIDDLE, *_EXECUTION, *_COMPILING)),
    "compiler.driver": Rule((*_FOUNDATION, *_MIDDLE, *_EXECUTION, *_COMPILING)),
    "language": Rule((*_FOUNDATION, "compiler.analysis", "compiler.frontend")),
    "kernels": Rule(_BELOW_VIEWS, lazy=("torch",)),  # references of tests
    # 4: measuring, and records turned into what views show
    "bench": Rule(_BELOW_VIEWS, eager=("numpy",), lazy=("platformdirs", "torch")),
    "viz": Rule(),
    "viz.model": Rule(
        (*_BELOW_VIEWS, "bench.units", "bench.points", "bench.parts", "workbench.results"),
        eager=("numpy",),
    ),
    # 5: Jupyter
    "viz.widgets": Rule(
        (*_BELOW_VIEWS, "bench", "viz.model", "workbench.results"),
        eager=("numpy", *_JUPYTER),
        lazy=("matplotlib",),
    ),
    "viz.display": Rule(
        (*_BELOW_VIEWS, "bench", "viz.model", "viz.widgets"), eager=("numpy", *_JUPYTER)
    ),
    # The magics are sugar over the public names, so they alone of viz see layer 6.
    "viz.magics": Rule(
        (
            *(*_BELOW_VIEWS, "bench", "viz.model", "viz.widgets", "viz.display"),
            *("api", "editing", "puzzles", "pytorch", "tuning", "workbench"),
        ),
        eager=("numpy", *_JUPYTER),
        lazy=("matplotlib", "torch"),
    ),
    # 6: the public face
    "api": Rule(("",), eager=("numpy",), lazy=("torch",)),
    "workbench": Rule(("",), eager=("numpy",), lazy=("matplotlib", "pandas", "torch", *_JUPYTER)),
    "shipping": Rule(_BELOW_VIEWS),
    # What is copied beside a shipped kernel: of the package, the modules that are copied with it.
    "shipping.shipped": Rule(
        ("compiler.device.launch", "compiler.device.nvidia", "compiler.device.amd.driver"),
        lazy=("numpy", "torch", "ml_dtypes"),
    ),
    "workbench.results": Rule((*_FOUNDATION, "compiler.analysis.atoms")),
    "tuning": Rule(("",), eager=("numpy",), lazy=("pandas", "torch")),
    "editing": Rule(("",), eager=("numpy",)),
    # What it calls is named by whoever asks.
    "isolation": Rule(("compiler.diagnostics",)),
    "pytorch": Rule(("",), eager=("numpy",), lazy=("torch",)),
    "puzzles": Rule(("",), eager=("numpy",), lazy=("platformdirs",)),
    "compat": Rule(("",), lazy=("numpy", "pytest", "torch")),
    "labext": Rule(),
    "__main__": Rule(("labext",)),
    "demo": Rule(("",), eager=("numpy",), lazy=("nbclient", "nbformat", "torch")),
    ROOT: Rule(("",)),
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, as one statement of `importer` names it."""

    importer: str
    line: int
    target: str
    lazy: bool  # inside a function: runs when called, not when the module loads
    typing_only: bool  # under `if TYPE_CHECKING`: never runs


def module_name(path: Path, package: Path) -> str:
    """The dotted name of the module in `path`, where `package` is the folder of `tileworkbench`."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def read_modules(package: Path) -> dict[str, ast.Module]:
    """Every module under `package` by its dotted name, parsed."""
    return {
        module_name(path, package): ast.parse(path.read_text(encoding="utf-8"), str(path))
        for path in sorted(package.rglob("*.py"))
    }


def imports_of(
    name: str, tree: ast.Module, modules: Mapping[str, ast.Module], packages: frozenset[str]
) -> Iterator[Import]:
    """Every import in a module; `b` of `from a import b` counts as `a.b` where that is a module."""

    def visit(node: ast.AST, lazy: bool, typing_only: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, node.lineno, alias.name, lazy, typing_only)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, name, name in packages)
            targets = {
                full if (full := f"{base}.{alias.name}") in modules else base
                for alias in node.names
            }
            for target in sorted(targets):
                yield Import(name, node.lineno, target, lazy, typing_only)
        inner_lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # in which nothing is imported
                yield from visit(child, inner_lazy, typing_only or guarded)

    yield from visit(tree, False, False)


def _absolute(node: ast.ImportFrom, importer: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = importer.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def rule_for(name: str) -> tuple[str, Rule] | None:
    """The entry of `RULES` that decides for module `name`, or None if none does."""
    if name == ROOT:
        return ROOT, RULES[ROOT]
    inner = name.removeprefix(f"{ROOT}.")
    owners = [owner for owner in RULES if _under(inner, owner)]
    # `compiler` and `viz` stand for their `__init__` alone, not for what nobody listed.
    owner = max(owners, key=len, default=None)
    if owner is None or (owner in ("compiler", "viz") and inner != owner):
        return None
    return owner, RULES[owner]


def _under(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith(f"{prefix}.")


def why_forbidden(found: Import, owner: str, rule: Rule) -> str | None:
    """One sentence saying what is wrong with an import by modules under `owner`, or None."""
    top = found.target.partition(".")[0]
    if top == ROOT:
        if found.target == ROOT and found.importer != ROOT:
            return "nothing inside the package imports its root"
        inner = found.target.removeprefix(ROOT).removeprefix(".")
        if any(_under(inner, allowed) for allowed in (*rule.inside, owner)):
            return None
        return f"'{owner}' may import {list(rule.inside)} of the package, not '{inner}'"
    if top in sys.stdlib_module_names or found.typing_only or top in rule.eager:
        return None
    if top in rule.lazy:
        return None if found.lazy else f"'{owner}' may import '{top}' inside a function only"
    return f"'{owner}' may not import '{top}'"


def find_violations(modules: Mapping[str, ast.Module], packages: frozenset[str]) -> list[str]:
    """Each module in no layer, and each forbidden import with its line and the reason."""
    found: list[str] = []
    for name, tree in modules.items():
        entry = rule_for(name)
        if entry is None:
            found.append(f"{name}: is in no layer: add it to RULES in tests/architecture/layers.py")
            continue
        for each in imports_of(name, tree, modules, packages):
            if why := why_forbidden(each, *entry):
                found.append(f"{name}:{each.line}: imports '{each.target}': {why}")
    return found


def find_cycles(modules: Mapping[str, ast.Module], packages: frozenset[str]) -> list[list[str]]:
    """Groups of modules that import each other while loading, each group sorted."""
    edges = {
        name: {
            found.target
            for found in imports_of(name, tree, modules, packages)
            if not found.lazy and not found.typing_only and found.target in modules
        }
        for name, tree in modules.items()
    }
    reach = {name: _reachable(name, edges) for name in modules}
    cyclic = {name for name in modules if name in reach[name]}
    groups = {frozenset({m for m in reach[name] if name in reach[m]}) for name in cyclic}
    return sorted(sorted(group) for group in groups)


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    pending = list(edges[start])
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending.extend(edges[name])
    return seen
