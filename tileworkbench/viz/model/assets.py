"""The browser's side of the views: ES modules, joined here into one per widget.

A widget's code must be one module, so each file becomes a function that returns what it exports.
Of JavaScript's forms of import and export three are understood, each on a line of its own:
``import * as x from "./file.js"``, ``import { a, b as c } from "./file.js"`` and ``export`` before
a declaration.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_WHOLE = re.compile(r'^import \* as (\w+) from "\./(\w+)\.js";$', re.MULTILINE)
_SOME = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async function|function|class|const) (\w+))", re.MULTILINE)

OWN = (
    *("card", "passes", "stopped", "layouts", "roofline", "bench", "playground", "comparison"),
    "function",
)
"""Modules whose `render` is a widget's own; the others are opened by `view.js`."""


@cache
def read_static(name: str) -> str:
    """The text of one file of `viz/static`."""
    return files("tileworkbench.viz").joinpath("static", name).read_text(encoding="utf-8")


@cache
def needed(name: str) -> tuple[str, ...]:
    """The modules that `name` imports, directly or not, and itself; each after what it needs."""
    text = read_static(f"{name}.js")
    modules: list[str] = []
    for match in (*_WHOLE.finditer(text), *_SOME.finditer(text)):
        modules += needed(match.group(2))
    return tuple(dict.fromkeys((*modules, name)))


@cache
def _declaration(name: str) -> str:
    """The module as a constant ``$name`` with its exports."""
    text = read_static(f"{name}.js")
    exports = ", ".join(match.group(2) for match in _EXPORT.finditer(text))
    text = _EXPORT.sub(r"\1", _WHOLE.sub(r"const \1 = $\2;", text))
    text = _SOME.sub(lambda m: f"const {{{m[1].replace(' as ', ': ')}}} = ${m[2]};", text)
    return f"const ${name} = (() => {{\n{text}\nreturn {{ {exports} }};\n}})();"


@cache
def script(*names: str) -> str:
    """The declarations of some modules and of all that they need, without an export."""
    modules = dict.fromkeys(module for name in names for module in needed(name))
    return "\n".join(_declaration(name) for name in modules)


@cache
def module(name: str) -> str:
    """The ES module of a widget that shows one view, as anywidget loads it."""
    alone = f'$view.alone("{name}", ${name}.render)'
    render = f"$view.explained(${name}.render)" if name in OWN else alone
    return (
        f"{script('place', 'view', name)}\nconst render = {render};\n"
        "export default { render, initialize: $place.initialize(render) };\n"
    )


@cache
def sheets(name: str) -> tuple[str, ...]:
    """The names of a widget's style sheets: of each of its modules that has one."""
    static = files("tileworkbench.viz").joinpath("static")
    parts = dict.fromkeys(("common", *needed(name)))
    return tuple(part for part in parts if static.joinpath(f"{part}.css").is_file())


@cache
def stylesheet(name: str) -> str:
    """The style sheet of a widget."""
    return "\n".join(read_static(f"{sheet}.css") for sheet in sheets(name))
